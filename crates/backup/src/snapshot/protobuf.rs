//! As much of protobuf as the rows of a snapshot need.

const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const BYTES: u64 = 2;
const FIXED32: u64 = 5;

pub(super) enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    Other,
}

/// Shows each field of a message; `None` if it is no message.
pub(super) fn each_field<'a>(
    mut message: &'a [u8],
    mut visit: impl FnMut(u64, Value<'a>) -> Option<()>,
) -> Option<()> {
    while !message.is_empty() {
        let tag = take_varint(&mut message)?;
        let value = match tag & 7 {
            VARINT => Value::Number(take_varint(&mut message)?),
            FIXED64 => take(&mut message, 8).map(|_| Value::Other)?,
            BYTES => {
                let len = usize::try_from(take_varint(&mut message)?).ok()?;
                Value::Bytes(take(&mut message, len)?)
            }
            FIXED32 => take(&mut message, 4).map(|_| Value::Other)?,
            _ => return None,
        };
        visit(tag >> 3, value)?;
    }
    Some(())
}

pub(super) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while 0x80 <= value {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// A number, left out if it is zero.
pub(super) fn put_number(out: &mut Vec<u8>, field: u64, number: i64) {
    if number != 0 {
        put_varint(out, field << 3 | VARINT);
        put_varint(out, number as u64);
    }
}

pub(super) fn put_bytes(out: &mut Vec<u8>, field: u64, bytes: &[u8]) {
    put_varint(out, field << 3 | BYTES);
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn take<'a>(message: &mut &'a [u8], len: usize) -> Option<&'a [u8]> {
    let (taken, rest) = message.split_at_checked(len)?;
    *message = rest;
    Some(taken)
}

fn take_varint(message: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for (at, byte) in message.iter().enumerate().take(10) {
        value |= u64::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            *message = &message[at + 1..];
            return Some(value);
        }
    }
    None
}
