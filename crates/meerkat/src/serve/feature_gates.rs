//! etcd's feature gates. Those of the corruption checks and of the address that members are dialled from
//! switch them; what the others switch is built in here or has no meaning. A name that etcd does not know is refused, as etcd refuses it.

/// Those of etcd 3.6 and 3.7 that have no effect here.
const WITHOUT_EFFECT: &[&str] = &[
    "AllBeta",
    "FastLeaseKeepAlive",
    "LeaseCheckpoint",
    "LeaseCheckpointPersist",
    "PriorityRequest",
    "StopGRPCServiceOnDefrag",
    "TxnModeWriteWithSharedBuffer",
];

/// What the gates say.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Gates {
    pub initial_corrupt_check: bool,
    pub compact_hash_check: bool,
    pub set_member_local_addr: bool,
    /// One for each gate that is set and has no effect.
    pub notices: Vec<String>,
}

pub fn read(text: &str) -> Result<Gates, String> {
    let mut notices = Vec::new();
    let (mut initial, mut compact, mut local_addr, mut all_alpha) = (None, None, None, false);
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let Some((name, value)) = part.split_once('=') else {
            return Err(format!("--feature-gates: missing bool value for feature gate {part}"));
        };
        let (name, value) = (name.trim(), value.trim());
        let Some(on) = super::given::is_true(value) else {
            return Err(format!("--feature-gates: invalid value of {name}={value}: expected true or false"));
        };
        match name {
            "InitialCorruptCheck" => initial = Some(on),
            "CompactHashCheck" => compact = Some(on),
            "SetMemberLocalAddr" => local_addr = Some(on),
            // All three are alpha in etcd. What is said of one by its name counts for it.
            "AllAlpha" => all_alpha = on,
            name if WITHOUT_EFFECT.contains(&name) => {
                notices.push(format!("--feature-gates: {name} has no effect here"));
            }
            name => return Err(format!("--feature-gates: unrecognized feature gate: {name}")),
        }
    }
    Ok(Gates {
        initial_corrupt_check: initial.unwrap_or(all_alpha),
        compact_hash_check: compact.unwrap_or(all_alpha),
        set_member_local_addr: local_addr.unwrap_or(all_alpha),
        notices,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gates_are_known_and_true_or_false() {
        assert_eq!(read(""), Ok(Gates::default()));
        assert_eq!(read("LeaseCheckpoint=true, AllBeta=false").map(|gates| gates.notices.len()), Ok(2));
        for (text, expected) in [
            ("Nonsense=true", "unrecognized feature gate: Nonsense"),
            ("InitialCorruptCheck", "missing bool value for feature gate InitialCorruptCheck"),
            ("InitialCorruptCheck=perhaps", "invalid value of InitialCorruptCheck=perhaps"),
        ] {
            assert!(read(text).expect_err(text).contains(expected));
        }
    }

    #[test]
    fn the_gate_of_the_local_address_switches_it() {
        let asked = |text| read(text).expect(text).set_member_local_addr;
        assert!(asked("SetMemberLocalAddr=true") && asked("AllAlpha=true"));
        assert!(!asked("") && !asked("AllAlpha=true,SetMemberLocalAddr=false"));
    }

    #[test]
    fn the_gates_of_the_corruption_checks_switch_them() {
        for (text, initial, compact) in [
            ("InitialCorruptCheck=true", true, false),
            ("CompactHashCheck=true", false, true),
            ("InitialCorruptCheck=false, CompactHashCheck=1", false, true),
            ("AllAlpha=true", true, true),
            ("AllAlpha=true,CompactHashCheck=false", true, false),
            ("AllBeta=true", false, false),
        ] {
            let gates = read(text).expect(text);
            assert_eq!((gates.initial_corrupt_check, gates.compact_hash_check), (initial, compact), "{text}");
        }
    }
}
