//! What else than its tokens is in a block? vLLM's extra keys.
//!
//! Per block, in this order: the adapter's name, media as pairs of identifier and offset, the salt (in a sequence's first
//! block only), a digest of embeddings. Older versions name media without offset. The offset of a medium is that of its
//! first token from the block's first, below zero where it began in an earlier block: the same number that
//! [`homing_domain::KeyHasher::keys`] uses.

use std::fmt::Write;

use homing_domain::{CacheSalt, MediaId};

use super::fields::Fields;
use crate::msgpack::{Cursor, Fault, Value};

/// Reads extra keys, block by block.
pub(super) struct ExtraKeys<'a> {
    cursor: Cursor<'a>,
    left: usize,
    adapter: Option<&'a str>,
}

impl<'a> ExtraKeys<'a> {
    /// The extra keys of an event of `blocks` blocks; `None` if it has none. A list of another length is a fault.
    pub(super) fn of(fields: &Fields<'a>, blocks: usize) -> Result<Option<Self>, Fault> {
        let Some(mut cursor) = fields.extra_keys else {
            return Ok(None);
        };
        match cursor.read()? {
            Value::Array(length) if length == blocks => Ok(Some(Self {
                cursor,
                left: length,
                adapter: fields.lora_name,
            })),
            _ => Err(Fault::Type),
        }
    }

    /// Reads what is in the next block: media go into `media`, a salt is returned if the block begins a sequence.
    pub(super) fn next(&mut self, begins: bool, media: &mut Vec<(MediaId, i64)>) -> Result<Option<CacheSalt>, Fault> {
        media.clear();
        if self.left == 0 {
            return Err(Fault::Type);
        }
        self.left -= 1;
        let length = match self.cursor.read()? {
            Value::Nil => return Ok(None),
            Value::Array(length) => length,
            _ => return Err(Fault::Type),
        };
        let mut bare: Option<&str> = None;
        for number in 0..length {
            let start = self.cursor;
            match self.cursor.read()? {
                Value::Text(text) => {
                    let text = str::from_utf8(text).map_err(|_| Fault::Type)?;
                    if number == 0 && self.adapter == Some(text) {
                        continue;
                    }
                    // Of several in a first block only the last can be the salt; the others are media.
                    if let Some(earlier) = bare.replace(text) {
                        media.push((MediaId::new(earlier), 0));
                    }
                }
                Value::Array(2) => media.push(self.medium(start)?),
                _ => media.push(self.something(start)?),
            }
        }
        let Some(text) = bare else {
            return Ok(None);
        };
        if begins {
            return Ok(Some(CacheSalt::new(text)));
        }
        media.push((MediaId::new(text), 0));
        Ok(None)
    }

    /// A pair of identifier and offset, whose head was read.
    fn medium(&mut self, start: Cursor<'a>) -> Result<(MediaId, i64), Fault> {
        let identifier = match self.cursor.read()? {
            Value::Text(identifier) => str::from_utf8(identifier).map_err(|_| Fault::Type)?,
            _ => return self.something(start),
        };
        let offset = match self.cursor.read()? {
            Value::Unsigned(offset) => i64::try_from(offset).map_err(|_| Fault::Type)?,
            Value::Negative(offset) => offset,
            _ => return self.something(start),
        };
        Ok((MediaId::new(identifier), offset))
    }

    /// A thing that is not understood. It is told apart from all others by its bytes, so that blocks that differ in it
    /// never look alike.
    fn something(&mut self, start: Cursor<'a>) -> Result<(MediaId, i64), Fault> {
        self.cursor = start;
        self.cursor.skip()?;
        let bytes = self.cursor.between(start.at(), self.cursor.at());
        let mut name = String::with_capacity(2 * bytes.len());
        for byte in bytes {
            // Writing to text does not fail.
            let _ = write!(name, "{byte:02x}");
        }
        Ok((MediaId::new(&name), 0))
    }
}
