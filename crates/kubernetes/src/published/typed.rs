//! Whether an object is of the types that its kind has.
//!
//! A client that is typed reads a list as a whole: one object with a text where a number belongs, and it can
//! read none of them. So such an object is refused, in the words of a program in Go that could not read it.
//! Fields that the kind does not have are taken out and told of, and so are nulls, silently: for a typed
//! client they mean the same as absence.
//!
//! What every object has at its root, the names of its type and its metadata, is looked at elsewhere
//! ([`Object::decode`]).

use super::{Field, Message, Shape, Type, schema};
use crate::object::Object;
use crate::registry::Kind;
use crate::status::Refusal;
use crate::timestamp::Timestamp;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};
use base64::{DecodeError, Engine, alphabet};
use serde_json::{Map, Value, json};

/// Unknown fields that are told of; more are taken out silently.
const TOLD_MAX: usize = 100;

/// The paths of what was taken out, or why the object cannot be read.
pub fn read(message: &Message, object: &mut Map<String, Value>) -> Result<Vec<String>, String> {
    let mut reader = Reader { unknown: Vec::new(), path: Vec::new(), is_root: true };
    reader.message(message, object)?;
    Ok(reader.unknown)
}

/// [`read`], for an object of a kind, with the refusal that a client is answered with. Of a custom kind only
/// its schema can say.
pub fn check(kind: &Kind, object: &mut Object) -> Result<Vec<String>, Refusal> {
    let Some(message) = kind.published() else { return Ok(Vec::new()) };
    read(message, object.as_map_mut()).map_err(|why| Refusal::bad_request(refusal_prefix(kind) + &why))
}

/// What a refusal of [`check`] begins with.
pub fn refusal_prefix(kind: &Kind) -> String {
    format!("{0} in version {1:?} cannot be handled as a {0}: ", kind.kind, kind.version)
}

struct Reader {
    unknown: Vec<String>,
    path: Vec<Step>,
    is_root: bool,
}

enum Step {
    Field(String),
    /// Of a map.
    Key(String),
    /// Of a list.
    Place(usize),
}

impl Reader {
    /// Its depth is that of the object, which is bounded.
    fn message(&mut self, message: &Message, object: &mut Map<String, Value>) -> Result<(), String> {
        let is_root = std::mem::take(&mut self.is_root);
        let mut fault = None;
        object.retain(|name, value| {
            if fault.is_some() || (is_root && matches!(name.as_str(), "apiVersion" | "kind" | "metadata")) {
                return true;
            }
            self.path.push(Step::Field(name.clone()));
            let stays = match message.field(name) {
                // The templates of claims in a StatefulSet may say of what type they are.
                None if message.name == "core.PersistentVolumeClaim"
                    && matches!(name.as_str(), "apiVersion" | "kind") =>
                {
                    if !value.is_string() && !value.is_null() {
                        fault = Some(self.misfit(message, "string", value));
                    }
                    !value.is_null()
                }
                None => {
                    if self.unknown.len() < TOLD_MAX {
                        self.unknown.push(self.path());
                    }
                    false
                }
                Some(_) if value.is_null() => false,
                Some(field) => self.field(message, field, value).unwrap_or_else(|why| {
                    fault = Some(why);
                    true
                }),
            };
            self.path.pop();
            stays
        });
        fault.map_or(Ok(()), Err)
    }

    fn path(&self) -> String {
        let mut path = String::new();
        for step in &self.path {
            match step {
                Step::Place(index) => path.push_str(&format!("[{index}]")),
                Step::Field(name) | Step::Key(name) if path.is_empty() => path.push_str(name),
                Step::Field(name) | Step::Key(name) => path.push_str(&format!(".{name}")),
            }
        }
        path
    }

    /// `false`: it means nothing, and goes.
    fn field(&mut self, holder: &Message, field: &Field, value: &mut Value) -> Result<bool, String> {
        match (field.shape, value) {
            (Shape::One, value) => return self.value(holder, field, value),
            (Shape::List, Value::Array(items)) => {
                for (index, item) in items.iter_mut().enumerate() {
                    self.path.push(Step::Place(index));
                    self.entry(holder, field, item)?;
                    self.path.pop();
                }
            }
            (Shape::Map, Value::Object(entries)) => {
                for (key, entry) in entries {
                    self.path.push(Step::Key(key.clone()));
                    self.entry(holder, field, entry)?;
                    self.path.pop();
                }
            }
            (_, value) => return Err(self.misfit(holder, &go_type(field), value)),
        }
        Ok(true)
    }

    /// In a list or a map a null is the zero of its type.
    fn entry(&mut self, holder: &Message, field: &Field, value: &mut Value) -> Result<(), String> {
        if value.is_null() {
            *value = zero(field.of);
        }
        self.value(holder, field, value).map(drop)
    }

    fn value(&mut self, holder: &Message, field: &Field, value: &mut Value) -> Result<bool, String> {
        let fits = match (field.of, &mut *value) {
            (Type::Message(inner), Value::Object(fields)) => {
                return self.message(inner, fields).map(|()| true);
            }
            (Type::Text, value) => value.is_string(),
            (Type::Bool, value) => value.is_boolean(),
            (Type::Double, value) => value.is_number(),
            (Type::Int32, Value::Number(number)) => {
                number.as_i64().is_some_and(|number| i32::try_from(number).is_ok())
            }
            (Type::Int64, Value::Number(number)) => number.is_i64(),
            (Type::Json, _) => true,
            (Type::Bytes, Value::String(text)) => {
                if let Some(canonical) = base64(text)? {
                    *text = canonical;
                }
                true
            }
            (Type::Time | Type::MicroTime, Value::String(text)) => time(field.of, text).map(|()| true)?,
            (Type::Time | Type::MicroTime, value) => return Err(bare_misfit("string", value)),
            (Type::Quantity, value) => quantity(value).map(|()| true)?,
            (Type::IntOrString, Value::String(_)) => true,
            (Type::IntOrString, value) => {
                let fits = value.as_i64().is_some_and(|number| i32::try_from(number).is_ok());
                fits.then_some(true).ok_or_else(|| bare_misfit("int32", value))?
            }
            (Type::Texts, Value::Array(items)) => return self.texts(holder, items).map(|()| true),
            (Type::SchemaOrBool, Value::Bool(_)) => true,
            (Type::SchemaOrList, Value::Array(items)) => {
                for item in items.iter_mut().filter_map(Value::as_object_mut) {
                    self.message(schema(), item)?;
                }
                true
            }
            (Type::SchemaOrTexts, Value::Array(items)) => return self.texts(holder, items).map(|()| true),
            (Type::SchemaOrBool | Type::SchemaOrList | Type::SchemaOrTexts, Value::Object(fields)) => {
                return self.message(schema(), fields).map(|()| true);
            }
            (Type::SchemaOrBool, _) => return Err("boolean or JSON schema expected".to_owned()),
            // Go reads these as nothing.
            (Type::SchemaOrList | Type::SchemaOrTexts, _) => return Ok(false),
            _ => false,
        };
        if fits { Ok(true) } else { Err(self.misfit(holder, &go_item_type(field), value)) }
    }

    fn texts(&self, holder: &Message, items: &mut [Value]) -> Result<(), String> {
        for item in items {
            if item.is_null() {
                *item = json!("");
            }
            if !item.is_string() {
                return Err(self.misfit(holder, "string", item));
            }
        }
        Ok(())
    }

    /// Places in lists are not told, as Go does not tell them; nor are keys of maps.
    fn misfit(&self, holder: &Message, go: &str, value: &Value) -> String {
        let fields = self.path.iter().filter_map(|step| match step {
            Step::Field(name) => Some(name.as_str()),
            Step::Key(_) | Step::Place(_) => None,
        });
        let fields: Vec<&str> = fields.collect();
        let (holder, path) = (holder.short_name(), fields.join("."));
        let what = go_value(value, go);
        format!("json: cannot unmarshal {what} into Go struct field {holder}.{path} of type {go}")
    }
}

/// Of a type that reads itself, and does not know where it stands.
fn bare_misfit(go: &str, value: &Value) -> String {
    format!("json: cannot unmarshal {} into Go value of type {go}", go_value(value, go))
}

/// What Go calls a value that does not fit.
fn go_value(value: &Value, go: &str) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(_) => "bool".to_owned(),
        Value::Number(number) if ["int32", "int64"].contains(&go) => format!("number {number}"),
        Value::Number(_) => "number".to_owned(),
        Value::String(_) => "string".to_owned(),
        Value::Array(_) => "array".to_owned(),
        Value::Object(_) => "object".to_owned(),
    }
}

fn go_type(field: &Field) -> String {
    let item = go_item_type(field);
    match field.shape {
        Shape::One => item,
        Shape::List => format!("[]{item}"),
        Shape::Map => format!("map[string]{item}"),
    }
}

fn go_item_type(field: &Field) -> String {
    match (field.of, field.go) {
        (Type::Text, Some(name)) => format!("v1.{name}"),
        (Type::Text, None) => "string".to_owned(),
        (Type::Int32, _) => "int32".to_owned(),
        (Type::Int64, _) => "int64".to_owned(),
        (Type::Bool, _) => "bool".to_owned(),
        (Type::Double, _) => "float64".to_owned(),
        (Type::Bytes, _) => "[]uint8".to_owned(),
        (Type::Json, _) => "runtime.RawExtension".to_owned(),
        (Type::Time, _) => "v1.Time".to_owned(),
        (Type::MicroTime, _) => "v1.MicroTime".to_owned(),
        (Type::Quantity, _) => "resource.Quantity".to_owned(),
        (Type::IntOrString, _) => "intstr.IntOrString".to_owned(),
        (Type::Texts, _) => "v1.ExtraValue".to_owned(),
        (Type::SchemaOrList | Type::SchemaOrBool | Type::SchemaOrTexts, _) => schema().go_name(),
        (Type::Message(message) | Type::Inline(message), _) => message.go_name(),
    }
}

fn zero(of: Type) -> Value {
    match of {
        Type::Text | Type::Bytes | Type::IntOrString => json!(""),
        Type::Int32 | Type::Int64 => json!(0),
        Type::Double => json!(0.0),
        Type::Bool | Type::SchemaOrBool => json!(false),
        Type::Quantity => json!("0"),
        Type::Texts | Type::SchemaOrList | Type::SchemaOrTexts => json!([]),
        Type::Message(_) | Type::Inline(_) => json!({}),
        Type::Json | Type::Time | Type::MicroTime => Value::Null,
    }
}

/// The bytes of Base64 as Go reads it: over several lines, and whatever the bits are that follow the last byte.
pub fn bytes(text: &str) -> Result<Vec<u8>, DecodeError> {
    const CONFIG: GeneralPurposeConfig = GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true);
    static AS_GO: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, CONFIG);
    if text.contains(['\r', '\n']) {
        return AS_GO.decode(text.replace(['\r', '\n'], ""));
    }
    AS_GO.decode(text)
}

/// How the same bytes are kept, if otherwise: readers that are stricter than Go can read them so.
fn base64(text: &str) -> Result<Option<String>, String> {
    if STANDARD.decode(text).is_ok() {
        return Ok(None);
    }
    let at = match bytes(text) {
        Ok(bytes) => return Ok(Some(STANDARD.encode(bytes))),
        Err(
            DecodeError::InvalidByte(at, _)
            | DecodeError::InvalidLastSymbol(at, _)
            | DecodeError::InvalidLength(at),
        ) => at,
        Err(DecodeError::InvalidPadding) => text.len(),
    };
    Err(format!("illegal base64 data at input byte {at}"))
}

/// Whether a client in Go can read it as a point in time.
pub fn is_time(text: &str) -> bool {
    time(Type::Time, text).is_ok()
}

/// Go is stricter than RFC 3339, and of microseconds it wants all six digits.
fn time(of: Type, text: &str) -> Result<(), String> {
    let micros = matches!(of, Type::MicroTime);
    let layout = if micros { "2006-01-02T15:04:05.000000Z07:00" } else { "2006-01-02T15:04:05Z07:00" };
    let (date, rest) = text.split_at_checked(19).unwrap_or_default();
    let digits = rest.strip_prefix('.').map_or(0, |rest| rest.bytes().take_while(u8::is_ascii_digit).count());
    let is_go = date.as_bytes().get(10) == Some(&b'T')
        && !date.ends_with("60")
        && !rest.ends_with('z')
        && (!micros || digits == 6);
    match Timestamp::parse(text) {
        Some(_) if is_go => Ok(()),
        _ => Err(format!("parsing time {text:?} as {layout:?}: cannot parse {text:?}")),
    }
}

/// A number, and what it is multiplied with.
fn quantity(value: &Value) -> Result<(), String> {
    const WRONG: &str = "quantities must match the regular expression \
        '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
    const SUFFIXES: &[&str] =
        &["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => return Err(WRONG.to_owned()),
    };
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(&text);
    let end =
        unsigned.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(end);
    let is_number = number.bytes().any(|byte| byte.is_ascii_digit()) && number.matches('.').count() <= 1;
    let power = suffix.strip_prefix(['e', 'E']).map(|power| power.strip_prefix(['+', '-']).unwrap_or(power));
    let is_power =
        power.is_some_and(|power| !power.is_empty() && power.bytes().all(|byte| byte.is_ascii_digit()));
    match (is_number, SUFFIXES.contains(&suffix) || is_power) {
        (true, true) => Ok(()),
        (true, false) if suffix.chars().all(|letter| "eEinumkKMGTP+-0123456789".contains(letter)) => {
            Err("unable to parse quantity's suffix".to_owned())
        }
        _ => Err(WRONG.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::message;
    use super::*;

    fn reading(api_version: &str, kind: &str, object: Value) -> (Value, Result<Vec<String>, String>) {
        let Value::Object(mut object) = object else { panic!("an object") };
        let read = read(message(api_version, kind).expect("a kind"), &mut object);
        (Value::Object(object), read)
    }

    #[test]
    fn what_is_of_another_type_is_told_as_go_tells_it() {
        let check = |api_version: &str, kind: &str, object: Value, expected: &str| {
            let (_, read) = reading(api_version, kind, object);
            assert_eq!(read.expect_err("another type"), expected);
        };
        for (replicas, what) in [
            (json!("three"), "string"),
            (json!(1.5), "number 1.5"),
            (json!(3_000_000_000_u64), "number 3000000000"),
        ] {
            let object = json!({ "spec": { "replicas": replicas } });
            let into = "Go struct field DeploymentSpec.spec.replicas of type int32";
            check("apps/v1", "Deployment", object, &format!("json: cannot unmarshal {what} into {into}"));
        }
        for (data, what, of) in [
            (json!({ "one": 1 }), "number", "string"),
            (json!("x"), "string", "map[string]string"),
            (json!({ "one": {} }), "object", "string"),
        ] {
            let into = format!("Go struct field ConfigMap.data of type {of}");
            let expected = format!("json: cannot unmarshal {what} into {into}");
            check("v1", "ConfigMap", json!({ "data": data }), &expected);
        }
        let object = json!({ "spec": { "containers": { "name": "a" } } });
        let expected = "json: cannot unmarshal object into Go struct field PodSpec.spec.containers of type []v1.Container";
        check("v1", "Pod", object, expected);
        let object = json!({ "spec": { "containers": [{ "imagePullPolicy": true }] } });
        let expected = "json: cannot unmarshal bool into Go struct field \
            Container.spec.containers.imagePullPolicy of type v1.PullPolicy";
        check("v1", "Pod", object, expected);
        let data = json!({ "binaryData": { "a": "?" } });
        check("v1", "ConfigMap", data, "illegal base64 data at input byte 0");
        let quota = json!({ "spec": { "hard": { "cpu": "x" } } });
        let expected =
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
        check("v1", "ResourceQuota", quota, expected);
        let budget = json!({ "spec": { "minAvailable": true } });
        let expected = "json: cannot unmarshal bool into Go value of type int32";
        check("policy/v1", "PodDisruptionBudget", budget, expected);
    }

    #[test]
    fn unknown_fields_go_and_are_told_and_nulls_go() {
        let (object, unknown) = reading(
            "apps/v1",
            "Deployment",
            json!({ "kind": "Deployment", "metadata": { "x": 1 }, "colour": 1, "spec": {
                "replicas": null, "template": { "metadata": { "y": {} }, "spec": { "containers": [
                    { "name": "a", "env": null }, { "imag": "i" }, null ] } } } }),
        );
        let expected = ["colour", "spec.template.metadata.y", "spec.template.spec.containers[1].imag"];
        let mut unknown = unknown.expect("well typed");
        unknown.sort();
        assert_eq!(unknown, expected);
        let template = json!({ "metadata": {}, "spec": { "containers": [{ "name": "a" }, {}, {}] } });
        let kept = json!({ "kind": "Deployment", "metadata": { "x": 1 }, "spec": { "template": template } });
        assert_eq!(object, kept);
        let (object, _) = reading("v1", "ConfigMap", json!({ "data": { "a": null } }));
        assert_eq!(object, json!({ "data": { "a": "" } }));
    }

    #[test]
    fn base64_is_read_as_go_reads_it_and_kept_in_one_form() {
        let read = |text: &str| {
            let (object, read) = reading("v1", "Secret", json!({ "data": { "a": text } }));
            read.map(|_| object["data"]["a"].as_str().map(str::to_owned).unwrap_or_default())
        };
        for text in ["aGVsbG8=", "aGVs\nbG8=\n", "aGVs\r\nbG8=", "aGVsbG9="] {
            assert_eq!(read(text).as_deref(), Ok("aGVsbG8="), "{text:?}");
        }
        for bad in ["aGVsbG8", "aGVs bG8=", "?"] {
            assert!(read(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn times_are_those_that_go_can_read() {
        let read = |field: &str, text: &str| {
            let lease = json!({ "spec": { field: text }, "metadata": {} });
            let event = json!({ field: text });
            match field {
                "renewTime" => reading("coordination.k8s.io/v1", "Lease", lease).1,
                _ => reading("v1", "Event", event).1,
            }
        };
        for good in ["2024-01-31T12:00:59Z", "2024-01-31T12:00:00.5+01:00", "2024-01-31T12:00:00-23:59"] {
            assert!(read("firstTimestamp", good).is_ok(), "{good}");
        }
        for bad in [
            "2024-01-31t12:00:00Z",
            "2024-01-31 12:00:00Z",
            "2024-01-31T12:00:00z",
            "2024-01-31T12:00:60Z",
            "2024-01-31T12:00:00",
            "2024-01-31T12:00:00+0100",
            "2024-01-31",
            "é024-01-31T12:00:0é0Z",
            "",
        ] {
            assert!(read("firstTimestamp", bad).is_err(), "{bad}");
            assert!(read("renewTime", bad).is_err(), "{bad}");
        }
        for (text, is_good) in [
            ("2024-01-31T12:00:00.123456Z", true),
            ("2024-01-31T12:00:00.123456+01:00", true),
            ("2024-01-31T12:00:00Z", false),
            ("2024-01-31T12:00:00.123Z", false),
            ("2024-01-31T12:00:00.1234567Z", false),
        ] {
            assert_eq!(read("renewTime", text).is_ok(), is_good, "{text}");
        }
    }

    #[test]
    fn templates_of_claims_may_say_their_type() {
        let set = |claim: Value| json!({ "spec": { "volumeClaimTemplates": [claim] } });
        let claim = json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "spec": {} });
        let (object, unknown) = reading("apps/v1", "StatefulSet", set(claim.clone()));
        assert_eq!((object, unknown), (set(claim), Ok(Vec::new())));
        let (object, _) = reading("apps/v1", "StatefulSet", set(json!({ "kind": null })));
        assert_eq!(object, set(json!({})));
        let (_, read) = reading("apps/v1", "StatefulSet", set(json!({ "kind": 1 })));
        assert!(read.expect_err("another type").contains("of type string"));
        let misplaced = json!({ "spec": { "template": { "kind": "PodTemplate" } } });
        let (_, unknown) = reading("apps/v1", "StatefulSet", misplaced);
        assert_eq!(unknown, Ok(vec!["spec.template.kind".to_owned()]));
    }

    #[test]
    fn quantities() {
        for good in ["1", "-1.5", "+.5", "100m", "1Gi", "1e3", "1E-3", "5E", "1.", "0"] {
            assert_eq!(quantity(&json!(good)), Ok(()), "{good}");
        }
        for bad in ["", ".", "x", "1x", "1.2.3", "1Ki3", "1e", "1 Gi", "1mi"] {
            assert!(quantity(&json!(bad)).is_err(), "{bad}");
        }
        assert_eq!(quantity(&json!(1.5)), Ok(()));
        assert!(quantity(&json!(true)).is_err());
    }

    #[test]
    fn a_definition_holds_anything_where_its_schema_may() {
        let schema = json!({ "type": "object", "properties": { "a": {
            "default": { "x": [null] }, "enum": [1, null], "items": [{ "typo": 1 }], "additionalProperties": false,
        } } });
        let definition = json!({ "spec": { "versions": [{ "schema": { "openAPIV3Schema": schema } }] } });
        let (object, unknown) = reading("apiextensions.k8s.io/v1", "CustomResourceDefinition", definition);
        let path = "spec.versions[0].schema.openAPIV3Schema.properties.a.items.typo";
        assert_eq!(unknown, Ok(vec![path.to_owned()]));
        let a = &object["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["a"];
        assert_eq!((&a["default"], &a["enum"]), (&json!({ "x": [null] }), &json!([1, null])));
        let (_, read) = reading(
            "apiextensions.k8s.io/v1",
            "CustomResourceDefinition",
            json!({ "spec": { "versions": [{ "schema": { "openAPIV3Schema": { "not": { "additionalProperties": 1 } } } }] } }),
        );
        assert_eq!(read, Err("boolean or JSON schema expected".to_owned()));
    }
}
