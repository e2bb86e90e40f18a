//! One request's way through the door: who asks, whether there is room, whether they may, and what for.

use super::answer::{self, Body, Look, header};
use super::authn::{self, Credentials, User};
use super::authz::{self, Act};
use super::gate::Seat;
use super::limits::Flow;
use super::{Alive, Door, body, get, list, origin, pages, pods, review, route, watch, websocket, write};
use crate::storage::{Leave, Part, Place, Writer};
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::header::{AUTHORIZATION, USER_AGENT};
use http::uri::Authority;
use http::{HeaderMap, Method, Request, Response};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use meerkat_kubernetes::query::{Query, REQUEST_TIMEOUT_MAX};
use meerkat_kubernetes::registry::{Kind, Registry};
use meerkat_kubernetes::status::{Reason, Refusal};
use meerkat_watchcache::request_path::{ObjectTarget, Page, Target, Verb, parse};
use meerkat_watchcache::selector::FieldSelector;
use meerkat_watchcache::store::Pass;
use parking_lot::Mutex;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::OwnedSemaphorePermit;

/// Of a request that changes something. Shorter than what clients wait, so that they are told.
const WRITE_TIMEOUT: Duration = Duration::from_secs(34);

/// Of the name of a client.
const CLIENT_BYTES_MAX: usize = 128;

/// A request about objects, let in.
pub struct Asked {
    pub door: Arc<Door>,
    pub kind: Arc<Kind>,
    pub target: ObjectTarget,
    pub part: Part,
    pub user: User,
    pub query: Query,
    pub headers: HeaderMap,
    pub look: Look,
    credentials: Credentials,
    /// The last one. Never held across an await.
    pass: Mutex<Pass>,
}

/// Somebody who may have what they ask for.
struct Admitted {
    credentials: Credentials,
    user: User,
    pass: Pass,
}

/// What came in over the connection, beside the head of the request.
struct Rest {
    peer: SocketAddr,
    held: Held,
    body: Incoming,
    upgrade: OnUpgrade,
}

/// What a stream that outlives its request holds on to: the door waits for it, and it counts as a connection.
pub type Held = (Alive, Arc<OwnedSemaphorePermit>);

/// Always an answer, whatever happens inside.
pub async fn answer(
    door: Arc<Door>,
    peer: SocketAddr,
    held: Held,
    mut request: Request<Incoming>,
) -> Response<Body> {
    let began = Instant::now();
    let upgrade = hyper::upgrade::on(&mut request);
    let (head, body) = request.into_parts();
    let is_head = head.method == Method::HEAD;
    let path = head.uri.path().to_owned();
    let query = Query::parse(head.uri.query().unwrap_or_default());
    let look = Look::of(&head.headers, query.as_ref().unwrap_or(&Query::default()));
    let read =
        query.and_then(|query| parse(head.method.as_str(), &path, &query).map(|target| (query, target)));
    let label = label(&read);
    let rest = Rest { peer, held, body, upgrade };
    let asked =
        Head { path: &path, authority: head.uri.authority(), method: head.method, headers: head.headers };
    let work = admit(door.clone(), read, asked, look.clone(), rest);
    let outcome = AssertUnwindSafe(Box::pin(work)).catch_unwind().await;
    let outcome = outcome.unwrap_or_else(|_| {
        tracing::error!(path, "a request made its handler panic");
        Err(Refusal::new(Reason::InternalError, "an internal error occurred"))
    });
    let response = outcome.unwrap_or_else(|refusal| answer::refusal(&refusal, &look));
    door.metrics.note(label, response.status().as_u16(), began.elapsed());
    if is_head { answer::without_body(response) } else { response }
}

fn label(read: &Result<(Query, Target), Refusal>) -> &'static str {
    match read {
        Err(_) => "UNREADABLE",
        Ok((_, Target::Page(_))) => "PAGE",
        Ok((_, Target::Objects(target))) => match target.verb {
            Verb::Get => "GET",
            Verb::List => "LIST",
            Verb::Watch => "WATCH",
            Verb::Create => "POST",
            Verb::Update => "PUT",
            Verb::Patch => "PATCH",
            Verb::Delete => "DELETE",
            Verb::DeleteCollection => "DELETECOLLECTION",
        },
    }
}

/// How the request was put.
struct Head<'a> {
    path: &'a str,
    /// Of HTTP/2, which has no Host.
    authority: Option<&'a Authority>,
    method: Method,
    headers: HeaderMap,
}

async fn admit(
    door: Arc<Door>,
    read: Result<(Query, Target), Refusal>,
    asked: Head<'_>,
    look: Look,
    rest: Rest,
) -> Result<Response<Body>, Refusal> {
    let Head { path, authority, method, headers } = asked;
    let bearer = authn::bearer(header(&headers, &AUTHORIZATION)).or_else(|| websocket::bearer(&headers));
    let credentials = Credentials { bearer, peer: rest.peer };
    origin::check(&headers, authority, rest.peer)?;
    let user = door.authenticator.user(&credentials).await?;
    let (query, target) = read?;
    let deadline = deadline(&target, &query)?;
    // Who asks whether we live is told, however busy we are.
    if matches!(target, Target::Page(Page::Health { .. } | Page::Metrics)) {
        return page(&door, target, path, &method, &user, (&query, &headers), &look).await;
    }
    let flow = Flow {
        user: credentials.counted_as(&user).into(),
        client: client(header(&headers, &USER_AGENT)).into(),
    };
    let work = async {
        let pass = match &target {
            Target::Objects(target) => permit(&door, target, &user, &query)?,
            // Judged where it is shown.
            Target::Page(_) => Pass::default(),
        };
        let body = if takes_body(&target) { received(&door, &flow, rest.body).await? } else { None };
        // Given up when the answer is made: a watch costs nobody a seat.
        let _seat = door.gate.enter(&flow).await?;
        let body = body.map(|(bytes, _)| bytes).unwrap_or_default();
        let rest = (body, rest.upgrade, rest.held);
        match target {
            Target::Objects(target) => {
                let who = Admitted { credentials, user, pass };
                objects(door.clone(), target, who, query, headers, look, rest).await
            }
            page_target => page(&door, page_target, path, &method, &user, (&query, &headers), &look).await,
        }
    };
    match tokio::time::timeout(deadline, work).await {
        Ok(outcome) => outcome,
        Err(_) => {
            let message = format!("the request did not complete within {} seconds", deadline.as_secs_f32());
            Err(Refusal::new(Reason::Timeout, message))
        }
    }
}

/// A client is known by the first word of what it calls itself, which names the program and its version.
fn client(user_agent: &str) -> &str {
    let name = user_agent.split_whitespace().next().unwrap_or_default();
    name.get(..CLIENT_BYTES_MAX).unwrap_or(name)
}

fn takes_body(target: &Target) -> bool {
    let Target::Objects(target) = target else { return false };
    match target.verb {
        Verb::Create | Verb::Update | Verb::Patch | Verb::Delete | Verb::DeleteCollection => true,
        Verb::Get | Verb::List | Verb::Watch => false,
    }
}

/// The body, before there is a seat for the request: who sends slowly keeps nobody from being answered. There
/// are seats of their own for those who send, held until the request has another, so that no more bodies are
/// in memory than there are seats.
async fn received(door: &Door, flow: &Flow, body: Incoming) -> Result<Option<(Bytes, Seat)>, Refusal> {
    if body.is_end_stream() {
        return Ok(None);
    }
    let seat = door.bodies.enter(flow).await?;
    Ok(Some((body::whole(body).await?, seat)))
}

fn permit(door: &Door, target: &ObjectTarget, user: &User, query: &Query) -> Result<Pass, Refusal> {
    let verb = target.verb.to_string();
    let selected = selected_name(&door.storage.kinds().now(), target, query);
    let act = Act::on_objects(&verb, target, selected.as_deref().unwrap_or_default());
    authz::check(door.authorizer.as_ref(), user, &act)
}

fn deadline(target: &Target, query: &Query) -> Result<Duration, Refusal> {
    match target {
        Target::Objects(target) => match target.verb {
            Verb::Get | Verb::List => query.timeout(),
            // Until it is set up.
            Verb::Watch => Ok(REQUEST_TIMEOUT_MAX),
            Verb::Create | Verb::Update | Verb::Patch | Verb::Delete | Verb::DeleteCollection => {
                query.timeout().map(|asked| asked.min(WRITE_TIMEOUT))
            }
        },
        Target::Page(_) => query.timeout(),
    }
}

async fn page(
    door: &Arc<Door>,
    target: Target,
    path: &str,
    method: &Method,
    user: &User,
    (query, headers): (&Query, &HeaderMap),
    look: &Look,
) -> Result<Response<Body>, Refusal> {
    let Target::Page(page) = target else { return Err(Refusal::no_such_page()) };
    let verb = method.as_str().to_ascii_lowercase();
    authz::check(door.authorizer.as_ref(), user, &Act::Page { verb: &verb, path })?;
    pages::answer(door, &page, query, headers, look).await
}

async fn objects(
    door: Arc<Door>,
    target: ObjectTarget,
    who: Admitted,
    query: Query,
    headers: HeaderMap,
    look: Look,
    (body, upgrade, held): (Bytes, OnUpgrade, Held),
) -> Result<Response<Body>, Refusal> {
    let kind = find_kind(&door, &target).await?;
    let part = route::part(&kind, &target)?;
    let verb = target.verb;
    let Admitted { credentials, user, pass } = who;
    let pass = Mutex::new(pass);
    let asked = Asked { door, kind, target, part, user, query, headers, look, credentials, pass };
    match verb {
        Verb::Get => get::answer(&asked).await,
        Verb::List => list::answer(&asked).await,
        Verb::Watch if websocket::is_wanted(&asked.headers) => websocket::answer(&asked, upgrade, held).await,
        Verb::Watch => watch::answer(&asked).await,
        Verb::Create if asked.kind.storage.is_none() => review::answer(&asked, &body).await,
        Verb::Create if asked.target.subresource.is_some() => pods::answer(&asked, &body).await,
        Verb::Create => write::create(&asked, &body).await,
        Verb::Update => write::update(&asked, &body).await,
        Verb::Patch => write::patch(&asked, &body).await,
        Verb::Delete => write::delete(&asked, &body).await,
        Verb::DeleteCollection => write::delete_collection(&asked, &body).await,
    }
}

/// The one object that the request is about, if it says so. A name that is selected in all namespaces is as
/// many objects as have it, and of a kind that is not known yet nobody can tell.
fn selected_name(kinds: &Registry, target: &ObjectTarget, query: &Query) -> Option<String> {
    if target.name.is_some() {
        return target.name.clone();
    }
    let kind = kinds.by_resource(&target.group, &target.version, &target.resource);
    if target.namespace.is_none() && kind.is_none_or(|kind| kind.is_namespaced()) {
        return None;
    }
    let fields = FieldSelector::parse(query.text("fieldSelector")).ok()?;
    fields.only_name().map(str::to_owned)
}

/// A kind that is not known may be one whose definition was just acknowledged.
async fn find_kind(door: &Door, target: &ObjectTarget) -> Result<Arc<Kind>, Refusal> {
    let (group, version, resource) = (&target.group, &target.version, &target.resource);
    if let Some(kind) = door.storage.kinds().now().by_resource(group, version, resource) {
        return Ok(kind.clone());
    }
    let fresh = door.storage.kinds().fresh().await?;
    fresh.by_resource(group, version, resource).cloned().ok_or_else(Refusal::no_such_page)
}

impl Asked {
    /// Empty for a kind of the whole cluster, and for all namespaces.
    pub fn namespace(&self) -> &str {
        self.target.namespace.as_deref().unwrap_or_default()
    }

    pub fn name(&self) -> &str {
        self.target.name.as_deref().unwrap_or_default()
    }

    pub fn place(&self) -> Place<'_> {
        let (kind, writer) = (&self.kind, self.writer());
        Place { kind, namespace: self.namespace(), name: self.name(), writer }
    }

    pub fn writer(&self) -> Writer<'_> {
        Writer::Somebody(self)
    }

    /// Who would have asked, had it been with this token.
    pub async fn user_of(&self, token: &str) -> Result<User, Refusal> {
        let credentials = Credentials { bearer: Some(token.to_owned()), peer: self.credentials.peer };
        self.door.authenticator.user(&credentials).await
    }
}

impl Leave for Asked {
    fn pass(&self) -> Pass {
        self.pass.lock().clone()
    }

    /// By the token too, which may be void by now, or be of another revision.
    fn renew(&self) -> BoxFuture<'_, Result<Pass, Refusal>> {
        async {
            let user = self.door.authenticator.user(&self.credentials).await?;
            let pass = permit(&self.door, &self.target, &user, &self.query)?;
            self.pass.lock().clone_from(&pass);
            Ok(pass)
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_object_only_in_a_namespace_or_where_there_are_none() {
        let kinds = Registry::built_in();
        for (path, name) in [
            ("/api/v1/namespaces/a/secrets", Some("x")),
            ("/api/v1/secrets", None),
            ("/api/v1/nodes", Some("x")),
            ("/api/v1/namespaces", Some("x")),
            ("/apis/stable.example.com/v1/crontabs", None),
            ("/apis/stable.example.com/v1/namespaces/a/crontabs", Some("x")),
        ] {
            for (query, name) in [("fieldSelector=metadata.name%3Dx", name), ("", None)] {
                let query = Query::parse(query).expect("readable");
                let Ok(Target::Objects(target)) = parse("GET", path, &query) else { panic!("{path}") };
                assert_eq!(selected_name(&kinds, &target, &query).as_deref(), name, "{path}");
            }
        }
        let query = Query::default();
        let Ok(Target::Objects(target)) = parse("GET", "/api/v1/namespaces/a/pods/y", &query) else {
            panic!("a path")
        };
        assert_eq!(selected_name(&kinds, &target, &query).as_deref(), Some("y"));
    }
}
