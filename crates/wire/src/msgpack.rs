//! What does this MessagePack say? A cursor over borrowed bytes, and a writer of the few forms that engines use.
//!
//! **Invariant:** a length in a header is compared with what is left before anything is done with it, and nothing
//! recurses: a value of any depth is passed over in a loop.
//!
//! Cost: one look at each byte that is read, none at strings that are passed over.

use homing_domain::{Label, Window};

/// Why a value could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The bytes end inside it. Nothing after it can be read.
    CutOff,
    /// It is of another type, or out of range. The cursor is somewhere inside it.
    Type,
}

/// The head of a value. What a list or map holds follows it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Value<'a> {
    Nil,
    Bool,
    Unsigned(u64),
    /// Below zero.
    Negative(i64),
    Float(f64),
    Text(&'a [u8]),
    Bytes(&'a [u8]),
    Array(usize),
    Map(usize),
    Extension,
}

/// A place in bytes that someone sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// How many bytes were read.
    pub(crate) const fn at(&self) -> usize {
        self.at
    }

    /// How many bytes are left.
    pub(crate) const fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// The bytes between two places.
    pub(crate) fn between(&self, from: usize, to: usize) -> &'a [u8] {
        self.bytes.get(from..to).unwrap_or_default()
    }

    /// Reads the head of the next value.
    pub(crate) fn read(&mut self) -> Result<Value<'a>, Fault> {
        let marker = self.byte()?;
        Ok(match marker {
            0x00..=0x7f => Value::Unsigned(u64::from(marker)),
            0x80..=0x8f => self.entries(usize::from(marker & 0x0f))?,
            0x90..=0x9f => self.elements(usize::from(marker & 0x0f))?,
            0xa0..=0xbf => Value::Text(self.take(usize::from(marker & 0x1f))?),
            0xc0 => Value::Nil,
            0xc1 => return Err(Fault::Type),
            0xc2 | 0xc3 => Value::Bool,
            0xc4..=0xc6 => {
                let length = self.length(1 << (marker - 0xc4))?;
                Value::Bytes(self.take(length)?)
            }
            0xc7..=0xc9 => {
                let length = self.length(1 << (marker - 0xc7))?;
                self.take(length.saturating_add(1))?;
                Value::Extension
            }
            0xca => Value::Float(f64::from(f32::from_bits(self.unsigned(4)? as u32))),
            0xcb => Value::Float(f64::from_bits(self.unsigned(8)?)),
            0xcc..=0xcf => Value::Unsigned(self.unsigned(1 << (marker - 0xcc))?),
            0xd0..=0xd3 => signed(self.signed(1 << (marker - 0xd0))?),
            0xd4..=0xd8 => {
                self.take((1 << (marker - 0xd4)) + 1)?;
                Value::Extension
            }
            0xd9..=0xdb => {
                let length = self.length(1 << (marker - 0xd9))?;
                Value::Text(self.take(length)?)
            }
            0xdc | 0xdd => {
                let length = self.length(2 << (marker - 0xdc))?;
                self.elements(length)?
            }
            0xde | 0xdf => {
                let length = self.length(2 << (marker - 0xde))?;
                self.entries(length)?
            }
            0xe0..=0xff => Value::Negative(i64::from(marker.cast_signed())),
        })
    }

    /// Passes over the next value, whatever is in it. Only bytes that end, or that are no MessagePack, are a fault.
    pub(crate) fn skip(&mut self) -> Result<(), Fault> {
        let mut open: usize = 1;
        while open > 0 {
            open -= 1;
            // Every value takes a byte at least, so a sum beyond what is left ends in `CutOff` soon.
            match self.read()? {
                Value::Array(length) => open = open.saturating_add(length),
                Value::Map(length) => open = open.saturating_add(length).saturating_add(length),
                _ => {}
            }
        }
        Ok(())
    }

    /// A name of a block: a number or bytes.
    #[inline]
    pub(crate) fn label(&mut self) -> Result<Label, Fault> {
        // Nearly all are of this form.
        if let Some(rest) = self.bytes.get(self.at..)
            && let [0xcf, rest @ ..] = rest
            && let Some(number) = rest.first_chunk()
        {
            self.at += 9;
            return Ok(Label::new(u64::from_be_bytes(*number)));
        }
        match self.read()? {
            Value::Unsigned(number) => Ok(Label::new(number)),
            Value::Negative(number) => Ok(Label::from_signed(number)),
            Value::Bytes(bytes) => Ok(Label::from_bytes(bytes)),
            _ => Err(Fault::Type),
        }
    }

    /// A list of names of blocks, in place of what is in `labels`.
    pub(crate) fn labels(&mut self, labels: &mut Vec<Label>) -> Result<(), Fault> {
        labels.clear();
        let Value::Array(length) = self.read()? else {
            return Err(Fault::Type);
        };
        labels.reserve(length);
        for _ in 0..length {
            labels.push(self.label()?);
        }
        Ok(())
    }

    /// A list of tokens, or of pairs of neighbouring tokens, in place of what is in `tokens`. From pairs come the first
    /// of each, and the second of the last.
    pub(crate) fn tokens(&mut self, tokens: &mut Vec<u32>) -> Result<Window, Fault> {
        tokens.clear();
        let Value::Array(length) = self.read()? else {
            return Err(Fault::Type);
        };
        tokens.reserve(length);
        if self.bytes.get(self.at) == Some(&0x92) {
            for number in 0..length {
                let Value::Array(2) = self.read()? else {
                    return Err(Fault::Type);
                };
                let first = self.token()?;
                // Each pair begins with the token that the one before ended with.
                if number > 0 && tokens.pop() != Some(first) {
                    return Err(Fault::Type);
                }
                tokens.push(first);
                tokens.push(self.token()?);
            }
            return Ok(Window::OneTokenAhead);
        }
        let mut left = length;
        while left > 0 {
            left -= 1;
            // As long as eight bytes are left no length needs to be looked at, and no branch depends on the form.
            let form = match self.bytes.get(self.at..).and_then(<[u8]>::first_chunk::<8>) {
                Some(word) => {
                    let form = FORMS[usize::from(word[0])];
                    let number = (u64::from_be_bytes(*word) >> form.shift) as u32 & form.mask;
                    if form.length > 0 {
                        tokens.push(number);
                        self.at += usize::from(form.length);
                        continue;
                    }
                    form
                }
                None => OTHER,
            };
            debug_assert_eq!(form.length, 0);
            tokens.push(self.token()?);
        }
        Ok(Window::Plain)
    }

    fn token(&mut self) -> Result<u32, Fault> {
        match self.read()? {
            Value::Unsigned(token) => u32::try_from(token).map_err(|_| Fault::Type),
            _ => Err(Fault::Type),
        }
    }

    fn byte(&mut self) -> Result<u8, Fault> {
        let byte = *self.bytes.get(self.at).ok_or(Fault::CutOff)?;
        self.at += 1;
        Ok(byte)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Fault> {
        let end = self.at.checked_add(length).ok_or(Fault::CutOff)?;
        let taken = self.bytes.get(self.at..end).ok_or(Fault::CutOff)?;
        self.at = end;
        Ok(taken)
    }

    /// A number of 1, 2, 4 or 8 bytes.
    #[inline]
    fn unsigned(&mut self, length: usize) -> Result<u64, Fault> {
        Ok(match length {
            1 => u64::from(self.byte()?),
            2 => u64::from(u16::from_be_bytes(self.array()?)),
            4 => u64::from(u32::from_be_bytes(self.array()?)),
            _ => u64::from_be_bytes(self.array()?),
        })
    }

    #[inline]
    fn array<const LENGTH: usize>(&mut self) -> Result<[u8; LENGTH], Fault> {
        let bytes = self
            .bytes
            .get(self.at..)
            .and_then(<[u8]>::first_chunk)
            .ok_or(Fault::CutOff)?;
        self.at += LENGTH;
        Ok(*bytes)
    }

    fn signed(&mut self, length: usize) -> Result<i64, Fault> {
        let unused = 64 - 8 * length as u32;
        Ok((self.unsigned(length)? << unused).cast_signed() >> unused)
    }

    fn length(&mut self, length: usize) -> Result<usize, Fault> {
        usize::try_from(self.unsigned(length)?).map_err(|_| Fault::CutOff)
    }

    fn elements(&self, length: usize) -> Result<Value<'a>, Fault> {
        if length > self.left() {
            return Err(Fault::CutOff);
        }
        Ok(Value::Array(length))
    }

    fn entries(&self, length: usize) -> Result<Value<'a>, Fault> {
        if length > self.left() / 2 {
            return Err(Fault::CutOff);
        }
        Ok(Value::Map(length))
    }
}

/// Where in the first eight bytes of a value its number is.
#[derive(Clone, Copy, Debug)]
struct Form {
    shift: u8,
    /// Bytes of the value; 0 for those that are not of one of the short forms.
    length: u8,
    mask: u32,
}

const OTHER: Form = Form {
    shift: 0,
    length: 0,
    mask: 0,
};

/// By marker: the forms of unsigned numbers of up to 32 bits.
static FORMS: [Form; 256] = {
    let mut forms = [OTHER; 256];
    let mut marker = 0;
    while marker < 0x80 {
        forms[marker] = Form {
            shift: 56,
            length: 1,
            mask: 0x7f,
        };
        marker += 1;
    }
    forms[0xcc] = Form {
        shift: 48,
        length: 2,
        mask: 0xff,
    };
    forms[0xcd] = Form {
        shift: 40,
        length: 3,
        mask: 0xffff,
    };
    forms[0xce] = Form {
        shift: 24,
        length: 5,
        mask: u32::MAX,
    };
    forms
};

fn signed<'a>(number: i64) -> Value<'a> {
    u64::try_from(number).map_or(Value::Negative(number), Value::Unsigned)
}

/// Appends the shortest form of an unsigned number.
pub(crate) fn write_unsigned(out: &mut Vec<u8>, number: u64) {
    match number {
        0..=0x7f => out.push(number as u8),
        0x80..=0xff => out.extend([0xcc, number as u8]),
        0x100..=0xffff => tagged(out, 0xcd, &(number as u16).to_be_bytes()),
        0x1_0000..=0xffff_ffff => tagged(out, 0xce, &(number as u32).to_be_bytes()),
        _ => tagged(out, 0xcf, &number.to_be_bytes()),
    }
}

/// Appends the shortest form of a signed number.
pub(crate) fn write_signed(out: &mut Vec<u8>, number: i64) {
    match number {
        0.. => write_unsigned(out, number.cast_unsigned()),
        -0x20..0 => out.push(number as u8),
        -0x80..-0x20 => out.extend([0xd0, number as u8]),
        -0x8000..-0x80 => tagged(out, 0xd1, &(number as i16).to_be_bytes()),
        -0x8000_0000..-0x8000 => tagged(out, 0xd2, &(number as i32).to_be_bytes()),
        _ => tagged(out, 0xd3, &number.to_be_bytes()),
    }
}

/// Appends a number of 64 bits with a point.
pub(crate) fn write_float(out: &mut Vec<u8>, number: f64) {
    tagged(out, 0xcb, &number.to_be_bytes());
}

/// Appends nothing, as a value.
pub(crate) fn write_nil(out: &mut Vec<u8>) {
    out.push(0xc0);
}

/// Appends text.
pub(crate) fn write_text(out: &mut Vec<u8>, text: &str) {
    match text.len() {
        length @ 0..=0x1f => out.push(0xa0 | length as u8),
        length @ 0x20..=0xff => out.extend([0xd9, length as u8]),
        length @ 0x100..=0xffff => tagged(out, 0xda, &(length as u16).to_be_bytes()),
        length => tagged(out, 0xdb, &(length as u32).to_be_bytes()),
    }
    out.extend_from_slice(text.as_bytes());
}

/// Appends bytes.
pub(crate) fn write_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    match bytes.len() {
        length @ 0..=0xff => out.extend([0xc4, length as u8]),
        length @ 0x100..=0xffff => tagged(out, 0xc5, &(length as u16).to_be_bytes()),
        length => tagged(out, 0xc6, &(length as u32).to_be_bytes()),
    }
    out.extend_from_slice(bytes);
}

/// Appends the head of a list.
pub(crate) fn write_array(out: &mut Vec<u8>, length: usize) {
    match length {
        0..=0x0f => out.push(0x90 | length as u8),
        0x10..=0xffff => tagged(out, 0xdc, &(length as u16).to_be_bytes()),
        _ => tagged(out, 0xdd, &(length as u32).to_be_bytes()),
    }
}

/// Appends the head of a map.
pub(crate) fn write_map(out: &mut Vec<u8>, length: usize) {
    match length {
        0..=0x0f => out.push(0x80 | length as u8),
        0x10..=0xffff => tagged(out, 0xde, &(length as u16).to_be_bytes()),
        _ => tagged(out, 0xdf, &(length as u32).to_be_bytes()),
    }
}

fn tagged(out: &mut Vec<u8>, marker: u8, bytes: &[u8]) {
    out.push(marker);
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(bytes: &[u8]) -> Result<Value<'_>, Fault> {
        Cursor::new(bytes).read()
    }

    #[test]
    fn every_marker_is_read_and_passed_over() {
        for marker in 0..=u8::MAX {
            let mut bytes = vec![0; 64];
            bytes[0] = marker;
            let mut cursor = Cursor::new(&bytes);
            assert_eq!(cursor.skip().is_err(), marker == 0xc1, "{marker:#x}");
        }
    }

    #[test]
    fn lengths_beyond_the_end_are_cut_off() {
        for bytes in [
            &[0xdd, 0xff, 0xff, 0xff, 0xff][..],
            &[0xdf, 0, 0, 0, 2, 0, 0, 0],
            &[0xc6, 0xff, 0xff, 0xff, 0xff, 1],
            &[0xc9, 0xff, 0xff, 0xff, 0xff, 1],
            &[0xda, 0, 2, b'x'],
            &[0x92, 1],
            &[0xcf, 1],
            &[0xd8],
            &[],
        ] {
            assert_eq!(Cursor::new(bytes).skip(), Err(Fault::CutOff), "{bytes:x?}");
        }
        let deep = vec![0x91; 1_000_000];
        assert_eq!(Cursor::new(&deep).skip(), Err(Fault::CutOff));
    }

    #[test]
    fn tokens_of_every_width_are_read_up_to_the_last_byte() {
        let expected: Vec<u32> = vec![0, 127, 128, 255, 256, 65_535, 65_536, u32::MAX, 5];
        let mut bytes = Vec::new();
        write_array(&mut bytes, expected.len() + 2);
        // Some writers are not sparing.
        bytes.extend([0xcf, 0, 0, 0, 0, 0, 0, 0, 9]);
        bytes.extend([0xd1, 0, 9]);
        for &token in &expected {
            write_unsigned(&mut bytes, u64::from(token));
        }
        let mut tokens = Vec::new();
        assert_eq!(Cursor::new(&bytes).tokens(&mut tokens), Ok(Window::Plain));
        assert_eq!(tokens[..2], [9, 9]);
        assert_eq!(tokens[2..], expected);
        for bad in [
            &[0x91, 0xff][..],
            &[0x91, 0xcf, 1, 0, 0, 0, 0, 0, 0, 0],
            &[0x91, 0xc0],
            &[5],
        ] {
            assert_eq!(Cursor::new(bad).tokens(&mut tokens), Err(Fault::Type), "{bad:x?}");
        }
    }

    #[test]
    fn pairs_become_a_chain_or_are_refused() {
        let mut tokens = Vec::new();
        let pairs = [0x93, 0x92, 1, 2, 0x92, 2, 3, 0x92, 3, 4];
        assert_eq!(Cursor::new(&pairs).tokens(&mut tokens), Ok(Window::OneTokenAhead));
        assert_eq!(tokens, [1, 2, 3, 4]);
        let broken = [0x92, 0x92, 1, 2, 0x92, 9, 3];
        assert_eq!(Cursor::new(&broken).tokens(&mut tokens), Err(Fault::Type));
        let mixed = [0x92, 0x92, 1, 2, 9];
        assert_eq!(Cursor::new(&mixed).tokens(&mut tokens), Err(Fault::Type));
    }

    proptest! {
        #[test]
        fn numbers_are_read_as_written(unsigned: u64, signed: i64, shift in 0..64_u32) {
            let (unsigned, signed) = (unsigned >> shift, signed >> shift);
            let mut bytes = Vec::new();
            write_unsigned(&mut bytes, unsigned);
            prop_assert_eq!(read(&bytes), Ok(Value::Unsigned(unsigned)));
            bytes.clear();
            write_signed(&mut bytes, signed);
            prop_assert_eq!(read(&bytes), Ok(super::signed(signed)));
            prop_assert_eq!(Cursor::new(&bytes).label(), Ok(Label::from_signed(signed)));
        }

        #[test]
        fn texts_and_bytes_are_read_as_written(length in prop_oneof![0..300_usize, 65_530..65_540_usize]) {
            let text = "x".repeat(length);
            let mut bytes = Vec::new();
            write_text(&mut bytes, &text);
            prop_assert_eq!(read(&bytes), Ok(Value::Text(text.as_bytes())));
            bytes.clear();
            write_bytes(&mut bytes, text.as_bytes());
            prop_assert_eq!(read(&bytes), Ok(Value::Bytes(text.as_bytes())));
        }

        #[test]
        fn whatever_the_bytes_nothing_panics(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let mut cursor = Cursor::new(&bytes);
            while cursor.skip().is_ok() {}
            let _ = Cursor::new(&bytes).tokens(&mut Vec::new());
            let _ = Cursor::new(&bytes).labels(&mut Vec::new());
        }
    }
}
