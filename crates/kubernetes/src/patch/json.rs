//! JSON patches: RFC 6902, as Kubernetes' clients expect it.
//!
//! One rule is not the RFC's: `test` against null holds where the member is missing, and clients that set
//! the first finalizer count on it. What cannot be read is a 400; what cannot be carried out is a 422.
//!
//! Time and memory are bounded by the size of patch and object: a patch has a most of operations, copies a
//! most of bytes, shifts a most of list elements, and never nests a value beyond what can be stored.

use super::unprocessable;
use crate::object::{DEPTH_MAX, depth_within};
use crate::status::{Reason, Refusal};
use serde_json::Value;
use std::io;

pub const OPERATIONS_MAX: usize = 10_000;
/// Bytes that all `copy` operations of a patch add, as JSON.
pub const COPIED_BYTES_MAX: usize = 3 << 20;
/// List elements that all insertions and removals of a patch shift: some tenths of a second at most.
pub const SHIFTED_ELEMENTS_MAX: usize = 100_000_000;
/// The nesting that is let be between two looks at the whole document.
const NESTING_BOUND_MAX: usize = 8 * DEPTH_MAX;

/// One operation, its pointers taken apart.
#[derive(Clone, Debug, PartialEq)]
enum Operation {
    Add(Pointer, Value),
    Remove(Pointer),
    Replace(Pointer, Value),
    Move { from: Pointer, to: Pointer },
    Copy { from: Pointer, to: Pointer },
    Test(Pointer, Value),
}

/// A place in a document: the steps from its root.
#[derive(Clone, Debug, PartialEq)]
struct Pointer {
    text: String,
    steps: Vec<String>,
}

/// The document after all operations of `patch`.
pub fn apply(document: Value, patch: Value) -> Result<Value, Refusal> {
    let Value::Array(operations) = patch else {
        return Err(Refusal::bad_request("error decoding patch: a JSON patch is a list of operations"));
    };
    if OPERATIONS_MAX < operations.len() {
        let message = format!(
            "The allowed maximum operations in a JSON patch is {OPERATIONS_MAX}, got {}",
            operations.len()
        );
        return Err(Refusal::new(Reason::RequestEntityTooLarge, message));
    }
    // Two levels are the patch's own: its list, and the operation.
    if !operations.iter().all(|operation| depth_within(operation, DEPTH_MAX + 1)) {
        return Err(Refusal::bad_request("error decoding patch: it is nested too deeply"));
    }
    // Read them all first: a patch that is malformed at its end is malformed, whatever its beginning does.
    let read: Vec<_> = operations.into_iter().map(fields).collect::<Result<_, _>>()?;
    let mut patching = Patching { document, copied_bytes: 0, shifted: 0, nesting_bound: DEPTH_MAX };
    for fields in read {
        patching.carry_out(operation(fields)?)?;
    }
    if !depth_within(&patching.document, DEPTH_MAX) {
        return Err(too_deep());
    }
    Ok(patching.document)
}

struct Fields {
    op: String,
    path: Option<String>,
    from: Option<String>,
    value: Option<Value>,
}

fn fields(operation: Value) -> Result<Fields, Refusal> {
    let malformed = |what: &str| Refusal::bad_request(format!("error decoding patch: {what}"));
    let Value::Object(mut map) = operation else {
        return Err(malformed("an operation is a JSON object"));
    };
    let mut text = |field: &str| match map.remove(field) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(malformed(&format!("{field:?} of an operation is a string"))),
    };
    let (op, path, from) = (text("op")?.unwrap_or_default(), text("path")?, text("from")?);
    Ok(Fields { op, path, from, value: map.remove("value") })
}

fn operation(fields: Fields) -> Result<Operation, Refusal> {
    let Fields { op, path, from, value } = fields;
    let missing = |what: &str| unprocessable(format!("{op} operation does not apply: it has no {what:?}"));
    let path = Pointer::parse(path.ok_or_else(|| missing("path"))?)?;
    let from = || Pointer::parse(from.ok_or_else(|| missing("from"))?);
    match op.as_str() {
        "add" => Ok(Operation::Add(path, value.ok_or_else(|| missing("value"))?)),
        "remove" => Ok(Operation::Remove(path)),
        "replace" => Ok(Operation::Replace(path, value.ok_or_else(|| missing("value"))?)),
        "move" => Ok(Operation::Move { from: from()?, to: path }),
        "copy" => Ok(Operation::Copy { from: from()?, to: path }),
        // Without a value, absence is what is tested.
        "test" => Ok(Operation::Test(path, value.unwrap_or(Value::Null))),
        _ => Err(unprocessable(format!("there is no operation {op:?}"))),
    }
}

impl Pointer {
    fn parse(text: String) -> Result<Pointer, Refusal> {
        let steps = match text.strip_prefix('/') {
            None if text.is_empty() => Vec::new(),
            None => return Err(unprocessable(format!("{text:?} is no JSON pointer"))),
            Some(rest) => rest.split('/').map(|step| step.replace("~1", "/").replace("~0", "~")).collect(),
        };
        if DEPTH_MAX < steps.len() {
            return Err(too_deep());
        }
        Ok(Pointer { text, steps })
    }

    fn is_inside(&self, other: &Pointer) -> bool {
        other.steps.len() < self.steps.len() && self.steps.starts_with(&other.steps)
    }

    fn missing(&self, op: &str) -> Refusal {
        unprocessable(format!("{op} operation does not apply: doc is missing path: {}", self.text))
    }
}

fn too_deep() -> Refusal {
    unprocessable(format!("the patch nests values more than {DEPTH_MAX} levels deep"))
}

/// An index of a list that has `length` elements. Only one spelling for each number.
fn index(step: &str, length: usize) -> Option<usize> {
    let plain = step.bytes().all(|byte| byte.is_ascii_digit()) && (step.len() == 1 || !step.starts_with('0'));
    let index = if plain { step.parse().ok()? } else { return None };
    if index < length { Some(index) } else { None }
}

fn find<'a>(document: &'a Value, steps: &[String]) -> Option<&'a Value> {
    steps.iter().try_fold(document, |place, step| match place {
        Value::Object(map) => map.get(step),
        Value::Array(list) => list.get(index(step, list.len())?),
        _ => None,
    })
}

fn find_mut<'a>(document: &'a mut Value, steps: &[String]) -> Option<&'a mut Value> {
    steps.iter().try_fold(document, |place, step| match place {
        Value::Object(map) => map.get_mut(step),
        Value::Array(list) => {
            let index = index(step, list.len())?;
            list.get_mut(index)
        }
        _ => None,
    })
}

struct Patching {
    document: Value,
    copied_bytes: usize,
    shifted: usize,
    /// No value of the document is nested deeper than this.
    nesting_bound: usize,
}

impl Patching {
    fn carry_out(&mut self, operation: Operation) -> Result<(), Refusal> {
        match operation {
            Operation::Add(path, value) => {
                self.insert("add", &path, value)?;
                self.nested(path.steps.len() + DEPTH_MAX)
            }
            Operation::Replace(path, value) => {
                let place =
                    find_mut(&mut self.document, &path.steps).ok_or_else(|| path.missing("replace"))?;
                *place = value;
                self.nested(path.steps.len() + DEPTH_MAX)
            }
            Operation::Remove(path) => self.remove("remove", &path).map(drop),
            Operation::Test(path, value) => self.test(&path, &value),
            Operation::Move { from, to } => {
                if to.is_inside(&from) {
                    return Err(to.missing("move"));
                }
                let below = self.nesting_bound.saturating_sub(from.steps.len());
                let value = self.remove("move", &from)?;
                self.insert("move", &to, value)?;
                self.nested(to.steps.len() + below)
            }
            Operation::Copy { from, to } => {
                let below = self.nesting_bound.saturating_sub(from.steps.len());
                let value = self.copy_of(&from)?;
                self.insert("copy", &to, value)?;
                self.nested(to.steps.len() + below)
            }
        }
    }

    fn insert(&mut self, op: &str, path: &Pointer, value: Value) -> Result<(), Refusal> {
        let Some((last, parents)) = path.steps.split_last() else {
            self.document = value;
            return Ok(());
        };
        match find_mut(&mut self.document, parents) {
            Some(Value::Object(map)) => drop(map.insert(last.clone(), value)),
            Some(Value::Array(list)) if last == "-" => list.push(value),
            Some(Value::Array(list)) => {
                let index = index(last, list.len() + 1).ok_or_else(|| path.missing(op))?;
                shift(&mut self.shifted, list.len() - index)?;
                list.insert(index, value);
            }
            _ => return Err(path.missing(op)),
        }
        Ok(())
    }

    fn remove(&mut self, op: &str, path: &Pointer) -> Result<Value, Refusal> {
        let Some((last, parents)) = path.steps.split_last() else {
            return Err(path.missing(op));
        };
        match find_mut(&mut self.document, parents) {
            Some(Value::Object(map)) => map.remove(last).ok_or_else(|| path.missing(op)),
            Some(Value::Array(list)) => {
                let index = index(last, list.len()).ok_or_else(|| path.missing(op))?;
                shift(&mut self.shifted, list.len() - index)?;
                Ok(list.remove(index))
            }
            _ => Err(path.missing(op)),
        }
    }

    fn copy_of(&mut self, from: &Pointer) -> Result<Value, Refusal> {
        let value = find(&self.document, &from.steps).ok_or_else(|| from.missing("copy"))?;
        // Measured before it is copied, and only as far as there is room.
        let mut room = Room { bytes: COPIED_BYTES_MAX - self.copied_bytes };
        if serde_json::to_writer(&mut room, value).is_err() {
            let message = format!("the patch copies more than {COPIED_BYTES_MAX} bytes");
            return Err(unprocessable(message));
        }
        self.copied_bytes = COPIED_BYTES_MAX - room.bytes;
        Ok(value.clone())
    }

    fn test(&self, path: &Pointer, expected: &Value) -> Result<(), Refusal> {
        let holds = match (find(&self.document, &path.steps), path.steps.split_last()) {
            (Some(found), _) => same(found, expected),
            (None, Some((_, parents))) => {
                expected.is_null() && matches!(find(&self.document, parents), Some(Value::Object(_)))
            }
            (None, None) => false,
        };
        if holds {
            return Ok(());
        }
        Err(unprocessable(format!("the test at {} failed", path.text)))
    }

    /// Some value may now be nested as deep as `levels`. Looks at the document only when the bound no
    /// longer tells, so that the looks of a long patch stay few.
    fn nested(&mut self, levels: usize) -> Result<(), Refusal> {
        self.nesting_bound = self.nesting_bound.max(levels);
        if NESTING_BOUND_MAX < self.nesting_bound {
            if !depth_within(&self.document, DEPTH_MAX) {
                return Err(too_deep());
            }
            self.nesting_bound = DEPTH_MAX;
        }
        Ok(())
    }
}

/// Numbers are the same by what they count, not by how they are written.
fn same(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => {
            left == right || (left.as_f64() == right.as_f64() && (left.is_f64() || right.is_f64()))
        }
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(left, right)| same(left, right))
        }
        (Value::Object(left), Value::Object(right)) => {
            left.len() == right.len()
                && left.iter().zip(right).all(|(left, right)| left.0 == right.0 && same(left.1, right.1))
        }
        _ => left == right,
    }
}

fn shift(shifted: &mut usize, elements: usize) -> Result<(), Refusal> {
    *shifted += elements;
    if SHIFTED_ELEMENTS_MAX < *shifted {
        let message = "the patch moves too many list elements";
        return Err(Refusal::new(Reason::RequestEntityTooLarge, message));
    }
    Ok(())
}

/// Counts bytes down, and fails when there are no more.
struct Room {
    bytes: usize,
}

impl io::Write for Room {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes = self.bytes.checked_sub(bytes.len()).ok_or_else(|| io::Error::other("no room"))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{Rng, SeedableRng, rngs::StdRng};
    use serde_json::json;

    fn check(document: Value, patch: Value, expected: Value) {
        assert_eq!(apply(document, patch.clone()), Ok(expected), "{patch}");
    }

    fn refused(document: Value, patch: Value, code: u16) {
        let refusal = apply(document, patch.clone()).expect_err("a refusal");
        assert_eq!(refusal.code(), code, "{patch}: {refusal}");
    }

    #[test]
    fn each_operation_does_what_the_rfc_says() {
        let document = || json!({ "a": 1, "l": [1, 2, 3], "m": { "x~/y": true } });
        let with = |patch: Value| apply(document(), patch).expect("a good patch");
        assert_eq!(with(json!([{ "op": "add", "path": "/b", "value": null }]))["b"], json!(null));
        assert_eq!(with(json!([{ "op": "add", "path": "/l/1", "value": 9 }]))["l"], json!([1, 9, 2, 3]));
        assert_eq!(with(json!([{ "op": "add", "path": "/l/3", "value": 9 }]))["l"], json!([1, 2, 3, 9]));
        assert_eq!(with(json!([{ "op": "add", "path": "/l/-", "value": 9 }]))["l"], json!([1, 2, 3, 9]));
        assert_eq!(with(json!([{ "op": "remove", "path": "/l/0" }]))["l"], json!([2, 3]));
        assert_eq!(with(json!([{ "op": "remove", "path": "/m/x~0~1y" }]))["m"], json!({}));
        assert_eq!(with(json!([{ "op": "replace", "path": "/a", "value": 2 }]))["a"], json!(2));
        assert_eq!(with(json!([{ "op": "move", "from": "/l/2", "path": "/l/0" }]))["l"], json!([3, 1, 2]));
        assert_eq!(with(json!([{ "op": "copy", "from": "/l", "path": "/m/l" }]))["m"]["l"], json!([1, 2, 3]));
        assert_eq!(with(json!([{ "op": "replace", "path": "", "value": { "z": 1 } }])), json!({ "z": 1 }));
        assert_eq!(with(json!([])), document());
    }

    #[test]
    fn a_test_against_null_holds_where_the_member_is_missing() {
        let document = || json!({ "metadata": { "name": "a" } });
        check(
            document(),
            json!([
                { "op": "test", "path": "/metadata/finalizers", "value": null },
                { "op": "add", "path": "/metadata/finalizers", "value": ["a/b"] },
            ]),
            json!({ "metadata": { "name": "a", "finalizers": ["a/b"] } }),
        );
        check(document(), json!([{ "op": "test", "path": "/metadata/finalizers" }]), document());
        refused(document(), json!([{ "op": "test", "path": "/metadata/name", "value": null }]), 422);
        refused(document(), json!([{ "op": "test", "path": "/metadata/x", "value": 1 }]), 422);
        refused(document(), json!([{ "op": "test", "path": "/nothing/x", "value": null }]), 422);
    }

    #[test]
    fn tests_compare_by_value() {
        let document = || json!({ "n": 1, "o": { "a": [1, "x"] } });
        check(document(), json!([{ "op": "test", "path": "/n", "value": 1.0 }]), document());
        check(document(), json!([{ "op": "test", "path": "/o", "value": { "a": [1.0, "x"] } }]), document());
        refused(document(), json!([{ "op": "test", "path": "/o", "value": { "a": ["x", 1] } }]), 422);
        refused(document(), json!([{ "op": "test", "path": "/o", "value": { "a": [1, "x"], "b": 1 } }]), 422);
        let big = json!({ "n": 9_007_199_254_740_993_u64 });
        refused(big, json!([{ "op": "test", "path": "/n", "value": 9_007_199_254_740_992_u64 }]), 422);
    }

    #[test]
    fn what_cannot_be_carried_out_is_a_422() {
        for patch in [
            json!([{ "op": "remove", "path": "/x" }]),
            json!([{ "op": "remove", "path": "" }]),
            json!([{ "op": "replace", "path": "/x", "value": 1 }]),
            json!([{ "op": "add", "path": "/x/y", "value": 1 }]),
            json!([{ "op": "add", "path": "/l/2", "value": 1 }]),
            json!([{ "op": "add", "path": "/l/01", "value": 1 }]),
            json!([{ "op": "add", "path": "/l/-1", "value": 1 }]),
            json!([{ "op": "add", "path": "/l/+0", "value": 1 }]),
            json!([{ "op": "add", "path": "/l/", "value": 1 }]),
            json!([{ "op": "add", "path": "/a" }]),
            json!([{ "op": "add", "path": "a", "value": 1 }]),
            json!([{ "op": "add", "value": 1 }]),
            json!([{ "op": "move", "path": "/b" }]),
            json!([{ "op": "move", "from": "/l", "path": "/l/0" }]),
            json!([{ "op": "copy", "from": "/x", "path": "/b" }]),
            json!([{ "op": "test", "path": "/a", "value": 2 }]),
            json!([{ "op": "destroy", "path": "/a" }]),
            json!([{ "path": "/a" }]),
            json!([{ "op": "add", "path": "/a/0", "value": 1 }]),
        ] {
            refused(json!({ "a": 1, "l": [0] }), patch, 422);
        }
    }

    #[test]
    fn what_cannot_be_read_is_a_400() {
        for patch in [
            json!({}),
            json!("x"),
            json!(null),
            json!([1]),
            json!([{ "op": 1 }]),
            json!([{ "op": "add", "path": 1 }]),
        ] {
            refused(json!({}), patch, 400);
        }
    }

    #[test]
    fn ten_thousand_operations_are_the_most() {
        let patch = |count| Value::Array(vec![json!({ "op": "add", "path": "/a", "value": 1 }); count]);
        check(json!({}), patch(OPERATIONS_MAX), json!({ "a": 1 }));
        refused(json!({}), patch(OPERATIONS_MAX + 1), 413);
    }

    #[test]
    fn copies_are_bounded_in_bytes() {
        // Twenty doublings of a kilobyte would make a gigabyte.
        let double = json!({ "op": "copy", "from": "/a", "path": "/a/-" });
        let patch = Value::Array(vec![double; 20]);
        refused(json!({ "a": ["x".repeat(1024)] }), patch, 422);
        let one = json!([{ "op": "copy", "from": "/a", "path": "/b" }]);
        assert!(apply(json!({ "a": "x".repeat(COPIED_BYTES_MAX - 2) }), one.clone()).is_ok());
        refused(json!({ "a": "x".repeat(COPIED_BYTES_MAX - 1) }), one, 422);
    }

    #[test]
    fn nesting_is_bounded_however_it_is_built() {
        let mut moves = vec![json!({ "op": "add", "path": "/x", "value": {} })];
        for _ in 0..4_000 {
            moves.push(json!({ "op": "add", "path": "/y", "value": {} }));
            moves.push(json!({ "op": "move", "from": "/x", "path": "/y/x" }));
            moves.push(json!({ "op": "move", "from": "/y", "path": "/x" }));
        }
        moves.truncate(OPERATIONS_MAX);
        refused(json!({}), Value::Array(moves), 422);
        let long = "/a".repeat(100_000);
        refused(json!({}), json!([{ "op": "add", "path": long, "value": 1 }]), 422);
        // Many moves that nest nothing are fine.
        let mut swaps = Vec::new();
        for _ in 0..3_000 {
            swaps.push(json!({ "op": "move", "from": "/a", "path": "/b/a" }));
            swaps.push(json!({ "op": "move", "from": "/b/a", "path": "/a" }));
        }
        let document = json!({ "a": { "deep": [[[1]]] }, "b": {} });
        check(document.clone(), Value::Array(swaps), document);
    }

    #[test]
    fn shifting_a_long_list_for_ever_is_refused() {
        let patch = Value::Array(vec![json!({ "op": "add", "path": "/l/0", "value": 0 }); OPERATIONS_MAX]);
        refused(json!({ "l": vec![0; 50_000] }), patch, 413);
    }

    /// Against a model that knows one flat map only.
    #[test]
    fn random_patches_of_a_flat_map_agree_with_a_naive_model() {
        let mut random = StdRng::seed_from_u64(11);
        for _ in 0..2_000 {
            let mut model: std::collections::BTreeMap<String, i64> = [("a".to_owned(), 1)].into();
            let (mut patch, mut good) = (Vec::new(), true);
            for _ in 0..random.random_range(1..8) {
                let key = |random: &mut StdRng| ["a", "b", "c"][random.random_range(0..3)].to_owned();
                let (to, from, value) = (key(&mut random), key(&mut random), random.random_range(0..3));
                let op = ["add", "remove", "replace", "move", "copy", "test"][random.random_range(0..6)];
                patch.push(json!({
                    "op": op, "path": format!("/{to}"), "from": format!("/{from}"), "value": value,
                }));
                good &= match op {
                    "add" => model.insert(to, value).is_none_or(|_| true),
                    "remove" => model.remove(&to).is_some(),
                    "replace" => model.get_mut(&to).map(|place| *place = value).is_some(),
                    "move" => model.remove(&from).map(|value| model.insert(to, value)).is_some(),
                    "copy" => model.get(&from).copied().map(|value| model.insert(to, value)).is_some(),
                    _ => model.get(&to) == Some(&value),
                };
                if !good {
                    break;
                }
            }
            let found = apply(json!({ "a": 1 }), Value::Array(patch.clone()));
            assert_eq!(found.ok(), good.then(|| json!(model)), "{patch:?}");
        }
    }

    #[test]
    fn whatever_a_patch_does_the_outcome_can_be_stored() {
        let mut random = StdRng::seed_from_u64(13);
        let pointer = |random: &mut StdRng| {
            let steps = ["a", "b", "0", "1", "-", "", "~1", "01"];
            (0..random.random_range(0..5))
                .map(|_| format!("/{}", steps[random.random_range(0..8)]))
                .collect::<String>()
        };
        let (mut done, mut refused) = (0, 0);
        for _ in 0..400 {
            let mut patch = Vec::new();
            for _ in 0..random.random_range(1..40) {
                let op = ["add", "add", "copy", "copy", "move", "replace", "remove", "test"]
                    [random.random_range(0..8)];
                let value = [json!({ "a": {}, "b": [] }), json!([[], {}]), json!(1), json!(null)]
                    [random.random_range(0..4)]
                .clone();
                let (path, from) = (pointer(&mut random), pointer(&mut random));
                patch.push(json!({ "op": op, "path": path, "from": from, "value": value }));
                // Most patches would fail at their first operations, and the rest would see nothing.
                if apply(json!({ "a": {}, "b": [1] }), Value::Array(patch.clone())).is_err()
                    && random.random_bool(0.9)
                {
                    patch.pop();
                }
            }
            match apply(json!({ "a": {}, "b": [1] }), Value::Array(patch)) {
                Ok(document) => {
                    done += 1;
                    assert!(depth_within(&document, DEPTH_MAX));
                    let bytes = serde_json::to_vec(&document).expect("JSON");
                    assert_eq!(crate::object::parse(&bytes), Ok(document));
                }
                Err(refusal) => {
                    refused += 1;
                    assert!(matches!(refusal.code(), 413 | 422), "{refusal}");
                }
            }
        }
        assert!(20 < done && 20 < refused, "{done} done, {refused} refused");
    }
}
