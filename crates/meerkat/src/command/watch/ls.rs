//! `watch ls`: who watches what at each endpoint, and how far behind they are.

use futures::future::join_all;
use meerkat_proto::pb::admin;

use crate::command::cluster::{Cluster, describe, is_unknown_request};
use crate::failure::Failure;
use crate::print::{self, Answer, EndpointWatchers, Format, Style};

pub async fn run(cluster: &Cluster, style: Style) -> Result<(), Failure> {
    if style.format == Format::Protobuf {
        return Err(Failure::bad_feature("protobuf not supported as output format"));
    }
    let endpoints = cluster.endpoints();
    let answers = join_all(endpoints.iter().map(|endpoint| async move {
        let one = cluster.at(vec![endpoint.clone()]);
        let listing = tokio::time::timeout(cluster.command_timeout(), list(&one, endpoint.to_string()));
        listing.await.unwrap_or_else(|_| Err("context deadline exceeded".to_owned()))
    }))
    .await;
    let mut lists = Vec::new();
    let mut failed = false;
    for (endpoint, answer) in endpoints.iter().zip(answers) {
        match answer {
            Ok(list) => lists.push(list),
            Err(reason) => {
                failed = true;
                let hint =
                    if is_unknown_request(&reason) { "; only Meerkat's members list them" } else { "" };
                eprintln!("Failed to get the watchers of endpoint {endpoint} ({reason}{hint})");
            }
        }
    }
    print::show(&Answer::Watchers(lists), style)?;
    if failed { Err(Failure::already_told()) } else { Ok(()) }
}

async fn list(one: &Cluster, endpoint: String) -> Result<EndpointWatchers, String> {
    let question = admin::ListWatchersRequest {};
    let mut pages = one.admin(|mut admin| async move { admin.list_watchers(question).await }).await?;
    let mut list = EndpointWatchers { endpoint, member_id: 0, revision: 0, watchers: Vec::new() };
    while let Some(page) = pages.message().await.map_err(|status| describe(&status))? {
        list.member_id = page.member_id;
        list.revision = page.revision;
        list.watchers.extend(page.watchers);
    }
    Ok(list)
}
