//! etcd's feature gates, and the flags that some of them had been. Those of the corruption checks and of the address that members are dialled from
//! switch them; what the others switch is built in here or has no meaning. A name that etcd does not know is refused, as etcd refuses it.

use super::given::Given;

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

/// Those that a flag switches too, by the flag's name after `experimental-`, and what they are unless told.
const ALSO_FLAGS: &[(&str, &str, bool)] = &[
    ("stop-grpc-service-on-defrag", "StopGRPCServiceOnDefrag", false),
    ("initial-corrupt-check", "InitialCorruptCheck", false),
    ("compact-hash-check-enabled", "CompactHashCheck", false),
    ("txn-mode-write-with-shared-buffer", "TxnModeWriteWithSharedBuffer", true),
    ("enable-lease-checkpoint", "LeaseCheckpoint", false),
    ("enable-lease-checkpoint-persist", "LeaseCheckpointPersist", false),
];

/// Whether what is said of gates and what is said of flags go together, in etcd's words. `given` has been
/// read, so its gates are well-formed.
pub fn check(given: &Given) -> Result<(), String> {
    let text = given.text("feature-gates");
    let by_gate = |gate: &str| {
        let parts = text.split(',').filter_map(|part| part.split_once('='));
        let said = |name: &str| {
            let value = parts.clone().rfind(|(said, _)| said.trim() == name);
            value.and_then(|(_, value)| super::given::is_true(value.trim()))
        };
        // Of these only one is not alpha.
        said(gate).or_else(|| said("AllAlpha").filter(|_| gate != "TxnModeWriteWithSharedBuffer"))
    };
    for (flag, gate, default) in ALSO_FLAGS {
        // As etcd looks for it: also within the name of another.
        if given.is_spelled(&format!("experimental-{flag}")) && text.contains(gate) {
            let (value, on) = (given.switch(flag), by_gate(gate).unwrap_or(*default));
            return Err(format!(
                "cannot specify both flags: --experimental-{flag}={value} and --feature-gates={gate}={on} at the \
                 same time, please just use --feature-gates={gate}={on}"
            ));
        }
    }
    let is_on = |gate, flag| by_gate(gate).unwrap_or_else(|| given.switch(flag));
    let persists = is_on("LeaseCheckpointPersist", "enable-lease-checkpoint-persist");
    if persists && !is_on("LeaseCheckpoint", "enable-lease-checkpoint") {
        let reason =
            "enabling feature gate LeaseCheckpointPersist requires enabling feature gate LeaseCheckpoint";
        return Err(reason.to_owned());
    }
    Ok(())
}

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
    fn a_gate_and_the_flag_that_it_was_do_not_go_together() {
        let given = |args: &[&str]| {
            let args = std::iter::once("serve").chain(args.iter().copied());
            let matches = super::super::given::command().try_get_matches_from(args).expect("known flags");
            super::super::given::read(&matches, []).map_err(|failure| failure.message).expect("good flags")
        };
        let refused = |args: &[&str]| check(&given(args)).expect_err("must be refused");
        assert_eq!(
            refused(&["--experimental-compact-hash-check-enabled", "--feature-gates=CompactHashCheck=true"]),
            "cannot specify both flags: --experimental-compact-hash-check-enabled=true and \
             --feature-gates=CompactHashCheck=true at the same time, please just use \
             --feature-gates=CompactHashCheck=true"
        );
        let needs =
            "enabling feature gate LeaseCheckpointPersist requires enabling feature gate LeaseCheckpoint";
        assert_eq!(refused(&["--feature-gates=LeaseCheckpointPersist=true"]), needs);
        assert_eq!(refused(&["--experimental-enable-lease-checkpoint-persist"]), needs);
        for good in [
            &["--feature-gates=LeaseCheckpointPersist=true,LeaseCheckpoint=true"][..],
            &["--feature-gates=AllAlpha=true"],
            &["--experimental-enable-lease-checkpoint-persist", "--experimental-enable-lease-checkpoint"],
            &["--experimental-initial-corrupt-check", "--feature-gates=CompactHashCheck=true"],
        ] {
            assert_eq!(check(&given(good)), Ok(()), "{good:?}");
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
