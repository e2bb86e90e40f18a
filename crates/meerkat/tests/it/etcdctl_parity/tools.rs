//! The real tool and ours: what they print, say on stderr and exit with, on a real etcd each.
//!
//! Both servers have the same ids and live through the same commands, so that even revisions and
//! members are equal. What may differ is in [`ALLOWED`], with the reason.

use std::collections::BTreeSet;

use meerkat_client::Client;
use meerkat_client::maintenance::{Alarm, AlarmKind};

use super::rows;
use super::said::{Mask, Said, ask};
use crate::etcd::{Etcd, etcd_is_here, etcdctl};
use crate::process::meerkat;

/// What of an answer may differ, in which rows (by their beginning), and why.
const ALLOWED: &[(&str, &[Part], &str)] = &[
    (
        "user add typed",
        &[Part::Stdout],
        "a prompt on stdout would be taken for the answer; ours is on stderr",
    ),
    (
        "alarm disarm -w fields",
        &[Part::Status, Part::Stdout],
        "etcdctl 3.5.1 crashes: the answer has no header",
    ),
    ("version", &[Part::Stdout], "names itself"),
    ("user nonsense", &[Part::Stdout], "a page of help of its own"),
    ("mem x", &[Part::Stdout], "a page of help of its own"),
    ("lock l1 sh -c", &[Part::Stdout], "no page of help"),
    ("get a --bogus", &[Part::Stdout], "no page of help"),
    ("get a --rev", &[Part::Stdout], "no page of help"),
    ("get a --prefix=maybe", &[Part::Stdout], "no page of help"),
    (
        "defrag --data-dir",
        &[Part::Status, Part::Error],
        "etcdctl crashes on a directory that is not etcd's; ours says what to do",
    ),
    ("check perf --prefix used", &[Part::Error], "names itself in its advice"),
    ("check datascale --prefix used", &[Part::Error], "names itself in its advice"),
    ("get a --cacert /", &[Part::Error], "says which file it is that is not there"),
    ("get a --cert /", &[Part::Error], "says what is missing"),
    (
        "member add x --peer-urls=http://127.0.0.1:10009 --learner",
        &[Part::Stdout],
        "says \"as learner\", as from 3.5.2 on",
    ),
    ("role get root --user", &[Part::Stdout], "shows that root may do everything, as from 3.6 on"),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Status,
    Stdout,
    Error,
}

fn differences(ours: &Said, theirs: &Said) -> BTreeSet<Part> {
    let parts = [
        (Part::Status, ours.status != theirs.status),
        (Part::Stdout, ours.stdout != theirs.stdout),
        (Part::Error, ours.error != theirs.error),
    ];
    parts.into_iter().filter(|(_, differs)| *differs).map(|(part, _)| part).collect()
}

/// Runs a table with both tools and gives back what is wrong.
fn compare(table: &str, theirs: &Etcd, ours: &Etcd) -> Vec<String> {
    let mut wrong = Vec::new();
    let table = rows(table);
    for row in &table {
        if row.words[0] == "!alarm" {
            raise_alarm(&theirs.endpoint);
            raise_alarm(&ours.endpoint);
            continue;
        }
        let their_word = ask(&mut etcdctl(), &theirs.endpoint, row, Mask::Chance);
        // How large a file is depends on the moment, so a server's status is asked of one server by both.
        let asked = if row.text().starts_with("endpoint status") { theirs } else { ours };
        let mut our_word = ask(&mut meerkat(), &asked.endpoint, row, Mask::Chance);
        // Each names itself.
        our_word.error = our_word.error.replace("for \"meerkat\"", "for \"etcdctl\"");
        let differ = differences(&our_word, &their_word);
        let text = row.text();
        let allowed = ALLOWED.iter().find(|(start, ..)| text.starts_with(start));
        let may: BTreeSet<Part> =
            allowed.map(|(_, parts, _)| parts.iter().copied().collect()).unwrap_or_default();
        if !differ.is_subset(&may) {
            wrong.push(format!("{text}\n  etcdctl {their_word:?}\n  meerkat {our_word:?}"));
        }
        if differ.is_empty() && !may.is_empty() {
            wrong.push(format!("{text}: allowed to differ, but does not: take it off the list"));
        }
    }
    println!("{} command lines compared", table.len());
    wrong
}

/// There is no command for it: servers raise alarms.
fn raise_alarm(endpoint: &str) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let client = Client::connect([endpoint]).await.expect("etcd is there");
        let member = client.cluster().members().await.expect("members")[0].id;
        let alarm = Alarm::new(member, AlarmKind::NoSpace);
        client.maintenance().raise_alarm(alarm).await.expect("an alarm");
    });
}

fn check(table: &str) {
    if !etcd_is_here() {
        return;
    }
    let (theirs, ours) = (Etcd::start(), Etcd::start());
    let wrong = compare(table, &theirs, &ours);
    assert!(wrong.is_empty(), "{} rows differ:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn users_roles_and_logins_are_handled_as_by_etcdctl() {
    check(USERS);
}

#[test]
fn members_alarms_and_the_rest_are_handled_as_by_etcdctl() {
    check(MEMBERS);
}

const USERS: &str = "
    auth enable
    * auth status
    auth status x
    auth enable x
    auth disable x
    user add
    user add a b
    user add :pw
    user add root:pw
    user add typed <<< secret\\nsecret\\n
    user add typed2 <<< one\\ntwo\\n
    user add piped --interactive=false <<< secret\\n
    user add bare --no-password
    user add flagged --new-user-password=xyz
    user add flagged --new-user-password=xyz
    + user add g1:pw
    user add g1:pw
    * user get g1
    * user list
    + user passwd g1 --interactive=false <<< new\\n
    role add r1
    + role add r1
    + user grant-role g1 r1
    * user get g1
    + user get g1 --detail
    user get g1 --detail -w table
    + role grant-permission r1 readwrite foo
    + role grant-permission r1 read a b
    + role grant-permission r1 WRITE x --prefix
    + role grant-permission r1 write y --from-key
    role grant-permission r1 read '' --prefix
    role grant-permission r1 read ''
    * role get r1
    * role list
    + user get g1 --detail
    role revoke-permission r1 foo
    role revoke-permission r1 a b -w json
    role revoke-permission r1 y --from-key
    role revoke-permission r1 x --prefix -w fields
    role revoke-permission r1 '' --prefix
    role revoke-permission r1 nope
    + user revoke-role g1 r1
    user delete nope
    role delete nope
    role get nope
    user get nope
    role get root
    role add
    role delete
    role get
    role list x
    role grant-permission r1
    role grant-permission r1 read
    role grant-permission r1 own c
    role grant-permission r1 read c d --prefix
    role grant-permission r1 read c d --from-key
    role grant-permission r1 read c --from-key --prefix
    role grant-permission nope read c
    role revoke-permission r1
    user list x
    user passwd
    user passwd nope --interactive=false <<< new\\n
    user grant-role a
    user grant-role g1 nope
    user revoke-role a
    user get
    user delete
    user nonsense
    role grant-permission r1 readwrite k
    user grant-role g1 r1
    auth enable
    get a
    get a --user root:pw
    get a --user root --password pw
    get a --user root:bad
    get a --user nobody:bad
    put k v --user g1:new
    put z v --user g1:new
    get k --user g1:new -w json
    user get g1 --user g1:new
    user list --user g1:new
    role get root --user root:pw
    auth status --user root:pw -w json
    endpoint health --user g1:new
    lease grant 100 --user g1:new
    lease grant 100 --user g1:bad
    endpoint status --user root:bad
    auth disable --user root:pw
    get a --user root:pw
    get a --user root:bad
    auth disable
    + user delete flagged
    user delete g1 -w json
    role delete r1 -w fields
    user add t1:pw -w table
    user delete piped -w table
    role add t2 -w table
";

const MEMBERS: &str = "
    put k v
    * endpoint status --cluster
    endpoint status --hex -w json
    * alarm list
    + alarm disarm
    !alarm
    * alarm list
    endpoint health
    endpoint health -w json
    put k w
    alarm disarm
    !alarm
    alarm disarm -w json
    !alarm
    alarm disarm -w protobuf
    alarm list x
    alarm disarm x
    put k w
    * defrag
    defrag x --cluster
    defrag --data-dir /nonexistent/of/nobody
    * member list
    member list --hex -w json
    * endpoint health --cluster
    * endpoint hashkv --cluster
    endpoint hashkv --rev 2 -w json
    member add
    member add x
    member add x --peer-urls=http://127.0.0.1:10009 --learner
    member list -w simple
    member remove zz
    member remove 1234
    member update 1234 --peer-urls=http://127.0.0.1:1
    member promote 1234
    move-leader
    move-leader zz
    move-leader abc
    * compaction 2
    version
    version x
    bogus
    m
    de
    mem x
    mem list
    end health
    compact 3
    --consistency s get k
    --hex -w json get k
    --prefix=true get k
    --prefix get q
    --limit 1 get --prefix=t k
    get a --bogus
    get a --rev
    get a --rev x
    get a --prefix=maybe
    lock
    lock l1 true
    lock l1 nosuchcommand
    lock l1 -- sh -c 'exit 5'
    lock l1 -- sh -c 'echo $ETCD_LOCK_KEY $ETCD_LOCK_REV'
    lock l1 sh -c 'exit 5'
    elect
    elect a
    elect a b -l
    elect a b c
    make-mirror
    make-mirror 127.0.0.1:1 --dest-prefix a --no-dest-prefix
    check perf --load bad
    check datascale --load bad
    put used v
    check perf --prefix used
    check datascale --prefix used
    get a --cacert /nonexistent
    get a --cert /nonexistent
    get a --cacert ''
    !alarm
    alarm disarm -w table
";
