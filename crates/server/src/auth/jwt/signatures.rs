//! Signatures of tokens, made and checked by ring, which TLS links already.
//!
//! jsonwebtoken brings two other backends: `aws_lc_rs` would be a second library of cryptography in C, and
//! `rust_crypto` signs by the `rsa` crate, whose timing can tell the key (RUSTSEC-2023-0071).

use jsonwebtoken::crypto::{CryptoProvider, JwtSigner, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{ErrorKind, Result, new_error};
use jsonwebtoken::signature::{Error, Signer, Verifier};
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey};
use ring::hmac;
use ring::rand::SystemRandom;
use ring::signature::{self, EcdsaKeyPair, Ed25519KeyPair, RsaEncoding, RsaKeyPair, UnparsedPublicKey};

/// To be installed before a token is made or read. Keys as JSON (JWK) are not asked for.
pub(super) static BY_RING: CryptoProvider = CryptoProvider {
    signer_factory: |algorithm, key| Ok(Box::new(Signing::new(*algorithm, key)?)),
    verifier_factory: |algorithm, key| Ok(Box::new(Checking::new(*algorithm, key)?)),
    key_utils: KeyUtils::new_unimplemented(),
};

/// What a method is to ring.
enum Method {
    Hmac(hmac::Algorithm),
    Rsa(&'static dyn RsaEncoding, &'static signature::RsaParameters),
    Ecdsa(&'static signature::EcdsaSigningAlgorithm, &'static signature::EcdsaVerificationAlgorithm),
    Ed25519,
}

impl Method {
    fn of(algorithm: Algorithm) -> Result<Method> {
        use signature as by;
        Ok(match algorithm {
            Algorithm::HS256 => Method::Hmac(hmac::HMAC_SHA256),
            Algorithm::HS384 => Method::Hmac(hmac::HMAC_SHA384),
            Algorithm::HS512 => Method::Hmac(hmac::HMAC_SHA512),
            Algorithm::RS256 => Method::Rsa(&by::RSA_PKCS1_SHA256, &by::RSA_PKCS1_2048_8192_SHA256),
            Algorithm::RS384 => Method::Rsa(&by::RSA_PKCS1_SHA384, &by::RSA_PKCS1_2048_8192_SHA384),
            Algorithm::RS512 => Method::Rsa(&by::RSA_PKCS1_SHA512, &by::RSA_PKCS1_2048_8192_SHA512),
            Algorithm::PS256 => Method::Rsa(&by::RSA_PSS_SHA256, &by::RSA_PSS_2048_8192_SHA256),
            Algorithm::PS384 => Method::Rsa(&by::RSA_PSS_SHA384, &by::RSA_PSS_2048_8192_SHA384),
            Algorithm::PS512 => Method::Rsa(&by::RSA_PSS_SHA512, &by::RSA_PSS_2048_8192_SHA512),
            Algorithm::ES256 => {
                Method::Ecdsa(&by::ECDSA_P256_SHA256_FIXED_SIGNING, &by::ECDSA_P256_SHA256_FIXED)
            }
            Algorithm::ES384 => {
                Method::Ecdsa(&by::ECDSA_P384_SHA384_FIXED_SIGNING, &by::ECDSA_P384_SHA384_FIXED)
            }
            Algorithm::EdDSA => Method::Ed25519,
            _ => return Err(new_error(ErrorKind::UnsupportedAlgorithm)),
        })
    }
}

struct Signing {
    algorithm: Algorithm,
    key: SigningKey,
}

enum SigningKey {
    Hmac(hmac::Key),
    Rsa(RsaKeyPair, &'static dyn RsaEncoding),
    Ecdsa(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
}

impl Signing {
    fn new(algorithm: Algorithm, key: &EncodingKey) -> Result<Signing> {
        if key.family() != algorithm.family() {
            return Err(new_error(ErrorKind::InvalidKeyFormat));
        }
        let (bytes, refused) = (key.as_bytes(), |error: ring::error::KeyRejected| {
            new_error(ErrorKind::Provider(error.to_string()))
        });
        let key = match Method::of(algorithm)? {
            Method::Hmac(method) => SigningKey::Hmac(hmac::Key::new(method, bytes)),
            Method::Rsa(encoding, _) => {
                SigningKey::Rsa(RsaKeyPair::from_der(bytes).map_err(refused)?, encoding)
            }
            Method::Ecdsa(method, _) => {
                let pair = EcdsaKeyPair::from_pkcs8(method, bytes, &SystemRandom::new());
                SigningKey::Ecdsa(pair.map_err(refused)?)
            }
            // OpenSSL writes the private half alone.
            Method::Ed25519 => {
                SigningKey::Ed25519(Ed25519KeyPair::from_pkcs8_maybe_unchecked(bytes).map_err(refused)?)
            }
        };
        Ok(Signing { algorithm, key })
    }
}

impl Signer<Vec<u8>> for Signing {
    fn try_sign(&self, message: &[u8]) -> std::result::Result<Vec<u8>, Error> {
        let random = SystemRandom::new();
        match &self.key {
            SigningKey::Hmac(key) => Ok(hmac::sign(key, message).as_ref().to_vec()),
            SigningKey::Rsa(pair, encoding) => {
                let mut signed = vec![0; pair.public().modulus_len()];
                pair.sign(*encoding, &random, message, &mut signed).map_err(unspecified)?;
                Ok(signed)
            }
            SigningKey::Ecdsa(pair) => {
                pair.sign(&random, message).map(|signed| signed.as_ref().to_vec()).map_err(unspecified)
            }
            SigningKey::Ed25519(pair) => Ok(pair.sign(message).as_ref().to_vec()),
        }
    }
}

impl JwtSigner for Signing {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}

/// ring does not say what is wrong with a signature.
fn unspecified(_: ring::error::Unspecified) -> Error {
    Error::new()
}

struct Checking {
    algorithm: Algorithm,
    key: CheckingKey,
}

enum CheckingKey {
    Secret(hmac::Key),
    Public(UnparsedPublicKey<Vec<u8>>),
}

impl Checking {
    fn new(algorithm: Algorithm, key: &DecodingKey) -> Result<Checking> {
        if key.family() != algorithm.family() {
            return Err(new_error(ErrorKind::InvalidKeyFormat));
        }
        let bytes = key.try_get_as_bytes()?;
        let public = |method: &'static dyn signature::VerificationAlgorithm| {
            CheckingKey::Public(UnparsedPublicKey::new(method, bytes.to_vec()))
        };
        let key = match Method::of(algorithm)? {
            Method::Hmac(method) => CheckingKey::Secret(hmac::Key::new(method, bytes)),
            Method::Rsa(_, method) => public(method),
            Method::Ecdsa(_, method) => public(method),
            Method::Ed25519 => public(&signature::ED25519),
        };
        Ok(Checking { algorithm, key })
    }
}

impl Verifier<Vec<u8>> for Checking {
    fn verify(&self, message: &[u8], signed: &Vec<u8>) -> std::result::Result<(), Error> {
        let verdict = match &self.key {
            CheckingKey::Secret(key) => hmac::verify(key, message, signed),
            CheckingKey::Public(key) => key.verify(message, signed),
        };
        verdict.map_err(unspecified)
    }
}

impl JwtVerifier for Checking {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}
