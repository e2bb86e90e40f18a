//! The list-watch door as a program of its own, without a store: it can be killed and lose nothing.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::http;
use crate::driver::process::{Launch, Process};
use crate::{Failure, Patience, binary};
use meerkat_ports::Port;

const OPEN_WITHIN: Duration = Duration::from_secs(20);

/// One such program, through all its lives.
#[derive(Debug)]
pub struct Tier {
    port: Port,
    endpoints: String,
    log: PathBuf,
    process: Option<Process>,
}

impl Tier {
    /// Starts it before the etcd doors of these members.
    pub async fn start(endpoints: &[String], dir: &Path) -> Result<Tier, Failure> {
        let port = Port::take()?;
        let log = dir.join(format!("tier-{}.log", port.number()));
        let mut tier = Tier { port, endpoints: endpoints.join(","), log, process: None };
        tier.revive().await?;
        Ok(tier)
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port.number())
    }

    /// `kill -9`.
    pub fn kill(&mut self) -> Result<(), Failure> {
        self.process.take().map_or(Ok(()), |mut process| process.kill())
    }

    /// Starts it, and waits until it serves.
    pub async fn revive(&mut self) -> Result<(), Failure> {
        let program = binary::meerkat()?;
        let args = vec![
            "listwatch".to_owned(),
            format!("--endpoints={}", self.endpoints),
            format!("--listen-urls={}", self.url()),
        ];
        let launch = Launch { program: &program, args, env: Vec::new(), log: &self.log, bound: false };
        let mut process = Process::spawn(&launch)?;
        let patience = Patience::of("the tier is ready", OPEN_WITHIN);
        while !http::ask(&self.url(), "GET", "/readyz", None).await.is_ok_and(|ready| ready.status == 200) {
            if let Some(status) = process.exited()? {
                return Err(Failure::broken(format!("the tier ended: {status}; {}", self.log.display())));
            }
            patience.pause(Duration::from_millis(50), self.log.display()).await?;
        }
        self.process = Some(process);
        patience.came().map(drop)
    }
}
