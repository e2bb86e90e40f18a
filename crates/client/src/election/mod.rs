//! Elections: of all sessions that campaign for a name, one leads, and says something that all can
//! read.
//!
//! ```no_run
//! # async fn run(client: meerkat_client::Client) -> Result<(), Box<dyn std::error::Error>> {
//! use meerkat_client::{Election, Session};
//! use std::time::Duration;
//!
//! let session = Session::open(&client, Duration::from_secs(10)).await?;
//! let mut leadership = Election::new(&session, "scheduler").campaign("10.0.0.7:8080").await?;
//! leadership.proclaim("10.0.0.7:8081").await?;
//! leadership.lost().await;
//! # Ok(())
//! # }
//! ```
//!
//! A leadership is a lock with a value: what [`crate::lock`] says about locks, about fencing tokens and
//! about names is true here as well. The keys are those of etcd's Go package `concurrency`, of
//! `etcdctl elect` and of the Election service.

mod race;

use crate::lease::LeaseLost;
use crate::line::{self, Entered, Place};
use crate::lock::LockError;
use crate::{
    Client, Compare, Error, Fate, KeyValue, Keys, Op, OpResult, Revision, Session, SortOrder, SortTarget,
    Watch, WatchError,
};
use bytes::Bytes;
use futures::stream::{self, BoxStream, Stream};
use race::Race;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

/// How often a proclamation is tried whose outcome stays unknown.
const TRIES_MAX: u32 = 4;
const PAUSE: Duration = Duration::from_millis(50);

/// An election by its name, as one session sees it.
#[derive(Clone, Debug)]
pub struct Election {
    session: Session,
    name: Bytes,
}

/// Who leads, and what it says.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leader {
    /// The key of its campaign.
    pub key: Bytes,
    /// What it said last.
    pub value: Bytes,
    /// Its fencing token: later leaders have higher ones.
    pub token: Revision,
    /// When it said so.
    pub revision: Revision,
}

/// Why something about an election failed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ElectionError {
    /// The session ended. Open another one.
    #[error("the session is over: {0}; open another one")]
    SessionLost(#[source] LeaseLost),
    /// The key of this campaign or leadership is gone: resigned, deleted by someone else, or ended with
    /// the session.
    #[error("not the leader any more, nor in line; campaign again")]
    NotLeader,
    /// A request failed.
    #[error(transparent)]
    Client(#[from] Error),
}

impl From<LockError> for ElectionError {
    fn from(error: LockError) -> ElectionError {
        match error {
            LockError::SessionLost(lost) => ElectionError::SessionLost(lost),
            LockError::Removed => ElectionError::NotLeader,
            LockError::Client(error) => ElectionError::Client(error),
        }
    }
}

impl Election {
    /// The election of this name. Nothing is sent yet.
    pub fn new(session: &Session, name: impl Into<Bytes>) -> Election {
        Election { session: session.clone(), name: name.into() }
    }

    /// Waits to become the leader, with this value to say. First come, first served.
    ///
    /// If the session's lease has a key in the election already, the value replaces what that key says,
    /// and its place in line is kept. While a [`Leadership`] of this session is held, another campaign
    /// of the same session waits for its end: to say something else, use [`Leadership::proclaim`].
    ///
    /// If this future is dropped, the campaign is given up in the background.
    ///
    /// # Errors
    /// If the session is lost while waiting, the campaign is removed, or a request fails.
    pub async fn campaign(&self, value: impl Into<Bytes>) -> Result<Leadership, ElectionError> {
        let value = value.into();
        let Entered { place, existed, first } =
            Place::enter(&self.session, &self.name, value.clone()).await?;
        let modified = existed.as_ref().map_or(place.created(), |kv| kv.modified);
        let mut leadership = Leadership { place, modified };
        if existed.is_some_and(|kv| kv.value != value) {
            leadership.proclaim(value).await?;
        }
        if !first {
            leadership.place.wait().await?;
        }
        Ok(leadership)
    }

    /// Who leads now, if anyone does.
    ///
    /// # Errors
    /// If no member answers in time.
    pub async fn leader(&self) -> Result<Option<Leader>, Error> {
        let in_line = self.session.client().get(Keys::prefix(line::prefix(&self.name)));
        let got = in_line.sort(SortOrder::Ascend, SortTarget::Created).limit(1).await?;
        Ok(got.kvs.into_iter().next().map(Leader::from))
    }

    /// The leader now, as soon as there is one, and then every change: of leader or of what it says.
    pub fn observe(&self) -> Observe {
        Observe::new(self.session.client(), &self.name)
    }
}

impl From<KeyValue> for Leader {
    fn from(kv: KeyValue) -> Leader {
        Leader { key: kv.key, value: kv.value, token: kv.created, revision: kv.modified }
    }
}

/// A leadership, until lost, resigned or dropped.
///
/// Dropping it resigns in the background, as well as that works. It keeps its session alive.
#[derive(Debug)]
#[must_use = "a leadership that is dropped is given up"]
pub struct Leadership {
    place: Place,
    /// When the key was last written.
    modified: Revision,
}

impl Leadership {
    /// The key that stands for this leadership.
    pub fn key(&self) -> &Bytes {
        self.place.key()
    }

    /// The fencing token: every later leader has a higher one.
    pub fn token(&self) -> Revision {
        self.place.created()
    }

    /// Holds while this leads: put it into every transaction that only the leader may make.
    pub fn holds(&self) -> Compare {
        self.place.holds()
    }

    /// Asks whether this still leads. To decide on a write, use [`Leadership::holds`].
    ///
    /// # Errors
    /// If no member answers in time.
    pub async fn is_held(&self) -> Result<bool, Error> {
        self.place.is_held().await
    }

    /// Ends when the session is lost, and the leadership with it.
    pub async fn lost(&self) -> LeaseLost {
        self.place.session().lost().await
    }

    /// Says something else. Answers with the revision from which on it is said.
    ///
    /// It is guarded by the revision of what was said before, so that it can safely be sent again, and
    /// one that got lost on the way can never overwrite a later one.
    ///
    /// # Errors
    /// [`ElectionError::NotLeader`] if this does not lead any more; otherwise if a request fails.
    pub async fn proclaim(&mut self, value: impl Into<Bytes>) -> Result<Revision, ElectionError> {
        let value = value.into();
        let (client, key) = (self.place.session().client().clone(), self.key().clone());
        let mut tries = 1;
        loop {
            let unchanged = Compare::key(key.clone()).mod_revision().equals(self.modified);
            let put = Op::put_with_lease(key.clone(), value.clone(), self.place.session().lease());
            let asked = client.txn().when([unchanged]).then([put]).otherwise([Op::get(key.clone())]);
            let found = match asked.await {
                Ok(done) if done.succeeded => {
                    self.modified = done.revision;
                    return Ok(done.revision);
                }
                Ok(done) => done.results.first().and_then(OpResult::get).and_then(|got| got.first()).cloned(),
                Err(error) if error.fate() == Fate::Refused || TRIES_MAX <= tries => {
                    return Err(error.into());
                }
                Err(_) => {
                    tokio::time::sleep(PAUSE).await;
                    client.get(key.clone()).await?.kvs.into_iter().next()
                }
            };
            match said(found.as_ref(), self.token(), &value) {
                Said::NotLeader => return Err(ElectionError::NotLeader),
                Said::This(revision) => {
                    self.modified = revision;
                    return Ok(revision);
                }
                Said::Other(_) if TRIES_MAX <= tries => {
                    let text = "somebody else keeps writing the key of this leadership";
                    return Err(Error::garbled(Fate::NotDone, text).into());
                }
                Said::Other(revision) => self.modified = revision,
            }
            tries += 1;
        }
    }

    /// Steps down. If the leadership was lost before, that is fine too.
    ///
    /// # Errors
    /// If it is not known whether that worked. It is then tried again in the background, and the
    /// leadership ends with the session at the latest.
    pub async fn resign(self) -> Result<(), Error> {
        self.place.leave().await
    }
}

/// What a leader's key says, after a proclamation was not answered with yes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Said {
    NotLeader,
    /// What was to be said: an earlier try got through.
    This(Revision),
    Other(Revision),
}

fn said(found: Option<&KeyValue>, token: Revision, value: &Bytes) -> Said {
    match found {
        Some(kv) if kv.created != token => Said::NotLeader,
        Some(kv) if kv.value == value => Said::This(kv.modified),
        Some(kv) => Said::Other(kv.modified),
        None => Said::NotLeader,
    }
}

/// The leaders of an election, one after the other.
///
/// It yields the current leader (as soon as there is one), and then each change, of leader or of its
/// value, in the order of revisions and without leaving one out. Only when it is so late that history
/// was compacted does it go on with the leader of that moment. An error is the last item.
pub struct Observe {
    leaders: BoxStream<'static, Result<Leader, ElectionError>>,
}

impl Observe {
    fn new(client: &Client, name: &[u8]) -> Observe {
        let observer = Observer { client: client.clone(), prefix: line::prefix(name), following: None };
        let step = |state: Option<(Observer, Race)>| async move {
            let (mut observer, mut race) = state?;
            match observer.next(&mut race).await {
                Ok(leader) => Some((Ok(leader), Some((observer, race)))),
                Err(error) => Some((Err(error), None)),
            }
        };
        Observe { leaders: Box::pin(stream::unfold(Some((observer, Race::default())), step)) }
    }

    /// The next leader or value; `None` after an error.
    pub async fn next(&mut self) -> Option<Result<Leader, ElectionError>> {
        futures::StreamExt::next(&mut self.leaders).await
    }
}

impl Stream for Observe {
    type Item = Result<Leader, ElectionError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.leaders.as_mut().poll_next(context)
    }
}

impl fmt::Debug for Observe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observe").finish_non_exhaustive()
    }
}

/// Lists the line and follows its changes.
struct Observer {
    client: Client,
    prefix: Bytes,
    /// `None` when the line is to be listed (again).
    following: Option<Watch>,
}

impl Observer {
    async fn next(&mut self, race: &mut Race) -> Result<Leader, ElectionError> {
        loop {
            let news = match &mut self.following {
                None => {
                    let got = self.client.get(Keys::prefix(&self.prefix)).await?;
                    let watch = self.client.watch(Keys::prefix(&self.prefix)).from(got.revision.next());
                    self.following = Some(watch.start());
                    race.restart(got.kvs)
                }
                Some(watch) => match watch.next().await {
                    Some(Ok(changes)) => race.follow(&changes.events),
                    Some(Err(WatchError::Compacted { .. })) => {
                        self.following = None;
                        None
                    }
                    Some(Err(WatchError::Refused(error))) => return Err(error.into()),
                    Some(Err(WatchError::Closed)) | None => {
                        return Err(Error::unreachable("the client's runtime is gone").into());
                    }
                },
            };
            if let Some(kv) = news {
                return Ok(kv.into());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proclamation_without_a_yes_is_judged_by_what_the_key_says() {
        let kv = |created: i64, value: &'static str| KeyValue {
            key: "e/1".into(),
            value: value.into(),
            created: Revision::new(created),
            modified: Revision::new(9),
            version: 2,
            lease: None,
        };
        let check = |found: Option<KeyValue>, expected: Said| {
            assert_eq!(said(found.as_ref(), Revision::new(5), &"mine".into()), expected, "{found:?}");
        };
        check(None, Said::NotLeader);
        check(Some(kv(6, "mine")), Said::NotLeader);
        check(Some(kv(5, "mine")), Said::This(Revision::new(9)));
        check(Some(kv(5, "old")), Said::Other(Revision::new(9)));
    }
}
