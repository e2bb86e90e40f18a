//! What ConfigMaps and Secrets hold: keys that can be the names of files, and a mebibyte in all.

use crate::object::Object;
use crate::object::check::shown;
use crate::status::Cause;
use serde_json::{Map, Value};

const BYTES_MAX: usize = 1 << 20;
const KEY_BYTES_MAX: usize = 253;

pub fn causes(group: &str, kind: &str, object: &Object) -> Vec<Cause> {
    let map = |field: &str| object.get(field).and_then(Value::as_object);
    let mut causes = Vec::new();
    match (group, kind) {
        ("", "ConfigMap") => {
            let (data, binary) = (map("data"), map("binaryData"));
            keys("data", data, &mut causes);
            keys("binaryData", binary, &mut causes);
            let twice = |key: &&String| binary.is_some_and(|binary| binary.contains_key(*key));
            for key in data.into_iter().flat_map(Map::keys).filter(twice) {
                let why = "duplicate of key present in binaryData";
                causes.push(Cause::invalid(format!("data[{key}]"), &shown(key), why));
            }
            let plain: usize = texts(data).map(str::len).sum();
            if BYTES_MAX < plain + texts(binary).map(decoded_bytes).sum::<usize>() {
                // The whole object, and no field of it.
                causes.push(Cause::too_long("[]", BYTES_MAX));
            }
        }
        ("", "Secret") => {
            let data = map("data");
            keys("data", data, &mut causes);
            if BYTES_MAX < texts(data).map(decoded_bytes).sum() {
                causes.push(Cause::too_long("data", BYTES_MAX));
            }
            let type_name = object.get("type").and_then(Value::as_str).unwrap_or_default();
            let has = |key: &str| data.is_some_and(|data| data.contains_key(key));
            let needed: &[&str] = match type_name {
                "kubernetes.io/dockercfg" => &[".dockercfg"],
                "kubernetes.io/dockerconfigjson" => &[".dockerconfigjson"],
                "kubernetes.io/basic-auth" if !has("username") && !has("password") => {
                    &["username", "password"]
                }
                "kubernetes.io/ssh-auth" => &["ssh-privatekey"],
                "kubernetes.io/tls" => &["tls.crt", "tls.key"],
                _ => &[],
            };
            for key in needed.iter().filter(|key| !has(key)) {
                causes.push(Cause::required(format!("data[{key}]"), ""));
            }
        }
        _ => {}
    }
    causes
}

fn texts(map: Option<&Map<String, Value>>) -> impl Iterator<Item = &str> {
    map.into_iter().flat_map(Map::values).filter_map(Value::as_str)
}

/// Of Base64, without a look at what it says.
fn decoded_bytes(text: &str) -> usize {
    let padding = text.bytes().rev().take(2).filter(|byte| *byte == b'=').count();
    (text.len() / 4 * 3).saturating_sub(padding)
}

fn keys(field: &str, map: Option<&Map<String, Value>>, causes: &mut Vec<Cause>) {
    for key in map.into_iter().flat_map(Map::keys) {
        if let Some(why) = key_wrong(key) {
            causes.push(Cause::invalid(
                format!("{field}[{}]", crate::excerpt::excerpt(key)),
                &shown(key),
                why,
            ));
        }
    }
}

fn key_wrong(key: &str) -> Option<&'static str> {
    let is_known = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    match key {
        _ if KEY_BYTES_MAX < key.len() => Some("must be no more than 253 characters"),
        "." => Some("must not be '.'"),
        ".." => Some("must not be '..'"),
        _ if key.starts_with("..") => Some("must not start with '..'"),
        _ if key.is_empty() || !key.bytes().all(is_known) => {
            Some("a valid config key must consist of alphanumeric characters, '-', '_' or '.'")
        }
        _ => None,
    }
}
