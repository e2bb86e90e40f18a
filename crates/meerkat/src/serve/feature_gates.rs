//! etcd's feature gates. What they switch is built in here or has no meaning; a name that etcd does not
//! know is refused, as etcd refuses it.

/// Those of etcd 3.6 and 3.7.
const KNOWN: &[&str] = &[
    "AllAlpha",
    "AllBeta",
    "CompactHashCheck",
    "FastLeaseKeepAlive",
    "InitialCorruptCheck",
    "LeaseCheckpoint",
    "LeaseCheckpointPersist",
    "SetMemberLocalAddr",
    "StopGRPCServiceOnDefrag",
    "TxnModeWriteWithSharedBuffer",
];

/// A notice for each gate that is set, since none has an effect of its own.
pub fn notices(text: &str) -> Result<Vec<String>, String> {
    let mut notices = Vec::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let Some((name, value)) = part.split_once('=') else {
            return Err(format!("--feature-gates: missing bool value for feature gate {part}"));
        };
        let (name, value) = (name.trim(), value.trim());
        if super::given::is_true(value).is_none() {
            return Err(format!("--feature-gates: invalid value of {name}={value}: expected true or false"));
        }
        if !KNOWN.contains(&name) {
            return Err(format!("--feature-gates: unrecognized feature gate: {name}"));
        }
        notices.push(format!("--feature-gates: {name} has no effect here"));
    }
    Ok(notices)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gates_are_known_and_true_or_false() {
        assert_eq!(notices(""), Ok(vec![]));
        assert_eq!(notices("InitialCorruptCheck=true, CompactHashCheck=false").map(|told| told.len()), Ok(2));
        for (text, expected) in [
            ("Nonsense=true", "unrecognized feature gate: Nonsense"),
            ("InitialCorruptCheck", "missing bool value for feature gate InitialCorruptCheck"),
            ("InitialCorruptCheck=perhaps", "invalid value of InitialCorruptCheck=perhaps"),
        ] {
            assert!(notices(text).expect_err(text).contains(expected));
        }
    }
}
