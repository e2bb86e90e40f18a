//! The watches of one command, by number, over the library's client: that finds members, resumes and
//! leaves out what comes twice. Here is what the operator reads of it.
//!
//! The first watch must be created within the command's time. After that losses last as long as they
//! take: a watch is meant to stay.

use std::collections::BTreeMap;
use std::future::{Future, pending};
use std::pin::pin;
use std::task::{Context, Poll};
use std::time::Duration;

use meerkat_client::watch::{WatchResponses, WatchStatus};
use meerkat_client::{Client, Revision, SlowWatches, WatchError, WatchResponse};
use meerkat_proto::pb::etcdserver as pb;
use tokio::sync::watch::Receiver;
use tokio::time::Instant;

use super::options::WatchSpec;
use crate::command::cluster::{Cluster, DEADLINE, in_words};
use crate::failure::Failure;

/// What the stream as a whole asks of a Meerkat member; etcd's pass over it.
#[derive(Clone, Copy, Debug, Default)]
pub struct StreamOptions {
    pub slow: Option<SlowWatches>,
    pub progress_interval: Option<Duration>,
}

pub struct Watches<'c> {
    cluster: &'c Cluster,
    options: StreamOptions,
    client: Option<Client>,
    /// Not started yet.
    wanted: Vec<(i64, WatchSpec)>,
    running: BTreeMap<i64, WatchResponses>,
    last_number: i64,
    /// Whose response was handed out last; the one after it has precedence.
    last_told: i64,
    journey: Option<Journey>,
    /// Until when the first watch must be created; `None` once it was.
    deadline: Option<Instant>,
}

type Told = Option<Result<WatchResponse, WatchError>>;

impl<'c> Watches<'c> {
    pub fn new(cluster: &'c Cluster, options: StreamOptions) -> Watches<'c> {
        Watches {
            cluster,
            options,
            client: None,
            wanted: Vec::new(),
            running: BTreeMap::new(),
            last_number: 0,
            last_told: 0,
            journey: None,
            deadline: None,
        }
    }

    /// Adds a watch and gives its number. It starts with the next call of [`Watches::next`].
    pub fn add(&mut self, mut spec: WatchSpec) -> i64 {
        spec.marks |= self.options.progress_interval.is_some();
        // The time of the first watch to be created begins anew if an earlier one was cancelled before.
        let is_alone = self.wanted.is_empty() && self.running.is_empty();
        if self.last_number == 0 || (self.deadline.is_some() && is_alone) {
            self.deadline = Some(Instant::now() + self.cluster.command_timeout());
        }
        self.last_number += 1;
        self.wanted.push((self.last_number, spec));
        self.last_number
    }

    /// Ends a watch. False if there is none of that number.
    pub fn cancel(&mut self, number: i64) -> bool {
        let waiting = self.wanted.len();
        self.wanted.retain(|(wanted, _)| *wanted != number);
        self.running.remove(&number).is_some() || self.wanted.len() < waiting
    }

    /// Asks how far the watches are. Between members there is nobody to ask.
    pub fn ask_progress(&self) {
        self.running.values().for_each(|responses| responses.watch().hurry());
    }

    pub fn is_empty(&self) -> bool {
        self.running.is_empty() && self.wanted.is_empty()
    }

    /// The next response of a watch, and the watch's number. Never call it without a watch: nothing would
    /// come. Nothing is lost when the future is dropped before it is ready.
    pub async fn next(&mut self) -> Result<(i64, pb::WatchResponse), Failure> {
        self.start().await?;
        loop {
            self.look();
            let Watches { running, last_told, journey, deadline, .. } = self;
            let told = tokio::select! {
                biased;
                () = changed(journey) => continue,
                told = std::future::poll_fn(|context| poll_all(running, *last_told, context)) => told,
                () = until(*deadline) => return Err(self.not_created()),
            };
            let (number, told) = told;
            self.last_told = number;
            self.deadline = None;
            match told {
                Some(Ok(response)) => {
                    if response.canceled.is_some() {
                        self.running.remove(&number);
                    }
                    return Ok((number, wire(response)));
                }
                Some(Err(error)) => return Err(refused(error)),
                None => drop(self.running.remove(&number)),
            }
        }
    }

    async fn start(&mut self) -> Result<(), Failure> {
        if self.wanted.is_empty() {
            return Ok(());
        }
        let client = match &self.client {
            Some(client) => client,
            None => {
                self.cluster.reach().await?;
                let StreamOptions { slow, progress_interval } = self.options;
                let mut config = self.cluster.config();
                if let Some(slow) = slow {
                    config = config.slow_watches(slow);
                }
                if let Some(interval) = progress_interval {
                    config = config.watch_progress_interval(interval);
                }
                self.client.insert(self.cluster.connect_client(config).await?)
            }
        };
        for (number, spec) in self.wanted.drain(..) {
            self.running.insert(number, spec.start(client));
        }
        Ok(())
    }

    /// Tells what became of the stream. The watches share it, so that the first of them stands for all.
    fn look(&mut self) {
        let Some((number, responses)) = self.running.first_key_value() else { return };
        let journey = match &mut self.journey {
            Some(journey) if journey.number == *number => journey,
            other => other.insert(Journey::of(*number, responses.watch().monitor())),
        };
        for line in journey.news(|name| self.cluster.written(name)) {
            eprintln!("{line}");
        }
        if journey.endpoint.is_some() {
            self.deadline = None;
        }
    }

    fn not_created(&self) -> Failure {
        let status = self.running.values().next().map(|responses| responses.watch().status());
        let reason = status.and_then(|status| status.last_loss);
        let reason = reason.as_deref().unwrap_or("no member answers");
        let endpoints: Vec<String> = self.cluster.endpoints().iter().map(ToString::to_string).collect();
        eprintln!("cannot watch at {}: {reason}", endpoints.join(", "));
        Failure::error(DEADLINE)
    }
}

/// From member to member, as one watch goes.
struct Journey {
    number: i64,
    monitor: Receiver<WatchStatus>,
    endpoint: Option<String>,
    losses: u64,
    resumes: u64,
}

impl Journey {
    fn of(number: i64, monitor: Receiver<WatchStatus>) -> Journey {
        let WatchStatus { losses, resumes, .. } = *monitor.borrow();
        Journey { number, monitor, endpoint: None, losses, resumes }
    }

    /// What has happened since it was asked last.
    fn news(&mut self, written: impl Fn(&str) -> String) -> Vec<String> {
        let status = self.monitor.borrow_and_update().clone();
        let mut lines = Vec::new();
        if self.losses < status.losses {
            let lost = self.endpoint.as_deref().unwrap_or("a member");
            lines.push(format!("lost {lost} ({})", status.last_loss.as_deref().unwrap_or_default()));
        }
        if let Some(name) = &status.endpoint {
            let endpoint = written(name);
            if self.resumes < status.resumes {
                let from = status.resumed_from.map(Revision::get);
                let from = from.map_or(String::new(), |revision| format!(" from revision {revision}"));
                lines.push(format!("watching at {endpoint}{from}"));
            }
            self.endpoint = Some(endpoint);
        }
        (self.losses, self.resumes) = (status.losses, status.resumes);
        lines
    }
}

async fn changed(journey: &mut Option<Journey>) {
    let open = match journey {
        Some(journey) => journey.monitor.changed().await.is_ok(),
        None => false,
    };
    if !open {
        pending::<()>().await;
    }
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => pending().await,
    }
}

/// The first watch after `last` that has something to tell.
fn poll_all(
    running: &mut BTreeMap<i64, WatchResponses>,
    last: i64,
    context: &mut Context<'_>,
) -> Poll<(i64, Told)> {
    let mut numbers: Vec<i64> = running.keys().copied().collect();
    let next = numbers.partition_point(|number| *number <= last);
    numbers.rotate_left(next);
    for number in numbers {
        let Some(responses) = running.get_mut(&number) else { continue };
        if let Poll::Ready(told) = pin!(responses.next()).poll(context) {
            return Poll::Ready((number, told));
        }
    }
    Poll::Pending
}

/// As the server sent it, but for what the client keeps to itself.
fn wire(response: WatchResponse) -> pb::WatchResponse {
    let header = response.header.map(|header| pb::ResponseHeader {
        cluster_id: header.cluster_id,
        member_id: header.member_id.0,
        revision: header.revision.get(),
        raft_term: header.raft_term,
    });
    let events = response.events.into_iter().map(Into::into).collect();
    let answer = pb::WatchResponse { header, events, ..Default::default() };
    match response.canceled {
        None => answer,
        Some(canceled) => pb::WatchResponse {
            canceled: true,
            compact_revision: canceled.compact_revision.map_or(0, Revision::get),
            cancel_reason: canceled.reason,
            ..answer
        },
    }
}

/// A watch that ended without a member's word about it.
fn refused(error: WatchError) -> Failure {
    match error {
        WatchError::Refused(error) => match error.code() {
            Some(code) => Failure::error(in_words(code, error.message())),
            None => Failure::error(error.message()),
        },
        error => Failure::error(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_and_resumes_are_told_once() {
        let (sender, monitor) = tokio::sync::watch::channel(WatchStatus::default());
        let mut journey = Journey::of(1, monitor);
        let mut news = |status| {
            sender.send_replace(status);
            journey.news(str::to_uppercase)
        };
        let status = |endpoint: Option<&str>, losses, resumes| {
            let mut status = WatchStatus::default();
            status.endpoint = endpoint.map(Into::into);
            (status.losses, status.resumes) = (losses, resumes);
            status.last_loss = Some("no leader".into());
            status.resumed_from = Some(Revision::new(7));
            status
        };
        assert_eq!(news(status(Some("a"), 0, 0)), [""; 0]);
        assert_eq!(news(status(None, 1, 0)), ["lost A (no leader)"]);
        assert_eq!(news(status(None, 1, 0)), [""; 0]);
        assert_eq!(news(status(Some("b"), 1, 1)), ["watching at B from revision 7"]);
        let both = ["lost B (no leader)", "watching at C from revision 7"];
        assert_eq!(news(status(Some("c"), 2, 2)), both);
        // Parked and back: nothing was lost.
        assert_eq!(news(status(None, 2, 2)), [""; 0]);
        assert_eq!(news(status(Some("c"), 2, 2)), [""; 0]);
    }
}
