//! Protobuf's bytes: tags, varints and lengths, read with bounds and written plainly.
//!
//! A reader never reads past its message, and all readers of one body share an allowance of fields: no body
//! can make us hold more values than that.

use crate::status::Refusal;
use std::cell::Cell;

/// Fields in one body. An object of three megabytes has far fewer.
const FIELDS_MAX: u32 = 200_000;
const VARINT_BYTES_MAX: usize = 10;

/// One field as it is on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Raw<'a> {
    Varint(u64),
    Bytes(&'a [u8]),
    Fixed64([u8; 8]),
    /// Nothing that we read has them.
    Fixed32,
}

/// How many fields may still be read.
#[derive(Debug)]
pub struct Allowance(Cell<u32>);

impl Default for Allowance {
    fn default() -> Allowance {
        Allowance(Cell::new(FIELDS_MAX))
    }
}

pub fn malformed(why: &str) -> Refusal {
    Refusal::bad_request(format!("the body is no valid protobuf: {why}"))
}

pub struct Reader<'a> {
    rest: &'a [u8],
    allowance: &'a Allowance,
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8], allowance: &'a Allowance) -> Reader<'a> {
        Reader { rest: bytes, allowance }
    }

    /// The number of the next field and what it holds; nothing at the end of the message.
    pub fn next_field(&mut self) -> Result<Option<(u32, Raw<'a>)>, Refusal> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let left =
            self.allowance.0.get().checked_sub(1).ok_or_else(|| malformed("it has too many fields"))?;
        self.allowance.0.set(left);
        let tag = self.varint()?;
        let number = u32::try_from(tag >> 3).ok().filter(|number| *number > 0);
        let number = number.ok_or_else(|| malformed("a field has no number"))?;
        let raw = match tag & 7 {
            0 => Raw::Varint(self.varint()?),
            1 => Raw::Fixed64(self.take(8)?.try_into().map_err(|_| malformed("a number is cut off"))?),
            2 => {
                let length =
                    usize::try_from(self.varint()?).map_err(|_| malformed("a length is too large"))?;
                Raw::Bytes(self.take(length)?)
            }
            5 => self.take(4).map(|_| Raw::Fixed32)?,
            _ => return Err(malformed("a field has a wire type that is not known")),
        };
        Ok(Some((number, raw)))
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Refusal> {
        let (taken, rest) =
            self.rest.split_at_checked(length).ok_or_else(|| malformed("it ends too early"))?;
        self.rest = rest;
        Ok(taken)
    }

    fn varint(&mut self) -> Result<u64, Refusal> {
        let mut value = 0_u64;
        for at in 0..VARINT_BYTES_MAX {
            let byte = self.take(1)?[0];
            // The tenth byte has room for one bit more.
            if at == VARINT_BYTES_MAX - 1 && byte > 1 {
                break;
            }
            value |= u64::from(byte & 0x7f) << (7 * at);
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(malformed("a number is too large"))
    }
}

/// A message that is being written.
#[derive(Default)]
pub struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    pub fn varint(&mut self, number: u32, value: u64) {
        self.raw_varint(u64::from(number) << 3);
        self.raw_varint(value);
    }

    pub fn bytes(&mut self, number: u32, value: &[u8]) {
        self.announce(number, value.len());
        self.bytes.extend_from_slice(value);
    }

    /// What comes before the bytes of a field that are written by somebody else.
    pub fn announce(&mut self, number: u32, length: usize) {
        self.raw_varint(u64::from(number) << 3 | 2);
        self.raw_varint(length as u64);
    }

    pub fn text(&mut self, number: u32, value: &str) {
        self.bytes(number, value.as_bytes());
    }

    pub fn message(&mut self, number: u32, value: Writer) {
        self.bytes(number, &value.bytes);
    }

    pub fn double(&mut self, number: u32, value: f64) {
        self.raw_varint(u64::from(number) << 3 | 1);
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    pub fn finish(self) -> Vec<u8> {
        self.bytes
    }

    fn raw_varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Result<Vec<(u32, String)>, Refusal> {
        let allowance = Allowance::default();
        let mut reader = Reader::new(bytes, &allowance);
        let mut fields = Vec::new();
        while let Some((number, raw)) = reader.next_field()? {
            fields.push((number, format!("{raw:?}")));
        }
        Ok(fields)
    }

    #[test]
    fn fields_by_hand() {
        let bytes =
            [0x08, 0x96, 0x01, 0x12, 0x02, b'h', b'i', 0x1d, 1, 2, 3, 4, 0x21, 1, 2, 3, 4, 5, 6, 7, 8];
        let fields = read(&bytes).expect("good");
        let expected = [
            (1, "Varint(150)"),
            (2, "Bytes([104, 105])"),
            (3, "Fixed32"),
            (4, "Fixed64([1, 2, 3, 4, 5, 6, 7, 8])"),
        ];
        assert_eq!(fields, expected.map(|(number, raw)| (number, raw.to_owned())));
    }

    #[test]
    fn what_is_written_is_read() {
        let mut inner = Writer::default();
        inner.text(1, "x");
        let mut writer = Writer::default();
        writer.varint(1, 300);
        writer.varint(2, u64::MAX);
        writer.message(3, inner);
        let fields = read(&writer.finish()).expect("good");
        assert_eq!(fields[0], (1, "Varint(300)".to_owned()));
        assert_eq!(fields[1], (2, format!("Varint({})", u64::MAX)));
        assert_eq!(fields[2], (3, "Bytes([10, 1, 120])".to_owned()));
    }

    #[test]
    fn hostile_bytes_are_refused() {
        for bytes in [
            &[0x08][..],
            &[0x12, 0x05, b'h'],
            &[0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
            &[0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02],
            &[0x0b],
            &[0x0c],
            &[0x00, 0x01],
            &[0x1d, 1, 2],
        ] {
            assert_eq!(read(bytes).expect_err("hostile").code(), 400, "{bytes:?}");
        }
        let many = [0x08, 0x01].repeat(FIELDS_MAX as usize + 1);
        assert_eq!(read(&many).expect_err("too many").code(), 400);
    }
}
