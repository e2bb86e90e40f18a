//! One of many processes leads, and what it writes is guarded by its leadership.
//!
//! ```text
//! cargo run --example leader_election -- me 127.0.0.1:2379
//! ```

use meerkat_client::{Client, Election, Op, Session};
use std::pin::pin;
use std::time::Duration;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let name = args.next().unwrap_or_else(|| "somebody".to_owned());
    let mut endpoints: Vec<String> = args.collect();
    if endpoints.is_empty() {
        endpoints.push("127.0.0.1:2379".to_owned());
    }
    let client = Client::connect(endpoints).await?;
    // One future for the whole time: a new one in each round would not see what came in between.
    let mut interrupted = pin!(tokio::signal::ctrl_c());

    // Everything this process holds hangs on its session. If it dies, all of that goes with it.
    let session = Session::open(&client, Duration::from_secs(5)).await?;
    let election = Election::new(&session, "election/reports");
    println!("{name} is a candidate");
    let leadership = tokio::select! {
        elected = election.campaign(name.clone()) => elected?,
        _ = &mut interrupted => {
            session.close().await?;
            println!("{name} gave up");
            return Ok(());
        }
    };
    println!("{name} leads");

    // A process can be stopped at any point, for any time, and not know that somebody else leads by
    // now. So it does not ask whether it leads and then write: the write itself asks.
    let mut tick = tokio::time::interval(Duration::from_millis(200));
    loop {
        tokio::select! {
            _ = tick.tick() => {}
            lost = leadership.lost() => {
                println!("{name} no longer leads: {lost}");
                return Ok(());
            }
            _ = &mut interrupted => break,
        }
        let report = Op::put("report/latest", name.clone());
        let done = client.txn().when([leadership.holds()]).then([report]).await?;
        if !done.succeeded {
            println!("{name} no longer leads");
            return Ok(());
        }
    }
    // The next one need not wait for the session to run out.
    leadership.resign().await?;
    session.close().await?;
    println!("{name} stepped down");
    Ok(())
}
