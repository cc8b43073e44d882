//! What do the records of a run add up to?
//!
//! **Invariant:** what came before the cut of the warm-up, or after the traffic had begun to thin out, is in no figure.

use homing_domain::Tokens;
use homing_profile::{Millis, Time};

use super::quantiles::Quantiles;
use super::series::Series;
use crate::fleet::{End, Record};

/// What a request must meet to be of use.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slo {
    /// The time to its first token.
    pub ttft: Millis,
    /// The mean time between its tokens.
    pub itl: Millis,
}

impl Slo {
    /// Whether a record meets it.
    pub fn is_met(&self, record: &Record) -> bool {
        let first = record.first_token.is_some_and(|first| first.0 <= self.ttft.0);
        let between = record.between_tokens().is_none_or(|gap| gap.0 <= self.itl.0);
        record.end == End::Answered && first && between
    }
}

/// Which requests count, by when they come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// From this moment on.
    pub since: Time,
    /// Until before this one, if there is an end.
    pub until: Option<Time>,
}

impl Counted {
    /// Whether a request that comes then counts.
    pub fn has(&self, arrived: Time) -> bool {
        arrived >= self.since && self.until.is_none_or(|until| arrived < until)
    }
}

/// How many of what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests that came before those that count, and are in no other figure.
    pub warmup: u64,
    /// Requests that came after those that count, and are in no other figure.
    pub late: u64,
    /// With a whole answer.
    pub completed: u64,
    /// Refused, or tried too often.
    pub failed: u64,
    /// Given up by their clients.
    pub given_up: u64,
    /// Within the objectives.
    pub good: u64,
    /// That waited in a router.
    pub queued: u64,
    /// With fewer cached tokens than predicted.
    pub overpromised: u64,
    /// Attempts beyond the first.
    pub retries: u64,
    /// Tokens of prompts that were answered.
    pub prompt_tokens: u64,
    /// Of these, from caches.
    pub cached_tokens: u64,
    /// Of these, predicted to be.
    pub predicted_tokens: u64,
    /// Tokens that were generated.
    pub output_tokens: u64,
}

/// Which worker did what.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Share {
    /// Requests that ended there.
    pub requests: u64,
    /// Tokens of prompts that it computed.
    pub computed: u64,
    /// Requests that were under way there, in milliseconds of each cell.
    pub under_way: Series,
}

/// All figures of a run, while it goes on and afterwards.
#[derive(Clone, Debug, PartialEq)]
pub struct Tally {
    slo: Slo,
    counted: Counted,
    /// How many of what.
    pub counts: Counts,
    /// Milliseconds to the first token.
    pub ttft: Quantiles,
    /// Milliseconds between tokens, the mean of each request.
    pub itl: Quantiles,
    /// Milliseconds from arrival to end.
    pub e2e: Quantiles,
    /// Milliseconds in a router's queue, of all that were answered.
    pub queued: Quantiles,
    /// By which share of what it was the predicted time to the first token was off.
    pub error: Quantiles,
    /// By worker.
    pub workers: Vec<Share>,
    /// Tokens of prompts, by arrival.
    pub prompt_over_time: Series,
    /// Of these, from caches.
    pub cached_over_time: Series,
    last_end: Time,
}

impl Tally {
    /// Nothing yet, of so many workers.
    pub fn new(workers: u32, slo: Slo, counted: Counted) -> Self {
        Self {
            slo,
            counted,
            counts: Counts::default(),
            ttft: Quantiles::default(),
            itl: Quantiles::default(),
            e2e: Quantiles::default(),
            queued: Quantiles::default(),
            error: Quantiles::default(),
            workers: vec![Share::default(); workers as usize],
            prompt_over_time: Series::default(),
            cached_over_time: Series::default(),
            last_end: counted.since,
        }
    }

    /// A request is over.
    pub fn add(&mut self, record: &Record) {
        self.add_load(record);
        if !self.counted.has(record.arrived) {
            let warmup = record.arrived < self.counted.since;
            let counts = &mut self.counts;
            *(if warmup { &mut counts.warmup } else { &mut counts.late }) += 1;
            return;
        }
        self.last_end = self.last_end.max(record.arrived + record.whole);
        self.counts.retries += u64::from(record.attempts.saturating_sub(1));
        match record.end {
            End::Answered => self.answered(record),
            End::Failed => self.counts.failed += 1,
            End::GivenUp => self.counts.given_up += 1,
        }
    }

    /// What it was to the workers, whenever it came.
    fn add_load(&mut self, record: &Record) {
        let answered = record.end == End::Answered;
        if answered {
            self.prompt_over_time.add(record.arrived, f64::from(record.prompt.0));
            self.cached_over_time.add(record.arrived, f64::from(record.cached.0));
        }
        let rank = record.rank.map(|rank| rank.worker.0 as usize);
        let Some(share) = rank.and_then(|worker| self.workers.get_mut(worker)) else {
            return;
        };
        let from = record.arrived + record.queued;
        share.under_way.add_span(from, record.arrived + record.whole);
        if answered && self.counted.has(record.arrived) {
            share.requests += 1;
            share.computed += u64::from(record.prompt.0.saturating_sub(record.cached.0));
        }
    }

    fn answered(&mut self, record: &Record) {
        let counts = &mut self.counts;
        let tokens = |tokens: Tokens| u64::from(tokens.0);
        counts.completed += 1;
        counts.good += u64::from(self.slo.is_met(record));
        counts.queued += u64::from(record.queued.0 > 0.0);
        counts.overpromised += u64::from(record.cached < record.predicted_cached);
        counts.prompt_tokens += tokens(record.prompt);
        counts.cached_tokens += tokens(record.cached);
        counts.predicted_tokens += tokens(record.predicted_cached);
        counts.output_tokens += tokens(record.output);
        if let Some(first) = record.first_token {
            self.ttft.add(first.0);
        }
        if let Some(gap) = record.between_tokens() {
            self.itl.add(gap.0);
        }
        self.e2e.add(record.whole.0);
        self.queued.add(record.queued.0);
        if let Some(served) = record.served_first_token.filter(|served| served.0 > 0.0) {
            self.error
                .add((record.predicted_first_token.0 - served.0).abs() / served.0);
        }
    }

    /// The figures of another run of the same fleet are added. Over time, only one run makes sense: that stays.
    pub fn merge(&mut self, other: &Self) {
        let (mine, theirs) = (&mut self.counts, &other.counts);
        mine.warmup += theirs.warmup;
        mine.late += theirs.late;
        mine.completed += theirs.completed;
        mine.failed += theirs.failed;
        mine.given_up += theirs.given_up;
        mine.good += theirs.good;
        mine.queued += theirs.queued;
        mine.overpromised += theirs.overpromised;
        mine.retries += theirs.retries;
        mine.prompt_tokens += theirs.prompt_tokens;
        mine.cached_tokens += theirs.cached_tokens;
        mine.predicted_tokens += theirs.predicted_tokens;
        mine.output_tokens += theirs.output_tokens;
        self.ttft.merge(&other.ttft);
        self.itl.merge(&other.itl);
        self.e2e.merge(&other.e2e);
        self.queued.merge(&other.queued);
        self.error.merge(&other.error);
    }

    /// How long those came that count; where that has no end, until the last of them ended.
    pub fn measured(&self) -> Millis {
        self.counted.until.unwrap_or(self.last_end).since(self.counted.since)
    }

    /// So many of something for each second that was measured.
    pub fn per_second(&self, count: u64) -> f64 {
        let seconds = self.measured().0 / 1_000.0;
        if seconds > 0.0 { count as f64 / seconds } else { 0.0 }
    }

    /// The share of prompts' tokens that came from caches.
    pub fn cached_share(&self) -> f64 {
        share(self.counts.cached_tokens, self.counts.prompt_tokens)
    }

    /// The share of prompts' tokens that was predicted to.
    pub fn predicted_share(&self) -> f64 {
        share(self.counts.predicted_tokens, self.counts.prompt_tokens)
    }

    /// The share of answered requests that had fewer cached tokens than predicted.
    pub fn overpromised_share(&self) -> f64 {
        share(self.counts.overpromised, self.counts.completed)
    }

    /// How many times the mean of all workers the busiest has under way, on average over time. 1 is even.
    pub fn imbalance(&self) -> f64 {
        let (length, cells) = self.load_over_time();
        let count = cells.iter().map(Vec::len).max().unwrap_or(0);
        let cell = |time: Time| (time.millis() / length.0) as usize;
        let begin = cell(self.counted.since);
        let count = self.counted.until.map_or(count, |until| count.min(cell(until)));
        let (mut most, mut all) = (0.0, 0.0);
        for cell in begin..count {
            let at = cells.iter().map(|worker| worker.get(cell).copied().unwrap_or(0.0));
            most += at.clone().fold(0.0, f64::max);
            all += at.sum::<f64>();
        }
        if all > 0.0 {
            most * cells.len() as f64 / all
        } else {
            1.0
        }
    }

    /// How many times the mean of all workers the busiest has computed. 1 is even.
    pub fn work_imbalance(&self) -> f64 {
        let most = self.workers.iter().map(|share| share.computed).max().unwrap_or(0);
        let all: u64 = self.workers.iter().map(|share| share.computed).sum();
        if all > 0 {
            most as f64 * self.workers.len() as f64 / all as f64
        } else {
            1.0
        }
    }

    /// The length of cells, and for each worker the mean number of requests under way in each.
    pub fn load_over_time(&self) -> (Millis, Vec<Vec<f64>>) {
        let lengths = self.workers.iter().map(|share| share.under_way.length().0);
        let length = Millis(lengths.fold(Series::default().length().0, f64::max));
        let rows = self.workers.iter().map(|share| {
            let cells = share.under_way.coarsened(length);
            cells.into_iter().map(|spent| spent / length.0).collect()
        });
        (length, rows.collect())
    }

    /// The length of cells, at most so many, and for each the share of prompts' tokens that came from caches; none where nothing came.
    pub fn cached_over_time(&self, cells: usize) -> (Millis, Vec<Option<f64>>) {
        // Both are added to at the same moments, so their cells are the same.
        let together = self
            .prompt_over_time
            .cells()
            .len()
            .div_ceil(cells.max(1))
            .next_power_of_two();
        let length = Millis(self.prompt_over_time.length().0 * together as f64);
        let pairs = self
            .prompt_over_time
            .coarsened(length)
            .into_iter()
            .zip(self.cached_over_time.coarsened(length));
        let shares = pairs.map(|(prompt, cached)| (prompt > 0.0).then(|| cached / prompt));
        (length, shares.collect())
    }
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use homing_domain::RankId;

    const SLO: Slo = Slo {
        ttft: Millis(100.0),
        itl: Millis(10.0),
    };

    fn record(at: f64, worker: u32, first: f64, whole: f64) -> Record {
        Record {
            number: 0,
            router: 0,
            rank: Some(RankId::new(worker, 0)),
            arrived: Time::from_millis(at),
            queued: Millis::ZERO,
            first_token: Some(Millis(first)),
            whole: Millis(whole),
            prompt: Tokens(100),
            output: Tokens(11),
            cached: Tokens(40),
            predicted_cached: Tokens(50),
            predicted_first_token: Millis(first * 1.5),
            served_first_token: Some(Millis(first)),
            attempts: 1,
            end: End::Answered,
        }
    }

    #[test]
    fn figures_are_those_of_the_records_that_count() {
        let counted = Counted {
            since: Time::from_millis(1_000.0),
            until: None,
        };
        let mut tally = Tally::new(2, SLO, counted);
        tally.add(&record(0.0, 0, 9.0, 900.0));
        tally.add(&record(1_000.0, 0, 50.0, 150.0));
        tally.add(&record(2_000.0, 0, 50.0, 160.0));
        tally.add(&record(4_000.0, 1, 150.0, 250.0));
        tally.add(&Record {
            end: End::Failed,
            first_token: None,
            ..record(4_500.0, 1, 0.0, 500.0)
        });
        let counts = tally.counts;
        assert_eq!(
            (counts.warmup, counts.completed, counts.failed, counts.good),
            (1, 3, 1, 1)
        );
        assert!((tally.ttft.mean() - 250.0 / 3.0).abs() < 1e-9);
        assert!((tally.cached_share() - 0.4).abs() < 1e-9 && (tally.predicted_share() - 0.5).abs() < 1e-9);
        assert!((tally.error.at(0.5) - 0.5).abs() < 1e-3);
        assert!((tally.overpromised_share() - 1.0).abs() < 1e-9);
        assert_eq!(tally.measured(), Millis(4_000.0));
        assert!((tally.per_second(counts.completed) - 0.75).abs() < 1e-9);
        // Two of three prompts went to the first of two workers.
        assert!((tally.work_imbalance() - 4.0 / 3.0).abs() < 1e-9);
    }

    #[test]
    fn what_comes_when_traffic_thins_out_does_not_count() {
        let counted = Counted {
            since: Time::from_millis(1_000.0),
            until: Some(Time::from_millis(3_000.0)),
        };
        let mut tally = Tally::new(2, SLO, counted);
        tally.add(&record(2_500.0, 0, 50.0, 90_000.0));
        tally.add(&record(3_000.0, 0, 9.0, 10.0));
        assert_eq!((tally.counts.completed, tally.counts.late), (1, 1));
        assert!((tally.ttft.mean() - 50.0).abs() < 0.1);
        assert!(
            (tally.per_second(1) - 0.5).abs() < 1e-9,
            "one answer that takes long changes no rate"
        );
    }

    #[test]
    fn load_over_time_is_what_was_under_way() {
        let mut tally = Tally::new(2, SLO, Counted::default());
        tally.add(&record(0.0, 0, 10.0, 500.0));
        tally.add(&record(0.0, 0, 10.0, 250.0));
        let (length, load) = tally.load_over_time();
        assert_eq!(length, Millis(250.0));
        assert_eq!(load[0][..2], [2.0, 1.0]);
        assert!(load[1].is_empty());
        assert!((tally.imbalance() - 2.0).abs() < 1e-9);
        assert_eq!(tally.cached_over_time(64).1, [Some(0.4)]);
    }
}
