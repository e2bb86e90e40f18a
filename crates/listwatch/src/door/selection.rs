//! The selectors and the place of a request, as the filter that the cache knows.

use meerkat_kubernetes::registry::Kind;
use meerkat_kubernetes::status::Refusal;
use meerkat_watchcache::cacher::filter::{Filter, Scope, Term, Test};
use meerkat_watchcache::selector::{FieldSelector, FieldTerm, LabelSelector, LabelTest};
use std::collections::BTreeSet;

/// `name`: of the only object that is asked for.
pub fn filter(
    kind: &Kind,
    namespace: Option<&str>,
    name: Option<&str>,
    labels: &LabelSelector,
    fields: &FieldSelector,
) -> Result<Filter, Refusal> {
    fields.check_fields(|field| kind.selectable_field(field).is_some())?;
    let namespace = namespace.filter(|_| kind.is_namespaced());
    let scope = Scope { namespace: namespace.map(Box::from), name: name.map(Box::from) };
    Ok(Filter::new(scope, terms(labels, fields)))
}

fn terms(labels: &LabelSelector, fields: &FieldSelector) -> Vec<Term> {
    let labels = labels.terms().iter().map(|term| Term::label(&term.key, label_test(&term.test)));
    let fields = fields.terms().iter().map(|term| match term {
        FieldTerm::Is { field, value } => Term::field(field, Test::Equals(value.as_str().into())),
        FieldTerm::IsNot { field, value } => Term::field(field, Test::NotEquals(value.as_str().into())),
    });
    labels.chain(fields).collect()
}

fn label_test(test: &LabelTest) -> Test {
    match test {
        LabelTest::In(values) => match only(values) {
            Some(value) => Test::Equals(value),
            None => Test::In(boxed(values)),
        },
        LabelTest::NotIn(values) => match only(values) {
            Some(value) => Test::NotEquals(value),
            None => Test::NotIn(boxed(values)),
        },
        LabelTest::Exists => Test::Exists,
        LabelTest::Absent => Test::NotExists,
        LabelTest::Above(bound) => Test::Greater(*bound),
        LabelTest::Below(bound) => Test::Less(*bound),
    }
}

fn only(values: &BTreeSet<String>) -> Option<Box<str>> {
    let mut values = values.iter();
    values.next().filter(|_| values.next().is_none()).map(|value| value.as_str().into())
}

fn boxed(values: &BTreeSet<String>) -> BTreeSet<Box<str>> {
    values.iter().map(|value| value.as_str().into()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use meerkat_kubernetes::registry::Registry;
    use meerkat_watchcache::cacher::entry::{Entry, Shape};
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};
    use serde_json::{Value, json};
    use std::collections::BTreeMap;

    fn pick<'a>(chance: &mut StdRng, from: &[&'a str]) -> &'a str {
        from[chance.random_range(0..from.len())]
    }

    fn any_label_term(chance: &mut StdRng) -> String {
        let key = pick(chance, &["app", "tier", "weight"]);
        let (one, other) = (pick(chance, &["a", "b", "", "5"]), pick(chance, &["a", "7", "c"]));
        match chance.random_range(0..9) {
            0 => format!("{key}={one}"),
            1 => format!("{key}!={one}"),
            2 => format!("{key} in ({one},{other})"),
            3 => format!("{key} notin ({one},{other})"),
            4 => key.to_owned(),
            5 => format!("!{key}"),
            6 => format!("{key}>{}", chance.random_range(0..9)),
            7 => format!("{key}<{}", chance.random_range(0..9)),
            _ => format!("{key} in ({one})"),
        }
    }

    fn any_field_term(chance: &mut StdRng) -> String {
        let field = pick(chance, &["metadata.name", "metadata.namespace", "spec.nodeName", "status.phase"]);
        let sign = pick(chance, &["=", "==", "!="]);
        format!("{field}{sign}{}", pick(chance, &["x", "y", "Running", ""]))
    }

    fn any_object(chance: &mut StdRng) -> Value {
        let mut object = json!({ "metadata": { "labels": {} }, "spec": {}, "status": {} });
        for key in ["app", "tier", "weight"] {
            if chance.random_bool(0.6) {
                object["metadata"]["labels"][key] = json!(pick(chance, &["a", "b", "", "5", "7", "-3"]));
            }
        }
        if chance.random_bool(0.6) {
            object["spec"]["nodeName"] = json!(pick(chance, &["x", "y"]));
        }
        if chance.random_bool(0.6) {
            object["status"]["phase"] = json!(pick(chance, &["Running", "Pending"]));
        }
        object
    }

    /// What the filter takes is what the selectors say, of any object.
    #[test]
    fn the_filter_means_what_the_selectors_mean() {
        let registry = Registry::built_in();
        let kind = registry.by_resource("", "v1", "pods").expect("there are pods");
        let shape = Shape::new("v1", "Pod", true, &["spec.nodeName", "status.phase"]);
        let mut chance = StdRng::seed_from_u64(11);
        let (mut taken, mut left) = (0, 0);
        for _ in 0..3_000 {
            let count = chance.random_range(0..3);
            let labels: Vec<String> = (0..count).map(|_| any_label_term(&mut chance)).collect();
            let count = chance.random_range(0..2);
            let fields: Vec<String> = (0..count).map(|_| any_field_term(&mut chance)).collect();
            let labels = LabelSelector::parse(&labels.join(",")).expect("a selector");
            let fields = FieldSelector::parse(&fields.join(",")).expect("a selector");
            let (namespace, name) = (pick(&mut chance, &["x", "y"]), pick(&mut chance, &["x", "y"]));
            let object = any_object(&mut chance);
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let read = BTreeMap::from([
                ("metadata.name".to_owned(), name.to_owned()),
                ("metadata.namespace".to_owned(), namespace.to_owned()),
                ("spec.nodeName".to_owned(), text(&object["spec"]["nodeName"])),
                ("status.phase".to_owned(), text(&object["status"]["phase"])),
            ]);
            let scope = chance.random_bool(0.3).then_some("x");
            let wanted = labels.matches(&object["metadata"]["labels"].as_object())
                && fields.matches(&read)
                && scope.is_none_or(|scope| scope == namespace);
            let bytes = object.to_string();
            let entry = Entry::decode(&shape, &format!("{namespace}/{name}"), bytes.as_bytes(), 3)
                .expect("an object");
            let filter = filter(kind, scope, None, &labels, &fields).expect("fields of pods");
            assert_eq!(filter.matches(&entry), wanted, "{labels} {fields} {object}");
            if wanted { taken += 1 } else { left += 1 }
        }
        assert!(500 < taken && 500 < left, "{taken} {left}");
    }

    #[test]
    fn a_field_that_the_kind_does_not_have_is_refused() {
        let registry = Registry::built_in();
        let kind = registry.by_resource("", "v1", "configmaps").expect("there are config maps");
        let fields = FieldSelector::parse("spec.nodeName=a").expect("a selector");
        let refusal = filter(kind, None, None, &LabelSelector::default(), &fields).expect_err("no field");
        assert_eq!(refusal.code(), 400);
    }
}
