//! The framing of bodies that come in chunks, read strictly.
//!
//! The HTTP library ignores white space behind the size of a chunk, and other readers do not. So bodies of clients are checked before the
//! library sees them, and those of engines are read by the same rules.

use memchr::memchr;

/// The most bytes of a line with the size of a chunk, or of a trailer.
const MAX_LINE_BYTES: usize = 4096;
/// The most bytes of all trailers.
const MAX_TRAILER_BYTES: usize = 16 << 10;
/// The most digits of a size: more make a chunk that is larger than any body.
const MAX_SIZE_DIGITS: usize = 15;

/// The size of a chunk from its line, of which the end is cut off.
pub(crate) fn chunk_size(line: &[u8]) -> Result<u64, &'static str> {
    let (digits, extension) = line.split_at(memchr(b';', line).unwrap_or(line.len()));
    let is_number = (1..=MAX_SIZE_DIGITS).contains(&digits.len()) && digits.iter().all(u8::is_ascii_hexdigit);
    let digits = std::str::from_utf8(digits).ok().filter(|_| is_number);
    let size = digits.and_then(|digits| u64::from_str_radix(digits, 16).ok());
    let size = size.ok_or("the size of a chunk is not a hexadecimal number of at most 15 digits")?;
    if extension.iter().any(|byte| byte.is_ascii_control() && *byte != b'\t') {
        return Err("the extension of a chunk has a control character");
    }
    Ok(size)
}

/// A line without its end, which must be carriage return and line feed. `line` ends with a line feed.
pub(crate) fn without_line_end(line: &[u8]) -> Result<&[u8], &'static str> {
    let line = line.strip_suffix(b"\r\n");
    line.ok_or("a line between chunks does not end with carriage return and line feed")
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// A line with a size is to come.
    #[default]
    Size,
    /// So many bytes of a chunk are to come.
    Data(u64),
    /// The line end behind a chunk is to come.
    DataEnd,
    /// Trailers are to come, or the empty line behind them.
    Trailers,
    /// The body has ended.
    End,
}

/// Checks the framing of one body while its bytes pass.
#[derive(Debug, Default)]
pub struct ChunkScanner {
    state: State,
    /// The part of a line that came.
    line: Vec<u8>,
    trailer_bytes: usize,
}

impl ChunkScanner {
    /// Checks the next bytes. What comes after the body is not looked at.
    pub fn scan(&mut self, mut bytes: &[u8]) -> Result<(), &'static str> {
        while !bytes.is_empty() {
            match self.state {
                State::End => return Ok(()),
                State::Data(left) => {
                    let here = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
                    bytes = &bytes[here..];
                    self.state = match left - here as u64 {
                        0 => State::DataEnd,
                        left => State::Data(left),
                    };
                }
                State::Size | State::DataEnd | State::Trailers => {
                    let end = memchr(b'\n', bytes);
                    let (part, rest) = bytes.split_at(end.map_or(bytes.len(), |at| at + 1));
                    if self.line.len() + part.len() > MAX_LINE_BYTES {
                        return Err("a line between chunks is too long");
                    }
                    self.line.extend_from_slice(part);
                    bytes = rest;
                    if end.is_some() {
                        self.state = self.finish_line()?;
                        self.line.clear();
                    }
                }
            }
        }
        Ok(())
    }

    /// What follows the line that is complete.
    fn finish_line(&mut self) -> Result<State, &'static str> {
        let line = without_line_end(&self.line)?;
        match self.state {
            State::DataEnd if line.is_empty() => Ok(State::Size),
            State::DataEnd => Err("a chunk is longer than its size"),
            State::Trailers if line.is_empty() => Ok(State::End),
            State::Trailers => {
                self.trailer_bytes += line.len();
                if self.trailer_bytes > MAX_TRAILER_BYTES {
                    return Err("the trailers are too long");
                }
                let is_header = memchr(b':', line).is_some_and(|colon| colon > 0);
                let is_printable = !line.iter().any(|byte| byte.is_ascii_control() && *byte != b'\t');
                let is_trailer = is_header && is_printable && !line.starts_with(b" ") && !line.starts_with(b"\t");
                is_trailer.then_some(State::Trailers).ok_or("a trailer is not a header")
            }
            State::Size => match chunk_size(line)? {
                0 => Ok(State::Trailers),
                size => Ok(State::Data(size)),
            },
            State::Data(_) | State::End => Ok(self.state),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is found of a body that comes in pieces of this size.
    fn scanned(body: &str, piece: usize) -> Result<State, &'static str> {
        let mut scanner = ChunkScanner::default();
        for piece in body.as_bytes().chunks(piece) {
            scanner.scan(piece)?;
        }
        Ok(scanner.state)
    }

    #[test]
    fn a_body_is_found_whole_however_it_is_cut() {
        for body in [
            "0\r\n\r\n",
            "3\r\nabc\r\n0\r\n\r\n",
            "3\r\n\r\n\n\r\n00A;name=\"value\"\r\n0123456789\r\n0\r\ntrailer: x\r\n\r\nPOST / HTTP/1.1\n",
        ] {
            for piece in [1, 2, 3, 7, 1000] {
                assert_eq!(scanned(body, piece), Ok(State::End), "{body:?} {piece}");
            }
        }
        assert_eq!(scanned("3\r\nab", 2), Ok(State::Data(1)));
    }

    #[test]
    fn what_readers_understand_differently_is_refused() {
        for body in [
            "3 \r\nabc\r\n0\r\n\r\n",
            " 3\r\nabc\r\n",
            "3\t\r\nabc\r\n",
            "3 ;a=b\r\nabc\r\n",
            "0x3\r\nabc\r\n",
            "+3\r\nabc\r\n",
            "-3\r\nabc\r\n",
            "\r\nabc\r\n",
            ";a=b\r\nabc\r\n",
            "1000000000000000\r\n",
            "3\nabc\r\n",
            "3;a=\nb\r\nabc\r\n",
            "3;a=\x07b\r\nabc\r\n",
            "3\r\r\nabc\r\n",
            "3\r\nabc\n0\r\n\r\n",
            "3\r\nabcd\r\n0\r\n\r\n",
            "3\r\nabc0\r\n\r\n",
            "0\r\nno trailer\r\n\r\n",
            "0\r\na: b\r\n folded\r\n\r\n",
            "0\r\na: \0\r\n\r\n",
            "0\r\na: b\n\r\n",
            "0\r\n\n",
        ] {
            for piece in [1, 3, 1000] {
                assert!(scanned(body, piece).is_err(), "{body:?} {piece}");
            }
        }
        let long_line = format!("3;{}\r\n", "a".repeat(MAX_LINE_BYTES));
        let long_trailers = format!("0\r\n{}", format!("a: {}\r\n", "b".repeat(1000)).repeat(20));
        assert!(scanned(&long_line, 100).is_err());
        assert!(scanned(&long_trailers, 100).is_err());
    }
}
