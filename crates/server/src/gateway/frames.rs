//! Messages as gRPC frames them: a byte that says whether it is compressed, four of length, the message.

use bytes::{Buf, BufMut, Bytes, BytesMut};

const HEAD_BYTES: usize = 5;

pub(super) fn frame(message: &impl prost::Message) -> Bytes {
    let length = message.encoded_len();
    let mut frame = BytesMut::with_capacity(HEAD_BYTES + length);
    frame.put_u8(0);
    // A message above 4 GiB would not have fit in its body.
    frame.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    // There is room for it.
    let _ = message.encode(&mut frame);
    frame.freeze()
}

/// Puts messages together again.
#[derive(Default)]
pub(super) struct Unframe(BytesMut);

impl Unframe {
    pub(super) fn push(&mut self, bytes: &Bytes) {
        self.0.extend_from_slice(bytes);
    }

    /// The next message, if all of it is there.
    pub(super) fn next(&mut self) -> Option<Bytes> {
        let length = u32::from_be_bytes(self.0.get(1..HEAD_BYTES)?.try_into().ok()?) as usize;
        if self.0.len() < HEAD_BYTES + length {
            return None;
        }
        self.0.advance(HEAD_BYTES);
        Some(self.0.split_to(length).freeze())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use meerkat_proto::pb::etcdserver::LeaseKeepAliveRequest;
    use prost::Message;

    #[test]
    fn messages_come_out_as_they_went_in_however_they_are_cut() {
        let messages = [0, 1, i64::MAX].map(|id| LeaseKeepAliveRequest { id });
        let bytes: Vec<u8> = messages.iter().flat_map(|message| frame(message).to_vec()).collect();
        for size in [1, 3, 5, 100] {
            let mut unframe = Unframe::default();
            let mut found = Vec::new();
            for piece in bytes.chunks(size) {
                unframe.push(&Bytes::copy_from_slice(piece));
                while let Some(message) = unframe.next() {
                    found.push(LeaseKeepAliveRequest::decode(message).expect("a message"));
                }
            }
            assert_eq!(found, messages, "{size}");
        }
    }
}
