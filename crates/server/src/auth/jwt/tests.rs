//! Tokens of every kind of key are read by who has the other half, and by nobody else.

use super::*;
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ED25519, SignatureAlgorithm};
use serde_json::{Value, json};
use std::path::PathBuf;
use tempfile::TempDir;

struct Keys {
    directory: TempDir,
}

impl Keys {
    fn new() -> Keys {
        Keys { directory: tempfile::tempdir().expect("a directory") }
    }

    fn file(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.directory.path().join(name);
        std::fs::write(&path, content).expect("written");
        path
    }

    fn pair(&self, name: &str, algorithm: &'static SignatureAlgorithm) -> JwtOptions {
        let pair = KeyPair::generate_for(algorithm).expect("a pair");
        JwtOptions {
            pub_key: Some(self.file(&format!("{name}.pub"), pair.public_key_pem().as_bytes())),
            priv_key: Some(self.file(&format!("{name}.key"), pair.serialize_pem().as_bytes())),
            sign_method: name.to_owned(),
            ttl: Duration::from_secs(300),
        }
    }

    fn rsa(&self, method: &str) -> JwtOptions {
        JwtOptions {
            pub_key: Some(self.file("rsa.pub", include_bytes!("rsa.pub.pem"))),
            priv_key: Some(self.file("rsa.key", include_bytes!("rsa.key.pem"))),
            sign_method: method.to_owned(),
            ttl: Duration::from_secs(300),
        }
    }

    fn secret(&self, method: &str, secret: &[u8]) -> JwtOptions {
        JwtOptions {
            pub_key: None,
            priv_key: Some(self.file("secret", secret)),
            sign_method: method.to_owned(),
            ttl: Duration::from_secs(300),
        }
    }
}

fn user() -> UserName {
    UserName::new("anna").expect("not empty")
}

#[test]
fn a_token_of_every_method_is_read_by_who_has_the_other_half() {
    let keys = Keys::new();
    let mut all = vec![
        keys.pair("ES256", &PKCS_ECDSA_P256_SHA256),
        keys.pair("ES384", &PKCS_ECDSA_P384_SHA384),
        keys.pair("EdDSA", &PKCS_ED25519),
    ];
    all.extend(["HS256", "HS384", "HS512"].map(|method| keys.secret(method, b"a secret")));
    all.extend(["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"].map(|method| keys.rsa(method)));
    for options in all {
        let method = options.sign_method.clone();
        let jwt = Jwt::open(&options).expect("keys");
        let token = jwt.sign(&user(), AuthRevision(7)).expect("signed");
        assert_eq!(jwt.read(&token), Some((user(), AuthRevision(7))), "{method}");
        let (body, _) = token.rsplit_once('.').expect("three parts");
        assert_eq!(jwt.read(&format!("{body}.")), None, "{method} without a signature");
        assert_eq!(jwt.read(&format!("{token}x")), None, "{method} with another signature");
    }
}

#[test]
fn a_token_of_another_key_or_method_or_time_is_nobodys() {
    let keys = Keys::new();
    let ours = Jwt::open(&keys.secret("HS256", b"ours")).expect("keys");
    let theirs = Jwt::open(&keys.secret("HS256", b"theirs")).expect("keys");
    let other = Jwt::open(&keys.secret("HS512", b"ours")).expect("keys");
    let mut late = keys.secret("HS256", b"ours");
    late.ttl = Duration::ZERO;
    let late = Jwt::open(&late).expect("keys");
    std::thread::sleep(Duration::from_millis(1));
    for jwt in [&theirs, &other] {
        assert_eq!(ours.read(&jwt.sign(&user(), AuthRevision(1)).expect("signed")), None);
    }
    let token = late.sign(&user(), AuthRevision(1)).expect("signed");
    std::thread::sleep(Duration::from_millis(1_100));
    assert_eq!(ours.read(&token), None, "it ran out");
    // A head that says there is no signature, with a claim of being root.
    assert_eq!(ours.read("eyJhbGciOiJub25lIn0.eyJ1c2VybmFtZSI6InJvb3QiLCJyZXZpc2lvbiI6MX0."), None);
    assert_eq!(ours.read("abcdefghijklmnop.17"), None, "a simple token");
}

#[test]
fn claims_of_the_wrong_type_or_time_are_refused() {
    let keys = Keys::new();
    let jwt = Jwt::open(&keys.secret("HS256", b"ours")).expect("keys");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
    let (past, future) = (json!(now - 60), json!(now + 60));
    let reads = |name: &str, value: &Value| {
        let mut claims = json!({ "username": "anna", "revision": 1, "exp": future, "nbf": past });
        claims[name] = value.clone();
        let key = EncodingKey::from_secret(b"ours");
        let token = encode(&Header::new(Algorithm::HS256), &claims, &key).expect("signed");
        jwt.read(&token).is_some()
    };
    for (name, good, bad) in [("exp", &future, &past), ("nbf", &past, &future)] {
        assert!(reads(name, good), "{name} {good}");
        assert!(!reads(name, bad), "{name} {bad}");
        let text = json!(good.to_string());
        for value in [text, json!("never"), json!(true), json!([good]), json!({ "at": good }), json!(-1)] {
            assert!(!reads(name, &value), "{name} {value}");
        }
    }
    for (name, value) in [("username", json!(["anna"])), ("username", json!("")), ("revision", json!("1"))] {
        assert!(!reads(name, &value), "{name} {value}");
    }
}

#[test]
fn a_member_may_only_check_and_keys_that_do_not_fit_are_named() {
    let keys = Keys::new();
    let signer = Jwt::open(&keys.pair("ES256", &PKCS_ECDSA_P256_SHA256)).expect("keys");
    let token = signer.sign(&user(), AuthRevision(1)).expect("signed");
    let mut options = keys.secret("ES256", b"");
    options.pub_key = Some(keys.directory.path().join("ES256.pub"));
    options.priv_key = None;
    let checker = Jwt::open(&options).expect("keys");
    assert!(checker.read(&token).is_some());
    assert_eq!(checker.sign(&user(), AuthRevision(1)), None);
    let refused = |options: &JwtOptions| Jwt::open(options).err().expect("refused").to_string();
    assert!(refused(&keys.secret("ES512", b"")).contains("sign-method \"ES512\" is not supported"));
    options.pub_key = None;
    assert!(refused(&options).contains("pub-key is missing"));
    options.pub_key = Some(keys.file("junk", b"junk"));
    assert!(refused(&options).contains("pub-key does not fit ES256"));
    options.pub_key = Some("no/such/file".into());
    assert!(refused(&options).contains("no/such/file cannot be read"));
}
