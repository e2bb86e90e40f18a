//! Services announce themselves under a lease; whoever calls them follows an informer.
//!
//! ```text
//! cargo run --example service_discovery -- announce web 10.0.0.7:80 127.0.0.1:2379
//! cargo run --example service_discovery -- follow   web 127.0.0.1:2379
//! ```

use meerkat_client::informer::Delta;
use meerkat_client::{Client, Informer, Keys, Session};
use std::pin::pin;
use std::time::Duration;

type Outcome = Result<(), Box<dyn std::error::Error>>;

#[tokio::main]
async fn main() -> Outcome {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args.as_slice() {
        ["announce", service, address, endpoints @ ..] => announce(service, address, endpoints).await,
        ["follow", service, endpoints @ ..] => follow(service, endpoints).await,
        _ => Err("announce SERVICE ADDRESS ENDPOINT..., or follow SERVICE ENDPOINT...".into()),
    }
}

/// Keeps `address` listed until this process ends: at once when it is interrupted, and after the
/// session's five seconds when it dies.
async fn announce(service: &str, address: &str, endpoints: &[&str]) -> Outcome {
    let client = Client::connect(endpoints.iter().copied()).await?;
    let mut interrupted = pin!(tokio::signal::ctrl_c());
    loop {
        let session = Session::open(&client, Duration::from_secs(5)).await?;
        client.put(format!("service/{service}/{address}"), address.to_owned()).lease(session.lease()).await?;
        println!("announced {address}");
        tokio::select! {
            // Cut off for too long. Announce again.
            lost = session.lost() => println!("{lost}"),
            _ = &mut interrupted => {
                session.close().await?;
                println!("withdrawn {address}");
                return Ok(());
            }
        }
    }
}

/// Prints who is there whenever that changes. A caller would take an address from the store.
async fn follow(service: &str, endpoints: &[&str]) -> Outcome {
    let client = Client::connect(endpoints.iter().copied()).await?;
    let mut interrupted = pin!(tokio::signal::ctrl_c());
    let addresses = Informer::builder(&client, Keys::prefix(format!("service/{service}/"))).text().start();
    addresses.wait_for_sync().await?;
    let mut changes = addresses.subscribe();
    println!("following {service}");
    loop {
        tokio::select! {
            delta = changes.next() => match delta {
                Some(Delta::Added(new)) => println!("up {}", new.value),
                Some(Delta::Deleted { last, .. }) => println!("down {}", last.value),
                // The same address announced again.
                Some(_) => {}
                None => return Ok(()),
            },
            _ = &mut interrupted => return Ok(()),
        }
    }
}
