//! Who a request comes from, and whether that one may have it done.

use super::credentials::Credentials;
use super::jwt::Jwt;
use super::simple::{self, SimpleTokens};
use meerkat_raft::{ProposeError, RaftNode};
use meerkat_state::{AuthBook, Need, Pinned, needs};
use meerkat_types::{
    Access, Asker, AuthRefusal, AuthRevision, Command, KeyRange, LogIndex, Outcome, Refusal, UserName, Way,
};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often a write is let in anew because users or roles changed before it was applied.
const ADMISSIONS_MAX: usize = 5;

/// Who asks, as far as the request can be believed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Caller {
    /// Nobody said, or nobody had to.
    Nobody,
    /// With a token that is not known, or not any more.
    BadToken,
    User {
        name: UserName,
        proof: Proof,
    },
}

/// What speaks for a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Proof {
    /// The token that this entry of the log gave out.
    Token { index: LogIndex },
    /// A token that was signed under this revision of users and roles.
    Signed(AuthRevision),
    /// A certificate, or what was proven before.
    Name,
}

/// An extension of requests whose caller is somebody, but no administrator.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NotAdmin(pub(crate) AuthRefusal);

impl Caller {
    /// Of a request that came through the door of authentication.
    pub(crate) fn of<T>(request: &tonic::Request<T>) -> Caller {
        request.extensions().get::<Caller>().cloned().unwrap_or(Caller::Nobody)
    }

    pub(crate) fn is(&self, user: &str) -> bool {
        matches!(self, Caller::User { name, .. } if name.as_str() == user)
    }

    pub(crate) fn name(&self) -> Option<&UserName> {
        match self {
            Caller::User { name, .. } => Some(name),
            Caller::Nobody | Caller::BadToken => None,
        }
    }

    /// Whether the caller may have this at that point of the state. Leases count as having no keys.
    pub(crate) fn may<'a>(
        &self,
        at: &Pinned,
        needs: impl IntoIterator<Item = Need<'a>>,
    ) -> Result<(), Refusal> {
        if at.auth().is_enabled() {
            self.judged_by(at.auth(), needs)?;
        }
        Ok(())
    }

    fn judged_by<'a>(
        &self,
        book: &AuthBook,
        needs: impl IntoIterator<Item = Need<'a>>,
    ) -> Result<Asker, AuthRefusal> {
        let asker = self.asker(book)?;
        let Ok(judged) = book.judge(&asker, needs, |_| Ok::<_, Infallible>(Vec::new()));
        judged.map(|()| asker)
    }

    fn asker(&self, book: &AuthBook) -> Result<Asker, AuthRefusal> {
        let Caller::User { name, proof } = self else {
            let stranger = book.is_enabled() && *self == Caller::BadToken;
            return if stranger { Err(AuthRefusal::InvalidToken) } else { Ok(Asker::NOBODY) };
        };
        let voided = match proof {
            _ if !book.is_enabled() => return Ok(Asker::NOBODY),
            // It may have been void already when a member that was behind still knew it.
            Proof::Token { index } if !book.token_stands(name.as_str(), *index) => {
                Some(AuthRefusal::InvalidToken)
            }
            // For administrators too, whom the state judges by their role alone: the user of that name
            // may be another by now.
            Proof::Signed(revision) if *revision < book.revision() => Some(AuthRefusal::OldRevision),
            Proof::Token { .. } | Proof::Signed(_) | Proof::Name => None,
        };
        match voided {
            Some(refusal) => Err(refusal),
            None => Ok(Asker { user: Some(name.clone()), revision: book.revision(), way: Way::Direct }),
        }
    }
}

/// What gives tokens their meaning.
pub(crate) enum Tokens {
    Simple(Arc<SimpleTokens>),
    Jwt(Box<Jwt>),
}

/// Clones are the same guard.
#[derive(Clone)]
pub(crate) struct Guard {
    raft: Arc<RaftNode>,
    tokens: Arc<Tokens>,
    timeout: Duration,
}

impl Guard {
    /// `timeout`: how long a token may be waited for that this member has not heard of yet.
    pub(crate) fn new(raft: Arc<RaftNode>, tokens: Arc<Tokens>, timeout: Duration) -> Guard {
        Guard { raft, tokens, timeout }
    }

    /// Whether callers must say who they are.
    pub(crate) fn is_on(&self) -> bool {
        self.raft.reader().auth_enabled()
    }

    /// The newest point of the state.
    pub(crate) fn pin(&self) -> Pinned {
        self.raft.reader().pin()
    }

    pub(crate) fn tokens(&self) -> &Tokens {
        &self.tokens
    }

    /// Who this is, once this member knows what the token's maker knew.
    pub(crate) async fn caller(&self, credentials: &Credentials) -> Caller {
        if let (Tokens::Simple(_), Some(token)) = (self.tokens(), &credentials.token)
            && let Some((_, index)) = simple::read(token)
        {
            let known = tokio::time::timeout(self.timeout, self.raft.applied().reached(index));
            if known.await.is_err() {
                return Caller::BadToken;
            }
        }
        self.caller_now(credentials)
    }

    pub(crate) fn caller_now(&self, credentials: &Credentials) -> Caller {
        if !self.is_on() {
            return Caller::Nobody;
        }
        let known = |name: &str| UserName::new(name);
        match (&credentials.token, &credentials.common_name) {
            (Some(token), _) => self.bearer(token).unwrap_or(Caller::BadToken),
            (None, Some(name)) => {
                known(name).map_or(Caller::Nobody, |name| Caller::User { name, proof: Proof::Name })
            }
            (None, None) => Caller::Nobody,
        }
    }

    fn bearer(&self, token: &str) -> Option<Caller> {
        match self.tokens() {
            Tokens::Simple(tokens) => {
                let (name, index) = tokens.user(token, &self.raft.reader().auth(), Instant::now())?;
                Some(Caller::User { name, proof: Proof::Token { index } })
            }
            Tokens::Jwt(jwt) => {
                let (name, revision) = jwt.read(token)?;
                Some(Caller::User { name, proof: Proof::Signed(revision) })
            }
        }
    }

    /// Whether somebody may read these keys, by what this member knows now.
    pub(crate) fn may_read_now(&self, credentials: &Credentials, keys: &KeyRange) -> Result<(), Refusal> {
        if !self.is_on() {
            return Ok(());
        }
        let caller = self.caller_now(credentials);
        caller.may(&self.raft.reader().pin(), [Need::Keys(Access::Read, keys)])
    }

    /// As [`Guard::permit`], by what this member knows, whether it is behind or not.
    pub(crate) fn permit_now(&self, caller: &Caller, needs: &[Need<'_>]) -> Result<Asker, AuthRefusal> {
        caller.judged_by(&self.raft.reader().auth(), needs.iter().copied())
    }

    /// Waits until this member knows all that was acknowledged before; whether it does.
    pub(crate) async fn catch_up(&self) -> bool {
        !self.raft.leadership().is_learner() && self.raft.reads().ready_to_read().await.is_ok()
    }

    /// Whether the caller may have this now. A refusal knows all that was acknowledged before.
    pub(crate) async fn permit(&self, caller: &Caller, needs: &[Need<'_>]) -> Result<Asker, AuthRefusal> {
        let judge = || self.permit_now(caller, needs);
        let refusal = match judge() {
            Err(refusal) => refusal,
            permitted => return permitted,
        };
        // This member may be behind with what it knows of users and roles.
        if self.catch_up().await { judge() } else { Err(refusal) }
    }

    /// Proposes for the caller. A refusal is an outcome, wherever it comes from.
    pub(crate) async fn propose(
        &self,
        caller: &Caller,
        command: Command,
        bytes_max: usize,
    ) -> Result<Outcome, ProposeError> {
        if !self.is_on() {
            let nobody = Some(Asker::NOBODY);
            return self.raft.proposer().propose_for(nobody, command, bytes_max).await;
        }
        // In a box: the frequent case above does not carry its size.
        Box::pin(self.propose_judged(caller, command, bytes_max)).await
    }

    async fn propose_judged(
        &self,
        caller: &Caller,
        command: Command,
        bytes_max: usize,
    ) -> Result<Outcome, ProposeError> {
        let mut outcome = Outcome::Refused(Refusal::Auth(AuthRefusal::OldRevision));
        for _ in 0..ADMISSIONS_MAX {
            let asker = match self.permit(caller, &needs(&command)).await {
                Ok(asker) => asker,
                Err(refusal) => return Ok(Outcome::Refused(Refusal::Auth(refusal))),
            };
            let proposer = self.raft.proposer();
            outcome = proposer.propose_for(Some(asker), command.clone(), bytes_max).await?;
            // Refused by all members, so nothing was done; and this one knows by now what changed.
            if outcome != Outcome::Refused(Refusal::Auth(AuthRefusal::OldRevision)) {
                break;
            }
        }
        Ok(outcome)
    }
}
