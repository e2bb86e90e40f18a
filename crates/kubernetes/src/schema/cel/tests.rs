//! Expressions by what they come to, and sources that mean harm.

use super::*;

/// What objects of a kind are told whose spec has this schema.
struct Kind(Schema);

impl Kind {
    fn new(spec: Value) -> Kind {
        let schema = json!({ "type": "object", "properties": { "spec": spec } });
        Kind(Schema::parse(&schema, "s").unwrap_or_else(|causes| panic!("{causes:?}")))
    }

    fn with_rule(properties: Value, rule: &str) -> Kind {
        Kind::new(json!({
            "type": "object", "properties": properties, "x-kubernetes-validations": [{ "rule": rule }],
        }))
    }

    fn told(&self, old: Option<Value>, spec: Value) -> Vec<String> {
        let object = |spec: Value| {
            let object =
                json!({ "apiVersion": "x/v1", "kind": "X", "metadata": { "name": "a" }, "spec": spec });
            Object::decode(object).expect("good").0
        };
        let causes = check(&self.0, &object(spec), old.map(object).as_ref());
        causes.iter().map(Cause::to_string).collect()
    }
}

/// What is wrong with a definition that has this rule.
fn refused(properties: &Value, rule: Value) -> Vec<String> {
    let spec = json!({ "type": "object", "properties": properties, "x-kubernetes-validations": [rule] });
    let schema = json!({ "type": "object", "properties": { "spec": spec } });
    let causes = Schema::parse(&schema, "s").err().unwrap_or_default();
    causes
        .iter()
        .map(|cause| cause.to_string().replace("s.properties[spec].x-kubernetes-validations[0].", ""))
        .collect()
}

fn properties() -> Value {
    json!({
        "n": { "type": "integer" }, "m": { "type": "integer" }, "x": { "type": "number" },
        "s": { "type": "string" }, "t": { "type": "string" }, "b": { "type": "boolean" },
        "l": { "type": "array", "items": { "type": "string" } },
        "set": { "type": "array", "x-kubernetes-list-type": "set", "items": { "type": "string" } },
        "o": { "type": "object", "properties": { "a": { "type": "string" }, "dash-ed": { "type": "integer" } } },
        "map": { "type": "object", "additionalProperties": { "type": "integer" } },
        "ports": {
            "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
            "items": {
                "type": "object", "required": ["name"],
                "properties": { "name": { "type": "string" }, "port": { "type": "integer" } },
            },
        },
        "p": { "x-kubernetes-int-or-string": true },
        "when": { "type": "string", "format": "date-time" },
        "for": { "type": "string", "format": "duration" }, "raw": { "type": "string", "format": "byte" },
    })
}

fn spec() -> Value {
    json!({
        "n": 3, "m": 5, "x": 2, "s": "hello-World", "t": "", "b": true, "l": ["b", "a", "c"], "set": ["u", "v"],
        "o": { "a": "x", "dash-ed": 7 }, "map": { "k": 1, "j": 2 },
        "ports": [{ "name": "http", "port": 80 }, { "name": "https", "port": 443 }],
        "p": "50%", "when": "2024-01-01T00:00:00Z", "for": "90s", "raw": "aGVsbG8=",
    })
}

#[test]
fn expressions_have_the_values_that_cel_gives_them() {
    for rule in [
        "self.n < self.m && self.n + 2 == self.m",
        "self.n * 2 - 1 == 5 && self.m / 2 == 2 && self.m % 2 == 1 && -self.n == -3",
        "self.x / 4.0 == 0.5",
        "self.n <= 3 ? true : false",
        "!(self.n > 3) || self.nothing == 1 ? true : false".replace("self.nothing == 1", "false").as_str(),
        "has(self.o.a) && !has(self.o.b)".replace("has(self.o.b)", "has(self.map.z)").as_str(),
        "self.o.dash__dash__ed == 7",
        "size(self.s) == 11 && self.s.size() == 11 && size(self.l) == 3",
        "self.s.startsWith('hello') && self.s.endsWith(\"World\") && self.s.contains('-')",
        "self.s.matches('^[a-z]+-World$')",
        r"self.s.matches(r'^\w+-\w+$')",
        "self.s.split('-')[1] == 'World' && self.s.split('-').join('+') == 'hello+World'",
        "self.s.lowerAscii() == 'hello-world' && self.s.substring(6) == 'World' && self.s.charAt(0) == 'h'",
        "self.s.indexOf('l') == 2 && self.s.lastIndexOf('l') == 9 && self.s.replace('l', 'L') == 'heLLo-WorLd'",
        "self.s.find('[A-Z]\\\\w+') == 'World' && self.s.findAll('l').size() == 3",
        "'a' in self.l && !('z' in self.l) && 'k' in self.map && !('z' in self.map)",
        "self.l.all(e, e.size() == 1) && self.l.exists(e, e == 'b') && self.l.exists_one(e, e == 'c')",
        "self.l.map(e, e + e) == ['bb', 'aa', 'cc'] && self.l.filter(e, e > 'a') == ['b', 'c']",
        "self.l.map(e, e > 'a', e + '!').size() == 2",
        "self.map.all(k, self.map[k] > 0) && self.map.k == 1",
        "self.ports.all(p, p.port > 0 && p.port < 65536)",
        "self.ports.exists(p, p.name == 'https' && p.port == 443)",
        "!self.l.isSorted() && [1, 2].sum() == 3 && [3, 1].min() == 1 && [3, 1].max() == 3",
        "self.set == ['v', 'u']",
        "self.l != ['a', 'b', 'c']",
        "{'a': 1, 'b': 2}.b == 2",
        "self.p == '50%' && self.p != 5 && type_is_not_needed".replace(" && type_is_not_needed", "").as_str(),
        "int('7') == 7 && string(self.n) == '3' && double(self.n) == 3.0 && uint(3) == 3u",
        "self.when < timestamp('2024-06-01T00:00:00Z') && self.for == duration('1m30s')",
        "self.when + duration('24h') == timestamp('2024-01-02T00:00:00Z')",
        "self.for.getSeconds() == 90 && self.for.getMinutes() == 1 && duration('-90m').getHours() == -1",
        "self.for.getMilliseconds() == 90000 && timestamp('1969-12-31T23:59:59.5Z').getMilliseconds() == 500",
        "self.when.getFullYear() == 2024 && self.when.getMonth() == 0 && self.when.getDate() == 1",
        "self.when.getDayOfMonth() == 0 && self.when.getDayOfWeek() == 1 && self.when.getDayOfYear() == 0",
        "timestamp('2024-12-31T01:02:03+04:00').getHours() == 21 && timestamp('1969-12-31T01:02:03Z').getMinutes() == 2",
        "timestamp('2024-12-31T01:02:03Z').getDayOfYear() == 365 && timestamp('1969-12-31T01:02:03Z').getSeconds() == 3",
        "self.raw.size() == 5 && size(self.raw) == 5 && self.raw == self.raw",
        "self.n / 0 == 1 || self.n == 3",
        "[0, 1].exists(d, 1 / d == 1)",
        "1 < 1.5 && 0x10 == 16 && '\\u0041' == 'A' && b'a' == b'\\x61' && 1e3 == 1000.0",
        "type(self.p) == string && type(self.n) != string && type(self.l) == list",
        "self.b // a comment",
    ] {
        assert_eq!(Kind::with_rule(properties(), rule).told(None, spec()), Vec::<String>::new(), "{rule}");
        let not = format!("!({})", rule.trim_end_matches(" // a comment"));
        assert_eq!(Kind::with_rule(properties(), &not).told(None, spec()).len(), 1, "{not}");
    }
}

#[test]
fn rules_that_do_not_compile_refuse_the_definition() {
    for (rule, why) in [
        ("self.n >", "syntax error: expected a name, found the end"),
        ("self.n > 1)", "syntax error: unexpected ')'"),
        ("self.q == 1", "undefined field 'q'"),
        ("self.o.q == 'x'", "undefined field 'q'"),
        ("other == 1", "undeclared reference to 'other'"),
        ("self.n > 'a'", "found no matching overload for '_>_' applied to '(int, string)'"),
        ("self.n + 's' == 's'", "found no matching overload for '_+_' applied to '(int, string)'"),
        ("self.n", "must evaluate to a bool"),
        ("isURL(self.s)", "the function isURL() is not supported"),
        ("quantity(self.s).isInteger()", "the function quantity() is not supported"),
        ("self.s.format([1]) == ''", "the function format() is not supported"),
        ("self.s.contains()", "contains() does not take 0 arguments"),
        ("self.n.contains('a')", "found no matching overload for 'contains' applied to '(int, string)'"),
        ("self.l.all(self.n, true)", "the first argument of all() must be a simple name"),
        ("self.l.all(i, e, true)", "all() with this number of arguments is not supported"),
        ("self.n.all(e, true)", "expression of type 'int' cannot be range of a comprehension"),
        ("has(self)", "invalid argument to has() macro"),
        ("self.?n == 1", "optional fields are not supported"),
        ("X{a: 1} == 1", "messages are not supported"),
        ("self.s.matches('(')", "regular expression \"(\" must be a valid regular expression"),
        (
            "self.raw.contains('a')",
            "found no matching overload for 'contains' applied to '(string of format byte, string)'",
        ),
        ("self.when.getHours('Europe/Berlin') == 1", "getHours() does not take 1 arguments"),
        ("self.for.getDate() == 1", "found no matching overload for 'getDate' applied to '(duration)'"),
        ("'a", "syntax error: a string does not end"),
        ("1 = 1", "syntax error: unexpected character '='"),
        ("package == 1", "syntax error: reserved identifier: package"),
    ] {
        let expected = format!("rule: Invalid value: {}: compilation failed: {why}", json!(rule));
        assert_eq!(refused(&properties(), json!({ "rule": rule })), [expected], "{rule}");
    }
    let found = refused(&properties(), json!({ "rule": "" }));
    assert_eq!(found, ["rule: Required value: rules must say something"]);
    for (more, field) in [
        (json!({ "message": "a\nb" }), "message"),
        (json!({ "message": " \n" }), "message"),
        (json!({ "reason": "Whim" }), "reason"),
        (json!({ "fieldPath": ".q" }), "fieldPath"),
        (json!({ "messageExpression": "self.n" }), "messageExpression"),
        (json!({ "messageExpression": "self.q" }), "messageExpression"),
        (json!({ "optionalOldSelf": true }), "optionalOldSelf"),
    ] {
        let mut rule = more;
        rule["rule"] = json!("true");
        let found = refused(&properties(), rule.clone());
        assert!(found.len() == 1 && found[0].starts_with(&format!("{field}: ")), "{rule}: {found:?}");
    }
    let uncorrelated = json!({ "l": {
        "type": "array",
        "items": { "type": "object", "properties": {}, "x-kubernetes-validations": [{ "rule": "self == oldSelf" }] },
    } });
    assert_eq!(refused(&uncorrelated, json!({ "rule": "true" })).len(), 1);
}

#[test]
fn broken_rule_is_told_by_its_field_reason_and_message() {
    let kind = |more: Value| {
        let mut rule = more;
        rule["rule"] = json!("self.n < self.m");
        Kind::new(json!({ "type": "object", "properties": properties(), "x-kubernetes-validations": [rule] }))
    };
    let spec = json!({ "n": 5, "m": 3 });
    for (more, expected) in [
        (json!({}), "spec: Invalid value: failed rule: self.n < self.m"),
        (json!({ "message": "n is too large" }), "spec: Invalid value: n is too large"),
        (json!({ "message": "n is too large\n" }), "spec: Invalid value: n is too large"),
        (
            json!({ "messageExpression": "'n is ' + string(self.n)", "message": "unused" }),
            "spec: Invalid value: n is 5",
        ),
        // One that cannot be worked out gives way to the message.
        (json!({ "messageExpression": "self.s", "message": "plain" }), "spec: Invalid value: plain"),
        (
            json!({ "fieldPath": ".n", "reason": "FieldValueForbidden", "message": "no" }),
            "spec.n: Forbidden: no",
        ),
        (
            json!({ "fieldPath": ".map['k']", "reason": "FieldValueRequired", "message": "no" }),
            "spec.map[k]: Required value: no",
        ),
    ] {
        assert_eq!(kind(more.clone()).told(None, spec.clone()), [expected], "{more}");
    }
    let scalar = Kind::new(json!({ "type": "object", "properties": {
        "n": { "type": "integer", "x-kubernetes-validations": [{ "rule": "self % 2 == 0", "message": "must be even" }] },
    } }));
    assert_eq!(scalar.told(None, json!({ "n": 3 })), ["spec.n: Invalid value: 3: must be even"]);
    assert!(scalar.told(None, json!({})).is_empty(), "what is absent has no rules");
    let missing = Kind::with_rule(properties(), "self.n > 1");
    assert_eq!(
        missing.told(None, json!({})),
        ["spec: Invalid value: no such key: n evaluating rule: self.n > 1"]
    );
}

#[test]
fn transition_rules_compare_with_the_value_before() {
    let kind = Kind::with_rule(properties(), "self.n >= oldSelf.n");
    assert!(kind.told(None, json!({ "n": 1 })).is_empty(), "nothing was before");
    assert!(kind.told(Some(json!({ "n": 1 })), json!({ "n": 2 })).is_empty());
    assert_eq!(kind.told(Some(json!({ "n": 2 })), json!({ "n": 1 })).len(), 1);
    let mut items = properties()["ports"].clone();
    items["items"]["x-kubernetes-validations"] = json!([{ "rule": "self.port == oldSelf.port" }]);
    let kind = Kind::new(json!({ "type": "object", "properties": { "ports": items } }));
    let ports = |ports: &[(&str, i64)]| {
        let ports: Vec<Value> =
            ports.iter().map(|(name, port)| json!({ "name": name, "port": port })).collect();
        json!({ "ports": ports })
    };
    let old = Some(ports(&[("a", 1), ("b", 2)]));
    assert!(kind.told(old.clone(), ports(&[("b", 2), ("c", 3), ("a", 1)])).is_empty());
    assert_eq!(
        kind.told(old, ports(&[("c", 3), ("a", 9)])),
        ["spec.ports[1]: Invalid value: failed rule: self.port == oldSelf.port"]
    );
}

#[test]
fn unchanged_value_that_breaks_a_newer_rule_is_left_alone() {
    let kind = Kind::with_rule(properties(), "self.n < 3");
    let old = json!({ "n": 5, "m": 1 });
    assert!(kind.told(Some(old.clone()), old.clone()).is_empty());
    assert_eq!(kind.told(Some(old), json!({ "n": 5, "m": 2 })).len(), 1);
}

#[test]
fn rules_end_within_their_budget() {
    let list: Vec<String> = (0..2_000).map(|n| n.to_string()).collect();
    let spec = json!({ "l": list, "s": "a".repeat(100_000) });
    for rule in [
        "self.l.all(a, self.l.all(b, self.l.all(c, a + b + c != 'x')))",
        "self.l.map(a, self.l.map(b, a + b)).size() > 0 && self.l.all(a, self.l.map(b, a + b).size() > 0)",
        "self.l.all(a, self.s.matches('(a|b)*c' + a) == false)",
        "self.s.matches('a[ab]{2000}[^ab]')",
        "[self.s].all(a, [a + a + a + a].all(b, [b + b + b + b].all(c, [c + c + c + c].all(d, [d + d + d + d].all(e, [e + e + e + e].all(f, (f + f + f + f).size() > 0))))))",
        "self.l.all(a, self.s.replace('a', self.s) != '')",
        "self.l.map(a, {self.s: a}).size() > 0",
        "self.l.all(a, {}[self.s] == 1 || true)",
        "self.l.all(a, [{self.s: 1}].all(m, m.all(k, true) && m == m))",
        "self.l.all(a, !(self.s in {}))",
        "self.l.all(a, [self.s, self.s].isSorted() && [self.s, self.s].max() == self.s)",
        "self.s.findAll('.*[^a]|a').size() > 0",
        "self.l.all(a, self.l.all(b, '0' in self.l && dyn(self.l) != 1 && size(self.s) > 0))",
    ] {
        let began = std::time::Instant::now();
        let told = Kind::with_rule(properties(), rule).told(None, spec.clone());
        assert_eq!(told.len(), 1, "{rule}");
        assert!(told[0].contains("running out of cost budget"), "{rule}: {told:?}");
        assert!(began.elapsed() < std::time::Duration::from_secs(10), "{rule}: {:?}", began.elapsed());
    }
}

#[test]
fn patterns_that_rules_spell_out_are_counted() {
    let rule = |from: usize, count: usize| {
        let terms: Vec<String> = (from..from + count).map(|n| format!("self.s.matches('a{n}')")).collect();
        json!({ "rule": terms.join(" || ") })
    };
    let told = |rules: Vec<Value>| {
        let spec = json!({ "type": "object", "properties": properties(), "x-kubernetes-validations": rules });
        let schema = json!({ "type": "object", "properties": { "spec": spec } });
        let causes = Schema::parse(&schema, "s").err().unwrap_or_default();
        causes.iter().map(Cause::to_string).collect::<Vec<_>>()
    };
    let rules: Vec<Value> = (0..4).map(|nth| rule(nth * 250, 250)).collect();
    assert!(told(rules.clone()).is_empty(), "a thousand");
    let refused = told([rules, vec![rule(1_000, 1)]].concat());
    assert!(refused.len() == 1 && refused[0].contains("1000 patterns at most"), "{refused:?}");
}

#[test]
fn patterns_are_compiled_with_their_rule_or_charged_for() {
    let list: Vec<String> = (0..100).map(|n| n.to_string()).collect();
    let spec = json!({ "l": list, "s": "a" });
    let spelt = Kind::with_rule(properties(), "self.l.all(e, e.matches('^[0-9]+$'))");
    assert!(spelt.told(None, spec.clone()).is_empty());
    let made = Kind::with_rule(properties(), "self.l.all(e, e.matches('^' + e + '$'))");
    let told = made.told(None, spec);
    assert!(told[0].contains("running out of cost budget"), "{told:?}");
    // The first argument is the text.
    let text = Kind::with_rule(properties(), "!matches('(', self.s)");
    assert!(text.told(None, json!({ "s": "a" })).is_empty());
}

#[test]
fn long_names_are_not_told_at_length() {
    let told = Kind::with_rule(properties(), "dyn(self.map)[self.s] == 1")
        .told(None, json!({ "map": {}, "s": "a".repeat(100_000) }));
    assert!(told.len() == 1 && told[0].contains("no such key: aaa") && told[0].len() < 500, "{told:?}");
}

#[test]
fn hostile_sources_are_refused_and_not_followed() {
    for source in [
        "(".repeat(5_000),
        "!".repeat(9_000) + "true",
        "-".repeat(9_000) + "1 == 1",
        "[".repeat(5_000),
        "true ? ".repeat(1_000),
        "a.".repeat(4_000),
        "self.l.all(x, ".repeat(600),
        "\"".repeat(9_999),
        "\\".repeat(100),
        "r".repeat(100),
        "x".repeat(20_000),
        "é".repeat(50),
        "1".repeat(400),
        "0x".to_owned(),
        "'\\x4".to_owned(),
        "'\\ué'".to_owned(),
    ] {
        let _ = parse::parse(&source);
    }
    let chain = vec!["self.n == 3"; 600].join(" && ");
    assert!(Kind::with_rule(properties(), &chain).told(None, spec()).is_empty());
    let sum = format!("{} > 0", vec!["self.n"; 900].join(" + "));
    assert!(Kind::with_rule(properties(), &sum).told(None, spec()).is_empty());
}

#[test]
fn stored_rule_that_does_not_compile_is_passed_over() {
    let rules = json!([{ "rule": "isURL(self.n)" }, { "rule": "self.n < 3" }]);
    let schema = json!({ "type": "object", "properties": { "spec": {
        "type": "object", "properties": properties(), "x-kubernetes-validations": rules,
    } } });
    let kind = Kind(Schema::parse_stored(&schema, "s").expect("it was stored"));
    assert!(kind.told(None, json!({ "n": 1 })).is_empty());
    assert_eq!(kind.told(None, json!({ "n": 5 })), ["spec: Invalid value: failed rule: self.n < 3"]);
    assert_eq!(passed_over(&kind.0), Some("the function isURL() is not supported"));
}

/// What expressions are made of.
const PARTS: [&str; 50] = [
    "self",
    "oldSelf",
    ".n",
    ".l",
    ".s",
    ".map",
    ".ports",
    "[0]",
    "['a']",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    ",",
    "+",
    "-",
    "*",
    "/",
    "%",
    "!",
    "==",
    "<",
    "&&",
    "||",
    "?",
    ":",
    "in",
    "1",
    "0",
    "2.5",
    "3u",
    "'a'",
    "\"b\"",
    "true",
    "null",
    ".all(e, ",
    ".map(e, ",
    "e",
    ".size()",
    "size(",
    ".matches('",
    "has(",
    ".split('')",
    ".substring(",
    ".indexOf(",
    "é",
    "\\",
    "'",
];

/// Whatever comes after what.
#[test]
fn random_sources_never_panic() {
    use rand::seq::IndexedRandom;
    use rand::{Rng, SeedableRng, rngs::StdRng};
    let mut random = StdRng::seed_from_u64(5);
    let schema = json!({ "type": "object", "properties": properties() });
    let schema = Schema::parse(&schema, "s").expect("good");
    let value = spec();
    let mut worked = 0;
    for _ in 0..30_000 {
        let source: String =
            (0..random.random_range(1..14)).filter_map(|_| PARTS.choose(&mut random).copied()).collect();
        let Ok(expr) = parse::parse(&source) else { continue };
        let own = Ty::of(&schema, false);
        let _ = Scope::new(&own, 10).check(&expr);
        let mut names = Names(vec![("self", Val::of(&value, Some(&schema)))]);
        let _ = eval::eval(&expr, &mut names, &mut Budget::new(10_000));
        worked += 1;
    }
    assert!(300 < worked, "{worked}");
}
