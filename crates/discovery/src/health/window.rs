//! What became of requests lately? Counts over a time that moves on in steps.

use std::time::Duration;

use homing_profile::Time;

/// Steps of a window. What is older than all of them is forgotten a step at a time.
const STEPS: usize = 8;

/// Counts of the last [`STEPS`] steps.
#[derive(Clone, Debug)]
pub(super) struct Window {
    step_nanos: u64,
    steps: [Step; STEPS],
}

#[derive(Clone, Copy, Debug, Default)]
struct Step {
    number: u64,
    served: u32,
    failed: u32,
}

impl Window {
    pub(super) fn new(length: Duration) -> Self {
        let nanos = u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
        Self {
            step_nanos: (nanos / STEPS as u64).max(1),
            steps: [Step::default(); STEPS],
        }
    }

    pub(super) fn count_served(&mut self, now: Time) {
        let step = self.step(now);
        step.served = step.served.saturating_add(1);
    }

    pub(super) fn count_failed(&mut self, now: Time) {
        let step = self.step(now);
        step.failed = step.failed.saturating_add(1);
    }

    pub(super) fn failed(&self, now: Time) -> u32 {
        self.live(now).map(|step| step.failed).fold(0, u32::saturating_add)
    }

    pub(super) fn all(&self, now: Time) -> u32 {
        let counts = self.live(now).map(|step| step.failed.saturating_add(step.served));
        counts.fold(0, u32::saturating_add)
    }

    fn live(&self, now: Time) -> impl Iterator<Item = &Step> {
        let number = now.0 / self.step_nanos;
        let is_live = move |step: &&Step| number.saturating_sub(step.number) < STEPS as u64;
        self.steps.iter().filter(is_live)
    }

    fn step(&mut self, now: Time) -> &mut Step {
        let number = now.0 / self.step_nanos;
        let step = &mut self.steps[(number % STEPS as u64) as usize];
        if step.number != number {
            *step = Step {
                number,
                ..Step::default()
            };
        }
        step
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_older_than_the_window_does_not_count() {
        let mut window = Window::new(Duration::from_secs(8));
        let at = |seconds: u64| Time(seconds * 1_000_000_000);
        window.count_failed(at(100));
        window.count_served(at(103));
        assert_eq!((window.failed(at(103)), window.all(at(103))), (1, 2));
        assert_eq!((window.failed(at(107)), window.all(at(107))), (1, 2));
        assert_eq!((window.failed(at(108)), window.all(at(108))), (0, 1));
        assert_eq!((window.failed(at(111)), window.all(at(111))), (0, 0));
        // The place of a step is used again.
        window.count_served(at(116));
        assert_eq!((window.failed(at(116)), window.all(at(116))), (0, 1));
    }
}
