//! What etcd says of flags that it is about to give up, and of those given in two spellings: operators
//! look for these lines.

/// Of flags whose new name is the old one without `experimental-`, and when each is to go.
const RENAMED: &[(&str, &str)] = &[
    ("compact-hash-check-time", "3.6 3.7"),
    ("corrupt-check-time", "v3.6 v3.7"),
    ("compaction-batch-limit", "v3.6 v3.7"),
    ("watch-progress-notify-interval", "v3.6 v3.7"),
    ("warning-apply-duration", "v3.6 v3.7"),
    ("bootstrap-defrag-threshold-megabytes", "v3.6 v3.7"),
    ("memory-mlock", "v3.6 v3.7"),
    ("snapshot-catchup-entries", "v3.6 v3.7"),
    ("downgrade-check-time", "v3.6 v3.7"),
];

/// What is to be used in place of each of the others, and when they are to go.
const REPLACED: &[(&str, &str, &str)] = &[
    ("compact-hash-check-enabled", "3.6 3.7", "'--feature-gates=CompactHashCheck=true'"),
    ("txn-mode-write-with-shared-buffer", "v3.6 v3.7", "'--feature-gates=TxnModeWriteWithSharedBuffer=true'"),
    ("compaction-sleep-interval", "v3.6 v3.7", "'compaction-sleep-interval'"),
    ("enable-distributed-tracing", "3.6 3.7", "--enable-distributed-tracing"),
    ("distributed-tracing-address", "3.6 3.7", "--distributed-tracing-address"),
    ("distributed-tracing-service-name", "3.6 3.7", "--distributed-tracing-service-name"),
    ("distributed-tracing-instance-id", "3.6 3.7", "--distributed-tracing-instance-id"),
    ("distributed-tracing-sampling-rate", "3.6 3.7", "--distributed-tracing-sampling-rate"),
];

const UNARY: &str = "warning-unary-request-duration";

/// What is told of a flag that was given in this spelling.
pub fn notice(spelling: &str) -> Option<String> {
    match spelling {
        "max-snapshots" => {
            return Some(
                "--max-snapshots is deprecated in 3.6 and will be decommissioned in 3.8.".to_owned(),
            );
        }
        "v2-deprecation" => {
            let text = "--v2-deprecation is deprecated and scheduled for removal in v3.8. The default value is \
                        enforced, ignoring user input.";
            return Some(text.to_owned());
        }
        _ => {}
    }
    let name = spelling.strip_prefix("experimental-")?;
    if name == UNARY {
        return Some(format!(
            "--{spelling} is deprecated, and will be decommissioned in v3.7. Use --{UNARY} instead."
        ));
    }
    let renamed = RENAMED.iter().find(|(known, _)| *known == name);
    let renamed = renamed.map(|(known, times)| (*times, format!("'--{known}'")));
    let replaced = || REPLACED.iter().find(|(known, ..)| *known == name);
    let (times, by) = renamed.or_else(|| replaced().map(|(_, times, by)| (*times, (*by).to_owned())))?;
    let (since, until) = times.split_once(' ')?;
    Some(format!(
        "--{spelling} is deprecated in {since} and will be decommissioned in {until}. Use {by} instead."
    ))
}

/// Why a flag cannot be given by its name and by its old one.
pub fn both(name: &str, once: &str) -> String {
    match name {
        UNARY => format!("both --{once} and --{name} flags are set. Use only --{name}"),
        _ => format!("cannot set --{once} and --{name} at the same time, please use --{name} only"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::flags;

    #[test]
    fn the_tables_name_flags_that_had_another_spelling() {
        let names = RENAMED.iter().map(|(name, _)| name).chain(REPLACED.iter().map(|(name, ..)| name));
        for name in names.chain([&UNARY]) {
            let once = flags::find(name).and_then(flags::Flag::experimental);
            assert_eq!(once, Some(format!("experimental-{name}")), "{name}");
            assert!(notice(&format!("experimental-{name}")).is_some(), "{name}");
            assert_eq!(notice(name), None);
        }
        assert_eq!(
            notice("experimental-compaction-sleep-interval").as_deref(),
            Some(
                "--experimental-compaction-sleep-interval is deprecated in v3.6 and will be decommissioned in v3.7. \
                 Use 'compaction-sleep-interval' instead."
            )
        );
        assert_eq!(
            notice("experimental-compact-hash-check-enabled").as_deref(),
            Some(
                "--experimental-compact-hash-check-enabled is deprecated in 3.6 and will be decommissioned in 3.7. \
                 Use '--feature-gates=CompactHashCheck=true' instead."
            )
        );
    }
}
