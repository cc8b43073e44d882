//! How good were the predictions? For each rank: what was predicted and what came, of the time to the first token and of the tokens
//! that came from the cache.
//!
//! **Invariant:** nothing here changes a decision; what is learnt for decisions is in `homing-load`. A rank whose cached tokens keep
//! being wrong is one whose view should be repaired, and that is for the router to ask for.

use homing_domain::Tokens;
use homing_load::Place;
use homing_profile::Millis;

/// Errors that are remembered of a rank.
const REMEMBERED: usize = 128;

/// What was predicted of a request, and what came.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// Until its first token, as predicted.
    pub predicted_first_token: Millis,
    /// Until its first token.
    pub first_token: Millis,
    /// Tokens from the cache, as predicted.
    pub predicted_cached: Tokens,
    /// Tokens from the cache, where the engine says so.
    pub cached: Option<Tokens>,
}

/// The predictions of one rank.
#[derive(Clone, Debug, Default)]
pub struct Record {
    errors: Vec<f64>,
    next: usize,
    /// Requests whose cached tokens were told.
    pub told: u64,
    /// Those of which more was cached than predicted.
    pub more_cached: u64,
    /// Those of which less was.
    pub less_cached: u64,
}

impl Record {
    /// The median of the last relative errors of the time to the first token.
    pub fn median_error(&self) -> Option<f64> {
        let mut errors = self.errors.clone();
        errors.sort_by(f64::total_cmp);
        errors.get(errors.len() / 2).copied()
    }

    fn add(&mut self, outcome: &Outcome) {
        let (predicted, came) = (outcome.predicted_first_token.0, outcome.first_token.0);
        let error = (predicted - came).abs() / came.max(1.0);
        if self.errors.len() < REMEMBERED {
            self.errors.push(error);
        } else {
            self.errors[self.next] = error;
        }
        self.next = (self.next + 1) % REMEMBERED;
        if let Some(cached) = outcome.cached {
            self.told += 1;
            self.more_cached += u64::from(cached > outcome.predicted_cached);
            self.less_cached += u64::from(cached < outcome.predicted_cached);
        }
    }
}

/// The predictions of all ranks, under one policy.
#[derive(Clone, Debug, Default)]
pub struct Calibration {
    records: Vec<Record>,
}

impl Calibration {
    /// A request of a rank had its first token.
    pub fn saw(&mut self, place: Place, outcome: &Outcome) {
        if self.records.len() <= place.index() {
            self.records.resize(place.index() + 1, Record::default());
        }
        self.records[place.index()].add(outcome);
    }

    /// A rank's.
    pub fn of(&self, place: Place) -> Option<&Record> {
        self.records.get(place.index())
    }

    /// The rank at a place is another now.
    pub fn forget(&mut self, place: Place) {
        if let Some(record) = self.records.get_mut(place.index()) {
            *record = Record::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_of_the_last_errors() {
        let mut calibration = Calibration::default();
        let mut saw = |predicted, cached| {
            let outcome = Outcome {
                predicted_first_token: Millis(predicted),
                first_token: Millis(100.0),
                predicted_cached: Tokens(64),
                cached: Some(Tokens(cached)),
            };
            calibration.saw(Place(3), &outcome);
        };
        (0..200).for_each(|_| saw(200.0, 64));
        (0..100).for_each(|_| saw(110.0, 32));
        let record = calibration.of(Place(3)).unwrap();
        assert!((record.median_error().unwrap() - 0.1).abs() < 1e-9);
        assert_eq!((record.told, record.less_cached, record.more_cached), (300, 100, 0));
        calibration.forget(Place(3));
        assert_eq!(calibration.of(Place(3)).and_then(Record::median_error), None);
    }
}
