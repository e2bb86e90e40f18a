//! The bytes of a page's head and of a meta page.
//!
//! bbolt writes numbers as its machine holds them; every machine that etcd supports is little endian.

use super::reader::BoltError;

pub(super) const PAGE_HEAD: usize = 16;
pub(super) const ELEMENT: usize = 16;
/// Head of a bucket in a row of the root bucket: root page, sequence.
pub(super) const BUCKET_HEAD: usize = 16;

pub(super) const BRANCH: u16 = 0x01;
pub(super) const LEAF: u16 = 0x02;
pub(super) const META: u16 = 0x04;
pub(super) const FREELIST: u16 = 0x10;
/// Of a row: its value is a bucket.
pub(super) const BUCKET_ROW: u32 = 0x01;

const MAGIC: u32 = 0xed0c_daed;
const VERSION: u32 = 2;
const META_BYTES: usize = 64;
const PAGE_BYTES_MIN: u32 = 512;
const PAGE_BYTES_MAX: u32 = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PageHead {
    pub id: u64,
    pub flags: u16,
    pub count: u16,
    /// How many pages behind it belong to it.
    pub overflow: u32,
}

impl PageHead {
    pub(super) fn encode(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.id.to_le_bytes());
        out.extend_from_slice(&self.flags.to_le_bytes());
        out.extend_from_slice(&self.count.to_le_bytes());
        out.extend_from_slice(&self.overflow.to_le_bytes());
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<PageHead> {
        Some(PageHead {
            id: u64_at(bytes, 0)?,
            flags: u16::from_le_bytes(bytes.get(8..10)?.try_into().ok()?),
            count: u16::from_le_bytes(bytes.get(10..12)?.try_into().ok()?),
            overflow: u32_at(bytes, 12)?,
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Meta {
    pub page_bytes: u32,
    pub root: u64,
    pub freelist: u64,
    /// Pages of the file that count.
    pub pages: u64,
    pub txid: u64,
}

impl Meta {
    /// The whole meta page `id`.
    pub(super) fn encode(&self, id: u64) -> Vec<u8> {
        let mut page = Vec::with_capacity(self.page_bytes as usize);
        PageHead { id, flags: META, count: 0, overflow: 0 }.encode(&mut page);
        for number in [MAGIC, VERSION, self.page_bytes, 0] {
            page.extend_from_slice(&number.to_le_bytes());
        }
        for number in [self.root, 0, self.freelist, self.pages, self.txid] {
            page.extend_from_slice(&number.to_le_bytes());
        }
        let checksum = fnv64a(&page[PAGE_HEAD..]);
        page.extend_from_slice(&checksum.to_le_bytes());
        page.resize(self.page_bytes as usize, 0);
        page
    }

    /// `bytes` begin with the head of the page.
    pub(super) fn decode(bytes: &[u8]) -> Result<Meta, BoltError> {
        let bad = |what: &str| BoltError::NotBolt { what: what.to_owned() };
        let meta = bytes
            .get(PAGE_HEAD..PAGE_HEAD + META_BYTES)
            .ok_or_else(|| bad("it is shorter than one meta page"))?;
        let short = |at| u32_at(meta, at).ok_or_else(|| bad("a meta page is cut"));
        let long = |at| u64_at(meta, at).ok_or_else(|| bad("a meta page is cut"));
        if short(0)? != MAGIC {
            return Err(bad("a meta page does not begin with bbolt's mark"));
        }
        if short(4)? != VERSION {
            return Err(bad("it is of another version of bbolt's format"));
        }
        if long(56)? != fnv64a(&meta[..56]) {
            return Err(bad("the checksum of a meta page does not match"));
        }
        let page_bytes = short(8)?;
        if !page_bytes.is_power_of_two() || !(PAGE_BYTES_MIN..=PAGE_BYTES_MAX).contains(&page_bytes) {
            return Err(bad("its page size is none that bbolt uses"));
        }
        Ok(Meta { page_bytes, root: long(16)?, freelist: long(32)?, pages: long(40)?, txid: long(48)? })
    }
}

/// Page sizes at which a second meta page is looked for if the first is damaged.
pub(super) fn page_sizes() -> impl Iterator<Item = u64> {
    (9..=20).map(|bits| 1 << bits)
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at.checked_add(4)?)?.try_into().ok().map(u32::from_le_bytes)
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..at.checked_add(8)?)?.try_into().ok().map(u64::from_le_bytes)
}

fn fnv64a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_meta_page_reads_back_and_a_flipped_one_does_not() {
        let meta = Meta { page_bytes: 4096, root: 9, freelist: 2, pages: 10, txid: 7 };
        let page = meta.encode(1);
        assert_eq!((page.len(), Meta::decode(&page).ok()), (4096, Some(meta)));
        for at in PAGE_HEAD..PAGE_HEAD + META_BYTES {
            let mut flipped = page.clone();
            flipped[at] ^= 0x10;
            assert!(Meta::decode(&flipped).is_err(), "byte {at}");
        }
    }

    #[test]
    fn the_checksum_is_fnv() {
        assert_eq!(fnv64a(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv64a(b"a"), 0xaf63_dc4c_8601_ec8c);
    }
}
