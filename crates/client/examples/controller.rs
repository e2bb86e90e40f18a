//! A small controller: whatever `desired/` says, it makes `actual/` agree.
//!
//! ```text
//! cargo run --example controller -- 127.0.0.1:2379
//! etcdctl put desired/web 3
//! ```

use meerkat_client::informer::{Handling, Store};
use meerkat_client::{Client, Informer, Keys, WorkQueue};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut endpoints: Vec<String> = std::env::args().skip(1).collect();
    if endpoints.is_empty() {
        endpoints.push("127.0.0.1:2379".to_owned());
    }
    let client = Client::connect(endpoints).await?;
    let queue: WorkQueue<String> = WorkQueue::new();

    // Two caches. A change in either is a reason to look at the name it is about; what the change was
    // does not matter.
    let desired = watch_names(&client, "desired/", &queue);
    let actual = watch_names(&client, "actual/", &queue);
    desired.0.wait_for_sync().await?;
    actual.0.wait_for_sync().await?;

    let (work, wanted, there) = (queue.clone(), desired.0.store(), actual.0.clone());
    let worker = tokio::spawn(async move {
        while let Some(name) = work.get().await {
            match reconcile(&client, &name, &wanted, &there).await {
                Ok(()) => name.succeeded(),
                // It comes again, later each time.
                Err(error) => {
                    println!("{}: {error}", *name);
                    name.failed();
                }
            }
        }
    });
    tokio::signal::ctrl_c().await?;
    queue.drain().await;
    worker.await?;
    println!("stopped");
    Ok(())
}

type Watched = (Informer<String>, Handling);

fn watch_names(client: &Client, prefix: &'static str, queue: &WorkQueue<String>) -> Watched {
    let informer = Informer::builder(client, Keys::prefix(prefix)).text().start();
    let queue = queue.clone();
    let handling = informer.handle(move |delta| {
        queue.add(String::from_utf8_lossy(&delta.key()[prefix.len()..]).into_owned());
        std::future::ready(())
    });
    (informer, handling)
}

/// Looks at what is so now and takes the step that is missing, if any. May be called at any time and
/// any number of times.
async fn reconcile(
    client: &Client,
    name: &str,
    desired: &Store<String>,
    actual: &Informer<String>,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let wanted = desired.get(format!("desired/{name}"));
    let key = format!("actual/{name}");
    let there = actual.store().get(&key);
    match (wanted, there) {
        (Some(wanted), there) if there.as_ref().is_none_or(|there| there.value != wanted.value) => {
            let written = client.put(key, wanted.value.clone()).await?;
            println!("{name} is now {}", wanted.value);
            // The next look at this name must not be at what was so before.
            actual.wait_for_revision(written.revision).await?;
        }
        (None, Some(_)) => {
            let deleted = client.delete(key).await?;
            println!("{name} is gone");
            if 0 < deleted.deleted {
                actual.wait_for_revision(deleted.revision).await?;
            }
        }
        (Some(_) | None, _) => {}
    }
    Ok(())
}
