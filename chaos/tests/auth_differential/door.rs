//! The list-watch door of a member knows the users of its store.

use crate::client::{Client, add_role, add_user, enable, failed, grant_role};
use meerkat_chaos::Failure;
use meerkat_chaos::driver::{Cluster, ClusterSpec, Product};
use meerkat_chaos::scenario::run_test;
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
