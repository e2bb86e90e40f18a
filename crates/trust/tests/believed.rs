//! Certificates of authorities, shown by servers and callers: which are believed, and which are not.

use meerkat_trust::{Roots, callers, servers};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, GeneralSubtree, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose,
    NameConstraints, RevokedCertParams, SerialNumber, date_time_ymd,
};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, ServerName, UnixTime};
use std::sync::Arc;

const HOST: &str = "member.test";

/// One that could be any link of a chain.
struct Made {
    params: CertificateParams,
    key: KeyPair,
    der: CertificateDer<'static>,
}

impl Made {
    fn issuer(&self) -> Issuer<'static, KeyPair> {
        let key = KeyPair::from_pem(&self.key.serialize_pem()).expect("the same key");
        Issuer::new(self.params.clone(), key)
    }
}

fn params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::new(vec![HOST.to_owned()]).expect("parameters");
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.serial_number = Some(SerialNumber::from(7_u64));
    params
}

/// One that signed itself.
fn root(name: &str, change: impl FnOnce(&mut CertificateParams)) -> Made {
    let (mut params, key) = (params(name), KeyPair::generate().expect("a key"));
    change(&mut params);
    let der = params.self_signed(&key).expect("signed").der().clone();
    Made { params, key, der }
}

fn issued(by: &Made, name: &str, change: impl FnOnce(&mut CertificateParams)) -> Made {
    let (mut params, key) = (params(name), KeyPair::generate().expect("a key"));
    change(&mut params);
    let der = params.signed_by(&key, &by.issuer()).expect("signed").der().clone();
    Made { params, key, der }
}

fn as_it_is(_: &mut CertificateParams) {}

/// Whether a server and a caller are believed that show a chain, if those are trusted.
fn believed(trusted: &[&Made], shown: &[&CertificateDer<'static>]) -> (bool, bool) {
    let name = ServerName::try_from(HOST).expect("a name");
    believed_as(trusted, shown, &name, Vec::new())
}

fn believed_as(
    trusted: &[&Made],
    shown: &[&CertificateDer<'static>],
    name: &ServerName<'_>,
    revoked: Vec<CertificateRevocationListDer<'static>>,
) -> (bool, bool) {
    let mut roots = Roots::empty();
    trusted.iter().for_each(|root| roots.add(root.der.clone()).expect("one to trust"));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let of_servers = servers(roots.clone(), provider.clone()).expect("a verifier");
    let of_callers = callers(roots, revoked, provider).expect("a verifier");
    let rest: Vec<CertificateDer<'static>> = shown[1..].iter().map(|one| (*one).clone()).collect();
    let now = UnixTime::now();
    (
        of_servers.verify_server_cert(shown[0], &rest, name, &[], now).is_ok(),
        of_callers.verify_client_cert(shown[0], &rest, now).is_ok(),
    )
}

const BOTH: (bool, bool) = (true, true);
const NEITHER: (bool, bool) = (false, false);

#[test]
fn one_that_is_trusted_itself_is_believed_in_its_time_for_its_purpose_and_in_its_name() {
    let good = root("it", as_it_is);
    let other = root("it", as_it_is);
    let old = root("it", |params| params.not_after = date_time_ymd(2020, 1, 1));
    let early = root("it", |params| params.not_before = date_time_ymd(2900, 1, 1));
    assert_eq!(believed(&[&good], &[&good.der]), BOTH);
    assert_eq!(believed(&[&other, &good], &[&good.der]), BOTH);
    assert_eq!(believed(&[&other], &[&good.der]), NEITHER, "another of the same name");
    assert_eq!(believed(&[&other], &[&good.der, &other.der]), NEITHER, "with the trusted one beside it");
    assert_eq!(believed(&[&old], &[&old.der]), NEITHER, "run out");
    assert_eq!(believed(&[&early], &[&early.der]), NEITHER, "not yet");

    let for_purpose =
        |purpose| root("it", |params: &mut CertificateParams| params.extended_key_usages = vec![purpose]);
    let of_server = for_purpose(ExtendedKeyUsagePurpose::ServerAuth);
    let of_client = for_purpose(ExtendedKeyUsagePurpose::ClientAuth);
    assert_eq!(believed(&[&of_server], &[&of_server.der]), (true, false));
    assert_eq!(believed(&[&of_client], &[&of_client.der]), (false, true));

    let elsewhere = ServerName::try_from("elsewhere.test").expect("a name");
    let by_name = believed_as(&[&good], &[&good.der], &elsewhere, Vec::new());
    assert_eq!(by_name, (false, true), "callers are not asked for a name");

    // Its key is not for signing others; it shows itself all the same.
    let shows = |params: &mut CertificateParams| params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    let shows = root("it", shows);
    assert_eq!(believed(&[&shows], &[&shows.der]), BOTH);
}

#[test]
fn one_that_a_trusted_authority_has_issued_is_believed_if_that_may_issue() {
    let good = root("root", as_it_is);
    let leaf = |by: &Made| issued(by, "leaf", as_it_is).der;
    assert_eq!(believed(&[&good], &[&leaf(&good)]), BOTH);
    assert_eq!(believed(&[&root("root", as_it_is)], &[&leaf(&good)]), NEITHER, "another of its name");
    let old = issued(&good, "leaf", |params| params.not_after = date_time_ymd(2020, 1, 1));
    assert_eq!(believed(&[&good], &[&old.der]), NEITHER, "run out");

    type Change = fn(&mut CertificateParams);
    let rows: [(&str, Change, (bool, bool)); 6] = [
        ("no authority", |params| params.is_ca = IsCa::NoCa, NEITHER),
        ("run out", |params| params.not_after = date_time_ymd(2020, 1, 1), NEITHER),
        ("a key for other things", |params| params.key_usages = vec![KeyUsagePurpose::CrlSign], NEITHER),
        ("a key for signing", |params| params.key_usages = vec![KeyUsagePurpose::KeyCertSign], BOTH),
        (
            "for clients",
            |params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth],
            (false, true),
        ),
        (
            "of other names",
            |params| {
                let other = vec![GeneralSubtree::DnsName("other.test".to_owned())];
                params.name_constraints =
                    Some(NameConstraints { permitted_subtrees: other, excluded_subtrees: vec![] });
            },
            NEITHER,
        ),
    ];
    for (what, change, expected) in rows {
        let by = root("root", change);
        assert_eq!(believed(&[&by], &[&leaf(&by)]), expected, "issued by one that is {what}");
    }
}

#[test]
fn those_in_between_must_be_allowed_to_stand_there() {
    let root_of = |length: Option<u8>| {
        root("root", |params| {
            let constraints = length.map_or(BasicConstraints::Unconstrained, BasicConstraints::Constrained);
            params.is_ca = IsCa::Ca(constraints);
        })
    };
    let check = |length, change: fn(&mut CertificateParams)| {
        let root = root_of(length);
        let between = issued(&root, "between", change);
        let leaf = issued(&between, "leaf", as_it_is).der;
        assert_eq!(believed(&[&root], &[&leaf]), NEITHER, "without the one in between");
        believed(&[&root], &[&leaf, &between.der])
    };
    assert_eq!(check(None, as_it_is), BOTH);
    assert_eq!(check(Some(1), as_it_is), BOTH);
    assert_eq!(check(Some(0), as_it_is), NEITHER);
    assert_eq!(check(None, |params| params.is_ca = IsCa::NoCa), NEITHER);
    assert_eq!(check(None, |params| params.key_usages = vec![KeyUsagePurpose::DigitalSignature]), NEITHER);
    assert_eq!(check(None, |params| params.not_after = date_time_ymd(2020, 1, 1)), NEITHER);
    let alone = root_of(Some(0));
    assert_eq!(believed(&[&alone], &[&issued(&alone, "leaf", as_it_is).der]), BOTH);
}

#[test]
fn one_that_was_changed_in_any_byte_is_not_believed() {
    let root = root("root", as_it_is);
    let leaf = issued(&root, "leaf", |params| {
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(3));
    });
    assert_eq!(believed(&[&root], &[&leaf.der]), BOTH);
    for at in 0..leaf.der.len() {
        let mut bytes = leaf.der.to_vec();
        bytes[at] ^= 1;
        assert_eq!(believed(&[&root], &[&CertificateDer::from(bytes)]), NEITHER, "byte {at}");
    }
    // Trusted are the bytes, and not the name or the key.
    for at in 0..root.der.len() {
        let mut bytes = root.der.to_vec();
        bytes[at] ^= 1;
        assert_eq!(believed(&[&root], &[&CertificateDer::from(bytes)]), NEITHER, "byte {at} of the root");
    }
}

#[test]
fn one_in_the_file_that_another_in_it_has_issued_is_believed_as_if_it_were_not_in_it() {
    let root = root("root", as_it_is);
    let sub = issued(&root, "sub", as_it_is);
    assert_eq!(believed(&[&root, &sub], &[&sub.der]), BOTH);
    assert_eq!(believed(&[&sub, &root], &[&sub.der]), BOTH, "in either order");
    assert_eq!(believed(&[&sub], &[&sub.der]), NEITHER, "without who has issued it");
    let old = issued(&root, "sub", |params| params.not_after = date_time_ymd(2020, 1, 1));
    assert_eq!(believed(&[&root, &old], &[&old.der]), NEITHER, "run out");
    let name = ServerName::try_from(HOST).expect("a name");
    let revoked = believed_as(&[&root, &sub], &[&sub.der], &name, vec![list(&root, 7)]);
    assert_eq!(revoked, (true, false), "revoked");
}

/// One of this authority, that names this number.
fn list(by: &Made, serial: u64) -> CertificateRevocationListDer<'static> {
    let params = CertificateRevocationListParams {
        this_update: date_time_ymd(2020, 1, 1),
        next_update: date_time_ymd(2200, 1, 1),
        crl_number: SerialNumber::from(1),
        issuing_distribution_point: None,
        revoked_certs: vec![RevokedCertParams {
            serial_number: SerialNumber::from(serial),
            revocation_time: date_time_ymd(2020, 1, 1),
            reason_code: None,
            invalidity_date: None,
        }],
        key_identifier_method: KeyIdMethod::Sha256,
    };
    let list = params.signed_by(&by.issuer()).expect("signed");
    CertificateRevocationListDer::from(list.der().to_vec())
}

fn numbered(serial: u64) -> impl FnOnce(&mut CertificateParams) {
    move |params| params.serial_number = Some(SerialNumber::from(serial))
}

#[test]
fn one_that_was_revoked_is_not_believed() {
    let root = root("root", as_it_is);
    let leaf = issued(&root, "leaf", numbered(8)).der;
    let name = ServerName::try_from(HOST).expect("a name");
    assert_eq!(believed_as(&[&root], &[&leaf], &name, vec![list(&root, 9)]), BOTH);
    // A list is for callers.
    assert_eq!(believed_as(&[&root], &[&leaf], &name, vec![list(&root, 8)]), (true, false));
}

#[test]
fn nor_is_one_below_an_authority_that_was_revoked() {
    let root = root("root", as_it_is);
    let upper = issued(&root, "upper", numbered(8));
    let lower = issued(&upper, "lower", numbered(9));
    let ordinary = issued(&lower, "leaf", |params| {
        params.is_ca = IsCa::NoCa;
        numbered(10)(params);
    });
    let authority = issued(&lower, "leaf", numbered(10));
    let name = ServerName::try_from(HOST).expect("a name");
    for (what, leaf) in [("an ordinary one", ordinary), ("an authority", authority)] {
        let shown = [&leaf.der, &lower.der, &upper.der];
        for (by, serial, expected) in [
            (&root, 8, (true, false)),
            (&upper, 9, (true, false)),
            (&lower, 10, (true, false)),
            (&root, 11, BOTH),
            // Nobody speaks for what another has issued.
            (&root, 9, BOTH),
            (&lower, 8, BOTH),
        ] {
            let verdict = believed_as(&[&root], &shown, &name, vec![list(by, serial)]);
            let by = &by.params.distinguished_name;
            assert_eq!(verdict, expected, "{what}, and {serial} on the list of {by:?}");
        }
    }
}

#[test]
fn a_refusal_says_what_to_do() {
    let (trusted, shown) = (root("root", as_it_is), root("other", as_it_is));
    let mut roots = Roots::empty();
    roots.add(trusted.der).expect("one to trust");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = callers(roots, Vec::new(), provider).expect("a verifier");
    let refused = verifier.verify_client_cert(&shown.der, &[], UnixTime::now()).expect_err("a stranger");
    let refused = refused.to_string();
    for words in ["CA:TRUE", "in the trusted CA file itself", "UnknownIssuer"] {
        assert!(refused.contains(words), "{refused}");
    }
}
