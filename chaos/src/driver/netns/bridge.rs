//! The network that a cluster stands on: a bridge in a namespace of its own, a namespace for each
//! member, and one cable to this machine, so that no rule of this machine's own firewall is met.
//!
//! ```text
//! this machine ── hub (bridge) ─┬─ room 0
//!        .1                     ├─ room 1   .11
//!                               └─ room 2   .12
//! ```
//!
//! Names carry the process id, so that two runs never meet, and what a killed run left behind is
//! known and removed by the next one.

use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::Failure;
use crate::driver::firewall::{self, Room, run, works};

/// What all our namespaces and the cable begin with; the process id follows.
const PREFIX: &str = "mkt";
/// The first member's address ends in this.
const FIRST_ADDRESS: usize = 10;
const ROOMS_MAX: usize = 200;
const SUBNETS_TRIED: u32 = 64;

static BUILT: AtomicU32 = AtomicU32::new(0);

#[derive(Debug)]
pub struct Bridge {
    /// Also the cable's name here, where a name has at most 15 letters.
    name: String,
    /// The first three bytes of every address.
    subnet: [u8; 3],
    rooms: Vec<Ipv4Addr>,
    standing: bool,
}

impl Bridge {
    /// Builds the hub and the cable; no rooms yet.
    pub fn build() -> Result<Self, Failure> {
        // SAFETY: geteuid has no preconditions and cannot fail.
        let root = unsafe { libc::geteuid() } == 0;
        if !root {
            return Err(Failure::Missing(
                "network namespaces need root; run as root to have them".to_owned(),
            ));
        }
        for (probe, package) in [(["ip", "-V"], "iproute2"), (["nft", "-v"], "nftables")] {
            if !works(&probe) {
                return Err(Failure::Missing(format!(
                    "the command {} is not here; it is in the package {package}",
                    probe[0]
                )));
            }
        }
        sweep()?;
        let number = BUILT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{PREFIX}{}x{number}", std::process::id());
        let subnet = free_subnet(std::process::id().wrapping_mul(7).wrapping_add(number))?;
        let bridge = Self { name, subnet, rooms: Vec::new(), standing: true };
        run(&["ip", "netns", "add", &bridge.hub()]).map_err(|failure| {
            Failure::Missing(format!(
                "no network namespaces here (is this a container without the rights?): {failure}"
            ))
        })?;
        bridge.wire_hub()?;
        Ok(bridge)
    }

    fn wire_hub(&self) -> Result<(), Failure> {
        let (hub, name) = (self.hub(), self.name.as_str());
        let here = format!("{}/24", self.at(1));
        run(&["ip", "-n", &hub, "link", "add", "bridge", "type", "bridge"])?;
        run(&["ip", "-n", &hub, "link", "set", "bridge", "up"])?;
        run(&["ip", "link", "add", name, "type", "veth", "peer", "name", "cable", "netns", &hub])?;
        run(&["ip", "-n", &hub, "link", "set", "cable", "master", "bridge", "up"])?;
        run(&["ip", "address", "add", &here, "dev", name])?;
        run(&["ip", "link", "set", name, "up"])
    }

    /// Adds the room of the next member and returns its address.
    pub fn add_room(&mut self, number: usize) -> Result<Ipv4Addr, Failure> {
        if number != self.rooms.len() || ROOMS_MAX <= number {
            return Err(Failure::harness(format!("room {number} cannot follow {}", self.rooms.len())));
        }
        let address = self.at(u8::try_from(FIRST_ADDRESS + number).unwrap_or(u8::MAX));
        let (hub, room, port) = (self.hub(), self.room_name(number), format!("port{number}"));
        run(&["ip", "netns", "add", &room])?;
        self.rooms.push(address);
        run(&[
            "ip", "-n", &hub, "link", "add", &port, "type", "veth", "peer", "name", "door", "netns", &room,
        ])?;
        run(&["ip", "-n", &hub, "link", "set", &port, "master", "bridge", "up"])?;
        run(&["ip", "-n", &room, "address", "add", &format!("{address}/24"), "dev", "door"])?;
        run(&["ip", "-n", &room, "link", "set", "door", "up"])?;
        run(&["ip", "-n", &room, "link", "set", "lo", "up"])?;
        // Proves that rules can be set before a run counts on it.
        firewall::apply(&self.room(number), &[])?;
        Ok(address)
    }

    pub fn room(&self, number: usize) -> Room {
        Room::Named(self.room_name(number))
    }

    pub fn address(&self, number: usize) -> Ipv4Addr {
        self.rooms[number]
    }

    /// Whether the kernel can delay packets: tried, in the room of a member.
    pub fn can_delay(&self, number: usize) -> bool {
        let room = self.room_name(number);
        let tried = works(&["tc", "-n", &room, "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms"]);
        if tried {
            works(&["tc", "-n", &room, "qdisc", "del", "dev", "lo", "root"]);
        }
        tried
    }

    /// Delays what a member sends to these others, and nothing else.
    pub fn delay(&self, number: usize, delays: &[(Ipv4Addr, Duration, Duration)]) -> Result<(), Failure> {
        let room = self.room_name(number);
        // Fails if there was none, which is as good.
        works(&["tc", "-n", &room, "qdisc", "del", "dev", "door", "root"]);
        for line in delay_lines(delays) {
            let words: Vec<&str> = ["tc", "-n", &room].into_iter().chain(line.split(' ')).collect();
            run(&words)?;
        }
        Ok(())
    }

    /// Removes everything, and says what could not be removed.
    pub fn tear_down(mut self) -> Result<(), Failure> {
        self.remove()
    }

    fn remove(&mut self) -> Result<(), Failure> {
        if !std::mem::take(&mut self.standing) {
            return Ok(());
        }
        // All are tried, whatever becomes of the first; the cable goes with the hub.
        let names = (0..self.rooms.len()).map(|number| self.room_name(number)).chain([self.hub()]);
        let ended: Vec<_> = names.map(|name| run(&["ip", "netns", "del", &name])).collect();
        ended.into_iter().collect()
    }

    fn hub(&self) -> String {
        format!("{}-hub", self.name)
    }

    fn room_name(&self, number: usize) -> String {
        format!("{}-{number}", self.name)
    }

    fn at(&self, last: u8) -> Ipv4Addr {
        let [a, b, c] = self.subnet;
        Ipv4Addr::new(a, b, c, last)
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        if let Err(failure) = self.remove() {
            eprintln!("netns: {failure}");
        }
    }
}

/// One class for what is not delayed, which is where packets go that no filter knows, and one for each
/// receiver.
fn delay_lines(delays: &[(Ipv4Addr, Duration, Duration)]) -> Vec<String> {
    if delays.is_empty() {
        return Vec::new();
    }
    // Every priority of a packet is mapped to the first class; a `prio` has at least two.
    let bands = delays.len() + 1;
    let map = ["0"; 16].join(" ");
    let mut lines = vec![format!("qdisc add dev door root handle 1: prio bands {bands} priomap {map}")];
    for (index, (to, delay, jitter)) in delays.iter().enumerate() {
        let class = index + 2;
        let (delay, jitter) = (delay.as_millis(), jitter.as_millis());
        lines.push(format!(
            "qdisc add dev door parent 1:{class} netem delay {delay}ms {jitter}ms limit 100000"
        ));
        lines.push(format!(
            "filter add dev door parent 1: protocol ip prio 1 u32 match ip dst {to}/32 flowid 1:{class}"
        ));
    }
    lines
}

/// A private network that this machine does not know yet.
fn free_subnet(start: u32) -> Result<[u8; 3], Failure> {
    let output = Command::new("ip").args(["-4", "route", "show", "table", "all"]).output()?;
    let routes = String::from_utf8_lossy(&output.stdout).into_owned();
    (0..SUBNETS_TRIED)
        .map(|step| subnet(start.wrapping_add(step)))
        .find(|[a, b, c]| !routes.contains(&format!("{a}.{b}.{c}.")))
        .ok_or_else(|| Failure::harness("no private network is free"))
}

/// One of 16,384 networks from 10.160.0.0 on.
fn subnet(number: u32) -> [u8; 3] {
    let [.., high, low] = number.to_be_bytes();
    [10, 160 + (high & 63), low]
}

/// Removes what runs left behind whose process is gone.
fn sweep() -> Result<(), Failure> {
    let output = Command::new("ip").args(["netns", "list"]).output()?;
    let listed = String::from_utf8_lossy(&output.stdout).into_owned();
    for name in listed.lines().filter_map(|line| line.split_whitespace().next()) {
        let left = owner(name).is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists());
        if left {
            // Another run may be sweeping as well.
            works(&["ip", "netns", "del", name]);
        }
    }
    Ok(())
}

/// The process that made a namespace, if it was one of ours.
fn owner(name: &str) -> Option<u32> {
    let (pid, rest) = name.strip_prefix(PREFIX)?.split_once('x')?;
    let (number, _) = rest.split_once('-')?;
    number.parse::<u32>().ok()?;
    pid.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_names_have_an_owner() {
        assert_eq!(owner("mkt41x0-hub"), Some(41));
        assert_eq!(owner("mkt41x12-3"), Some(41));
        for name in ["mkt41", "mkt41x0", "cni-41x0-hub", "mktx0-hub", "mkt41xa-hub"] {
            assert_eq!(owner(name), None, "{name}");
        }
    }

    #[test]
    fn subnets_are_private_and_differ() {
        assert_eq!(subnet(0), [10, 160, 0]);
        assert_eq!(subnet(0x3fff), [10, 223, 255]);
        assert_eq!(subnet(0x4000), subnet(0));
    }

    #[test]
    fn what_is_not_delayed_goes_where_no_filter_points() {
        let to = Ipv4Addr::new(10, 160, 0, 11);
        assert!(delay_lines(&[]).is_empty());
        let lines = delay_lines(&[(to, Duration::from_millis(40), Duration::from_millis(5))]);
        assert!(lines[0].contains("bands 2 priomap 0 0"), "{lines:?}");
        assert!(lines[1].contains("parent 1:2 netem delay 40ms 5ms"), "{lines:?}");
        assert!(lines[2].ends_with("dst 10.160.0.11/32 flowid 1:2"), "{lines:?}");
    }
}
