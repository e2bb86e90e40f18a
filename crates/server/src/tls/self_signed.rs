//! Certificates that a member makes for itself (`--auto-tls`, `--peer-auto-tls`).
//!
//! Made once and kept under the data directory, so that clients that have come to trust one need not
//! do so anew after each restart. One that has run out, or whose files are incomplete, is made again.
//! They encrypt; they prove nothing to whom has not been given them.

use super::material::{self, TlsError};
use crate::config::KeyPair;
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyUsagePurpose, SerialNumber};
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, SystemTime};

const YEAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Clocks of two machines may differ by this much.
const CLOCK_SLACK: Duration = Duration::from_secs(60 * 60);

/// The pair in that directory, made unless it is there.
pub(super) fn ensure(directory: &Path, hosts: Vec<String>, years: u32) -> Result<KeyPair, TlsError> {
    let pair = KeyPair { cert_file: directory.join("cert.pem"), key_file: directory.join("key.pem") };
    if is_usable(&pair) {
        return Ok(pair);
    }
    let failed = |error: std::io::Error| TlsError::file(directory, error);
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(failed)?;
    let (certificate, key) = make(hosts, years)?;
    // The key last: a pair that is half written is made again.
    let _ = std::fs::remove_file(&pair.key_file);
    write(&pair.cert_file, &certificate, 0o644)?;
    write(&pair.key_file, &key, 0o600)?;
    tracing::warn!(
        cert_file = %pair.cert_file.display(),
        good_for_days = u64::from(years) * 365,
        "automatically generate certificates"
    );
    Ok(pair)
}

fn is_usable(pair: &KeyPair) -> bool {
    if !pair.cert_file.exists() || !pair.key_file.exists() {
        return false;
    }
    let Ok(identity) = material::identity(pair) else { return false };
    match super::verify::is_in_time(&identity.chain[0]) {
        true => true,
        false => {
            tracing::warn!(cert_file = %pair.cert_file.display(), "the generated certificate has run out; another is made");
            false
        }
    }
}

fn make(mut hosts: Vec<String>, years: u32) -> Result<(String, String), TlsError> {
    hosts.sort();
    hosts.dedup();
    let mut params = CertificateParams::new(hosts)?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, "meerkat");
    params.serial_number = Some(SerialNumber::from(rand::random::<u64>() >> 1));
    let now = since_1970();
    params.not_before = rcgen::date_time_ymd(1970, 1, 1) + now.saturating_sub(CLOCK_SLACK);
    params.not_after = rcgen::date_time_ymd(1970, 1, 1) + now + years * YEAR;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    let key = rcgen::KeyPair::generate()?;
    Ok((params.self_signed(&key)?.pem(), key.serialize_pem()))
}

fn since_1970() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

fn write(file: &Path, text: &str, mode: u32) -> Result<(), TlsError> {
    let failed = |error: std::io::Error| TlsError::file(file, error);
    let mut opened =
        OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(file).map_err(failed)?;
    opened.write_all(text.as_bytes()).and_then(|()| opened.sync_all()).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_pair_is_made_once_and_only_its_owner_reads_the_key() {
        let directory = tempfile::tempdir().expect("a directory");
        let at = directory.path().join("fixtures/client");
        let hosts = || vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "localhost".to_owned()];
        let pair = ensure(&at, hosts(), 1).expect("made");
        let first = std::fs::read_to_string(&pair.cert_file).expect("there");
        let mode = std::fs::metadata(&pair.key_file).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(ensure(&at, hosts(), 1).expect("kept"), pair);
        assert_eq!(std::fs::read_to_string(&pair.cert_file).expect("there"), first);
        std::fs::remove_file(&pair.key_file).expect("removed");
        ensure(&at, hosts(), 1).expect("made again");
        assert_ne!(std::fs::read_to_string(&pair.cert_file).expect("there"), first);
    }

    #[test]
    fn one_that_has_run_out_is_made_again() {
        let directory = tempfile::tempdir().expect("a directory");
        let pair = ensure(directory.path(), vec!["localhost".to_owned()], 1).expect("made");
        let mut params = CertificateParams::new(["localhost".to_owned()]).expect("good");
        params.not_before = rcgen::date_time_ymd(2019, 1, 1);
        params.not_after = rcgen::date_time_ymd(2020, 1, 1);
        let key = rcgen::KeyPair::generate().expect("a key");
        let old = params.self_signed(&key).expect("made").pem();
        write(&pair.cert_file, &old, 0o644).expect("written");
        write(&pair.key_file, &key.serialize_pem(), 0o600).expect("written");
        ensure(directory.path(), vec!["localhost".to_owned()], 1).expect("made again");
        assert_ne!(std::fs::read_to_string(&pair.cert_file).expect("there"), old);
    }
}
