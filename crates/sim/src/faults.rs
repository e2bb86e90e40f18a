//! Faults, one after the other or on top of each other, as the seed has it; each ends by itself, and
//! all end when the rough part of a run is over.

use crate::member::Member;
use crate::net::{Machine, Net};
use crate::setup::{MEMBERS, STALL_MILLIS, Setup, Work};
use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use std::collections::BTreeMap;

pub struct Faults {
    random: StdRng,
    /// Nothing but short stalls.
    steady: bool,
    calm_millis: u64,
    rough_until: u64,
    next_at: u64,
    /// What ends when, in the order it was begun.
    endings: Vec<(u64, Ending)>,
    healed: bool,
    pub counts: BTreeMap<&'static str, u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Restart(Machine),
    Resume(Machine),
    Connect(Machine, Machine),
    Smooth(Machine, Machine),
}

impl Faults {
    pub fn new(setup: &Setup, random: StdRng) -> Faults {
        Faults {
            random,
            steady: setup.work == Work::Steady,
            calm_millis: setup.calm_millis,
            rough_until: setup.rough_until,
            next_at: setup.rough_from,
            endings: Vec::new(),
            healed: false,
            counts: BTreeMap::new(),
        }
    }

    /// Begins and ends what is due.
    pub fn step(&mut self, now: u64, net: &Net, members: &mut [Member]) -> Result<(), String> {
        if self.healed {
            return Ok(());
        }
        self.healed = self.rough_until <= now;
        let over = self.healed;
        let (due, later) = self.endings.iter().partition(|(at, _)| over || *at <= now);
        self.endings = later;
        let due: Vec<(u64, Ending)> = due;
        for (_, ending) in due {
            net.note(&format!("{ending:?}"));
            tracing::info!(?ending, "a fault ends");
            end(ending, now, net, members)?;
        }
        if self.next_at <= now && !self.healed {
            if self.steady {
                self.next_at = self.stall(now, net, members);
                return Ok(());
            }
            self.begin(now, net, members);
            self.next_at = now + self.random.random_range(20..self.calm_millis);
        }
        Ok(())
    }

    /// One member or all of them stand still for a moment, or their disks do; returns when the next stall may
    /// begin, once all have heard of each other again.
    fn stall(&mut self, now: u64, net: &Net, members: &mut [Member]) -> u64 {
        const CALM_MILLIS: u64 = 300;
        let until = now + self.random.random_range(20..STALL_MILLIS);
        let victim: Machine = self.random.random_range(1..=MEMBERS);
        let all = self.random.random_bool(0.4);
        let name = if self.random.random_bool(0.5) { "pause" } else { "disk stall" };
        for member in members.iter_mut().filter(|member| all || member.machine == victim) {
            if name == "pause" {
                member.pause();
                self.endings.push((until, Ending::Resume(member.machine)));
            } else {
                member.stall_disk(until);
            }
        }
        *self.counts.entry(name).or_default() += 1;
        net.note(name);
        tracing::info!(fault = name, victim, all, millis = until - now, "a fault begins");
        until + CALM_MILLIS
    }

    fn begin(&mut self, now: u64, net: &Net, members: &mut [Member]) {
        let victim: Machine = self.random.random_range(1..=MEMBERS);
        let begun = match self.random.random_range(0..16) {
            0..3 => self.crash(&[victim], true, now, members),
            3..5 => self.crash(&[victim], false, now, members),
            5 => {
                let other = victim % MEMBERS + 1;
                let power = self.random.random_bool(0.5);
                self.crash(&[victim, other], power, now, members)
            }
            6 => {
                let all: Vec<Machine> = (1..=MEMBERS).collect();
                self.crash(&all, true, now, members)
            }
            7 | 8 => self.pause(victim, now, members),
            9..12 => Some(self.cut(victim, now, net)),
            12 | 13 => Some(self.degrade(victim, now, net)),
            14 => Some(self.part_from_clients(victim, now, net)),
            _ => {
                let forth = self.random.random_range(1_000..3_600_000);
                let by = if self.random.random_bool(0.5) { forth } else { -forth };
                let member = &mut members[victim - 1];
                member.jump_wall_clock(by);
                member.is_running().then_some("clock jump")
            }
        };
        // Nothing happens to one that is down or asleep already.
        let Some(name) = begun else { return };
        *self.counts.entry(name).or_default() += 1;
        net.note(name);
        tracing::info!(fault = name, victim, "a fault begins");
    }

    fn lasting(&mut self, now: u64, longest: u64) -> u64 {
        now + self.random.random_range(20..longest)
    }

    fn crash(
        &mut self,
        victims: &[Machine],
        power: bool,
        now: u64,
        members: &mut [Member],
    ) -> Option<&'static str> {
        let mut struck = None;
        for victim in victims {
            let member = &mut members[victim - 1];
            if !member.is_running() {
                continue;
            }
            self.endings.retain(|(_, ending)| *ending != Ending::Resume(*victim));
            if power {
                member.lose_power(&mut self.random);
            } else {
                member.kill();
            }
            let until = self.lasting(now, 1_200);
            self.endings.push((until, Ending::Restart(*victim)));
            struck = Some(if power { "power loss" } else { "kill" });
        }
        struck
    }

    fn pause(&mut self, victim: Machine, now: u64, members: &mut [Member]) -> Option<&'static str> {
        let member = &mut members[victim - 1];
        if !member.is_running() || member.is_paused() {
            return None;
        }
        member.pause();
        let until = self.lasting(now, 2_000);
        self.endings.push((until, Ending::Resume(victim)));
        Some("pause")
    }

    /// Apart from its peers: both ways, or only one, or only from one of them.
    fn cut(&mut self, victim: Machine, now: u64, net: &Net) -> &'static str {
        let mut peers: Vec<Machine> = (1..=MEMBERS).filter(|peer| *peer != victim).collect();
        if self.random.random_bool(0.25) {
            peers.shuffle(&mut self.random);
            peers.truncate(1);
        }
        let (inward, outward, name) = match self.random.random_range(0..4) {
            0 => (true, false, "deaf"),
            1 => (false, true, "mute"),
            _ => (true, true, "partition"),
        };
        let until = self.lasting(now, 2_500);
        for peer in peers {
            for (on, from, to) in [(inward, peer, victim), (outward, victim, peer)] {
                if on {
                    net.cut(from, to, true);
                    self.endings.push((until, Ending::Connect(from, to)));
                }
            }
        }
        name
    }

    fn part_from_clients(&mut self, victim: Machine, now: u64, net: &Net) -> &'static str {
        let until = self.lasting(now, 1_500);
        for (from, to) in [(0, victim), (victim, 0)] {
            net.cut(from, to, true);
            self.endings.push((until, Ending::Connect(from, to)));
        }
        "partition from clients"
    }

    fn degrade(&mut self, victim: Machine, now: u64, net: &Net) -> &'static str {
        let until = self.lasting(now, 2_500);
        let (slow, lossy) = (self.random.random_range(5..120), self.random.random_range(0..150));
        for other in (0..=MEMBERS).filter(|other| *other != victim) {
            for (from, to) in [(other, victim), (victim, other)] {
                net.set_quality(from, to, slow, lossy);
                self.endings.push((until, Ending::Smooth(from, to)));
            }
        }
        "slow and lossy"
    }
}

fn end(ending: Ending, now: u64, net: &Net, members: &mut [Member]) -> Result<(), String> {
    match ending {
        Ending::Restart(machine) => members[machine - 1].start(now)?,
        Ending::Resume(machine) => members[machine - 1].resume(now),
        Ending::Connect(from, to) => net.cut(from, to, false),
        Ending::Smooth(from, to) => net.set_quality(from, to, 0, 0),
    }
    Ok(())
}
