//! `meerkat migrate`: a live etcd, carried over to Meerkat while it is written to.
//!
//! ```text
//! leases ──► keys, paged at one revision ──► changes since, by watch ──► caught up, counted, cut over
//! ```
//!
//! Always true: what is carried and how far the migration has got go to the destination in one
//! transaction, which is done only if nobody got further meanwhile. So a change is carried once: not
//! twice after an answer that was lost, not twice by two migrations, and a migration that was killed
//! goes on where it was. Keys and values are carried as they are; revisions are the destination's own.

mod batch;
mod carry;
mod follow;
mod leases;
mod progress;
mod side;

use clap::Args;
use meerkat_client::{Client, Keys, Revision};

use self::carry::Carrier;
use self::side::{Destination, Source};
use crate::failure::Failure;

#[derive(Args, Debug)]
pub struct MigrateArgs {
    #[command(flatten)]
    from: Source,
    #[command(flatten)]
    to: Destination,
    /// End as soon as nothing is left to carry, instead of following until interrupted
    #[arg(long)]
    until_caught_up: bool,
}

pub fn run(args: &MigrateArgs) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(migrate(args))
}

async fn migrate(args: &MigrateArgs) -> Result<(), Failure> {
    let from = args.from.connect().await?;
    let to = args.to.connect().await?;
    let mut carrier = Carrier::begin(from, to).await?;
    carrier.copy().await?;
    let end = follow::follow(&mut carrier, args.until_caught_up).await?;
    let keys = carrier.verify(end).await?;
    carrier.finish().await?;
    println!(
        "cut over at source revision {end}: {keys} keys on both sides; write to the destination from now on"
    );
    Ok(())
}

/// The newest revision of a store.
async fn revision_of(client: &Client) -> Result<i64, Failure> {
    Ok(count_at(client, None).await?.0)
}

/// The store's revision, and how many keys it has, now or at a revision.
async fn count_at(client: &Client, at: Option<i64>) -> Result<(i64, u64), Failure> {
    let mut ask = client.get(Keys::all()).count_only();
    if let Some(at) = at {
        ask = ask.revision(Revision::new(at));
    }
    let answer = ask.await.map_err(|error| Failure::error(error.to_string()))?;
    Ok((answer.revision.get(), answer.count))
}
