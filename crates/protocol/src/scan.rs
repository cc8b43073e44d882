//! How is JSON gone through, value by value, without building anything and without recursion?
//!
//! **Invariant:** what is accepted is JSON as RFC 8259 has it; bytes that are no UTF-8 are for others to find.

use crate::json::{Field, Flaw, NotJson, Span};

/// A place in a text, going forward.
pub(crate) struct Scan<'a> {
    text: &'a [u8],
    pub(crate) at: usize,
    pub(crate) depth: usize,
    deepest: usize,
    /// A bit for each level: whether it is an object.
    objects: u128,
}

impl<'a> Scan<'a> {
    pub(crate) fn new(text: &'a [u8], at: usize, deepest: usize) -> Self {
        Self {
            text,
            at,
            depth: 0,
            deepest,
            objects: 0,
        }
    }

    pub(crate) fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    pub(crate) fn wrong(&self, flaw: Flaw) -> NotJson {
        let flaw = if self.at < self.text.len() { flaw } else { Flaw::End };
        NotJson { at: self.at, flaw }
    }

    #[inline]
    pub(crate) fn space(&mut self) {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.peek() {
            self.at += 1;
        }
    }

    pub(crate) fn open(&mut self, byte: u8, what: &'static str) -> Result<(), NotJson> {
        if self.peek() != Some(byte) {
            return Err(self.wrong(Flaw::Expected(what)));
        }
        self.at += 1;
        Ok(())
    }

    /// The next field of the object we are in, or its end.
    pub(crate) fn field(&mut self, first: bool) -> Result<Option<Field>, NotJson> {
        self.space();
        match self.peek() {
            Some(b'}') => {
                self.at += 1;
                return Ok(None);
            }
            Some(b',') if !first => self.at += 1,
            _ if first => {}
            _ => return Err(self.wrong(Flaw::Expected("a comma or the end of the object"))),
        }
        self.space();
        let key = self.key()?;
        self.space();
        let value = self.value()?;
        Ok(Some(Field { key, value }))
    }

    /// The next value of the list we are in, or its end.
    pub(crate) fn item(&mut self, first: bool) -> Result<Option<Span>, NotJson> {
        self.space();
        match self.peek() {
            Some(b']') => {
                self.at += 1;
                return Ok(None);
            }
            Some(b',') if !first => self.at += 1,
            _ if first => {}
            _ => return Err(self.wrong(Flaw::Expected("a comma or the end of the list"))),
        }
        self.space();
        self.value().map(Some)
    }

    /// A key and the colon after it.
    fn key(&mut self) -> Result<Span, NotJson> {
        if self.peek() != Some(b'"') {
            return Err(self.wrong(Flaw::Expected("a key")));
        }
        let start = self.at;
        self.string()?;
        let key = Span { start, end: self.at };
        self.space();
        self.open(b':', "a colon")?;
        Ok(key)
    }

    /// A whole value, whatever is in it.
    pub(crate) fn value(&mut self) -> Result<Span, NotJson> {
        let start = self.at;
        let base = self.depth;
        loop {
            let opened = self.begin()?;
            if opened {
                continue;
            }
            if self.close(base)? {
                return Ok(Span { start, end: self.at });
            }
        }
    }

    /// Takes a simple value, an empty container, or the beginning of another one: then true.
    #[inline]
    fn begin(&mut self) -> Result<bool, NotJson> {
        match self.peek() {
            Some(b'"') => self.string()?,
            Some(b'{') => {
                self.deeper(true)?;
                self.space();
                if self.peek() != Some(b'}') {
                    self.key()?;
                    self.space();
                    return Ok(true);
                }
                self.at += 1;
                self.depth -= 1;
            }
            Some(b'[') => {
                self.deeper(false)?;
                self.space();
                if self.peek() != Some(b']') {
                    return Ok(true);
                }
                self.at += 1;
                self.depth -= 1;
            }
            Some(b't') => self.word(b"true")?,
            Some(b'f') => self.word(b"false")?,
            Some(b'n') => self.word(b"null")?,
            Some(b'-' | b'0'..=b'9') => self.number()?,
            _ => return Err(self.wrong(Flaw::Expected("a value"))),
        }
        Ok(false)
    }

    /// After a value: closes what ends here. True when that was the last level, false when another value follows.
    #[inline]
    fn close(&mut self, base: usize) -> Result<bool, NotJson> {
        while self.depth > base {
            self.space();
            let in_object = self.objects >> (self.depth - 1) & 1 == 1;
            match (self.peek(), in_object) {
                (Some(b'}'), true) | (Some(b']'), false) => {
                    self.at += 1;
                    self.depth -= 1;
                }
                (Some(b','), true) => {
                    self.at += 1;
                    self.space();
                    self.key()?;
                    self.space();
                    return Ok(false);
                }
                (Some(b','), false) => {
                    self.at += 1;
                    self.space();
                    return Ok(false);
                }
                (_, true) => return Err(self.wrong(Flaw::Expected("a comma or the end of the object"))),
                (_, false) => return Err(self.wrong(Flaw::Expected("a comma or the end of the list"))),
            }
        }
        Ok(true)
    }

    fn deeper(&mut self, object: bool) -> Result<(), NotJson> {
        if self.depth >= self.deepest {
            return Err(self.wrong(Flaw::Depth));
        }
        let bit = 1_u128 << self.depth;
        self.objects = if object {
            self.objects | bit
        } else {
            self.objects & !bit
        };
        self.depth += 1;
        self.at += 1;
        Ok(())
    }

    fn word(&mut self, word: &'static [u8]) -> Result<(), NotJson> {
        for &byte in word {
            if self.peek() != Some(byte) {
                return Err(self.wrong(Flaw::Expected("a value")));
            }
            self.at += 1;
        }
        Ok(())
    }

    fn digits(&mut self) -> Result<(), NotJson> {
        if !matches!(self.peek(), Some(b'0'..=b'9')) {
            return Err(self.wrong(Flaw::Expected("a digit")));
        }
        while let Some(b'0'..=b'9') = self.peek() {
            self.at += 1;
        }
        Ok(())
    }

    fn number(&mut self) -> Result<(), NotJson> {
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        if self.peek() == Some(b'0') {
            self.at += 1;
        } else {
            self.digits()?;
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.at += 1;
            if let Some(b'+' | b'-') = self.peek() {
                self.at += 1;
            }
            self.digits()?;
        }
        Ok(())
    }

    /// A string; the cursor is on its first quote.
    fn string(&mut self) -> Result<(), NotJson> {
        self.at += 1;
        loop {
            self.at = plain_until(self.text, self.at);
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(());
                }
                Some(b'\\') => self.escape()?,
                _ => return Err(self.wrong(Flaw::Control)),
            }
        }
    }

    fn escape(&mut self) -> Result<(), NotJson> {
        self.at += 1;
        match self.peek() {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => self.at += 1,
            Some(b'u') => {
                self.at += 1;
                for _ in 0..4 {
                    if !self.peek().is_some_and(|byte| byte.is_ascii_hexdigit()) {
                        return Err(self.wrong(Flaw::Escape));
                    }
                    self.at += 1;
                }
            }
            _ => return Err(self.wrong(Flaw::Escape)),
        }
        Ok(())
    }
}

/// Where the first quote, backslash or control character from here on is, or the end. Eight bytes at a time.
fn plain_until(text: &[u8], from: usize) -> usize {
    const ONES: u64 = u64::MAX / 255;
    const HIGHS: u64 = ONES << 7;
    const QUOTES: u64 = ONES * b'"' as u64;
    const SLASHES: u64 = ONES * b'\\' as u64;
    const SPACES: u64 = ONES * 0x20;
    let rest = text.get(from..).unwrap_or_default();
    let (eights, last) = rest.as_chunks::<8>();
    let mut at = from;
    for eight in eights {
        let word = u64::from_le_bytes(*eight);
        // A byte is zero where it was the one looked for; the lowest hit is exact, and only that one is used.
        let zero = |word: u64| word.wrapping_sub(ONES) & !word;
        let control = word.wrapping_sub(SPACES) & !word;
        let hits = (zero(word ^ QUOTES) | zero(word ^ SLASHES) | control) & HIGHS;
        if hits != 0 {
            return at + (hits.trailing_zeros() / 8) as usize;
        }
        at += 8;
    }
    let special = |byte: &u8| matches!(byte, b'"' | b'\\' | 0..0x20);
    at + last.iter().position(special).unwrap_or(last.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn strings_are_skipped_as_a_loop_would(bytes in prop::collection::vec(any::<u8>(), 0..60), from in 0..60_usize) {
            let naive = bytes.iter().skip(from).position(|byte| matches!(byte, b'"' | b'\\' | 0..0x20));
            let expected = naive.map_or(bytes.len().max(from), |place| from + place);
            prop_assert_eq!(plain_until(&bytes, from), expected);
        }
    }
}
