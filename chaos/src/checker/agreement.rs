//! Members that stopped at the same place hold the same bytes.

use std::fmt::Debug;

/// What one member says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// Which member.
    pub member: String,
    /// Hash of the stored revisions, at one revision that all were asked for.
    pub hash: u32,
    /// The revision below which history is gone.
    pub compacted: i64,
    /// The rolling digest and the log index it covers; none for products that keep none.
    pub digest: Option<(u64, Vec<u8>)>,
}

/// In what the members differ.
pub fn check(views: &[View]) -> Vec<String> {
    let mut findings = Vec::new();
    findings.extend(differing(views, "HashKV", |view| view.hash));
    findings.extend(differing(views, "the compacted revision", |view| view.compacted));
    findings.extend(differing(views, "the state digest", |view| view.digest.clone()));
    findings
}

fn differing<T: PartialEq + Debug>(views: &[View], what: &str, part: impl Fn(&View) -> T) -> Option<String> {
    let (first, others) = views.split_first()?;
    let expected = part(first);
    if others.iter().all(|other| part(other) == expected) {
        return None;
    }
    let each: Vec<String> = views.iter().map(|view| format!("{} {:?}", view.member, part(view))).collect();
    Some(format!("members differ in {what}: {}", each.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(member: &str, hash: u32, compacted: i64, digest: u8) -> View {
        View { member: member.into(), hash, compacted, digest: Some((40, vec![digest])) }
    }

    #[test]
    fn equal_members_agree() {
        assert!(check(&[view("a", 1, 2, 3), view("b", 1, 2, 3), view("c", 1, 2, 3)]).is_empty());
    }

    #[test]
    fn another_hash_bound_or_digest_is_found() {
        for other in [view("b", 9, 2, 3), view("b", 1, 9, 3), view("b", 1, 2, 9)] {
            assert_eq!(check(&[view("a", 1, 2, 3), other]).len(), 1);
        }
    }

    #[test]
    fn a_digest_at_another_log_index_is_found() {
        let mut late = view("b", 1, 2, 3);
        late.digest = Some((41, vec![3]));
        assert_eq!(check(&[view("a", 1, 2, 3), late]).len(), 1);
    }
}
