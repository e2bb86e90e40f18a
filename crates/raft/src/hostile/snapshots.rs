//! The chunks of a snapshot that a peer sends.

use crate::snapshot::transfer::Receiving;
use bytes::Bytes;
use meerkat_mangle::Fuzz;
use meerkat_proto::pb::peer as pb;
use meerkat_proto::pb::peer::snapshot_chunk::Part;
use prost::Message;
use std::path::Path;
use std::sync::Arc;

fn stream(files: &[(&str, &[&'static [u8]])]) -> Vec<u8> {
    let announced = files.iter().map(|(name, chunks)| pb::SnapshotFile {
        name: (*name).to_owned(),
        bytes: chunks.iter().map(|chunk| chunk.len() as u64).sum(),
    });
    let header = pb::SnapshotHeader { files: announced.collect(), ..Default::default() };
    let mut bytes = Vec::new();
    let mut send = |part| {
        let chunk = pb::SnapshotChunk { part: Some(part) };
        chunk.encode_length_delimited(&mut bytes).expect("a vector has room");
    };
    send(Part::Header(header));
    for (number, (_, chunks)) in files.iter().enumerate() {
        let mut offset = 0;
        for chunk in *chunks {
            let file = u32::try_from(number).expect("few");
            let (data, checksum) = (Bytes::from_static(chunk), crc32c::crc32c(chunk));
            send(Part::File(pb::FileChunk { file, offset, data, checksum }));
            offset += chunk.len() as u64;
        }
    }
    bytes
}

/// Receives into `root` whatever the bytes hold. A state that is whole has every byte that was announced.
fn receive(mut bytes: &[u8], root: &Path) -> bool {
    let mut next = || match pb::SnapshotChunk::decode_length_delimited(&mut bytes) {
        Ok(pb::SnapshotChunk { part: Some(part) }) => Some(part),
        _ => None,
    };
    let Some(Part::Header(header)) = next() else { return false };
    let Ok(mut receiving) = Receiving::begin(root.join("incoming"), header.files.clone(), Arc::default())
    else {
        return false;
    };
    while let Some(Part::File(chunk)) = next() {
        if receiving.take(chunk).is_err() {
            return false;
        }
    }
    let Ok(state) = receiving.finish() else { return false };
    let dir = state.dir().expect("files");
    assert!(dir.starts_with(root));
    for file in &header.files {
        let stored = std::fs::metadata(dir.join(&file.name)).expect("every file that was announced");
        assert_eq!(stored.len(), file.bytes, "{:?}", file.name);
    }
    assert_eq!(std::fs::read_dir(dir).expect("lists").count(), header.files.len());
    true
}

#[test]
fn a_mutated_snapshot_is_refused_or_whole_and_stays_in_its_place() {
    let root = tempfile::tempdir().expect("temp dir");
    let samples = vec![
        stream(&[("CURRENT", &[b"MANIFEST-1"]), ("1.sst", &[b"some", b"more"]), ("empty", &[])]),
        stream(&[("a", &[b"x"])]),
    ];
    let fuzz = Fuzz::new("snapshots", include_str!("../../corpus/snapshots.txt"), samples);
    fuzz.run(1_500, |bytes| {
        let whole = receive(bytes, root.path());
        assert_eq!(std::fs::read_dir(root.path()).expect("lists").count(), 0, "nothing is left behind");
        whole
    });
}
