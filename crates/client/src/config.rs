//! What a client is told once, when it connects.
//!
//! Every number has a default that suits a cluster in one region. Nothing here is read again from
//! the environment: two clients in one process may differ in everything.

#[cfg(feature = "tls")]
use crate::tls::Tls;
use std::fmt;
use std::time::Duration;

/// How to reach a cluster. Start with [`Config::new`] and change what does not fit.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    pub(crate) endpoints: Vec<String>,
    pub(crate) request_timeout: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) probe_interval: Duration,
    pub(crate) standby_interval: Duration,
    pub(crate) probe_timeout: Duration,
    pub(crate) sync_interval: Option<Duration>,
    pub(crate) lazy: bool,
    pub(crate) login: Option<Login>,
    pub(crate) slow_watches: Option<SlowWatches>,
    pub(crate) watch_progress_interval: Option<Duration>,
    #[cfg(feature = "tls")]
    pub(crate) tls: Tls,
}

/// Who this client is.
#[derive(Clone)]
pub(crate) struct Login {
    pub(crate) user: String,
    pub(crate) password: String,
}

/// What a Meerkat member does with a watch that falls behind because its client does not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlowWatches {
    /// Sends every event later.
    Wait,
    /// Sends only the latest event of each key that it missed.
    Coalesce,
    /// Cancels the watch, with the revision to resume at as the reason.
    Cancel,
}

impl SlowWatches {
    pub(crate) fn name(self) -> &'static str {
        match self {
            SlowWatches::Wait => "wait",
            SlowWatches::Coalesce => "coalesce",
            SlowWatches::Cancel => "cancel",
        }
    }
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Configurations end up in logs; passwords must not.
        f.debug_struct("Login").field("user", &self.user).finish_non_exhaustive()
    }
}

impl Config {
    /// A configuration for these endpoints: `host:port`, or a URL with `http` or `https`.
    pub fn new<E: Into<String>>(endpoints: impl IntoIterator<Item = E>) -> Config {
        Config {
            endpoints: endpoints.into_iter().map(Into::into).collect(),
            // Above the seven seconds that an etcd member gives a proposal of its own.
            request_timeout: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(2),
            // With the timeout below: a member that is frozen or cut off is found within 3 s.
            probe_interval: Duration::from_secs(1),
            standby_interval: Duration::from_secs(5),
            probe_timeout: Duration::from_secs(2),
            sync_interval: None,
            lazy: false,
            login: None,
            slow_watches: None,
            watch_progress_interval: None,
            #[cfg(feature = "tls")]
            tls: Tls::new(),
        }
    }

    /// How long a request may take, attempts and pauses together, unless it says otherwise. 10 s.
    #[must_use]
    pub fn request_timeout(mut self, timeout: Duration) -> Config {
        self.request_timeout = timeout;
        self
    }

    /// How long opening one connection may take. 2 s.
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> Config {
        self.connect_timeout = timeout;
        self
    }

    /// How often a member in use is asked for its status. 1 s.
    ///
    /// This is a call and not an HTTP/2 ping, because etcd closes connections that ping more often
    /// than every 5 s, and because a ping cannot tell whether the member still has a leader.
    #[must_use]
    pub fn probe_interval(mut self, interval: Duration) -> Config {
        self.probe_interval = interval;
        self
    }

    /// How often a member that is not in use is asked for its status. 5 s.
    #[must_use]
    pub fn standby_interval(mut self, interval: Duration) -> Config {
        self.standby_interval = interval;
        self
    }

    /// How long a member may take to answer such a question before it counts as gone. 2 s.
    #[must_use]
    pub fn probe_timeout(mut self, timeout: Duration) -> Config {
        self.probe_timeout = timeout;
        self
    }

    /// Asks the cluster for its members this often and uses their client URLs as endpoints. Off
    /// unless set; on demand there is `client.cluster().sync()`.
    #[must_use]
    pub fn sync_interval(mut self, interval: Duration) -> Config {
        self.sync_interval = Some(interval);
        self
    }

    /// Connecting succeeds at once, whether or not a member can be reached yet.
    #[must_use]
    pub fn lazy(mut self) -> Config {
        self.lazy = true;
        self
    }

    /// Logs in as this user. The token is renewed when the cluster does not know it any more.
    #[must_use]
    pub fn user(mut self, user: impl Into<String>, password: impl Into<String>) -> Config {
        self.login = Some(Login { user: user.into(), password: password.into() });
        self
    }

    /// Leaves it to a Meerkat member what becomes of a watch whose application reads slowly, instead of
    /// parking the watch. A full buffer then stops the reading of all watches that share its stream.
    #[must_use]
    pub fn slow_watches(mut self, policy: SlowWatches) -> Config {
        self.slow_watches = Some(policy);
        self
    }

    /// How often a Meerkat member sends marks of its own accord, one second or more. As the member is
    /// configured unless set.
    #[must_use]
    pub fn watch_progress_interval(mut self, interval: Duration) -> Config {
        self.watch_progress_interval = Some(interval);
        self
    }

    /// Whom to trust, and who this client is, on `https` endpoints.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls(mut self, tls: Tls) -> Config {
        self.tls = tls;
        self
    }
}
