//! What Kubernetes' own kinds are made of, in one release of it: every message with its fields, in JSON and
//! in protobuf.
//!
//! The tables are data, `kinds.txt`, which `scripts/kubernetes-kinds` writes from the published types.
//! Protobuf bodies, the types of fields, their defaults and OpenAPI all read these tables, so that they
//! cannot tell different things. The file is part of the program: a mistake in it is ours, and stops the
//! member (and the tests below) when it is first needed. A message may contain itself.

pub mod defaults;
pub mod meaning;
pub mod typed;

use std::collections::HashMap;
use std::sync::{LazyLock, OnceLock};

const FILE: &str = include_str!("kinds.txt");

static TABLES: LazyLock<Tables> = LazyLock::new(Tables::read);

/// A message, and the form of a JSON object at the same time.
#[derive(Debug)]
pub struct Message {
    /// `core.Pod`
    pub name: &'static str,
    lines: &'static str,
    /// Read from the lines when they are first needed.
    fields: OnceLock<Vec<Field>>,
}

#[derive(Debug)]
pub struct Field {
    pub number: u32,
    /// In JSON; of no meaning for [`Type::Inline`].
    pub name: &'static str,
    pub of: Type,
    pub shape: Shape,
    /// Present and zero is something else than absent.
    pub keeps_zero: bool,
    pub required: bool,
    /// What Go calls its texts, if it has a name for them.
    pub go: Option<&'static str>,
    /// What a strategic patch does with its list.
    pub merge: Merge,
    /// A strategic patch may tell which of its members stay.
    pub retains_keys: bool,
}

/// What becomes of a list's old items in a strategic merge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Merge {
    Replace,
    AsSet,
    /// Items are the same if this field of theirs is.
    ByKey(&'static str),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    One,
    List,
    /// By name.
    Map,
}

#[derive(Clone, Copy, Debug)]
pub enum Type {
    Text,
    Int32,
    Int64,
    Bool,
    Double,
    /// Base64 in JSON.
    Bytes,
    /// A message around the bytes of a JSON document.
    Json,
    /// To the second in JSON.
    Time,
    MicroTime,
    /// An amount: a text in JSON.
    Quantity,
    IntOrString,
    /// A message around a list of texts.
    Texts,
    /// A schema, or something else that JSON tells from it.
    SchemaOrList,
    SchemaOrBool,
    SchemaOrTexts,
    Message(&'static Message),
    /// A message whose fields are those of its holder in JSON.
    Inline(&'static Message),
}

struct Tables {
    release: &'static str,
    /// The names in OpenAPI.
    packages: HashMap<&'static str, &'static str>,
    kinds: HashMap<(&'static str, &'static str), &'static str>,
    messages: HashMap<&'static str, &'static Message>,
}

/// The release of Kubernetes that all of this is of: `v1.36.0`.
pub fn release() -> &'static str {
    TABLES.release
}

/// The message of an object or a list of this kind.
pub fn message(api_version: &str, kind: &str) -> Option<&'static Message> {
    // Clients name the group to which they talk.
    let api_version = if kind == "DeleteOptions" { "*" } else { api_version };
    TABLES.kinds.get(&(api_version, kind)).map(|name| named(name))
}

/// All of them, by version and name; the version of `DeleteOptions` is a star.
pub fn kinds() -> impl Iterator<Item = (&'static str, &'static str)> {
    TABLES.kinds.keys().copied()
}

/// A message that the file has.
pub fn named(name: &str) -> &'static Message {
    TABLES.messages.get(name).unwrap_or_else(|| panic!("{name} is no message of kinds.txt"))
}

/// The schema in the definition of a kind.
pub fn schema() -> &'static Message {
    named("apiextensions.JSONSchemaProps")
}

impl Tables {
    fn read() -> Tables {
        let (head, messages) = FILE.split_once("\nmessage ").expect("kinds.txt has messages");
        let mut tables = Tables {
            release: "",
            packages: HashMap::new(),
            kinds: HashMap::new(),
            messages: messages.split("\nmessage ").map(Message::read).collect(),
        };
        for line in head.lines().filter(|line| !line.starts_with('#')) {
            match line.split(' ').collect::<Vec<_>>()[..] {
                ["release", release] => tables.release = release,
                ["package", name, openapi] => tables.packages.extend([(name, openapi)]),
                ["kind", api_version, kind, message] => {
                    tables.kinds.extend([((api_version, kind), message)]);
                }
                [""] => {}
                _ => panic!("{line:?} is no line of kinds.txt"),
            }
        }
        tables
    }
}

impl Message {
    fn read(text: &'static str) -> (&'static str, &'static Message) {
        let (name, lines) = text.split_once('\n').expect("the name of a message");
        // There is one of each, for as long as the program runs.
        (name, Box::leak(Box::new(Message { name, lines, fields: OnceLock::new() })))
    }

    /// In the order of their numbers.
    pub fn fields(&self) -> &[Field] {
        self.fields
            .get_or_init(|| self.lines.lines().filter(|line| !line.is_empty()).map(Field::read).collect())
    }

    /// The fields that its JSON has.
    pub fn all_fields(&self) -> Vec<&Field> {
        let mut all = Vec::new();
        for field in self.fields() {
            match field.of {
                Type::Inline(inner) => all.extend(inner.all_fields()),
                _ => all.push(field),
            }
        }
        all
    }

    /// The field of its JSON by this name.
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields().iter().find_map(|field| match field.of {
            Type::Inline(inner) => inner.field(name),
            _ => Some(field).filter(|field| field.name == name),
        })
    }

    /// Whether a zero of one of its fields means as much as its absence. Go always writes a field that must
    /// be there, and this one that need not.
    pub fn omits_zero(&self, field: &Field) -> bool {
        !field.keeps_zero || field.required || (self.name == "rbac.RoleRef" && field.name == "apiGroup")
    }

    /// `io.k8s.api.core.v1.Pod`
    pub fn openapi_name(&self) -> String {
        let (package, name) = self.names();
        format!("{}.{name}", TABLES.packages[package])
    }

    /// `v1.Pod`
    pub fn go_name(&self) -> String {
        let (package, name) = self.names();
        let version = TABLES.packages[package].rsplit('.').next().unwrap_or_default();
        format!("{version}.{name}")
    }

    /// `Pod`
    pub fn short_name(&self) -> &'static str {
        self.names().1
    }

    fn names(&self) -> (&'static str, &'static str) {
        self.name.split_once('.').expect("the package of a message")
    }
}

impl Field {
    fn read(line: &'static str) -> Field {
        let mut words = line.split(' ');
        let mut word = || words.next().unwrap_or_else(|| panic!("{line:?} is no field of kinds.txt"));
        let number = word().parse().expect("the number of a field");
        let (name, of) = (word(), word());
        let (keeps_zero, of) = of.strip_suffix('?').map_or((false, of), |of| (true, of));
        let (shape, of) = match (of.strip_prefix("[]"), of.strip_prefix("{}")) {
            (Some(of), _) => (Shape::List, of),
            (_, Some(of)) => (Shape::Map, of),
            _ => (Shape::One, of),
        };
        let (of, go) = of.split_once(':').map_or((of, None), |(of, go)| (of, Some(go)));
        let of = Type::read(of);
        let merge = Merge::Replace;
        let (required, retains_keys) = (false, false);
        let mut field = Field { number, name, of, shape, keeps_zero, required, go, merge, retains_keys };
        for word in words {
            match (word, word.strip_prefix("merge=")) {
                ("+", _) => field.required = true,
                ("merge", _) => field.merge = Merge::AsSet,
                ("retain", _) => field.retains_keys = true,
                (_, Some(key)) => field.merge = Merge::ByKey(key),
                _ => panic!("{word:?} is no word of kinds.txt"),
            }
        }
        field
    }
}

impl Type {
    fn read(word: &'static str) -> Type {
        match word {
            "text" => Type::Text,
            "int32" => Type::Int32,
            "int64" => Type::Int64,
            "bool" => Type::Bool,
            "double" => Type::Double,
            "bytes" => Type::Bytes,
            "json" => Type::Json,
            "time" => Type::Time,
            "microtime" => Type::MicroTime,
            "quantity" => Type::Quantity,
            "intorstring" => Type::IntOrString,
            "texts" => Type::Texts,
            "schemaorlist" => Type::SchemaOrList,
            "schemaorbool" => Type::SchemaOrBool,
            "schemaortexts" => Type::SchemaOrTexts,
            other => match other.strip_prefix('=').map(|name| (name, name.strip_suffix('*'))) {
                Some((_, Some(name))) => Type::Inline(named(name)),
                Some((name, None)) => Type::Message(named(name)),
                None => panic!("{other:?} is no type of kinds.txt"),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn no_message_has_a_number_or_a_name_twice() {
        for message in TABLES.messages.values() {
            let mut seen = BTreeSet::new();
            for field in message.fields() {
                assert!(seen.insert(field.number.to_string()), "{} {}", message.name, field.number);
            }
            for field in message.all_fields() {
                assert!(seen.insert(field.name.to_owned()), "{} {}", message.name, field.name);
            }
            assert!(!message.openapi_name().is_empty());
        }
        assert!(400 < TABLES.messages.len());
    }

    #[test]
    fn every_kind_that_is_served_has_a_table() {
        for kind in crate::registry::Registry::built_in().kinds() {
            let of = |kind_name: &str| message(&kind.api_version(), kind_name);
            let own = of(&kind.kind).unwrap_or_else(|| panic!("{} has no table", kind.kind));
            assert!(own.field("metadata").is_some(), "{}", kind.kind);
            let is_kept = kind.storage.is_some();
            assert_eq!(of(&kind.list_kind).is_some(), is_kept, "{}", kind.list_kind);
        }
    }

    #[test]
    fn one_release_is_told_everywhere() {
        let (major_minor, _) = release().rsplit_once('.').expect("a release");
        assert!(crate::version::git_version().starts_with(major_minor), "{}", release());
        assert!(
            super::super::openapi::v2::document(&crate::registry::Registry::built_in())["info"]["version"]
                .as_str()
                .is_some_and(|version| version.starts_with(major_minor))
        );
    }

    #[test]
    fn a_field_of_a_field_that_is_inline_is_found() {
        let volume = named("core.Volume");
        assert!(matches!(volume.field("emptyDir").map(|field| field.of), Some(Type::Message(_))));
        assert!(volume.field("volumeSource").is_none() && volume.field("VolumeSource").is_none());
        assert_eq!(named("core.PodSpec").field("containers").map(|f| f.merge), Some(Merge::ByKey("name")));
    }
}
