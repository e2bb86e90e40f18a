//! Pins every code and text, as the numbers and letters that clients see.

use super::*;

/// Written out a second time on purpose: a change of the table has to be made here as well, by
/// somebody who knows that clients will notice.
const PINNED: &[(EtcdError, i32, &str)] = &[
    (EtcdError::EmptyKey, 3, "etcdserver: key is not provided"),
    (EtcdError::KeyNotFound, 3, "etcdserver: key not found"),
    (EtcdError::ValueProvided, 3, "etcdserver: value is provided"),
    (EtcdError::LeaseProvided, 3, "etcdserver: lease is provided"),
    (EtcdError::TooManyOps, 3, "etcdserver: too many operations in txn request"),
    (EtcdError::DuplicateKey, 3, "etcdserver: duplicate key given in txn request"),
    (EtcdError::InvalidClientApiVersion, 3, "etcdserver: invalid client api version"),
    (EtcdError::InvalidSortOption, 3, "etcdserver: invalid sort option"),
    (EtcdError::Compacted, 11, "etcdserver: mvcc: required revision has been compacted"),
    (EtcdError::FutureRev, 11, "etcdserver: mvcc: required revision is a future revision"),
    (EtcdError::NoSpace, 8, "etcdserver: mvcc: database space exceeded"),
    (EtcdError::LeaseNotFound, 5, "etcdserver: requested lease not found"),
    (EtcdError::LeaseExist, 9, "etcdserver: lease already exists"),
    (EtcdError::LeaseTtlTooLarge, 11, "etcdserver: too large lease TTL"),
    (EtcdError::WatchCanceled, 1, "etcdserver: watch canceled"),
    (EtcdError::MemberExist, 9, "etcdserver: member ID already exist"),
    (EtcdError::PeerUrlExist, 9, "etcdserver: Peer URLs already exists"),
    (
        EtcdError::MemberNotEnoughStarted,
        9,
        "etcdserver: re-configuration failed due to not enough started members",
    ),
    (EtcdError::MemberBadUrls, 3, "etcdserver: given member URLs are invalid"),
    (EtcdError::MemberNotFound, 5, "etcdserver: member not found"),
    (EtcdError::MemberNotLearner, 9, "etcdserver: can only promote a learner member"),
    (
        EtcdError::LearnerNotReady,
        9,
        "etcdserver: can only promote a learner member which is in sync with leader",
    ),
    (EtcdError::TooManyLearners, 9, "etcdserver: too many learner members in cluster"),
    (EtcdError::ClusterIdMismatch, 9, "etcdserver: cluster ID mismatch"),
    (EtcdError::RequestTooLarge, 3, "etcdserver: request is too large"),
    (EtcdError::TooManyRequests, 8, "etcdserver: too many requests"),
    (EtcdError::RootUserNotExist, 9, "etcdserver: root user does not exist"),
    (EtcdError::RootRoleNotExist, 9, "etcdserver: root user does not have root role"),
    (EtcdError::UserAlreadyExist, 9, "etcdserver: user name already exists"),
    (EtcdError::UserEmpty, 3, "etcdserver: user name is empty"),
    (EtcdError::UserNotFound, 9, "etcdserver: user name not found"),
    (EtcdError::RoleAlreadyExist, 9, "etcdserver: role name already exists"),
    (EtcdError::RoleNotFound, 9, "etcdserver: role name not found"),
    (EtcdError::RoleEmpty, 3, "etcdserver: role name is empty"),
    (EtcdError::AuthFailed, 3, "etcdserver: authentication failed, invalid user ID or password"),
    (EtcdError::PermissionNotGiven, 3, "etcdserver: permission not given"),
    (EtcdError::PermissionDenied, 7, "etcdserver: permission denied"),
    (EtcdError::RoleNotGranted, 9, "etcdserver: role is not granted to the user"),
    (EtcdError::PermissionNotGranted, 9, "etcdserver: permission is not granted to the role"),
    (EtcdError::AuthNotEnabled, 9, "etcdserver: authentication is not enabled"),
    (EtcdError::InvalidAuthToken, 16, "etcdserver: invalid auth token"),
    (EtcdError::InvalidAuthMgmt, 3, "etcdserver: invalid auth management"),
    (EtcdError::AuthOldRevision, 3, "etcdserver: revision of auth store is old"),
    (EtcdError::NoLeader, 14, "etcdserver: no leader"),
    (EtcdError::NotLeader, 9, "etcdserver: not leader"),
    (EtcdError::LeaderChanged, 14, "etcdserver: leader changed"),
    (EtcdError::NotCapable, 9, "etcdserver: not capable"),
    (EtcdError::Stopped, 14, "etcdserver: server stopped"),
    (EtcdError::Timeout, 14, "etcdserver: request timed out"),
    (
        EtcdError::TimeoutDueToLeaderFail,
        14,
        "etcdserver: request timed out, possibly due to previous leader failure",
    ),
    (
        EtcdError::TimeoutDueToConnectionLost,
        14,
        "etcdserver: request timed out, possibly due to connection lost",
    ),
    (
        EtcdError::TimeoutWaitAppliedIndex,
        14,
        "etcdserver: request timed out, waiting for the applied index took too long",
    ),
    (EtcdError::Unhealthy, 14, "etcdserver: unhealthy cluster"),
    (EtcdError::Corrupt, 15, "etcdserver: corrupt cluster"),
    (EtcdError::NotSupportedForLearner, 9, "etcdserver: rpc not supported for learner"),
    (EtcdError::BadLeaderTransferee, 9, "etcdserver: bad leader transferee"),
    (EtcdError::WrongDowngradeVersionFormat, 3, "etcdserver: wrong downgrade target version format"),
    (EtcdError::InvalidDowngradeTargetVersion, 3, "etcdserver: invalid downgrade target version"),
    (EtcdError::ClusterVersionUnavailable, 9, "etcdserver: cluster version not found during downgrade"),
    (EtcdError::DowngradeInProcess, 9, "etcdserver: cluster has a downgrade job in progress"),
    (EtcdError::NoInflightDowngrade, 9, "etcdserver: no inflight downgrade job"),
    (EtcdError::Canceled, 1, "etcdserver: request canceled"),
    (EtcdError::DeadlineExceeded, 4, "etcdserver: context deadline exceeded"),
    (EtcdError::ContextCanceled, 1, "context canceled"),
    (EtcdError::ContextDeadlineExceeded, 4, "context deadline exceeded"),
    (EtcdError::LeaderTransferTimeout, 2, "etcdserver: request timed out, leader transfer took too long"),
    (EtcdError::RequestCancelled, 2, "etcdserver: request cancelled"),
    (EtcdError::UnknownMethod, 2, "etcdserver: unknown method"),
    (EtcdError::NotPrimaryLessor, 2, "not a primary lessor"),
    (
        EtcdError::PasswordOfNoPasswordUser,
        2,
        "auth: authentication failed, password was given for no password user",
    ),
    (EtcdError::MutexSessionExpired, 2, "mutex: session is expired"),
    (EtcdError::ElectionSessionExpired, 2, "election: session is expired"),
    (EtcdError::ElectionNoLeader, 2, "election: no leader"),
    (EtcdError::ElectionNotLeader, 2, "election: not leader"),
    (EtcdError::ElectionLeaderMissing, 2, "\"leader\" field must be provided"),
];

#[test]
fn every_error_keeps_its_code_and_text() {
    for (error, code, text) in PINNED {
        assert_eq!((error.code() as i32, error.message()), (*code, *text), "{error:?}");
    }
}

#[test]
fn no_error_is_left_unpinned() {
    let pinned: Vec<EtcdError> = PINNED.iter().map(|(error, ..)| *error).collect();
    for error in EtcdError::ALL {
        assert!(pinned.contains(error), "{error:?} has no pinned text");
    }
    assert_eq!(pinned.len(), EtcdError::ALL.len());
}

#[test]
fn a_text_leads_back_to_its_error_and_to_no_other() {
    for error in EtcdError::ALL {
        assert_eq!(EtcdError::from_message(error.message()), Some(*error));
    }
}

#[test]
fn a_text_that_is_not_to_the_letter_is_nobodys() {
    for text in ["", "etcdserver: no leader ", "no leader", "etcdserver: No leader"] {
        assert_eq!(EtcdError::from_message(text), None, "{text:?}");
    }
}
