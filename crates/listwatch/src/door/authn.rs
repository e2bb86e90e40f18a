//! Who asks.

use futures::future::BoxFuture;
use meerkat_kubernetes::status::Refusal;
use std::net::SocketAddr;

pub const ANONYMOUS: &str = "system:anonymous";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    pub name: String,
    pub groups: Vec<String>,
    /// By which revision of users and roles they are known; 0 where there are none.
    pub rules: u64,
}

impl User {
    /// `None` for nobody in particular.
    pub fn known_name(&self) -> Option<&str> {
        Some(self.name.as_str()).filter(|name| *name != ANONYMOUS)
    }

    pub fn anonymous() -> User {
        User { name: ANONYMOUS.to_owned(), groups: vec!["system:unauthenticated".to_owned()], rules: 0 }
    }
}

/// What a request says of who sent it.
#[derive(Clone, Debug)]
pub struct Credentials {
    /// Of the `Authorization` header, or of a WebSocket's subprotocol.
    pub bearer: Option<String>,
    pub peer: SocketAddr,
}

impl Credentials {
    /// Who has the requests that are counted together. Those without a name are known by their address.
    pub fn counted_as(&self, user: &User) -> String {
        if user.name == ANONYMOUS { self.peer.ip().to_string() } else { user.name.clone() }
    }
}

pub trait Authenticator: Send + Sync + 'static {
    fn user<'a>(&'a self, credentials: &'a Credentials) -> BoxFuture<'a, Result<User, Refusal>>;
}

/// Everybody is nobody in particular.
#[derive(Debug)]
pub struct Anonymous;

impl Authenticator for Anonymous {
    fn user<'a>(&'a self, _credentials: &'a Credentials) -> BoxFuture<'a, Result<User, Refusal>> {
        Box::pin(async { Ok(User::anonymous()) })
    }
}

/// The token of an `Authorization` header.
pub fn bearer(header: &str) -> Option<String> {
    let (scheme, token) = header.trim().split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then(|| token.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bearer_token_is_what_follows_the_word() {
        assert_eq!(bearer("Bearer abc"), Some("abc".to_owned()));
        assert_eq!(bearer(" bearer  abc "), Some("abc".to_owned()));
        assert_eq!(bearer("Basic abc"), None);
        assert_eq!(bearer("Bearer "), None);
        assert_eq!(bearer("Bearer"), None);
    }

    #[test]
    fn nobody_is_known_by_the_address_and_somebody_by_the_name() {
        let peer = "10.0.0.1:5".parse().expect("an address");
        let credentials = Credentials { bearer: None, peer };
        assert_eq!(credentials.counted_as(&User::anonymous()), "10.0.0.1");
        let user = User { name: "anna".to_owned(), groups: Vec::new(), rules: 0 };
        assert_eq!(credentials.counted_as(&user), "anna");
    }
}
