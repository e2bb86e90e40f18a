//! A lease load as asked for, turned into one that is known to make sense.

use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::bench::BenchArgs;
use crate::bench::schedule::Length;
use crate::endpoint::Endpoint;
use crate::failure::Failure;

const CLIENTS_DEFAULT: usize = 64;
const GRANTS_DEFAULT: u64 = 10_000;
const KEEP_ALIVE_DEFAULT: Duration = Duration::from_secs(5);
const PHASE_DEFAULT: Duration = Duration::from_secs(4);
/// Of the streams that renew while puts are made. Real clients have few connections.
const STREAMS_DEFAULT: usize = 60;
const CONNECTIONS_DEFAULT: usize = 6;
/// Renewals stand still for a phase, and no lease may be lost by that.
const PHASES_PER_TTL: u32 = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LeaseKind {
    /// Streams that renew leases, each again as soon as it was answered.
    #[value(name = "lease-keepalive")]
    KeepAlive,
    /// Grants of new leases.
    #[value(name = "lease-grant")]
    Grant,
    /// Puts, in turn while many leases are renewed in time and while they are not.
    #[value(name = "lease-renewed-puts")]
    RenewedPuts,
}

impl LeaseKind {
    pub fn name(self) -> &'static str {
        match self {
            LeaseKind::KeepAlive => "lease-keepalive",
            LeaseKind::Grant => "lease-grant",
            LeaseKind::RenewedPuts => "lease-renewed-puts",
        }
    }

    fn leases_default(self) -> usize {
        match self {
            LeaseKind::KeepAlive => 1_000,
            LeaseKind::Grant => 0,
            LeaseKind::RenewedPuts => 100_000,
        }
    }
}

#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Lease loads")]
pub struct LeaseArgs {
    /// Leases to renew, granted beforehand and revoked in the end [default: 1000 lease-keepalive, 100000 lease-renewed-puts]
    #[arg(long)]
    leases: Option<usize>,
    /// Seconds that a lease lives without being renewed
    #[arg(long, default_value_t = 60)]
    lease_ttl: u32,
    /// Streams that renew while puts are made [default: 60]
    #[arg(long)]
    lease_streams: Option<usize>,
    /// Connections of these streams, in turn to each endpoint [default: 6]
    #[arg(long)]
    lease_conns: Option<usize>,
    /// How often puts are measured without and with renewals, in turn; only lease-renewed-puts
    #[arg(long, default_value_t = 3)]
    pairs: usize,
}

/// A load that makes sense.
pub struct Settings {
    pub kind: LeaseKind,
    pub endpoints: Vec<Endpoint>,
    pub leases: usize,
    pub ttl_s: u32,
    /// Streams that renew, or workers that grant.
    pub streams: usize,
    pub connections: usize,
    /// Of the measurement; of puts, of one phase.
    pub length: Length,
    pub rate: Option<f64>,
    pub pairs: usize,
    pub pids: Vec<u32>,
    pub patience: Duration,
}

impl Settings {
    pub fn new(args: &BenchArgs, kind: LeaseKind, endpoints: Vec<Endpoint>) -> Result<Settings, Failure> {
        let lease = &args.lease;
        let leases = lease.leases.unwrap_or(kind.leases_default());
        refuse_nonsense(args, kind, leases)?;
        let clients = args.clients.unwrap_or(CLIENTS_DEFAULT);
        let (streams, connections) = match kind {
            LeaseKind::KeepAlive => (clients.min(leases), args.conns.unwrap_or(endpoints.len())),
            LeaseKind::Grant => (clients, args.conns.unwrap_or(endpoints.len())),
            LeaseKind::RenewedPuts => (
                lease.lease_streams.unwrap_or(STREAMS_DEFAULT).min(leases),
                lease.lease_conns.unwrap_or(CONNECTIONS_DEFAULT),
            ),
        };
        let length = match (args.total, args.duration, kind) {
            (_, Some(duration), _) => Length::Time(duration),
            (Some(total), None, _) => Length::Requests(total),
            (None, None, LeaseKind::KeepAlive) => Length::Time(KEEP_ALIVE_DEFAULT),
            (None, None, LeaseKind::Grant) => Length::Requests(GRANTS_DEFAULT),
            (None, None, LeaseKind::RenewedPuts) => Length::Time(PHASE_DEFAULT),
        };
        let settings = Settings {
            kind,
            endpoints,
            leases,
            ttl_s: lease.lease_ttl,
            streams,
            connections: connections.min(streams),
            length,
            rate: args.rate,
            pairs: lease.pairs,
            pids: args.watch.pids.clone(),
            patience: args.timeout,
        };
        settings.refuse_long_phases()?;
        Ok(settings)
    }

    pub fn ttl(&self) -> Duration {
        Duration::from_secs(u64::from(self.ttl_s))
    }

    /// The arguments of the puts of one phase.
    pub fn puts(&self, args: &BenchArgs) -> BenchArgs {
        let (total, duration) = match self.length {
            Length::Requests(total) => (Some(total), None),
            Length::Time(duration) => (None, Some(duration)),
        };
        let clients = Some(args.clients.unwrap_or(CLIENTS_DEFAULT));
        BenchArgs { total, duration, clients, ..args.clone() }
    }

    fn refuse_long_phases(&self) -> Result<(), Failure> {
        match self.length {
            Length::Time(phase)
                if self.kind == LeaseKind::RenewedPuts && phase > self.ttl() / PHASES_PER_TTL =>
            {
                Err(Failure::bad_arguments(format!(
                    "--duration may be at most a {PHASES_PER_TTL}th of --lease-ttl: renewals stand still for \
                     as long, and no lease may expire"
                )))
            }
            _ => Ok(()),
        }
    }
}

fn refuse_nonsense(args: &BenchArgs, kind: LeaseKind, leases: usize) -> Result<(), Failure> {
    let refused = |text: String| Err(Failure::bad_arguments(text));
    if leases == 0 && kind != LeaseKind::Grant {
        return refused(format!("--leases must be at least 1 for {}", kind.name()));
    }
    if args.lease.lease_streams == Some(0) || args.lease.lease_conns == Some(0) || args.lease.pairs == 0 {
        return refused("--lease-streams, --lease-conns and --pairs must be at least 1".to_owned());
    }
    if args.lease.lease_ttl < 3 {
        return refused("--lease-ttl must be at least 3: leases are renewed in a third of it".to_owned());
    }
    if kind == LeaseKind::KeepAlive && args.rate.is_some() {
        return refused(
            "--rate is not for lease-keepalive: a stream asks as soon as it was answered".to_owned(),
        );
    }
    if args.threads != 1 && kind != LeaseKind::RenewedPuts {
        return refused(format!("--threads is not for {}: one thread does it", kind.name()));
    }
    if args.prefill.is_some() {
        return refused("--prefill is not for lease loads: they read nothing".to_owned());
    }
    Ok(())
}
