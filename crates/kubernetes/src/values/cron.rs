//! The schedule of a CronJob: five fields, or a name such as `@daily`.

/// The least and the most, and the names of what is counted from the least on.
struct Field {
    least: u32,
    most: u32,
    names: &'static [&'static str],
}

const FIELDS: [Field; 5] = [
    Field { least: 0, most: 59, names: &[] },
    Field { least: 0, most: 23, names: &[] },
    Field { least: 1, most: 31, names: &[] },
    Field {
        least: 1,
        most: 12,
        names: &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
    },
    Field { least: 0, most: 6, names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"] },
];

/// What is wrong with a schedule.
pub fn wrong(line: &str) -> Option<String> {
    if line.contains("TZ") {
        return Some("cannot use TZ or CRON_TZ in schedule, use timeZone field instead".to_owned());
    }
    if line.starts_with('@') {
        return named(line);
    }
    let fields: Vec<&str> = line.split_whitespace().collect();
    if fields.len() != FIELDS.len() {
        let (expected, found) = (FIELDS.len(), fields.len());
        return Some(format!("expected exactly {expected} fields, found {found}: [{}]", fields.join(" ")));
    }
    let ranges = |text: &'_ str, field: &Field| text.split(',').find_map(|range| range_wrong(range, field));
    fields.iter().zip(&FIELDS).find_map(|(text, field)| ranges(text, field))
}

fn named(line: &str) -> Option<String> {
    if let Some(every) = line.strip_prefix("@every ") {
        let is_duration = crate::query::duration(every).is_some();
        return (!is_duration)
            .then(|| format!("failed to parse duration {line}: invalid duration {every:?}"));
    }
    let names = ["@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"];
    (!names.contains(&line)).then(|| format!("unrecognized descriptor: {line}"))
}

/// `*`, `a`, `a-b`, each with a step or without. An empty one says nothing.
fn range_wrong(range: &str, field: &Field) -> Option<String> {
    match bounds(range, field) {
        Err(why) => Some(why),
        Ok(None) => None,
        Ok(Some((first, last, step))) => {
            let (least, most) = (field.least, field.most);
            let why = if first < least {
                format!("beginning of range ({first}) below minimum ({least})")
            } else if most < last {
                format!("end of range ({last}) above maximum ({most})")
            } else if last < first {
                format!("beginning of range ({first}) beyond end of range ({last})")
            } else if step == 0 {
                "step of range should be a positive number".to_owned()
            } else {
                return None;
            };
            Some(format!("{why}: {range}"))
        }
    }
}

fn bounds(range: &str, field: &Field) -> Result<Option<(u32, u32, u32)>, String> {
    if range.is_empty() {
        return Ok(None);
    }
    let (span, step) = match range.split('/').collect::<Vec<_>>().as_slice() {
        [span] => (*span, None),
        [span, step] => (*span, Some(number(step)?)),
        _ => return Err(format!("too many slashes: {range}")),
    };
    let (first, last) = match span.split('-').collect::<Vec<_>>().as_slice() {
        ["*" | "?", ..] => (field.least, field.most),
        [one] => {
            let one = name_or_number(one, field)?;
            // `5/10` goes on to the end.
            (one, if step.is_some() { field.most } else { one })
        }
        [first, last] => (name_or_number(first, field)?, name_or_number(last, field)?),
        _ => return Err(format!("too many hyphens: {range}")),
    };
    Ok(Some((first, last, step.unwrap_or(1))))
}

fn name_or_number(text: &str, field: &Field) -> Result<u32, String> {
    let at = field.names.iter().position(|name| name.eq_ignore_ascii_case(text));
    match at.and_then(|at| u32::try_from(at).ok()) {
        Some(at) => Ok(field.least + at),
        None => number(text),
    }
}

fn number(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("failed to parse int from {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules_as_cron_reads_them() {
        for good in [
            "* * * * *",
            "0 3 * * *",
            "*/5 0-23/2 1,15 jan-DEC mon-fri",
            "5/10 * ? * 0",
            "@daily",
            "@every 1h30m",
            "0 0 31 2 *",
        ] {
            assert_eq!(wrong(good), None, "{good}");
        }
        for (bad, why) in [
            ("never", "expected exactly 5 fields, found 1: [never]"),
            ("* * * *", "expected exactly 5 fields, found 4: [* * * *]"),
            ("60 * * * *", "end of range (60) above maximum (59): 60"),
            ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
            ("5-2 * * * *", "beginning of range (5) beyond end of range (2): 5-2"),
            ("*/0 * * * *", "step of range should be a positive number: */0"),
            ("a * * * *", "failed to parse int from a"),
            ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
            ("1/2/3 * * * *", "too many slashes: 1/2/3"),
            ("* * * * 7", "end of range (7) above maximum (6): 7"),
            ("@never", "unrecognized descriptor: @never"),
            ("@every x", "failed to parse duration @every x: invalid duration \"x\""),
            ("TZ=UTC 0 3 * * *", "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"),
        ] {
            assert_eq!(wrong(bad).as_deref(), Some(why), "{bad}");
        }
    }
}
