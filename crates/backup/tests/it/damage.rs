//! Any bytes at all: an answer or an error, never a panic, an endless walk or a huge allocation.

use meerkat_backup::bbolt::{Bolt, BoltWriter};
use meerkat_backup::snapshot::{Head, LeaseRow, SnapshotFile, write};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

fn bytes_of(mut file: File) -> Vec<u8> {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(0)).unwrap();
    file.read_to_end(&mut bytes).unwrap();
    bytes
}

fn good_database() -> Vec<u8> {
    let lease = LeaseRow { id: 7, ttl_seconds: 60, remaining_seconds: 0 };
    let head = Head { compacted: Some(2), leases: vec![lease], ..Head::default() };
    let (file, _) = write::<io::Error>(tempfile::tempfile().unwrap(), &head, |keys| {
        for revision in 2..400 {
            let key_value = [&[0x0a, 1, b'k', 0x2a, 0x90, 0x03], [b'v'; 400].as_slice()].concat();
            keys.put(revision, 0, &key_value)?;
            keys.delete(revision, 1, b"k")?;
        }
        keys.put(400, 0, &[7; 10_000])
    })
    .unwrap();
    bytes_of(file)
}

/// Everything that reading can do to a file.
fn read_all(bytes: Vec<u8>) -> Result<u64, String> {
    let len = bytes.len() as u64;
    let text = |error: meerkat_backup::snapshot::SnapshotError| error.to_string();
    let file = SnapshotFile::from_source(Path::new("it"), bytes, len).map_err(text)?;
    let mut events = 0;
    let mut all = file.events().map_err(text)?;
    while all.next_event().map_err(text)?.is_some() {
        events += 1;
    }
    file.leases().map_err(text)?;
    file.compacted().map_err(text)?;
    file.other_rows().map_err(text)?;
    file.status().map_err(text)?;
    Ok(events)
}

#[test]
fn flipped_bytes_cut_files_and_noise_never_stop_the_reader() {
    let good = good_database();
    // The last row is no KeyValue, so a whole file ends in an error that says so.
    let error = read_all(good.clone()).expect_err("the last row");
    assert!(error.contains("is no event"), "{error}");
    let mut random = StdRng::seed_from_u64(7);
    for round in 0..1_500 {
        let mut bytes = good.clone();
        for _ in 0..random.random_range(1..6) {
            // Heads of pages are the interesting places.
            let page = random.random_range(0..bytes.len() / 4096);
            let within =
                if random.random() { random.random_range(0..64) } else { random.random_range(0..4096) };
            bytes[page * 4096 + within] = random.random();
        }
        if round % 5 == 0 {
            bytes.truncate(random.random_range(0..bytes.len()));
        }
        drop(read_all(bytes));
    }
    for _ in 0..200 {
        let noise: Vec<u8> = (0..random.random_range(0..20_000)).map(|_| random.random()).collect();
        assert!(read_all(noise).is_err());
    }
}

#[test]
fn a_cut_file_says_how_much_is_missing() {
    let mut bytes = good_database();
    let whole = bytes.len();
    bytes.truncate(whole - 4096);
    let error = read_all(bytes).expect_err("cut");
    assert!(error.contains(&format!("reach to byte {whole}")), "{error}");
}

#[test]
fn a_page_that_leads_back_to_itself_is_seen() {
    let mut writer = BoltWriter::new(tempfile::tempfile().unwrap()).unwrap();
    let mut bucket = writer.bucket("key");
    for n in 0..2_000u64 {
        bucket.put(&n.to_be_bytes(), &[0; 20]).unwrap();
    }
    bucket.finish().unwrap();
    let mut bytes = bytes_of(writer.finish().unwrap().0);
    // The branch is the one page of its kind; its second child becomes itself.
    let branch = (2..bytes.len() / 4096).find(|page| bytes[page * 4096 + 8] == 1).expect("a branch");
    let child = branch * 4096 + 16 + 16 + 8;
    bytes[child..child + 8].copy_from_slice(&(branch as u64).to_le_bytes());
    let len = bytes.len() as u64;
    let bolt = Bolt::open(bytes, len).unwrap();
    let mut rows = bolt.rows("key").unwrap();
    let error = loop {
        match rows.next_row() {
            Ok(Some(_)) => {}
            Ok(None) => panic!("a loop has no end"),
            Err(error) => break error.to_string(),
        }
    };
    assert!(error.contains("twice"), "{error}");
}

#[test]
fn rows_that_lie_over_each_other_are_refused() {
    let mut writer = BoltWriter::new(tempfile::tempfile().unwrap()).unwrap();
    let mut bucket = writer.bucket("key");
    for n in 0..4u8 {
        bucket.put(&[n], &[n; 900]).unwrap();
    }
    bucket.finish().unwrap();
    let mut bytes = bytes_of(writer.finish().unwrap().0);
    let leaf = (2..bytes.len() / 4096).find(|page| bytes[page * 4096 + 8] == 2).expect("a leaf");
    // The first row's value runs to the end of the last one's.
    bytes[leaf * 4096 + 16 + 12..][..4].copy_from_slice(&3_600u32.to_le_bytes());
    let error = read_all(bytes).expect_err("an overlap");
    assert!(error.contains("overlap"), "{error}");
}
