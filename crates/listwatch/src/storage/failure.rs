//! What a client is told when the store fails.

use meerkat_kubernetes::status::{Reason, Refusal};
use meerkat_watchcache::store::StoreError;

/// Of a write, or of a read of what is now.
pub(super) fn refusal(error: StoreError) -> Refusal {
    let message = error.to_string();
    match error {
        StoreError::Compacted { .. } => Refusal::expired(message),
        StoreError::Future { asked } => Refusal::too_large_resource_version(asked, 0),
        StoreError::TooLarge => Refusal::new(Reason::RequestEntityTooLarge, message),
        StoreError::NoSpace => Refusal::new(Reason::InsufficientStorage, message),
        StoreError::Forbidden(_) => Refusal::new(Reason::Forbidden, message),
        StoreError::Unavailable(_)
        | StoreError::CutOff(_)
        | StoreError::OtherHistory
        | StoreError::OtherRules => {
            let mut refusal = Refusal::new(Reason::ServiceUnavailable, message);
            refusal.retry_after_s = Some(1);
            refusal
        }
        // Clients repeat by themselves what they are told to repeat, so nothing is said of when.
        StoreError::Unknown(_) => Refusal::new(Reason::Timeout, message),
    }
}

/// A value that is no object: somebody else put it there.
pub(super) fn undecodable(key: &str, why: &str) -> Refusal {
    Refusal::new(Reason::InternalError, format!("what is stored at {key:?} cannot be read: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_surely_not_done_may_be_repeated() {
        let answer = |error| {
            let refusal = refusal(error);
            (refusal.code(), refusal.retry_after_s)
        };
        assert_eq!(answer(StoreError::Unavailable(String::new())), (503, Some(1)));
        assert_eq!(answer(StoreError::CutOff(String::new())), (503, Some(1)));
        assert_eq!(answer(StoreError::OtherHistory), (503, Some(1)));
        assert_eq!(answer(StoreError::Unknown(String::new())), (504, None));
        assert_eq!(answer(StoreError::TooLarge), (413, None));
        assert_eq!(answer(StoreError::NoSpace), (507, None));
        assert_eq!(answer(StoreError::Compacted { oldest: 3 }), (410, None));
        assert_eq!(answer(StoreError::Future { asked: 3 }), (504, Some(1)));
    }
}
