//! The watcher: all keys of the writers, from now on, over any loss of members. It fails as soon as
//! an event does not follow from those before it, and when its watch ends.

use std::time::Duration;

use meerkat_client::{Client, Keys, WatchStatus};

use super::chain::Chains;
use super::{LiveArgs, PREFIX, ending};
use crate::failure::Failure;

pub async fn run(client: &Client, args: &LiveArgs) -> Result<(), Failure> {
    let ending = ending(args.lasting)?;
    tokio::pin!(ending);
    let mut watch = client.watch(Keys::prefix(PREFIX)).start();
    // A pace of zero would be no pace.
    let mut ticks = tokio::time::interval(args.report.max(Duration::from_millis(10)));
    ticks.tick().await;
    let mut chains = Chains::default();
    let mut events = 0_u64;
    loop {
        tokio::select! {
            () = &mut ending => break,
            _ = ticks.tick() => println!("watcher: {}", describe(events, &watch.status())),
            changes = watch.next() => {
                let changes = match changes {
                    Some(Ok(changes)) => changes,
                    Some(Err(error)) => return Err(Failure::error(format!("the watch ended: {error}"))),
                    None => return Err(Failure::error("the watch ended without a reason")),
                };
                for event in changes.events.iter() {
                    chains.follow(event).map_err(|what| Failure::error(format!("{what}, at revision {}", changes.revision)))?;
                    events += 1;
                }
            }
        }
    }
    println!("watcher: stopped: {}", describe(events, &watch.status()));
    Ok(())
}

fn describe(events: u64, status: &WatchStatus) -> String {
    let on = status.endpoint.as_deref().unwrap_or("nobody");
    let last = status.last.map_or(0, |revision| revision.get());
    let gap = match status.last_gap {
        Some(gap) => format!(" (the last took {} ms)", gap.as_millis()),
        None => String::new(),
    };
    format!(
        "{events} events, each once and in order, up to revision {last}; on {on}; moved {} times{gap}",
        status.resumes
    )
}
