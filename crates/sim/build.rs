//! Lets the program's own clock and randomness be found by name at run time too: one library looks
//! them up that way.

fn main() {
    for symbol in ["getrandom", "getentropy", "clock_gettime"] {
        println!("cargo:rustc-link-arg-bins=-Wl,--export-dynamic-symbol={symbol}");
    }
    println!("cargo:rerun-if-changed=build.rs");
}
