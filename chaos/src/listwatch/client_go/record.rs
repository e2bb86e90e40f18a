//! What the informers of a program were told, as it wrote it down, and whether that is what happened.
//!
//! client-go lists again by itself when a watch breaks in its first second without an event, or cannot be opened. Each
//! list begins a new life of the informer, and each life is judged by itself: up to what it knew when it ended.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use super::super::informer::{name_of, rv_of};
use crate::Failure;
use crate::checker::list_watch::{self, Note, Record, Told, Truth, Type, print};

/// A line of the file.
#[derive(Debug, Deserialize)]
struct Line {
    informer: String,
    #[serde(rename = "type")]
    kind: String,
    #[serde(default, rename = "resourceVersion")]
    version: String,
    #[serde(default)]
    object: Value,
    #[serde(default)]
    items: Vec<Value>,
}

/// What one of the informers was told.
pub fn read(file: &Path, informer: &str) -> Result<Record, Failure> {
    let mut notes = Vec::new();
    for line in std::fs::read_to_string(file)?.lines() {
        let line: Line = serde_json::from_str(line)
            .map_err(|error| Failure::harness(format!("{}: {error}: {line}", file.display())))?;
        if line.informer == informer {
            notes.extend(note(&line, &notes)?);
        }
    }
    Ok(Record { name: informer.to_owned(), selector: None, notes })
}

/// The note that a line stands for, if any.
fn note(line: &Line, before: &[Note]) -> Result<Option<Note>, Failure> {
    let version = || {
        let version = line.version.parse();
        version.map_err(|_| Failure::broken(format!("{}: without a resourceVersion", line.kind)))
    };
    let kind = match line.kind.as_str() {
        "LISTED" => {
            let mut objects = BTreeMap::new();
            for item in &line.items {
                objects.insert(name_of(item)?, (rv_of(item)?, print(item)));
            }
            return Ok(Some(Note::Listed { rv: version()?, objects }));
        }
        "BOOKMARK" => return Ok(Some(Note::Bookmark { rv: version()? })),
        "RESUMED" => return Ok(Some(Note::Resumed { after: version()? })),
        "ERROR" if line.object["code"] == 410 => return Ok(Some(Note::Expired { after: position(before) })),
        // A door that has lost its store for a while: another one may have it.
        "ERROR" => return Ok(None),
        "ADDED" => Type::Added,
        "MODIFIED" => Type::Modified,
        "DELETED" => Type::Deleted,
        other => return Err(Failure::broken(format!("an event of no known type: {other}"))),
    };
    let (name, rv) = (name_of(&line.object)?, rv_of(&line.object)?);
    Ok(Some(Note::Told(Told { kind, name, rv, print: print(&line.object) })))
}

/// The newest version that is known after these.
fn position(notes: &[Note]) -> u64 {
    let versions = notes.iter().map(|note| match note {
        Note::Listed { rv, .. } | Note::Bookmark { rv } => *rv,
        Note::Told(told) => told.rv,
        Note::Resumed { .. } | Note::Expired { .. } => 0,
    });
    versions.max().unwrap_or(0)
}

/// What is wrong with what an informer was told, and how often it listed again.
pub fn check(record: &Record, truth: &Truth) -> (Vec<String>, usize) {
    let lives: Vec<&[Note]> = record.notes.chunk_by(|_, next| !matches!(next, Note::Listed { .. })).collect();
    let relists = lives.len().saturating_sub(1);
    let mut findings = Vec::new();
    let mut known = 0;
    for (number, life) in lives.iter().enumerate() {
        if let Some(Note::Listed { rv, .. }) = life.first().filter(|_| known != 0)
            && *rv < known
        {
            findings.push(format!("{}: a list at {rv} after {known} was known", record.name));
        }
        known = position(life);
        let upto = if number == relists { u64::MAX } else { known };
        let life = Record { notes: life.to_vec(), ..record.clone() };
        findings.extend(list_watch::check(&life, &truth.until(upto), 0));
    }
    if lives.is_empty() {
        findings.push(format!("{}: it was told nothing", record.name));
    }
    (findings, relists)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checker::list_watch::{Change, Object};
    use serde_json::json;

    fn object(version: u64) -> Value {
        json!({
            "kind": "ConfigMap",
            "metadata": {"namespace": "n", "name": "a", "uid": "u", "resourceVersion": version.to_string()},
            "data": {"v": version.to_string()},
        })
    }

    /// One object: made at 2, changed at 3, 4, 5 and 6.
    fn truth() -> Truth {
        let change = |revision| Change {
            revision,
            name: "n/a".to_owned(),
            object: Some(Object::of(&object(revision))),
        };
        Truth::new((2..=6).map(change).collect())
    }

    fn judged(lines: &[Value]) -> (Vec<String>, usize) {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("record");
        let lines: String = lines.iter().map(|line| format!("{line}\n")).collect();
        std::fs::write(&file, lines).expect("it is written");
        check(&read(&file, "i").expect("it is read"), &truth())
    }

    fn listed(version: u64) -> Value {
        json!({
            "informer": "i", "type": "LISTED", "resourceVersion": version.to_string(),
            "items": [object(version)],
        })
    }

    fn resumed(version: u64) -> Value {
        json!({"informer": "i", "type": "RESUMED", "resourceVersion": version.to_string()})
    }

    fn modified(version: u64) -> Value {
        json!({"informer": "i", "type": "MODIFIED", "object": object(version)})
    }

    #[test]
    fn resumed_and_relisted_informer_has_no_findings() {
        let other = json!({"informer": "j", "type": "BOOKMARK", "resourceVersion": "1"});
        let resumes =
            [listed(2), resumed(2), modified(3), other, resumed(3), modified(4), modified(5), modified(6)];
        assert_eq!(judged(&resumes), (vec![], 0));
        // What happened between two lives is in the second list.
        let relists = [listed(2), resumed(2), modified(3), listed(5), resumed(5), modified(6)];
        assert_eq!(judged(&relists), (vec![], 1));
    }

    #[test]
    fn dropped_repeated_and_late_events_are_found() {
        let only = |lines: &[Value], what: &str| {
            let (findings, _) = judged(lines);
            assert!(findings.iter().any(|finding| finding.contains(what)), "{what}: {findings:?}");
        };
        only(&[listed(2), resumed(2), modified(3), modified(5), modified(6)], "lost");
        only(&[listed(2), resumed(2), modified(3), modified(4), modified(5)], "lost");
        only(&[listed(2), resumed(2), modified(3), modified(3), modified(4)], "repeated");
        only(&[listed(2), resumed(2), modified(4), listed(5), resumed(5), modified(6)], "lost");
        only(&[listed(5), resumed(5), modified(6), listed(4), resumed(4), modified(5)], "after 6 was known");
        only(&[], "told nothing");
    }
}
