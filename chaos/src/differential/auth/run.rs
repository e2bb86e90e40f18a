//! What a run of users and roles is.

use super::side::{Reply, Side};
use super::step::{Ask, FURNISH, Generator, Who};
use crate::Failure;
use crate::differential::allow_list::{Handling, Row};
use crate::differential::coverage::Coverage;
pub use crate::differential::engine::Plan;
use crate::differential::engine::{self, Both, Surface};
use crate::driver::{Cluster, Product};

/// Steps between two times of setting users and roles up again.
const FURNISH_EVERY: usize = 60;

/// Refusals that every run must have seen, or it has shown little.
const REFUSALS: &str = "\
etcdserver: permission denied; user name is empty; invalid auth token
etcdserver: authentication failed, invalid user ID or password; authentication is not enabled
etcdserver: user name already exists; user name not found; role name already exists
etcdserver: role name not found; role name is empty; role is not granted to the user
etcdserver: permission is not granted to the role; permission not given; invalid auth management
auth: authentication failed, password was given for no password user";

/// Behaviour of late releases, which the one compared with does not have yet.
const ROWS: &[Row<Step, Reply>] = &[
    Row {
        contract: "C.6",
        what: "a watch that is refused tells why; 3.5.1 always says `permission denied`",
        handling: Handling::Accepted(|(_, ask), etcd, other| {
            matches!((ask, etcd, other), (Ask::Watch(_), Reply::Told(etcd), Reply::Told(other))
                if etcd.contains(DENIED) && other.contains("true true \"rpc error: code = "))
        }),
    },
    Row {
        contract: "C.6, GHSA-xg4h-6gfc-h4m8",
        what: "whoever may read one key may not watch all keys from it on; in 3.5.1 they may",
        handling: Handling::Accepted(|(_, ask), etcd, other| {
            matches!((ask, etcd, other), (Ask::Watch((_, "\0")), Reply::Told(etcd), Reply::Told(other))
                if etcd.starts_with("true false") && other.contains(DENIED))
        }),
    },
    Row {
        contract: "F 'Roles'",
        what: "the role root tells that it may do everything; in 3.5.1 what was granted to it",
        handling: Handling::Accepted(|(_, ask), etcd, other| {
            matches!((ask, etcd, other), (Ask::RoleGet("root"), Reply::Told(_), Reply::Told(other))
                if other == "[(b\"\", b\"\\0\", 2)]")
        }),
    },
    Row {
        contract: "F 'Lease'",
        what: "the time to live of a lease is told to users only, and its keys to those who may read them; in 3.5.1 to everybody",
        handling: Handling::Accepted(|(_, ask), etcd, other| {
            let texts = ["user name is empty", "invalid auth token", "permission denied"];
            matches!((ask, etcd, other), (Ask::LeaseTimeToLive { .. }, Reply::Told(_), Reply::Refused(_, text))
                if texts.iter().any(|words| *text == format!("etcdserver: {words}")))
        }),
    },
    Row {
        contract: "F 'Cluster'",
        what: "the members are listed for users only; in 3.5.1 for everybody",
        handling: Handling::Accepted(|(_, ask), etcd, other| {
            let texts = ["user name is empty", "invalid auth token"];
            matches!((ask, etcd, other), (Ask::MemberList, Reply::Told(_), Reply::Refused(_, text))
                if texts.iter().any(|words| *text == format!("etcdserver: {words}")))
        }),
    },
];
const DENIED: &str = "rpc error: code = PermissionDenied desc = etcdserver: permission denied";

/// Who asks for what.
pub type Step = (Who, Ask);

/// Runs it; what came up.
pub async fn run(plan: &Plan) -> Result<Coverage, Failure> {
    let again = format!("MEERKAT_SEED={}", plan.seed);
    engine::run(plan, Users, Generator::new(plan.seed), &again).await
}

struct Users;

impl Surface for Users {
    const NAME: &'static str = "auth differential";
    const ALLOWED: &'static [Row<Step, Reply>] = ROWS;
    type Step = Step;
    type Answer = Reply;
    type Side = Side;
    type Generator = Generator;

    fn coverage(&self) -> Coverage {
        Coverage::of(REFUSALS)
    }

    /// Of etcd one member only.
    async fn start(&self, product: Product, members: usize) -> Result<Side, Failure> {
        Side::start(product, if product == Product::Etcd { 1 } else { members }).await
    }

    fn cluster(side: Side) -> Cluster {
        side.cluster
    }

    async fn next(both: &mut Both<Self>, number: usize) -> Result<Step, Failure> {
        if number.is_multiple_of(FURNISH_EVERY) {
            for ask in FURNISH {
                both.take(&(Who::User("root"), ask.clone())).await?;
                both.take(&(Who::Nobody, ask.clone())).await?;
            }
        }
        Ok(both.generator.step())
    }

    /// One step on both. The members of the other cluster take turns.
    async fn take(both: &mut Both<Self>, step: &Step) -> Result<(), Failure> {
        let (who, ask) = step;
        let member = (both.taken - 1) % both.other.members();
        // What a member answers by what it knows itself.
        if matches!(ask, Ask::Watch(_) | Ask::LeaseTimeToLive { .. }) && 1 < both.other.members() {
            both.other.level(member).await;
        }
        let (etcd, other) = tokio::join!(both.etcd.ask(0, who, ask), both.other.ask(member, who, ask));
        if let Reply::Refused(_, text) = &etcd {
            both.coverage.count_known(text);
        }
        let difference = (etcd != other).then_some("the answers differ");
        both.judge(step, difference, &etcd, &other).map(drop)
    }
}
