//! What went wrong with leases elsewhere does not go wrong here: tests for each incident.
//!
//! Numbers are issues of etcd. `MEERKAT_PRODUCT=etcd` runs the same on etcd, where some of them can
//! still be seen.

mod known;
mod old_leader;

use meerkat_chaos::driver::Product;

fn product() -> Product {
    match std::env::var("MEERKAT_PRODUCT").as_deref() {
        Ok("etcd") => Product::Etcd,
        _ => Product::Meerkat,
    }
}
