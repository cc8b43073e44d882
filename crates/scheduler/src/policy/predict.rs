//! How long would this request take there? The same prediction for all policies: the policy `time` chooses by it, the others
//! are reported with it.

use std::cell::RefCell;

use homing_domain::{Tier, Tokens};
use homing_load::{Place, PromptWork, RankLoad};
use homing_profile::{GigabytesPerSecond, Millis};

use crate::overlap::Depths;
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
    /// Its own prompt, as far as it is not cached.
    pub prefill: f64,
    /// KV that comes from lower tiers.
    pub onboard: f64,
    /// By how much each step of those that decode becomes longer, times their number.
    pub decode: f64,
}

impl Prediction {
    /// Until its prompt is begun.
    pub fn wait(&self) -> f64 {
        self.queue.max(self.space).max(self.sibling)
    }

    /// Until its first token.
    pub fn first_token(&self) -> Millis {
        Millis(self.wait() + self.prefill + self.onboard)
    }
}

/// What was worked out for one prompt: it is the same for all ranks of one kind that hold the same.
#[derive(Debug, Default)]
pub struct Memo {
    known: RefCell<Vec<(f32, f32)>>,
}

impl Memo {
    /// Forgets everything. To be called for each prompt.
    pub(crate) fn reset(&self, scene: &Scene<'_>) {
        let mut known = self.known.borrow_mut();
        known.clear();
        let needed = scene.load.timings().len() * scene.overlap.combinations().len();
        known.resize(needed, (f32::NAN, 0.0));
    }

    /// What a rank computes and loads itself: prefill by the profile, and onboarding.
    #[inline]
    fn own(&self, scene: &Scene<'_>, place: Place, rank: &RankLoad) -> (f64, f64) {
        let combination = scene.overlap.combination(place);
        let at = combination * scene.load.timings().len() + rank.kind();
        let known = self.known.borrow().get(at).copied().unwrap_or((f32::NAN, 0.0));
        if !known.0.is_nan() {
            return (f64::from(known.0), f64::from(known.1));
        }
        let own = own_work(scene, rank.kind(), &scene.overlap.combinations()[combination]);
        if let Some(place) = self.known.borrow_mut().get_mut(at) {
            *place = (own.0 as f32, own.1 as f32);
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
pub fn blocks_at_end(scene: &Scene<'_>) -> u64 {
    let tokens = u64::from(scene.ask.prompt.0) + u64::from(scene.ask.output().0);
    tokens.div_ceil(u64::from(scene.block_tokens()))
}

/// The prediction for one rank, of a request that will have `blocks` at its end.
#[inline]
pub fn predict(scene: &Scene<'_>, place: Place, rank: &RankLoad, blocks: u64) -> Prediction {
    let own = scene.memo.own(scene, place, rank);
    let depths = scene.overlap.depths(place);
    let sibling = if depths.booked > depths.anywhere() {
        scene.overlap.ready(place).since(scene.now).0
    } else {
        0.0
    };
    Prediction {
        queue: rank.backlog(scene.now).0,
        space: rank.space_wait(blocks.saturating_sub(u64::from(depths.booked))).0,
        sibling,
        prefill: own.0 * rank.factor(),
        onboard: own.1,
        decode: f64::from(rank.decoding()) * rank.decode_increase(scene.ask.prompt).0,
    }
}
