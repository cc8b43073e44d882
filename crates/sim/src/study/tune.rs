//! Which settings are the cheapest that keep a promise, and what does a better one cost?
//!
//! [`Search`] says what to try next and is told what it was worth; who runs it decides when to stop. First it bisects the number of
//! workers with the default settings, tries them on a quarter, half and three quarters of all workers, then tries every other policy on as many, and where a fleet
//! may be split other shares of workers that compute prompts, then varies the best, by turns on as many workers and on one less.
//!
//! **Invariant:** the same seed and the same worths give the same tries, in the same order; none is tried twice.

use homing_profile::Millis;

use crate::Rng;

/// What can be chosen.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Workers.
    pub workers: u32,
    /// Those of them that compute prompts for the others; 0: each serves whole requests.
    pub prefill: u32,
    /// The policy, with weights (see [`homing_scheduler::policy::by_spec`]).
    pub policy: String,
    /// See `RouterConfig::start_within`.
    pub start_within: Millis,
}

/// What a try was worth.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Worth {
    /// The share of all requests that were within the objectives.
    pub good: f64,
    /// Requests within the objectives for each second.
    pub goodput: f64,
    /// Milliseconds to the first token.
    pub ttft_p50: f64,
    /// The same for one of a hundred.
    pub ttft_p99: f64,
    /// Milliseconds between tokens, for one of a hundred.
    pub itl_p99: f64,
}

/// Settings that were tried.
#[derive(Clone, Debug, PartialEq)]
pub struct Try {
    /// Which.
    pub settings: Settings,
    /// What they were worth.
    pub worth: Worth,
}

/// What is searched.
#[derive(Clone, Debug)]
pub struct Space {
    /// Where chance comes from.
    pub seed: u64,
    /// The most workers.
    pub most_workers: u32,
    /// The share of workers that compute prompts for the others, to begin with; none if each serves whole requests.
    pub prefill: Option<f64>,
    /// The share of requests that must be within the objectives.
    pub promise: f64,
    /// What is varied: a policy with weights.
    pub policy: String,
    /// The other policies, each of which is tried once.
    pub others: Vec<String>,
    /// Where the time that a request may wait in an engine begins.
    pub start_within: Millis,
}

/// Weights of `time` that are varied, with where they begin.
const WEIGHTS: [(&str, f64); 3] = [("decode", 30.0), ("others", 4.0), ("error", 0.05)];
/// Shares of workers that compute prompts which are tried, the last first.
const SPLITS: [f64; 6] = [0.75, 0.625, 0.125, 0.375, 0.5, 0.0];
/// So often something new is drawn before the search gives up.
const DRAWS: u32 = 64;

/// A search.
#[derive(Clone, Debug)]
pub struct Search {
    space: Space,
    rng: Rng,
    tried: Vec<Try>,
    /// The most workers known to break the promise, and the fewest known to keep it, with default settings.
    broken: u32,
    kept: Option<u32>,
    others: Vec<String>,
    /// Numbers of workers to try, for the frontier.
    spread: Vec<u32>,
    /// Shares of workers that compute prompts to try.
    splits: Vec<f64>,
    turns: u32,
}

impl Search {
    /// A search that has tried nothing.
    pub fn new(space: Space) -> Self {
        let mut others = space.others.clone();
        others.reverse();
        Self {
            rng: Rng::new(space.seed),
            tried: Vec::new(),
            broken: 0,
            kept: None,
            others,
            spread: [1, 2, 3].map(|part| (space.most_workers * part / 4).max(1)).to_vec(),
            splits: if space.prefill.is_some() {
                SPLITS.to_vec()
            } else {
                Vec::new()
            },
            turns: 0,
            space,
        }
    }

    /// What to try next; none if nothing new is left.
    pub fn next_try(&mut self) -> Option<Settings> {
        if let Some(workers) = self.bisected() {
            return Some(self.default_on(workers));
        }
        while let Some(workers) = self.spread.pop() {
            let settings = self.default_on(workers);
            if !self.was_tried(&settings) {
                return Some(settings);
            }
        }
        let enough = self.enough();
        while let Some(policy) = self.others.pop() {
            let settings = Settings {
                policy,
                ..self.default_on(enough)
            };
            if !self.was_tried(&settings) {
                return Some(settings);
            }
        }
        while let Some(share) = self.splits.pop() {
            let settings = Settings {
                prefill: of_share(enough, share),
                ..self.default_on(enough)
            };
            if !self.was_tried(&settings) {
                return Some(settings);
            }
        }
        (0..DRAWS).find_map(|_| {
            let settings = self.varied();
            (!self.was_tried(&settings)).then_some(settings)
        })
    }

    /// Says what a try was worth.
    pub fn tell(&mut self, settings: Settings, worth: Worth) {
        let keeps = worth.good >= self.space.promise;
        if settings == self.default_on(settings.workers) {
            if keeps {
                self.kept = Some(self.kept.map_or(settings.workers, |kept| kept.min(settings.workers)));
            } else {
                self.broken = self.broken.max(settings.workers);
            }
        }
        self.tried.push(Try { settings, worth });
    }

    /// All tries, in order.
    pub fn tried(&self) -> &[Try] {
        &self.tried
    }

    /// Whether a try keeps the promise.
    pub fn keeps(&self, of: &Try) -> bool {
        of.worth.good >= self.space.promise
    }

    /// The best try: of those that keep the promise the one with the fewest workers and then the least latency; if none does, the one
    /// that comes the nearest.
    pub fn best(&self) -> Option<&Try> {
        let rank = |of: &&Try| {
            let broken = !self.keeps(of);
            let misses = if broken { 1.0 - of.worth.good } else { 0.0 };
            let workers = if broken { 0 } else { of.settings.workers };
            (broken, misses, workers, of.worth.ttft_p99)
        };
        self.tried.iter().min_by(|one, other| {
            let (one, other) = (rank(one), rank(other));
            let misses = one.1.total_cmp(&other.1);
            let by_latency = one.3.total_cmp(&other.3);
            one.0
                .cmp(&other.0)
                .then(misses)
                .then(one.2.cmp(&other.2))
                .then(by_latency)
        })
    }

    /// The tries that no other beats in both workers and latency, the fewest workers first.
    pub fn frontier(&self) -> Vec<&Try> {
        let mut sorted: Vec<&Try> = self.tried.iter().collect();
        sorted.sort_by(|one, other| {
            let workers = one.settings.workers.cmp(&other.settings.workers);
            workers.then(one.worth.ttft_p99.total_cmp(&other.worth.ttft_p99))
        });
        let mut least = f64::INFINITY;
        sorted.retain(|of| {
            let better = of.worth.ttft_p99 < least;
            least = least.min(of.worth.ttft_p99);
            better
        });
        sorted
    }

    /// The number of workers to try while the fewest are not known.
    fn bisected(&self) -> Option<u32> {
        let most = self.space.most_workers.max(1);
        match self.kept {
            None if self.broken < most => Some(most),
            Some(kept) if self.broken + 1 < kept => Some(u32::midpoint(self.broken, kept)),
            None | Some(_) => None,
        }
    }

    /// The fewest workers that are known to keep the promise, or all.
    fn enough(&self) -> u32 {
        let keeping = self.tried.iter().filter(|of| self.keeps(of));
        let fewest = keeping.map(|of| of.settings.workers).min();
        fewest.unwrap_or(self.space.most_workers.max(1))
    }

    fn default_on(&self, workers: u32) -> Settings {
        Settings {
            workers,
            prefill: self.space.prefill.map_or(0, |share| of_share(workers, share)),
            policy: self.space.policy.clone(),
            start_within: self.space.start_within,
        }
    }

    fn was_tried(&self, settings: &Settings) -> bool {
        self.tried.iter().any(|of| of.settings == *settings)
    }

    /// The best so far with one thing changed; by turns on one worker less.
    fn varied(&mut self) -> Settings {
        self.turns += 1;
        let enough = self.enough();
        let best = self.tried.iter().filter(|of| of.settings.workers == enough);
        let best = best.min_by(|one, other| one.worth.ttft_p99.total_cmp(&other.worth.ttft_p99));
        let mut settings = best.map_or_else(|| self.default_on(enough), |of| of.settings.clone());
        if self.turns.is_multiple_of(2) && enough > 1 {
            settings.workers = enough - 1;
            settings.prefill = settings.prefill.min(settings.workers - 1);
        }
        if self.space.prefill.is_some() && self.rng.chance(400) {
            let more = self.rng.chance(500);
            let prefill = if more {
                settings.prefill + 1
            } else {
                settings.prefill.saturating_sub(1)
            };
            settings.prefill = prefill.min(settings.workers - 1);
            return settings;
        }
        // From a quarter to four times, a few digits long so that it can be read.
        let factor = 4_f64.powf(2.0 * self.rng.share() - 1.0);
        let is_time = settings.policy.split(':').next() == Some("time");
        let choice = self.rng.place(WEIGHTS.len() + 1);
        match WEIGHTS.get(choice).filter(|_| is_time) {
            Some((weight, first)) => settings.policy = changed(&settings.policy, weight, *first, factor),
            None => settings.start_within = Millis((settings.start_within.0 * factor).round().clamp(1.0, 60_000.0)),
        }
        settings
    }
}

/// So many workers compute prompts; somebody is left to answer.
fn of_share(workers: u32, share: f64) -> u32 {
    let prefill = (f64::from(workers) * share).round() as u32;
    let least = u32::from(share > 0.0);
    prefill.max(least).min(workers.saturating_sub(1))
}

/// A policy with one weight times a factor.
fn changed(policy: &str, weight: &str, first: f64, factor: f64) -> String {
    let mut parts: Vec<String> = policy.split(':').map(str::to_owned).collect();
    let of = |part: &String| part.strip_prefix(weight).is_some_and(|rest| rest.starts_with('='));
    let place = parts.iter().position(of);
    let before = place.and_then(|place| parts[place].split_once('=')?.1.parse().ok());
    let value = (before.unwrap_or(first) * factor).clamp(0.001, 100.0);
    let written = format!("{weight}={}", (value * 1_000.0).round() / 1_000.0);
    match place {
        Some(place) => parts[place] = written,
        None => parts.push(written),
    }
    parts.join(":")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn space(seed: u64) -> Space {
        Space {
            seed,
            most_workers: 32,
            prefill: None,
            promise: 0.9,
            policy: "time".to_owned(),
            others: vec!["time".to_owned(), "blocks".to_owned()],
            start_within: Millis(2_000.0),
        }
    }

    /// A fleet that needs 11 workers, or 10 with a small decode weight.
    fn worth(settings: &Settings) -> Worth {
        let decode: f64 = settings
            .policy
            .split_once("decode=")
            .and_then(|(_, rest)| rest.split(':').next()?.parse().ok())
            .unwrap_or(30.0);
        let needed = if decode < 24.0 { 10 } else { 11 };
        Worth {
            good: if settings.workers >= needed { 0.95 } else { 0.5 },
            ttft_p99: 1_000.0 / f64::from(settings.workers) + decode / 30.0,
            ..Worth::default()
        }
    }

    fn run(seed: u64, tries: usize) -> Search {
        let mut search = Search::new(space(seed));
        for _ in 0..tries {
            let settings = search.next_try().expect("there is always something to try");
            let worth = worth(&settings);
            search.tell(settings, worth);
        }
        search
    }

    #[test]
    fn the_fewest_workers_are_found_and_then_fewer_with_other_weights() {
        let search = run(1, 60);
        let best = search.best().expect("something was tried");
        assert_eq!(best.settings.workers, 10, "{best:?}");
        assert!(search.keeps(best));
        let tries = search.tried();
        assert!(
            tries
                .iter()
                .all(|one| tries.iter().filter(|other| other.settings == one.settings).count() == 1)
        );
        assert!(tries.iter().any(|of| of.settings.policy == "blocks"));
        let frontier = search.frontier();
        assert!(frontier.windows(2).all(|pair| {
            pair[0].settings.workers < pair[1].settings.workers && pair[0].worth.ttft_p99 > pair[1].worth.ttft_p99
        }));
    }

    /// A fleet that is best with a third of its workers for prompts.
    #[test]
    fn the_best_split_is_found() {
        let mut search = Search::new(Space {
            prefill: Some(0.25),
            ..space(1)
        });
        for _ in 0..60 {
            let settings = search.next_try().expect("there is always something to try");
            assert!(settings.prefill < settings.workers, "{settings:?}");
            let off = (f64::from(settings.prefill) / f64::from(settings.workers) - 1.0 / 3.0).abs();
            let worth = Worth {
                good: if f64::from(settings.workers) > 9.0 + 20.0 * off {
                    0.95
                } else {
                    0.5
                },
                ttft_p99: 100.0 + 1_000.0 * off,
                ..Worth::default()
            };
            search.tell(settings, worth);
        }
        let best = search.best().expect("something was tried");
        assert!(search.keeps(best) && best.settings.workers <= 11, "{best:?}");
        assert!((3..=4).contains(&best.settings.prefill), "{best:?}");
    }

    #[test]
    fn equal_seeds_try_the_same() {
        assert_eq!(run(7, 40).tried(), run(7, 40).tried());
        assert_ne!(run(7, 40).tried(), run(8, 40).tried());
    }

    #[test]
    fn a_promise_that_cannot_be_kept_ends_with_what_comes_nearest() {
        let mut search = Search::new(space(1));
        for _ in 0..10 {
            let settings = search.next_try().expect("there is always something to try");
            let good = f64::from(settings.workers) / 100.0;
            search.tell(
                settings,
                Worth {
                    good,
                    ..Worth::default()
                },
            );
        }
        let best = search.best().expect("something was tried");
        assert_eq!(best.settings.workers, 32);
        assert!(!search.keeps(best));
    }
}
