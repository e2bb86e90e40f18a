//! Bindings and evictions of pods, which are answered and not kept.

use super::answer::{self, Body, header};
use super::request::Asked;
use super::{body, show};
use crate::write_options::WriteOptions;
use http::header::CONTENT_TYPE;
use http::{Response, StatusCode};
use meerkat_kubernetes::status::Refusal;
use serde_json::json;

pub async fn answer(asked: &Asked, sent: &[u8]) -> Result<Response<Body>, Refusal> {
    let form = show::plain_form(&asked.look.accept)?;
    let options = WriteOptions::for_create(&asked.query)?;
    let is_binding = asked.target.subresource.as_deref() == Some("binding");
    let (api_version, kind) = if is_binding { ("v1", "Binding") } else { ("policy/v1", "Eviction") };
    let content_type = header(&asked.headers, &CONTENT_TYPE);
    let document = body::decode(content_type, body::readable_as(api_version, kind), sent)?;
    let mut warnings = Vec::new();
    let given = body::accept(document, options.field_validation, &mut warnings)?;
    if given.get("kind").is_some_and(|given| given != kind) {
        return Err(Refusal::bad_request(format!(
            "the kind in the data does not match the expected kind ({kind})"
        )));
    }
    let storage = &asked.door.storage;
    if is_binding {
        storage.bind(asked.place(), given, options.dry_run).await?;
    } else {
        storage.evict(asked.place(), &given, options.dry_run).await?;
    }
    let status =
        json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201 });
    let mut response = answer::value(StatusCode::CREATED, &form, &asked.look, &status)?;
    answer::warn(&mut response, &warnings);
    Ok(response)
}
