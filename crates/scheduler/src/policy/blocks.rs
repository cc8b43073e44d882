//! Which rank has the fewest blocks to compute and to keep? The cost that Dynamo documents.

use homing_domain::Tier;
use homing_load::{Place, PromptWork, RankLoad};

use crate::decision::Terms;
use crate::policy::{Costs, Policy, Scene, pick_with};

/// The policy `blocks`. It computes in the order in which Dynamo does, so that what is equal there is equal here: a test in
/// `bench/` compares the choices. Defaults are those of Dynamo's `KvRouterConfig` (1.6.1).
#[derive(Clone, Copy, Debug)]
pub struct BlockCost {
    /// What a cached block on the device is worth.
    pub overlap_credit: f64,
    /// By how much that falls with the prefill backlog beyond the least one, in prompts like this one.
    pub credit_decay: f64,
    /// What a block on the host is worth.
    pub host_weight: f64,
    /// What a block on a disk or elsewhere is worth.
    pub disk_weight: f64,
    /// What prefill weighs against blocks in use.
    pub prefill_scale: f64,
    /// What a request in flight weighs, in blocks.
    pub request_weight: f64,
    /// How far from the least the choice may be.
    pub temperature: f64,
}

impl Default for BlockCost {
    fn default() -> Self {
        Self {
            overlap_credit: 1.0,
            credit_decay: 0.0,
            host_weight: 0.75,
            disk_weight: 0.25,
            prefill_scale: 1.0,
            request_weight: 0.0,
            temperature: 0.0,
        }
    }
}

/// The parts of the cost.
struct Parts {
    prefill: f64,
    decode: f64,
    requests: f64,
}

impl BlockCost {
    fn parts(&self, scene: &Scene<'_>, place: Place, rank: &RankLoad, least_pending: u64) -> Parts {
        let depths = scene.overlap.depths(place);
        let (device, host) = (f64::from(depths.device()), f64::from(depths.only_on(Tier::Host)));
        let disk = f64::from(depths.only_on(Tier::Disk)) + f64::from(depths.only_on(Tier::External));
        let size = f64::from(scene.block_tokens());
        let prefill = match scene.ask.overrides.work {
            PromptWork::None => 0.0,
            PromptWork::Counts => {
                let pending = rank.pending_tokens();
                let ahead = (pending - least_pending) as f64 / size / f64::from(scene.prompt_blocks().max(1));
                let full = scene.ask.overrides.overlap_credit.unwrap_or(self.overlap_credit);
                let credit = full * (1.0 / (1.0 + self.credit_decay * ahead));
                let prompt = f64::from(scene.ask.prompt.0);
                let cached = ((device + self.host_weight * host + self.disk_weight * disk) * size).round();
                let raw = (pending as f64 + (prompt - cached).max(0.0) + cached) / size;
                let spared = credit * device + self.host_weight * host + self.disk_weight * disk;
                let scale = scene.ask.overrides.prefill_scale.unwrap_or(self.prefill_scale);
                scale * (raw - spared).max(0.0)
            }
        };
        let active = rank.prompt_blocks() as f64 + rank.fading_output_blocks().round();
        let new = scene.ask.keys.len() as f64 - f64::from(depths.booked);
        Parts {
            prefill,
            decode: active + new.max(0.0),
            requests: self.request_weight * f64::from(rank.requests()),
        }
    }

    /// It matters only where the credit decays.
    fn least_pending(&self, scene: &Scene<'_>) -> u64 {
        if self.credit_decay == 0.0 {
            return 0;
        }
        scene
            .candidates()
            .map(|(_, rank)| rank.pending_tokens())
            .min()
            .unwrap_or(0)
    }
}

impl Policy for BlockCost {
    fn name(&self) -> &'static str {
        "blocks"
    }

    fn unit(&self) -> &'static str {
        "blocks"
    }

    fn uses_overlap(&self) -> bool {
        true
    }

    fn cost(&self, scene: &Scene<'_>, costs: &mut Costs) {
        let least = self.least_pending(scene);
        for (place, rank) in scene.candidates() {
            let parts = self.parts(scene, place, rank, least);
            costs.set(place, parts.prefill + parts.decode + parts.requests);
        }
    }

    fn pick(&self, scene: &Scene<'_>, costs: &Costs) -> Option<Place> {
        let temperature = scene.ask.overrides.temperature.unwrap_or(self.temperature);
        pick_with(scene, costs, temperature)
    }

    fn terms(&self, scene: &Scene<'_>, place: Place, terms: &mut Terms) {
        let Some(rank) = scene.load.rank(place) else { return };
        let parts = self.parts(scene, place, rank, self.least_pending(scene));
        terms.add("prefill", parts.prefill);
        terms.add("decode", parts.decode);
        terms.add("requests", parts.requests);
    }
}
