//! When a log file is set aside, under which name, and which of those set aside before go: decisions
//! alone, from what they are told. Fields and names are those of the library that etcd rotates with, so
//! that files of both can lie in one directory.

use std::collections::BTreeSet;

use jiff::SignedDuration;
use jiff::civil::DateTime;
use serde_json::Value;

const MEGABYTE: u64 = 1 << 20;
const HOURS_OF_DAY: u64 = 24;
/// Also where a configuration says 0.
const MEGABYTES_DEFAULT: u64 = 100;
/// What a backup that is compressed has at the end of its name.
const COMPRESSED: &str = ".gz";
/// And while that is still being written.
const PART: &str = ".part";

/// What `--log-rotation-config-json` asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rotation {
    /// What a file may hold. A single line that is longer is written all the same, alone.
    pub bytes_max: u64,
    /// 0: any age.
    pub age_max_days: u64,
    /// 0: any number.
    pub backups_max: u64,
    /// Names have the time of this machine's zone.
    pub local_time: bool,
    pub compress: bool,
}

impl Rotation {
    /// Read as Go reads it: names in any case, unknown ones and nulls passed over.
    pub fn from_json(json: &str) -> Result<Rotation, String> {
        let value: Value = serde_json::from_str(json).map_err(|error| {
            let reason = match error.classify() {
                serde_json::error::Category::Eof => "unexpected end of JSON input".to_owned(),
                _ => error.to_string(),
            };
            format!("improperly formatted log rotation config: {reason}")
        })?;
        let (mut megabytes, mut age_max_days, mut backups_max) = (0, 0, 0);
        let (mut local_time, mut compress) = (false, false);
        let fields = match value {
            Value::Null => serde_json::Map::new(),
            Value::Object(fields) => fields,
            other => {
                return Err(invalid(&other, "Go value of type embed.logRotationConfig"));
            }
        };
        for (name, value) in fields.iter().filter(|(_, value)| !value.is_null()) {
            match name.to_ascii_lowercase().as_str() {
                "maxsize" => megabytes = whole("maxsize", value)?,
                "maxage" => age_max_days = whole("maxage", value)?,
                "maxbackups" => backups_max = whole("maxbackups", value)?,
                "localtime" => local_time = switch("localtime", value)?,
                "compress" => compress = switch("compress", value)?,
                _ => {}
            }
        }
        if megabytes < 0 {
            return Err(format!(
                "invalid log rotation config: maxsize {megabytes} leaves no room for a line"
            ));
        }
        let above_zero = |number: i64| u64::try_from(number).unwrap_or(0);
        let megabytes = if megabytes == 0 { MEGABYTES_DEFAULT } else { above_zero(megabytes) };
        Ok(Rotation {
            bytes_max: megabytes.saturating_mul(MEGABYTE),
            age_max_days: above_zero(age_max_days),
            backups_max: above_zero(backups_max),
            local_time,
            compress,
        })
    }

    /// Whether a file of that size is set aside before a line of that length is written.
    pub fn is_due(&self, size: u64, line: u64) -> bool {
        0 < size && self.bytes_max < size.saturating_add(line)
    }

    /// Whether backups are ever touched.
    pub fn tends_backups(&self) -> bool {
        0 < self.age_max_days || 0 < self.backups_max || self.compress
    }

    fn age_max(&self) -> SignedDuration {
        let hours = i32::try_from(self.age_max_days.saturating_mul(HOURS_OF_DAY)).unwrap_or(i32::MAX);
        SignedDuration::from_hours(hours.into())
    }

    /// What is to be done with the files of a directory, by their names, while nothing is being compressed.
    /// The time is that which the names have: of this machine's zone or not.
    pub fn upkeep(&self, log: &str, found: &[String], now: DateTime) -> Upkeep {
        let mut backups: Vec<(&str, &str)> =
            found.iter().filter_map(|name| Some((stamp_of(log, name)?, name.as_str()))).collect();
        // Newest first. A stamp has a fixed width, so texts are ordered as the times are.
        backups.sort_unstable_by(|one, other| other.cmp(one));
        let cutoff = stamp(now.saturating_sub(self.age_max()));
        let is_part = |name: &&String| is_part(log, name);
        let mut upkeep =
            Upkeep { remove: found.iter().filter(is_part).cloned().collect(), compress: Vec::new() };
        let mut stamps = BTreeSet::new();
        for (stamp, name) in backups {
            // A file and its compressed form are one backup: the compressing was cut short.
            stamps.insert(stamp);
            let is_surplus = 0 < self.backups_max && self.backups_max < stamps.len() as u64;
            let is_old = 0 < self.age_max_days && stamp < cutoff.as_str();
            if is_surplus || is_old {
                upkeep.remove.push(name.to_owned());
            } else if self.compress && !name.ends_with(COMPRESSED) {
                upkeep.compress.push(name.to_owned());
            }
        }
        upkeep
    }
}

/// Names of backups, by what becomes of them.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Upkeep {
    pub remove: Vec<String>,
    pub compress: Vec<String>,
}

/// The name under which a log is set aside at that time.
pub fn backup_name(log: &str, now: DateTime) -> String {
    let (stem, extension) = parts(log);
    format!("{stem}-{}{extension}", stamp(now))
}

pub fn compressed_name(backup: &str) -> String {
    format!("{backup}{COMPRESSED}")
}

/// The name of the compressed form until it is whole.
pub fn part_name(backup: &str) -> String {
    format!("{backup}{COMPRESSED}{PART}")
}

/// Whether the file is what somebody who was stopped has left of compressing a backup of that log.
fn is_part(log: &str, name: &str) -> bool {
    let compressed = name.strip_suffix(PART).filter(|name| name.ends_with(COMPRESSED));
    compressed.is_some_and(|name| stamp_of(log, name).is_some())
}

/// `2006-01-02T15-04-05.000`.
const STAMP: &str = "%Y-%m-%dT%H-%M-%S.%3f";

fn stamp(time: DateTime) -> String {
    time.strftime(STAMP).to_string()
}

/// The stamp in the name of a backup of that log, compressed or not; none in that of any other file.
fn stamp_of<'a>(log: &str, name: &'a str) -> Option<&'a str> {
    let (stem, extension) = parts(log);
    let rest = name.strip_prefix(stem)?.strip_prefix('-')?;
    let is_stamp = |text: &&str| is_stamp(text);
    let plain = rest.strip_suffix(extension).filter(is_stamp);
    plain.or_else(|| rest.strip_suffix(COMPRESSED)?.strip_suffix(extension).filter(is_stamp))
}

fn is_stamp(text: &str) -> bool {
    // Of the ways in which a time can be read, the one in which it is written.
    DateTime::strptime(STAMP, text).is_ok_and(|time| stamp(time) == text)
}

/// A name before its last dot, and from there on.
fn parts(log: &str) -> (&str, &str) {
    log.split_at(log.rfind('.').unwrap_or(log.len()))
}

fn whole(name: &str, value: &Value) -> Result<i64, String> {
    value
        .as_i64()
        .ok_or_else(|| invalid(value, &format!("Go struct field logRotationConfig.{name} of type int")))
}

fn switch(name: &str, value: &Value) -> Result<bool, String> {
    let into = || format!("Go struct field logRotationConfig.{name} of type bool");
    value.as_bool().ok_or_else(|| invalid(value, &into()))
}

/// In the words of etcd, which scripts may look for.
fn invalid(value: &Value, into: &str) -> String {
    let what = match value {
        Value::Null => "null".to_owned(),
        Value::Bool(_) => "bool".to_owned(),
        Value::Number(number) if into.ends_with("int") => format!("number {number}"),
        Value::Number(_) => "number".to_owned(),
        Value::String(_) => "string".to_owned(),
        Value::Array(_) => "array".to_owned(),
        Value::Object(_) => "object".to_owned(),
    };
    format!("invalid log rotation config: json: cannot unmarshal {what} into {into}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::civil::date;

    const EVERYTHING: Rotation = Rotation {
        bytes_max: 100 * MEGABYTE,
        age_max_days: 0,
        backups_max: 0,
        local_time: false,
        compress: false,
    };

    #[test]
    fn a_configuration_is_read_as_go_reads_it() {
        let written = Rotation {
            bytes_max: 3 * MEGABYTE,
            age_max_days: 2,
            backups_max: 5,
            local_time: true,
            compress: true,
        };
        for (json, expected) in [
            ("{}", EVERYTHING),
            ("null", EVERYTHING),
            (
                r#"{"maxsize": 100, "maxage": 0, "maxbackups": 0, "localtime": false, "compress": false}"#,
                EVERYTHING,
            ),
            (r#"{"maxsize":3,"maxage":2,"maxbackups":5,"localtime":true,"compress":true}"#, written),
            (r#"{"MaxSize":3,"MAXAGE":2,"MaxBackups":5,"LocalTime":true,"Compress":true}"#, written),
            (r#"{"maxsize":null,"unknown":[1],"filename":"passed over"}"#, EVERYTHING),
            (r#"{"maxage":-1,"maxbackups":-1}"#, EVERYTHING),
        ] {
            assert_eq!(Rotation::from_json(json), Ok(expected), "{json}");
        }
    }

    #[test]
    fn what_is_no_configuration_is_refused_in_etcds_words() {
        let field = "Go struct field logRotationConfig";
        for (json, expected) in [
            ("", "improperly formatted log rotation config: unexpected end of JSON input".to_owned()),
            ("{nope", "improperly formatted log rotation config: ".to_owned()),
            ("{} x", "improperly formatted log rotation config: ".to_owned()),
            (r#"{"maxsize":"x"}"#, format!("cannot unmarshal string into {field}.maxsize of type int")),
            (r#"{"maxsize":1.5}"#, format!("cannot unmarshal number 1.5 into {field}.maxsize of type int")),
            (r#"{"compress":1}"#, format!("cannot unmarshal number into {field}.compress of type bool")),
            ("[]", "cannot unmarshal array into Go value of type embed.logRotationConfig".to_owned()),
            (r#"{"maxsize":-1}"#, "invalid log rotation config: maxsize -1".to_owned()),
        ] {
            let refusal = Rotation::from_json(json).expect_err(json);
            assert!(refusal.contains(&expected), "{json}: {refusal}");
        }
    }

    #[test]
    fn a_file_is_set_aside_before_the_line_that_it_has_no_room_for() {
        let rotation = Rotation { bytes_max: 10, ..EVERYTHING };
        for (size, line, expected) in
            [(0, 10, false), (4, 6, false), (4, 7, true), (10, 1, true), (0, 11, false)]
        {
            assert_eq!(rotation.is_due(size, line), expected, "{size} and {line}");
        }
    }

    #[test]
    fn a_backup_has_the_time_before_the_extension() {
        for (log, expected) in [
            ("server.log", "server-2024-12-31T23-59-59.250.log"),
            ("server", "server-2024-12-31T23-59-59.250"),
            ("a.b.log", "a.b-2024-12-31T23-59-59.250.log"),
            (".log", "-2024-12-31T23-59-59.250.log"),
        ] {
            assert_eq!(backup_name(log, date(2024, 12, 31).at(23, 59, 59, 250_999_999)), expected);
            assert_eq!(stamp_of(log, expected), Some("2024-12-31T23-59-59.250"));
            assert_eq!(stamp_of(log, &compressed_name(expected)), Some("2024-12-31T23-59-59.250"));
            assert_eq!(stamp_of(log, log), None);
        }
        for other in [
            "b-2024-12-31T23-59-59.250.log",
            "a-2024-12-31T23-59-59.log",
            "a-2024-13-31T23-59-59.250.log",
            "a-2024-02-30T23-59-59.250.log",
            "a-2024-12-31T23-59-60.250.log",
            "a-2024-12-31T23-59-59.25.log",
            "a-+024-12-31T23-59-59.250.log",
            "a-2024-2-29T23-59-59.2500.log",
            "a-é.log",
        ] {
            assert_eq!(stamp_of("a.log", other), None, "{other}");
        }
    }

    fn check(rotation: Rotation, found: &[&str], remove: &[&str], compress: &[&str]) {
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        let upkeep = rotation.upkeep("a.log", &found, date(2025, 1, 1).at(0, 0, 0, 0));
        assert_eq!(upkeep.remove, remove);
        assert_eq!(upkeep.compress, compress);
    }

    const NEW: &str = "a-2024-12-31T10-00-00.000.log";
    const MIDDLE: &str = "a-2024-12-30T10-00-00.000.log";
    const MIDDLE_GZ: &str = "a-2024-12-30T10-00-00.000.log.gz";
    const OLD: &str = "a-2024-12-01T10-00-00.000.log";

    #[test]
    fn the_newest_backups_stay_and_what_is_no_backup_is_left_alone() {
        let all = [OLD, NEW, MIDDLE, MIDDLE_GZ, "a.log", "b.log", "a-notes.log"];
        check(EVERYTHING, &all, &[], &[]);
        check(Rotation { backups_max: 2, ..EVERYTHING }, &all, &[OLD], &[]);
        check(Rotation { backups_max: 1, ..EVERYTHING }, &all, &[MIDDLE_GZ, MIDDLE, OLD], &[]);
        check(Rotation { backups_max: 3, ..EVERYTHING }, &all, &[], &[]);
    }

    #[test]
    fn what_is_older_than_its_days_goes() {
        let all = [OLD, NEW, MIDDLE];
        check(Rotation { age_max_days: 31, ..EVERYTHING }, &all, &[], &[]);
        check(Rotation { age_max_days: 30, ..EVERYTHING }, &all, &[OLD], &[]);
        check(Rotation { age_max_days: 1, ..EVERYTHING }, &all, &[MIDDLE, OLD], &[]);
        check(Rotation { age_max_days: u64::MAX, ..EVERYTHING }, &all, &[], &[]);
    }

    #[test]
    fn what_is_left_of_a_compressing_goes_and_counts_for_no_backup() {
        let part = part_name(MIDDLE);
        let others = [
            "b-2024-12-30T10-00-00.000.log.gz.part",
            "a-2024-12-30T10-00-00.000.log.part",
            "a-notes.log.gz.part",
        ];
        let all = [&[NEW, MIDDLE, OLD, &part], &others[..]].concat();
        check(EVERYTHING, &all, &[&part], &[]);
        check(Rotation { backups_max: 2, ..EVERYTHING }, &all, &[&part, OLD], &[]);
        check(Rotation { compress: true, ..EVERYTHING }, &all, &[&part], &[NEW, MIDDLE, OLD]);
    }

    #[test]
    fn what_stays_is_compressed_once() {
        let compress = Rotation { compress: true, ..EVERYTHING };
        check(compress, &[OLD, NEW, MIDDLE_GZ], &[], &[NEW, OLD]);
        check(Rotation { backups_max: 2, ..compress }, &[OLD, NEW, MIDDLE_GZ], &[OLD], &[NEW]);
        check(compress, &[MIDDLE, MIDDLE_GZ], &[], &[MIDDLE]);
    }
}
