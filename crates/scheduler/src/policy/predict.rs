//! How long would this request take there? The same prediction for all policies: the policy `time` chooses by it, the others
//! are reported with it.

use std::cell::Cell;

use homing_domain::{Tier, Tokens};
use homing_load::{Load, Place, PromptWork, RankLoad};
use homing_profile::{GigabytesPerSecond, Millis};

use crate::overlap::{Depths, Overlap};
use crate::policy::Scene;

/// How fast KV comes from tiers below the device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OnboardRates {
    /// From the host's memory.
    pub host: GigabytesPerSecond,
    /// From a local disk.
    pub disk: GigabytesPerSecond,
    /// From elsewhere.
    pub external: GigabytesPerSecond,
}

impl Default for OnboardRates {
    /// A PCIe 5 link shared by two, a fast disk, and a network of 25 Gbit/s.
    fn default() -> Self {
        Self {
            host: GigabytesPerSecond(25.0),
            disk: GigabytesPerSecond(5.0),
            external: GigabytesPerSecond(3.0),
        }
    }
}

/// The parts of the time until a request's first token on a rank, and what it does to others.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Prediction {
    /// Prompts ahead.
    pub queue: f64,
    /// Room in the cache and a place among the sequences.
    pub space: f64,
    /// Until what is booked there and shared has been computed.
    pub sibling: f64,
    /// Until the adapter that it needs has been loaded. What is ahead goes on meanwhile.
    pub load: f64,
    /// Its own prompt, as far as it is not cached.
    pub prefill: f64,
    /// The same on a typical rank: what it is as work for the fleet.
    pub work: f64,
    /// The same by the profile alone.
    pub by_profile: f64,
    /// KV that comes from lower tiers.
    pub onboard: f64,
    /// The share of the rank's cache that is in use.
    pub usage: f64,
    /// What each step costs those that decode: by how much it becomes longer for each of them, and all of it for this one.
    pub decode: f64,
}

impl Prediction {
    /// Until its prompt is begun.
    pub fn wait(&self) -> f64 {
        self.queue.max(self.space).max(self.sibling).max(self.load)
    }

    /// Until its first token.
    pub fn first_token(&self) -> Millis {
        Millis(self.wait() + self.prefill + self.onboard)
    }
}

/// What a rank computes and loads itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Own {
    /// Its prompt by the profile, in milliseconds.
    pub(crate) prefill: f32,
    /// The same on a typical rank of the kind.
    pub(crate) work: f32,
    /// KV from lower tiers.
    pub(crate) onboard: f32,
    /// Blocks at the end of the request that it does not share with others.
    pub(crate) blocks: f32,
}

impl Own {
    pub(crate) const UNKNOWN: Self = Self {
        prefill: f32::NAN,
        work: 0.0,
        onboard: 0.0,
        blocks: 0.0,
    };
}

/// What was worked out for one prompt: it is the same for all ranks of one kind that hold the same.
#[derive(Debug, Default)]
pub struct Memo {
    known: Vec<Cell<Own>>,
}

impl Memo {
    /// Forgets everything. To be called for each prompt.
    pub(crate) fn reset(&mut self, load: &Load, overlap: &Overlap) {
        self.known.clear();
        let needed = load.timings().len() * overlap.combinations().len();
        self.known.resize(needed, Cell::new(Own::UNKNOWN));
    }

    /// Works out everything, by combination and then by kind.
    pub(crate) fn all(&self, scene: &Scene<'_>) -> &[Cell<Own>] {
        for combination in 0..scene.overlap.combinations().len() {
            for kind in 0..scene.load.timings().len() {
                self.own(scene, combination, kind);
            }
        }
        &self.known
    }

    /// What a rank of the first kind computes if it holds nothing.
    #[inline]
    pub(crate) fn nothing_held(&self, scene: &Scene<'_>) -> Own {
        self.own(scene, 0, 0)
    }

    /// What a rank computes and loads itself: prefill by the profile, and onboarding.
    #[inline]
    fn own(&self, scene: &Scene<'_>, combination: usize, kind: usize) -> Own {
        let at = self.known.get(combination * scene.load.timings().len() + kind);
        if let Some(known) = at.map(Cell::get).filter(|known| !known.prefill.is_nan()) {
            return known;
        }
        let depths = &scene.overlap.combinations()[combination];
        let (prefill, onboard) = own_work(scene, kind, depths);
        let own = Own {
            prefill: prefill as f32,
            work: (prefill * scene.load.typical_factor(kind)) as f32,
            onboard: onboard as f32,
            blocks: blocks_at_end(scene).saturating_sub(u64::from(depths.booked)) as f32,
        };
        if let Some(at) = at {
            at.set(own);
        }
        own
    }
}

fn own_work(scene: &Scene<'_>, kind: usize, depths: &Depths) -> (f64, f64) {
    let rates = scene.onboard;
    let Some(timing) = scene.load.timings().get(kind) else {
        return (0.0, 0.0);
    };
    let cached = scene.cached(depths.spared());
    let prefill = match scene.ask.overrides.work {
        PromptWork::Counts => timing.prefill(Tokens(scene.ask.prompt.0 - cached.0), cached).0,
        PromptWork::None => 0.0,
    };
    let tiers = [
        (Tier::Host, rates.host),
        (Tier::Disk, rates.disk),
        (Tier::External, rates.external),
    ];
    let load = |(tier, rate): (Tier, GigabytesPerSecond)| {
        let blocks = depths.only_on(tier);
        if blocks == 0 {
            return 0.0;
        }
        timing.transfer(scene.cached(blocks), rate).0
    };
    (prefill, tiers.into_iter().map(load).sum())
}

/// Blocks that the request will have at its expected end.
fn blocks_at_end(scene: &Scene<'_>) -> u64 {
    let tokens = u64::from(scene.ask.prompt.0) + u64::from(scene.ask.output().0);
    tokens.div_ceil(u64::from(scene.block_tokens()))
}

/// The prediction for one rank.
#[inline]
pub fn predict(scene: &Scene<'_>, place: Place, rank: &RankLoad) -> Prediction {
    let combination = scene.overlap.combination(place);
    let depths = &scene.overlap.combinations()[combination];
    let own = scene.memo.own(scene, combination, rank.kind());
    let sibling = if depths.awaits() {
        scene.overlap.ready(place).since(scene.now).0
    } else {
        0.0
    };
    Prediction {
        queue: rank.backlog(scene.now).0,
        space: rank.space_wait(own.blocks as u64).0,
        sibling,
        load: scene.load_wait(place),
        prefill: f64::from(own.prefill) * rank.present_factor(),
        work: f64::from(own.work),
        by_profile: f64::from(own.prefill),
        onboard: f64::from(own.onboard),
        usage: rank.usage(),
        decode: rank.decode_cost(scene.ask.prompt).0,
    }
}
