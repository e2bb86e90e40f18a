//! What one line of the log looks like in JSON: `level`, `ts`, `caller` and `msg` first, as etcd's
//! harnesses read them, then the fields.
//!
//! Always true: no key is there twice.

use std::fmt as std_fmt;

use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::FmtContext;
use tracing_subscriber::fmt::format::{FormatEvent, FormatFields, Writer};
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::registry::LookupSpan;

/// One event as one JSON object: level, time and message first, then the event's own fields, then
/// those of its spans.
pub struct JsonLine;

impl<S, N> FormatEvent<S, N> for JsonLine
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> std_fmt::Result {
        let mut time = String::new();
        SystemTime.format_time(&mut Writer::new(&mut time))?;
        let mut fields = Fields::default();
        event.record(&mut fields);
        let metadata = event.metadata();
        let level = metadata.level().as_str().to_lowercase();
        write!(
            writer,
            "{{\"level\":\"{level}\",\"ts\":{},\"caller\":{},\"msg\":{}",
            Value::from(time),
            Value::from(metadata.target()),
            Value::from(fields.message),
        )?;
        for (name, value) in &fields.rest {
            write!(writer, ",{}:{value}", Value::from(name.as_str()))?;
        }
        if let Some(span) = context.lookup_current() {
            write!(writer, ",\"span\":{}", Value::from(span.name()))?;
        }
        writeln!(writer, "}}")
    }
}

/// What the line says of itself. A field of the same name is put apart.
const OWN: [&str; 5] = ["level", "ts", "caller", "msg", "span"];

#[derive(Default)]
struct Fields {
    message: String,
    rest: Map<String, Value>,
}

impl Fields {
    fn put(&mut self, field: &Field, value: impl Into<Value>) {
        let mut name = field.name().replace('_', "-");
        if OWN.contains(&name.as_str()) {
            name.insert_str(0, "field-");
        }
        self.rest.insert(name, value.into());
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn std_fmt::Debug) {
        if field.name() == "message" {
            self.message = format!("{value:?}");
        } else {
            self.put(field, format!("{value:?}"));
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            self.message = value.to_owned();
        } else {
            self.put(field, value);
        }
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Captured(Arc<Mutex<Vec<u8>>>);

    impl Write for Captured {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().expect("no test panics while writing").write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// The line that an event makes.
    fn line_of(event: impl FnOnce()) -> String {
        let captured = Captured::default();
        let writer = captured.clone();
        let subscriber =
            tracing_subscriber::fmt().event_format(JsonLine).with_writer(move || writer.clone()).finish();
        tracing::subscriber::with_default(subscriber, event);
        let bytes = captured.0.lock().expect("written").clone();
        String::from_utf8(bytes).expect("text")
    }

    #[test]
    fn a_field_that_the_line_has_itself_is_put_apart() {
        let line = line_of(|| {
            let _span = tracing::info_span!("part").entered();
            tracing::warn!(level = 1, ts = 2, caller = "c", msg = "m", span = 3, "said");
        });
        let parsed: Value = serde_json::from_str(&line).expect("one JSON object");
        for key in OWN {
            assert_eq!(line.matches(&format!("\"{key}\":")).count(), 1, "{key} in {line}");
            assert!(parsed[format!("field-{key}")] != Value::Null, "{key} in {line}");
        }
        assert_eq!((&parsed["msg"], &parsed["field-caller"]), (&Value::from("said"), &Value::from("c")));
    }

    #[test]
    fn a_line_is_one_json_object_with_the_keys_harnesses_read() {
        let line = line_of(|| {
            tracing::info!(member_id = 7_u64, name = "a\"b", "ready to serve client requests");
        });
        let line: Value = serde_json::from_str(&line).expect("one JSON object");
        assert_eq!(line["level"], "info");
        assert_eq!(line["msg"], "ready to serve client requests");
        assert_eq!(line["member-id"], 7);
        assert_eq!(line["name"], "a\"b");
        assert!(line["ts"].as_str().is_some_and(|ts| ts.ends_with('Z')));
    }
}
