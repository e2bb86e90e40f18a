//! Questions about access, asked by creating an object that is answered and never kept.

use super::answer::{self, Body, header};
use super::authn::User;
use super::authz::{Act, Authorizer, Rule};
use super::request::Asked;
use super::{body, show};
use http::header::CONTENT_TYPE;
use http::{Response, StatusCode};
use meerkat_kubernetes::negotiation::Answer;
use meerkat_kubernetes::object::Object;
use meerkat_kubernetes::published::typed;
use meerkat_kubernetes::status::{Reason, Refusal};
use serde_json::{Map, Value, json};

pub async fn answer(asked: &Asked, sent: &[u8]) -> Result<Response<Body>, Refusal> {
    let form = show::form(&asked.kind, Answer::Review, &asked.look.accept)?;
    let document = body::decode(header(&asked.headers, &CONTENT_TYPE), body::readable(&asked.kind), sent)?;
    let (mut review, _) = Object::decode(document.value)?;
    typed::check(&asked.kind, &mut review)?;
    review.set_api_version(&asked.kind.api_version());
    review.set_kind(&asked.kind.kind);
    let spec = review.get("spec").and_then(Value::as_object).cloned().unwrap_or_default();
    let authorizer = asked.door.authorizer.as_ref();
    let status = match asked.kind.kind.as_str() {
        "TokenReview" => identity(text(&spec, "token"), asked).await?,
        kind => status(kind, &spec, asked.namespace(), &asked.user, authorizer)?,
    };
    review.set("status", Some(status));
    let shown =
        show::shaped(&asked.kind, form.shape, asked.query.include_object()?, review.into_value(), true);
    answer::value(StatusCode::CREATED, &form, &asked.look, &shown)
}

/// Whose token it is.
async fn identity(token: &str, asked: &Asked) -> Result<Value, Refusal> {
    if token.is_empty() {
        return Err(Refusal::bad_request("token is required for TokenReview in authentication"));
    }
    match asked.user_of(token).await {
        Ok(user) if user.known_name().is_some() => Ok(json!({
            "authenticated": true, "user": { "username": user.name, "groups": user.groups },
        })),
        Ok(_) => Ok(json!({ "authenticated": false, "user": {} })),
        Err(refusal) if refusal.reason == Reason::Unauthorized => {
            Ok(json!({ "authenticated": false, "user": {}, "error": refusal.message }))
        }
        Err(refusal) => Err(refusal),
    }
}

/// `namespace`: of the path.
fn status(
    kind: &str,
    spec: &Map<String, Value>,
    namespace: &str,
    user: &User,
    authorizer: &dyn Authorizer,
) -> Result<Value, Refusal> {
    match kind {
        "SelfSubjectReview" => Ok(json!({ "userInfo": { "username": user.name, "groups": user.groups } })),
        "SelfSubjectRulesReview" => {
            let namespace = text(spec, "namespace");
            if namespace.is_empty() {
                return Err(Refusal::bad_request("no namespace on request"));
            }
            Ok(rules(&authorizer.rules(user, namespace)))
        }
        "SubjectAccessReview" | "LocalSubjectAccessReview" => {
            verdict(spec, namespace, &subject(spec)?, authorizer)
        }
        _ => verdict(spec, namespace, user, authorizer),
    }
}

fn verdict(
    spec: &Map<String, Value>,
    namespace: &str,
    user: &User,
    authorizer: &dyn Authorizer,
) -> Result<Value, Refusal> {
    let act = match (part(spec, "resourceAttributes"), part(spec, "nonResourceAttributes")) {
        (Some(asked), None) => {
            let of_body = text(asked, "namespace");
            if !namespace.is_empty() && of_body != namespace {
                return Err(Refusal::bad_request("the namespace of the review is not the one of the path"));
            }
            Act::Resource {
                verb: text(asked, "verb"),
                group: text(asked, "group"),
                resource: text(asked, "resource"),
                subresource: text(asked, "subresource"),
                namespace: of_body,
                name: text(asked, "name"),
            }
        }
        (None, Some(asked)) if namespace.is_empty() => {
            Act::Page { verb: text(asked, "verb"), path: text(asked, "path") }
        }
        _ => {
            let why = "exactly one of resourceAttributes and nonResourceAttributes must be specified";
            return Err(Refusal::bad_request(why));
        }
    };
    let verdict = authorizer.may(user, &act);
    Ok(json!({ "allowed": verdict.allowed, "reason": verdict.reason }))
}

fn subject(spec: &Map<String, Value>) -> Result<User, Refusal> {
    let groups = spec.get("groups").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let groups: Vec<String> = groups.iter().filter_map(Value::as_str).map(str::to_owned).collect();
    let name = text(spec, "user").to_owned();
    if name.is_empty() && groups.is_empty() {
        return Err(Refusal::bad_request("at least one of user or group must be specified"));
    }
    Ok(User { name, groups, rules: 0 })
}

fn rules(rules: &[Rule]) -> Value {
    let (mut resources, mut pages) = (Vec::new(), Vec::new());
    for rule in rules {
        match rule {
            Rule::Resources { verbs, groups, resources: named, names } => {
                let mut told = json!({ "verbs": verbs, "apiGroups": groups, "resources": named });
                if !names.is_empty() {
                    told["resourceNames"] = json!(names);
                }
                resources.push(told);
            }
            Rule::Pages { verbs, paths } => {
                pages.push(json!({ "verbs": verbs, "nonResourceURLs": paths }));
            }
        }
    }
    json!({ "resourceRules": resources, "nonResourceRules": pages, "incomplete": false })
}

fn part<'a>(of: &'a Map<String, Value>, field: &str) -> Option<&'a Map<String, Value>> {
    of.get(field).and_then(Value::as_object)
}

fn text<'a>(of: &'a Map<String, Value>, field: &str) -> &'a str {
    of.get(field).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::door::authz::{AllowAll, Verdict};

    struct OnlyAnna;

    impl Authorizer for OnlyAnna {
        fn may(&self, user: &User, act: &Act<'_>) -> Verdict {
            let allowed = user.name == "anna" && matches!(act, Act::Resource { verb: "get", .. });
            Verdict { allowed, reason: String::new(), rules: 0 }
        }

        fn rules(&self, _user: &User, _namespace: &str) -> Vec<Rule> {
            Vec::new()
        }
    }

    fn asked(kind: &str, spec: Value, namespace: &str) -> Result<Value, u16> {
        let spec = spec.as_object().cloned().unwrap_or_default();
        status(kind, &spec, namespace, &User::anonymous(), &OnlyAnna).map_err(|refusal| refusal.code())
    }

    #[test]
    fn who_may_what() {
        let get = json!({ "verb": "get", "resource": "pods", "namespace": "a" });
        let own = asked("SelfSubjectAccessReview", json!({ "resourceAttributes": get }), "");
        assert_eq!(own.map(|status| status["allowed"].clone()), Ok(json!(false)));
        let spec = json!({ "user": "anna", "resourceAttributes": get });
        let other = asked("SubjectAccessReview", spec.clone(), "");
        assert_eq!(other.map(|status| status["allowed"].clone()), Ok(json!(true)));
        assert!(asked("LocalSubjectAccessReview", spec.clone(), "a").is_ok());
        assert_eq!(asked("LocalSubjectAccessReview", spec, "b"), Err(400));
        let page = json!({ "user": "anna", "nonResourceAttributes": { "verb": "get", "path": "/x" } });
        let page = asked("SubjectAccessReview", page, "");
        assert_eq!(page.map(|status| status["allowed"].clone()), Ok(json!(false)));
    }

    #[test]
    fn a_review_says_what_it_is_about() {
        assert_eq!(asked("SelfSubjectAccessReview", json!({}), ""), Err(400));
        assert_eq!(asked("SubjectAccessReview", json!({ "resourceAttributes": {} }), ""), Err(400));
        assert_eq!(asked("SelfSubjectRulesReview", json!({}), ""), Err(400));
        let me = asked("SelfSubjectReview", json!({}), "").expect("an answer");
        assert_eq!(me["userInfo"]["username"], "system:anonymous");
        let all = rules(&AllowAll.rules(&User::anonymous(), "a"));
        assert_eq!(all["resourceRules"][0]["verbs"], json!(["*"]));
        assert_eq!(all["nonResourceRules"][0]["nonResourceURLs"], json!(["*"]));
    }
}
