//! Downgrade: what an operator may go back to, and what is noted of it.
//!
//! The version spoken of is that of the etcd whose behaviour is matched, since its tools ask. To go
//! back changes nothing in this cluster: the target is agreed on, shown by Status, and can be taken back.

use meerkat_proto::error_text::EtcdError;

/// A version without its patch level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Minor {
    major: u64,
    minor: u64,
}

impl Minor {
    /// `X.Y` or `X.Y.Z`, the latter with what semantic versions allow after it.
    pub(super) fn parse(text: &str) -> Option<Minor> {
        let plain = text.split(['-', '+']).next()?;
        let mut parts = plain.split('.');
        let mut number = || parts.next().map(|part| part.parse::<u64>().ok().filter(|_| is_digits(part)));
        let (major, minor) = (number()??, number()??);
        let patch = number();
        let named = plain.len() < text.len();
        // Only a whole version may have more after it.
        if patch == Some(None) || (patch.is_none() && named) || parts.next().is_some() {
            return None;
        }
        Some(Minor { major, minor })
    }

    fn one_below(self) -> Option<Minor> {
        Some(Minor { minor: self.minor.checked_sub(1)?, ..self })
    }

    /// As later versions of etcd answer.
    pub(super) fn text(self) -> String {
        format!("{}.{}", self.major, self.minor)
    }

    pub(super) fn whole(self) -> String {
        format!("{}.{}.0", self.major, self.minor)
    }
}

fn is_digits(part: &str) -> bool {
    !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit())
}

/// The version to go back to, if one may.
pub(super) fn validate(target: &str, cluster: Minor, active: bool) -> Result<Minor, EtcdError> {
    let target = Minor::parse(target).ok_or(EtcdError::WrongDowngradeVersionFormat)?;
    if Some(target) != cluster.one_below() {
        return Err(EtcdError::InvalidDowngradeTargetVersion);
    }
    if active { Err(EtcdError::DowngradeInProcess) } else { Ok(target) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_one_minor_below_may_be_gone_back_to() {
        let cluster = Minor { major: 3, minor: 6 };
        for (target, active, expected) in [
            ("3.5.0", false, Ok("3.5")),
            ("3.5", false, Ok("3.5")),
            ("3.5.7", false, Ok("3.5")),
            ("3.5.0-rc.1", false, Ok("3.5")),
            ("3.5.0", true, Err(EtcdError::DowngradeInProcess)),
            ("3.4.0", false, Err(EtcdError::InvalidDowngradeTargetVersion)),
            ("3.6.0", true, Err(EtcdError::InvalidDowngradeTargetVersion)),
            ("2.5.0", false, Err(EtcdError::InvalidDowngradeTargetVersion)),
            ("", false, Err(EtcdError::WrongDowngradeVersionFormat)),
            ("3", false, Err(EtcdError::WrongDowngradeVersionFormat)),
            ("3.x", false, Err(EtcdError::WrongDowngradeVersionFormat)),
            ("3.5.0.1", false, Err(EtcdError::WrongDowngradeVersionFormat)),
            ("v3.5.0", false, Err(EtcdError::WrongDowngradeVersionFormat)),
            ("3.+5", false, Err(EtcdError::WrongDowngradeVersionFormat)),
        ] {
            let got = validate(target, cluster, active).map(Minor::text);
            assert_eq!(got, expected.map(str::to_owned), "{target} {active}");
        }
    }
}
