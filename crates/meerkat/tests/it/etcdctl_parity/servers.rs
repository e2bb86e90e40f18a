//! The real tools on a real etcd and on a member of ours: an operator must not be able to tell them apart.
//!
//! Each service is a line in [`SERVICES`]. Nothing may differ.

use std::path::PathBuf;
use std::process::Command;

use super::said::{Mask, Said, ask, masked};
use super::standing::{begin, say};
use super::{Row, rows};
use crate::bench::{Solo, start};
use crate::etcd::{etcd_is_here, etcdctl};
use crate::process::{clean, etcd_program, meerkat, skip, wait_until};

/// Name, and what is asked of it.
const SERVICES: &[(&str, &str)] = &[
    ("key-value", KEY_VALUE),
    ("compaction", COMPACTION),
    ("lease", LEASE),
    ("cluster", CLUSTER),
    ("maintenance", MAINTENANCE),
    ("alarm", ALARM),
    ("defragment", DEFRAGMENT),
    ("lock and elect", LOCK),
    ("auth", AUTH),
];

const KEY_VALUE: &str = "
    + put foo bar
    + put foo bar2 --prev-kv
    put from-stdin <<< a value\\nwith two lines
    put unicode 'zü\"'
    * get foo
    * get absent
    * get '' --prefix --limit 2
    + get f --from-key --keys-only
    + get a z --order DESCEND
    + get a z --sort-by modify
    + get foo --rev 3
    + get foo --count-only
    get foo --rev 1000
    get '' --prefix --print-value-only
    get '' --from-key --consistency s
    get ''
    put '' v
    put k v --lease 123
    put k --ignore-value
    put k v --ignore-lease
    put foo --ignore-value --prev-kv
    + txn <<< mod(\"foo\") > \"0\"\\n\\nput foz qq\\nget foo\\nget foo --prefix\\ndel nope\\n\\nget foo2\\n\\n
    + txn <<< ver(\"a\") < \"1\"\\ncreate(\"b\") = \"0\"\\n\\nput b 1\\n\\nget foo2 --prefix\\n\\n
    txn <<< \\nput a 1\\nput a 2\\n\\n\\n
    txn <<< \\nput a b --lease 5\\n\\n\\n
    + del foo fop --prev-kv
    + del absent
    del ''
    del '' --prefix
";

const COMPACTION: &str = "
    put a 1
    put a 2
    put a 3
    compaction 3
    compaction 3
    compaction 4 --physical
    compaction 99999
    get a --rev 2
    get a --rev 4 -w json
    watch a --rev 2
";

const LEASE: &str = "
    lease grant 0
    lease grant 9000000001
    + lease grant 500
    lease list -w fields
    lease revoke 1234
    + lease timetolive 1234 --keys
    lease keep-alive --once 1234
";

const CLUSTER: &str = "
    member list -w fields
    member remove 1234
    member promote 1234
    member update 1234 --peer-urls=http://127.0.0.1:1
    member add x --peer-urls=bogus
";

const MAINTENANCE: &str = "
    * endpoint health
    endpoint status -w json
    endpoint status -w fields
    endpoint hashkv -w fields
    endpoint hashkv --rev 99999
    move-leader abc
";

const ALARM: &str = "
    * alarm list
    alarm disarm
";

const DEFRAGMENT: &str = "
    defrag
    defrag --cluster
";

const LOCK: &str = "
    lock l1 true
    lock l1 -- sh -c 'exit 5'
    lock l1 -- sh -c 'echo $ETCD_LOCK_KEY'
";

const AUTH: &str = "
    auth enable
    auth status -w json
    user add root:pw
    user add root:pw
    user add g1:pw -w fields
    role add r1
    role add r1
    user grant-role g1 r1
    role grant-permission r1 readwrite foo
    role grant-permission r1 read a b
    role grant-permission r1 write x --prefix
    role get r1 -w json
    role get nope
    user get g1 -w json
    user get nope
    auth enable
    get a
    get a --user root:pw
    get a --user root:bad
    put foo v --user g1:pw
    put z v --user g1:pw
    user list --user g1:pw
    role revoke-permission r1 foo --user root:pw
    put foo v --user g1:pw
    user revoke-role g1 r1 --user root:pw
    user delete g1 --user root:pw
    role delete r1 --user root:pw
    auth status --user root:pw -w json
    auth disable --user root:pw
    auth disable
";

/// A real tool, by its version.
struct Tool {
    version: &'static str,
    program: PathBuf,
}

impl Tool {
    fn command(&self) -> Command {
        let mut command = clean(Command::new(&self.program));
        command.env("ETCDCTL_API", "3");
        command
    }
}

/// Those that are on this machine.
fn tools() -> Vec<Tool> {
    let newer = Tool { version: "3.5", program: etcdctl().get_program().into() };
    let fetched = concat!(env!("CARGO_MANIFEST_DIR"), "/../../.tools/etcdctl-3.4");
    let older = std::env::var_os("ETCDCTL_3_4").map_or_else(|| PathBuf::from(fetched), PathBuf::from);
    if !older.is_file() {
        skip("no etcdctl 3.4 to ask with: run scripts/setup, or set ETCDCTL_3_4");
        return vec![newer];
    }
    vec![newer, Tool { version: "3.4", program: older }]
}

fn ours() -> Solo {
    let mut command = meerkat();
    command.arg("serve");
    start(command)
}

fn theirs() -> Solo {
    start(clean(Command::new(etcd_program("etcd").expect("checked before"))))
}

/// A member that has just begun to lead is not yet certain of its reads.
fn settled(server: &Solo) {
    let row = Row { words: vec!["get".into(), "x".into()], input: String::new() };
    wait_until("the member answers", || {
        ask(&mut meerkat(), &server.endpoint, &row, Mask::Server).status == Some(0)
    });
}

#[test]
fn real_tools_cannot_tell_a_member_of_ours_from_etcd() {
    if !etcd_is_here() {
        return;
    }
    let mut wrong = Vec::new();
    for tool in tools() {
        let (etcd, member) = (theirs(), ours());
        settled(&member);
        for (service, table) in SERVICES {
            let table = rows(table);
            for row in &table {
                let word = |server: &Solo| ask(&mut tool.command(), &server.endpoint, row, Mask::Server);
                let (expected, got): (Said, Said) = (word(&etcd), word(&member));
                let text = row.text();
                if expected != got {
                    wrong.push(format!("{} {text}\n  etcd    {expected:?}\n  meerkat {got:?}", tool.version));
                }
            }
            println!("{} {service}: {} command lines", tool.version, table.len());
        }
    }
    assert!(wrong.is_empty(), "{} rows differ:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn real_tools_see_the_same_events_of_a_member_of_ours_and_of_etcd() {
    if !etcd_is_here() {
        return;
    }
    let servers = [theirs(), ours()];
    for server in &servers {
        settled(server);
        for args in [&["put", "a", "1"][..], &["put", "a", "2"], &["put", "b", "1"], &["del", "a"]] {
            say(&server.endpoint, args);
        }
        say(&server.endpoint, &["put", "a", "the-end"]);
    }
    let watches: [&[&str]; 4] = [
        &["a", "--rev=1"],
        &["a", "--rev=2", "--prev-kv"],
        &["", "--prefix", "--rev=3"],
        &["a", "c", "--rev=2", "--prev-kv", "--hex"],
    ];
    for tool in tools() {
        for watch in watches {
            for format in ["simple", "fields", "json"] {
                let args = [&["watch"], watch, &["-w", format]].concat();
                let seen = servers.each_ref().map(|server| {
                    let standing = begin(tool.command(), &server.endpoint, &args);
                    wait_until(&format!("{} sees the last event with {args:?}", tool.version), || {
                        ENDS.iter().any(|end| standing.said().contains(end))
                    });
                    let (status, said, _) = standing.end("INT");
                    (status, events(&masked(&said, &server.endpoint, Mask::Server)))
                });
                assert_eq!(seen[1], seen[0], "{} {args:?}", tool.version);
            }
        }
    }
}

/// The value of the last event, in the spellings of the formats.
const ENDS: [&str; 3] = ["the-end", "\\x74\\x68\\x65\\x2d", "dGhlLWVuZA=="];

/// The events alone: how many of them come in one answer is a server's own business.
fn events(said: &str) -> Vec<String> {
    let own = ["\"ClusterID\"", "\"MemberID\"", "\"Revision\"", "\"RaftTerm\""];
    let lines = said.lines().filter(|line| !own.iter().any(|name| line.starts_with(name)));
    let split = |line: &str| match serde_json::from_str::<serde_json::Value>(line) {
        Ok(answer) if answer.get("Events").is_some() => {
            answer["Events"].as_array().into_iter().flatten().map(ToString::to_string).collect()
        }
        _ => vec![line.to_owned()],
    };
    lines.flat_map(split).collect()
}
