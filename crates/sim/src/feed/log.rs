//! What happened, in order? A running digest of it always, and the words if somebody wants to read them.

use homing_trace::rng::mix;

/// The log of one run.
#[derive(Debug)]
pub struct Log {
    digest: u64,
    lines: Option<Vec<String>>,
}

/// Whether the words are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trace {
    /// They are.
    On,
    /// Only the digest is.
    Off,
}

impl Log {
    /// An empty log.
    pub fn new(trace: Trace) -> Self {
        Self {
            digest: 0,
            lines: (trace == Trace::On).then(Vec::new),
        }
    }

    /// Something happened: numbers that tell it from all else, and words for people.
    pub fn note(&mut self, numbers: &[u64], words: impl FnOnce() -> String) {
        for number in numbers {
            self.digest = mix(self.digest.rotate_left(5) ^ number).wrapping_add(1);
        }
        if let Some(lines) = &mut self.lines {
            lines.push(words());
        }
    }

    /// Stands for all that happened.
    pub const fn digest(&self) -> u64 {
        self.digest
    }

    /// The words.
    pub fn into_lines(self) -> Vec<String> {
        self.lines.unwrap_or_default()
    }
}
