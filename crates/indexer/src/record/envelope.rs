//! Where does an entry of a recording begin and end, and is it what was written?

use std::io::{self, Read};

use homing_domain::Digest;
use homing_wire::frame::MAX_FRAME;

use super::RecordError;

/// Length, check of the length, check of the body.
pub(super) const HEAD: usize = 12;
/// The longest body: a frame and what is said about it.
pub(super) const MAX_BODY: usize = MAX_FRAME + (1 << 10);

/// Puts a head before the body that begins at `start` + [`HEAD`].
pub(super) fn seal(out: &mut [u8], start: usize) {
    let (head, body) = out[start..].split_at_mut(HEAD);
    let length = u32::try_from(body.len()).unwrap_or(u32::MAX).to_le_bytes();
    head[..4].copy_from_slice(&length);
    head[4..8].copy_from_slice(&check(&length));
    head[8..].copy_from_slice(&check(body));
}

fn check(bytes: &[u8]) -> [u8; 4] {
    let [a, b, c, d, ..] = Digest::of(bytes).0.to_le_bytes();
    [a, b, c, d]
}

/// Reads entries one after the other.
#[derive(Debug)]
pub(super) struct Entries<R> {
    from: R,
    at: u64,
    body: Vec<u8>,
}

/// What comes next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next<'a> {
    /// An entry with this body, and where it begins.
    Body(u64, &'a [u8]),
    /// Nothing: the file ends here, within an entry if there are bytes left.
    Nothing { bytes_left: u64 },
}

impl<R: Read> Entries<R> {
    /// Entries that begin at byte `at` of the file.
    pub(super) fn new(from: R, at: u64) -> Self {
        Self {
            from,
            at,
            body: Vec::new(),
        }
    }

    pub(super) fn next(&mut self) -> Result<Next<'_>, RecordError> {
        let at = self.at;
        let damaged = |what: &str| RecordError::Damaged {
            at,
            what: what.to_owned(),
        };
        let mut head = [0; HEAD];
        let read = read_up_to(&mut self.from, &mut head)?;
        if read < HEAD {
            return Ok(Next::Nothing {
                bytes_left: read as u64,
            });
        }
        let (length, checks) = head.split_at(4);
        if checks[..4] != check(length) {
            return Err(damaged("a length that is not what was written"));
        }
        let length = u32::from_le_bytes([length[0], length[1], length[2], length[3]]) as usize;
        if length > MAX_BODY {
            return Err(damaged("an entry that is too long"));
        }
        // No more room is made than there are bytes.
        self.body.clear();
        (&mut self.from).take(length as u64).read_to_end(&mut self.body)?;
        if self.body.len() < length {
            let bytes_left = (HEAD + self.body.len()) as u64;
            return Ok(Next::Nothing { bytes_left });
        }
        if checks[4..] != check(&self.body) {
            return Err(damaged("an entry that is not what was written"));
        }
        self.at += (HEAD + length) as u64;
        Ok(Next::Body(at, &self.body))
    }
}

/// Fills `buffer` as far as there are bytes, and says how far.
pub(super) fn read_up_to(from: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match from.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
