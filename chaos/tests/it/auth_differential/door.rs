//! The list-watch door of a member knows the users of its store.

use super::client::{Client, add_role, add_user, enable, failed, grant_role, range, revoke_role};
use meerkat_chaos::Failure;
use meerkat_chaos::driver::{Cluster, ClusterSpec, Product};
use meerkat_chaos::scenario::run_test;
use meerkat_proto::pb::etcdserver as pb;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const BUDGET: Duration = Duration::from_secs(90);
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// The code of the answer, and its text.
async fn ask(
    url: &str,
    method: &str,
    path: &str,
    token: Option<&str>,
    body: &str,
) -> Result<(u16, String), Failure> {
    let address = url.trim_start_matches("http://");
    let mut socket = TcpStream::connect(address).await?;
    let token = token.map_or_else(String::new, |token| format!("Authorization: Bearer {token}\r\n"));
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\n{token}Content-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    socket.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).await?;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let code = answer.split(' ').nth(1).and_then(|code| code.parse().ok());
    Ok((code.ok_or_else(|| Failure::broken(format!("no answer: {answer:?}")))?, answer))
}

#[test]
fn the_list_watch_door_asks_the_users_of_the_store() {
    run_test("users at the door", BUDGET, async {
        let spec = ClusterSpec::new(Product::Meerkat, 1).with_flags(&["--bcrypt-cost=4"]).with_listwatch();
        let cluster = Cluster::start(&spec).await?;
        let member = &cluster.endpoints()[0];
        let url = cluster.members()[0].listwatch_url();
        let nobody = Client::nobody(member);
        for user in ["root", "viewer", "editor", "bare", "writer"] {
            add_user(&nobody, user).await?;
        }
        grant_role(&nobody, "root", "root").await?;
        let (first, end) = ("/registry/configmaps/default/", "/registry/configmaps/default0");
        add_role(&nobody, "view", 0, first, end).await?;
        add_role(&nobody, "edit", 2, first, end).await?;
        add_role(&nobody, "write", 1, first, end).await?;
        grant_role(&nobody, "viewer", "view").await?;
        grant_role(&nobody, "editor", "edit").await?;
        grant_role(&nobody, "writer", "write").await?;
        let open = ask(&url, "GET", MAPS, None, "").await?;
        enable(&nobody).await?;
        let mut tokens = Vec::new();
        for user in ["root", "viewer", "editor", "bare", "writer"] {
            tokens.push(nobody.token_for(user, user).await.map_err(failed("login"))?);
        }
        let [root, viewer, editor, bare, writer] = [0, 1, 2, 3, 4].map(|at| Some(tokens[at].as_str()));
        let map = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}"#;
        let watch = format!("{MAPS}?watch=true&timeoutSeconds=1");
        let table = [
            ("nobody lists", "GET", MAPS, None, 403),
            ("a stranger lists", "GET", MAPS, Some("abcdefghijklmnop.2"), 401),
            ("bare lists", "GET", MAPS, bare, 403),
            ("viewer lists", "GET", MAPS, viewer, 200),
            ("viewer watches", "GET", watch.as_str(), viewer, 200),
            ("bare watches", "GET", watch.as_str(), bare, 403),
            ("viewer lists all namespaces", "GET", "/api/v1/configmaps", viewer, 403),
            ("viewer creates", "POST", MAPS, viewer, 403),
            ("editor creates", "POST", MAPS, editor, 201),
            ("viewer gets", "GET", "/api/v1/namespaces/default/configmaps/a", viewer, 200),
            // The answers to these are the object.
            ("writer patches", "PATCH", "/api/v1/namespaces/default/configmaps/a", writer, 403),
            ("writer deletes", "DELETE", "/api/v1/namespaces/default/configmaps/a", writer, 403),
            ("writer creates what there is", "POST", MAPS, writer, 409),
            ("editor deletes", "DELETE", "/api/v1/namespaces/default/configmaps/a", editor, 200),
            ("writer creates", "POST", MAPS, writer, 201),
            ("editor lists secrets", "GET", "/api/v1/namespaces/default/secrets", editor, 403),
            ("root lists secrets", "GET", "/api/v1/namespaces/default/secrets", root, 200),
            ("nobody asks whether it lives", "GET", "/livez", None, 200),
        ];
        let mut wrong = Vec::new();
        if open.0 != 200 {
            wrong.push(format!("before authentication: {open:?}"));
        }
        for (row, method, path, token, expected) in table {
            let body = if method == "POST" { map } else { "" };
            let (code, text) = ask(&url, method, path, token, body).await?;
            if code != expected {
                wrong.push(format!("{row}: expected {expected}, found {code}: {text}"));
            } else if 400 <= code && !text.contains("\"kind\":\"Status\"") {
                wrong.push(format!("{row}: no Status: {text}"));
            }
        }
        Failure::from_findings("the door lets in who may", wrong)?;
        cluster.finish()
    });
}

/// A POST whose head was let in, and whose body is still to be sent.
struct Begun(TcpStream);

impl Begun {
    /// The door asks for the body once it has judged the head.
    async fn create(url: &str, token: &str, body: &str) -> Result<Begun, Failure> {
        let address = url.trim_start_matches("http://");
        let mut socket = TcpStream::connect(address).await?;
        let head = format!(
            "POST {MAPS} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n",
            body.len()
        );
        socket.write_all(head.as_bytes()).await?;
        let mut said = [0; 12];
        socket.read_exact(&mut said).await?;
        if &said == b"HTTP/1.1 100" {
            return Ok(Begun(socket));
        }
        Err(Failure::broken(format!("it was not let in: {:?}", String::from_utf8_lossy(&said))))
    }

    /// The answer, without the line that asked for the body.
    async fn finish(mut self, body: &str) -> Result<String, Failure> {
        self.0.write_all(body.as_bytes()).await?;
        let mut answer = Vec::new();
        self.0.read_to_end(&mut answer).await?;
        let answer = String::from_utf8_lossy(&answer).into_owned();
        Ok(answer.split_once("\r\n\r\n").map_or(answer.clone(), |(_, rest)| rest.to_owned()))
    }
}

#[test]
fn what_is_taken_from_a_user_while_a_write_is_on_its_way_holds_for_the_write() {
    run_test("a role taken on the way", BUDGET, async {
        let spec = ClusterSpec::new(Product::Meerkat, 1).with_flags(&["--bcrypt-cost=4"]).with_listwatch();
        let cluster = Cluster::start(&spec).await?;
        let member = &cluster.endpoints()[0];
        let url = cluster.members()[0].listwatch_url();
        let nobody = Client::nobody(member);
        for user in ["root", "writer", "other"] {
            add_user(&nobody, user).await?;
        }
        grant_role(&nobody, "root", "root").await?;
        add_role(&nobody, "write", 1, "/registry/configmaps/default/", "/registry/configmaps/default0")
            .await?;
        grant_role(&nobody, "writer", "write").await?;
        enable(&nobody).await?;
        let root = Client::login(member, "root").await?;
        let token = nobody.token_for("writer", "writer").await.map_err(failed("login"))?;
        let map = |name: &str| {
            format!(r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}"}}}}"#)
        };
        // What changes for somebody else is not heard of.
        let begun = Begun::create(&url, &token, &map("a")).await?;
        grant_role(&root, "other", "write").await?;
        let kept = begun.finish(&map("a")).await?;
        // Nor is what one gets back in time.
        let begun = Begun::create(&url, &token, &map("b")).await?;
        revoke_role(&root, "writer", "write").await?;
        grant_role(&root, "writer", "write").await?;
        let back = begun.finish(&map("b")).await?;
        let begun = Begun::create(&url, &token, &map("c")).await?;
        revoke_role(&root, "writer", "write").await?;
        let taken = begun.finish(&map("c")).await?;
        grant_role(&root, "writer", "write").await?;
        // Another of the same name, who has not this token.
        let begun = Begun::create(&url, &token, &map("d")).await?;
        let gone = pb::AuthUserDeleteRequest { name: "writer".to_owned() };
        root.auth().user_delete(root.request(gone)).await.map_err(failed("delete a user"))?;
        add_user(&root, "writer").await?;
        grant_role(&root, "writer", "write").await?;
        let replaced = begun.finish(&map("d")).await?;
        let mut wrong = Vec::new();
        for (row, answer, code) in [
            ("others", kept, "201"),
            ("back in time", back, "201"),
            ("taken", taken, "403"),
            ("replaced", replaced, "401"),
        ] {
            let is_status = code == "201" || answer.contains("\"kind\":\"Status\"");
            if !answer.starts_with(&format!("HTTP/1.1 {code}")) || !is_status {
                wrong.push(format!("{row}: expected {code}, found {answer}"));
            }
        }
        let message = range("/registry/configmaps/default/", "/registry/configmaps/default0", false);
        let found = root.kv().range(root.request(message)).await.map_err(failed("range"))?.into_inner();
        if found.count != 2 {
            wrong.push(format!("{} of 2 are there", found.count));
        }
        Failure::from_findings("a write is done by the rules of when it is done", wrong)?;
        cluster.finish()
    });
}

#[test]
fn only_administrators_ask_what_others_may() {
    run_test("reviews at the door", BUDGET, async {
        let spec = ClusterSpec::new(Product::Meerkat, 1).with_flags(&["--bcrypt-cost=4"]).with_listwatch();
        let cluster = Cluster::start(&spec).await?;
        let member = &cluster.endpoints()[0];
        let url = cluster.members()[0].listwatch_url();
        let nobody = Client::nobody(member);
        for user in ["root", "deputy", "bare"] {
            add_user(&nobody, user).await?;
        }
        grant_role(&nobody, "root", "root").await?;
        grant_role(&nobody, "deputy", "root").await?;
        let api = "/apis/authorization.k8s.io/v1";
        let others = format!("{api}/subjectaccessreviews");
        let local = format!("{api}/namespaces/default/localsubjectaccessreviews");
        let own = format!("{api}/selfsubjectaccessreviews");
        let rules = format!("{api}/selfsubjectrulesreviews");
        let me = "/apis/authentication.k8s.io/v1/selfsubjectreviews".to_owned();
        let about = |resource: &str, group: &str| {
            format!(
                r#"{{"spec":{{"user":"bare","namespace":"default","resourceAttributes":{{"verb":"create","group":"{group}","resource":"{resource}","namespace":"default"}}}}}}"#
            )
        };
        let (maps, reviews) =
            (about("configmaps", ""), about("subjectaccessreviews", "authorization.k8s.io"));
        let open = ask(&url, "POST", &others, None, &maps).await?;
        enable(&nobody).await?;
        let mut tokens = Vec::new();
        for user in ["root", "deputy", "bare"] {
            tokens.push(nobody.token_for(user, user).await.map_err(failed("login"))?);
        }
        let [root, deputy, bare] = [0, 1, 2].map(|at| Some(tokens[at].as_str()));
        let (yes, no) = ("\"allowed\":true", "\"allowed\":false");
        let table = [
            ("root asks about others", &others, root, &maps, 201, no),
            ("who has root's role asks about others", &others, deputy, &maps, 201, no),
            ("root asks in a namespace", &local, root, &maps, 201, no),
            ("bare asks about others", &others, bare, &maps, 403, "\"reason\":\"Forbidden\""),
            ("bare asks in a namespace", &local, bare, &maps, 403, "\"reason\":\"Forbidden\""),
            ("nobody asks about others", &others, None, &maps, 403, "\"reason\":\"Forbidden\""),
            ("bare asks about itself", &own, bare, &maps, 201, no),
            ("bare asks whether it may ask", &own, bare, &reviews, 201, no),
            ("deputy asks whether it may ask", &own, deputy, &reviews, 201, yes),
            ("bare asks for its rules", &rules, bare, &maps, 201, "resourceRules"),
            ("bare asks who it is", &me, bare, &maps, 201, "\"username\":\"bare\""),
        ];
        let mut wrong = Vec::new();
        if open.0 != 201 {
            wrong.push(format!("before authentication: {open:?}"));
        }
        for (row, path, token, body, code, part) in table {
            let (found, text) = ask(&url, "POST", path, token, body).await?;
            if found != code || !text.contains(part) {
                wrong.push(format!("{row}: expected {code} with {part}, found {found}: {text}"));
            }
        }
        Failure::from_findings("what others may is told to administrators", wrong)?;
        cluster.finish()
    });
}
