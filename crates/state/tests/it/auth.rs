//! Users and roles come back from a crash and from a checkpoint as they were, on disk and in memory.

use crate::rig::{Log, Rig};
use bytes::Bytes;
use meerkat_engine::{Db, DbOptions};
use meerkat_state::{LogEntry, Machine, Payload, StateReader};
use meerkat_types::{
    Asker, AuthCommand, AuthRefusal, AuthRevision, Command, Key, KeyRange, LeaseId, LeaseTtl, NewLease,
    NewValue, Outcome, Password, Permission, PermissionKind, Proposal, Put, Refusal, RequestId, RoleName,
    UserName, Way,
};

fn auth(log: &mut Log, command: AuthCommand) -> LogEntry {
    log.command(Command::Auth(command))
}

/// root is root; u reads and writes `k/`.
fn furnish(log: &mut Log) -> Vec<LogEntry> {
    let (user, role) = (|name| UserName::new(name), |name| RoleName::new(name));
    let password = || Password::Hash(Bytes::from_static(b"hash"));
    let permission = Permission { kind: PermissionKind::ReadWrite, keys: KeyRange::prefix(b"k/") };
    let commands = [
        AuthCommand::AddUser { user: user("root"), password: password() },
        AuthCommand::GrantRole { user: user("root"), role: role("root") },
        AuthCommand::AddUser { user: user("u"), password: password() },
        AuthCommand::AddUser { user: user("gone"), password: Password::None },
        AuthCommand::AddRole { role: role("r") },
        AuthCommand::GrantPermission { role: role("r"), permission },
        AuthCommand::GrantRole { user: user("u"), role: role("r") },
        AuthCommand::DeleteUser { user: user("gone") },
        AuthCommand::Enable,
    ];
    commands.map(|command| auth(log, command)).to_vec()
}

fn put(key: &'static str, lease: Option<LeaseId>) -> Command {
    let key = Key::new(Bytes::from_static(key.as_bytes())).expect("not empty");
    let value = NewValue::Set(Bytes::new());
    Command::Put(Put { key, value, lease: NewLease::Set(lease), want_previous: false })
}

fn asked(log: &mut Log, asker: Option<Asker>, command: Command) -> LogEntry {
    let id = RequestId(log.entries.len() as u64);
    log.push(Payload::Command(Proposal { id, stamp_ms: 1, asker, command })).clone()
}

fn outcome(rig: &mut Rig, entry: LogEntry) -> Outcome {
    rig.apply(&[entry]).pop().and_then(|applied| applied.outcome).expect("an outcome")
}

#[test]
fn users_and_roles_come_back_after_a_crash_and_from_a_checkpoint() {
    let (mut rig, mut log) = (Rig::new(), Log::default());
    let entries = furnish(&mut log);
    rig.apply(&entries);
    let before = rig.reader.auth();
    assert!(before.is_enabled() && rig.reader.auth_enabled());
    assert_eq!(before.revision(), AuthRevision(9));
    rig.db().flush().expect("flush");
    let directory = tempfile::tempdir().expect("a directory");
    let checkpoint = directory.path().join("checkpoint");
    rig.db().checkpoint(&checkpoint).expect("checkpoint");
    rig.crash();
    assert_eq!(rig.reader.auth(), before);
    // A reader of another state sees users and roles of this one once it is opened for it.
    let reader = StateReader::new();
    let db = Db::open(&checkpoint, &DbOptions::default()).expect("open");
    let _machine = Machine::open(db, &reader).expect("open");
    assert_eq!(reader.auth(), before);
    assert!(reader.auth_enabled());
    assert_eq!(reader.digest(), rig.reader.digest());
}

#[test]
fn a_command_is_judged_again_when_it_is_applied() {
    let (mut rig, mut log) = (Rig::new(), Log::default());
    let lease = LeaseId::from_wire(7).expect("not zero");
    let ttl = LeaseTtl::from_seconds(60).expect("in range");
    let mut entries = furnish(&mut log);
    entries.push(log.command(Command::GrantLease(meerkat_types::GrantLease { id: lease, ttl })));
    // In one batch with what follows: attachments that are not written yet count.
    entries.push(log.command(put("other", Some(lease))));
    rig.apply(&entries);
    let revision = rig.reader.auth().revision();
    let by = |user: &str, revision| Some(Asker { user: UserName::new(user), revision, way: Way::Direct });
    let by_door = |user: &str, revision| Some(Asker { user: UserName::new(user), revision, way: Way::Door });
    let refused = |refusal| Outcome::Refused(Refusal::Auth(refusal));
    let denied = refused(AuthRefusal::PermissionDenied);
    let table = [
        (by("u", revision), put("k/1", None), None),
        (by("u", revision), put("x", None), Some(denied.clone())),
        (by("u", revision), put("k/1", Some(lease)), Some(denied.clone())),
        (by("u", revision), Command::RevokeLease(lease), Some(denied.clone())),
        (by("u", AuthRevision(2)), put("k/1", None), Some(refused(AuthRefusal::OldRevision))),
        // The lease is the door's own.
        (by_door("u", revision), put("k/1", Some(lease)), None),
        (by_door("u", revision), put("x", None), Some(denied)),
        (by_door("u", AuthRevision(2)), put("k/1", None), Some(refused(AuthRefusal::OldRevision))),
        // Let in while nobody was asked.
        (Some(Asker::NOBODY), put("k/1", None), Some(refused(AuthRefusal::UserEmpty))),
        // The cluster itself.
        (None, put("x", None), None),
        (by("root", revision), Command::RevokeLease(lease), None),
    ];
    for (asker, command, expected) in table {
        let before = rig.reader.current_revision();
        let entry = asked(&mut log, asker.clone(), command.clone());
        let got = outcome(&mut rig, entry);
        match expected {
            Some(expected) => {
                assert_eq!(got, expected, "{asker:?} {command:?}");
                assert_eq!(rig.reader.current_revision(), before, "what is refused changes nothing");
            }
            None => assert!(!matches!(got, Outcome::Refused(_)), "{asker:?} {command:?}: {got:?}"),
        }
    }
}

#[test]
fn members_that_differ_in_users_differ_in_their_digest() {
    let digest = |hash: &'static [u8]| {
        let (mut rig, mut log) = (Rig::new(), Log::default());
        let password = Password::Hash(Bytes::from_static(hash));
        let entry = auth(&mut log, AuthCommand::AddUser { user: UserName::new("u"), password });
        rig.apply(&[entry]);
        rig.reader.digest()
    };
    assert_eq!(digest(b"a"), digest(b"a"));
    assert_ne!(digest(b"a"), digest(b"b"));
}
