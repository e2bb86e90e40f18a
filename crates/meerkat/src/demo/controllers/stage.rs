//! Three members on loopback with both doors open. They end with this value, and with the thread that
//! made it.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use meerkat_client::listwatch::{Door, Resource};

use super::super::script::MEMBERS;
use super::super::verdict::member_name;
use crate::dev::member::Member;
use crate::dev::ports::{self, Ports};

const READY_TIMEOUT: Duration = Duration::from_secs(60);
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// For one read of one member.
const READ_TIMEOUT: Duration = Duration::from_secs(1);

pub struct Stage {
    directory: PathBuf,
    initial_cluster: String,
    seats: Vec<Seat>,
}

struct Seat {
    ports: Ports,
    door: u16,
    /// Nothing while it is down.
    member: Option<Member>,
}

impl Stage {
    /// Starts all members. They are not ready yet.
    pub fn start(directory: &Path) -> io::Result<Stage> {
        // One pair for each member, and of another pair one half for its second door.
        let ports = ports::lasting(2 * MEMBERS as u16)?;
        let (own, doors) = ports.split_at(MEMBERS);
        let seat = |(ports, door): (&Ports, &Ports)| Seat { ports: *ports, door: door.client, member: None };
        let seats: Vec<Seat> = own.iter().zip(doors).map(seat).collect();
        let rows = seats.iter().enumerate();
        let rows = rows.map(|(at, seat)| format!("{}={}", member_name(at), seat.ports.peer_url()));
        let initial_cluster = rows.collect::<Vec<_>>().join(",");
        let mut stage = Stage { directory: directory.to_owned(), initial_cluster, seats };
        for member in 0..MEMBERS {
            stage.raise(member)?;
        }
        Ok(stage)
    }

    /// Where the doors are.
    pub fn doors(&self) -> Vec<String> {
        self.seats.iter().map(|seat| format!("http://127.0.0.1:{}", seat.door)).collect()
    }

    /// Starts a member that is down, with the data it had.
    pub fn raise(&mut self, member: usize) -> io::Result<()> {
        let seat = &mut self.seats[member];
        let extra = [OsString::from(format!("--listen-listwatch-urls=http://127.0.0.1:{}", seat.door))];
        let name = member_name(member);
        seat.member = Some(Member::start(name, seat.ports, &self.initial_cluster, &self.directory, &extra)?);
        Ok(())
    }

    /// kill -9.
    pub async fn kill(&mut self, member: usize) -> io::Result<()> {
        match self.seats[member].member.take() {
            Some(mut process) => process.kill().await,
            None => Err(io::Error::other(format!("{} is down already", member_name(member)))),
        }
    }

    /// Waits until this member answers a read of what is now.
    pub async fn ready(&mut self, member: usize) -> Result<(), String> {
        let started = Instant::now();
        let door = Door::new([self.doors()[member].clone()]).map_err(|error| error.to_string())?;
        let namespaces = door.timeout(READ_TIMEOUT).objects(&Resource::core("namespaces"));
        while let Err(reason) = namespaces.list().await {
            self.require_alive(member)?;
            if started.elapsed() > READY_TIMEOUT {
                let name = member_name(member);
                return Err(format!("{name} is not ready after {READY_TIMEOUT:?}: {reason}"));
            }
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
        Ok(())
    }

    /// A member that ended without being told to is a finding.
    fn require_alive(&mut self, member: usize) -> Result<(), String> {
        let Some(process) = &mut self.seats[member].member else { return Ok(()) };
        let how = match process.ended() {
            Ok(None) => return Ok(()),
            Ok(Some(status)) => status.to_string(),
            Err(error) => error.to_string(),
        };
        let name = &process.name;
        Err(format!("{name} has ended by itself ({how}); the end of its log:\n{}", process.last_lines()))
    }

    /// Ends every process and waits for it.
    pub async fn strike_the_set(&mut self) {
        let ends = self.seats.iter_mut().filter_map(|seat| seat.member.take());
        let ends = ends.map(|mut member| async move { drop(member.stop().await) });
        futures::future::join_all(ends).await;
    }
}
