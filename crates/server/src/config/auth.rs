//! `--auth-token` and its neighbours.

use super::{ConfigError, RawFlags};
use meerkat_proto::go_duration;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// How long a signed token stands unless told otherwise, as in etcd.
const JWT_TTL_DEFAULT: Duration = Duration::from_secs(5 * 60);

/// What bcrypt can do.
const BCRYPT_COSTS: std::ops::RangeInclusive<u32> = 4..=31;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthOptions {
    pub token: TokenKind,
    /// How long a simple token stands without being used.
    pub token_ttl: Duration,
    pub bcrypt_cost: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenKind {
    Simple,
    Jwt(JwtOptions),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JwtOptions {
    pub pub_key: Option<PathBuf>,
    pub priv_key: Option<PathBuf>,
    pub sign_method: String,
    pub ttl: Duration,
}

pub(super) fn read(raw: &RawFlags) -> Result<AuthOptions, ConfigError> {
    if !BCRYPT_COSTS.contains(&raw.bcrypt_cost) {
        return Err(ConfigError::BcryptCost(raw.bcrypt_cost));
    }
    if raw.auth_token_ttl_seconds == 0 {
        return Err(ConfigError::NotPositive { flag: "auth-token-ttl", value: 0, unit: "s" });
    }
    Ok(AuthOptions {
        token: token_kind(&raw.auth_token)?,
        token_ttl: Duration::from_secs(raw.auth_token_ttl_seconds),
        bcrypt_cost: raw.bcrypt_cost,
    })
}

fn token_kind(text: &str) -> Result<TokenKind, ConfigError> {
    let refused = |reason: String| Err(ConfigError::AuthToken(reason));
    let mut parts = text.split(',');
    match parts.next() {
        Some("simple" | "") if parts.clone().next().is_none() => return Ok(TokenKind::Simple),
        Some("simple") => return refused("simple takes no options".to_owned()),
        Some("jwt") => {}
        _ => return refused(format!("{text:?} is neither simple nor jwt,…")),
    }
    let mut options = BTreeMap::new();
    for part in parts {
        let Some((name, value)) = part.split_once('=') else {
            return refused(format!("{part:?} is not name=value"));
        };
        if options.insert(name, value).is_some() {
            return refused(format!("{name} is given twice"));
        }
    }
    let mut take = |name: &str| options.remove(name).filter(|value| !value.is_empty());
    let (pub_key, priv_key) = (take("pub-key").map(PathBuf::from), take("priv-key").map(PathBuf::from));
    let Some(sign_method) = take("sign-method").map(str::to_owned) else {
        return refused("sign-method is missing, as in sign-method=RS256".to_owned());
    };
    let ttl = match take("ttl").map(go_duration::parse).transpose() {
        Ok(ttl) => ttl.unwrap_or(JWT_TTL_DEFAULT),
        Err(error) => return refused(format!("ttl: {error}")),
    };
    match options.keys().next() {
        None => Ok(TokenKind::Jwt(JwtOptions { pub_key, priv_key, sign_method, ttl })),
        Some(name) => {
            refused(format!("{name:?} is no option; there are pub-key, priv-key, sign-method, ttl"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Result<TokenKind, &str>) {
        let found = token_kind(text).map_err(|error| error.to_string());
        assert_eq!(found, expected.map_err(|reason| format!("invalid value for --auth-token: {reason}")));
    }

    #[test]
    fn a_kind_of_token_is_read_or_refused_by_name() {
        check("simple", Ok(TokenKind::Simple));
        check("", Ok(TokenKind::Simple));
        let mut options = JwtOptions {
            pub_key: Some("a.pub".into()),
            priv_key: None,
            sign_method: "RS256".to_owned(),
            ttl: JWT_TTL_DEFAULT,
        };
        check("jwt,pub-key=a.pub,sign-method=RS256", Ok(TokenKind::Jwt(options.clone())));
        options.priv_key = Some("a.key".into());
        options.ttl = Duration::from_secs(90);
        check("jwt,pub-key=a.pub,priv-key=a.key,sign-method=RS256,ttl=1m30s", Ok(TokenKind::Jwt(options)));
        check("jwt,pub-key=a.pub", Err("sign-method is missing, as in sign-method=RS256"));
        check("simple,ttl=1m", Err("simple takes no options"));
        check("oauth", Err("\"oauth\" is neither simple nor jwt,…"));
        check("jwt,sign-method", Err("\"sign-method\" is not name=value"));
        check("jwt,sign-method=a,sign-method=b", Err("sign-method is given twice"));
        check(
            "jwt,sign-method=RS256,pubkey=a",
            Err("\"pubkey\" is no option; there are pub-key, priv-key, sign-method, ttl"),
        );
    }
}
