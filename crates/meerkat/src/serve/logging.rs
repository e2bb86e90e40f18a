//! Where this process's log lines go and what they look like.
//!
//! JSON to stderr by default, one object a line with `level`, `ts`, `msg` and fields, as etcd's
//! harnesses read them. Set up once, before anything else logs.

use std::fmt as std_fmt;

use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::{FormatEvent, FormatFields, Writer};
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::writer::MakeWriterExt;
use tracing_subscriber::fmt::{FmtContext, MakeWriter};
use tracing_subscriber::registry::LookupSpan;

/// What the flags ask of the log.
#[derive(Debug, PartialEq, Eq)]
pub struct Logging {
    filter: String,
    form: Form,
    output: Output,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Json,
    Console,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Output {
    Stderr,
    Stdout,
    Both,
}

impl Output {
    /// One, or a list of them. `default` stands alone, as in etcd.
    fn parse(outputs: &str) -> Result<Output, String> {
        let mut found: Vec<&str> = outputs.split(',').map(str::trim).collect();
        found.sort_unstable();
        found.dedup();
        match found.as_slice() {
            ["default" | "stderr"] => Ok(Output::Stderr),
            ["stdout"] => Ok(Output::Stdout),
            ["stderr", "stdout"] => Ok(Output::Both),
            _ => Err(format!(
                "unknown --log-outputs {outputs:?}: expected stderr, stdout, both of them, or default"
            )),
        }
    }
}

impl Logging {
    pub fn from_flags(level: &str, form: &str, outputs: &str) -> Result<Logging, String> {
        let filter = match level {
            // What ends a process is logged as an error; nothing is rarer.
            "panic" | "fatal" | "dpanic" => "error".to_owned(),
            // The consensus library speaks to its developers, and at each try of each failure; what
            // an operator should know of it, we say ourselves.
            "info" | "warn" => format!("{level},openraft=error"),
            "debug" | "error" => level.to_owned(),
            filter if filter.contains('=') => filter.to_owned(),
            other => return Err(format!("unknown --log-level {other:?}")),
        };
        EnvFilter::try_new(&filter).map_err(|error| format!("bad --log-level {level:?}: {error}"))?;
        let form = match form {
            "json" => Form::Json,
            "console" => Form::Console,
            other => return Err(format!("unknown --log-format {other:?}: expected json or console")),
        };
        Ok(Logging { filter, form, output: Output::parse(outputs)? })
    }

    /// Installs the log for the whole process.
    ///
    /// # Panics
    /// If called twice.
    pub fn install(&self) {
        match self.output {
            Output::Stderr => self.install_to(std::io::stderr),
            Output::Stdout => self.install_to(std::io::stdout),
            Output::Both => self.install_to(std::io::stderr.and(std::io::stdout)),
        }
    }

    fn install_to<W>(&self, writer: W)
    where
        W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
    {
        let builder = tracing_subscriber::fmt()
            .with_env_filter(EnvFilter::new(&self.filter))
            .with_writer(writer)
            .with_ansi(false);
        match self.form {
            Form::Json => builder.event_format(JsonLine).init(),
            Form::Console => builder.init(),
        }
    }
}

/// One event as one JSON object: level, time and message first, then the event's own fields, then
/// those of its spans.
struct JsonLine;

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

#[derive(Default)]
struct Fields {
    message: String,
    rest: Map<String, Value>,
}

impl Fields {
    fn put(&mut self, field: &Field, value: impl Into<Value>) {
        self.rest.insert(field.name().replace('_', "-"), value.into());
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

    #[test]
    fn a_line_is_one_json_object_with_the_keys_harnesses_read() {
        let captured = Captured::default();
        let writer = captured.clone();
        let subscriber =
            tracing_subscriber::fmt().event_format(JsonLine).with_writer(move || writer.clone()).finish();
        tracing::subscriber::with_default(subscriber, || {
            tracing::info!(member_id = 7_u64, name = "a\"b", "ready to serve client requests");
        });
        let bytes = captured.0.lock().expect("written").clone();
        let line: Value = serde_json::from_slice(&bytes).expect("one JSON object");
        assert_eq!(line["level"], "info");
        assert_eq!(line["msg"], "ready to serve client requests");
        assert_eq!(line["member-id"], 7);
        assert_eq!(line["name"], "a\"b");
        assert!(line["ts"].as_str().is_some_and(|ts| ts.ends_with('Z')));
    }

    #[test]
    fn unknown_settings_of_the_log_are_refused() {
        assert!(Logging::from_flags("info", "json", "default").is_ok());
        assert!(Logging::from_flags("info,meerkat_raft=debug", "console", "stdout").is_ok());
        assert!(Logging::from_flags("fatal", "json", "stderr").is_ok());
        assert!(Logging::from_flags("loud", "json", "default").is_err());
        assert!(Logging::from_flags("info", "xml", "default").is_err());
        assert!(Logging::from_flags("info", "json", "/var/log/x").is_err());
    }

    #[test]
    fn a_list_of_outputs_is_what_it_names() {
        for (text, expected) in [
            ("default", Some(Output::Stderr)),
            ("stderr,stderr", Some(Output::Stderr)),
            ("stdout", Some(Output::Stdout)),
            ("stdout,stderr", Some(Output::Both)),
            ("stderr, stdout", Some(Output::Both)),
            ("default,stdout", None),
            ("stdout,/var/log/x", None),
            ("", None),
        ] {
            assert_eq!(Output::parse(text).ok(), expected, "{text}");
        }
    }
}
