//! Can the head of a request be read in one way only?
//!
//! Two readers that understand a head differently see different requests in the same bytes, and what one of them takes for a body
//! the other takes for a request of somebody else. So everything that is known to be read differently is refused here, before the
//! HTTP library, which is more lenient, sees it: two lengths, a length beside an encoding, an encoding that is not `chunked`, lines
//! that are continued or end without CR, and names with a space before their colon. What the library would refuse with an empty
//! answer is refused here in words: first lines that are none, other versions, control characters.
//!
//! **Invariant:** a head that passes says in one way where its body ends.
//!
//! Cost: the bytes are looked at once, and nothing is copied. What the rest of a head means is not looked at.

use homing_telemetry::TurnedAway;
use hyper::Uri;
use memchr::memchr;

/// What ends a head.
const END: &[u8] = b"\r\n\r\n";
/// Digits of a length: what is longer is larger than any body.
const DIGITS: usize = 18;
/// The longest target and the longest name of a header that the library takes.
const MAX_LIBRARY_BYTES: usize = u16::MAX as usize - 1;

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
    /// It is of a version that is not spoken.
    Version,
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
            Self::Version => 505,
            Self::Headers | Self::Long => 431,
            Self::Slow => 408,
        }
    }

    /// What the answer says.
    pub fn message(self) -> &'static str {
        match self {
            Self::Malformed(why) => why,
            Self::Version => "only HTTP/1.1 and HTTP/1.0 are spoken here",
            Self::Headers => "the request has too many headers",
            Self::Long => "the head of the request is too long",
            Self::Slow => "the head of the request took too long to come",
        }
    }

    /// How it is counted.
    pub fn label(self) -> TurnedAway {
        match self {
            Self::Malformed(_) | Self::Version => TurnedAway::Malformed,
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
    let mut version = Version::Http11;
    let (mut length, mut chunked, mut host) = (None, false, false);
    while let Some(at) = memchr(b'\n', rest) {
        let line = rest[..at].strip_suffix(b"\r").ok_or(Fault::Malformed(
            "a line of the head does not end with carriage return and line feed",
        ))?;
        rest = &rest[at + 1..];
        if line.iter().any(|byte| byte.is_ascii_control() && *byte != b'\t') {
            return Err(Fault::Malformed("the head has a control character"));
        }
        lines += 1;
        if lines == 1 {
            version = request_line(line)?;
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
        (None, true) if version == Version::Http10 => Err(Fault::Malformed(
            "a transfer encoding is given with HTTP/1.0, which has none",
        )),
        (Some(length), false) => Ok(Framing::Length(length)),
        (None, true) => Ok(Framing::Chunked),
        (None, false) => Ok(Framing::Length(0)),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    Http10,
    Http11,
}

/// Whether the first line of a head begins a request, and of which version it is.
fn request_line(line: &[u8]) -> Result<Version, Fault> {
    const NO_REQUEST: Fault = Fault::Malformed("the first line is not `METHOD TARGET HTTP/1.1`");
    let mut words = line.split(|byte| *byte == b' ');
    let (Some(method), Some(target), Some(version), None) = (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(NO_REQUEST);
    };
    let version = match version {
        b"HTTP/1.1" => Version::Http11,
        b"HTTP/1.0" => Version::Http10,
        [b'H', b'T', b'T', b'P', b'/', b'0'..=b'9', ..] => return Err(Fault::Version),
        _ => return Err(NO_REQUEST),
    };
    if !is_token(method) {
        return Err(Fault::Malformed("the method has a character that none has"));
    }
    if target.len() > MAX_LIBRARY_BYTES {
        return Err(Fault::Long);
    }
    if !is_target(method, target) {
        return Err(Fault::Malformed(
            "the target of the request is neither a path nor a URL",
        ));
    }
    Ok(version)
}

/// Whether a word is a path or a URL, or what some methods have instead.
fn is_target(method: &[u8], target: &[u8]) -> bool {
    let is_usual = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~/?=&%+,:@!$'()*;".contains(byte);
    if target.starts_with(b"/") && target.iter().all(is_usual) {
        return true;
    }
    let begins_with = |scheme: &[u8]| {
        let begin = target.get(..scheme.len());
        begin.is_some_and(|begin| begin.eq_ignore_ascii_case(scheme))
    };
    let has_form = match method {
        b"CONNECT" => !target.starts_with(b"/"),
        b"OPTIONS" if target == b"*" => true,
        _ => target.starts_with(b"/") || begins_with(b"http://") || begins_with(b"https://"),
    };
    let is_printable = target.iter().all(u8::is_ascii_graphic) && !target.contains(&b'#');
    // The rest is as the library reads it.
    has_form && is_printable && Uri::try_from(target).is_ok()
}

/// Whether a word can be a method or the name of a header.
fn is_token(word: &[u8]) -> bool {
    let fits = |byte: &u8| byte.is_ascii_graphic() && !b"\"(),/:;<=>?@[\\]{}".contains(byte);
    !word.is_empty() && word.iter().all(fits)
}

/// A header, without the white space around its value.
fn header(line: &[u8]) -> Result<(&[u8], &[u8]), Fault> {
    if line.starts_with(b" ") || line.starts_with(b"\t") {
        return Err(Fault::Malformed("a header is continued on another line"));
    }
    let colon = memchr(b':', line).ok_or(Fault::Malformed("a header has no colon"))?;
    let (name, value) = (&line[..colon], &line[colon + 1..]);
    if name.len() > MAX_LIBRARY_BYTES {
        return Err(Fault::Long);
    }
    if !is_token(name) {
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
            "x: a\x01b\r\n",
            "x: a\x7fb\r\n",
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
    fn a_first_line_is_a_request_of_a_version_that_is_spoken() {
        let first = |line: &str| check(format!("{line}\r\n\r\n").as_bytes(), 4);
        for line in [
            "GET / HTTP/1.1",
            "POST /v1/completions?a=b HTTP/1.0",
            "GET /a\"{|}^b HTTP/1.1",
            "GET http://host:1/path HTTP/1.1",
            "OPTIONS * HTTP/1.1",
            "CONNECT host:443 HTTP/1.1",
            "M-SEARCH / HTTP/1.1",
        ] {
            assert_eq!(first(line), Ok(Framing::Length(0)), "{line:?}");
        }
        for line in [
            "GET / HTTP/2.0",
            "GET / HTTP/0.9",
            "GET / HTTP/1.2",
            "GET / HTTP/1.10",
            "PRI * HTTP/2.0",
        ] {
            assert_eq!(first(line), Err(Fault::Version), "{line:?}");
        }
        for line in [
            "GET /",
            "GET",
            "GET  / HTTP/1.1",
            "GET / HTTP/1.1 ",
            " GET / HTTP/1.1",
            "GET /a b HTTP/1.1",
            "GET\t/\tHTTP/1.1",
            "GET / http/1.1",
            "GET / HTTP/x",
            "GE(T / HTTP/1.1",
            "GET path HTTP/1.1",
            "GET * HTTP/1.1",
            "GET /a#b HTTP/1.1",
            "GET /\u{e4} HTTP/1.1",
            "GET http:/host HTTP/1.1",
            "GET ftp://host/ HTTP/1.1",
            "CONNECT / HTTP/1.1",
        ] {
            assert!(matches!(first(line), Err(Fault::Malformed(_))), "{line:?}");
        }
        let long = format!("GET /{} HTTP/1.1", "a".repeat(MAX_LIBRARY_BYTES));
        assert_eq!(first(&long), Err(Fault::Long));
        let old = b"POST / HTTP/1.0\r\ntransfer-encoding: chunked\r\n\r\n";
        assert!(matches!(check(old, 4), Err(Fault::Malformed(_))));
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
