//! What a request says of who sent it.

use crate::client_port::ClientCommonName;
use http::{Extensions, HeaderMap};
use std::sync::Arc;
use tonic::metadata::MetadataMap;

/// The first one wins.
const TOKEN_NAMES: [&str; 2] = ["token", "authorization"];
const BEARER: &str = "Bearer ";
/// Only requests that came through the JSON gateway have it: their certificate is the gateway's.
const GATEWAY: &str = "grpcgateway-accept";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Credentials {
    pub(crate) token: Option<String>,
    /// Of the certificate that the connection was made with.
    pub(crate) common_name: Option<Arc<str>>,
}

impl Credentials {
    pub(crate) fn of(headers: &HeaderMap, extensions: &Extensions) -> Credentials {
        let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or_default());
        Credentials::read(text, headers.contains_key(GATEWAY), extensions)
    }

    pub(crate) fn has_token(headers: &HeaderMap) -> bool {
        TOKEN_NAMES.iter().any(|name| headers.contains_key(*name))
    }

    pub(crate) fn of_metadata(metadata: &MetadataMap, extensions: &Extensions) -> Credentials {
        let text = |name: &str| metadata.get(name).map(|value| value.to_str().unwrap_or_default());
        Credentials::read(text, metadata.contains_key(GATEWAY), extensions)
    }

    /// A token that is no plain text is a token nobody knows, and not no token.
    fn read<'a>(
        text: impl Fn(&str) -> Option<&'a str>,
        gateway: bool,
        extensions: &Extensions,
    ) -> Credentials {
        let token = TOKEN_NAMES.iter().find_map(|name| text(name));
        let token = token.map(|token| token.strip_prefix(BEARER).unwrap_or(token).to_owned());
        let common_name = extensions.get::<ClientCommonName>().filter(|_| !gateway);
        Credentials { token, common_name: common_name.map(|name| name.0.clone()) }
    }

    pub(crate) fn bearer(token: Option<&str>) -> Credentials {
        Credentials { token: token.map(str::to_owned), common_name: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderName, HeaderValue};

    fn check(headers: &[(&'static str, &'static [u8])], token: Option<&str>, name: Option<&str>) {
        let headers = headers.iter().map(|(name, value)| {
            (HeaderName::from_static(name), HeaderValue::from_bytes(value).expect("a header"))
        });
        let headers: HeaderMap = headers.collect();
        let mut extensions = Extensions::new();
        extensions.insert(ClientCommonName("cn".into()));
        let expected = Credentials { token: token.map(str::to_owned), common_name: name.map(Into::into) };
        assert_eq!(Credentials::of(&headers, &extensions), expected);
        assert_eq!(Credentials::of_metadata(&MetadataMap::from_headers(headers), &extensions), expected);
    }

    #[test]
    fn a_token_has_two_names_and_a_word_before_it() {
        check(&[], None, Some("cn"));
        check(&[("token", b"abc.1")], Some("abc.1"), Some("cn"));
        check(&[("authorization", b"abc.1")], Some("abc.1"), Some("cn"));
        check(&[("authorization", b"Bearer abc.1")], Some("abc.1"), Some("cn"));
        check(&[("token", b"Bearer abc.1")], Some("abc.1"), Some("cn"));
        check(&[("authorization", b"other"), ("token", b"abc.1")], Some("abc.1"), Some("cn"));
        check(&[("token", b"")], Some(""), Some("cn"));
        check(&[("token", b"\xff")], Some(""), Some("cn"));
        check(&[("grpcgateway-accept", b"*/*")], None, None);
    }
}
