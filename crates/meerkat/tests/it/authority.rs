//! Certificates for tests, made as they are needed and written where programs find them.

use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams,
    SerialNumber, date_time_ymd,
};

pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    directory: PathBuf,
    /// Its own certificate.
    pub file: String,
}

/// A certificate and its key, on disk.
#[derive(Clone)]
pub struct Pair {
    pub cert: String,
    pub key: String,
    serial: u64,
}

impl Authority {
    pub fn new(directory: &Path, name: &str) -> Authority {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(Vec::<String>::new()).expect("parameters");
        params.distinguished_name = named(name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let file = write(directory, &format!("{name}.pem"), &params.self_signed(&key).expect("signed").pem());
        Authority { issuer: Issuer::new(params, key), directory: directory.to_owned(), file }
    }

    /// A certificate for those hosts, in that name, good until a year.
    pub fn issue_until(&self, common_name: &str, hosts: &[&str], year: i32) -> Pair {
        let key = KeyPair::generate().expect("a key");
        let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
        let mut params = CertificateParams::new(hosts).expect("parameters");
        params.distinguished_name = named(common_name);
        let serial = rand::random::<u64>() >> 1;
        params.serial_number = Some(SerialNumber::from(serial));
        params.not_before = date_time_ymd(2019, 1, 1);
        params.not_after = date_time_ymd(year, 1, 1);
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let certificate = params.signed_by(&key, &self.issuer).expect("signed").pem();
        let cert = write(&self.directory, &format!("{serial:x}.pem"), &certificate);
        let key = write(&self.directory, &format!("{serial:x}.key"), &key.serialize_pem());
        Pair { cert, key, serial }
    }

    pub fn issue(&self, common_name: &str, hosts: &[&str]) -> Pair {
        self.issue_until(common_name, hosts, 2200)
    }

    /// A list that says that one of its certificates does not count any more.
    pub fn revoke(&self, pair: &Pair) -> String {
        let params = CertificateRevocationListParams {
            this_update: date_time_ymd(2020, 1, 1),
            next_update: date_time_ymd(2200, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: vec![RevokedCertParams {
                serial_number: SerialNumber::from(pair.serial),
                revocation_time: date_time_ymd(2020, 1, 1),
                reason_code: None,
                invalidity_date: None,
            }],
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let list = params.signed_by(&self.issuer).expect("signed").pem().expect("text");
        write(&self.directory, "revoked.pem", &list)
    }
}

fn named(common_name: &str) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, common_name);
    name
}

fn write(directory: &Path, name: &str, text: &str) -> String {
    let path = directory.join(name);
    std::fs::write(&path, text).expect("written");
    path.display().to_string()
}
