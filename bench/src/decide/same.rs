//! Does the policy `blocks` choose as dynamo's own selector does? Both get the same random states: requests booked in both tables
//! of active sequences, overlaps on three tiers, labels that are preferred.
//!
//! Where several ranks cost the same, both draw, each from its own chance: then dynamo's choice must be one of those that cost
//! the least with us, and it is counted apart.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use dynamo_kv_router::indexer::{MatchDetails, TieredMatchDetails};
use dynamo_kv_router::protocols::{
    PrefillLoadHint, RoutingConstraints, StorageTier, WorkerConfigLike, WorkerId, WorkerWithDpRank,
};
use dynamo_kv_router::scheduling::overlap::OverlapAnalysis;
use dynamo_kv_router::{
    ActiveSequencesMultiWorker, DefaultWorkerSelector, KvRouterConfig, NoopSequencePublisher, RouterConfigOverride,
    SchedulingRequest, SequenceRequest, WorkerSelectionInput, WorkerSelector,
};
use homing_domain::{BlockKey, BlockSize, ModelName, RankId, RequestId, Tokens};
use homing_load::{Booking, Load, LoadConfig, Place, PromptWork, RankSpec};
use homing_profile::{Polynomial, Time, Timing};
use homing_scheduler::policy::BlockCost;
use homing_scheduler::{
    Ask, Candidate, Depths, Draw, Fleet, Label, Overlap, Overrides, Phase, RankFacts, Room, Scheduler, View, Wanted,
};
use tokio::time::Instant;

use super::peer::request;
use super::traffic::BLOCK_TOKENS;
use crate::rng::Rng;

const STATES: u64 = 10_000;
const SIZE: BlockSize = BlockSize::new(BLOCK_TOKENS as u32).expect("not zero");

struct Worker(HashSet<String>);

impl WorkerConfigLike for Worker {
    fn data_parallel_start_rank(&self) -> u32 {
        0
    }

    fn data_parallel_size(&self) -> u32 {
        1
    }

    fn max_num_batched_tokens(&self) -> Option<u64> {
        None
    }

    fn total_kv_blocks(&self) -> Option<u64> {
        None
    }

    fn taints(&self) -> &HashSet<String> {
        &self.0
    }
}

/// A random state and a request.
struct State {
    ranks: usize,
    /// Rank, family of the prompt, its blocks, tokens not cached, whether it decodes.
    live: Vec<(usize, usize, usize, usize, bool)>,
    /// Blocks on the device, then only on the host, then only on the disk.
    held: Vec<[u32; 3]>,
    labels: Vec<Vec<usize>>,
    preferred: Vec<(usize, f32)>,
    family: usize,
    tokens: usize,
    config: KvRouterConfig,
    overrides: RouterConfigOverride,
    work: PromptWork,
}

impl State {
    fn draw(rng: &mut Rng) -> Self {
        let ranks = rng.between(1, 24);
        let tokens = rng.between(1, 6_000);
        let blocks = (tokens / BLOCK_TOKENS) as u32;
        // Few different values make ties; many make none.
        let coarse = rng.chance(0.3);
        let live = (0..rng.below(ranks * 4)).map(|_| {
            let blocks = if coarse { 64 } else { rng.between(1, 300) };
            let uncached = rng.below(blocks * BLOCK_TOKENS + 1);
            let uncached = if coarse { 512 } else { uncached };
            (rng.below(ranks), rng.below(4), blocks, uncached, rng.chance(0.6))
        });
        let live = live.collect();
        let mut part = |left: &mut u32, share: f64| {
            let some = if rng.chance(share) {
                rng.below(*left as usize + 1) as u32
            } else {
                0
            };
            *left -= some;
            some
        };
        let held = (0..ranks).map(|_| {
            let mut left = blocks;
            [part(&mut left, 0.5), part(&mut left, 0.2), part(&mut left, 0.2)]
        });
        let held = held.collect();
        let weight = |rng: &mut Rng| rng.below(400) as f64 / 100.0;
        let config = KvRouterConfig {
            overlap_score_credit: if rng.chance(0.5) { 1.0 } else { weight(rng) / 4.0 },
            overlap_score_credit_decay: if rng.chance(0.5) { 0.0 } else { weight(rng) },
            prefill_load_scale: if rng.chance(0.5) { 1.0 } else { weight(rng) },
            decode_active_request_weight: if rng.chance(0.5) { 0.0 } else { weight(rng) },
            ..KvRouterConfig::default()
        };
        Self {
            ranks,
            live,
            held,
            labels: (0..ranks)
                .map(|_| (0..3).filter(|_| rng.chance(0.4)).collect())
                .collect(),
            preferred: (0..3)
                .filter(|_| rng.chance(0.1))
                .map(|label| (label, 0.5 - label as f32 * 0.4))
                .collect(),
            family: rng.below(4),
            tokens,
            config,
            overrides: RouterConfigOverride {
                overlap_score_credit: rng.chance(0.1).then_some(0.25),
                prefill_load_scale: rng.chance(0.1).then_some(2.0),
                ..RouterConfigOverride::default()
            },
            work: if rng.chance(0.1) {
                PromptWork::None
            } else {
                PromptWork::Counts
            },
        }
    }

    /// Names of the blocks of a prompt: those of one family begin alike.
    fn names(family: usize, blocks: usize) -> Vec<u64> {
        (0..blocks as u64).map(|at| (family as u64 + 1) << 32 | at).collect()
    }

    fn label(number: usize) -> String {
        format!("l{number}")
    }

    /// What dynamo's selector chooses.
    fn theirs(&self, seed: u64) -> u64 {
        let ranges = (0..self.ranks as u64).map(|worker| (worker, (0, 1))).collect();
        let sequences =
            ActiveSequencesMultiWorker::new(NoopSequencePublisher, BLOCK_TOKENS, ranges, false, 0, "aggregated");
        for (at, (rank, family, blocks, uncached, decoding)) in self.live.iter().enumerate() {
            let id = at.to_string();
            let live = SequenceRequest {
                request_id: id.clone(),
                token_sequence: Some(Self::names(*family, *blocks)),
                track_prefill_tokens: true,
                expected_output_tokens: None,
                prefill_load_hint: Some(PrefillLoadHint {
                    initial_effective_prefill_tokens: *uncached,
                    expected_prefill_duration: None,
                }),
                worker: WorkerWithDpRank::new(*rank as u64, 0),
                lora_name: None,
            };
            sequences.add_request(live, Instant::now()).unwrap();
            if *decoding {
                sequences.mark_prefill_completed(&id, Instant::now()).unwrap();
            }
        }
        let mut request = self.request();
        request.worker_loads = sequences.project_worker_loads(request.token_seq.as_deref(), Instant::now());
        let worker = |rank: usize| Worker(self.labels[rank].iter().map(|label| Self::label(*label)).collect());
        let workers: HashMap<WorkerId, Worker> = (0..self.ranks).map(|rank| (rank as u64, worker(rank))).collect();
        let selector = DefaultWorkerSelector::new_seeded(Some(self.config.clone()), "aggregated", seed);
        let input = WorkerSelectionInput::configured(&workers, &request, request.eligibility(), BLOCK_TOKENS as u32);
        selector.select_worker(input).unwrap().worker.worker_id
    }

    fn request(&self) -> SchedulingRequest {
        let mut tiered = TieredMatchDetails {
            device: MatchDetails::default(),
            ..TieredMatchDetails::default()
        };
        for (rank, held) in self.held.iter().enumerate() {
            let worker = WorkerWithDpRank::new(rank as u64, 0);
            if held[0] > 0 {
                tiered.device.overlap_scores.scores.insert(worker, held[0]);
            }
            for (tier, blocks) in [(StorageTier::HostPinned, held[1]), (StorageTier::Disk, held[2])] {
                let details = tiered.lower_tier.entry(tier).or_default();
                details.hits.insert(worker, blocks as usize);
            }
        }
        let overlap = OverlapAnalysis::new(&self.config, BLOCK_TOKENS as u32, &tiered).signals();
        let mut request = request(
            self.tokens,
            Self::names(self.family, self.tokens / BLOCK_TOKENS),
            overlap,
        );
        request.track_prefill_tokens = self.work == PromptWork::Counts;
        request.router_config_override = Some(self.overrides.clone());
        request.routing_constraints = RoutingConstraints {
            preferred_taints: self
                .preferred
                .iter()
                .map(|(label, weight)| (Self::label(*label), *weight))
                .collect(),
            ..RoutingConstraints::default()
        };
        request
    }

    /// What `blocks` makes of it: the choice, and all candidates with their costs.
    fn ours(&self, draw: u64) -> (u64, Vec<Candidate>) {
        let mut load = Load::new(LoadConfig::new(SIZE));
        let (mut fleet, mut overlap) = (Fleet::default(), Overlap::default());
        let model = ModelName::from("m");
        let names = |label: &usize| Label::new(&Self::label(*label), "");
        for rank in 0..self.ranks {
            let id = RankId::new(rank as u32, 0);
            let spec = RankSpec::new(id, Timing::Polynomial(Polynomial::default()));
            let place = load.add_rank(spec, Time::ZERO).unwrap();
            let mut facts = RankFacts::new(id, model.clone());
            facts.labels = self.labels[rank].iter().map(names).collect();
            fleet.set(place, facts);
            let [device, host, disk] = self.held[rank];
            let tiers = [device, device + host, device + host + disk, device + host + disk];
            overlap.set(place, Depths { tiers, booked: 0 });
        }
        let keys =
            |family, blocks| -> Vec<BlockKey> { Self::names(family, blocks).into_iter().map(BlockKey).collect() };
        for (at, (rank, family, blocks, uncached, decoding)) in self.live.iter().enumerate() {
            let tokens = Tokens((blocks * BLOCK_TOKENS) as u32);
            let booking = Booking {
                id: RequestId::new(at.to_string()),
                place: Place(*rank as u32),
                prompt: tokens,
                cached: Tokens(tokens.0.saturating_sub(*uncached as u32)),
                keys: Arc::from(keys(*family, *blocks)),
                expected_output: Tokens(0),
                adapter: None,
                work: PromptWork::Counts,
            };
            let ticket = load.book(booking, Time::ZERO).unwrap();
            if *decoding {
                load.prefill_done(ticket, Time::ZERO);
            }
        }
        let keys = keys(self.family, self.tokens / BLOCK_TOKENS);
        overlap.take_booked(&load, &keys);
        let preferred = self
            .preferred
            .iter()
            .map(|(label, weight)| (names(label), f64::from(*weight)));
        let wanted = Wanted {
            preferred: preferred.collect(),
            ..Wanted::default()
        };
        let ask = Ask {
            model: &model,
            phase: Phase::Whole,
            prompt: Tokens(self.tokens as u32),
            keys: &keys,
            expected_output: Tokens(0),
            adapter: None,
            session: None,
            wanted: &wanted,
            overrides: Overrides {
                overlap_credit: self.overrides.overlap_score_credit,
                prefill_scale: self.overrides.prefill_load_scale,
                work: self.work,
                ..Overrides::default()
            },
        };
        let view = View {
            now: Time::ZERO,
            fleet: &fleet,
            load: &load,
            overlap: &overlap,
        };
        let mut scheduler = Scheduler::new(Box::new(BlockCost {
            overlap_credit: self.config.overlap_score_credit,
            credit_decay: self.config.overlap_score_credit_decay,
            prefill_scale: self.config.prefill_load_scale,
            request_weight: self.config.decode_active_request_weight,
            ..BlockCost::default()
        }));
        // What we hold back of new ranks and of those that are stuck is ours, and no part of the policy.
        (scheduler.name_others, scheduler.unverified_bookings) = (self.ranks, u32::MAX);
        let decision = scheduler.decide(&view, &ask, Draw(draw), &mut Room::default()).unwrap();
        let chosen = u64::from(decision.chosen.rank.worker.0);
        let mut all = decision.others;
        all.push(decision.chosen);
        (chosen, all)
    }
}

#[test]
fn blocks_chooses_as_dynamo_does() {
    let mut rng = Rng::new(0x5a3e);
    let (mut same, mut ties) = (0, 0);
    for seed in 0..STATES {
        let state = State::draw(&mut rng);
        let theirs = state.theirs(seed);
        let (ours, candidates) = state.ours(seed);
        let cost = |worker: u64| {
            candidates
                .iter()
                .find(|of| u64::from(of.rank.worker.0) == worker)
                .map(|of| of.cost)
        };
        let least = candidates.iter().map(|of| of.cost).fold(f64::INFINITY, f64::min);
        assert_eq!(candidates.len(), state.ranks);
        assert_eq!(cost(ours), Some(least), "state {seed}");
        assert_eq!(
            cost(theirs),
            Some(least),
            "state {seed}: {theirs} and not {ours}: {candidates:#?}"
        );
        let equal = candidates.iter().filter(|of| of.cost.total_cmp(&least).is_eq()).count();
        match equal {
            1 => same += 1,
            _ => ties += 1,
        }
    }
    println!(
        "{STATES} states: {same} with one best rank, chosen by both; {ties} with several, of which both chose one"
    );
    assert!(same > STATES / 2 && ties > 0, "{same} {ties}");
}
