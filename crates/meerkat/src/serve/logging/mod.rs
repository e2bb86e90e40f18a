//! Where this process's log lines go and what they look like.
//!
//! JSON to stderr by default, one object a line. Set up once, before anything else logs. What the flags
//! ask for is checked first, and no file is touched before all of it is right.

mod backups;
mod line;
mod log_file;
mod outputs;
mod rotation;
mod writer;

use tracing_subscriber::EnvFilter;

use line::JsonLine;
use outputs::Target;
use rotation::Rotation;
use writer::Writers;

/// What the flags ask of the log.
#[derive(Debug, PartialEq, Eq)]
pub struct Logging {
    filter: String,
    form: Form,
    targets: Vec<Target>,
    rotation: Option<Rotation>,
}

/// The consensus library speaks to its developers, and at each try of each failure; what an operator
/// should know of it, we say ourselves. What its calls return as an error it also logs as one; whoever
/// called knows what that means, and at a stop it means nothing.
const CONSENSUS: &str = "openraft=error,openraft::raft=off,openraft::core::heartbeat=off";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Json,
    Console,
}

impl Logging {
    /// `rotation` is the text of `--log-rotation-config-json`, if files are to be rotated at all.
    pub fn from_flags(
        level: &str,
        form: &str,
        outputs: &str,
        rotation: Option<&str>,
    ) -> Result<Logging, String> {
        // As zap reads it: in any case, and nothing for the default.
        let lower = level.to_lowercase();
        let filter = match if lower.is_empty() { "info" } else { lower.as_str() } {
            // What ends a process is logged as an error; nothing is rarer.
            "error" | "panic" | "fatal" | "dpanic" => format!("error,{CONSENSUS}"),
            level @ ("info" | "warn") => format!("{level},{CONSENSUS}"),
            level @ "debug" => level.to_owned(),
            _ if level.contains('=') => level.to_owned(),
            _ => return Err(format!("unknown --log-level {level:?}")),
        };
        EnvFilter::try_new(&filter).map_err(|error| format!("bad --log-level {level:?}: {error}"))?;
        let form = match form {
            "json" => Form::Json,
            "console" => Form::Console,
            other => return Err(format!("unknown --log-format {other:?}: expected json or console")),
        };
        let targets = outputs::parse(outputs)?;
        let rotation = match rotation {
            Some(json) => {
                outputs::check_for_rotation(&targets)?;
                Some(Rotation::from_json(json)?)
            }
            None => None,
        };
        Ok(Logging { filter, form, targets, rotation })
    }

    /// Opens what is written to, and installs the log for the whole process.
    ///
    /// # Errors
    /// If a file cannot be opened; it is named as etcd names it.
    ///
    /// # Panics
    /// If called twice.
    pub fn install(&self) -> Result<(), String> {
        let builder = tracing_subscriber::fmt()
            .with_env_filter(EnvFilter::new(&self.filter))
            .with_writer(Writers::open(&self.targets, self.rotation)?)
            .with_ansi(false);
        match self.form {
            Form::Json => builder.event_format(JsonLine).init(),
            Form::Console => builder.init(),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_settings_of_the_log_are_refused() {
        let read = |level, form, outputs, rotation| Logging::from_flags(level, form, outputs, rotation);
        assert!(read("info", "json", "default", None).is_ok());
        assert!(read("info,meerkat_raft=debug", "console", "stdout", None).is_ok());
        assert!(read("fatal", "json", "stderr", None).is_ok());
        assert!(read("info", "json", "/var/log/x", Some("{}")).is_ok());
        assert!(read("loud", "json", "default", None).is_err());
        assert!(read("info", "xml", "default", None).is_err());
        assert!(read("info", "json", "default,stdout", None).is_err());
        assert!(read("info", "json", "default", Some("{}")).is_err());
        assert!(read("info", "json", "/var/log/x", Some("{")).is_err());
    }
}
