//! Turns every `.proto` text under `proto/` into Rust, with no compiler but the ones cargo builds.
//!
//! A new file is picked up by itself; its package still needs a line in `src/lib.rs`.

use prost::Message;
use std::error::Error;
use std::path::{Path, PathBuf};

fn main() -> Result<(), Box<dyn Error>> {
    let manifest = PathBuf::from(std::env::var("CARGO_MANIFEST_DIR")?);
    let root = manifest.join("proto").canonicalize()?;
    // A directory is watched with all that is below it, new files included.
    println!("cargo:rerun-if-changed={}", root.display());

    let mut texts = Vec::new();
    collect(&root, &mut texts)?;
    texts.sort();

    let descriptors = protox::compile(&texts, [&root])?;
    // For the gateway and for reflection, which need no comments and positions.
    let mut bare = descriptors.clone();
    bare.file.iter_mut().for_each(|file| file.source_code_info = None);
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out.join("descriptors.bin"), bare.encode_to_vec())?;
    tonic_prost_build::configure()
        .build_client(true)
        .build_server(true)
        .bytes(".")
        // Written by hand, so that key-values can go out as the bytes they were read as.
        .extern_path(".etcdserverpb.RangeResponse", "crate::range_response::RangeResponse")
        .compile_fds(descriptors)?;
    Ok(())
}

fn collect(directory: &Path, texts: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, texts)?;
        } else if path.extension().is_some_and(|extension| extension == "proto") {
            texts.push(path);
        }
    }
    Ok(())
}
