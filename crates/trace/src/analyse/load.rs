//! How many copies of a trace are so much load?

use homing_profile::{Millis, Time};

use crate::transform::Factor;

/// How a trace becomes so much load: so many copies at once, then a little faster or slower to meet it exactly. With many copies the
/// speed is near 1, so that clients think as long as they did.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LoadPlan {
    /// Copies at once.
    pub copies: u32,
    /// How many times as fast they then run.
    pub speed: Factor,
}

impl LoadPlan {
    /// The most copies.
    pub const MAX_COPIES: u32 = 4_096;

    /// What keeps `workers` busy for the share `load` of the time, if one worker takes `work` for all of a trace that lasts `span`.
    /// None where there is no work or no time in it, or more copies than allowed were needed.
    pub fn new(work: Millis, span: Time, workers: u32, load: f64) -> Option<Self> {
        let needed = span.millis() * f64::from(workers) * load / work.0;
        let copies = needed.round().max(1.0);
        let speed = Factor::new(needed / copies)?;
        (copies <= f64::from(Self::MAX_COPIES)).then_some(Self {
            copies: copies as u32,
            speed,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_load_is_met_exactly() {
        let second = Time::from_millis(1_000.0);
        for (work, workers, load, copies) in [(500.0, 4, 0.85, 7), (500.0, 1, 0.1, 1), (30.0, 16, 0.95, 507)] {
            let plan = LoadPlan::new(Millis(work), second, workers, load).unwrap();
            assert_eq!(plan.copies, copies);
            let met = work * f64::from(plan.copies) * plan.speed.get() / 1_000.0 / f64::from(workers);
            assert!((met - load).abs() < 1e-9, "{met} {load}");
        }
        for (work, span) in [(0.0, second), (1.0, Time::ZERO), (f64::NAN, second), (1e-9, second)] {
            assert_eq!(LoadPlan::new(Millis(work), span, 4, 0.85), None, "{work}");
        }
    }
}
