//! A command for each event, told about it by its environment, in `etcdctl`'s names and quotes.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::process::Command;

use meerkat_proto::pb::etcdserver as pb;
use meerkat_proto::pb::mvcc::{Event, KeyValue};

use crate::command::child::{how_it_ended, not_started};
use crate::failure::Failure;
use crate::go_quote::quote;

/// Runs the command once for each event, one after the other. The first that fails ends the watch.
pub async fn run(command: &[OsString], response: &pb::WatchResponse) -> Result<(), Failure> {
    let Some((program, args)) = command.split_first() else {
        return Ok(());
    };
    let revision = response.header.map_or(0, |header| header.revision);
    for event in &response.events {
        let mut child = Command::new(program);
        child.args(args).envs(environment(event, revision));
        // The connection must be served meanwhile.
        let ended = tokio::task::spawn_blocking(move || child.status()).await;
        let ended = ended.map_err(|error| Failure::error(error.to_string()))?;
        let reason = match ended {
            Ok(status) if status.success() => continue,
            Ok(status) => how_it_ended(status),
            Err(error) => not_started(program, &error),
        };
        let words: Vec<String> = command.iter().map(|word| quote(word.as_bytes())).collect();
        eprintln!("command [{}] error ({reason})", words.join(" "));
        return Err(Failure::already_told());
    }
    Ok(())
}

fn environment(event: &Event, revision: i64) -> [(&'static str, String); 4] {
    let none = KeyValue::default();
    let kv = event.kv.as_ref().unwrap_or(&none);
    [
        ("ETCD_WATCH_REVISION", revision.to_string()),
        ("ETCD_WATCH_EVENT_TYPE", quote(event.r#type().as_str_name().as_bytes())),
        ("ETCD_WATCH_KEY", quote(&kv.key)),
        ("ETCD_WATCH_VALUE", quote(&kv.value)),
    ]
}
