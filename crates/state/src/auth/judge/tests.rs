//! Who may do what, row by row.

use super::*;
use meerkat_types::{
    AuthRevision, Compact, Compare, CompareOperator, CompareTarget, Consistency, GrantLease, Key, LeaseTtl,
    LogIndex, NewValue, Password, Permission, PermissionKind, RangeQuery, Revision, RevisionBounds, RoleName,
    Sort, UserName,
};
use std::convert::Infallible;

fn key(text: &'static str) -> Key {
    Key::new(Bytes::from_static(text.as_bytes())).expect("not empty")
}

fn lease(id: i64) -> LeaseId {
    LeaseId::from_wire(id).expect("not zero")
}

/// `reader` reads `r/`, `writer` writes `w/`, `both` does both in `b/`, `root` is root, `bare` nothing.
fn book() -> AuthBook {
    let mut book = AuthBook::default();
    let mut index = LogIndex(0);
    let mut change = |command: AuthCommand| {
        index = index.next();
        book.change(&command, index).expect("changes");
    };
    let (user, role) = (|name| UserName::new(name), |name| RoleName::new(name));
    for name in ["root", "reader", "writer", "both", "bare"] {
        let password = Password::Hash(Bytes::from_static(b"hash"));
        change(AuthCommand::AddUser { user: user(name), password });
    }
    let roles = [
        ("reader", PermissionKind::Read, "r/"),
        ("writer", PermissionKind::Write, "w/"),
        ("both", PermissionKind::ReadWrite, "b/"),
    ];
    for (name, kind, prefix) in roles {
        change(AuthCommand::AddRole { role: role(name) });
        let keys = KeyRange::prefix(prefix.as_bytes());
        change(AuthCommand::GrantPermission { role: role(name), permission: Permission { kind, keys } });
        change(AuthCommand::GrantRole { user: user(name), role: role(name) });
    }
    change(AuthCommand::GrantRole { user: user("root"), role: role("root") });
    change(AuthCommand::Enable);
    book
}

fn put(text: &'static str, lease: Option<LeaseId>, want_previous: bool) -> Put {
    let value = NewValue::Set(Bytes::new());
    Put { key: key(text), value, lease: NewLease::Set(lease), want_previous }
}

fn delete(prefix: &str, want_previous: bool) -> DeleteRange {
    DeleteRange { keys: KeyRange::prefix(prefix.as_bytes()), want_previous }
}

fn range(prefix: &str) -> RangeQuery {
    RangeQuery {
        keys: KeyRange::prefix(prefix.as_bytes()),
        at: None,
        limit: None,
        sort: Sort::BY_KEY,
        consistency: Consistency::Linearizable,
        keys_only: false,
        count_only: false,
        bounds: RevisionBounds::default(),
    }
}

fn txn(compare: Option<&'static str>, success: Vec<TxnOp>, failure: Vec<TxnOp>) -> Txn {
    let compare = compare.map(|text| Compare {
        keys: KeyRange::One(key(text)),
        target: CompareTarget::Version(0),
        operator: CompareOperator::Equal,
    });
    Txn { compares: compare.into_iter().collect(), success, failure }
}

/// Lease 1 has a key that `writer` may write, lease 2 also one that it may not.
fn attached(id: LeaseId) -> Result<Vec<Bytes>, Infallible> {
    Ok(match id.get() {
        1 => vec![Bytes::from_static(b"w/1")],
        2 => vec![Bytes::from_static(b"w/1"), Bytes::from_static(b"x")],
        _ => Vec::new(),
    })
}

fn judged(book: &AuthBook, user: &str, command: &Command) -> Result<(), AuthRefusal> {
    let asker = Asker { user: UserName::new(user), revision: book.revision(), way: Way::Direct };
    let Ok(judged) = book.judge(&asker, needs(command), attached);
    judged
}

#[test]
fn every_command_needs_what_the_contract_says() {
    let book = book();
    let yes: Result<(), AuthRefusal> = Ok(());
    let no = Err(AuthRefusal::PermissionDenied);
    let put_in = |op: Put| TxnOp::Put(op);
    let in_txn = |op: TxnOp| Command::Txn(txn(None, vec![], vec![op]));
    let nested = |op: TxnOp| in_txn(TxnOp::Txn(txn(None, vec![op], vec![])));
    let grant = GrantLease { id: lease(9), ttl: LeaseTtl::from_seconds(5).expect("in range") };
    let table = [
        ("writer", Command::Put(put("w/1", None, false)), yes),
        ("writer", Command::Put(put("x", None, false)), no),
        ("reader", Command::Put(put("r/1", None, false)), no),
        ("root", Command::Put(put("x", None, true)), yes),
        ("bare", Command::Put(put("w/1", None, false)), no),
        // The previous value is read.
        ("writer", Command::Put(put("w/1", None, true)), no),
        ("both", Command::Put(put("b/1", None, true)), yes),
        // With a lease, every key of it.
        ("writer", Command::Put(put("w/1", Some(lease(1)), false)), yes),
        ("writer", Command::Put(put("w/1", Some(lease(2)), false)), no),
        ("writer", Command::DeleteRange(delete("w/", false)), yes),
        ("writer", Command::DeleteRange(delete("w/", true)), no),
        ("writer", Command::DeleteRange(delete("", false)), no),
        ("both", Command::DeleteRange(delete("b/", true)), yes),
        // Both branches, compares, and all that is nested.
        ("both", Command::Txn(txn(Some("b/1"), vec![put_in(put("b/1", None, true))], vec![])), yes),
        ("writer", Command::Txn(txn(Some("w/1"), vec![put_in(put("w/1", None, false))], vec![])), no),
        ("writer", in_txn(put_in(put("w/1", None, false))), yes),
        ("writer", in_txn(put_in(put("w/1", None, true))), no),
        ("writer", in_txn(put_in(put("w/1", Some(lease(2)), false))), no),
        ("writer", in_txn(TxnOp::DeleteRange(delete("w/", true))), no),
        ("writer", in_txn(TxnOp::Range(range("w/"))), no),
        ("reader", in_txn(TxnOp::Range(range("r/"))), yes),
        ("writer", nested(put_in(put("w/1", None, true))), no),
        ("writer", nested(put_in(put("w/1", Some(lease(2)), false))), no),
        ("writer", nested(put_in(put("w/1", Some(lease(1)), false))), yes),
        ("reader", nested(TxnOp::Range(range("w/"))), no),
        ("bare", Command::GrantLease(grant), yes),
        // A name in a certificate that is no user.
        ("stranger", Command::GrantLease(grant), yes),
        ("stranger", Command::Put(put("w/1", None, false)), no),
        ("stranger", Command::Put(put("w/1", Some(lease(3)), false)), no),
        ("stranger", Command::RevokeLease(lease(3)), yes),
        ("stranger", Command::RevokeLease(lease(1)), no),
        ("bare", Command::RevokeLease(lease(3)), yes),
        ("writer", Command::RevokeLease(lease(1)), yes),
        ("writer", Command::RevokeLease(lease(2)), no),
        ("writer", Command::Compact(Compact { revision: Revision::new(2) }), no),
        ("root", Command::Compact(Compact { revision: Revision::new(2) }), yes),
        ("writer", Command::Auth(AuthCommand::Disable), no),
        ("root", Command::Auth(AuthCommand::Disable), yes),
        ("gone", Command::Auth(AuthCommand::Disable), Err(AuthRefusal::UserNotFound)),
        ("gone", Command::Put(put("w/1", None, false)), no),
        ("", Command::Auth(AuthCommand::Disable), Err(AuthRefusal::UserEmpty)),
        ("", Command::Put(put("w/1", None, false)), Err(AuthRefusal::UserEmpty)),
        ("", Command::GrantLease(grant), Err(AuthRefusal::UserEmpty)),
        ("", Command::RevokeLease(lease(3)), Err(AuthRefusal::UserEmpty)),
    ];
    for (user, command, expected) in table {
        assert_eq!(judged(&book, user, &command), expected, "{user:?} {command:?}");
    }
}

#[test]
fn whoever_was_let_in_by_another_revision_is_refused_and_an_administrator_is_not() {
    let book = book();
    let asker = Asker {
        user: UserName::new("root"),
        revision: AuthRevision(book.revision().0 - 1),
        way: Way::Direct,
    };
    let judge = |command: &Command| {
        let Ok(judged) = book.judge(&asker, needs(command), attached);
        judged
    };
    assert_eq!(judge(&Command::Put(put("x", None, false))), Err(AuthRefusal::OldRevision));
    assert_eq!(judge(&Command::Auth(AuthCommand::Disable)), Ok(()));
}

#[test]
fn nobody_is_asked_anything_while_authentication_is_off() {
    let mut book = book();
    book.change(&AuthCommand::Disable, LogIndex(100)).expect("changes");
    assert_eq!(judged(&book, "", &Command::Put(put("x", Some(lease(2)), true))), Ok(()));
}

#[test]
fn what_a_door_writes_for_somebody_is_judged_and_not_what_it_looks_at() {
    let book = book();
    let judged = |user: &str, revision: AuthRevision, command: &Command| {
        let asker = Asker { user: UserName::new(user), revision, way: Way::Door };
        let Ok(judged) = book.judge(&asker, needs_when_applied(Way::Door, command), attached);
        judged
    };
    let swap = |key: &'static str, lease| {
        Command::Txn(txn(Some(key), vec![TxnOp::Put(put(key, lease, false))], vec![TxnOp::Range(range(key))]))
    };
    let (now, old) = (book.revision(), AuthRevision(book.revision().0 - 1));
    let denied = Err(AuthRefusal::PermissionDenied);
    for (user, revision, command, expected) in [
        ("writer", now, swap("w/1", None), Ok(())),
        // The lease is the door's, and has keys of others.
        ("writer", now, swap("w/1", Some(lease(2))), Ok(())),
        ("writer", now, swap("x", None), denied),
        ("reader", now, swap("r/1", None), denied),
        ("writer", now, Command::DeleteRange(delete("", false)), denied),
        ("writer", old, swap("w/1", None), Err(AuthRefusal::OldRevision)),
        ("root", old, swap("x", None), Err(AuthRefusal::OldRevision)),
        ("", now, swap("w/1", None), Err(AuthRefusal::UserEmpty)),
        ("gone", now, swap("w/1", None), denied),
        // Nothing is written, but it was let in by what is not so any more.
        ("reader", old, Command::Txn(txn(Some("r/1"), vec![], vec![])), Err(AuthRefusal::OldRevision)),
        ("writer", now, Command::Compact(Compact { revision: Revision::new(2) }), denied),
    ] {
        assert_eq!(judged(user, revision, &command), expected, "{user:?} {revision} {command:?}");
    }
}
