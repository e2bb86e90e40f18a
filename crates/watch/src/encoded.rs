//! One revision, and its events in the wire's form, made at most once for each form.
//!
//! Whoever needs a form first makes it, with the encoder it brings; everybody else shares the
//! bytes. What a revision weighs is counted from its making to its end, wherever it is held, so
//! that the hub knows what watchers cost in memory.

use bytes::Bytes;
use meerkat_types::{Event, EventBatch, EventKind, Revision};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// Which bytes of an event a watcher asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Plain,
    WithPrevious,
}

/// Writes events for a door. This crate knows no wire format.
pub trait Encode {
    /// Appends one event, so that forms of several events can stand one after the other.
    fn encode(&self, event: &Event, form: Form, out: &mut Vec<u8>);
}

/// What all revisions in memory count towards.
#[derive(Debug, Default)]
pub struct Meter {
    bytes: AtomicUsize,
    encoded: AtomicU64,
}

impl Meter {
    /// Bytes of all revisions that anybody holds.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Events turned into wire form so far, each form counted.
    pub fn encoded(&self) -> u64 {
        self.encoded.load(Ordering::Relaxed)
    }
}

/// The events of one revision in one form.
#[derive(Debug)]
pub struct Wire {
    bytes: Bytes,
    /// Where each event ends.
    ends: Box<[usize]>,
}

impl Wire {
    pub fn all(&self) -> &[u8] {
        &self.bytes
    }

    pub fn event(&self, index: usize) -> &[u8] {
        let first = if index == 0 { 0 } else { self.ends[index - 1] };
        &self.bytes[first..self.ends[index]]
    }
}

#[derive(Debug)]
pub struct Encoded {
    batch: EventBatch,
    weight: usize,
    plain: OnceLock<Wire>,
    with_previous: OnceLock<Wire>,
    /// What a second form weighs, once there is one.
    second_form: AtomicUsize,
    meter: Arc<Meter>,
}

/// What an event costs beside its bytes: its structures, and its place in queues.
const EVENT_OVERHEAD: usize = 200;

impl Encoded {
    pub fn new(batch: EventBatch, meter: &Arc<Meter>) -> Arc<Encoded> {
        // Once as it came and once encoded.
        let weight = EVENT_OVERHEAD + 2 * batch.events.iter().map(event_bytes).sum::<usize>();
        meter.bytes.fetch_add(weight, Ordering::Relaxed);
        Arc::new(Encoded {
            batch,
            weight,
            plain: OnceLock::new(),
            with_previous: OnceLock::new(),
            second_form: AtomicUsize::new(0),
            meter: meter.clone(),
        })
    }

    pub fn revision(&self) -> Revision {
        self.batch.revision
    }

    pub fn events(&self) -> &[Event] {
        &self.batch.events
    }

    /// About what it takes in memory, one encoded form included; a second one is only metered.
    pub fn weight(&self) -> usize {
        self.weight
    }

    pub fn wire(&self, form: Form, encoder: &dyn Encode) -> &Wire {
        let cell = match form {
            Form::Plain => &self.plain,
            Form::WithPrevious => &self.with_previous,
        };
        cell.get_or_init(|| self.make(form, encoder))
    }

    fn make(&self, form: Form, encoder: &dyn Encode) -> Wire {
        let mut bytes = Vec::with_capacity(self.weight / 2);
        let ends = self.events().iter().map(|event| {
            encoder.encode(event, form, &mut bytes);
            bytes.len()
        });
        let ends = ends.collect();
        self.meter.encoded.fetch_add(self.events().len() as u64, Ordering::Relaxed);
        bytes.shrink_to_fit();
        if self.plain.get().is_some() || self.with_previous.get().is_some() {
            self.second_form.store(bytes.len(), Ordering::Relaxed);
            self.meter.bytes.fetch_add(bytes.len(), Ordering::Relaxed);
        }
        Wire { bytes: bytes.into(), ends }
    }
}

impl Drop for Encoded {
    fn drop(&mut self) {
        let weight = self.weight + self.second_form.load(Ordering::Relaxed);
        self.meter.bytes.fetch_sub(weight, Ordering::Relaxed);
    }
}

fn event_bytes(event: &Event) -> usize {
    let now = match &event.kind {
        EventKind::Put(kv) => kv.key.len() + kv.value.len(),
        EventKind::Delete { key, .. } => key.len(),
    };
    let before = event.previous.as_ref().map_or(0, |kv| kv.key.len() + kv.value.len());
    EVENT_OVERHEAD / 2 + now + before
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Names;

    impl Encode for Names {
        fn encode(&self, event: &Event, form: Form, out: &mut Vec<u8>) {
            let EventKind::Delete { key, .. } = &event.kind else { panic!("only deletions here") };
            out.extend_from_slice(key);
            if form == Form::WithPrevious {
                out.push(b'!');
            }
        }
    }

    fn deletions(keys: &[&'static str]) -> EventBatch {
        let revision = Revision::new(7);
        let event = |key: &&'static str| Event {
            kind: EventKind::Delete { key: Bytes::from_static(key.as_bytes()), modified: revision },
            previous: None,
        };
        EventBatch { revision, stamp_ms: 0, events: keys.iter().map(event).collect() }
    }

    #[test]
    fn a_form_is_made_once_and_its_events_are_slices_of_it() {
        let meter = Arc::new(Meter::default());
        let encoded = Encoded::new(deletions(&["a", "bb"]), &meter);
        for _ in 0..3 {
            assert_eq!(encoded.wire(Form::Plain, &Names).all(), b"abb");
        }
        assert_eq!(encoded.wire(Form::WithPrevious, &Names).event(1), b"bb!");
        assert_eq!(meter.encoded(), 4, "two events in two forms");
    }

    #[test]
    fn what_a_revision_weighs_is_counted_until_its_last_holder_lets_go() {
        let meter = Arc::new(Meter::default());
        let encoded = Encoded::new(deletions(&["a"]), &meter);
        let other = encoded.clone();
        drop(encoded);
        assert_eq!(meter.bytes(), other.weight());
        drop(other);
        assert_eq!(meter.bytes(), 0);
    }
}
