//! Can the head of a request be read in one way only?
//!
//! Two readers that understand a head differently see different requests in the same bytes, and what one of them takes for a body
//! the other takes for a request of somebody else. So everything that is known to be read differently is refused here, before the
//! HTTP library, which is more lenient, sees it: two lengths, a length beside an encoding, an encoding that is not `chunked`, lines
//! that are continued or end without CR, and names with a space before their colon.
//!
//! **Invariant:** a head that passes says in one way where its body ends.
//!
//! Cost: the bytes are looked at once, and nothing is copied. What the rest of a head means is not looked at.

use homing_telemetry::TurnedAway;
use memchr::memchr;

/// What ends a head.
const END: &[u8] = b"\r\n\r\n";
/// Digits of a length: what is longer is larger than any body.
const DIGITS: usize = 18;

/// How a body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// After so many bytes.
    Length(u64),
    /// With its last chunk.
    Chunked,
}

/// What is wrong with a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It can be read in two ways, or in none.
    Malformed(&'static str),
    /// It has too many headers.
    Headers,
    /// It is too long.
    Long,
    /// It took too long.
    Slow,
}

impl Fault {
    /// The status of the answer.
    pub fn status(self) -> u16 {
        match self {
            Self::Malformed(_) => 400,
            Self::Headers | Self::Long => 431,
            Self::Slow => 408,
        }
    }

    /// What the answer says.
    pub fn message(self) -> &'static str {
        match self {
            Self::Malformed(why) => why,
            Self::Headers => "the request has too many headers",
            Self::Long => "the head of the request is too long",
            Self::Slow => "the head of the request took too long to come",
        }
    }

    /// How it is counted.
    pub fn label(self) -> TurnedAway {
        match self {
            Self::Malformed(_) => TurnedAway::Malformed,
            Self::Headers => TurnedAway::HeaderCount,
            Self::Long => TurnedAway::HeaderSize,
            Self::Slow => TurnedAway::HeaderTime,
        }
    }
}

/// Where a head ends, if it does; it is known not to end within the first `looked` bytes. Empty lines before it are part of it, as
/// servers skip them.
pub fn end(bytes: &[u8], looked: usize) -> Option<usize> {
    let begin = blank(bytes).max(looked.saturating_sub(END.len() - 1));
    let found = memchr::memmem::find(&bytes[begin..], END)?;
    Some(begin + found + END.len())
}

/// Bytes of empty lines before a head.
fn blank(bytes: &[u8]) -> usize {
    let mut at = 0;
    while bytes[at..].starts_with(b"\r\n") {
        at += 2;
    }
    at
}

/// Whether a head passes, and how its body ends. `head` ends with an empty line.
pub fn check(head: &[u8], most_headers: usize) -> Result<Framing, Fault> {
    let mut rest = &head[blank(head)..];
    let mut lines = 0;
    let (mut length, mut chunked, mut host) = (None, false, false);
    while let Some(at) = memchr(b'\n', rest) {
        let line = rest[..at].strip_suffix(b"\r").ok_or(Fault::Malformed(
            "a line of the head does not end with carriage return and line feed",
        ))?;
        rest = &rest[at + 1..];
        if line.iter().any(|byte| matches!(byte, b'\r' | b'\0')) {
            return Err(Fault::Malformed("the head has a control character"));
        }
        lines += 1;
        if lines == 1 {
            continue;
        }
        if line.is_empty() {
            break;
        }
        if lines > most_headers + 1 {
            return Err(Fault::Headers);
        }
        let (name, value) = header(line)?;
        if name.eq_ignore_ascii_case(b"content-length") {
            let parsed = number(value).ok_or(Fault::Malformed("the length of the body is no number"))?;
            if length.replace(parsed).is_some() {
                return Err(Fault::Malformed("the length of the body is given twice"));
            }
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            if chunked || !value.eq_ignore_ascii_case(b"chunked") {
                return Err(Fault::Malformed("the only transfer encoding is `chunked`, once"));
            }
            chunked = true;
        } else if name.eq_ignore_ascii_case(b"host") && std::mem::replace(&mut host, true) {
            return Err(Fault::Malformed("the host is given twice"));
        }
    }
    match (length, chunked) {
        (Some(_), true) => Err(Fault::Malformed("both a length and a transfer encoding are given")),
        (Some(length), false) => Ok(Framing::Length(length)),
        (None, true) => Ok(Framing::Chunked),
        (None, false) => Ok(Framing::Length(0)),
    }
}

/// A header, without the white space around its value.
fn header(line: &[u8]) -> Result<(&[u8], &[u8]), Fault> {
    if line.starts_with(b" ") || line.starts_with(b"\t") {
        return Err(Fault::Malformed("a header is continued on another line"));
    }
    let colon = memchr(b':', line).ok_or(Fault::Malformed("a header has no colon"))?;
    let (name, value) = (&line[..colon], &line[colon + 1..]);
    let fits = |byte: &u8| byte.is_ascii_graphic() && !b"\"(),/:;<=>?@[\\]{}".contains(byte);
    if name.is_empty() || !name.iter().all(fits) {
        return Err(Fault::Malformed("the name of a header has a character that none has"));
    }
    Ok((name, trimmed(value)))
}

fn trimmed(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

fn number(value: &[u8]) -> Option<u64> {
    let digits = !value.is_empty() && value.len() <= DIGITS && value.iter().all(u8::is_ascii_digit);
    let text = digits.then(|| std::str::from_utf8(value).ok()).flatten()?;
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(headers: &str) -> Result<Framing, Fault> {
        check(format!("POST / HTTP/1.1\r\n{headers}\r\n").as_bytes(), 4)
    }

    #[test]
    fn a_body_ends_in_one_way() {
        for (headers, framing) in [
            ("", Framing::Length(0)),
            ("host: a\r\n", Framing::Length(0)),
            ("Content-Length: 12\r\n", Framing::Length(12)),
            ("content-length:\t7 \r\n", Framing::Length(7)),
            ("Transfer-Encoding: Chunked\r\n", Framing::Chunked),
            ("x-content-length: 3\r\n", Framing::Length(0)),
        ] {
            assert_eq!(checked(headers), Ok(framing), "{headers:?}");
        }
    }

    #[test]
    fn what_can_be_read_in_two_ways_is_refused() {
        for headers in [
            "content-length: 1\r\ntransfer-encoding: chunked\r\n",
            "transfer-encoding: chunked\r\ncontent-length: 1\r\n",
            "content-length: 1\r\ncontent-length: 2\r\n",
            "content-length: 1\r\ncontent-length: 1\r\n",
            "content-length: 1, 1\r\n",
            "content-length: +1\r\n",
            "content-length: 0x1\r\n",
            "content-length: -1\r\n",
            "content-length: 99999999999999999999\r\n",
            "content-length:\r\n",
            "transfer-encoding: chunked, identity\r\n",
            "transfer-encoding: identity\r\n",
            "transfer-encoding: xchunked\r\n",
            "transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n",
            "transfer-encoding : chunked\r\n",
            "transfer-encoding\x0b: chunked\r\n",
            "x: a\r\n continued: chunked\r\n",
            "x: a\r\n\tb\r\n",
            "x: a\ny: b\r\n",
            "x: a\rb\r\n",
            "x: a\0b\r\n",
            "no colon\r\n",
            ": no name\r\n",
            "host: a\r\nhost: b\r\n",
        ] {
            assert!(matches!(checked(headers), Err(Fault::Malformed(_))), "{headers:?}");
        }
        assert_eq!(checked("a: 1\r\nb: 1\r\nc: 1\r\nd: 1\r\n"), Ok(Framing::Length(0)));
        assert_eq!(checked("a: 1\r\nb: 1\r\nc: 1\r\nd: 1\r\ne: 1\r\n"), Err(Fault::Headers));
    }

    #[test]
    fn the_end_is_found_behind_empty_lines() {
        assert_eq!(end(b"GET / HTTP/1.1\r\n\r\nrest", 0), Some(18));
        assert_eq!(end(b"GET / HTTP/1.1\r\n\r\nrest", 17), Some(18));
        assert_eq!(end(b"\r\n\r\nGET / HTTP/1.1\r\n\r\n", 0), Some(22));
        assert_eq!(end(b"\r\n\r\n", 0), None);
        assert_eq!(end(b"GET / HTTP/1.1\r\n", 0), None);
        let late = b"\r\nPOST / HTTP/1.1\r\ncontent-length: 3\r\n\r\n";
        assert_eq!(check(late, 4), Ok(Framing::Length(3)));
    }
}
