//! `etcdserverpb.RangeResponse`, written by hand so that key-values can travel undecoded.
//!
//! A member that reads a range already has each key-value as the bytes the wire wants. [`KvList`]
//! carries them as they are; on the wire both of its forms are the same bytes. Decoding always
//! yields [`KvList::Decoded`], so a client never meets the other form.
//!
//! Equality is of form as well as of content. Never fill [`KvList::Wire`] from bytes that did not
//! come from our own store: they go out unread.

use crate::pb::etcdserver::ResponseHeader;
use crate::pb::mvcc::KeyValue;
use bytes::{Buf, BufMut, Bytes};
use prost::encoding::{self, DecodeContext, WireType};
use prost::{DecodeError, Message};

const HEADER: u32 = 1;
const KVS: u32 = 2;
const MORE: u32 = 3;
const COUNT: u32 = 4;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct RangeResponse {
    pub header: Option<ResponseHeader>,
    pub kvs: KvList,
    pub more: bool,
    pub count: i64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum KvList {
    Decoded(Vec<KeyValue>),
    /// `len` elements, each with its tag (0x12) and its length before it.
    Wire {
        bytes: Bytes,
        len: usize,
    },
}

impl RangeResponse {
    /// The key-values of an answer that came off the wire, or was built from decoded ones.
    ///
    /// # Panics
    /// If the answer is still in wire form, which no decoded message ever is.
    pub fn kvs(&self) -> &[KeyValue] {
        match &self.kvs {
            KvList::Decoded(kvs) => kvs,
            KvList::Wire { .. } => {
                panic!("an answer in wire form is to be sent, or taken apart with into_kvs")
            }
        }
    }

    /// The key-values, decoded if they were not yet.
    pub fn into_kvs(self) -> Result<Vec<KeyValue>, DecodeError> {
        self.kvs.into_decoded()
    }
}

impl KvList {
    pub fn len(&self) -> usize {
        match self {
            KvList::Decoded(kvs) => kvs.len(),
            KvList::Wire { len, .. } => *len,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn into_decoded(self) -> Result<Vec<KeyValue>, DecodeError> {
        match self {
            KvList::Decoded(kvs) => Ok(kvs),
            KvList::Wire { bytes, len } => {
                let page = RangeResponse::decode(bytes)?;
                match page.kvs {
                    KvList::Decoded(kvs) => {
                        assert_eq!(kvs.len(), len, "a page holds as many key-values as it says");
                        Ok(kvs)
                    }
                    KvList::Wire { .. } => unreachable!("decoding yields the decoded form"),
                }
            }
        }
    }

    fn encode(&self, buf: &mut impl BufMut) {
        match self {
            KvList::Decoded(kvs) => encoding::message::encode_repeated(KVS, kvs, buf),
            KvList::Wire { bytes, .. } => buf.put_slice(bytes),
        }
    }

    fn encoded_len(&self) -> usize {
        match self {
            KvList::Decoded(kvs) => encoding::message::encoded_len_repeated(KVS, kvs),
            KvList::Wire { bytes, .. } => bytes.len(),
        }
    }

    /// The list to add further elements to, whatever the form was before.
    fn decoded_mut(&mut self) -> Result<&mut Vec<KeyValue>, DecodeError> {
        if let KvList::Wire { .. } = self {
            *self = KvList::Decoded(std::mem::take(self).into_decoded()?);
        }
        match self {
            KvList::Decoded(kvs) => Ok(kvs),
            KvList::Wire { .. } => unreachable!("replaced just above"),
        }
    }
}

impl Default for KvList {
    fn default() -> KvList {
        KvList::Decoded(Vec::new())
    }
}

impl From<Vec<KeyValue>> for KvList {
    fn from(kvs: Vec<KeyValue>) -> KvList {
        KvList::Decoded(kvs)
    }
}

impl Message for RangeResponse {
    fn encode_raw(&self, buf: &mut impl BufMut) {
        if let Some(header) = &self.header {
            encoding::message::encode(HEADER, header, buf);
        }
        self.kvs.encode(buf);
        if self.more {
            encoding::bool::encode(MORE, &self.more, buf);
        }
        if self.count != 0 {
            encoding::int64::encode(COUNT, &self.count, buf);
        }
    }

    fn merge_field(
        &mut self,
        tag: u32,
        wire_type: WireType,
        buf: &mut impl Buf,
        ctx: DecodeContext,
    ) -> Result<(), DecodeError> {
        let (merged, field) = match tag {
            HEADER => {
                let header = self.header.get_or_insert_with(ResponseHeader::default);
                (encoding::message::merge(wire_type, header, buf, ctx), "header")
            }
            KVS => {
                let kvs = self.kvs.decoded_mut()?;
                (encoding::message::merge_repeated(wire_type, kvs, buf, ctx), "kvs")
            }
            MORE => (encoding::bool::merge(wire_type, &mut self.more, buf, ctx), "more"),
            COUNT => (encoding::int64::merge(wire_type, &mut self.count, buf, ctx), "count"),
            // A newer server's field: not ours to read.
            _ => return encoding::skip_field(wire_type, tag, buf, ctx),
        };
        merged.map_err(|mut error| {
            error.push("RangeResponse", field);
            error
        })
    }

    fn encoded_len(&self) -> usize {
        let header = self.header.as_ref().map_or(0, |header| encoding::message::encoded_len(HEADER, header));
        let more = if self.more { encoding::bool::encoded_len(MORE, &self.more) } else { 0 };
        let count = if self.count == 0 { 0 } else { encoding::int64::encoded_len(COUNT, &self.count) };
        header + self.kvs.encoded_len() + more + count
    }

    fn clear(&mut self) {
        *self = RangeResponse::default();
    }
}

#[cfg(test)]
mod tests;
