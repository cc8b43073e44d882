//! Which policies are there, and how is one added?
//!
//! A policy gives each eligible rank a cost and picks one; less is better. `docs/policies.md` says what each weighs and where
//! its defaults come from. Someone else's policy implements [`Policy`] and is handed to [`crate::Scheduler::new`].
//!
//! **Invariant:** [`Policy::cost`] and [`Policy::pick`] change nothing. Only [`Policy::committed`] does, once for each choice
//! that was carried out.

mod affinity;
mod blocks;
mod costs;
pub mod predict;
mod simple;
mod spec;
mod sticky;
mod threshold;
mod time;
mod weighted;

use std::fmt;

use homing_domain::{Blocks, Tokens};
use homing_load::{Load, Place, RankLoad};
use homing_profile::Time as Moment;

use crate::ask::Ask;
use crate::bits::Bits;
use crate::chance::Draw;
use crate::decision::Terms;
use crate::fleet::Fleet;
use crate::overlap::Overlap;
use crate::policy::predict::{Memo, OnboardRates};

pub use affinity::PrefixAffinity;
pub use blocks::BlockCost;
pub use costs::{Costs, bounds, pick_with, pick_within};
pub use simple::{Direct, LeastLoaded, Random, RoundRobin, TwoChoices};
pub use spec::{PolicyError, by_spec};
pub use sticky::Sticky;
pub use threshold::CacheThreshold;
pub use time::PredictedTime;
pub use weighted::Weighted;

/// What a policy sees of one decision.
#[derive(Clone, Copy, Debug)]
pub struct Scene<'a> {
    /// The moment.
    pub now: Moment,
    /// What is asked.
    pub ask: &'a Ask<'a>,
    /// Who exists.
    pub fleet: &'a Fleet,
    /// What they do.
    pub load: &'a Load,
    /// What of the prompt lies where.
    pub overlap: &'a Overlap,
    /// Who passed the filter.
    pub eligible: &'a Bits,
    /// The chance that may be used.
    pub draw: Draw,
    /// How busy the fleet has been lately, from 0 to 1.
    pub utilisation: f64,
    /// How fast KV comes from tiers below the device.
    pub onboard: &'a OnboardRates,
    /// What was worked out for this prompt.
    pub memo: &'a Memo,
}

impl<'a> Scene<'a> {
    /// Those who passed the filter, with their load.
    #[inline]
    pub fn candidates(&self) -> impl Iterator<Item = (Place, &'a RankLoad)> + use<'a> {
        let ranks = self.load.ranks();
        self.eligible
            .places()
            .filter_map(move |place| Some((place, ranks.get(place.index())?)))
    }

    /// Until a rank has the adapter that is asked for, in milliseconds; nothing if it has it.
    #[inline]
    pub fn load_wait(&self, place: Place) -> f64 {
        let ready = self.fleet.opening(self.ask.adapter, place);
        ready.map_or(0.0, |ready| ready.wait(self.now).0)
    }

    /// Tokens in a block.
    pub fn block_tokens(&self) -> u32 {
        self.load.config().block_size.get()
    }

    /// Tokens of the prompt that a rank with so many leading blocks does not compute.
    pub fn cached(&self, blocks: u32) -> Tokens {
        self.load.config().block_size.reused(self.ask.prompt, Blocks(blocks))
    }

    /// Blocks of the prompt, the last of which need not be full.
    pub fn prompt_blocks(&self) -> u32 {
        self.ask.prompt.0.div_ceil(self.block_tokens())
    }
}

/// A way to choose.
pub trait Policy: fmt::Debug + Send {
    /// What it is called in settings, reports and metrics.
    fn name(&self) -> &'static str;

    /// The unit of its costs.
    fn unit(&self) -> &'static str {
        "points"
    }

    /// Whether it looks at cached prefixes. If no policy does, nothing need be looked up.
    fn uses_overlap(&self) -> bool {
        false
    }

    /// Whether it chooses nothing by itself, so that a request must name its worker.
    fn needs_pin(&self) -> bool {
        false
    }

    /// Whether its costs contain the time that it takes to load an adapter. For one that does not, a rank that would have to load it is
    /// no candidate while there is one that has it.
    fn weighs_loads(&self) -> bool {
        false
    }

    /// Gives every candidate a cost: finite, not negative, less is better.
    fn cost(&self, scene: &Scene<'_>, costs: &mut Costs);

    /// Picks one of the candidates. By default one of the least cost, or by temperature if the request has one.
    fn pick(&self, scene: &Scene<'_>, costs: &Costs) -> Option<Place> {
        pick_with(scene, costs, scene.ask.overrides.temperature.unwrap_or(0.0))
    }

    /// The parts of a rank's cost, for reports.
    fn terms(&self, scene: &Scene<'_>, place: Place, terms: &mut Terms);

    /// A choice of this policy was carried out.
    fn committed(&mut self, _ask: &Ask<'_>, _chosen: Place, _now: Moment) {}

    /// The rank at a place is gone; another may get the place.
    fn rank_gone(&mut self, _place: Place) {}
}

/// The policies that come with Homing, by name.
pub const NAMES: [&str; 11] = [
    "time",
    "blocks",
    "prefix-affinity",
    "cache-threshold",
    "weighted",
    "least-loaded",
    "p2c",
    "round-robin",
    "random",
    "sticky",
    "direct",
];

/// There is no policy of this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no policy `{name}`; there are {}", NAMES.join(", "))]
pub struct UnknownPolicy {
    /// The name.
    pub name: String,
}

/// A policy with its defaults.
pub fn by_name(name: &str) -> Result<Box<dyn Policy>, UnknownPolicy> {
    Ok(match name {
        "time" => Box::new(PredictedTime::default()),
        "blocks" => Box::new(BlockCost::default()),
        "prefix-affinity" => Box::new(PrefixAffinity::default()),
        "cache-threshold" => Box::new(CacheThreshold::default()),
        "weighted" => Box::new(Weighted::default()),
        "least-loaded" => Box::new(LeastLoaded),
        "p2c" => Box::new(TwoChoices),
        "round-robin" => Box::new(RoundRobin::default()),
        "random" => Box::new(Random),
        "sticky" => Box::new(Sticky::default()),
        "direct" => Box::new(Direct),
        other => return Err(UnknownPolicy { name: other.to_owned() }),
    })
}
