//! Takes fields of engines out of answers: addresses, engine ids and block ids that a client has no use for.
//!
//! The value of each such field becomes `null`, as engines write it where there is nothing to hand over. Works on the bytes of an answer
//! in pieces, for JSON and for streams of events with JSON in them.
//!
//! **Invariant:** all other bytes pass as they came, in their order.
//!
//! **Invariant:** what is kept is bounded by [`MAX_KEPT`] bytes, however the answer is cut into pieces.
//!
//! A key with its quotes cannot occur inside a string of a JSON text, because quotes are escaped there. So no text of an answer is
//! taken for a field.
//!
//! Cost: one search for seven bytes in each piece, and no copy of pieces without such a field.

use std::ops::Range;
use std::sync::LazyLock;

use bytes::{Bytes, BytesMut};
use memchr::memmem::Finder;

/// The fields, with their quotes.
const FIELDS: [&[u8]; 3] = [
    b"\"kv_transfer_params\"",
    b"\"ec_transfer_params\"",
    b"\"disaggregated_params\"",
];
/// What all of them end with.
const END: &[u8] = b"_params\"";
/// Kept of a piece, at most, because the next one may complete a field.
pub const MAX_KEPT: usize = 256;
/// From the beginning of a field to its value, at most. What is farther is not taken for its value.
const MAX_DISTANCE: usize = MAX_KEPT - NULL.len();
const NULL: &[u8] = b"null";

static FINDER: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(END));

/// Takes fields of engines out of one answer.
#[derive(Debug, Default)]
pub struct AnswerFilter {
    /// The beginning of a field that is not complete.
    kept: Vec<u8>,
    /// The value that is being left out.
    skipped: Option<Skipped>,
}

/// How far a value that is left out has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Skipped {
    /// In brackets, so deep.
    Container { depth: u32, string: InString },
    /// A string.
    String(InString),
    /// A number or a word.
    Scalar,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InString {
    No,
    Yes,
    /// After a backslash.
    Escaped,
}

/// What follows a key.
enum Value {
    /// It is no key.
    None,
    /// It is not known yet.
    Unknown,
    /// Its value begins here.
    At(usize),
}

impl AnswerFilter {
    /// What is passed on of a whole answer.
    pub fn whole(body: &Bytes) -> Bytes {
        let mut filter = Self::default();
        let passed = filter.piece(body.clone());
        let rest = filter.rest();
        if rest.is_empty() {
            return passed;
        }
        [passed, rest].concat().into()
    }

    /// What is passed on of the next piece. It can be empty.
    pub fn piece(&mut self, piece: Bytes) -> Bytes {
        let text = if self.kept.is_empty() {
            piece
        } else {
            let mut kept = std::mem::take(&mut self.kept);
            kept.extend_from_slice(&piece);
            kept.into()
        };
        let mut at = self.skip(&text, 0);
        let mut passed = BytesMut::new();
        let mut from = at;
        while let Some(hit) = FINDER.find(&text[at..]) {
            let (before, end) = (at, at + hit + END.len());
            at = end;
            // A quote that ends something else begins no key.
            let Some(start) = key_start(&text[..end]).filter(|start| *start >= before) else {
                continue;
            };
            match value_after(&text, start, end) {
                Value::None => {}
                Value::Unknown => {
                    self.kept = text[start..].to_vec();
                    return joined(passed, &text, from..start);
                }
                // As it is when it is left out.
                Value::At(value) if text[value..].starts_with(NULL) => at = value + NULL.len(),
                Value::At(value) => {
                    passed.extend_from_slice(&text[from..value]);
                    passed.extend_from_slice(NULL);
                    self.skipped = Some(Skipped::of(text[value]));
                    at = self.skip(&text, value + 1);
                    from = at;
                }
            }
        }
        let end = text.len() - begun_key(&text[at..]);
        self.kept = text[end..].to_vec();
        joined(passed, &text, from..end)
    }

    /// What was kept of an answer that has ended.
    pub fn rest(&mut self) -> Bytes {
        std::mem::take(&mut self.kept).into()
    }

    /// Goes on with a value that is left out; where it has ended.
    fn skip(&mut self, text: &[u8], mut at: usize) -> usize {
        while let Some(skipped) = &mut self.skipped {
            let Some(&byte) = text.get(at) else { return at };
            match skipped.next(byte) {
                Step::Within => at += 1,
                Step::Last => {
                    at += 1;
                    self.skipped = None;
                }
                Step::Behind => self.skipped = None,
            }
        }
        at
    }
}

/// Where a byte is.
enum Step {
    /// In the value.
    Within,
    /// It ends the value.
    Last,
    /// It is the first after the value.
    Behind,
}

impl Skipped {
    /// The value that begins with a byte.
    fn of(first: u8) -> Self {
        match first {
            b'{' | b'[' => Self::Container {
                depth: 1,
                string: InString::No,
            },
            b'"' => Self::String(InString::Yes),
            _ => Self::Scalar,
        }
    }

    fn next(&mut self, byte: u8) -> Step {
        match self {
            Self::Container { depth, string } => {
                if *string != InString::No {
                    string.next(byte);
                    return Step::Within;
                }
                match byte {
                    b'"' => *string = InString::Yes,
                    b'{' | b'[' => *depth = depth.saturating_add(1),
                    b'}' | b']' => {
                        *depth -= 1;
                        if *depth == 0 {
                            return Step::Last;
                        }
                    }
                    _ => {}
                }
                Step::Within
            }
            Self::String(string) => {
                string.next(byte);
                if *string == InString::No {
                    Step::Last
                } else {
                    Step::Within
                }
            }
            Self::Scalar => match byte {
                b',' | b'}' | b']' | b' ' | b'\n' | b'\r' | b'\t' => Step::Behind,
                _ => Step::Within,
            },
        }
    }
}

impl InString {
    fn next(&mut self, byte: u8) {
        *self = match (*self, byte) {
            (Self::Yes, b'\\') => Self::Escaped,
            (Self::Yes, b'"') => Self::No,
            _ => Self::Yes,
        };
    }
}

/// What was passed on of a text, and its last part. Where that is all, it is not copied.
fn joined(mut passed: BytesMut, text: &Bytes, last: Range<usize>) -> Bytes {
    if passed.is_empty() {
        return text.slice(last);
    }
    passed.extend_from_slice(&text[last]);
    passed.freeze()
}

/// Where the field begins that a text ends with.
fn key_start(text: &[u8]) -> Option<usize> {
    let field = FIELDS.iter().find(|field| text.ends_with(field))?;
    Some(text.len() - field.len())
}

fn value_after(text: &[u8], start: usize, key_end: usize) -> Value {
    let behind_space = |from: usize| {
        let rest = text.get(from..).unwrap_or_default();
        let is_space = |byte: &&u8| matches!(byte, b' ' | b'\n' | b'\r' | b'\t');
        from + rest.iter().take_while(is_space).count()
    };
    let colon = behind_space(key_end);
    let value = match text.get(colon) {
        Some(b':') => behind_space(colon + 1),
        Some(_) => return Value::None,
        None => colon,
    };
    if value - start > MAX_DISTANCE {
        return Value::None;
    }
    match text.get(value..) {
        None | Some([]) => Value::Unknown,
        Some(begun) if begun.len() < NULL.len() && NULL.starts_with(begun) => Value::Unknown,
        Some([b'{' | b'[' | b'"' | b'-' | b'0'..=b'9' | b't' | b'f' | b'n', ..]) => Value::At(value),
        Some(_) => Value::None,
    }
}

/// The length of the end of a text that may be the beginning of a field.
fn begun_key(text: &[u8]) -> usize {
    let Some(quote) = memchr::memrchr(b'"', text) else {
        return 0;
    };
    let end = &text[quote..];
    if FIELDS.iter().any(|field| field.starts_with(end)) {
        end.len()
    } else {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn in_pieces(text: &[u8], cuts: &[usize]) -> Vec<u8> {
        let mut filter = AnswerFilter::default();
        let (mut out, mut from) = (Vec::new(), 0);
        for cut in cuts.iter().copied().chain([text.len()]) {
            let cut = cut.clamp(from, text.len());
            out.extend_from_slice(&filter.piece(Bytes::copy_from_slice(&text[from..cut])));
            assert!(filter.kept.len() <= MAX_KEPT);
            from = cut;
        }
        out.extend_from_slice(&filter.rest());
        out
    }

    const CASES: [(&str, &str); 9] = [
        (
            r#"{"a":1,"kv_transfer_params":null}"#,
            r#"{"a":1,"kv_transfer_params":null}"#,
        ),
        (
            r#"{"kv_transfer_params":{"remote_engine_id":"e","x":["}",{"y":"\"}"}]},"a":1}"#,
            r#"{"kv_transfer_params":null,"a":1}"#,
        ),
        (
            r#"{"kv_transfer_params" : "text \" }" , "ec_transfer_params":-12.5}"#,
            r#"{"kv_transfer_params" : null , "ec_transfer_params":null}"#,
        ),
        (
            r#"{"choices":[{"disaggregated_params":{"ctx_request_id":1}},{"disaggregated_params":[[1],[2]]}],"b":2}"#,
            r#"{"choices":[{"disaggregated_params":null},{"disaggregated_params":null}],"b":2}"#,
        ),
        (
            r#"{"text":"\"kv_transfer_params\":{\"a\":1}","l":["kv_transfer_params"],"other_params":{"a":1}}"#,
            r#"{"text":"\"kv_transfer_params\":{\"a\":1}","l":["kv_transfer_params"],"other_params":{"a":1}}"#,
        ),
        (
            "data: {\"choices\":[],\"kv_transfer_params\":{\"remote_host\":\"10.0.0.1\"}}\n\ndata: [DONE]\n\n",
            "data: {\"choices\":[],\"kv_transfer_params\":null}\n\ndata: [DONE]\n\n",
        ),
        ("{\"kv_transfer_par", "{\"kv_transfer_par"),
        ("{\"kv_transfer_params\":", "{\"kv_transfer_params\":"),
        ("{\"kv_transfer_params\":true", "{\"kv_transfer_params\":null"),
    ];

    #[test]
    fn values_of_engine_fields_become_null_and_nothing_else_changes() {
        for (text, expected) in CASES {
            let passed = AnswerFilter::whole(&Bytes::copy_from_slice(text.as_bytes()));
            assert_eq!(String::from_utf8_lossy(&passed), expected);
            for cut in 0..text.len() {
                let passed = in_pieces(text.as_bytes(), &[cut]);
                assert_eq!(String::from_utf8_lossy(&passed), expected, "cut at {cut}");
            }
            let bytes: Vec<usize> = (0..text.len()).collect();
            assert_eq!(String::from_utf8_lossy(&in_pieces(text.as_bytes(), &bytes)), expected);
        }
    }

    #[test]
    fn a_piece_without_a_field_is_not_copied() {
        let piece = Bytes::from_static(b"data: {\"choices\":[{\"text\":\"a\"}],\"kv_transfer_params\":null}\n\n");
        let passed = AnswerFilter::default().piece(piece.clone());
        assert_eq!((passed.as_ptr(), passed.len()), (piece.as_ptr(), piece.len()));
    }

    #[test]
    fn endless_space_is_not_kept() {
        let mut filter = AnswerFilter::default();
        let mut passed = filter.piece(Bytes::from_static(b"{\"kv_transfer_params\"")).len();
        for _ in 0..100 {
            passed += filter.piece(Bytes::from_static(b"          ")).len();
            assert!(filter.kept.len() <= MAX_KEPT);
        }
        passed += filter.rest().len();
        assert_eq!(passed, 21 + 1_000);
    }

    proptest! {
        #[test]
        fn pieces_pass_as_the_whole_does(
            parts in prop::collection::vec(prop::sample::select(vec![
                "{", "}", "[", "]", ",", ":", " ", "\n", "\"", "\\\"", "\"a\":", "null", "nu", "1", "true", "_params\"",
                "\"kv_transfer_params\"", "\"kv_transfer_params\":", "\"ec_transfer", "\"disaggregated_params\": ", "{\"x\":\"}\"}",
            ]), 0..30),
            cuts in prop::collection::vec(0..200_usize, 0..8),
        ) {
            let text = parts.concat();
            let mut cuts = cuts;
            cuts.sort_unstable();
            let whole = AnswerFilter::whole(&Bytes::copy_from_slice(text.as_bytes()));
            prop_assert_eq!(in_pieces(text.as_bytes(), &cuts), whole.to_vec());
            if !text.contains("_params\"") {
                prop_assert_eq!(whole.as_ref(), text.as_bytes());
            }
        }
    }
}
