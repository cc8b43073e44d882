//! How much of each adapter is asked for?
//!
//! Arrivals are counted in a window that slides in steps, in requests and in tokens, and what is read at each round is smoothed
//! with what was read before, so that neither one burst nor one pause makes a plan.
//!
//! **Invariant:** what is asked for an adapter that nobody asks for any more falls to nothing.
//!
//! Cost: to note an arrival takes constant time. It keeps a few numbers for each of a bounded number of adapters; beyond that, the
//! one that was asked for the longest ago is forgotten.

use homing_domain::{AdapterName, Tokens};
use homing_profile::{Millis, Time};
use rustc_hash::FxHashMap;

/// Steps of a window.
const STEPS: usize = 12;
/// What is less than this, in tokens per second, is nothing.
const NOTHING: f64 = 1e-3;

/// How demand is measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DemandConfig {
    /// How far back arrivals count.
    pub window: Millis,
    /// How much of what is read now counts, and the rest is what was read before: from 0, exclusively, to 1.
    pub weight: f64,
    /// Adapters of which something is kept.
    pub most: usize,
}

impl Default for DemandConfig {
    fn default() -> Self {
        Self {
            window: Millis(60_000.0),
            weight: 0.3,
            most: 4_096,
        }
    }
}

/// How much is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rate {
    /// Requests per second.
    pub requests: f64,
    /// Tokens of prompts and answers per second.
    pub tokens: f64,
}

#[derive(Clone, Debug, Default)]
struct Asked {
    /// Requests and tokens of each step; which step is where follows from its number.
    steps: [(u32, u64); STEPS],
    /// The last step that something was counted in.
    last: u64,
    smooth: Option<Rate>,
}

/// How much of each adapter is asked for, and of the model without one.
#[derive(Clone, Debug)]
pub struct Demand {
    config: DemandConfig,
    began: Option<Time>,
    of: FxHashMap<Option<AdapterName>, Asked>,
}

impl Demand {
    /// Nothing was asked for yet.
    pub fn new(config: DemandConfig) -> Self {
        Self {
            config,
            began: None,
            of: FxHashMap::default(),
        }
    }

    /// A request came, for an adapter or for the model without one.
    pub fn asked(&mut self, now: Time, adapter: Option<&AdapterName>, tokens: Tokens) {
        self.began.get_or_insert(now);
        let step = self.step(now);
        if !self.of.contains_key(&adapter.cloned()) && self.of.len() > self.config.most {
            self.forget_oldest();
        }
        let asked = self.of.entry(adapter.cloned()).or_default();
        asked.move_to(step);
        let (requests, sum) = &mut asked.steps[(step % STEPS as u64) as usize];
        *requests = requests.saturating_add(1);
        *sum = sum.saturating_add(u64::from(tokens.0));
    }

    /// A round begins: what is read now is smoothed with what was read before.
    pub fn round(&mut self, now: Time) {
        let step = self.step(now);
        // A window that is not full yet is as long as it is.
        let seen = self.began.map_or(0.0, |began| now.since(began).0);
        let window = self.config.window.0.min(seen.max(self.config.window.0 / STEPS as f64)) / 1e3;
        let weight = self.config.weight;
        // Who was not asked for before begins at nothing, unless everybody is new.
        let is_new = seen < self.config.window.0;
        self.of.retain(|_, asked| {
            asked.move_to(step);
            let (requests, tokens) = asked.steps.iter().fold((0.0, 0.0), |(requests, tokens), of| {
                (requests + f64::from(of.0), tokens + of.1 as f64)
            });
            let read = Rate {
                requests: requests / window,
                tokens: tokens / window,
            };
            let before = asked.smooth.unwrap_or(if is_new { read } else { Rate::default() });
            asked.smooth = Some(Rate {
                requests: weight * read.requests + (1.0 - weight) * before.requests,
                tokens: weight * read.tokens + (1.0 - weight) * before.tokens,
            });
            requests > 0.0 || asked.smooth.is_some_and(|rate| rate.tokens > NOTHING)
        });
    }

    /// What is asked for an adapter as of the last round; nothing if nobody does.
    pub fn of(&self, adapter: &AdapterName) -> Rate {
        self.rate(Some(adapter))
    }

    /// What is asked for the model without an adapter, as of the last round.
    pub fn of_base(&self) -> Rate {
        self.rate(None)
    }

    fn rate(&self, adapter: Option<&AdapterName>) -> Rate {
        let asked = self.of.get(&adapter.cloned());
        asked.and_then(|asked| asked.smooth).unwrap_or_default()
    }

    fn step(&self, now: Time) -> u64 {
        let length = (self.config.window.0 / STEPS as f64).max(1.0);
        // From 1 on, so that 0 is before everything.
        (now.millis() / length) as u64 + 1
    }

    fn forget_oldest(&mut self) {
        let oldest = self.of.iter().filter(|(adapter, _)| adapter.is_some());
        let oldest = oldest.min_by(|(a, one), (b, other)| (one.last, a).cmp(&(other.last, b)));
        if let Some(adapter) = oldest.map(|(adapter, _)| adapter.clone()) {
            self.of.remove(&adapter);
        }
    }
}

impl Asked {
    /// Steps that were passed over are empty.
    fn move_to(&mut self, step: u64) {
        let passed = step.saturating_sub(self.last).min(STEPS as u64);
        for ago in 0..passed {
            self.steps[((step - ago) % STEPS as u64) as usize] = (0, 0);
        }
        self.last = self.last.max(step);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: f64) -> Time {
        Time::from_millis(seconds * 1e3)
    }

    #[test]
    fn steady_demand_is_read_as_it_is_and_falls_to_nothing() {
        let mut demand = Demand::new(DemandConfig::default());
        let a = AdapterName::new("a");
        for second in 0..120 {
            demand.asked(at(f64::from(second)), Some(&a), Tokens(100));
            demand.asked(at(f64::from(second)), None, Tokens(10));
            if second % 3 == 0 {
                demand.round(at(f64::from(second)));
            }
        }
        let rate = demand.of(&a);
        assert!(
            (rate.requests - 1.0).abs() < 0.1 && (rate.tokens - 100.0).abs() < 10.0,
            "{rate:?}"
        );
        assert!((demand.of_base().tokens - 10.0).abs() < 1.0);
        for second in 120..400 {
            demand.round(at(f64::from(second)));
        }
        assert_eq!(demand.of(&a), Rate::default());
        assert!(demand.of.is_empty());
    }

    #[test]
    fn one_burst_is_smoothed() {
        let mut demand = Demand::new(DemandConfig::default());
        let a = AdapterName::new("a");
        demand.asked(at(0.0), Some(&a), Tokens(1));
        demand.round(at(60.0));
        for _ in 0..600 {
            demand.asked(at(61.0), Some(&a), Tokens(100));
        }
        demand.round(at(62.0));
        let first = demand.of(&a).tokens;
        demand.round(at(65.0));
        assert!(first < 0.4 * 1_000.0 && demand.of(&a).tokens > first);
    }

    #[test]
    fn beyond_the_bound_the_oldest_is_forgotten() {
        let most = 8;
        let mut demand = Demand::new(DemandConfig {
            most,
            ..DemandConfig::default()
        });
        for number in 0..100_u32 {
            let name = AdapterName::new(format!("a{number}"));
            demand.asked(at(f64::from(number) * 6.0), Some(&name), Tokens(1));
            assert!(demand.of.len() <= most + 1);
        }
        demand.round(at(594.0));
        assert!(demand.of(&AdapterName::new("a99")).requests > 0.0);
        assert_eq!(demand.of(&AdapterName::new("a0")), Rate::default());
    }
}
