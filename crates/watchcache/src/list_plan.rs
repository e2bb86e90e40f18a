//! Which state a get or a list is answered from, and where in it the answer begins and ends.
//!
//! One table, in two functions. Nothing is read here and nothing can be refused any more: a plan is what
//! the options mean. The refusal that only reading can bring about, that a revision is gone, is made
//! here too, because what a client is told depends on how it came to ask for that revision.

use crate::continue_token::{ContinueAt, ContinueToken};
use crate::list_options::{GetOptions, ListOptions, VersionMatch};
use crate::resource_version::ResourceVersion;
use meerkat_kubernetes::status::Refusal;
use std::num::NonZeroU64;

/// The state to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadAt {
    /// Nothing that was answered before the request came may be missing.
    MostRecent,
    /// Whatever the cache holds.
    AnyCached,
    /// The cache, once it has reached this revision; the answer's version is the cache's.
    NotOlderThan(u64),
    /// This revision, and the answer says so. It may be gone, or not there yet.
    Exact(u64),
}

impl ReadAt {
    /// The revision to wait for. If it does not come in time the version is too large.
    pub fn awaited(self) -> Option<u64> {
        match self {
            ReadAt::NotOlderThan(revision) | ReadAt::Exact(revision) => Some(revision),
            ReadAt::MostRecent | ReadAt::AnyCached => None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListPlan {
    pub at: ReadAt,
    /// Where to go on. None begins at the first key of the list.
    pub resume: Option<ContinueToken>,
    /// None answers the whole list, without a token.
    pub limit: Option<NonZeroU64>,
}

pub fn plan_get(options: &GetOptions) -> ReadAt {
    match options.version {
        ResourceVersion::Unset => ReadAt::MostRecent,
        ResourceVersion::Any => ReadAt::AnyCached,
        ResourceVersion::At(revision) => ReadAt::NotOlderThan(revision),
    }
}

pub fn plan_list(options: &ListOptions) -> ListPlan {
    if let Some(token) = &options.resume {
        let at = match token.at {
            ContinueAt::Exact(revision) => ReadAt::Exact(revision),
            ContinueAt::Latest => ReadAt::MostRecent,
        };
        return ListPlan { at, resume: Some(token.clone()), limit: options.limit };
    }
    let at = match (options.version, options.version_match) {
        (ResourceVersion::Unset, _) => ReadAt::MostRecent,
        (ResourceVersion::Any, _) => ReadAt::AnyCached,
        (ResourceVersion::At(revision), Some(VersionMatch::Exact)) => ReadAt::Exact(revision),
        (ResourceVersion::At(revision), Some(VersionMatch::NotOlderThan)) => ReadAt::NotOlderThan(revision),
        // Before there was a match to choose, pages were pinned to the version and whole lists were not.
        (ResourceVersion::At(revision), None) if options.limit.is_some() => ReadAt::Exact(revision),
        (ResourceVersion::At(revision), None) => ReadAt::NotOlderThan(revision),
    };
    // A cache that may be older than the next page's cannot promise pages of one list.
    let limit = if at == ReadAt::AnyCached { None } else { options.limit };
    ListPlan { at, resume: None, limit }
}

impl ListPlan {
    /// The history before the revision is gone. A client that was in the middle of a list is offered to
    /// go on from there at the newest one.
    pub fn expired(&self) -> Refusal {
        match &self.resume {
            None => Refusal::expired("the resourceVersion of the list is too old"),
            Some(token) => {
                let mut refusal = Refusal::expired(
                    "the continue parameter is too old for a consistent list: list anew, or go on with the \
                     token of this answer and get the remainder as it is now",
                );
                refusal.continue_token = Some(token.at_latest().encode());
                refusal
            }
        }
    }

    /// The token for the page after one that ends with `last`, a key without the prefix of the list.
    /// `read_at` is the revision that the page was read from: pages stay with it from then on.
    pub fn next_token(last: &str, read_at: u64) -> ContinueToken {
        ContinueToken::after(last, ContinueAt::Exact(read_at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use meerkat_kubernetes::query::Query;

    fn plan(raw: &str) -> ListPlan {
        let query = Query::parse(raw).expect("a query");
        plan_list(&ListOptions::from_query(&query).expect("valid"))
    }

    fn check(raw: &str, at: ReadAt, limit: u64) {
        let expected = ListPlan { at, resume: None, limit: NonZeroU64::new(limit) };
        assert_eq!(plan(raw), expected, "{raw}");
    }

    #[test]
    fn without_a_match_and_without_a_limit() {
        check("", ReadAt::MostRecent, 0);
        check("resourceVersion=0", ReadAt::AnyCached, 0);
        check("resourceVersion=5", ReadAt::NotOlderThan(5), 0);
    }

    #[test]
    fn without_a_match_and_with_a_limit() {
        check("limit=2", ReadAt::MostRecent, 2);
        check("resourceVersion=0&limit=2", ReadAt::AnyCached, 0);
        check("resourceVersion=5&limit=2", ReadAt::Exact(5), 2);
    }

    #[test]
    fn with_a_match() {
        check("resourceVersion=0&resourceVersionMatch=NotOlderThan", ReadAt::AnyCached, 0);
        check("resourceVersion=0&resourceVersionMatch=NotOlderThan&limit=2", ReadAt::AnyCached, 0);
        check("resourceVersion=5&resourceVersionMatch=NotOlderThan", ReadAt::NotOlderThan(5), 0);
        check("resourceVersion=5&resourceVersionMatch=NotOlderThan&limit=2", ReadAt::NotOlderThan(5), 2);
        check("resourceVersion=5&resourceVersionMatch=Exact", ReadAt::Exact(5), 0);
        check("resourceVersion=5&resourceVersionMatch=Exact&limit=2", ReadAt::Exact(5), 2);
    }

    #[test]
    fn a_continued_list_stays_with_its_revision() {
        let token = ListPlan::next_token("a", 9);
        for more in ["", "&resourceVersion=0"] {
            let planned = plan(&format!("continue={}&limit=2{more}", token.encode()));
            assert_eq!(planned.at, ReadAt::Exact(9));
            assert_eq!(planned.resume.as_ref(), Some(&token));
            assert_eq!(planned.limit, NonZeroU64::new(2));
        }
        let planned = plan(&format!("continue={}", token.at_latest().encode()));
        assert_eq!((planned.at, planned.limit), (ReadAt::MostRecent, None));
    }

    #[test]
    fn a_list_that_lost_its_revision_can_go_on_at_the_newest() {
        let token = ListPlan::next_token("a/b", 9);
        let refusal = plan(&format!("continue={}", token.encode())).expired();
        assert_eq!(refusal.code(), 410);
        let fresh = refusal.continue_token.expect("a fresh token");
        assert_eq!(ContinueToken::decode(&fresh), Ok(ContinueToken::after("a/b", ContinueAt::Latest)));
        let refusal = plan("resourceVersion=5&resourceVersionMatch=Exact").expired();
        assert_eq!((refusal.code(), refusal.continue_token), (410, None));
    }

    #[test]
    fn a_get_waits_for_a_version_but_never_wants_an_old_one() {
        let plan = |version| plan_get(&GetOptions { version });
        assert_eq!(plan(ResourceVersion::Unset), ReadAt::MostRecent);
        assert_eq!(plan(ResourceVersion::Any), ReadAt::AnyCached);
        assert_eq!(plan(ResourceVersion::At(5)), ReadAt::NotOlderThan(5));
    }

    #[test]
    fn only_a_named_revision_is_waited_for() {
        assert_eq!(ReadAt::NotOlderThan(5).awaited(), Some(5));
        assert_eq!(ReadAt::Exact(5).awaited(), Some(5));
        assert_eq!(ReadAt::MostRecent.awaited(), None);
        assert_eq!(ReadAt::AnyCached.awaited(), None);
    }
}
