//! What is in a step of an engine?

use std::fmt;
use std::ops::{Add, AddAssign, Mul, Sub};

use homing_domain::Tokens;

/// A time in milliseconds. Kept as a fraction: steps take from a tenth of a millisecond to seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Millis(pub f64);

impl Millis {
    /// No time.
    pub const ZERO: Self = Self(0.0);

    /// The nearest number of nanoseconds; never negative.
    pub fn nanos(self) -> u64 {
        // A cast saturates, and takes what is no number for 0.
        (self.0 * 1e6).round() as u64
    }
}

impl Add for Millis {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl AddAssign for Millis {
    fn add_assign(&mut self, other: Self) {
        self.0 += other.0;
    }
}

impl Sub for Millis {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0 - other.0)
    }
}

impl Mul<f64> for Millis {
    type Output = Self;
    fn mul(self, factor: f64) -> Self {
        Self(self.0 * factor)
    }
}

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3} ms", self.0)
    }
}

/// How fast bytes move, in units of 10^9 bytes per second.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct GigabytesPerSecond(pub f64);

impl GigabytesPerSecond {
    /// How long `bytes` take. A rate of nothing moves nothing and costs no time: it stands for "not modelled".
    pub fn time_of(self, bytes: u64) -> Millis {
        if self.0 > 0.0 {
            Millis(bytes as f64 / (self.0 * 1e6))
        } else {
            Millis::ZERO
        }
    }
}

/// Part of a prompt that is computed in a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Chunk {
    /// Tokens that are computed.
    pub new: Tokens,
    /// Tokens before them whose KV is there already: from the cache, or from earlier chunks.
    pub cached: Tokens,
}

/// The sequences of a step that compute one token each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DecodeBatch {
    /// How many.
    pub sequences: u32,
    /// The tokens whose KV they read, all together.
    pub context: u64,
}

impl DecodeBatch {
    /// `sequences` of the same context.
    pub fn even(sequences: u32, context: Tokens) -> Self {
        Self {
            sequences,
            context: u64::from(sequences) * u64::from(context.0),
        }
    }

    /// One sequence more.
    #[must_use]
    pub fn and(self, context: Tokens) -> Self {
        Self {
            sequences: self.sequences.saturating_add(1),
            context: self.context.saturating_add(u64::from(context.0)),
        }
    }
}

/// All that is computed together.
#[derive(Clone, Copy, Debug, Default)]
pub struct Step<'a> {
    /// Chunks of prompts, one for each sequence that has any.
    pub prefill: &'a [Chunk],
    /// Sequences that generate.
    pub decode: DecodeBatch,
}

impl Step<'_> {
    /// Tokens that are computed.
    pub fn tokens(&self) -> u64 {
        let new: u64 = self.prefill.iter().map(|chunk| u64::from(chunk.new.0)).sum();
        new + u64::from(self.decode.sequences)
    }

    /// Sequences that take part, each of which passes the LM head once.
    pub fn sequences(&self) -> u64 {
        self.prefill.len() as u64 + u64::from(self.decode.sequences)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_take_time() {
        assert_eq!(GigabytesPerSecond(50.0).time_of(50_000_000), Millis(1.0));
        assert_eq!(GigabytesPerSecond(0.0).time_of(50_000_000), Millis::ZERO);
    }

    #[test]
    fn no_time_is_negative_in_nanoseconds() {
        assert_eq!(Millis(1.5).nanos(), 1_500_000);
        assert_eq!(Millis(-1.0).nanos(), 0);
        assert_eq!(Millis(f64::NAN).nanos(), 0);
    }
}
