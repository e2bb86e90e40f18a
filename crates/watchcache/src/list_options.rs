//! The parameters of a read: get, list and watch.
//!
//! They are checked here, once, and in the order in which clients have come to know it: what cannot be
//! read is a bad request, what can be read but does not go together is invalid, and only then are the
//! version and the continue token looked at. What passes can always be planned.

use crate::continue_token::ContinueToken;
use crate::resource_version::ResourceVersion;
use crate::selector::{FieldSelector, LabelSelector};
use meerkat_kubernetes::excerpt::excerpt;
use meerkat_kubernetes::query::Query;
use meerkat_kubernetes::status::{Cause, Refusal};
use serde_json::json;
use std::num::NonZeroU64;
use std::time::Duration;

/// The group of everything that is an option of a request.
pub const OPTIONS_GROUP: &str = "meta.k8s.io";

const EXACT: &str = "Exact";
const NOT_OLDER_THAN: &str = "NotOlderThan";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GetOptions {
    pub version: ResourceVersion,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListOptions {
    pub labels: LabelSelector,
    pub fields: FieldSelector,
    pub version: ResourceVersion,
    pub version_match: Option<VersionMatch>,
    pub limit: Option<NonZeroU64>,
    pub resume: Option<ContinueToken>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersionMatch {
    Exact,
    NotOlderThan,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WatchOptions {
    pub labels: LabelSelector,
    pub fields: FieldSelector,
    pub version: ResourceVersion,
    /// None if the client said neither yes nor no.
    pub initial_events: Option<bool>,
    pub bookmarks: bool,
    /// None if the server is to choose.
    pub lifetime: Option<Duration>,
}

impl GetOptions {
    pub fn from_query(query: &Query) -> Result<GetOptions, Refusal> {
        ResourceVersion::parse(query.text("resourceVersion")).map(|version| GetOptions { version })
    }
}

impl ListOptions {
    /// Of a list, and of a delete of a collection.
    pub fn from_query(query: &Query) -> Result<ListOptions, Refusal> {
        let (labels, fields) = selectors(query)?;
        // Clients that want no limit say zero, and some less than that.
        let limit = query.integer("limit")?.and_then(|limit| u64::try_from(limit).ok());
        check_together(list_causes(query))?;
        let version = ResourceVersion::parse(query.text("resourceVersion"))?;
        let resume = match query.text("continue") {
            "" => None,
            token => Some(ContinueToken::decode(token)?),
        };
        if resume.is_some() && matches!(version, ResourceVersion::At(_)) {
            return Err(Refusal::bad_request("a list that is continued takes no resourceVersion"));
        }
        let version_match = match query.text("resourceVersionMatch") {
            EXACT => Some(VersionMatch::Exact),
            NOT_OLDER_THAN => Some(VersionMatch::NotOlderThan),
            _ => None,
        };
        Ok(ListOptions {
            labels,
            fields,
            version,
            version_match,
            limit: limit.and_then(NonZeroU64::new),
            resume,
        })
    }

    /// Whether the answer may say how many objects remain: with a selector nobody has counted them.
    pub fn may_count_remaining(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }
}

impl WatchOptions {
    pub fn from_query(query: &Query) -> Result<WatchOptions, Refusal> {
        let (labels, fields) = selectors(query)?;
        let lifetime = match query.integer("timeoutSeconds")? {
            None | Some(0) => None,
            Some(seconds) => match u64::try_from(seconds) {
                Ok(seconds) => Some(Duration::from_secs(seconds)),
                Err(_) => return Err(Refusal::bad_request("timeoutSeconds is below zero")),
            },
        };
        check_together(watch_causes(query))?;
        Ok(WatchOptions {
            labels,
            fields,
            version: ResourceVersion::parse(query.text("resourceVersion"))?,
            initial_events: query.flag("sendInitialEvents"),
            bookmarks: query.flag("allowWatchBookmarks").unwrap_or(false),
            lifetime,
        })
    }
}

/// The name of the one object that a list or a watch is about, or None if it may be any.
///
/// `path_name`: the one in the path, which only a watch of the old form has.
pub fn only_name<'a>(
    path_name: Option<&'a str>,
    fields: &'a FieldSelector,
) -> Result<Option<&'a str>, Refusal> {
    match (path_name, fields.only_name()) {
        (Some(path), Some(selected)) if path != selected => {
            Err(Refusal::bad_request("fieldSelector metadata.name does not agree with the name in the path"))
        }
        (path, selected) => Ok(path.or(selected)),
    }
}

fn selectors(query: &Query) -> Result<(LabelSelector, FieldSelector), Refusal> {
    let labels =
        LabelSelector::parse(query.text("labelSelector")).map_err(|error| error.refusal("labelSelector"))?;
    let fields =
        FieldSelector::parse(query.text("fieldSelector")).map_err(|error| error.refusal("fieldSelector"))?;
    Ok((labels, fields))
}

fn check_together(causes: Vec<Cause>) -> Result<(), Refusal> {
    if causes.is_empty() {
        return Ok(());
    }
    Err(Refusal::invalid(OPTIONS_GROUP, "ListOptions", "", causes))
}

fn list_causes(query: &Query) -> Vec<Cause> {
    let (field, asked) = ("resourceVersionMatch", query.text("resourceVersionMatch"));
    let version = query.text("resourceVersion");
    let mut causes = Vec::new();
    if !asked.is_empty() {
        if version.is_empty() {
            causes.push(Cause::forbidden(field, "it needs a resourceVersion"));
        }
        if !query.text("continue").is_empty() {
            causes.push(Cause::forbidden(field, "it does not go with continue"));
        }
        if asked != EXACT && asked != NOT_OLDER_THAN {
            causes.push(Cause::not_supported(field, &json!(excerpt(asked)), &[EXACT, NOT_OLDER_THAN, ""]));
        }
        if asked == EXACT && version == "0" {
            causes.push(Cause::forbidden(field, "\"Exact\" does not go with resourceVersion \"0\""));
        }
    }
    if query.flag("sendInitialEvents").is_some() {
        causes.push(Cause::forbidden("sendInitialEvents", "it is for watches only"));
    }
    causes
}

fn watch_causes(query: &Query) -> Vec<Cause> {
    let (field, asked) = ("resourceVersionMatch", query.text("resourceVersionMatch"));
    let initial_events = query.flag("sendInitialEvents").is_some();
    let mut causes = Vec::new();
    if initial_events && asked != NOT_OLDER_THAN {
        causes.push(Cause::forbidden(field, "sendInitialEvents needs it to be NotOlderThan"));
    }
    if !asked.is_empty() {
        if !initial_events {
            causes.push(Cause::forbidden(field, "for a watch it needs sendInitialEvents"));
        }
        if asked != NOT_OLDER_THAN {
            causes.push(Cause::not_supported(field, &json!(excerpt(asked)), &[NOT_OLDER_THAN]));
        }
        if !query.text("continue").is_empty() {
            causes.push(Cause::forbidden(field, "it does not go with continue"));
        }
    }
    causes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::continue_token::ContinueAt;

    fn query(raw: &str) -> Query {
        Query::parse(raw).expect("a query")
    }

    fn list(raw: &str) -> Result<ListOptions, Refusal> {
        ListOptions::from_query(&query(raw))
    }

    fn watch(raw: &str) -> Result<WatchOptions, Refusal> {
        WatchOptions::from_query(&query(raw))
    }

    fn code<T>(answer: Result<T, Refusal>) -> u16 {
        answer.map_or_else(|refusal| refusal.code(), |_| 200)
    }

    #[test]
    fn what_a_list_asks_for_is_read() {
        let token = ContinueToken::after("a", ContinueAt::Exact(9));
        let raw = format!(
            "labelSelector=a%3Db&fieldSelector=metadata.name%3Dx&limit=500&continue={}&unknown=1",
            token.encode()
        );
        let options = list(&raw).expect("valid");
        assert_eq!(options.labels.to_string(), "a=b");
        assert_eq!(options.fields.to_string(), "metadata.name=x");
        assert_eq!(options.limit, NonZeroU64::new(500));
        assert_eq!(options.resume, Some(token));
        let options = list("resourceVersion=7&resourceVersionMatch=Exact").expect("valid");
        assert_eq!(options.version, ResourceVersion::At(7));
        assert_eq!(options.version_match, Some(VersionMatch::Exact));
    }

    #[test]
    fn what_remains_is_counted_without_selectors_only() {
        assert!(list("limit=1").expect("valid").may_count_remaining());
        assert!(!list("limit=1&labelSelector=a").expect("valid").may_count_remaining());
        assert!(!list("limit=1&fieldSelector=a%3D1").expect("valid").may_count_remaining());
    }

    #[test]
    fn a_limit_of_nothing_is_none() {
        for raw in ["", "limit=0", "limit=-5"] {
            assert_eq!(list(raw).expect("valid").limit, None, "{raw}");
        }
    }

    #[test]
    fn each_rule_of_a_list_has_its_code() {
        let token = ContinueToken::after("a", ContinueAt::Exact(9)).encode();
        let with_token = |raw: &str| format!("continue={token}{raw}");
        for (raw, expected) in [
            ("resourceVersion=", 200),
            ("resourceVersion=0&resourceVersionMatch=NotOlderThan", 200),
            ("resourceVersion=5&resourceVersionMatch=NotOlderThan&limit=1", 200),
            ("resourceVersion=5&resourceVersionMatch=", 200),
            ("continue=", 200),
            (&with_token(""), 200),
            (&with_token("&resourceVersion=0"), 200),
            (&with_token("&resourceVersion=5"), 400),
            (&with_token("&resourceVersion=5&resourceVersionMatch=Exact"), 422),
            ("continue=nonsense", 400),
            ("resourceVersion=abc", 400),
            ("resourceVersion=abc&resourceVersionMatch=Exact", 400),
            ("resourceVersion=abc&resourceVersionMatch=Nonsense", 422),
            ("resourceVersionMatch=Exact", 422),
            ("resourceVersionMatch=NotOlderThan", 422),
            ("resourceVersion=0&resourceVersionMatch=Exact", 422),
            ("resourceVersion=5&resourceVersionMatch=exact", 422),
            ("sendInitialEvents=true", 422),
            ("sendInitialEvents=false", 422),
            ("limit=x", 400),
            ("limit=x&resourceVersionMatch=Exact", 400),
            ("labelSelector=%3D", 400),
            ("fieldSelector=a", 400),
            ("timeoutSeconds=-1", 200),
        ] {
            assert_eq!(code(list(raw)), expected, "{raw}");
        }
    }

    #[test]
    fn each_rule_of_a_watch_has_its_code() {
        for (raw, expected) in [
            ("", 200),
            ("resourceVersion=5", 200),
            ("sendInitialEvents=true&resourceVersionMatch=NotOlderThan", 200),
            ("sendInitialEvents=false&resourceVersionMatch=NotOlderThan&resourceVersion=5", 200),
            ("sendInitialEvents=true", 422),
            ("sendInitialEvents=false", 422),
            ("sendInitialEvents=true&resourceVersionMatch=Exact", 422),
            ("sendInitialEvents=true&resourceVersionMatch=NotOlderThan&continue=x", 422),
            ("resourceVersionMatch=NotOlderThan&resourceVersion=5", 422),
            ("resourceVersionMatch=Exact&resourceVersion=5", 422),
            ("resourceVersion=abc", 400),
            ("timeoutSeconds=x", 400),
            ("timeoutSeconds=-1", 400),
            ("labelSelector=%3D", 400),
        ] {
            assert_eq!(code(watch(raw)), expected, "{raw}");
        }
    }

    #[test]
    fn what_is_invalid_names_the_options_and_every_cause() {
        let refusal = list("resourceVersionMatch=Nonsense&sendInitialEvents=1").expect_err("invalid");
        assert_eq!((refusal.kind.as_str(), refusal.group.as_str()), ("ListOptions", "meta.k8s.io"));
        let fields: Vec<&str> = refusal.causes.iter().map(|cause| cause.field.as_str()).collect();
        assert_eq!(fields, ["resourceVersionMatch", "resourceVersionMatch", "sendInitialEvents"]);
        let refusal = watch("resourceVersionMatch=Exact").expect_err("invalid");
        assert_eq!((refusal.kind.as_str(), refusal.causes.len()), ("ListOptions", 2));
    }

    #[test]
    fn what_a_watch_asks_for_is_read() {
        let raw = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan\
                   &allowWatchBookmarks=true&resourceVersion=&timeoutSeconds=290";
        let options = watch(raw).expect("valid");
        assert_eq!((options.initial_events, options.bookmarks), (Some(true), true));
        assert_eq!(options.lifetime, Some(Duration::from_secs(290)));
        assert_eq!(watch("timeoutSeconds=0"), Ok(WatchOptions::default()));
    }

    #[test]
    fn a_get_has_a_version() {
        assert_eq!(
            GetOptions::from_query(&query("resourceVersion=3")).expect("valid").version,
            ResourceVersion::At(3)
        );
        assert_eq!(code(GetOptions::from_query(&query("resourceVersion=x"))), 400);
    }

    #[test]
    fn the_path_and_the_selector_must_agree_on_the_name() {
        let fields = |text: &str| FieldSelector::parse(text).expect("a selector");
        let (named, any) = (fields("metadata.name=a"), fields("spec.x=a"));
        assert_eq!(only_name(None, &named), Ok(Some("a")));
        assert_eq!(only_name(Some("a"), &named), Ok(Some("a")));
        assert_eq!(only_name(Some("a"), &any), Ok(Some("a")));
        assert_eq!(only_name(None, &any), Ok(None));
        assert_eq!(code(only_name(Some("b"), &named)), 400);
    }
}
