//! When? A moment, counted from wherever the driver counts.

use std::fmt;
use std::ops::Add;

use crate::step::Millis;

/// A moment, in nanoseconds since a beginning that the driver chooses: the start of a simulation, or of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);

impl Time {
    /// The beginning.
    pub const ZERO: Self = Self(0);

    /// A moment in milliseconds after the beginning.
    pub fn from_millis(millis: f64) -> Self {
        Self(Millis(millis).nanos())
    }

    /// Milliseconds after the beginning.
    pub fn millis(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// How long after `earlier`; nothing if it is not after it.
    pub fn since(self, earlier: Self) -> Millis {
        Millis(self.0.saturating_sub(earlier.0) as f64 / 1e6)
    }
}

impl Add<Millis> for Time {
    type Output = Self;
    fn add(self, time: Millis) -> Self {
        Self(self.0.saturating_add(time.nanos()))
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3} ms", self.millis())
    }
}
