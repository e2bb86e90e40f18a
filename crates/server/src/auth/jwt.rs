//! Signed tokens: a user's name and the revision of users and roles, which no member has to remember.
//!
//! A token of an older revision is refused, so whatever is taken from a user is gone with the next
//! request. The signing method is the configured one, whatever a token's own head says.

mod signatures;

use crate::config::{ConfigError, JwtOptions};
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation, decode, encode};
use meerkat_types::{AuthRevision, UserName};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

#[derive(Serialize, Deserialize)]
struct Claims {
    username: String,
    revision: u64,
    exp: u64,
}

pub(crate) struct Jwt {
    algorithm: Algorithm,
    /// `None`: this member only checks tokens that others have signed.
    sign: Option<EncodingKey>,
    check: DecodingKey,
    validation: Validation,
    ttl: Duration,
}

impl Jwt {
    /// Reads the keys.
    pub(crate) fn open(options: &JwtOptions) -> Result<Jwt, ConfigError> {
        // A member before this one in the same process has installed the same.
        let _ = signatures::BY_RING.install_default();
        let algorithm = algorithm(&options.sign_method)?;
        let (sign, check) = match algorithm {
            Algorithm::HS256 | Algorithm::HS384 | Algorithm::HS512 => {
                let secret = read(options.priv_key.as_deref(), "priv-key")?;
                (Some(EncodingKey::from_secret(&secret)), DecodingKey::from_secret(&secret))
            }
            _ => pair(algorithm, options)?,
        };
        let mut validation = Validation::new(algorithm);
        validation.leeway = 0;
        validation.validate_nbf = true;
        validation.validate_aud = false;
        Ok(Jwt { algorithm, sign, check, validation, ttl: options.ttl })
    }

    /// `None` if this member has no key to sign with.
    pub(crate) fn sign(&self, user: &UserName, revision: AuthRevision) -> Option<String> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let exp = (now + self.ttl).as_secs();
        let claims = Claims { username: user.as_str().to_owned(), revision: revision.0, exp };
        let signed = encode(&Header::new(self.algorithm), &claims, self.sign.as_ref()?);
        signed.inspect_err(|error| tracing::error!(%error, "a token could not be signed")).ok()
    }

    /// Whose token this is, and what its signer knew of users and roles.
    pub(crate) fn read(&self, token: &str) -> Option<(UserName, AuthRevision)> {
        let claims = decode::<Claims>(token, &self.check, &self.validation).ok()?.claims;
        Some((UserName::new(&claims.username)?, AuthRevision(claims.revision)))
    }
}

fn algorithm(method: &str) -> Result<Algorithm, ConfigError> {
    method.parse().map_err(|_| {
        refused(format!(
            "sign-method {method:?} is not supported; use one of RS256, RS384, RS512, PS256, PS384, PS512, \
             ES256, ES384, EdDSA, HS256, HS384, HS512"
        ))
    })
}

fn pair(
    algorithm: Algorithm,
    options: &JwtOptions,
) -> Result<(Option<EncodingKey>, DecodingKey), ConfigError> {
    let public = read(options.pub_key.as_deref(), "pub-key")?;
    let private = options.priv_key.as_deref().map(|path| read(Some(path), "priv-key")).transpose()?;
    let private = private.as_deref();
    let (sign, check) = match algorithm {
        Algorithm::ES256 | Algorithm::ES384 => {
            (private.map(EncodingKey::from_ec_pem).transpose(), DecodingKey::from_ec_pem(&public))
        }
        Algorithm::EdDSA => {
            (private.map(EncodingKey::from_ed_pem).transpose(), DecodingKey::from_ed_pem(&public))
        }
        _ => (private.map(EncodingKey::from_rsa_pem).transpose(), DecodingKey::from_rsa_pem(&public)),
    };
    let sign = sign.map_err(|error| refused(format!("priv-key does not fit {algorithm:?}: {error}")))?;
    let check = check.map_err(|error| refused(format!("pub-key does not fit {algorithm:?}: {error}")))?;
    Ok((sign, check))
}

fn read(path: Option<&Path>, what: &str) -> Result<Vec<u8>, ConfigError> {
    let path = path.ok_or_else(|| refused(format!("{what} is missing: name a file")))?;
    std::fs::read(path).map_err(|error| refused(format!("{what} {} cannot be read: {error}", path.display())))
}

fn refused(reason: String) -> ConfigError {
    ConfigError::AuthToken(reason)
}

#[cfg(test)]
mod tests;
