//! What is counted for the metrics of a rank, beyond what the model counts?

use homing_engine::Finish;

/// Counts since the start of a life.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) prompt_tokens: u64,
    pub(crate) cached_tokens: u64,
    pub(crate) generation_tokens: u64,
    pub(crate) stopped: u64,
    pub(crate) full: u64,
    /// From the question to the first token.
    pub(crate) first_token: Histogram,
    /// From one token to the next.
    pub(crate) inter_token: Histogram,
    /// From the question to the last token.
    pub(crate) whole: Histogram,
}

impl Tally {
    pub(crate) fn finished(&mut self, reason: Finish) {
        match reason {
            Finish::Stop => self.stopped += 1,
            Finish::Length => self.full += 1,
        }
    }
}

/// Upper ends of the buckets, in seconds.
pub(crate) const BUCKETS: [f64; 20] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
    160.0,
];

/// Times by size.
#[derive(Clone, Debug, Default)]
pub(crate) struct Histogram {
    /// For each bucket those that are in it and in no earlier one.
    counts: [u64; BUCKETS.len()],
    pub(crate) count: u64,
    pub(crate) sum: f64,
}

impl Histogram {
    pub(crate) fn observe(&mut self, seconds: f64) {
        self.count += 1;
        self.sum += seconds;
        if let Some(place) = BUCKETS.iter().position(|end| seconds <= *end) {
            self.counts[place] += 1;
        }
    }

    /// For each bucket its upper end and how many are at most that.
    pub(crate) fn cumulative(&self) -> impl Iterator<Item = (f64, u64)> {
        let mut sum = 0;
        BUCKETS.iter().zip(self.counts).map(move |(end, count)| {
            sum += count;
            (*end, sum)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_cumulative() {
        let mut histogram = Histogram::default();
        for seconds in [0.001, 0.002, 0.3, 1_000.0] {
            histogram.observe(seconds);
        }
        let all: Vec<u64> = histogram.cumulative().map(|(_, count)| count).collect();
        assert_eq!((all[0], all[1], all[8], all[9], all[19]), (1, 2, 2, 3, 3));
        assert_eq!(histogram.count, 4);
    }
}
