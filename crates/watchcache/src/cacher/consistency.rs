//! One number for what a cache holds, to compare with what the store holds.
//!
//! It covers which keys there are and the revision of each. The order does not count, so that the store
//! can be read in pages; equal digests mean equal contents but for a chance of one in 2^64 or so.

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digest {
    objects: u64,
    sum: u64,
}

impl Digest {
    pub fn of<'a>(rows: impl Iterator<Item = (&'a str, u64)>) -> Digest {
        let mut digest = Digest::default();
        rows.for_each(|(key, revision)| digest.add(key, revision));
        digest
    }

    /// `key`: as the cache names it, without the resource's prefix.
    pub fn add(&mut self, key: &str, revision: u64) {
        self.objects += 1;
        self.sum = self.sum.wrapping_add(hash(key, revision));
    }

    pub fn objects(&self) -> u64 {
        self.objects
    }
}

/// FNV-1a, and a last step that spreads each bit over the whole number: sums of bare FNV values cancel
/// each other too easily.
fn hash(key: &str, revision: u64) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    // 0xff is in no UTF-8 text, so that key and revision cannot be split in two ways.
    for byte in key.bytes().chain([0xff]).chain(revision.to_be_bytes()) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_does_not_count() {
        let rows = [("a/1", 5), ("a/2", 9), ("b/1", 7)];
        let digest = Digest::of(rows.into_iter());
        assert_eq!(digest, Digest::of(rows.into_iter().rev()));
        assert_eq!(digest.objects(), 3);
    }

    #[test]
    fn one_object_more_less_older_or_elsewhere_is_seen() {
        let digest = |rows: &[(&str, u64)]| Digest::of(rows.iter().copied());
        let base = digest(&[("a/1", 5), ("a/2", 9)]);
        let others = [
            digest(&[("a/1", 5)]),
            digest(&[("a/1", 5), ("a/2", 9), ("a/3", 1)]),
            digest(&[("a/1", 5), ("a/2", 8)]),
            digest(&[("a/1", 5), ("b/2", 9)]),
            digest(&[("a/1", 9), ("a/2", 5)]),
            digest(&[]),
        ];
        assert!(others.iter().all(|other| *other != base));
    }

    #[test]
    fn many_rows_have_many_sums() {
        let sums: std::collections::HashSet<u64> =
            (0..20_000).map(|number| hash(&format!("a/{}", number % 200), number / 200)).collect();
        assert_eq!(sums.len(), 20_000);
    }
}
