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

    /// One self-signed certificate in all roles, as many guides make it: an authority, and what is shown.
    pub fn shown(directory: &Path, name: &str, hosts: &[&str], until_year: i32) -> (Authority, Pair) {
        let key = KeyPair::generate().expect("a key");
        let (mut params, serial) = params(name, hosts, until_year);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let cert =
            write(directory, &format!("{serial:x}.pem"), &params.self_signed(&key).expect("signed").pem());
        let pair = Pair {
            cert: cert.clone(),
            key: write(directory, &format!("{serial:x}.key"), &key.serialize_pem()),
            serial,
        };
        (Authority { issuer: Issuer::new(params, key), directory: directory.to_owned(), file: cert }, pair)
    }

    /// A certificate that says that it is an authority, too.
    pub fn issue_authority(&self, common_name: &str, hosts: &[&str]) -> Pair {
        let (mut params, serial) = params(common_name, hosts, 2200);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        self.sign(params, serial)
    }

    /// A certificate for those hosts, in that name, good until a year.
    pub fn issue_until(&self, common_name: &str, hosts: &[&str], year: i32) -> Pair {
        let (params, serial) = params(common_name, hosts, year);
        self.sign(params, serial)
    }

    fn sign(&self, params: CertificateParams, serial: u64) -> Pair {
        let key = KeyPair::generate().expect("a key");
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

/// What a certificate for those hosts says, and its number.
fn params(common_name: &str, hosts: &[&str], until_year: i32) -> (CertificateParams, u64) {
    let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
    let mut params = CertificateParams::new(hosts).expect("parameters");
    params.distinguished_name = named(common_name);
    let serial = rand::random::<u64>() >> 1;
    params.serial_number = Some(SerialNumber::from(serial));
    params.not_before = date_time_ymd(2019, 1, 1);
    params.not_after = date_time_ymd(until_year, 1, 1);
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    (params, serial)
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
