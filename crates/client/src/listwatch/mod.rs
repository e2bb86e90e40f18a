//! The list-watch door over HTTP: objects as Kubernetes has them, from any of several members.
//!
//! A [`Door`] knows the members, a [`Resource`] says which objects are meant, [`Objects`] reads and
//! writes them, and [`Informer::objects`](crate::Informer::objects) keeps a cache of them.
//!
//! ```no_run
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! use meerkat_client::Informer;
//! use meerkat_client::listwatch::{Door, Resource};
//! use serde_json::{Value, json};
//!
//! let door = Door::new(["http://10.0.0.1:8080", "http://10.0.0.2:8080", "http://10.0.0.3:8080"])?;
//! let settings = Resource::core("configmaps").namespace("default");
//! let colour = json!({ "metadata": { "name": "colour" }, "data": { "wall": "green" } });
//! door.objects(&settings).create(&colour).await?;
//!
//! let informer = Informer::objects(&door, settings).json::<Value>().start();
//! informer.wait_for_sync().await?;
//! for object in informer.store().list() {
//!     println!("{:?} is {}", object.key, object.value["data"]);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! When a member is lost, reads and watches go on at the next one. A watch goes on from the last
//! resourceVersion it was told, so losing members costs no list. A write is sent again only if the first
//! certainly did not happen; otherwise its [`Error`] says that its fate is unknown.
//!
//! `https://` is not spoken yet.

mod answer;
mod error;
pub(crate) mod events;
pub(crate) mod follow;
mod objects;
mod resource;
pub(crate) mod route;
pub(crate) mod wire;

pub use error::Error;
pub use objects::{Objects, Selected};
pub use resource::Resource;

use http::Uri;
use parking_lot::Mutex;
use rand::Rng;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use route::Route;
use wire::Wire;

/// How long a call of [`Objects`] may take, all its attempts together, unless told otherwise.
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(10);

/// The door of a cluster, through any of its members. Clones share connections.
#[derive(Clone)]
pub struct Door {
    shared: Arc<Shared>,
    timeout: Duration,
}

struct Shared {
    members: Vec<String>,
    wire: Wire,
    /// Which member calls go to. Informers have a route of their own.
    route: Mutex<Route>,
}

impl Door {
    /// The door of the members at these addresses: `http://host:port`, or `host:port`. Nothing is sent
    /// yet; which one is asked first is drawn.
    pub fn new<S: Into<String>>(members: impl IntoIterator<Item = S>) -> Result<Door, Error> {
        Door::build(members.into_iter().map(Into::into), None)
    }

    /// The same, for a door that wants to be shown a token.
    pub fn with_token<S: Into<String>>(
        members: impl IntoIterator<Item = S>,
        token: &str,
    ) -> Result<Door, Error> {
        Door::build(members.into_iter().map(Into::into), Some(token))
    }

    fn build(members: impl Iterator<Item = String>, token: Option<&str>) -> Result<Door, Error> {
        let members = members.map(|member| base_url(&member)).collect::<Result<Vec<String>, Error>>()?;
        if members.is_empty() {
            return Err(Error::invalid("no member is named"));
        }
        let route = Mutex::new(Route::new(members.len(), rand::rng().random_range(0..members.len())));
        let shared = Arc::new(Shared { wire: Wire::new(token)?, route, members });
        Ok(Door { shared, timeout: TIMEOUT_DEFAULT })
    }

    /// How long a call of [`Objects`] may take (10 s unless told).
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Door {
        self.timeout = timeout;
        self
    }

    /// To read and write the objects of this resource.
    pub fn objects(&self, resource: &Resource) -> Objects {
        Objects::new(self.clone(), resource.clone())
    }

    /// The addresses of the members, in the order in which they were given.
    pub fn members(&self) -> &[String] {
        &self.shared.members
    }

    pub(crate) fn wire(&self) -> &Wire {
        &self.shared.wire
    }

    pub(crate) fn url(&self, member: usize, path: &str) -> String {
        format!("{}{path}", self.shared.members[member % self.shared.members.len()])
    }
}

impl fmt::Debug for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Door {:?}", self.shared.members)
    }
}

/// `http://host:port`, without a slash at its end.
fn base_url(member: &str) -> Result<String, Error> {
    let (scheme, place) = member.trim().split_once("://").unwrap_or(("http", member.trim()));
    let text = format!("{scheme}://{}", place.strip_suffix('/').unwrap_or(place));
    let wrong = |why: &str| Error::invalid(format!("{member:?} is no address of a member: {why}"));
    let uri: Uri = text.parse().map_err(|_| wrong("not a URL"))?;
    if uri.scheme_str() != Some("http") {
        return Err(wrong("only http:// is spoken"));
    }
    if !matches!(uri.path(), "" | "/") || uri.query().is_some() {
        return Err(wrong("a member has no path"));
    }
    match uri.host() {
        Some(host) if !host.is_empty() => Ok(text),
        _ => Err(wrong("no host")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_written_in_any_of_the_usual_ways() {
        for text in ["http://127.0.0.1:8080", "http://127.0.0.1:8080/", "127.0.0.1:8080"] {
            assert_eq!(base_url(text).expect("fine"), "http://127.0.0.1:8080", "{text}");
        }
        for text in ["https://a:1", "", "http://", "http://a:1/api", "a b", "http://a:1?x=y"] {
            assert!(base_url(text).is_err(), "{text}");
        }
        assert!(Door::new(Vec::<String>::new()).is_err());
    }
}
