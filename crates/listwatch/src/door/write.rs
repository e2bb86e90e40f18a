//! Requests that change objects: their bodies and options read, and their outcome shown.

use super::answer::{self, Body, header};
use super::body;
use super::request::Asked;
use super::{list, selection, show};
use crate::storage::{Answer, Part, Patch};
use crate::write_options::{ApplyOptions, DeleteOptions, WriteOptions};
use http::header::{CONTENT_TYPE, USER_AGENT};
use http::{Response, StatusCode};
use meerkat_kubernetes::negotiation::{self, Form, Media, PatchForm, Shape, patch_form};
use meerkat_kubernetes::status::{Reason, Refusal};
use meerkat_kubernetes::stored_form;
use meerkat_watchcache::list_options::{ListOptions, only_name};
use meerkat_watchcache::list_plan::plan_list;
use serde_json::{Value, json};

pub async fn create(asked: &Asked, sent: &[u8]) -> Result<Response<Body>, Refusal> {
    let options = WriteOptions::for_create(&asked.query)?;
    let form = form(asked)?;
    let (object, warnings) = object(asked, sent, &options)?;
    let manager = manager(asked, &options);
    let answer = asked.door.storage.create(asked.place(), object, &options, &manager).await?;
    done(asked, &form, answer, warnings)
}

pub async fn update(asked: &Asked, sent: &[u8]) -> Result<Response<Body>, Refusal> {
    let options = WriteOptions::for_update(&asked.query)?;
    let form = form(asked)?;
    let (object, warnings) = object(asked, sent, &options)?;
    let manager = manager(asked, &options);
    let answer = asked.door.storage.update(asked.place(), asked.part, object, &options, &manager).await?;
    done(asked, &form, answer, warnings)
}

pub async fn patch(asked: &Asked, sent: &[u8]) -> Result<Response<Body>, Refusal> {
    let patch_form = patch_form(header(&asked.headers, &CONTENT_TYPE), PatchForm::known(&asked.kind))?;
    let form = form(asked)?;
    let mut warnings = Vec::new();
    let (patch, manager) = if patch_form == PatchForm::ApplyYaml {
        let options = ApplyOptions::from_query(&asked.query)?;
        let document = super::document::json_or_yaml(sent)?;
        let body = body::accept(document, options.write.field_validation, &mut warnings)?;
        let manager = options.manager.clone();
        (Patch::Apply { body, options }, manager)
    } else {
        let options = WriteOptions::for_patch(&asked.query)?;
        let document = super::document::json(sent)?;
        let body = body::accept(document, options.field_validation, &mut warnings)?;
        let manager = manager(asked, &options);
        (Patch::Of { form: patch_form, body, options }, manager)
    };
    let answer = asked.door.storage.patch(asked.place(), asked.part, &patch, &manager).await?;
    done(asked, &form, answer, warnings)
}

pub async fn delete(asked: &Asked, sent: &[u8]) -> Result<Response<Body>, Refusal> {
    let form = form(asked)?;
    let options = delete_options(asked, sent)?;
    let answer = asked.door.storage.delete(asked.place(), &options).await?;
    done(asked, &form, answer, Vec::new())
}

pub async fn delete_collection(asked: &Asked, sent: &[u8]) -> Result<Response<Body>, Refusal> {
    let form = show::form(&asked.kind, negotiation::Answer::List, &asked.look.accept)?;
    let listing = ListOptions::from_query(&asked.query)?;
    let options = delete_options(asked, sent)?;
    let name = only_name(None, &listing.fields)?;
    let namespace = asked.target.namespace.as_deref();
    let filter = selection::filter(&asked.kind, namespace, name, &listing.labels, &listing.fields)?;
    let plan = plan_list(&listing);
    let gone =
        asked.door.storage.delete_collection(&asked.kind, &filter, &plan, &options, asked.writer()).await?;
    let scope = filter.scope().namespace.as_deref();
    let items: Vec<Value> = gone.items.into_iter().map(|item| show::item(&asked.kind, item)).collect();
    let object = json!({
        "kind": asked.kind.list_kind, "apiVersion": asked.kind.api_version(),
        "metadata": list::metadata(&gone.page, scope, listing.may_count_remaining()),
        "items": items,
    });
    done(asked, &form, Answer { object, warnings: Vec::new(), created: false }, Vec::new())
}

fn form(asked: &Asked) -> Result<Form, Refusal> {
    match asked.part {
        Part::Scale => show::plain_form(&asked.look.accept),
        Part::Of(_) => show::form(&asked.kind, negotiation::Answer::One, &asked.look.accept),
    }
}

fn manager(asked: &Asked, options: &WriteOptions) -> String {
    options.manager(header(&asked.headers, &USER_AGENT))
}

fn object(asked: &Asked, sent: &[u8], options: &WriteOptions) -> Result<(Value, Vec<String>), Refusal> {
    let readable = if asked.part == Part::Scale { body::OPTIONS } else { body::readable(&asked.kind) };
    let content_type = header(&asked.headers, &CONTENT_TYPE);
    let document = body::decode(content_type, readable, sent)?;
    let mut warnings = Vec::new();
    let object = body::accept(document, options.field_validation, &mut warnings)?;
    Ok((object, warnings))
}

fn delete_options(asked: &Asked, sent: &[u8]) -> Result<DeleteOptions, Refusal> {
    if sent.is_empty() {
        return DeleteOptions::from_query(&asked.query);
    }
    let document = body::decode(header(&asked.headers, &CONTENT_TYPE), body::OPTIONS, sent)?;
    DeleteOptions::from_body(&document.value)
}

/// What is done is done: an outcome that has no form of the asked sort is shown as JSON.
fn done(
    asked: &Asked,
    form: &Form,
    answer: Answer,
    mut warnings: Vec<String>,
) -> Result<Response<Body>, Refusal> {
    let code = if answer.created { StatusCode::CREATED } else { StatusCode::OK };
    let shown = shaped(asked, form, answer.object)?;
    let indent = form.indents(asked.look.pretty);
    let mut response = match show::encode(form.media, &shown, indent) {
        Some(bytes) => answer::new(code, form.content_type(), answer::full(bytes)),
        None => answer::new(code, Media::Json.mime(), answer::full(shown.to_string())),
    };
    warnings.extend(answer.warnings);
    answer::warn(&mut response, &warnings);
    Ok(response)
}

/// A Status, a Scale and a list are shown as they are.
fn shaped(asked: &Asked, form: &Form, mut object: Value) -> Result<Value, Refusal> {
    let is_own = object.get("kind").and_then(Value::as_str) == Some(asked.kind.kind.as_str());
    if form.shape == Shape::Whole || !is_own {
        return Ok(object);
    }
    let include = asked.query.include_object()?;
    let Some(fields) = object.as_object_mut() else {
        return Err(Refusal::new(Reason::InternalError, "the outcome of the write is no object"));
    };
    stored_form::to_stored(&asked.kind, fields);
    Ok(show::shaped(&asked.kind, form.shape, include, object, true))
}
