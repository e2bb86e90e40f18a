//! The Docker engine, through its HTTP API on its unix socket: no `docker` command is needed, so it
//! works from inside a container that was given the socket.
//!
//! Knows containers and networks, not clusters; whoever uses it decides which containers are his to
//! strike. Every call has a deadline, and what the engine refuses is told in the engine's words.

mod http;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::Failure;

/// Beyond what the engine itself waits for, as when it stops a container.
const ANSWER_WITHIN: Duration = Duration::from_secs(20);
const SOCKET_DEFAULT: &str = "/var/run/docker.sock";

/// A way to an engine.
#[derive(Clone, Debug)]
pub struct Engine {
    socket: PathBuf,
}

/// One container, as a list shows it.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Container {
    /// Its id.
    pub id: String,
    /// What it is labelled with.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
}

/// One container, looked at closely.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Details {
    /// What it is doing.
    pub state: State,
    /// What it was made with.
    pub config: Config,
    /// Where it can be reached.
    pub network_settings: Reach,
}

/// What a container is doing.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct State {
    /// Whether its process is there; a paused one is.
    pub running: bool,
    /// Whether it is frozen.
    pub paused: bool,
    /// Its process, as this machine counts.
    pub pid: u32,
}

/// What a container was made with.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Config {
    /// What it is labelled with.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
}

/// Where a container can be reached.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Reach {
    /// The ports of this machine that lead to its own, which are called `2379/tcp`.
    #[serde(default)]
    pub ports: BTreeMap<String, Option<Vec<Binding>>>,
    /// The networks it is on, by name.
    #[serde(default)]
    pub networks: BTreeMap<String, Attachment>,
}

/// A port of this machine.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Binding {
    /// Its address.
    pub host_ip: String,
    /// Its number.
    pub host_port: String,
}

/// A container's place on a network.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Attachment {
    /// The network.
    #[serde(rename = "NetworkID")]
    pub network_id: String,
    /// Its address there; empty while it does not run.
    #[serde(rename = "IPAddress")]
    pub ip_address: String,
}

/// One network, as a list shows it.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Network {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
}

/// What a container costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Memory that its group of processes holds.
    pub memory_bytes: u64,
    /// Its threads and processes.
    pub pids: u64,
    /// Processor time since it started.
    pub cpu_millis: u64,
}

impl Engine {
    /// The engine of this machine; a failure that says so if none answers.
    pub async fn find() -> Result<Self, Failure> {
        let host = std::env::var("DOCKER_HOST").unwrap_or_default();
        let socket = match host.strip_prefix("unix://") {
            Some(path) => path,
            None if host.is_empty() => SOCKET_DEFAULT,
            None => {
                return Err(Failure::Missing(format!(
                    "DOCKER_HOST is {host:?}; only unix:// is spoken here"
                )));
            }
        };
        let engine = Self { socket: socket.into() };
        match engine.ask("GET", "/_ping", None).await {
            Ok(_) => Ok(engine),
            Err(failure) => Err(Failure::Missing(format!("no Docker engine answers: {failure}"))),
        }
    }

    /// All containers with these labels, running or not.
    pub async fn containers(&self, labels: &[String]) -> Result<Vec<Container>, Failure> {
        let filters = http::escape(&json!({ "label": labels }).to_string());
        self.read(&format!("/containers/json?all=true&filters={filters}")).await
    }

    /// All networks with these labels.
    pub async fn networks(&self, labels: &[String]) -> Result<Vec<Network>, Failure> {
        let filters = http::escape(&json!({ "label": labels }).to_string());
        self.read(&format!("/networks?filters={filters}")).await
    }

    /// One container, looked at closely.
    pub async fn inspect(&self, id: &str) -> Result<Details, Failure> {
        self.read(&format!("/containers/{}/json", http::escape(id))).await
    }

    /// SIGKILL. No error if it has already ended.
    pub async fn kill(&self, id: &str) -> Result<(), Failure> {
        // 409: it is not running.
        self.act(&format!("/containers/{id}/kill?signal=SIGKILL"), None, &[409]).await
    }

    /// SIGTERM, and SIGKILL after the grace; waits for the end.
    pub async fn stop(&self, id: &str, grace: Duration) -> Result<(), Failure> {
        self.act(&format!("/containers/{id}/stop?t={}", grace.as_secs()), None, &[]).await
    }

    /// Starts it as it was made.
    pub async fn start(&self, id: &str) -> Result<(), Failure> {
        self.act(&format!("/containers/{id}/start"), None, &[]).await
    }

    /// Freezes all its processes.
    pub async fn pause(&self, id: &str) -> Result<(), Failure> {
        self.act(&format!("/containers/{id}/pause"), None, &[]).await
    }

    /// Lets them run again; refused if it is not paused.
    pub async fn unpause(&self, id: &str) -> Result<(), Failure> {
        self.act(&format!("/containers/{id}/unpause"), None, &[]).await
    }

    /// Takes it off a network.
    pub async fn disconnect(&self, network: &str, id: &str) -> Result<(), Failure> {
        let body = json!({ "Container": id, "Force": true });
        self.act(&format!("/networks/{network}/disconnect"), Some(&body), &[]).await
    }

    /// Puts it on a network, where it is known under these names.
    pub async fn connect(&self, network: &str, id: &str, aliases: &[String]) -> Result<(), Failure> {
        let body = json!({ "Container": id, "EndpointConfig": { "Aliases": aliases } });
        self.act(&format!("/networks/{network}/connect"), Some(&body), &[]).await
    }

    /// The last lines it printed.
    pub async fn logs(&self, id: &str, lines: usize) -> Result<String, Failure> {
        let target = format!("/containers/{id}/logs?stdout=true&stderr=true&tail={lines}");
        Ok(text_of(&self.ask("GET", &target, None).await?))
    }

    /// What it costs now.
    pub async fn stats(&self, id: &str) -> Result<Stats, Failure> {
        let stats: Value = self.read(&format!("/containers/{id}/stats?stream=false&one-shot=true")).await?;
        Ok(stats_of(&stats))
    }

    async fn read<T: DeserializeOwned>(&self, target: &str) -> Result<T, Failure> {
        let body = self.ask("GET", target, None).await?;
        serde_json::from_slice(&body).map_err(|error| {
            Failure::harness(format!("GET {target}: the Docker engine's answer is not understood: {error}"))
        })
    }

    async fn act(&self, target: &str, body: Option<&Value>, also: &[u16]) -> Result<(), Failure> {
        let answer = http::ask(&self.socket, "POST", target, body, ANSWER_WITHIN).await?;
        // 304: it was so already.
        let fine = answer.status < 300 || answer.status == 304 || also.contains(&answer.status);
        if fine { Ok(()) } else { Err(refusal("POST", target, &answer)) }
    }

    async fn ask(&self, method: &str, target: &str, body: Option<&Value>) -> Result<Vec<u8>, Failure> {
        let answer = http::ask(&self.socket, method, target, body, ANSWER_WITHIN).await?;
        if answer.status < 300 { Ok(answer.body) } else { Err(refusal(method, target, &answer)) }
    }
}

fn refusal(method: &str, target: &str, answer: &http::Answer) -> Failure {
    let said = serde_json::from_slice::<Value>(&answer.body).unwrap_or_default();
    let said = said["message"].as_str().unwrap_or("without a reason").to_owned();
    Failure::harness(format!("the Docker engine refused {method} {target} ({}): {said}", answer.status))
}

/// Output of a container without a terminal comes in frames: a byte for the stream, three of nothing,
/// four for the length.
fn text_of(mut frames: &[u8]) -> String {
    let mut text = Vec::new();
    while let Some((head, rest)) = frames.split_first_chunk::<8>() {
        let length = u32::from_be_bytes([head[4], head[5], head[6], head[7]]) as usize;
        let (frame, after) = rest.split_at(length.min(rest.len()));
        text.extend_from_slice(frame);
        frames = after;
    }
    String::from_utf8_lossy(&text).into_owned()
}

fn stats_of(stats: &Value) -> Stats {
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    let memory = &stats["memory_stats"];
    // Files that the kernel keeps in memory on the side are not the container's need; the two
    // generations of control groups call them differently.
    let files =
        ["total_inactive_file", "inactive_file"].iter().map(|name| number(&memory["stats"][*name])).max();
    Stats {
        memory_bytes: number(&memory["usage"]).saturating_sub(files.unwrap_or(0)),
        pids: number(&stats["pids_stats"]["current"]),
        cpu_millis: number(&stats["cpu_stats"]["cpu_usage"]["total_usage"]) / 1_000_000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_put_together_from_both_streams() {
        let frame = |stream: u8, text: &str| {
            let mut frame = vec![stream, 0, 0, 0];
            frame.extend((text.len() as u32).to_be_bytes());
            frame.extend(text.as_bytes());
            frame
        };
        let mut frames = frame(1, "one\n");
        frames.extend(frame(2, "two\n"));
        assert_eq!(text_of(&frames), "one\ntwo\n");
        // Cut short: what is there is shown.
        assert_eq!(text_of(&frames[..frames.len() - 2]), "one\ntw");
    }

    #[test]
    fn the_page_cache_is_not_the_containers_memory() {
        let stats = json!({
            "memory_stats": { "usage": 1000, "stats": { "total_inactive_file": 300 } },
            "pids_stats": { "current": 7 },
            "cpu_stats": { "cpu_usage": { "total_usage": 5_000_000 } },
        });
        assert_eq!(stats_of(&stats), Stats { memory_bytes: 700, pids: 7, cpu_millis: 5 });
        assert_eq!(stats_of(&json!({})), Stats::default());
    }

    #[test]
    fn an_inspection_is_read() {
        let text = json!({
            "State": { "Running": true, "Paused": false, "Pid": 9 },
            "Config": { "Labels": { "a": "b" } },
            "NetworkSettings": {
                "Ports": { "2379/tcp": [{ "HostIp": "127.0.0.1", "HostPort": "22379" }], "2380/tcp": null },
                "Networks": { "x_peers": { "NetworkID": "n", "IPAddress": "10.0.0.2" } },
            },
        });
        let details: Details = serde_json::from_value(text).expect("an inspection");
        assert_eq!(details.network_settings.networks["x_peers"].ip_address, "10.0.0.2");
        assert!(details.network_settings.ports["2380/tcp"].is_none());
    }
}
