//! The asynchronous side: waiting, waking, cancelling, draining. Time is Tokio's, and stands still
//! unless everybody waits.

use super::*;
use std::collections::HashMap;

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

#[tokio::test(start_paused = true)]
async fn a_worker_waits_until_a_key_is_added() {
    let queue = WorkQueue::new();
    let worker = tokio::spawn({
        let queue = queue.clone();
        async move { queue.get().await.map(|work| *work) }
    });
    tokio::time::sleep(ms(10)).await;
    queue.add(7);
    assert_eq!(worker.await.expect("no panic"), Some(7));
}

#[tokio::test(start_paused = true)]
async fn delayed_keys_come_in_the_order_in_which_they_are_due() {
    let queue = WorkQueue::new();
    let start = Instant::now();
    queue.add_after("late", ms(500));
    queue.add_after("soon", ms(100));
    queue.add("now");
    let mut seen = Vec::new();
    while let Some(work) = queue.get().await {
        seen.push((*work, start.elapsed().as_millis()));
        if seen.len() == 3 {
            queue.shut_down();
        }
    }
    assert_eq!(seen, [("now", 0), ("soon", 100), ("late", 500)]);
}

#[tokio::test(start_paused = true)]
async fn a_key_delayed_while_all_workers_sleep_wakes_them_in_time() {
    let queue = WorkQueue::new();
    let start = Instant::now();
    queue.add_after("far", Duration::from_secs(3600));
    let sleeper = tokio::spawn({
        let queue = queue.clone();
        async move { queue.get().await.map(|work| *work) }
    });
    tokio::time::sleep(ms(1)).await;
    queue.add_after("near", ms(20));
    // A second worker hears of it too and is cancelled; the first must not depend on it.
    let _ = tokio::time::timeout(ms(5), queue.get()).await;
    assert_eq!(sleeper.await.expect("no panic"), Some("near"));
    assert_eq!(start.elapsed(), ms(21));
}

#[tokio::test(start_paused = true)]
async fn failures_wait_longer_each_time_and_success_forgets_them() {
    let queue = WorkQueue::new();
    queue.add("a");
    let mut waits = Vec::new();
    for _ in 0..5 {
        let start = Instant::now();
        let work = queue.get().await.expect("a key");
        waits.push(start.elapsed().as_millis());
        work.failed();
    }
    // Tokio's clock ticks in milliseconds.
    assert_eq!(waits, [0, 5, 10, 20, 40]);
    assert_eq!(queue.retries(&"a"), 5);
    queue.get().await.expect("a key").succeeded();
    assert_eq!(queue.retries(&"a"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_panics_gives_its_key_back() {
    let queue = WorkQueue::new();
    queue.add("a");
    let panicking = tokio::spawn({
        let queue = queue.clone();
        async move {
            let work = queue.get().await;
            queue.add("a");
            panic!("the work {work:?} went wrong");
        }
    });
    assert!(panicking.await.is_err());
    let again = tokio::time::timeout(ms(10), queue.get()).await.expect("in time");
    assert_eq!(again.map(|work| *work), Some("a"));
}

#[tokio::test(start_paused = true)]
async fn draining_waits_for_the_workers_and_ends_them() {
    let queue = WorkQueue::new();
    for key in 0..20 {
        queue.add(key);
    }
    let worker = |queue: WorkQueue<i32>| async move {
        let mut done = 0;
        while let Some(work) = queue.get().await {
            tokio::time::sleep(ms(10)).await;
            done += 1;
            work.succeeded();
        }
        done
    };
    let workers: Vec<_> = (0..3).map(|_| tokio::spawn(worker(queue.clone()))).collect();
    tokio::time::sleep(ms(15)).await;
    let start = Instant::now();
    queue.drain().await;
    assert_eq!(start.elapsed(), ms(55), "twenty pieces by three workers take seven rounds");
    queue.add(99);
    let mut done = 0;
    for worker in workers {
        done += tokio::time::timeout(ms(1), worker).await.expect("ended").expect("no panic");
    }
    assert_eq!(done, 20);
    tokio::time::timeout(ms(1), queue.drain()).await.expect("draining twice is no harm");
}

/// Many threads, real time: what the model cannot show.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_two_workers_have_one_key_and_no_add_is_lost() {
    let queue: WorkQueue<u32> = WorkQueue::new();
    let wanted: Arc<Mutex<HashMap<u32, u64>>> = Arc::default();
    let seen: Arc<Mutex<HashMap<u32, u64>>> = Arc::default();
    let held: Arc<Mutex<Vec<u32>>> = Arc::default();
    let workers: Vec<_> = (0..4)
        .map(|_| {
            let (queue, wanted, seen, held) =
                (queue.clone(), Arc::clone(&wanted), Arc::clone(&seen), Arc::clone(&held));
            tokio::spawn(async move {
                while let Some(work) = queue.get().await {
                    {
                        let mut held = held.lock();
                        assert!(!held.contains(&work), "two workers have {work:?}");
                        held.push(*work);
                    }
                    let newest = wanted.lock().get(&work).copied().unwrap_or(0);
                    tokio::task::yield_now().await;
                    seen.lock().insert(*work, newest);
                    held.lock().retain(|key| *key != *work);
                }
            })
        })
        .collect();
    for round in 0..20_000u64 {
        let key = (round % 17) as u32;
        wanted.lock().insert(key, round);
        queue.add(key);
        if round % 64 == 0 {
            tokio::task::yield_now().await;
        }
    }
    tokio::time::timeout(Duration::from_secs(20), queue.drain()).await.expect("drained");
    for worker in workers {
        worker.await.expect("no panic");
    }
    assert_eq!(*seen.lock(), *wanted.lock(), "the last value wanted of each key was seen");
}
