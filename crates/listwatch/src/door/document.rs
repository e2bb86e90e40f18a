//! JSON and YAML read with a bound on what they grow to, and an eye on names that come twice.
//!
//! Few bytes of YAML can stand for very many values, so that a document is charged for what it says and
//! not for how long it is. Nesting is bounded by the decoders, at 128 levels, and then by the object's own
//! bound.

use meerkat_kubernetes::object::{DEPTH_MAX, depth_within};
use meerkat_kubernetes::status::Refusal;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use std::cell::{Cell, RefCell};
use std::fmt;

/// What a document may grow to: far more than a body of three mebibytes says without repeating itself.
const COST_MAX: usize = 64 << 20;
/// Of a value, beside its text.
const COST_OF_VALUE: usize = 16;
/// Of an object with members: room for eleven of them, used or not.
const COST_OF_MAP: usize = 600;
/// Names told of that come twice.
const DUPLICATES_MAX: usize = 10;

/// A document, and the names in it that came twice. The last one counts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Document {
    pub value: Value,
    pub duplicates: Vec<String>,
}

pub fn json(bytes: &[u8]) -> Result<Document, Refusal> {
    let reader = Reader::default();
    let mut decoder = serde_json::Deserializer::from_slice(bytes);
    let value = reader.seed().deserialize(&mut decoder).and_then(|value| decoder.end().map(|()| value));
    let value = value.map_err(|error| Refusal::bad_request(format!("error decoding JSON: {error}")))?;
    reader.document(value)
}

/// What may be YAML and mostly is JSON, whose escapes YAML does not all know.
pub fn json_or_yaml(bytes: &[u8]) -> Result<Document, Refusal> {
    let is_json = bytes.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{');
    match is_json.then(|| json(bytes)) {
        Some(Ok(document)) => Ok(document),
        _ => yaml(bytes),
    }
}

pub fn yaml(bytes: &[u8]) -> Result<Document, Refusal> {
    let reader = Reader::default();
    let value = reader.seed().deserialize(serde_norway::Deserializer::from_slice(bytes));
    let value = value.map_err(|error| Refusal::bad_request(format!("error decoding YAML: {error}")))?;
    reader.document(value)
}

#[derive(Default)]
struct Reader {
    cost: Cell<usize>,
    path: RefCell<Vec<String>>,
    duplicates: RefCell<Vec<String>>,
}

impl Reader {
    fn seed(&self) -> Seed<'_> {
        Seed(self)
    }

    fn document(self, value: Value) -> Result<Document, Refusal> {
        if !depth_within(&value, DEPTH_MAX) {
            return Err(Refusal::bad_request("the object is nested too deeply"));
        }
        Ok(Document { value, duplicates: self.duplicates.into_inner() })
    }

    fn charge<E: Error>(&self, bytes: usize) -> Result<(), E> {
        let cost = self.cost.get().saturating_add(bytes).saturating_add(COST_OF_VALUE);
        self.cost.set(cost);
        if cost <= COST_MAX { Ok(()) } else { Err(E::custom("it grows to more than an object may have")) }
    }

    fn note_duplicate(&self, name: &str) {
        let mut duplicates = self.duplicates.borrow_mut();
        if duplicates.len() < DUPLICATES_MAX {
            let mut path = self.path.borrow().join(".");
            if !path.is_empty() {
                path.push('.');
            }
            duplicates.push(meerkat_kubernetes::excerpt::excerpt(&format!("{path}{name}")).to_string());
        }
    }
}

#[derive(Clone, Copy)]
struct Seed<'a>(&'a Reader);

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, decoder: D) -> Result<Value, D::Error> {
        decoder.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value that JSON has")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        self.0.charge(0).map(|()| Value::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        self.0.charge(0).map(|()| Value::from(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        self.0.charge(0).map(|()| Value::from(value))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        self.0.charge(0)?;
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("a number is not finite"))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        self.0.charge(value.len()).map(|()| Value::from(value))
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        self.0.charge(0).map(|()| Value::Null)
    }

    fn visit_none<E: Error>(self) -> Result<Value, E> {
        self.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, decoder: D) -> Result<Value, D::Error> {
        decoder.deserialize_any(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        self.0.charge(0)?;
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(self)? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        self.0.charge(0)?;
        let mut map = Map::new();
        while let Some(name) = members.next_key_seed(Name)? {
            let node = if map.is_empty() { COST_OF_MAP } else { 0 };
            self.0.charge(name.len() + node)?;
            if map.contains_key(&name) {
                self.0.note_duplicate(&name);
            }
            self.0.path.borrow_mut().push(name.clone());
            let value = members.next_value_seed(self)?;
            self.0.path.borrow_mut().pop();
            map.insert(name, value);
        }
        Ok(Value::Object(map))
    }
}

/// The name of a member. YAML has others than texts, which JSON writes as texts.
struct Name;

impl<'de> DeserializeSeed<'de> for Name {
    type Value = String;

    fn deserialize<D: Deserializer<'de>>(self, decoder: D) -> Result<String, D::Error> {
        decoder.deserialize_any(self)
    }
}

impl Visitor<'_> for Name {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a member")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<String, E> {
        Ok(name.to_owned())
    }

    fn visit_bool<E: Error>(self, name: bool) -> Result<String, E> {
        Ok(name.to_string())
    }

    fn visit_i64<E: Error>(self, name: i64) -> Result<String, E> {
        Ok(name.to_string())
    }

    fn visit_u64<E: Error>(self, name: u64) -> Result<String, E> {
        Ok(name.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn json_and_yaml_say_the_same() {
        let value = json!({ "a": [1, -2, 2.5, true, null, "x"], "b": { "c": {} } });
        assert_eq!(json(value.to_string().as_bytes()).expect("JSON").value, value);
        let text = "a:\n- 1\n- -2\n- 2.5\n- true\n- null\n- x\nb:\n  c: {}\n";
        assert_eq!(yaml(text.as_bytes()).expect("YAML").value, value);
        assert_eq!(yaml(value.to_string().as_bytes()).expect("JSON is YAML").value, value);
        assert_eq!(yaml(b"1: a\ntrue: b\n").expect("YAML").value, json!({ "1": "a", "true": "b" }));
    }

    #[test]
    fn a_name_that_comes_twice_is_told_with_its_path() {
        let document = json(br#"{"a":{"b":1,"b":2},"c":1,"c":3}"#).expect("JSON");
        assert_eq!(document.value, json!({ "a": { "b": 2 }, "c": 3 }));
        assert_eq!(document.duplicates, ["a.b", "c"]);
    }

    #[test]
    fn what_is_no_document_is_refused() {
        for bytes in [&b"{"[..], b"{} {}", b"", b"\xff", b"{\"a\":1e999}"] {
            assert_eq!(json(bytes).expect_err("no JSON").code(), 400, "{bytes:?}");
        }
        for bytes in [&b"a: [b"[..], b"a: !tag b", b"? [a]\n: b", b"a: .nan", b"\xff\xfe"] {
            assert_eq!(yaml(bytes).expect_err("no YAML").code(), 400, "{bytes:?}");
        }
    }

    #[test]
    fn nesting_is_bounded() {
        for depth in [121, 127, 200, 100_000] {
            let text = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
            assert_eq!(json(text.as_bytes()).expect_err("too deep").code(), 400, "{depth}");
        }
        let text = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
        assert_eq!(yaml(text.as_bytes()).expect_err("too deep").code(), 400);
    }

    #[test]
    fn aliases_do_not_grow_beyond_all_bounds() {
        let mut laughs = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..12 {
            let items = vec![format!("*a{}", level - 1); 10].join(", ");
            laughs.push_str(&format!("a{level}: &a{level} [{items}]\n"));
        }
        assert_eq!(yaml(laughs.as_bytes()).expect_err("a bomb").code(), 400);
        let long = format!("a: &a {}\nb: [{}]\n", "x".repeat(1 << 20), vec!["*a"; 100_000].join(","));
        assert_eq!(yaml(long.as_bytes()).expect_err("a bomb").code(), 400);
    }
}
