//! One object, or its scale.

use super::answer::{self, Body};
use super::request::Asked;
use super::show;
use crate::storage::Part;
use http::{Response, StatusCode};
use meerkat_kubernetes::negotiation::Answer;
use meerkat_kubernetes::status::Refusal;
use meerkat_watchcache::list_options::GetOptions;
use meerkat_watchcache::list_plan::plan_get;

pub async fn answer(asked: &Asked) -> Result<Response<Body>, Refusal> {
    let at = plan_get(&GetOptions::from_query(&asked.query)?);
    if asked.part == Part::Scale {
        let form = show::plain_form(&asked.look.accept)?;
        let scale = asked.door.storage.scale(asked.place(), at).await?;
        return answer::value(StatusCode::OK, &form, &asked.look, &scale);
    }
    let form = show::form(&asked.kind, Answer::One, &asked.look.accept)?;
    let include = asked.query.include_object()?;
    let entry = asked.door.storage.get(asked.place(), at).await?;
    if show::is_as_stored(&asked.kind, &form) && !form.indents(asked.look.pretty) {
        let body = answer::full(entry.json().clone());
        return Ok(answer::new(StatusCode::OK, form.content_type(), body));
    }
    let stored = show::stored(&entry, entry.revision());
    let shown = show::shaped(&asked.kind, form.shape, include, stored, true);
    answer::value(StatusCode::OK, &form, &asked.look, &shown)
}
