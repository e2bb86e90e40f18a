//! One call, from the first attempt to the last: the shell around the table in [`crate::retry`].
//!
//! Always true: no attempt outlives the call's deadline, and the server is told that deadline; a
//! call ends when its deadline passes, whatever its member does; between attempts there is a pause
//! that grows and is drawn at random.

use crate::Client;
use crate::balancer::picker::fraction;
use crate::balancer::{EndpointId, Picked, Verdict, Wire};
use crate::error::{Error, Fate};
use crate::retry::{self, Blame, CallKind, Decision, Seen};
use std::future::Future;
use std::time::Duration;
use tokio::time::Instant;
use tonic::{Response, Status};

/// The pause after the first failed attempt; doubled each time.
const PAUSE_FIRST: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_millis(500);
/// "For ever", in a size that clocks and the wire can hold.
const TIMEOUT_MAX: Duration = Duration::from_secs(365 * 24 * 3600);
/// How often one call may ask for a new token. More would be a wrong password in a loop.
const RENEWALS_MAX: u32 = 3;

/// Where a call may go.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    Any,
    /// Only this endpoint: the question is about its member.
    Endpoint(std::sync::Arc<str>),
}

/// One attempt of a call, handed to the code that sends it.
pub(crate) struct Attempt {
    pub(crate) wire: Wire,
    kind: CallKind,
    left: Duration,
}

impl Attempt {
    /// The message with what every call carries: its deadline, and whether a leader is needed.
    pub(crate) fn request<M>(&self, message: M) -> tonic::Request<M> {
        let mut request = self.unbounded(message);
        request.set_timeout(self.left);
        request
    }

    /// The message without a deadline for the server: the answer is a stream that may outlive it.
    pub(crate) fn unbounded<M>(&self, message: M) -> tonic::Request<M> {
        let mut request = tonic::Request::new(message);
        if self.kind != CallKind::LocalRead {
            // A member without a leader then says so at once, and before it does anything.
            request.metadata_mut().insert("hasleader", tonic::metadata::MetadataValue::from_static("true"));
        }
        request
    }
}

/// An answer, and what is to be known about how it was got.
pub(crate) struct Done<T> {
    pub(crate) answer: T,
    /// An earlier attempt of this call may have happened too.
    pub(crate) doubt: bool,
    pub(crate) endpoint: std::sync::Arc<str>,
    /// The attempt that was answered was not sent before this moment.
    pub(crate) sent_at: Instant,
}

/// A call that failed, and whether an earlier attempt of it is in doubt.
pub(crate) struct Failed {
    pub(crate) error: Error,
    pub(crate) doubt: bool,
}

impl From<Failed> for Error {
    fn from(failed: Failed) -> Error {
        failed.error
    }
}

impl Client {
    /// Makes a call: as often as is safe, until it is answered or its time is over.
    pub(crate) async fn call<T, F, Sent>(
        &self,
        kind: CallKind,
        timeout: Option<Duration>,
        send: F,
    ) -> Result<Done<T>, Failed>
    where
        F: Fn(Attempt) -> Sent,
        Sent: Future<Output = Result<Response<T>, Status>>,
    {
        self.call_at(&Target::Any, kind, timeout, send).await
    }

    /// [`Client::call`] to a chosen endpoint.
    pub(crate) async fn call_at<T, F, Sent>(
        &self,
        target: &Target,
        kind: CallKind,
        timeout: Option<Duration>,
        send: F,
    ) -> Result<Done<T>, Failed>
    where
        F: Fn(Attempt) -> Sent,
        Sent: Future<Output = Result<Response<T>, Status>>,
    {
        let timeout = timeout.unwrap_or(self.pool().config().request_timeout).min(TIMEOUT_MAX);
        let mut call = Course::new(kind, Instant::now() + timeout);
        loop {
            let picked = match self.pick_for(target, call.avoid).await {
                Ok(picked) => picked,
                Err(error) => return Err(call.failed(error)),
            };
            let generation = self.pool().credentials().generation();
            let sent_at = Instant::now();
            let status = match call.attempt(&picked, &send).await {
                Ok(answer) => {
                    // A local read proves nothing: a member that is cut off answers it too.
                    if kind != CallKind::LocalRead {
                        self.pool().report(picked.id, Verdict::Good);
                    }
                    let (doubt, endpoint) = (call.doubt, picked.name);
                    return Ok(Done { answer: answer.into_inner(), doubt, endpoint, sent_at });
                }
                Err(met) => met,
            };
            let (seen, status) = status;
            self.blame(&picked, seen);
            match retry::decide(kind, seen, call.doubt) {
                Decision::GiveUp(fate) => {
                    return Err(call.failed(Error::from_status(fate, seen, &status, Some(picked.name))));
                }
                Decision::Renew => {
                    call.renewals += 1;
                    let left = call.deadline.saturating_duration_since(Instant::now());
                    let renewed = match call.renewals {
                        0..=RENEWALS_MAX => self.renew_token(generation, left).await,
                        _ => Ok(false),
                    };
                    if !renewed.map_err(|error| call.failed(error))? {
                        let fate = if call.doubt { Fate::Unknown } else { Fate::Refused };
                        return Err(call.failed(Error::from_status(fate, seen, &status, Some(picked.name))));
                    }
                }
                Decision::Again { doubt } => {
                    call.doubt |= doubt && retry::at_deadline(kind, true) == Fate::Unknown;
                    call.avoid = Some(picked.id);
                    if !call.pause().await {
                        let fate = retry::at_deadline(kind, call.doubt);
                        return Err(call.failed(Error::from_status(fate, seen, &status, Some(picked.name))));
                    }
                }
            }
        }
    }

    async fn pick_for(&self, target: &Target, avoid: Option<EndpointId>) -> Result<Picked, Error> {
        match target {
            Target::Any => self.pool().pick(avoid).await,
            Target::Endpoint(name) => self.pool().pick_named(name),
        }
    }

    fn blame(&self, picked: &Picked, seen: Seen) {
        match retry::blames_member(seen) {
            Blame::None => {}
            Blame::NoLeader => self.pool().report(picked.id, Verdict::NoLeader),
            Blame::Connection => self.pool().report(picked.id, Verdict::Failed),
        }
    }
}

/// Where a call stands between its attempts.
struct Course {
    kind: CallKind,
    deadline: Instant,
    /// Some attempt may have happened.
    doubt: bool,
    avoid: Option<EndpointId>,
    pauses: u32,
    renewals: u32,
}

impl Course {
    fn new(kind: CallKind, deadline: Instant) -> Course {
        Course { kind, deadline, doubt: false, avoid: None, pauses: 0, renewals: 0 }
    }

    async fn attempt<T, F, Sent>(&self, picked: &Picked, send: &F) -> Result<Response<T>, (Seen, Status)>
    where
        F: Fn(Attempt) -> Sent,
        Sent: Future<Output = Result<Response<T>, Status>>,
    {
        let left = self.deadline.saturating_duration_since(Instant::now());
        let sent = send(Attempt { wire: picked.wire.clone(), kind: self.kind, left });
        let lost = async {
            match self.kind {
                // Nobody can answer a read that needs a leader here; a write may still go through.
                CallKind::Read => picked.gone_or_leaderless().await,
                CallKind::Login => picked.gone_or_leaderless().await,
                CallKind::LocalRead | CallKind::Write | CallKind::Once | CallKind::Idempotent => {
                    picked.gone().await;
                }
            }
        };
        tokio::select! {
            biased;
            answer = sent => answer.map_err(|status| (retry::look(&status), status)),
            () = lost => Err((Seen::Abandoned, Status::unavailable("the member does not answer any more"))),
            () = tokio::time::sleep_until(self.deadline) => {
                Err((Seen::Deadline, Status::deadline_exceeded("the request's time was over before an answer came")))
            }
        }
    }

    /// False if the deadline comes before the pause is over.
    async fn pause(&mut self) -> bool {
        let bound = PAUSE_FIRST.saturating_mul(1 << self.pauses.min(10)).min(PAUSE_MAX);
        self.pauses += 1;
        let until = Instant::now() + fraction(bound, rand::random());
        if self.deadline <= until {
            return false;
        }
        tokio::time::sleep_until(until).await;
        true
    }

    /// An error that comes after a doubtful attempt leaves the call in doubt.
    fn failed(&self, error: Error) -> Failed {
        let error = if self.doubt { error.with_fate(Fate::Unknown) } else { error };
        Failed { error, doubt: self.doubt }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_ends_a_call_after_a_doubtful_attempt_leaves_it_in_doubt() {
        let mut course = Course::new(CallKind::Once, Instant::now());
        let refused = || Error::invalid("the login was refused");
        let unreachable = || Error::unreachable("no endpoint");
        assert_eq!(course.failed(refused()).error.fate(), Fate::Refused);
        assert_eq!(course.failed(unreachable()).error.fate(), Fate::NotDone);
        course.doubt = true;
        assert_eq!(course.failed(refused()).error.fate(), Fate::Unknown);
        assert_eq!(course.failed(unreachable()).error.fate(), Fate::Unknown);
    }
}
