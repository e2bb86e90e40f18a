//! The Kubernetes client for Python: its lists, and its Watch, which resumes by itself.

use std::path::Path;
use std::time::Duration;

use meerkat_chaos::listwatch::{kubeconfig, python, start};
use meerkat_chaos::scenario::run_test;

#[test]
fn lists_watches_and_writes_of_the_python_client() {
    let printed = run_test("python client", Duration::from_secs(120), async {
        let cluster = start(1).await?;
        let config = kubeconfig(&cluster.members()[0].listwatch_url(), cluster.dir())?;
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/listwatch/client.py");
        let printed = python::run(&script, &config, Duration::from_secs(90)).await?;
        cluster.finish()?;
        Ok(printed)
    });
    if let Some(printed) = printed {
        assert!(printed.ends_with("all held\n"), "{printed}");
    }
}
