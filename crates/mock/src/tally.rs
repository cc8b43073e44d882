//! What is counted for the metrics of a rank, beyond what the model counts?

use homing_engine::Finish;

/// Upper ends of buckets, as vLLM has them: until the first token, between tokens, of whole requests; tokens of a request, of a
/// step; answers of a request; preemptions of a request. Times are in seconds.
const FIRST: &[f64] = &[
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
    160.0, 640.0, 2560.0,
];
const BETWEEN: &[f64] = &[
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
];
const WHOLE: &[f64] = &[
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0,
    1920.0, 7680.0,
];
const TOKENS: &[f64] = &[
    1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0, 10000.0, 20000.0, 50000.0, 100_000.0,
];
const STEP: &[f64] = &[
    1.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0,
];
const ANSWERS: &[f64] = &[1.0, 2.0, 5.0, 10.0, 20.0];
/// Of transfers of KV: seconds, bytes.
const TRANSFER: &[f64] = &[0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 5.0];
const TRANSFERRED: &[f64] = &[1e5, 1e6, 4e6, 16e6, 64e6, 256e6, 1e9, 4e9];
const PREEMPTIONS: &[f64] = &[1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 20.0];

/// Counts since the start of a life.
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    pub(crate) prompt_tokens: u64,
    pub(crate) cached_tokens: u64,
    pub(crate) generation_tokens: u64,
    pub(crate) stopped: u64,
    pub(crate) full: u64,
    pub(crate) aborted: u64,
    /// Tokens of prompts whose KV came from elsewhere.
    pub(crate) taken_tokens: u64,
    /// Transfers of KV that failed, and requests whose blocks nobody fetched.
    pub(crate) failed_transfers: u64,
    pub(crate) expired: u64,
    /// How long KV took to come, and how much it was.
    pub(crate) transfer: Histogram,
    pub(crate) transferred: Histogram,
    /// From the question to the first token.
    pub(crate) first_token: Histogram,
    /// From one token to the next.
    pub(crate) inter_token: Histogram,
    /// The mean of that, by request.
    pub(crate) per_token: Histogram,
    /// From the question to the last token.
    pub(crate) whole: Histogram,
    /// From the question to its turn, from there to the first token, from there to the last, and both.
    pub(crate) queued: Histogram,
    pub(crate) prefill: Histogram,
    pub(crate) decode: Histogram,
    pub(crate) inference: Histogram,
    /// Tokens of prompts, those that were not cached, of answers, and what was asked for at most.
    pub(crate) prompt: Histogram,
    pub(crate) computed: Histogram,
    pub(crate) generated: Histogram,
    pub(crate) longest: Histogram,
    pub(crate) max_tokens: Histogram,
    /// Tokens of steps.
    pub(crate) step: Histogram,
    pub(crate) answers: Histogram,
    pub(crate) preemptions: Histogram,
}

/// A request that is over.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Over {
    /// Until its turn, its first and its last token, in seconds since it was asked.
    pub(crate) turn: f64,
    pub(crate) first: f64,
    pub(crate) last: f64,
    pub(crate) prompt: u32,
    pub(crate) cached: u32,
    pub(crate) generated: u32,
    pub(crate) max_tokens: u32,
    pub(crate) preemptions: u32,
    /// How many answers were asked for together, for the first of them.
    pub(crate) answers: Option<usize>,
}

impl Default for Tally {
    fn default() -> Self {
        let of = Histogram::new;
        Self {
            prompt_tokens: 0,
            cached_tokens: 0,
            generation_tokens: 0,
            stopped: 0,
            full: 0,
            aborted: 0,
            taken_tokens: 0,
            failed_transfers: 0,
            expired: 0,
            transfer: of(TRANSFER),
            transferred: of(TRANSFERRED),
            first_token: of(FIRST),
            inter_token: of(BETWEEN),
            per_token: of(BETWEEN),
            whole: of(WHOLE),
            queued: of(WHOLE),
            prefill: of(WHOLE),
            decode: of(WHOLE),
            inference: of(WHOLE),
            prompt: of(TOKENS),
            computed: of(TOKENS),
            generated: of(TOKENS),
            longest: of(TOKENS),
            max_tokens: of(TOKENS),
            step: of(STEP),
            answers: of(ANSWERS),
            preemptions: of(PREEMPTIONS),
        }
    }
}

impl Tally {
    /// Counts a request that came to its end.
    pub(crate) fn finished(&mut self, reason: Finish, over: &Over) {
        match reason {
            Finish::Stop => self.stopped += 1,
            Finish::Length => self.full += 1,
        }
        self.whole.observe(over.last);
        self.queued.observe(over.turn);
        self.prefill.observe(over.first - over.turn);
        self.decode.observe(over.last - over.first);
        self.inference.observe(over.last - over.turn);
        if over.generated > 1 {
            let between = f64::from(over.generated - 1);
            self.per_token.observe((over.last - over.first) / between);
        }
        self.prompt.observe(over.prompt.into());
        self.computed.observe(over.prompt.saturating_sub(over.cached).into());
        self.generated.observe(over.generated.into());
        self.max_tokens.observe(over.max_tokens.into());
        self.preemptions.observe(over.preemptions.into());
        if let Some(answers) = over.answers {
            self.answers.observe(answers as f64);
            self.longest.observe(over.generated.into());
        }
    }
}

/// Values by size.
#[derive(Clone, Debug)]
pub(crate) struct Histogram {
    ends: &'static [f64],
    /// For each bucket those that are in it and in no earlier one.
    counts: Vec<u64>,
    pub(crate) count: u64,
    pub(crate) sum: f64,
}

impl Histogram {
    fn new(ends: &'static [f64]) -> Self {
        Self {
            ends,
            counts: vec![0; ends.len()],
            count: 0,
            sum: 0.0,
        }
    }

    pub(crate) fn observe(&mut self, value: f64) {
        self.count += 1;
        self.sum += value;
        let place = self.ends.partition_point(|end| *end < value);
        if let Some(count) = self.counts.get_mut(place) {
            *count += 1;
        }
    }

    /// For each bucket its upper end and how many are at most that.
    pub(crate) fn cumulative(&self) -> impl Iterator<Item = (f64, u64)> {
        let mut sum = 0;
        self.ends.iter().zip(&self.counts).map(move |(end, count)| {
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
        let mut histogram = Histogram::new(&[0.001, 0.0025, 0.5]);
        for value in [0.001, 0.002, 0.3, 1_000.0] {
            histogram.observe(value);
        }
        let all: Vec<u64> = histogram.cumulative().map(|(_, count)| count).collect();
        assert_eq!((all, histogram.count), (vec![1, 2, 3], 4));
    }

    #[test]
    fn the_parts_of_a_request_add_up() {
        let mut tally = Tally::default();
        let over = Over {
            turn: 1.0,
            first: 3.0,
            last: 9.0,
            generated: 4,
            ..Over::default()
        };
        tally.finished(Finish::Length, &over);
        let parts = tally.queued.sum + tally.prefill.sum + tally.decode.sum;
        assert!((parts - tally.whole.sum).abs() < 1e-9 && (tally.per_token.sum - 2.0).abs() < 1e-9);
    }
}
