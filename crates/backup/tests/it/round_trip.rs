//! Databases of every shape read back row by row.

use meerkat_backup::bbolt::{Bolt, BoltWriter};
use meerkat_backup::snapshot::{Change, HashCheck, Head, LeaseRow, OtherRows, SnapshotFile, UserRow, write};
use std::fs::File;
use std::io::{self, Read, Write};

fn bolt_of(rows: &[(Vec<u8>, Vec<u8>)]) -> Bolt<File> {
    let file = tempfile::tempfile().unwrap();
    let mut writer = BoltWriter::new(file).unwrap();
    let mut bucket = writer.bucket("rows");
    for (key, value) in rows {
        bucket.put(key, value).unwrap();
    }
    bucket.finish().unwrap();
    writer.bucket("empty").finish().unwrap();
    let (file, len) = writer.finish().unwrap();
    assert_eq!(file.metadata().unwrap().len(), len);
    Bolt::open(file, len).unwrap()
}

fn check(rows: &[(Vec<u8>, Vec<u8>)]) {
    let bolt = bolt_of(rows);
    let mut found = bolt.rows("rows").unwrap();
    for (key, value) in rows {
        let (found_key, found_value) = found.next_row().unwrap().expect("a row");
        assert_eq!((found_key, found_value), (key.as_slice(), value.as_slice()));
    }
    assert!(found.next_row().unwrap().is_none());
    assert!(bolt.rows("empty").unwrap().next_row().unwrap().is_none());
    assert!(bolt.rows("unknown").unwrap().next_row().unwrap().is_none());
}

#[test]
fn a_tree_of_any_height_reads_back() {
    // Around the places where a leaf, a branch, and a branch of branches begin.
    for count in [0u64, 1, 2, 60, 61, 120, 121, 122, 123, 5_000, 14_000, 14_900, 15_000, 40_000] {
        let rows: Vec<_> = (0..count).map(|n| (n.to_be_bytes().to_vec(), vec![n as u8; 10])).collect();
        check(&rows);
    }
}

#[test]
fn rows_larger_than_a_page_and_keys_of_any_size_read_back() {
    let sizes = [0, 1, 4000, 4064, 4065, 4096, 5000, 100_000, 3_000_000, 7, 12_288];
    let rows: Vec<_> = sizes
        .iter()
        .enumerate()
        .map(|(n, size)| (vec![n as u8 + 1; 1 + n * 700], vec![n as u8; *size]))
        .collect();
    check(&rows);
    // Branch pages whose keys alone are larger than a page.
    let rows: Vec<_> = (0..40u8).map(|n| (vec![n + 1; 9_000], vec![n; 3])).collect();
    check(&rows);
}

#[test]
fn a_snapshot_reads_back_with_its_leases_and_its_status() {
    let mut head = Head {
        compacted: Some(4),
        applied_term: 2,
        applied_index: 9,
        storage_version: Some("3.6.0"),
        ..Head::default()
    };
    head.leases = vec![
        LeaseRow { id: 7, ttl_seconds: 60, remaining_seconds: 0 },
        LeaseRow { id: -7, ttl_seconds: 5, remaining_seconds: 2 },
    ];
    let root = UserRow {
        name: "root".to_owned(),
        password: b"$2a$".to_vec(),
        roles: vec!["root".to_owned()],
        no_password: false,
    };
    head.other =
        OtherRows { auth_enabled: true, auth_revision: 3, users: vec![root], ..OtherRows::default() };
    let kv = [0x0a, 1, b'k', 0x10, 5, 0x18, 5, 0x20, 1, 0x2a, 1, b'v'];
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("snapshot.db");
    let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
    let (mut file, len) = write::<io::Error>(file, &head, |keys| {
        keys.put(5, 0, &kv)?;
        keys.delete(6, 0, b"k")?;
        keys.put(7, 0, &kv)?;
        keys.put(8, 0, &[0x0a, 1, b'l'])
    })
    .unwrap();
    let mut all = Vec::new();
    File::open(&path).unwrap().read_to_end(&mut all).unwrap();
    assert_eq!(all.len() as u64, len);
    let error = SnapshotFile::open(&path, HashCheck::Required).err().expect("no checksum yet");
    assert!(error.to_string().contains("snapshot missing hash but --skip-hash-check=false"), "{error}");
    let mut sum = meerkat_backup::snapshot::Checksum::default();
    sum.update(&all);
    io::Seek::seek(&mut file, io::SeekFrom::End(0)).unwrap();
    file.write_all(&sum.of_all()).unwrap();
    let snapshot = SnapshotFile::open(&path, HashCheck::Required).unwrap();
    assert_eq!(snapshot.compacted().unwrap(), Some(4));
    let mut leases = snapshot.leases().unwrap();
    leases.sort_by_key(|lease| -lease.id);
    assert_eq!(leases, head.leases);
    assert_eq!(snapshot.other_rows().unwrap(), head.other);
    let mut events = snapshot.events().unwrap();
    let first = events.next_event().unwrap().unwrap();
    assert!(matches!(first.change, Change::Put(kv) if kv.key == b"k" && kv.value == b"v"));
    let second = events.next_event().unwrap().unwrap();
    assert_eq!((second.revision, second.change), (6, Change::Delete { key: b"k" }));
    assert_eq!(events.next_event().unwrap().map(|event| event.revision), Some(7));
    assert_eq!(events.next_event().unwrap().map(|event| event.revision), Some(8));
    assert!(events.next_event().unwrap().is_none());
    let status = snapshot.status().unwrap();
    assert_eq!((status.revision, status.total_bytes, status.version.as_str()), (8, len, "3.6.0"));
    assert_eq!(status.total_keys, 2, "as etcdutl 3.6 counts: keys that exist");
}
