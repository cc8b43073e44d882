//! A driver in virtual time, and what tests look at.

#![allow(dead_code, clippy::allow_attributes, reason = "each test binary uses a part of it")]

use std::collections::HashMap;

use homing_domain::{Blocks, DpRank, KvChange};
use homing_engine::pool::Counts;
use homing_engine::{Engine, EngineConfig, EventBatch, Outcome, Request, RequestNo, Time};
use homing_profile::{Constant, Millis, Timing};

/// An engine and what came of it.
pub struct Driver {
    pub engine: Engine,
    pub now: Time,
    pub answers: HashMap<RequestNo, Vec<u32>>,
    pub batches: Vec<EventBatch>,
    outcomes: Vec<Outcome>,
}

impl Driver {
    pub fn new(config: EngineConfig) -> Self {
        Self {
            engine: Engine::new(config).expect("the configuration is right"),
            now: Time::ZERO,
            answers: HashMap::new(),
            batches: Vec::new(),
            outcomes: Vec::new(),
        }
    }

    pub fn submit(&mut self, request: Request) -> DpRank {
        self.engine.submit(request).expect("the request is right")
    }

    /// Does all that is due now, and begins what can begin.
    pub fn poll(&mut self) {
        let mut outcome = Outcome::default();
        while self.engine.poll(self.now, &mut outcome) {
            self.engine.check().expect("all holds");
            for output in &outcome.tokens {
                self.answers.entry(output.request).or_default().push(output.token);
            }
            self.batches.extend(outcome.events.clone());
            self.outcomes.push(outcome.clone());
        }
        self.engine.check().expect("all holds");
    }

    /// Runs until nothing is left to do. Returns what came of it since the last time.
    pub fn run(&mut self) -> Vec<Outcome> {
        const STEPS: usize = 100_000;
        for _ in 0..STEPS {
            self.poll();
            match self.engine.wake_at() {
                Some(next) => self.now = self.now.max(next),
                None => return std::mem::take(&mut self.outcomes),
            }
        }
        panic!("it does not come to an end");
    }

    pub fn counts(&self) -> Counts {
        self.engine.pool(DpRank(0)).expect("there is a rank").counts()
    }
}

/// A prompt of a family: those of one family begin alike.
pub fn prompt(family: u32, length: u32) -> Vec<u32> {
    (0..length).map(|place| family * 1_000_000 + place).collect()
}

/// What an engine that is not disturbed says.
pub fn undisturbed(prompt: &[u32], tokens: u32) -> Vec<u32> {
    let timing = Timing::Constant(Constant {
        prefill: Millis(1.0),
        decode: Millis(1.0),
        kv_bytes_per_token: 1,
    });
    let mut driver = Driver::new(EngineConfig::vllm(Blocks(10_000), timing));
    driver.submit(Request::plain(1, prompt.to_vec(), tokens));
    driver.run();
    driver.answers.remove(&RequestNo(1)).unwrap_or_default()
}

/// Batches in short: blocks are letters in the order in which they are first seen, a parent stands before the plus.
pub fn told(batches: &[EventBatch]) -> Vec<String> {
    let mut letters: Vec<u64> = Vec::new();
    let mut letter = |label: u64| {
        let place = letters.iter().position(|known| *known == label).unwrap_or_else(|| {
            letters.push(label);
            letters.len() - 1
        });
        char::from(b'a' + place as u8)
    };
    let mut describe = |change: &KvChange| match change {
        KvChange::Stored(stored) => {
            let parent: String = stored.parent.iter().map(|label| letter(label.get())).collect();
            let blocks: Vec<char> = stored.blocks.iter().map(|block| letter(block.label.get())).collect();
            match (&blocks[..], parent.is_empty()) {
                ([one], _) => format!("{parent}+{one}"),
                ([first, rest @ ..], true) => format!("+{first}({})", rest.iter().collect::<String>()),
                (all, _) => format!("{parent}+({})", all.iter().collect::<String>()),
            }
        }
        KvChange::Removed(removed) => {
            let blocks: Vec<char> = removed.labels.iter().map(|label| letter(label.get())).collect();
            match &blocks[..] {
                [one] => format!("-{one}"),
                all => format!("-({})", all.iter().collect::<String>()),
            }
        }
        KvChange::Cleared(_) => "cleared".to_owned(),
    };
    let mut shown = Vec::new();
    for batch in batches {
        let changes: Vec<String> = batch.batch.changes.iter().map(&mut describe).collect();
        shown.push(format!("{}: {}", batch.batch.sequence, changes.join(" ")));
    }
    shown
}
