//! The stored form of what a member published about itself.
//!
//! `u64 incarnation, varint len, name, varint number of URLs, each as varint len and text`; the
//! member's id is in the row's key.

use crate::mvcc::wire::{put_varint, take, take_varint};
use meerkat_types::{MemberAttributes, MemberId};

pub(crate) fn encode(member: &MemberAttributes) -> Vec<u8> {
    let mut row = member.incarnation.to_be_bytes().to_vec();
    put_text(&mut row, &member.name);
    put_varint(&mut row, member.client_urls.len() as u64);
    member.client_urls.iter().for_each(|url| put_text(&mut row, url));
    row
}

pub(crate) fn decode(member: MemberId, mut row: &[u8]) -> Option<MemberAttributes> {
    let incarnation = u64::from_be_bytes(take(&mut row, 8)?.try_into().ok()?);
    let name = take_text(&mut row)?;
    let urls = take_varint(&mut row)?;
    let client_urls = (0..urls).map(|_| take_text(&mut row)).collect::<Option<Vec<_>>>()?;
    row.is_empty().then_some(MemberAttributes { member, name, client_urls, incarnation })
}

fn put_text(row: &mut Vec<u8>, text: &str) {
    put_varint(row, text.len() as u64);
    row.extend_from_slice(text.as_bytes());
}

fn take_text(row: &mut &[u8]) -> Option<String> {
    let len = usize::try_from(take_varint(row)?).ok()?;
    String::from_utf8(take(row, len)?.to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_reads_back_and_a_cut_row_does_not() {
        let member = MemberAttributes {
            member: MemberId(7),
            name: "infra0".to_owned(),
            client_urls: vec!["http://127.0.0.1:2379".to_owned(), String::new()],
            incarnation: u64::MAX,
        };
        let row = encode(&member);
        assert_eq!(decode(MemberId(7), &row), Some(member));
        for cut in 0..row.len() {
            assert_eq!(decode(MemberId(7), &row[..cut]), None, "cut at {cut}");
        }
    }
}
