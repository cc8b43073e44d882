//! Which line is next? Lines of bounded length, with their numbers.
//!
//! **Invariant:** memory is bounded by the longest line that is allowed. A longer one is skipped and told of.

use std::io::BufRead;

use crate::error::Problem;

pub(crate) struct Lines<R> {
    source: R,
    limit: usize,
    number: u64,
    line: Vec<u8>,
    ended: bool,
}

impl<R: BufRead> Lines<R> {
    pub(crate) fn new(source: R, limit: usize) -> Self {
        Self {
            source,
            limit,
            number: 0,
            line: Vec::new(),
            ended: false,
        }
    }

    /// The number of the last line that was read, from 1.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// The last line that was read, without its end.
    pub(crate) fn line(&self) -> &[u8] {
        let line = self.line.trim_ascii();
        // Some programs begin a file with a byte order mark.
        line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line)
    }

    /// Reads the next line that is not blank; `None` at the end.
    pub(crate) fn advance(&mut self) -> Option<Result<(), Problem>> {
        loop {
            match self.read()? {
                Ok(()) if self.line().is_empty() => {}
                other => return Some(other),
            }
        }
    }

    fn read(&mut self) -> Option<Result<(), Problem>> {
        if self.ended {
            return None;
        }
        self.line.clear();
        let mut seen = 0_usize;
        loop {
            let bytes = match self.source.fill_buf() {
                Ok(bytes) => bytes,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    self.ended = true;
                    self.number += 1;
                    return Some(Err(Problem::Unreadable(error.to_string())));
                }
            };
            if bytes.is_empty() {
                self.ended = true;
                break;
            }
            let end = bytes.iter().position(|&byte| byte == b'\n');
            let piece = &bytes[..end.unwrap_or(bytes.len())];
            seen = seen.saturating_add(piece.len());
            if seen <= self.limit {
                self.line.extend_from_slice(piece);
            }
            let taken = piece.len() + usize::from(end.is_some());
            self.source.consume(taken);
            if end.is_some() {
                self.number += 1;
                return Some(self.checked(seen));
            }
        }
        // What comes after the last line end is a line only if there is something.
        (seen > 0).then(|| {
            self.number += 1;
            self.checked(seen)
        })
    }

    fn checked(&mut self, seen: usize) -> Result<(), Problem> {
        if seen > self.limit {
            self.line.clear();
            return Err(Problem::TooLong { limit: self.limit });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::BufReader;

    fn read(text: &[u8], limit: usize, buffer: usize) -> Vec<(u64, Result<String, Problem>)> {
        let mut lines = Lines::new(BufReader::with_capacity(buffer, text), limit);
        let mut all = Vec::new();
        while let Some(result) = lines.advance() {
            let line = String::from_utf8_lossy(lines.line()).into_owned();
            assert!(lines.line.capacity() <= 4 * (limit + buffer), "memory is bounded");
            all.push((lines.number(), result.map(|()| line)));
        }
        all
    }

    #[test]
    fn lines_have_numbers_and_long_ones_are_skipped() {
        for buffer in [1, 3, 64] {
            let text = b"\xef\xbb\xbfone\r\n\n  \ntwo\n0123456789abc\nthree";
            let expected = [
                (1, Ok("one".to_owned())),
                (4, Ok("two".to_owned())),
                (5, Err(Problem::TooLong { limit: 10 })),
                (6, Ok("three".to_owned())),
            ];
            assert_eq!(read(text, 10, buffer), expected);
        }
        assert_eq!(read(b"", 10, 8), []);
        assert_eq!(read(b"\n\n", 10, 8), []);
    }

    #[test]
    fn a_source_that_fails_ends_the_trace_and_says_so() {
        struct Broken;
        impl std::io::Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
                Err(std::io::Error::other("the disk is gone"))
            }
        }
        let mut lines = Lines::new(BufReader::new(Broken), 10);
        let problem = Problem::Unreadable("the disk is gone".to_owned());
        assert_eq!(lines.advance(), Some(Err(problem)));
        assert_eq!(lines.advance(), None);
    }
}
