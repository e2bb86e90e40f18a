//! A create: the name must be free, or one is made up until it is.

use super::swap::Committed;
use super::{Answer, Place, Storage};
use crate::write_options::WriteOptions;
use crate::write_rules::{self, Birth, GENERATED_NAME_ATTEMPTS};
use meerkat_kubernetes::object::Object;
use meerkat_kubernetes::status::Refusal;
use meerkat_watchcache::key;
use serde_json::Value;

/// What a new object is given, by chance.
pub(super) struct Chance {
    pub uid: String,
    pub name_suffix: String,
}

impl Chance {
    pub(super) fn new() -> Chance {
        let (uid, name_suffix) = (write_rules::uid(rand::random()), write_rules::name_suffix(rand::random()));
        Chance { uid, name_suffix }
    }
}

impl Storage {
    /// `manager`: under which the written fields are kept.
    pub async fn create(
        &self,
        place: Place<'_>,
        body: Value,
        options: &WriteOptions,
        manager: &str,
    ) -> Result<Answer, Refusal> {
        let rules = self.rules(place, manager).await?;
        let (mut object, warnings) = rules.read(body, options.field_validation)?;
        self.admit_new(place.kind, place.namespace, object.name()).await?;
        rules.fill_defaults(&mut object);
        rules.track_new(&mut object);
        let is_generated = object.name().is_empty() && !object.generate_name().is_empty();
        let what = place.kind.group_resource();
        let mut name = String::new();
        for _ in 0..if is_generated { GENERATED_NAME_ATTEMPTS } else { 1 } {
            let chance = Chance::new();
            let birth = Birth { uid: &chance.uid, now: rules.now, name_suffix: &chance.name_suffix };
            let mut decision = rules.create(object.clone(), &birth)?;
            self.judge(place.kind, rules.schema.as_ref(), &decision.object, None).await?;
            name = decision.object.name().to_owned();
            let key = key::object(place.kind, place.namespace, &name)?;
            let committed = if options.dry_run {
                place.writer.judge_again().await?;
                self.look(&key).await?
            } else {
                self.commit(place, &key, 0, &decision.write).await?
            };
            match committed {
                Committed::At(revision) => {
                    if !options.dry_run {
                        decision.object.set_resource_version(&revision.to_string());
                    }
                    return Ok(Answer { object: decision.object.into_value(), warnings, created: true });
                }
                Committed::Otherwise(found) if !is_generated => {
                    let existing = found.and_then(|row| Object::from_bytes(&row.value).ok());
                    return Err(write_rules::name_taken(&what, &name, existing.as_ref()));
                }
                Committed::Otherwise(_) => {}
            }
        }
        Err(write_rules::generated_name_taken(&what, &name))
    }

    /// What a create at this key would come to.
    async fn look(&self, key: &str) -> Result<Committed, Refusal> {
        let key = bytes::Bytes::from(key.to_owned());
        let (row, revision) = self.store.get(key).await.map_err(super::failure::refusal)?;
        Ok(if row.is_some() { Committed::Otherwise(row) } else { Committed::At(revision) })
    }
}
