//! Many objects: which of them, and where the next ones are to be had. How they look: `list_form`.

use super::answer::{self, Body};
use super::list_form::{ListForm, ListWriter};
use super::request::Asked;
use super::{selection, show};
use http::{Response, StatusCode};
use meerkat_kubernetes::negotiation::Answer;
use meerkat_kubernetes::status::Refusal;
use meerkat_watchcache::cacher::store::Listed;
use meerkat_watchcache::list_options::{ListOptions, only_name};
use meerkat_watchcache::list_plan::{ListPlan, plan_list};
use serde_json::Value;

pub async fn answer(asked: &Asked) -> Result<Response<Body>, Refusal> {
    let options = ListOptions::from_query(&asked.query)?;
    let form = show::form(&asked.kind, Answer::List, &asked.look.accept)?;
    let include = asked.query.include_object()?;
    let name = only_name(asked.target.name.as_deref(), &options.fields)?;
    let namespace = asked.target.namespace.as_deref();
    let filter = selection::filter(&asked.kind, namespace, name, &options.labels, &options.fields)?;
    let plan = plan_list(&options);
    let listed = asked.door.storage.list(&asked.kind, &filter, &plan).await?;
    let scope = filter.scope().namespace.as_deref();
    let metadata = metadata(&listed, scope, options.may_count_remaining());
    let indent = form.indents(asked.look.pretty);
    let list_form = ListForm::new(&asked.kind, &form, include);
    let writer = ListWriter::new(list_form, form.media, indent, &metadata, listed.entries).await?;
    Ok(answer::new(StatusCode::OK, form.content_type(), writer.into_body(asked.door.stall)))
}

/// `scope`: the namespace that the list is of, whose part of the keys its tokens leave out.
pub(super) fn metadata(listed: &Listed, scope: Option<&str>, may_count: bool) -> Value {
    let next = listed.next.as_deref().map(|next| {
        let last = next.strip_suffix('\0').unwrap_or(next);
        let inside = scope.and_then(|scope| last.strip_prefix(scope)?.strip_prefix('/'));
        ListPlan::next_token(inside.unwrap_or(last), listed.revision).encode()
    });
    let remaining = listed.remaining.filter(|_| may_count);
    show::list_metadata(listed.revision, next.as_deref(), remaining)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_leaves_out_the_namespace_of_its_list() {
        let listed = Listed {
            entries: Vec::new(),
            revision: 7,
            next: Some("a/m1\0".to_owned()),
            remaining: Some(3),
            visited: 0,
        };
        let token = |scope, may_count| {
            let metadata = metadata(&listed, scope, may_count);
            let token = metadata["continue"].as_str().unwrap_or_default().to_owned();
            let token = meerkat_watchcache::continue_token::ContinueToken::decode(&token).expect("a token");
            (token.start_key(""), metadata["remainingItemCount"].as_u64())
        };
        assert_eq!(token(Some("a"), true), ("m1\0".to_owned(), Some(3)));
        assert_eq!(token(None, false), ("a/m1\0".to_owned(), None));
    }
}
