//! A program whose settings live in the store: always the newest, all of one revision, read without a
//! request.
//!
//! ```text
//! cargo run --example config_reload -- 127.0.0.1:2379
//! etcdctl put cfg/log-level debug
//! ```

use meerkat_client::informer::Delta;
use meerkat_client::{Client, Informer, Keys};
use std::pin::pin;
use std::time::Duration;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut endpoints: Vec<String> = std::env::args().skip(1).collect();
    if endpoints.is_empty() {
        endpoints.push("127.0.0.1:2379".to_owned());
    }
    let client = Client::connect(endpoints).await?;
    let settings = Informer::builder(&client, Keys::prefix("cfg/")).text().start();

    // Starting without settings is worse than starting late, so this waits; but not for ever.
    tokio::time::timeout(Duration::from_secs(30), settings.wait_for_sync()).await??;

    // Whoever needs a setting asks the store, which is memory. A snapshot is all of one revision.
    let store = settings.store();
    let level = store.get("cfg/log-level").map_or("info".to_owned(), |object| object.value.clone());
    println!("started with {} settings, log level {level}", store.len());

    // Whoever must act on a change is told of it.
    let mut changes = settings.subscribe();
    let mut interrupted = pin!(tokio::signal::ctrl_c());
    loop {
        tokio::select! {
            delta = changes.next() => match delta {
                Some(Delta::Added(new)) => println!("set {} to {}", name(&new.key), new.value),
                Some(Delta::Updated { old, new }) => {
                    println!("changed {} from {} to {}", name(&new.key), old.value, new.value);
                }
                Some(Delta::Deleted { last, .. }) => println!("unset {}", name(&last.key)),
                Some(Delta::Undecodable { last, reason }) => {
                    println!("{} is not text ({reason}), keeping {}", name(&last.key), last.value);
                }
                Some(Delta::Resync(_)) => {}
                None => break,
            },
            _ = &mut interrupted => break,
        }
    }
    println!("stopped");
    Ok(())
}

fn name(key: &[u8]) -> String {
    String::from_utf8_lossy(key).into_owned()
}
