//! What a client says of a Secret in plain text, as it is kept: in Base64, beside the rest.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use meerkat_kubernetes::excerpt::excerpt;
use meerkat_kubernetes::object::Object;
use meerkat_kubernetes::status::Refusal;
use serde_json::{Map, Value};

const PLAIN: &str = "stringData";
const DATA: &str = "data";

/// Moves plain text to where data are, over what is there under the same name. That data are Base64 is a
/// matter of their type.
pub(super) fn encode(object: &mut Object) -> Result<(), Refusal> {
    let Some(Value::Object(plain)) = object.get(PLAIN) else { return Ok(()) };
    let mut data = match object.get(DATA) {
        Some(Value::Object(data)) => data.clone(),
        _ => Map::new(),
    };
    for (name, value) in plain {
        let Some(text) = value.as_str() else {
            return Err(Refusal::bad_request(format!(
                "stringData[{}] of a Secret is no text",
                excerpt(name)
            )));
        };
        data.insert(name.clone(), Value::String(STANDARD.encode(text)));
    }
    object.set(
        DATA,
        Some(Value::Object(data)).filter(|data| data.as_object().is_some_and(|data| !data.is_empty())),
    );
    object.set(PLAIN, None);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn encoded(body: Value) -> Result<Value, Refusal> {
        let (mut object, _) = Object::decode(body).expect("an object");
        encode(&mut object).map(|()| object.into_value())
    }

    #[test]
    fn plain_text_becomes_data_and_comes_first() {
        let body = json!({ "metadata": { "name": "s" }, "data": { "a": "YQ==", "b": "Yg==" }, "stringData": { "b": "x" } });
        let object = encoded(body).expect("a secret");
        assert_eq!(object["data"], json!({ "a": "YQ==", "b": "eA==" }));
        assert_eq!(object.get("stringData"), None);
        let bare = encoded(json!({ "metadata": { "name": "s" } })).expect("a secret");
        assert_eq!(bare.get("data"), None);
    }

    #[test]
    fn what_cannot_be_read_again_is_refused() {
        let body = json!({ "stringData": { "a": 1 } });
        assert_eq!(encoded(body).expect_err("no secret").code(), 400);
    }
}
