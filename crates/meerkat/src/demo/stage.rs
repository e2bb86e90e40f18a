//! The cluster on the stage: three member processes on loopback, each behind a network to cut.
//!
//! Clients know, and members advertise, only the addresses of the proxies, so that whatever a
//! client learns from the member list stays within reach of the scissors. Members talk to one
//! another directly. The processes end with this value, and with the thread that made it.

use std::ffi::OsString;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::model::Condition;
use super::proxy::Proxy;
use super::script::MEMBERS;
use super::verdict::member_name;
use crate::dev::member::Member;
use crate::dev::ports::{self, Ports};
use crate::endpoint::Endpoint;

const READY_TIMEOUT: Duration = Duration::from_secs(60);
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// For one read of one member; a member that is starting needs a few of them.
const READ_TIMEOUT: Duration = Duration::from_secs(1);

pub struct Stage {
    directory: PathBuf,
    initial_cluster: String,
    seats: Vec<Seat>,
}

struct Seat {
    ports: Ports,
    proxy: Proxy,
    /// Nothing while it is down.
    member: Option<Member>,
}

impl Stage {
    /// Starts all members. They are not ready yet.
    pub async fn start(directory: &Path) -> io::Result<Stage> {
        let ports = ports::lasting(MEMBERS as u16)?;
        let mut seats = Vec::new();
        for ports in ports {
            let proxy = Proxy::start(SocketAddr::from((Ipv4Addr::LOCALHOST, ports.client))).await?;
            seats.push(Seat { ports, proxy, member: None });
        }
        let rows = seats.iter().enumerate();
        let rows = rows.map(|(at, seat)| format!("{}={}", member_name(at), seat.ports.peer_url()));
        let initial_cluster = rows.collect::<Vec<_>>().join(",");
        let mut stage = Stage { directory: directory.to_owned(), initial_cluster, seats };
        for member in 0..MEMBERS {
            stage.raise(member)?;
        }
        Ok(stage)
    }

    /// Where clients find the members: `127.0.0.1:port` of each proxy.
    pub fn client_endpoints(&self) -> Vec<String> {
        self.seats.iter().map(|seat| format!("127.0.0.1:{}", seat.proxy.port())).collect()
    }

    /// Where a member itself listens, for those who look from behind the scenes.
    pub fn direct_endpoints(&self) -> Vec<String> {
        self.seats.iter().map(|seat| seat.ports.client_authority()).collect()
    }

    /// Starts a member that is down, with the data it had.
    pub fn raise(&mut self, member: usize) -> io::Result<()> {
        let seat = &mut self.seats[member];
        let advertised = format!("--advertise-client-urls=http://127.0.0.1:{}", seat.proxy.port());
        let extra = [OsString::from(advertised)];
        let started =
            Member::start(member_name(member), seat.ports, &self.initial_cluster, &self.directory, &extra)?;
        seat.member = Some(started);
        Ok(())
    }

    /// kill -9.
    pub async fn kill(&mut self, member: usize) -> io::Result<()> {
        self.taken(member)?.kill().await
    }

    /// SIGTERM, and KILL for one that does not stop.
    pub async fn stop(&mut self, member: usize) -> io::Result<()> {
        self.taken(member)?.stop().await
    }

    pub fn pause(&self, member: usize) -> io::Result<()> {
        self.present(member)?.pause()
    }

    pub fn go_on(&self, member: usize) -> io::Result<()> {
        self.present(member)?.go_on()
    }

    pub fn cut(&self, member: usize) {
        self.seats[member].proxy.cut();
    }

    pub fn heal(&self, member: usize) {
        self.seats[member].proxy.heal();
    }

    /// Waits until these members answer a read that needs a majority.
    pub async fn ready(&mut self, members: &[usize]) -> Result<(), String> {
        let started = Instant::now();
        for member in members {
            while let Err(reason) = self.reads(*member).await {
                self.require_alive(*member)?;
                if started.elapsed() > READY_TIMEOUT {
                    let name = member_name(*member);
                    return Err(format!("{name} is not ready after {READY_TIMEOUT:?}: {reason}"));
                }
                tokio::time::sleep(LOOK_INTERVAL).await;
            }
        }
        Ok(())
    }

    async fn reads(&self, member: usize) -> Result<(), String> {
        let endpoint = Endpoint::parse(&self.seats[member].ports.client_authority());
        let endpoint = endpoint.map_err(|failure| failure.message)?;
        crate::command::read_linearizably(endpoint, READ_TIMEOUT).await
    }

    /// A member that ended without being told to is a finding, not a fault of ours.
    pub fn require_alive(&mut self, member: usize) -> Result<(), String> {
        let Some(process) = &mut self.seats[member].member else { return Ok(()) };
        let how = match process.ended() {
            Ok(None) => return Ok(()),
            Ok(Some(status)) => status.to_string(),
            Err(error) => error.to_string(),
        };
        let name = &process.name;
        Err(format!("{name} has ended by itself ({how}); the end of its log:\n{}", process.last_lines()))
    }

    /// Ends every process and waits for it. A paused one is woken first, so that it can hear.
    pub async fn strike_the_set(&mut self) {
        let ends = self.seats.iter_mut().filter_map(|seat| seat.member.take()).map(|mut member| async move {
            // Whoever is not paused, or is dead already, takes no harm from either.
            drop(member.go_on());
            drop(member.stop().await);
        });
        futures::future::join_all(ends).await;
    }

    fn taken(&mut self, member: usize) -> io::Result<Member> {
        self.seats[member].member.take().ok_or_else(|| absent(member))
    }

    fn present(&self, member: usize) -> io::Result<&Member> {
        self.seats[member].member.as_ref().ok_or_else(|| absent(member))
    }
}

fn absent(member: usize) -> io::Error {
    io::Error::other(format!("{} is down already", member_name(member)))
}

/// The member with this client address: the one whose port ends it.
pub fn member_at(endpoint: &str, client_endpoints: &[String]) -> Option<usize> {
    let port = |text: &str| text.trim_end_matches('/').rsplit(':').next().map(str::to_owned);
    let asked = port(endpoint)?;
    client_endpoints.iter().position(|known| port(known).as_ref() == Some(&asked))
}

/// What a fault turns a member into.
pub fn condition_under(kind: super::script::Kind) -> Condition {
    use super::script::Kind;
    match kind {
        Kind::KillWatched | Kind::KillLeader | Kind::Majority | Kind::Restart => Condition::Down,
        Kind::Pause => Condition::Paused,
        Kind::Cut => Condition::Cut,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_is_known_by_its_port_however_it_is_written() {
        let known = ["127.0.0.1:4001".to_owned(), "127.0.0.1:14001".to_owned()];
        assert_eq!(member_at("http://127.0.0.1:4001", &known), Some(0));
        assert_eq!(member_at("127.0.0.1:14001/", &known), Some(1));
        assert_eq!(member_at("127.0.0.1:400", &known), None);
    }
}
