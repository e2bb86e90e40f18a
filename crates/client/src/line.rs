//! The line in which sessions wait for one name: what locks and elections have in common.
//!
//! Each session has at most one key in the line of a name, `<name>/<lease in hex>`, and it goes away
//! with the session's lease. Who stands first is who has the lowest create revision. Everyone else
//! watches only the one directly before it, so that a departure wakes one session and not all of them.
//! This is the layout of etcd's own `concurrency` package, of `etcdctl lock` and `elect`, and of the
//! Lock and Election services, so that all of them can stand in one line.
//!
//! Always true: a [`Place`] that is dropped is given up, in the background and as well as that works;
//! while that goes on, nobody else in this session can stand in the same line, so a late deletion never
//! hits somebody's new place. The same goes for a late entry: if the outcome of one was never told, the
//! place is looked for and removed once more when that entry can no longer come.

use crate::lease::LeaseLost;
use crate::lock::LockError;
use crate::session::{Session, Turn};
use crate::{
    Client, Compare, Error, EtcdError, Fate, KeyValue, Keys, LeaseId, Op, OpResult, Revision, SortOrder,
    SortTarget, WatchError,
};
use bytes::Bytes;
use std::time::{Duration, Instant};

/// How often a request is made whose outcome stays unknown, before the caller is told.
const TRIES_MAX: u32 = 4;
/// The pause between two of them.
const PAUSE: Duration = Duration::from_millis(50);

/// Where the keys of a line are.
pub(crate) fn prefix(name: &[u8]) -> Bytes {
    [name, b"/"].concat().into()
}

/// The key of one lease in the line. Lower-case hexadecimal without padding; a negative one has a minus
/// sign, as Go prints it.
pub(crate) fn key(name: &[u8], lease: LeaseId) -> Bytes {
    let sign = if lease.get() < 0 { "-" } else { "" };
    let number = format!("{sign}{:x}", lease.get().unsigned_abs());
    [name, b"/", number.as_bytes()].concat().into()
}

/// A place in a line, given up when dropped.
#[derive(Debug)]
pub(crate) struct Place {
    seat: Seat,
    created: Revision,
}

/// The session's key in a line, from before it is written on.
#[derive(Debug)]
struct Seat {
    session: Session,
    key: Bytes,
    prefix: Bytes,
    /// `None` while nothing is known of the key.
    created: Option<Revision>,
    /// It was removed already, as [`Place::leave`] does.
    left: bool,
    unknown: Unknown,
    /// Nobody else in this session uses the key meanwhile. `None` once it was given up.
    turn: Option<Turn>,
}

/// Requests to stand in line whose outcome was not told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Unknown {
    /// How many; the one that is under way is among them.
    count: u32,
    /// When the last of them ended; `None` while it is under way.
    ended: Option<Instant>,
}

impl Unknown {
    fn asked(&mut self) {
        *self = Unknown { count: self.count + 1, ended: None };
    }

    /// The outcome of the request that was under way is known.
    fn told(&mut self, before: Unknown) {
        *self = before;
    }

    fn not_told(&mut self, now: Instant) {
        self.ended = Some(now);
    }

    /// A key was found there that one of the requests must have written. That one cannot come again.
    fn found_one(&mut self) {
        self.count = self.count.saturating_sub(1);
    }

    /// Until when one of them may still write the key, if so.
    fn may_come_until(self, now: Instant, timeout: Duration) -> Option<Instant> {
        let until = self.ended.unwrap_or(now) + timeout;
        (0 < self.count && now < until).then_some(until)
    }
}

/// What was found on entering a line.
#[derive(Debug)]
pub(crate) struct Entered {
    pub(crate) place: Place,
    /// What the key held already; `None` if it is new.
    pub(crate) existed: Option<KeyValue>,
    /// Nobody stands before it.
    pub(crate) first: bool,
}

impl Place {
    /// Stands in line: writes the session's key, or finds it written.
    pub(crate) async fn enter(session: &Session, name: &[u8], value: Bytes) -> Result<Entered, LockError> {
        let key = key(name, session.lease());
        let turn = unless_lost(session, async { Ok(session.turn(&key).await) }).await?;
        Place::enter_in_turn(session, name, value, turn).await
    }

    /// As [`Place::enter`], but `None` if another user of this session stands there.
    pub(crate) async fn enter_now(session: &Session, name: &[u8]) -> Result<Option<Entered>, LockError> {
        match session.turn_now(&key(name, session.lease())) {
            Some(turn) => Place::enter_in_turn(session, name, Bytes::new(), turn).await.map(Some),
            None => Ok(None),
        }
    }

    async fn enter_in_turn(
        session: &Session,
        name: &[u8],
        value: Bytes,
        turn: Turn,
    ) -> Result<Entered, LockError> {
        let (session, key) = (session.clone(), key(name, session.lease()));
        // From here on, a cancelled caller gives the place up again.
        let mut seat = Seat {
            session: session.clone(),
            key,
            prefix: prefix(name),
            created: None,
            left: false,
            unknown: Unknown::default(),
            turn: Some(turn),
        };
        let (stood, first) = unless_lost(&session, seat.stand(value)).await?;
        let created = stood.created();
        seat.created = Some(created);
        let existed = match stood {
            Stood::New(_) => None,
            Stood::Already(kv) => Some(kv),
        };
        Ok(Entered { place: Place { seat, created }, existed, first })
    }

    /// Waits until nobody stands before this place.
    pub(crate) async fn wait(&self) -> Result<(), LockError> {
        unless_lost(&self.seat.session, self.seat.wait(self.created)).await
    }

    /// Gives the place up. If it fails, dropping this tries again in the background.
    pub(crate) async fn leave(mut self) -> Result<(), Error> {
        let seat = &mut self.seat;
        seat.session.doubt(&seat.key, true);
        remove(seat.session.client(), &seat.key, self.created).await?;
        seat.session.doubt(&seat.key, false);
        // The rest, if there is any, is done on dropping it.
        seat.left = true;
        Ok(())
    }

    pub(crate) fn session(&self) -> &Session {
        &self.seat.session
    }

    pub(crate) fn key(&self) -> &Bytes {
        &self.seat.key
    }

    pub(crate) fn created(&self) -> Revision {
        self.created
    }

    /// The place is still there.
    pub(crate) fn holds(&self) -> Compare {
        Compare::key(self.key().clone()).create_revision().equals(self.created)
    }

    /// Whether the place is still there, asked now.
    pub(crate) async fn is_held(&self) -> Result<bool, Error> {
        let got = self.session().client().get(self.key().clone()).keys_only().await?;
        Ok(got.first().is_some_and(|kv| kv.created == self.created))
    }
}

/// How a key came to stand in line.
#[derive(Debug)]
enum Stood {
    New(Revision),
    Already(KeyValue),
}

impl Stood {
    fn created(&self) -> Revision {
        match self {
            Stood::New(at) => *at,
            Stood::Already(kv) => kv.created,
        }
    }
}

impl Seat {
    /// Asking again is safe: nobody else writes this key, and a second try finds what the first did.
    async fn stand(&mut self, value: Bytes) -> Result<(Stood, bool), LockError> {
        let mut tries = 1;
        loop {
            let before = self.unknown;
            self.unknown.asked();
            let asked = self.ask(&value).await;
            match &asked {
                Err(error) if error.fate() == Fate::Unknown => self.unknown.not_told(Instant::now()),
                Ok(_) | Err(_) => self.unknown.told(before),
            }
            match asked {
                Ok(Some((Stood::Already(kv), _))) if self.session.is_doubtful(&self.key) => {
                    // A deletion of this very key may still come. One that has come cannot come again.
                    remove(self.session.client(), &self.key, kv.created).await?;
                    self.session.doubt(&self.key, false);
                }
                Ok(Some(stood)) => {
                    if matches!(stood.0, Stood::Already(_)) {
                        self.unknown.found_one();
                    }
                    return Ok(stood);
                }
                Ok(None) => return Err(garbled().into()),
                Err(error) if error.etcd() == Some(EtcdError::LeaseNotFound) => {
                    return Err(LockError::SessionLost(gone(&self.session)));
                }
                Err(error) if error.fate() == Fate::Refused || TRIES_MAX <= tries => {
                    return Err(error.into());
                }
                Err(_) => {
                    tries += 1;
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    /// One request: stand in line, and see who is first. `None` for an answer that is none.
    async fn ask(&self, value: &Bytes) -> Result<Option<(Stood, bool)>, Error> {
        let client = self.session.client();
        let in_line = || client.get(Keys::prefix(&self.prefix));
        let first = || Op::from(in_line().keys_only().sort(SortOrder::Ascend, SortTarget::Created).limit(1));
        let put = Op::put_with_lease(self.key.clone(), value.clone(), self.session.lease());
        let asked =
            client.txn().when([Compare::key(self.key.clone()).create_revision().equals(Revision::new(0))]);
        let done = asked.then([put, first()]).otherwise([Op::get(self.key.clone()), first()]).await?;
        let found =
            |index: usize| done.results.get(index).and_then(OpResult::get).and_then(|got| got.first());
        let stood = match done.succeeded {
            true => Some(Stood::New(done.revision)),
            false => found(0).cloned().map(Stood::Already),
        };
        Ok(stood.map(|stood| {
            let is_first = stands_first(found(1), stood.created());
            (stood, is_first)
        }))
    }

    async fn wait(&self, created: Revision) -> Result<(), LockError> {
        let client = self.session.client();
        loop {
            let before = client
                .get(Keys::prefix(&self.prefix))
                .keys_only()
                .created(None, Some(created.previous()))
                .sort(SortOrder::Descend, SortTarget::Created)
                .limit(1)
                .await?;
            match before.first() {
                Some(kv) => until_deleted(client, &kv.key, before.revision).await?,
                None => break,
            }
        }
        // Whoever stood before may have gone long ago; so may this key.
        let own = client.get(self.key.clone()).keys_only().await?;
        match own.first() {
            Some(kv) if kv.created == created => Ok(()),
            Some(_) | None => Err(LockError::Removed),
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let Some(turn) = self.turn.take() else { return };
        let (session, key, created, left) = (self.session.clone(), self.key.clone(), self.created, self.left);
        let timeout = session.client().pool().config().request_timeout;
        let late = self.unknown.may_come_until(Instant::now(), timeout);
        if left && late.is_none() {
            return;
        }
        self.session.client().spawn(async move {
            if !left {
                // After that long the lease has ended, and the key with it.
                drop(tokio::time::timeout(session.ttl(), give_up(&session, &key, created)).await);
            }
            if let Some(until) = late {
                remove_late(session, &key, until).await;
            }
            drop(turn);
        });
    }
}

/// Removes what a late entry may have written by this moment. A session that ends meanwhile is not held
/// up: its end removes the key, and keeps a later one from coming.
async fn remove_late(session: Session, key: &Bytes, until: Instant) {
    let session = session.downgrade_into();
    tokio::time::sleep_until(until.into()).await;
    if let Some(session) = session.upgrade().filter(|session| session.loss().is_none()) {
        drop(tokio::time::timeout(session.ttl(), give_up(&session, key, None)).await);
    }
}

async fn give_up(session: &Session, key: &Bytes, created: Option<Revision>) -> Result<(), Error> {
    let client = session.client();
    session.doubt(key, true);
    let created = match created {
        Some(created) => Some(created),
        // Cancelled on entering: the key may be there, or may have come late.
        None => client.get(key.clone()).keys_only().await?.first().map(|kv| kv.created),
    };
    if let Some(created) = created {
        remove(client, key, created).await?;
    }
    session.doubt(key, false);
    Ok(())
}

/// Whether the first of a line is the one created then. A line that is empty has no one before it.
fn stands_first(first: Option<&KeyValue>, created: Revision) -> bool {
    first.is_none_or(|kv| created <= kv.created)
}

/// Ends when a key that was there at this revision is deleted, be it that it was created again since.
async fn until_deleted(client: &Client, key: &Bytes, seen: Revision) -> Result<(), LockError> {
    let mut watch = client.watch(key.clone()).from(seen.next()).only_deletes().start();
    loop {
        match watch.next().await {
            Some(Ok(changes)) if changes.events.is_empty() => {}
            Some(Ok(_)) => return Ok(()),
            // Whether it was deleted is not told any more; the caller looks again.
            Some(Err(WatchError::Compacted { .. })) => return Ok(()),
            Some(Err(WatchError::Refused(error))) => return Err(error.into()),
            Some(Err(WatchError::Closed)) | None => {
                return Err(Error::unreachable("the client's runtime is gone").into());
            }
        }
    }
}

/// Deletes a key of this life, if it is there. Done means: it is gone and no try can hit a later life.
async fn remove(client: &Client, key: &Bytes, created: Revision) -> Result<(), Error> {
    let mut tries = 1;
    loop {
        let same = Compare::key(key.clone()).create_revision().equals(created);
        match client.txn().when([same]).then([Op::delete(key.clone())]).await {
            Ok(_) => return Ok(()),
            Err(error) if error.fate() == Fate::Refused || TRIES_MAX <= tries => return Err(error),
            Err(_) => {
                tries += 1;
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// Gives up as soon as the session is lost.
async fn unless_lost<T>(
    session: &Session,
    work: impl Future<Output = Result<T, LockError>>,
) -> Result<T, LockError> {
    tokio::select! {
        biased;
        lost = session.lost() => Err(LockError::SessionLost(lost)),
        done = work => done,
    }
}

fn gone(session: &Session) -> LeaseLost {
    let reason = crate::lease::LossReason::Gone;
    session.loss().unwrap_or(LeaseLost { id: session.lease(), reason })
}

fn garbled() -> Error {
    Error::garbled(Fate::Unknown, "the answer to standing in line lacks the session's key")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_key(lease: i64, expected: &str) {
        let lease = LeaseId::from_wire(lease).expect("test lease");
        assert_eq!(key(b"lock", lease), expected);
        assert!(key(b"lock", lease).starts_with(&prefix(b"lock")));
    }

    #[test]
    fn keys_are_laid_out_as_etcd_does() {
        check_key(1, "lock/1");
        check_key(0x694d_8f0a_1b2c_3d4e, "lock/694d8f0a1b2c3d4e");
        check_key(0x0ABC, "lock/abc");
        check_key(-0x1f, "lock/-1f");
        check_key(i64::MAX, "lock/7fffffffffffffff");
        check_key(i64::MIN, "lock/-8000000000000000");
    }

    #[test]
    fn an_entry_whose_outcome_was_not_told_may_come_until_its_time_is_over() {
        let (start, timeout) = (Instant::now(), Duration::from_secs(10));
        let mut unknown = Unknown::default();
        assert_eq!(unknown.may_come_until(start, timeout), None, "nothing was asked");
        let before = unknown;
        unknown.asked();
        assert_eq!(unknown.may_come_until(start, timeout), Some(start + timeout), "cancelled on the way");
        unknown.told(before);
        assert_eq!(unknown.may_come_until(start, timeout), None, "answered");
        unknown.asked();
        unknown.not_told(start);
        let before = unknown;
        unknown.asked();
        unknown.told(before);
        let later = start + Duration::from_secs(9);
        assert_eq!(unknown.may_come_until(later, timeout), Some(start + timeout), "the first may come");
        assert_eq!(unknown.may_come_until(start + timeout, timeout), None, "not any more");
        unknown.found_one();
        assert_eq!(unknown.may_come_until(later, timeout), None, "the key that was found is the first's");
    }

    #[test]
    fn who_was_created_first_stands_first() {
        let kv = |created: i64| KeyValue {
            key: "lock/1".into(),
            value: Bytes::new(),
            created: Revision::new(created),
            modified: Revision::new(created),
            version: 1,
            lease: None,
        };
        let check = |first: Option<i64>, created: i64, expected: bool| {
            assert_eq!(stands_first(first.map(kv).as_ref(), Revision::new(created)), expected, "{first:?}");
        };
        check(Some(5), 5, true);
        check(Some(4), 5, false);
        check(None, 5, true);
    }
}
