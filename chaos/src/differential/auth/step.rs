//! One step: who asks for what, decided by the seed alone.

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

/// Who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Who {
    /// Without a token.
    Nobody,
    /// With a token that was never given out.
    Stranger,
    /// With the newest token that the user was given, if any; it may be void by now.
    User(&'static str),
}

/// What is asked. Ranges are pairs as on the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of the calls")]
pub enum Ask {
    Enable,
    Disable,
    Status,
    Login(&'static str, &'static str),
    UserAdd(&'static str, &'static str),
    UserAddWithoutPassword(&'static str),
    UserGet(&'static str),
    UserList,
    UserDelete(&'static str),
    ChangePassword(&'static str, &'static str),
    GrantRole(&'static str, &'static str),
    RevokeRole(&'static str, &'static str),
    RoleAdd(&'static str),
    RoleGet(&'static str),
    RoleList,
    RoleDelete(&'static str),
    GrantPermission(&'static str, i32, Keys),
    RevokePermission(&'static str, Keys),
    GrantNothing(&'static str),
    Range(Keys),
    Put { key: &'static str, previous: bool, lease: i64 },
    Delete { keys: Keys, previous: bool },
    Txn { compare: &'static str, put: &'static str, range: Keys, delete: Keys },
    LeaseGrant(i64),
    LeaseRevoke(i64),
    LeaseTimeToLive { lease: i64, keys: bool },
    Watch(Keys),
    MemberList,
}

/// Key and end.
pub type Keys = (&'static str, &'static str);

const USERS: &[&str] = &["root", "anna", "ben", "cleo", "nopass", "ghost"];
const PASSWORDS: &[&str] = &["one", "two"];
const ROLES: &[&str] = &["root", "reader", "writer", "mixed", "ghost"];
const KEYS: &[&str] = &["a", "b", "c", "d", "da", "e"];
/// None of them empty.
const RANGES: &[Keys] = &[
    ("a", ""),
    ("b", ""),
    ("d", ""),
    ("a", "c"),
    ("c", "e"),
    ("a", "e"),
    ("b", "d"),
    ("b", "\0"),
    ("d", "\0"),
    ("\0", "\0"),
    ("d", "e"),
];
/// One for each key: of several, etcd finds only the first when it is changed.
const PERMISSIONS: &[Keys] = &[("a", "c"), ("b", ""), ("c", "e"), ("d", "\0"), ("da", ""), ("\0", "\0")];
const LEASES: &[i64] = &[71, 72];

/// What makes a store whose users differ in what they may; asked again now and then, whatever became
/// of it, by root and by nobody.
pub const FURNISH: &[Ask] = &[
    Ask::UserAdd("root", "one"),
    Ask::GrantRole("root", "root"),
    Ask::UserAdd("anna", "one"),
    Ask::UserAdd("ben", "two"),
    Ask::UserAdd("cleo", "one"),
    Ask::RoleAdd("reader"),
    Ask::RoleAdd("writer"),
    Ask::GrantPermission("reader", 0, ("a", "c")),
    Ask::GrantPermission("writer", 2, ("c", "e")),
    Ask::GrantRole("anna", "reader"),
    Ask::GrantRole("anna", "writer"),
    Ask::GrantRole("ben", "writer"),
    Ask::UserAddWithoutPassword("nopass"),
    Ask::Enable,
    Ask::RoleDelete("root"),
    Ask::Login("nopass", "one"),
    Ask::ChangePassword("root", "one"),
    Ask::Login("root", "one"),
    Ask::Login("anna", "one"),
    Ask::Login("ben", "two"),
    Ask::Login("cleo", "one"),
];

/// Makes steps.
#[derive(Debug)]
pub struct Generator {
    random: StdRng,
}

impl Generator {
    /// The same steps for the same seed.
    pub fn new(seed: u64) -> Self {
        Self { random: StdRng::seed_from_u64(seed) }
    }

    fn one<T: Copy>(&mut self, all: &[T]) -> T {
        *all.choose(&mut self.random).expect("no table is empty")
    }

    /// The next step.
    pub fn step(&mut self) -> (Who, Ask) {
        match self.random.random_range(0..100) {
            0..=29 => (self.administrator(), self.auth()),
            30..=37 => (self.anybody(), self.auth()),
            38..=44 => (self.anybody(), self.login()),
            45..=56 => (self.somebody(), self.lease()),
            57..=59 => (self.anybody(), Ask::MemberList),
            60..=69 => (self.anybody(), Ask::Watch(self.one(RANGES))),
            _ => (self.anybody(), self.data()),
        }
    }

    fn administrator(&mut self) -> Who {
        if self.random.random_bool(0.9) { Who::User("root") } else { self.anybody() }
    }

    fn anybody(&mut self) -> Who {
        match self.random.random_range(0..14) {
            0 => Who::Nobody,
            1 => Who::Stranger,
            _ => self.somebody(),
        }
    }

    fn somebody(&mut self) -> Who {
        Who::User(self.one(&["root", "anna", "anna", "ben", "ben", "cleo"]))
    }

    fn login(&mut self) -> Ask {
        Ask::Login(self.one(USERS), self.one(PASSWORDS))
    }

    fn auth(&mut self) -> Ask {
        let (user, role, password) = (self.one(USERS), self.one(ROLES), self.one(PASSWORDS));
        let keys = self.one(PERMISSIONS);
        match self.random.random_range(0..34) {
            0 => Ask::Disable,
            1 | 2 => Ask::Enable,
            3 | 4 => Ask::Status,
            5 | 6 => Ask::UserAdd(user, password),
            7 => Ask::UserAddWithoutPassword(user),
            8 => Ask::UserAdd("", password),
            9 | 10 => Ask::UserGet(user),
            11 => Ask::UserList,
            12 => Ask::UserDelete(user),
            13 => Ask::ChangePassword(user, password),
            14..=16 => Ask::GrantRole(user, role),
            17 | 18 => Ask::RevokeRole(user, role),
            19 | 20 => Ask::RoleAdd(role),
            21 => Ask::RoleAdd(""),
            22 | 23 => Ask::RoleGet(role),
            24 => Ask::RoleList,
            25 => Ask::RoleDelete(role),
            26..=29 => Ask::GrantPermission(role, self.random.random_range(0..3), keys),
            30 => Ask::GrantNothing(role),
            _ => Ask::RevokePermission(role, keys),
        }
    }

    fn lease(&mut self) -> Ask {
        let lease = self.one(LEASES);
        match self.random.random_range(0..6) {
            0 | 1 => Ask::LeaseGrant(lease),
            2 => Ask::LeaseRevoke(lease),
            3 => Ask::LeaseTimeToLive { lease, keys: true },
            4 => Ask::LeaseTimeToLive { lease, keys: false },
            _ => Ask::Put { key: self.one(KEYS), previous: false, lease },
        }
    }

    fn data(&mut self) -> Ask {
        let (key, keys) = (self.one(KEYS), self.one(RANGES));
        match self.random.random_range(0..10) {
            0..=3 => Ask::Range(keys),
            4 | 5 => Ask::Put { key, previous: self.random.random_bool(0.4), lease: 0 },
            6 | 7 => Ask::Delete { keys, previous: self.random.random_bool(0.4) },
            _ => Ask::Txn { compare: key, put: self.one(KEYS), range: keys, delete: self.one(RANGES) },
        }
    }
}
