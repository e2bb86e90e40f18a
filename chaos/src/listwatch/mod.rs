//! Programs made for Kubernetes, run as they are against the list-watch door.
//!
//! None of them is changed or told anything about Meerkat but where it is: they get a kubeconfig that
//! `meerkat kubeconfig` wrote. What cannot be had is reported as missing, never worked around.

pub mod chosen;
pub mod client_go;
pub mod crowd;
pub mod http;
pub mod informer;
pub mod kubectl;
pub mod python;
pub mod raw;
pub mod stock;
pub mod streams;
pub mod tier;
pub mod truth;
pub mod writers;

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::driver::{Cluster, ClusterSpec, Product};
use crate::{Failure, Patience, binary};

/// How long a member may take from serving its first door to serving its second.
const OPEN_WITHIN: Duration = Duration::from_secs(20);

/// Three members, with the door of each open.
pub async fn start(members: usize) -> Result<Cluster, Failure> {
    let cluster = Cluster::start(&ClusterSpec::new(Product::Meerkat, members).with_listwatch()).await?;
    for member in 0..members {
        wait_until_open(&cluster, member).await?;
    }
    Ok(cluster)
}

/// Waits until a member's door says that it is ready, and the first namespace is there, which the
/// door makes itself.
pub async fn wait_until_open(cluster: &Cluster, member: usize) -> Result<(), Failure> {
    let url = cluster.members()[member].listwatch_url();
    let ready = async {
        for path in ["/readyz", "/api/v1/namespaces/default"] {
            while !http::ask(&url, "GET", path, None).await.is_ok_and(|answered| answered.status == 200) {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    };
    Patience::of(format!("the list-watch door at {url} is ready"), OPEN_WITHIN).wait(ready).await
}

/// Has `meerkat kubeconfig` write one for a member into `dir`.
pub fn kubeconfig(server: &str, dir: &Path) -> Result<PathBuf, Failure> {
    let file = dir.join(format!("kubeconfig-{}", server.rsplit(':').next().unwrap_or("door")));
    let output = std::process::Command::new(binary::meerkat()?)
        .args(["kubeconfig", "--force", "--server", server, "--out"])
        .arg(&file)
        .output()?;
    if output.status.success() {
        Ok(file)
    } else {
        Err(Failure::broken(format!("meerkat kubeconfig: {}", String::from_utf8_lossy(&output.stderr))))
    }
}

/// The directory that `scripts/setup` puts programs into.
fn tools() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../.tools")
}
