//! What happens, in order: kubectl asks for something, a member dies, and the controllers come through.

use std::path::Path;
use std::time::{Duration, Instant};

use meerkat_client::listwatch::{Door, Objects};
use tokio::task::JoinSet;

use super::super::script::MEMBERS;
use super::super::verdict::member_name;
use super::board::{Board, Condition};
use super::kubectl::Kubectl;
use super::object;
use super::stage::Stage;
use super::verdict::{Verdict, reach, unlike};
use super::{agent, replicas, scheduler};

const SET: &str = "web";
const AGENTS: [&str; 2] = ["node-1", "node-2"];
/// For the controllers to bring about what was asked for.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(40);
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

pub struct Play<'a> {
    pub stage: &'a mut Stage,
    pub board: Board,
    pub kubectl_program: &'a Path,
    pub directory: &'a Path,
    /// Pods at the start.
    pub replicas: usize,
    /// Quiet time between the acts.
    pub pause: Duration,
}

impl Play<'_> {
    /// From the first member to the verdict. An error is what kept it from being played at all.
    pub async fn perform(mut self) -> Result<Verdict, String> {
        self.board.say("starting three members");
        for member in 0..MEMBERS {
            self.stage.ready(member).await?;
            self.board.member(member, Condition::Up);
        }
        let doors = self.stage.doors();
        let kubectl = Kubectl::prepare(self.kubectl_program, &doors[0], self.directory).await?;
        // Dropped at the end of this function, whatever way that is taken.
        let mut controllers = JoinSet::new();
        self.start_controllers(&doors, &mut controllers)?;
        let acts = Acts { kubectl, doors: doors.clone(), pods: door(&doors)?.objects(&object::pods()) };
        let (mut troubles, mut kills) = (Vec::new(), 0);
        if let Err(reason) = self.acts(&acts, &mut kills).await {
            self.board.say(format!("WRONG: {reason}"));
            troubles.push(reason);
        }
        while let Some(ended) = controllers.try_join_next() {
            troubles.push(format!("a controller has ended: {ended:?}"));
        }
        Ok(reach(&self.board.look(), &troubles, kills))
    }

    fn start_controllers(&self, doors: &[String], controllers: &mut JoinSet<()>) -> Result<(), String> {
        self.board.say("a replica controller, a scheduler and two node agents, each with caches of its own");
        controllers.spawn(replicas::run(door(doors)?, self.board.clone()));
        controllers.spawn(scheduler::run(door(doors)?, self.board.clone()));
        for node in AGENTS {
            controllers.spawn(agent::run(node, door(doors)?, self.board.clone()));
        }
        Ok(())
    }

    async fn acts(&mut self, acts: &Acts, kills: &mut usize) -> Result<(), String> {
        let more = self.replicas + 3;
        let manifest = object::replica_set(SET, self.replicas).to_string();
        self.ask(acts, 0, &["create", "-f", "-"], &manifest).await?;
        self.settled(acts, self.replicas).await?;

        self.lose(0, kills).await?;
        self.ask(acts, 1, &["scale", "replicaset", SET, &format!("--replicas={more}")], "").await?;
        self.settled(acts, more).await?;
        self.back(0).await?;

        self.lose(1, kills).await?;
        let victim = acts.some_pod().await?;
        self.ask(acts, 2, &["delete", "pod", &victim], "").await?;
        self.settled(acts, more).await?;
        if acts.names().await?.contains(&victim) {
            return Err(format!("{victim} was deleted and is there"));
        }
        self.back(1).await?;

        self.lose(2, kills).await?;
        self.ask(acts, 0, &["scale", "replicaset", SET, "--replicas=2"], "").await?;
        self.settled(acts, 2).await?;
        self.back(2).await?;

        self.ask(acts, 1, &["delete", "replicaset", SET], "").await?;
        self.settled(acts, 0).await
    }

    async fn ask(&self, acts: &Acts, member: usize, arguments: &[&str], input: &str) -> Result<(), String> {
        let began = Instant::now();
        let printed = acts.kubectl.run(&acts.doors[member], arguments, input).await?;
        let took = began.elapsed().as_secs_f64();
        let shown = arguments.join(" ");
        self.board.say(format!("kubectl {shown}, through {}: {printed} ({took:.1} s)", member_name(member)));
        Ok(())
    }

    async fn settled(&self, acts: &Acts, wanted: usize) -> Result<(), String> {
        self.board.want(wanted);
        let began = Instant::now();
        loop {
            let wrong = match acts.pods.list().await {
                Ok(there) => unlike(&there.items, wanted),
                Err(error) => Some(error.to_string()),
            };
            let Some(wrong) = wrong else { break };
            if SETTLE_TIMEOUT < began.elapsed() {
                return Err(format!("{wrong}, {SETTLE_TIMEOUT:?} after {wanted} were asked for"));
            }
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
        let took = began.elapsed().as_secs_f64();
        self.board.say(format!("exactly {wanted} pods run ({took:.1} s)"));
        tokio::time::sleep(self.pause).await;
        Ok(())
    }

    /// kill -9, and wait until the others serve what is now.
    async fn lose(&mut self, member: usize, kills: &mut usize) -> Result<(), String> {
        self.board.say(format!("kill -9 of {}", member_name(member)));
        self.stage.kill(member).await.map_err(|error| error.to_string())?;
        self.board.member(member, Condition::Down);
        *kills += 1;
        self.stage.ready((member + 1) % MEMBERS).await
    }

    async fn back(&mut self, member: usize) -> Result<(), String> {
        self.stage.raise(member).map_err(|error| error.to_string())?;
        self.board.member(member, Condition::Starting);
        self.stage.ready(member).await?;
        self.board.member(member, Condition::Up);
        self.board.say(format!("{} is back", member_name(member)));
        tokio::time::sleep(self.pause).await;
        Ok(())
    }
}

/// What the acts work with.
struct Acts {
    kubectl: Kubectl,
    doors: Vec<String>,
    pods: Objects,
}

impl Acts {
    async fn names(&self) -> Result<Vec<String>, String> {
        let there = self.pods.list().await.map_err(|error| error.to_string())?;
        Ok(there.items.iter().map(|pod| object::name(pod).to_owned()).collect())
    }

    async fn some_pod(&self) -> Result<String, String> {
        self.names().await?.into_iter().next().ok_or_else(|| "there is no pod to delete".to_owned())
    }
}

/// A door of its own, as a program of its own would have.
fn door(doors: &[String]) -> Result<Door, String> {
    Door::new(doors.to_vec()).map_err(|error| error.to_string())
}
