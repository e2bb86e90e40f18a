//! Which features kube-apiserver and kubeadm switch on by the version that a server reports.

/// Major, minor and patch. Kubernetes takes a version with anything behind it for the one before it.
pub type Version = (u64, u64, u64);

/// What `Status` or `/version` say, as a semantic version.
pub fn parse(text: &str) -> Option<Version> {
    let core = text.trim_start_matches('v').split(['-', '+']).next()?;
    let mut numbers = core.split('.').map(|number| number.parse::<u64>().ok());
    let version = (numbers.next()??, numbers.next()??, numbers.next()??);
    numbers.next().is_none().then_some(version)
}

/// Whether kube-apiserver asks this server for marks, which consistent reads from its cache need.
pub fn is_asked_for_marks(text: &str) -> bool {
    parse(text).is_some_and(|version| (3, 5, 13) <= version || ((3, 4, 31)..(3, 5, 0)).contains(&version))
}

#[test]
fn marks_are_asked_of_servers_that_are_known_to_answer_rightly() {
    let table = [
        ("3.4.25", false),
        ("3.4.30", false),
        ("3.4.31", true),
        ("3.4.99", true),
        ("3.5.0", false),
        ("3.5.1", false),
        ("3.5.12", false),
        ("3.5.13", true),
        ("3.6.0", true),
        ("3.6.0-rc.1", true),
        ("v3.7.0", true),
        ("4.0.0", true),
        ("3.6", false),
        ("3.6.x", false),
        ("3.6.1.1", false),
        ("", false),
    ];
    for (version, asked) in table {
        assert_eq!(is_asked_for_marks(version), asked, "{version}");
    }
}
