//! The list-watch door over a store that is cut off from its majority, and over one that was replaced.
//!
//! A member that is cut off hears of nothing. Whoever watches there would wait for ever, so it is sent
//! away, comes to another member with the last version that it knows, and misses nothing; and when the
//! member is back it goes on from what it had. A cluster that was replaced by one with a lower revision
//! looks like one that stands still; what was before must not be told as if it were so now.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::driver::{Cluster, ClusterSpec, Door, Flow, Product};
use crate::listwatch::http::{self, Lines, Next};
use crate::listwatch::tier::Tier;
use crate::listwatch::wait_until_open;
use crate::{Failure, Patience};

/// What the suite gives each of the two.
pub const BUDGET: Duration = Duration::from_secs(90);

const MEMBERS: usize = 3;
const READY_WITHIN: Duration = Duration::from_secs(30);
/// From the cut to the end of the watches: three election time-outs of half a second, and a busy machine.
const ENDED_WITHIN: Duration = Duration::from_secs(15);
const TOLD_WITHIN: Duration = Duration::from_secs(20);
/// A read that cannot be answered is refused, and not left waiting.
const REFUSED_WITHIN: Duration = Duration::from_secs(8);
const PAUSE: Duration = Duration::from_millis(50);
const COLLECTION: &str = "/api/v1/namespaces/default/configmaps";
/// Objects of the first life.
const OBJECTS: usize = 30;

/// Cuts the leader off, and looks at what becomes of those who watch through its door.
pub async fn cut_off() -> Result<(), Failure> {
    let spec = ClusterSpec::new(Product::Meerkat, MEMBERS).with_listwatch().with_quick_elections();
    let (cluster, doors) = Cluster::start_with_doors(&spec).await?;
    for member in 0..MEMBERS {
        wait_until_open(&cluster, member).await?;
    }
    let victim = cluster.leader(READY_WITHIN).await?;
    let (here, elsewhere) = (url(&cluster, victim), url(&cluster, (victim + 1) % MEMBERS));
    let endpoints: Vec<String> =
        (0..MEMBERS).map(|n| cluster.members()[(victim + n) % MEMBERS].endpoint().url().to_owned()).collect();
    let mut tier = Tier::start(&endpoints, cluster.dir()).await?;

    let before = create(&here, "before", &[201]).await?;
    let mut watch = Lines::begin(&here, &changes(before - 1)).await?;
    told(&mut watch, "before").await?;
    let mut through_tier = Lines::begin(&tier.url(), &changes(before - 1)).await?;
    told(&mut through_tier, "before").await?;
    let relists = metric(&here, "feed_relists_total").await?;

    isolate(&cluster, &doors, victim)?;
    let cut = Instant::now();
    Patience::of("the watch ends after the cut", ENDED_WITHIN).wait(until_end(&mut watch)).await??;
    let ended_after = cut.elapsed();
    create(&elsewhere, "during", &[201]).await?;
    is_sent_away(&here, before).await?;
    // Nobody at the tier notices, wherever it was connected.
    told(&mut through_tier, "during").await?;
    let mut resumed = Lines::begin(&elsewhere, &changes(before)).await?;
    told(&mut resumed, "during").await?;

    doors.iter().for_each(|door| door.set(Flow::Open));
    wait_until_open(&cluster, victim).await?;
    let mut back = Lines::begin(&here, &changes(before)).await?;
    told(&mut back, "during").await?;
    create(&elsewhere, "after", &[201]).await?;
    for watch in [&mut back, &mut resumed, &mut through_tier] {
        told(watch, "after").await?;
    }
    if metric(&here, "feed_relists_total").await? != relists {
        return Err(Failure::broken("the member listed its store again, though it had missed nothing"));
    }
    if metric(&here, "feed_cut_offs_total").await? == 0.0 {
        return Err(Failure::broken("the member does not count that it was cut off"));
    }
    println!("listwatch-trouble: the watches of a member that was cut off ended after {ended_after:?}");
    tier.kill()?;
    cluster.finish()
}

/// Replaces the store behind a tier by an empty one, at the same address.
pub async fn replaced() -> Result<(), Failure> {
    let mut cluster = Cluster::start(&ClusterSpec::new(Product::Meerkat, 1)).await?;
    let endpoint = cluster.members()[0].endpoint().url().to_owned();
    let mut tier = Tier::start(&[endpoint], cluster.dir()).await?;
    let mut last = 0;
    for number in 0..OBJECTS {
        last = create(&tier.url(), &format!("old-{number}"), &[201]).await?;
    }
    let mut watch = Lines::begin(&tier.url(), &changes(last)).await?;
    let listed = http::expect(&tier.url(), "GET", COLLECTION, None, &[200]).await?;
    let known = version(&listed)?;

    cluster.member(0).kill()?;
    std::fs::remove_dir_all(cluster.members()[0].data_dir())?;
    cluster.revive(READY_WITHIN).await?;
    let began = Instant::now();
    is_never_old(&tier.url(), known).await?;
    let noticed = began.elapsed();
    let error = until_error(&mut watch).await?;
    if error.is_some_and(|code| code != 410) {
        return Err(Failure::broken(format!("the watch ended with {error:?}, and not with 410")));
    }
    // The namespaces that clients take for granted are made again, so that this can succeed at all.
    let made = create(&tier.url(), "new", &[201, 404, 429, 503]).await?;
    if known <= made {
        return Err(Failure::harness(format!("the new store is at {made}, not below {known}")));
    }
    let mut late = Lines::begin(&tier.url(), &changes(known)).await?;
    if until_error(&mut late).await? != Some(410) {
        return Err(Failure::broken("a watch from a version of the store before waits for it to come"));
    }
    for query in ["", "?resourceVersion=0"] {
        let listed = http::expect(&tier.url(), "GET", &format!("{COLLECTION}{query}"), None, &[200]).await?;
        if names(&listed) != ["new"] {
            return Err(Failure::broken(format!("{query:?} lists {:?}", names(&listed))));
        }
    }
    let mut watch = Lines::begin(&tier.url(), &changes(made)).await?;
    create(&tier.url(), "newer", &[201]).await?;
    told(&mut watch, "newer").await?;
    println!("listwatch-trouble: a store that was replaced was noticed after {noticed:?}");
    tier.kill()?;
    cluster.finish()
}

fn url(cluster: &Cluster, member: usize) -> String {
    cluster.members()[member].listwatch_url()
}

fn changes(after: u64) -> String {
    format!("{COLLECTION}?watch=1&allowWatchBookmarks=true&resourceVersion={after}")
}

/// Nothing more goes between this member and the others, whoever dialed.
fn isolate(cluster: &Cluster, doors: &[Door], member: usize) -> Result<(), Failure> {
    let pid = cluster.members()[member].pid();
    let pid = pid.ok_or_else(|| Failure::harness("a member that does not run cannot be cut off"))?;
    for (number, door) in doors.iter().enumerate() {
        if number == member {
            door.set(Flow::Hole);
        } else {
            door.set_for(pid, Flow::Hole)?;
        }
    }
    Ok(())
}

/// Makes an object, again and again while the answer is not the first of these. Its version.
async fn create(server: &str, name: &str, codes: &[u16]) -> Result<u64, Failure> {
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
    let deadline = Instant::now() + TOLD_WITHIN;
    loop {
        let answered = http::ask(server, "POST", COLLECTION, Some(&body)).await?;
        if Some(&answered.status) == codes.first() {
            return version(&answered.json()?);
        }
        // One whose answer was lost on the way may have been made.
        if answered.status == 409 {
            let path = format!("{COLLECTION}/{name}");
            return version(&http::expect(server, "GET", &path, None, &[200]).await?);
        }
        // While a leader is being elected nothing can be written, and that is not what this is about.
        let passes = codes.contains(&answered.status) || [503, 504].contains(&answered.status);
        if !passes || deadline < Instant::now() {
            let body = String::from_utf8_lossy(&answered.body).into_owned();
            return Err(Failure::broken(format!("{name} is not made: {}: {body}", answered.status)));
        }
        tokio::time::sleep(PAUSE).await;
    }
}

fn version(object: &Value) -> Result<u64, Failure> {
    let rv = object["metadata"]["resourceVersion"].as_str().and_then(|rv| rv.parse().ok());
    rv.ok_or_else(|| Failure::broken(format!("no resourceVersion: {object}")))
}

fn names(list: &Value) -> Vec<&str> {
    let items = list["items"].as_array().into_iter().flatten();
    items.filter_map(|item| item["metadata"]["name"].as_str()).collect()
}

/// The next event that is no bookmark has to be of this object.
async fn told(watch: &mut Lines, name: &str) -> Result<(), Failure> {
    let next = async {
        loop {
            match watch.next().await? {
                Next::Event(event) if event["type"] == "BOOKMARK" => {}
                next => return Ok::<Next, Failure>(next),
            }
        }
    };
    match Patience::of(format!("{name} is told"), TOLD_WITHIN).wait(next).await?? {
        Next::Event(event) if event["object"]["metadata"]["name"] == name => Ok(()),
        next => Err(Failure::broken(format!("{next:?} instead of {name}"))),
    }
}

/// Reads a watch to its end, and lets no event pass but bookmarks.
async fn until_end(watch: &mut Lines) -> Result<(), Failure> {
    loop {
        match watch.next().await? {
            Next::End => return Ok(()),
            Next::Event(event) if event["type"] == "BOOKMARK" => {}
            Next::Event(event) => {
                return Err(Failure::broken(format!("told by one that is cut off: {event}")));
            }
        }
    }
}

/// The code of the error that a watch ends with; none if it ends without one.
async fn until_error(watch: &mut Lines) -> Result<Option<u64>, Failure> {
    let end = async {
        loop {
            match watch.next().await? {
                Next::End => return Ok(None),
                Next::Event(event) if event["type"] == "ERROR" => return Ok(event["object"]["code"].as_u64()),
                Next::Event(_) => {}
            }
        }
    };
    Patience::of("the watch ends", TOLD_WITHIN).wait(end).await?
}

/// The door of a member that is cut off: alive, not ready, and good for nothing that is of now.
async fn is_sent_away(server: &str, known: u64) -> Result<(), Failure> {
    let list = format!("{COLLECTION}?resourceVersion=0");
    for (path, code) in [
        ("/livez", 200),
        ("/readyz", 503),
        (changes(known).as_str(), 429),
        (COLLECTION, 503),
        ("/api/v1/namespaces/default/configmaps/before", 503),
        (list.as_str(), 200),
    ] {
        let began = Instant::now();
        let answered = http::ask(server, "GET", path, None).await?;
        if answered.status != code {
            return Err(Failure::broken(format!("{path}: {} and not {code}", answered.status)));
        }
        if REFUSED_WITHIN < began.elapsed() {
            return Err(Failure::slow(format!("{path}: {code} after {:?}", began.elapsed())));
        }
    }
    Ok(())
}

/// Lists until the new store is listed; nothing that was before it may be listed as of now.
async fn is_never_old(server: &str, known: u64) -> Result<(), Failure> {
    let patience = Patience::of("the new store is listed", TOLD_WITHIN);
    loop {
        let answered = http::ask(server, "GET", COLLECTION, None).await?;
        if answered.status == 200 {
            let list = answered.json()?;
            if !names(&list).is_empty() {
                return Err(Failure::broken(format!("a store that is empty lists {:?}", names(&list))));
            }
            if version(&list)? < known {
                return patience.came().map(drop);
            }
        }
        patience.pause(PAUSE, format_args!("answered with {}", answered.status)).await?;
    }
}

/// A number of the followed kind, from the door's own metrics.
async fn metric(server: &str, name: &str) -> Result<f64, Failure> {
    let answered = http::ask(server, "GET", "/metrics", None).await?;
    let text = String::from_utf8_lossy(&answered.body);
    let line = format!("meerkat_listwatch_{name}{{place=\"configmaps\"}} ");
    let value = text.lines().find_map(|each| each.strip_prefix(&line)).and_then(|value| value.parse().ok());
    value.ok_or_else(|| Failure::broken(format!("{name} is not among the metrics")))
}
