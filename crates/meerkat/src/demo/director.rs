//! Plays the script: strikes, waits until every watcher is back, undoes the fault, and goes on.
//!
//! Each wait has an end. A watcher that does not come back in time, a member that ends by itself or
//! does not return, is a problem of the run, and the verdict says so; the play goes on as far as it
//! can.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::model::{Condition, Input, Scene};
use super::script::{self, Fault, Kind, MEMBERS, Sight};
use super::stage::{Stage, condition_under};
use super::teller::Teller;
use super::verdict::{member_name, seconds};

/// A watcher that needs longer than this to come back has failed. The bounds that the client
/// promises are far below; a busy machine is not a broken client.
const RESUME_TIMEOUT: Duration = Duration::from_secs(30);
/// For a leader to be elected and all watchers to hang on a member, before the next fault.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(30);

pub struct Director<'a> {
    pub stage: &'a mut Stage,
    pub scene: watch::Receiver<Scene>,
    pub teller: Teller,
    pub pause: Duration,
}

impl Director<'_> {
    /// Raises the curtain: all members up, a leader elected.
    pub async fn open(&mut self) -> Result<(), String> {
        let everybody: Vec<usize> = (0..MEMBERS).collect();
        self.stage.ready(&everybody).await?;
        self.set(&everybody, Condition::Up).await;
        let took = self.teller.now();
        self.teller.say(format!("three members are ready after {}", seconds(took))).await;
        Ok(())
    }

    /// Plays all faults, one after the other. An error is one that no further fault makes sense
    /// after.
    pub async fn play(&mut self, faults: &[Fault]) -> Result<(), String> {
        for (at, fault) in faults.iter().enumerate() {
            self.wait_until("the cluster is calm", SETTLE_TIMEOUT, is_calm).await?;
            sleep(self.pause).await;
            let (members, sight) = self.aim(*fault).await?;
            let names = names(&members);
            let title = fault.kind.title();
            self.teller.say(format!("fault {} of {}: {title}: {names}", at + 1, faults.len())).await;
            self.strike(*fault, &members, sight).await?;
            // Until the fault is counted, the scene is the one before it.
            let counted = |scene: &Scene| at < scene.faults;
            self.wait_until("the fault is noted", SETTLE_TIMEOUT, counted).await?;
            self.endure(*fault, &members).await?;
            self.teller.tell(Input::Over).await;
            self.require_all_alive()?;
        }
        self.wait_until("the cluster is calm", SETTLE_TIMEOUT, is_calm).await?;
        sleep(self.pause).await;
        Ok(())
    }

    async fn aim(&mut self, fault: Fault) -> Result<(Vec<usize>, Sight), String> {
        let can_aim = |scene: &Scene| script::aim(fault, &scene.sight).is_some();
        self.wait_until("there is a target", SETTLE_TIMEOUT, can_aim).await?;
        let sight = self.scene.borrow().sight;
        let members = script::aim(fault, &sight).ok_or("the target has moved away")?;
        Ok((members, sight))
    }

    /// The time of a fault is taken just before it, and it is told just after it.
    async fn strike(&mut self, fault: Fault, members: &[usize], sight: Sight) -> Result<(), String> {
        let at = self.teller.now();
        for member in members {
            let done = match fault.kind {
                Kind::KillWatched | Kind::KillLeader | Kind::Majority => self.stage.kill(*member).await,
                Kind::Restart => self.stage.stop(*member).await,
                Kind::Pause => self.stage.pause(*member),
                Kind::Cut => {
                    self.stage.cut(*member);
                    Ok(())
                }
            };
            done.map_err(|error| format!("cannot strike {}: {error}", member_name(*member)))?;
        }
        self.teller.tell_of(at, Input::Struck { fault, members: members.to_vec(), sight }).await;
        self.set(members, condition_under(fault.kind)).await;
        Ok(())
    }

    /// What lies between a fault and the next one.
    async fn endure(&mut self, fault: Fault, members: &[usize]) -> Result<(), String> {
        let struck = self.teller.now();
        match fault.kind {
            Kind::Majority => {
                sleep(fault.kind.hold()).await;
                self.undo(fault, members).await?;
                self.wait_for_watchers(struck).await;
            }
            Kind::Restart => {
                self.undo(fault, members).await?;
                self.wait_for_watchers(struck).await;
            }
            Kind::KillWatched | Kind::KillLeader | Kind::Pause | Kind::Cut => {
                self.wait_for_watchers(struck).await;
                sleep((struck + fault.kind.hold()).saturating_sub(self.teller.now())).await;
                self.undo(fault, members).await?;
            }
        }
        self.stage.ready(members).await?;
        self.set(members, Condition::Up).await;
        self.teller.say(format!("{} back in the cluster", is_or_are(members))).await;
        Ok(())
    }

    async fn undo(&mut self, fault: Fault, members: &[usize]) -> Result<(), String> {
        let at = self.teller.now();
        for member in members {
            let done = match fault.kind {
                Kind::KillWatched | Kind::KillLeader | Kind::Majority | Kind::Restart => {
                    self.stage.raise(*member)
                }
                Kind::Pause => self.stage.go_on(*member),
                Kind::Cut => {
                    self.stage.heal(*member);
                    Ok(())
                }
            };
            done.map_err(|error| format!("cannot bring {} back: {error}", member_name(*member)))?;
        }
        self.teller.tell_of(at, Input::Returned).await;
        let what = match fault.kind {
            Kind::KillWatched | Kind::KillLeader | Kind::Majority | Kind::Restart => "started again",
            Kind::Pause => "woken by SIGCONT",
            Kind::Cut => "reachable again",
        };
        let condition = match fault.kind {
            Kind::Pause | Kind::Cut => Condition::Up,
            _ => Condition::Starting,
        };
        self.set(members, condition).await;
        self.teller.say(format!("{} {what}", names(members))).await;
        Ok(())
    }

    async fn wait_for_watchers(&mut self, struck: Duration) {
        let resumed = |scene: &Scene| scene.resumed || scene.watch_ended;
        match self.wait_until("every watcher has resumed", RESUME_TIMEOUT, resumed).await {
            Ok(()) => {
                let took = self.teller.now().saturating_sub(struck);
                self.teller.say(format!("events flow at every watcher, {} on", seconds(took))).await;
            }
            Err(reason) => self.teller.tell(Input::Problem(reason)).await,
        }
    }

    async fn wait_until(
        &mut self,
        what: &str,
        patience: Duration,
        holds: impl FnMut(&Scene) -> bool,
    ) -> Result<(), String> {
        match timeout(patience, self.scene.wait_for(holds)).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) => Err("the demo is being stopped".to_owned()),
            Err(_) => Err(format!("waited {patience:?} until {what}, in vain")),
        }
    }

    fn require_all_alive(&mut self) -> Result<(), String> {
        (0..MEMBERS).try_for_each(|member| self.stage.require_alive(member))
    }

    async fn set(&self, members: &[usize], condition: Condition) {
        for member in members {
            self.teller.tell(Input::Condition { member: *member, condition }).await;
        }
    }
}

/// A leader is there, and every watcher hangs on a member and was told of all that was written.
fn is_calm(scene: &Scene) -> bool {
    scene.sight.leader.is_some() && scene.level && scene.sight.hangs_on.iter().all(Option::is_some)
}

fn names(members: &[usize]) -> String {
    members.iter().map(|member| member_name(*member)).collect::<Vec<_>>().join(" and ")
}

fn is_or_are(members: &[usize]) -> String {
    format!("{} {}", names(members), if members.len() == 1 { "is" } else { "are" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scene_is_calm_when_nobody_waits_for_anything() {
        let sight = Sight { leader: Some(0), hangs_on: [Some(0); 3] };
        let calm = Scene { sight, level: true, faults: 0, resumed: true, watch_ended: false };
        assert!(is_calm(&calm));
        assert!(!is_calm(&Scene { level: false, ..calm }));
        assert!(!is_calm(&Scene { sight: Sight { leader: None, ..sight }, ..calm }));
        let adrift = Sight { hangs_on: [Some(0), None, Some(2)], ..sight };
        assert!(!is_calm(&Scene { sight: adrift, ..calm }));
    }

    #[test]
    fn members_are_named_in_sentences() {
        assert_eq!(is_or_are(&[1]), "m2 is");
        assert_eq!(is_or_are(&[0, 2]), "m1 and m3 are");
    }
}
