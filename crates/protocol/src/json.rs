//! Where does what lie in a JSON text? Spans of fields and values, without building anything.
//!
//! **Invariant:** what is accepted is JSON as RFC 8259 has it, in UTF-8, within [`Limits`]; what is refused is refused with the
//! position of the first byte that is wrong.
//!
//! **Invariant:** of a key that comes twice, the last one counts, as in the parsers of the engines (Python's `json`, pydantic).
//! Keys are compared as they mean, not as they are spelt.
//!
//! Cost: one pass, without allocation but for the list of top-level fields. No recursion.

use std::borrow::Cow;

use smallvec::SmallVec;
use thiserror::Error;

use crate::scan::Scan;

/// How much of a body is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The longest body, in bytes.
    pub bytes: usize,
    /// The deepest nesting, at most [`Limits::DEEPEST`].
    pub depth: usize,
    /// The most fields at the top.
    pub fields: usize,
}

impl Limits {
    /// Nesting cannot be allowed to be deeper than this.
    pub const DEEPEST: usize = 128;
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            bytes: 64 << 20,
            depth: Self::DEEPEST,
            fields: 1_024,
        }
    }
}

/// A part of a text, from byte to byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// Where it begins.
    pub start: usize,
    /// Where it has ended.
    pub end: usize,
}

impl Span {
    /// The bytes there; nothing where the text is another one and too short.
    pub fn of(self, text: &[u8]) -> &[u8] {
        text.get(self.start..self.end).unwrap_or_default()
    }
}

/// What kind of value there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool,
    /// A number.
    Number,
    /// A text.
    String,
    /// A list.
    Array,
    /// An object.
    Object,
}

/// What is wrong at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Flaw {
    /// Something else must stand here.
    #[error("{0} was expected")]
    Expected(&'static str),
    /// The text ends too early.
    #[error("the text ends in the middle")]
    End,
    /// A byte below 0x20 in a string.
    #[error("a control character stands in a string")]
    Control,
    /// An escape that does not exist.
    #[error("there is no such escape")]
    Escape,
    /// No UTF-8.
    #[error("this is no UTF-8")]
    Utf8,
    /// Too deep.
    #[error("it is nested too deeply")]
    Depth,
    /// Too many fields.
    #[error("it has too many fields")]
    Fields,
}

/// Why a text is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{flaw} at byte {at}")]
pub struct NotJson {
    /// Which byte, counted from 0.
    pub at: usize,
    /// What.
    pub flaw: Flaw,
}

/// A field of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its key, with quotes.
    pub key: Span,
    /// Its value.
    pub value: Span,
}

/// The fields of an object in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fields {
    /// The braces included.
    pub(crate) object: Span,
    pub(crate) all: SmallVec<[Field; 24]>,
}

impl Fields {
    /// Finds the fields of a text that is an object and nothing else.
    pub fn read(text: &[u8], limits: Limits) -> Result<Self, NotJson> {
        check_utf8(text)?;
        let mut scan = Scan::new(text, 0, limits.depth.min(Limits::DEEPEST));
        scan.space();
        let mut fields = Self::default();
        fields.object.start = scan.at;
        scan.open(b'{', "an object")?;
        scan.depth = 1;
        while let Some(field) = scan.field(fields.all.is_empty())? {
            if fields.all.len() >= limits.fields {
                return Err(NotJson {
                    at: field.key.start,
                    flaw: Flaw::Fields,
                });
            }
            fields.all.push(field);
        }
        fields.object.end = scan.at;
        scan.space();
        match scan.peek() {
            None => Ok(fields),
            Some(_) => Err(scan.wrong(Flaw::Expected("the end"))),
        }
    }

    /// All of them.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Field> {
        self.all.iter()
    }

    /// The value of a key; of several the last.
    pub fn get(&self, text: &[u8], key: &str) -> Option<Span> {
        let found = self.all.iter().rev().find(|field| is_key(field.key.of(text), key));
        found.map(|field| field.value)
    }
}

/// Whether a key as it is written, with quotes, means this one.
pub fn is_key(written: &[u8], key: &str) -> bool {
    let inner = written.get(1..written.len().saturating_sub(1)).unwrap_or_default();
    if inner == key.as_bytes() {
        return true;
    }
    // An escape is longer than what it stands for.
    inner.len() > key.len() && inner.contains(&b'\\') && text(written).is_some_and(|text| text == key)
}

/// The kind of a value as it is written.
pub fn kind(value: &[u8]) -> Option<Kind> {
    Some(match value.first()? {
        b'n' => Kind::Null,
        b't' | b'f' => Kind::Bool,
        b'"' => Kind::String,
        b'[' => Kind::Array,
        b'{' => Kind::Object,
        _ => Kind::Number,
    })
}

/// What a string as it is written says. `None` where it is none, or where it is half of a surrogate pair.
pub fn text(value: &[u8]) -> Option<Cow<'_, str>> {
    let inner = value.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    if memchr::memchr(b'\\', inner).is_none() {
        return std::str::from_utf8(inner).ok().map(Cow::Borrowed);
    }
    serde_json::from_slice(value).ok().map(Cow::Owned)
}

/// The numbers of a list of token ids as it is written. `None` where anything in it is something else.
pub fn ids(value: &[u8]) -> Option<Vec<u32>> {
    if let Some(ids) = plain_ids(value) {
        return Some(ids);
    }
    let mut ids = Vec::with_capacity(value.len() / 6);
    for item in items(value)? {
        ids.push(id(item)?);
    }
    Some(ids)
}

/// The same for lists of which every part between commas is one, as nearly all are. Long prompts are read in this way.
fn plain_ids(value: &[u8]) -> Option<Vec<u32>> {
    let inner = value.strip_prefix(b"[")?.strip_suffix(b"]")?;
    let mut ids = Vec::with_capacity(inner.len() / 6 + 1);
    for item in inner.split(|byte| *byte == b',') {
        let item = item.trim_ascii();
        if item.is_empty() || (item.len() > 1 && item.starts_with(b"0")) {
            return None;
        }
        ids.push(id(item)?);
    }
    Some(ids)
}

/// The list that a text begins with, if there is no other and no string in it: a list of numbers ends with the first bracket.
pub(crate) fn leading_numbers(text: &[u8]) -> Option<&[u8]> {
    let end = memchr::memchr(b']', text)?;
    let inner = text[..end].strip_prefix(b"[")?;
    let other = memchr::memchr3(b'[', b'{', b'"', inner);
    other.is_none().then(|| &text[..=end])
}

fn id(item: &[u8]) -> Option<u32> {
    if item.len() > 10 {
        return None;
    }
    let value = item.iter().try_fold(0_u64, |value, byte| {
        byte.is_ascii_digit().then(|| value * 10 + u64::from(byte - b'0'))
    });
    u32::try_from(value?).ok()
}

/// The values of a list as it is written. `None` where it is none; it ends where it is not JSON.
pub fn items(list: &[u8]) -> Option<impl Iterator<Item = &[u8]>> {
    let mut scan = Scan::new(list, 0, Limits::DEEPEST);
    scan.open(b'[', "a list").ok()?;
    scan.depth = 1;
    let mut first = true;
    Some(std::iter::from_fn(move || {
        let item = scan.item(first).ok()??;
        first = false;
        Some(item.of(list))
    }))
}

/// Keys, with quotes, and values of an object as it is written. `None` where it is none; it ends where it is not JSON.
pub fn entries(object: &[u8]) -> Option<impl Iterator<Item = (&[u8], &[u8])>> {
    let mut scan = Scan::new(object, 0, Limits::DEEPEST);
    scan.open(b'{', "an object").ok()?;
    scan.depth = 1;
    let mut first = true;
    Some(std::iter::from_fn(move || {
        let field = scan.field(first).ok()??;
        first = false;
        Some((field.key.of(object), field.value.of(object)))
    }))
}

/// The value of a key of an object as it is written; of several the last.
pub fn entry<'a>(object: &'a [u8], key: &str) -> Option<&'a [u8]> {
    let found = entries(object)?.filter(|(written, _)| is_key(written, key)).last();
    found.map(|(_, value)| value)
}

/// The value that begins here, whatever comes after it.
pub(crate) fn leading(text: &[u8]) -> Option<&[u8]> {
    let mut scan = Scan::new(text, 0, Limits::DEEPEST);
    scan.space();
    scan.value().ok().map(|span| span.of(text))
}

/// A text as a JSON string, with quotes.
pub fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn check_utf8(text: &[u8]) -> Result<(), NotJson> {
    std::str::from_utf8(text).map(|_| ()).map_err(|error| NotJson {
        at: error.valid_up_to(),
        flaw: Flaw::Utf8,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde::de::IgnoredAny;

    fn read(text: &str) -> Result<Fields, NotJson> {
        Fields::read(text.as_bytes(), Limits::default())
    }

    #[test]
    fn fields_are_found_with_their_places() {
        let text = r#" { "a" : 1 , "b":[{"c":"}"},2] }  "#;
        let fields = read(text).unwrap();
        let found: Vec<(&[u8], &[u8])> = fields
            .iter()
            .map(|field| (field.key.of(text.as_bytes()), field.value.of(text.as_bytes())))
            .collect();
        assert_eq!(found, [(&b"\"a\""[..], &b"1"[..]), (b"\"b\"", br#"[{"c":"}"},2]"#)]);
        assert_eq!(fields.get(text.as_bytes(), "a").unwrap().of(text.as_bytes()), b"1");
    }

    #[test]
    fn errors_name_the_place() {
        for (text, said) in [
            ("", "the text ends in the middle at byte 0"),
            ("[1]", "an object was expected at byte 0"),
            (r#"{"a":1"#, "the text ends in the middle at byte 6"),
            (r#"{"a":01}"#, "a comma or the end of the object was expected at byte 6"),
            (r#"{"a":nul}"#, "a value was expected at byte 8"),
            (r#"{"a":"\x"}"#, "there is no such escape at byte 7"),
            ("{\"a\":\"\n\"}", "a control character stands in a string at byte 6"),
            (r#"{"a":1}x"#, "the end was expected at byte 7"),
            (r#"{"a":1,}"#, "a key was expected at byte 7"),
            (r#"{"a":NaN}"#, "a value was expected at byte 5"),
            (r#"{"a" 1}"#, "a colon was expected at byte 5"),
        ] {
            assert_eq!(read(text).unwrap_err().to_string(), said, "{text}");
        }
        let broken = [b"{\"a\":\"".as_slice(), &[0xff], b"\"}"].concat();
        let error = Fields::read(&broken, Limits::default()).unwrap_err();
        assert_eq!(error.to_string(), "this is no UTF-8 at byte 6");
    }

    #[test]
    fn depth_and_number_of_fields_are_bounded() {
        let deep = |levels: usize| format!("{{\"a\":{}{}}}", "[".repeat(levels), "]".repeat(levels));
        assert!(read(&deep(127)).is_ok());
        assert_eq!(read(&deep(128)).unwrap_err().flaw, Flaw::Depth);
        assert_eq!(
            read(&"[".repeat(1 << 20)).unwrap_err().flaw,
            Flaw::Expected("an object")
        );
        let limits = Limits {
            fields: 2,
            ..Limits::default()
        };
        let error = Fields::read(br#"{"a":1,"b":2,"c":3}"#, limits).unwrap_err();
        assert_eq!((error.at, error.flaw), (13, Flaw::Fields));
    }

    #[test]
    fn keys_are_compared_by_meaning_and_the_last_one_counts() {
        let text = br#"{"model":"a","mod\u0065l":"b"}"#;
        let fields = Fields::read(text, Limits::default()).unwrap();
        assert_eq!(fields.get(text, "model").unwrap().of(text), b"\"b\"");
    }

    #[test]
    fn lists_of_ids_are_read_or_refused() {
        assert_eq!(ids(b"[1, 22 ,4294967295]"), Some(vec![1, 22, u32::MAX]));
        assert_eq!(ids(b"[]"), Some(vec![]));
        for wrong in ["[1,-2]", "[4294967296]", "[1.0]", "[\"1\"]", "[[1]]", "{}", "1"] {
            assert_eq!(ids(wrong.as_bytes()), None, "{wrong}");
        }
    }

    /// Bytes that look like JSON often enough to get far.
    fn jsonish() -> impl Strategy<Value = String> {
        let piece = prop::sample::select(vec![
            "{",
            "}",
            "[",
            "]",
            ",",
            ":",
            "\"",
            "\"a\"",
            "\"a\":",
            "1",
            "-0.5e+3",
            "true",
            "null",
            "\\u00e9",
            "\\",
            "é",
            " ",
            "\n",
            "{\"k\":",
            "\"x\\\"y\"",
            "0",
            "e",
            ".",
            "\u{1}",
            "abcdefghijkl",
        ]);
        prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn accepted_is_what_serde_accepts(inner in jsonish()) {
            let text = format!("{{\"k\":{inner}}}");
            for text in [&text, &inner] {
                let expected = text.trim_start().starts_with('{') && serde_json::from_str::<IgnoredAny>(text).is_ok();
                prop_assert_eq!(read(text).is_ok(), expected, "{}", text);
            }
        }

        #[test]
        fn bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Fields::read(&bytes, Limits::default());
            let _ = (ids(&bytes), text(&bytes), entry(&bytes, "a"), kind(&bytes));
        }
    }
}
