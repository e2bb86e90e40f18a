//! One door's turn: it follows all kinds, and looks at what their changes name.
//!
//! All that is known is known to one task, which waits for nothing but news. Looks are tasks of their own,
//! at most [`LOOKS_MAX`] at a time; what fails is looked at again, later and later. When the turn is over
//! everything is dropped, and the next one learns it anew.

use super::collect::{self, Look};
use super::follow::{News, follow, followed};
use super::owners::{Leaving, Owners, Uid};
use super::queue::{Outcome, Queue};
use super::tally::{Deed, Tally};
use super::{Clock, Times, definitions, namespaces, sweeps};
use crate::storage::Storage;
use meerkat_kubernetes::status::Refusal;
use meerkat_kubernetes::timestamp::Timestamp;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, Id, JoinError, JoinSet};

/// Where definitions are kept below `/registry/`, and namespaces.
pub const DEFINITIONS: &str = "apiextensions.k8s.io/customresourcedefinitions";
pub const NAMESPACES: &str = "namespaces";

const LOOKS_MAX: usize = 8;
/// Batches of news that wait. A kind that has more waits in its own feed.
const NEWS_MAX: usize = 64;
const REGISTRY_EVERY: Duration = Duration::from_secs(1);

/// What is looked at.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Job {
    Namespace(Arc<str>),
    Definition(Arc<str>),
    Object(Uid),
}

impl Job {
    /// The key of what it is about, if that is a namespace or a definition and kept there.
    fn key_at(&self, place: &str) -> Option<&Arc<str>> {
        match self {
            Job::Namespace(key) if place == NAMESPACES => Some(key),
            Job::Definition(key) if place == DEFINITIONS => Some(key),
            Job::Namespace(_) | Job::Definition(_) | Job::Object(_) => None,
        }
    }
}

pub struct Work {
    storage: Arc<Storage>,
    tally: Arc<Tally>,
    times: Times,
    clock: Clock,
    owners: Owners,
    queue: Queue<Job>,
    looks: JoinSet<Outcome>,
    looked_at: HashMap<Id, Job>,
    /// By place.
    followers: BTreeMap<Arc<str>, AbortHandle>,
    following: JoinSet<()>,
    /// Places of which not all objects are known yet.
    unlisted: BTreeSet<Arc<str>>,
    registry_hash: String,
    /// Since when a namespace, a definition, or an object that leaves orphans is known to go.
    leaving: HashMap<Job, u64>,
    definitions: BTreeSet<Arc<str>>,
    /// Whether the namespaces that went under a keeper before this one are known.
    knows_sweeps: bool,
}

impl Work {
    pub fn new(storage: Arc<Storage>, tally: Arc<Tally>, times: Times) -> Work {
        Work {
            storage,
            tally,
            times,
            clock: Clock::default(),
            owners: Owners::default(),
            queue: Queue::new(LOOKS_MAX),
            looks: JoinSet::new(),
            looked_at: HashMap::new(),
            followers: BTreeMap::new(),
            following: JoinSet::new(),
            unlisted: BTreeSet::new(),
            registry_hash: String::new(),
            leaving: HashMap::new(),
            definitions: BTreeSet::new(),
            knows_sweeps: false,
        }
    }

    /// Until it is dropped.
    pub async fn run(mut self) {
        let (tell, mut news) = mpsc::channel::<Vec<News>>(NEWS_MAX);
        let mut tick = tokio::time::interval(REGISTRY_EVERY);
        let mut noted = Box::pin(noted(self.storage.clone()));
        loop {
            self.start_looks();
            let due = self.queue.due_ms();
            tokio::select! {
                Some(batch) = news.recv() => batch.into_iter().for_each(|each| self.hear(each)),
                Some(done) = self.looks.join_next_with_id() => self.looked(done),
                () = self.clock.sleep_until(due) => {}
                _ = tick.tick() => self.follow_kinds(&tell),
                names = &mut noted, if !self.knows_sweeps => self.add_sweeps(names),
            }
        }
    }

    /// What an earlier keeper would have looked into once more.
    fn add_sweeps(&mut self, names: Vec<Arc<str>>) {
        self.knows_sweeps = true;
        let due_ms = self.clock.now_ms() + self.times.sweep_ms;
        names.into_iter().for_each(|name| self.queue.add(Job::Namespace(name), due_ms));
    }

    /// Follows the kinds that are served, and no others.
    fn follow_kinds(&mut self, tell: &mpsc::Sender<Vec<News>>) {
        while self.following.try_join_next().is_some() {}
        self.followers.retain(|_, follower| !follower.is_finished());
        let registry = self.storage.kinds().now();
        let kinds = followed(&registry);
        if registry.hash() == self.registry_hash && kinds.len() == self.followers.len() {
            return;
        }
        registry.hash().clone_into(&mut self.registry_hash);
        let places: BTreeSet<Arc<str>> =
            kinds.iter().filter_map(|kind| kind.storage.as_deref()).map(Arc::from).collect();
        self.unlisted.retain(|place| places.contains(place));
        let mut ended = Vec::new();
        self.followers.retain(|place, follower| {
            let is_served = places.contains(place);
            if !is_served {
                follower.abort();
                ended.push(place.clone());
            }
            is_served
        });
        let now_ms = self.clock.now_ms();
        for place in ended {
            let named = self.owners.ended(&place);
            self.name_objects(named, now_ms);
        }
        for place in places {
            if !self.followers.contains_key(&place) {
                self.unlisted.insert(place.clone());
                let follower =
                    self.following.spawn(follow(self.storage.clone(), place.clone(), tell.clone()));
                self.followers.insert(place, follower);
            }
        }
    }

    fn hear(&mut self, news: News) {
        // What was told before its kind ended came too late.
        if !self.followers.contains_key(news.place()) {
            return;
        }
        let now_ms = self.clock.now_ms();
        let named = match news {
            News::Saw(sighting) => {
                let job = job_of(&sighting.spot.place, &sighting.spot.key);
                if let Some(job) = job {
                    self.saw_job(job, sighting.leaving.is_some(), now_ms);
                }
                if sighting.leaving == Some(Leaving::Orphan) {
                    self.leaving.entry(Job::Object(sighting.uid.clone())).or_insert(now_ms);
                }
                self.owners.saw(sighting)
            }
            News::Gone { place, key, uid } => {
                self.leaving.remove(&Job::Object(uid.clone()));
                self.gone_job(&place, &key, now_ms);
                self.owners.gone(&uid)
            }
            News::Relisted { of, seen, leaving } => {
                self.unlisted.remove(&of.place);
                // One that went unseen may come again: its time begins anew.
                self.leaving.retain(|job, _| job.key_at(&of.place).is_none_or(|key| leaving.contains(key)));
                self.owners.relisted(&of, &seen)
            }
        };
        self.name_objects(named, now_ms);
    }

    fn name_objects(&mut self, named: Vec<Uid>, now_ms: u64) {
        for uid in named {
            self.queue.add(Job::Object(uid), now_ms);
        }
    }

    fn saw_job(&mut self, job: Job, is_leaving: bool, now_ms: u64) {
        if let Job::Definition(name) = &job {
            self.definitions.insert(name.clone());
        }
        if is_leaving {
            self.leaving.entry(job.clone()).or_insert(now_ms);
        }
        if is_leaving || matches!(job, Job::Definition(_)) {
            self.queue.add(job, now_ms);
        }
    }

    /// What went may be the last in its namespace or of its kind, or the one that had another's name.
    fn gone_job(&mut self, place: &str, key: &Arc<str>, now_ms: u64) {
        if let Some(job) = job_of(place, key) {
            self.leaving.remove(&job);
            if let Job::Definition(name) = &job {
                self.definitions.remove(name);
                for other in &self.definitions {
                    self.queue.add(Job::Definition(other.clone()), now_ms);
                }
            }
            return;
        }
        if let Some((namespace, _)) = key.split_once('/') {
            let job = Job::Namespace(namespace.into());
            if self.leaving.contains_key(&job) {
                self.queue.add(job, now_ms);
            }
        }
        if self.leaving.is_empty() {
            return;
        }
        let registry = self.storage.kinds().now();
        let kind = super::follow::kind_at(&registry, place);
        if let Some((definition, _)) = kind.and_then(|kind| kind.custom()) {
            let job = Job::Definition(definition.into());
            if self.leaving.contains_key(&job) {
                self.queue.add(job, now_ms);
            }
        }
    }

    fn start_looks(&mut self) {
        let now_ms = self.clock.now_ms();
        while let Some(job) = self.queue.next(now_ms) {
            let known_ms = self.leaving.get(&job).map_or(0, |since| now_ms.saturating_sub(*since));
            let look = match &job {
                Job::Object(uid) => self.look_of(uid, known_ms),
                Job::Namespace(_) | Job::Definition(_) => None,
            };
            if look.is_none() && matches!(job, Job::Object(_)) {
                self.queue.finished(job, Outcome::Done, now_ms);
                continue;
            }
            let (storage, tally) = (self.storage.clone(), self.tally.clone());
            let times = self.times;
            let doing = job.clone();
            let task = self.looks.spawn(async move {
                let outcome = match (&doing, look) {
                    (_, Some(look)) => collect::look(&storage, look, &tally).await,
                    (Job::Definition(name), _) => {
                        definitions::tend(&storage, name, known_ms, times.settle_ms, wall(), &tally).await
                    }
                    (Job::Namespace(name), _) => {
                        namespaces::empty(&storage, name, known_ms, times, wall(), &tally).await
                    }
                    (Job::Object(_), None) => Ok(Outcome::Done),
                };
                settled(&doing, outcome, &tally)
            });
            self.looked_at.insert(task.id(), job);
        }
    }

    /// Nothing if there is nothing to be done about it.
    fn look_of(&self, uid: &Uid, known_ms: u64) -> Option<Look> {
        Some(Look {
            spot: self.owners.spot(uid)?.clone(),
            uid: uid.clone(),
            around: self.owners.around(uid),
            is_partial: !self.unlisted.is_empty(),
            known_ms,
        })
    }

    fn looked(&mut self, done: Result<(Id, Outcome), JoinError>) {
        let (id, outcome) = match done {
            Ok((id, outcome)) => (id, outcome),
            Err(error) => {
                tracing::error!(%error, "a look of the keeper ended badly");
                self.tally.add(Deed::Failure);
                (error.id(), Outcome::Failed)
            }
        };
        if let Some(job) = self.looked_at.remove(&id) {
            self.queue.finished(job, outcome, self.clock.now_ms());
        }
    }
}

/// The namespaces that went lately. Does not give up.
async fn noted(storage: Arc<Storage>) -> Vec<Arc<str>> {
    loop {
        match sweeps::noted(&**storage.store()).await {
            Ok(names) => return names,
            Err(error) => tracing::debug!(%error, "the namespaces that went are not known yet"),
        }
        tokio::time::sleep(REGISTRY_EVERY).await;
    }
}

fn job_of(place: &str, key: &Arc<str>) -> Option<Job> {
    match place {
        NAMESPACES => Some(Job::Namespace(key.clone())),
        DEFINITIONS => Some(Job::Definition(key.clone())),
        _ => None,
    }
}

fn settled(job: &Job, outcome: Result<Outcome, Refusal>, tally: &Tally) -> Outcome {
    outcome.unwrap_or_else(|refusal| {
        tracing::debug!(?job, %refusal, "the keeper tries again");
        tally.add(Deed::Failure);
        Outcome::Failed
    })
}

fn wall() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = i64::try_from(since.as_secs()).unwrap_or_default();
    Timestamp { seconds, nanos: since.subsec_nanos() }
}

#[cfg(test)]
mod tests {
    use super::super::owners::Followed;
    use super::*;
    use meerkat_watchcache::feed::Feeds;
    use meerkat_watchcache::memory_store::MemoryStore;
    use meerkat_watchcache::store::Store;
    use std::collections::HashSet;

    #[tokio::test(start_paused = true)]
    async fn what_went_unseen_is_not_known_to_go_any_more() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let storage = Storage::new(store.clone(), Feeds::new(store));
        let mut work = Work::new(storage, Arc::default(), super::super::tests::QUICK);
        let jobs = [
            Job::Namespace("gone".into()),
            Job::Namespace("here".into()),
            Job::Definition("gone".into()),
            Job::Object("gone".into()),
        ];
        work.leaving.extend(jobs.iter().cloned().zip(1..));
        let task = work.following.spawn(std::future::pending());
        work.followers.insert(NAMESPACES.into(), task);
        let of = Followed { place: NAMESPACES.into(), group: "".into(), kind: "Namespace".into() };
        let leaving = HashSet::from(["here".into()]);
        work.hear(News::Relisted { of, seen: HashSet::new(), leaving });
        let left: Vec<bool> = jobs.iter().map(|job| work.leaving.contains_key(job)).collect();
        assert_eq!(left, [false, true, true, true]);
    }
}
