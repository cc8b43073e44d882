//! What does one event say? Its fields, by place in a list or by name in a map, borrowed from the bytes.
//!
//! Engines have added fields over the years, always at the end: what is missing is nil, what is beyond is ignored. The
//! same words serve all events of vLLM and SGLang.

use homing_domain::{Label, MediaId, StoredBlock, Window};

use crate::msgpack::{Cursor, Fault, Value};

/// Tokens that are kept room for between events.
const KEEP_TOKENS: usize = 1 << 20;

/// What an event is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Tag {
    Stored,
    Removed,
    Cleared,
    /// Something else.
    Unknown,
    /// It does not say.
    #[default]
    Missing,
}

/// The lists of an event, in room that is used again.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    pub(super) labels: Vec<Label>,
    pub(super) tokens: Vec<u32>,
    pub(super) media: Vec<(MediaId, i64)>,
    /// The parts of one block, from memory.
    pub(super) recalled: Vec<StoredBlock>,
}

impl Scratch {
    /// Gives back what an unusually long event took.
    pub(super) fn trim(&mut self) {
        self.tokens.clear();
        self.tokens.shrink_to(KEEP_TOKENS);
        self.labels.clear();
        self.labels.shrink_to(KEEP_TOKENS / 16);
        self.media.clear();
        self.media.shrink_to(KEEP_TOKENS / 16);
    }
}

/// The fields of an event, except for the lists.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Fields<'a> {
    pub(super) tag: Tag,
    /// Whether there was a list of blocks.
    pub(super) has_labels: bool,
    pub(super) parent: Option<Label>,
    pub(super) window: Window,
    pub(super) block_size: Option<u64>,
    pub(super) lora_id: Option<u64>,
    pub(super) lora_name: Option<&'a str>,
    pub(super) medium: Option<&'a str>,
    pub(super) salt: Option<&'a str>,
    /// Where the list of extra keys begins.
    pub(super) extra_keys: Option<Cursor<'a>>,
    pub(super) group: Option<u64>,
    pub(super) kind: Option<&'a str>,
    pub(super) locality: Option<&'a str>,
    /// Whether a field was of a wrong type or out of range.
    pub(super) bad: bool,
}

#[derive(Clone, Copy)]
enum Field {
    Labels,
    Parent,
    Tokens,
    BlockSize,
    LoraId,
    Medium,
    /// Text, or with SGLang a map with the salt.
    LoraNameOrMore,
    ExtraKeys,
    Group,
    Kind,
    Locality,
    Salt,
    /// A kind or a locality: engines disagree on which is at this place.
    KindOrLocality,
    Ignored,
}

const STORED: [Field; 12] = [
    Field::Labels,
    Field::Parent,
    Field::Tokens,
    Field::BlockSize,
    Field::LoraId,
    Field::Medium,
    Field::LoraNameOrMore,
    Field::ExtraKeys,
    Field::Group,
    Field::Kind,
    Field::Ignored, // size of the sliding window
    Field::Locality,
];
const REMOVED: [Field; 6] = [
    Field::Labels,
    Field::Medium,
    Field::Group,
    Field::KindOrLocality,
    Field::Ignored, // size of the sliding window
    Field::Locality,
];

fn named(name: &[u8]) -> Field {
    match name {
        b"block_hashes" => Field::Labels,
        b"parent_block_hash" => Field::Parent,
        b"token_ids" => Field::Tokens,
        b"block_size" => Field::BlockSize,
        b"lora_id" => Field::LoraId,
        b"medium" => Field::Medium,
        b"lora_name" => Field::LoraNameOrMore,
        b"extra_keys" => Field::ExtraKeys,
        b"group_idx" => Field::Group,
        b"kv_cache_spec_kind" => Field::Kind,
        b"locality" => Field::Locality,
        b"cache_salt" => Field::Salt,
        _ => Field::Ignored,
    }
}

impl Tag {
    fn of(name: &[u8]) -> Self {
        match name {
            b"BlockStored" => Self::Stored,
            b"BlockRemoved" => Self::Removed,
            b"AllBlocksCleared" => Self::Cleared,
            _ => Self::Unknown,
        }
    }
}

impl<'a> Fields<'a> {
    /// Reads the next event, to its end. The only fault is [`Fault::CutOff`]; all else is said by `bad` and `tag`.
    pub(super) fn read(cursor: &mut Cursor<'a>, scratch: &mut Scratch) -> Result<Self, Fault> {
        scratch.labels.clear();
        scratch.tokens.clear();
        let mut fields = Self::default();
        let start = *cursor;
        match cursor.read() {
            Ok(Value::Array(length)) if length > 0 => fields.read_array(cursor, scratch, length)?,
            Ok(Value::Map(length)) => fields.read_map(cursor, scratch, length)?,
            _ => {
                *cursor = start;
                cursor.skip()?;
            }
        }
        Ok(fields)
    }

    fn read_array(&mut self, cursor: &mut Cursor<'a>, scratch: &mut Scratch, length: usize) -> Result<(), Fault> {
        self.read_tag(cursor)?;
        let places = match self.tag {
            Tag::Stored => &STORED[..],
            Tag::Removed => &REMOVED[..],
            _ => &[],
        };
        for place in 0..length - 1 {
            let field = places.get(place).copied().unwrap_or(Field::Ignored);
            self.read_field(field, cursor, scratch)?;
        }
        Ok(())
    }

    fn read_map(&mut self, cursor: &mut Cursor<'a>, scratch: &mut Scratch, length: usize) -> Result<(), Fault> {
        for _ in 0..length {
            let start = *cursor;
            match cursor.read() {
                Ok(Value::Text(b"type")) => self.read_tag(cursor)?,
                Ok(Value::Text(name)) => self.read_field(named(name), cursor, scratch)?,
                _ => {
                    *cursor = start;
                    cursor.skip()?;
                    cursor.skip()?;
                }
            }
        }
        Ok(())
    }

    fn read_tag(&mut self, cursor: &mut Cursor<'a>) -> Result<(), Fault> {
        let start = *cursor;
        self.tag = if let Ok(Value::Text(name)) = cursor.read() {
            Tag::of(name)
        } else {
            *cursor = start;
            cursor.skip()?;
            Tag::Missing
        };
        Ok(())
    }

    fn read_field(&mut self, field: Field, cursor: &mut Cursor<'a>, scratch: &mut Scratch) -> Result<(), Fault> {
        let start = *cursor;
        match self.try_field(field, cursor, scratch) {
            Err(Fault::Type) => {
                self.bad = true;
                *cursor = start;
                cursor.skip()
            }
            read => read,
        }
    }

    fn try_field(&mut self, field: Field, cursor: &mut Cursor<'a>, scratch: &mut Scratch) -> Result<(), Fault> {
        match field {
            Field::Labels => {
                cursor.labels(&mut scratch.labels)?;
                self.has_labels = true;
            }
            Field::Tokens => {
                let mut ahead = *cursor;
                if ahead.read()? == Value::Nil {
                    *cursor = ahead;
                } else {
                    self.window = cursor.tokens(&mut scratch.tokens)?;
                }
            }
            Field::Parent => {
                let mut ahead = *cursor;
                self.parent = if ahead.read()? == Value::Nil {
                    *cursor = ahead;
                    None
                } else {
                    Some(cursor.label()?)
                };
            }
            Field::BlockSize => self.block_size = number(cursor)?,
            // Ids below zero mean none, as 0 does.
            Field::LoraId => {
                self.lora_id = match cursor.read()? {
                    Value::Nil | Value::Negative(_) | Value::Unsigned(0) => None,
                    Value::Unsigned(id) => Some(id),
                    _ => return Err(Fault::Type),
                }
            }
            Field::Medium => self.medium = text(cursor)?,
            Field::LoraNameOrMore => self.read_name_or_more(cursor)?,
            Field::ExtraKeys => {
                let at = *cursor;
                self.extra_keys = match cursor.read()? {
                    Value::Nil | Value::Array(0) => None,
                    Value::Array(_) => Some(at),
                    _ => return Err(Fault::Type),
                };
                *cursor = at;
                cursor.skip()?;
            }
            Field::Group => self.group = number(cursor)?,
            Field::Kind => self.kind = text(cursor)?,
            Field::Locality => self.locality = text(cursor)?,
            Field::KindOrLocality => match text(cursor)? {
                Some(word) if word.eq_ignore_ascii_case("local") || word.eq_ignore_ascii_case("remote") => {
                    self.locality = Some(word);
                }
                word => self.kind = word,
            },
            Field::Salt => self.salt = text(cursor)?,
            Field::Ignored => cursor.skip()?,
        }
        Ok(())
    }

    fn read_name_or_more(&mut self, cursor: &mut Cursor<'a>) -> Result<(), Fault> {
        match cursor.read()? {
            Value::Nil => {}
            Value::Text(name) => self.lora_name = Some(utf8(name)?),
            Value::Map(length) => {
                for _ in 0..length {
                    if cursor.read()? == Value::Text(b"cache_salt") {
                        self.salt = text(cursor)?;
                    } else {
                        cursor.skip()?;
                    }
                }
            }
            _ => return Err(Fault::Type),
        }
        Ok(())
    }
}

fn utf8(bytes: &[u8]) -> Result<&str, Fault> {
    str::from_utf8(bytes).map_err(|_| Fault::Type)
}

fn text<'a>(cursor: &mut Cursor<'a>) -> Result<Option<&'a str>, Fault> {
    match cursor.read()? {
        Value::Nil => Ok(None),
        Value::Text(text) => utf8(text).map(Some),
        _ => Err(Fault::Type),
    }
}

fn number(cursor: &mut Cursor<'_>) -> Result<Option<u64>, Fault> {
    match cursor.read()? {
        Value::Nil => Ok(None),
        Value::Unsigned(number) => Ok(Some(number)),
        _ => Err(Fault::Type),
    }
}
