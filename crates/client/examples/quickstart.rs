//! The first five minutes: write, read, watch, compare-and-swap.
//!
//! ```text
//! cargo run --example quickstart -- 127.0.0.1:2379
//! ```

use meerkat_client::{Client, Compare, Keys, Op};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut endpoints: Vec<String> = std::env::args().skip(1).collect();
    if endpoints.is_empty() {
        endpoints.push("127.0.0.1:2379".to_owned());
    }
    let client = Client::connect(endpoints).await?;

    // A write says at which revision it happened.
    let written = client.put("fruit/apple", "green").await?;
    println!("written");

    // All keys with a prefix, at one revision.
    client.put("fruit/pear", "yellow").await?;
    let fruit = client.get(Keys::prefix("fruit/")).await?;
    for kv in &fruit.kvs {
        println!("read {} = {}", text(&kv.key), text(&kv.value));
    }

    // A watch from a revision on: also what has happened since. It goes on by itself when a member
    // dies, and never leaves out or repeats a revision.
    let mut watch = client.watch(Keys::prefix("fruit/")).from(written.revision).start();
    for _ in 0..2 {
        let Some(changes) = watch.next().await else { break };
        println!("watched {} change", changes?.events.len());
    }

    // Compare and swap: only if nobody has touched the key since it was read.
    let apple = client.get("fruit/apple").await?;
    let seen = apple.first().map_or(fruit.revision, |kv| kv.modified);
    let swap = client
        .txn()
        .when([Compare::key("fruit/apple").mod_revision().equals(seen)])
        .then([Op::put("fruit/apple", "red")])
        .await?;
    println!("swapped: {}", swap.succeeded);

    let gone = client.delete(Keys::prefix("fruit/")).await?;
    println!("deleted {}", gone.deleted);
    Ok(())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
