//! Whatever happens to an engine, does everything hold that must?
//!
//! Arbitrary configurations and inputs. After every outcome: the engine's own invariants; event numbers; events replayed into
//! the oracle of the index against the content of the pool, copies included; tokens in events against their content hashes; what
//! is staged and what is on its way against a list of what was told. At the end: every request has the answer that an
//! undisturbed run gives, and nothing is left in use.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};

use homing_domain::{
    AdapterName, BlockKey, BlockSize, Blocks, CacheSalt, DpRank, Extras, KvChange, Prompt, RankId, Sequence, Stored,
    Tier, Tokens,
};
use homing_engine::config::{AdapterConfig, Barrier, ChunkedPrefill, Mixing, Order, PrefixCaching, Reserve};
use homing_engine::pool::{CopyRule, TierConfig};
use homing_engine::{
    Bug, Ending, Engine, EngineConfig, EventBatch, Events, Handover, OnFailure, Outcome, Placement, Request, RequestNo,
    Running, Staged, Style, Time,
};
use homing_index::Copies;
use homing_index::testing::Oracle;
use homing_profile::{Constant, GigabytesPerSecond, Millis, Timing};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;

/// Something that happens to an engine. Numbers choose among what there is.
#[derive(Clone, Debug)]
enum Op {
    Submit(Ask),
    Cancel(usize),
    /// Everything that is due by the next wake-up.
    Step,
    /// A driver who comes so many milliseconds later.
    Late(u32),
    Clear(Running),
    Restart,
    /// The KV of a request has come.
    Receive(usize),
    /// It does not come.
    Miss(usize, OnFailure),
    /// Staged blocks are given back.
    Release(usize),
    /// Their lease goes on.
    Renew(usize),
}

#[derive(Clone, Debug)]
struct Ask {
    family: u32,
    length: u32,
    outputs: u32,
    ending: Ending,
    adapter: Option<bool>,
    salted: bool,
    priority: i32,
    rank: Option<u16>,
    handover: Handover,
}

fn handover() -> impl Strategy<Value = Handover> {
    prop_oneof![
        4 => Just(Handover::None),
        1 => (1..60_u32).prop_map(|lease| Handover::Stage { lease: Millis(f64::from(lease)) }),
        1 => Just(Handover::Take),
    ]
}

fn running() -> impl Strategy<Value = Running> {
    prop_oneof![Just(Running::Keep), Just(Running::Preempt)]
}

fn ask() -> impl Strategy<Value = Ask> {
    let ending = prop_oneof![3 => Just(Ending::AtLength), 1 => (2..9_u32).prop_map(Ending::About)];
    let adapter = prop_oneof![4 => Just(None), 1 => any::<bool>().prop_map(Some)];
    let parts = (
        0..4_u32,
        1..28_u32,
        0..40_u32,
        ending,
        adapter,
        prop::bool::weighted(0.1),
        -2..3_i32,
    );
    (parts, prop::option::weighted(0.3, 0..3_u16), handover()).prop_map(|(parts, rank, handover)| {
        let (family, length, outputs, ending, adapter, salted, priority) = parts;
        Ask {
            family,
            length,
            outputs,
            ending,
            adapter,
            salted,
            priority,
            rank,
            handover,
        }
    })
}

fn failure() -> impl Strategy<Value = OnFailure> {
    prop_oneof![Just(OnFailure::Recompute), Just(OnFailure::End)]
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => ask().prop_map(Op::Submit),
        2 => any::<usize>().prop_map(Op::Cancel),
        12 => Just(Op::Step),
        3 => any::<usize>().prop_map(Op::Receive),
        1 => (any::<usize>(), failure()).prop_map(|(which, then)| Op::Miss(which, then)),
        1 => any::<usize>().prop_map(Op::Release),
        1 => any::<usize>().prop_map(Op::Renew),
        1 => (0..40_u32).prop_map(Op::Late),
        1 => running().prop_map(Op::Clear),
        1 => prop::bool::weighted(0.2).prop_map(|restart| if restart { Op::Restart } else { Op::Step }),
    ]
}

fn vllm_style() -> impl Strategy<Value = Style> {
    let order = prop_oneof![Just(Order::Arrival), Just(Order::Priority)];
    (1..40_u32, order, any::<bool>(), any::<bool>(), 0.0..0.4).prop_map(|(tokens, order, chunked, whole, watermark)| {
        Style::Vllm(homing_engine::config::VllmConfig {
            // Without chunks the whole of a sequence must fit.
            max_batched_tokens: Tokens(if chunked { tokens } else { 1_000 }),
            chunked_prefill: if chunked {
                ChunkedPrefill::On
            } else {
                ChunkedPrefill::Off
            },
            order,
            reserve: if whole { Reserve::WholePrompt } else { Reserve::Chunk },
            watermark,
        })
    })
}

fn sglang_style() -> impl Strategy<Value = Style> {
    let order = prop_oneof![Just(Order::Arrival), Just(Order::Priority), Just(Order::LongestPrefix)];
    (4..40_u32, 4..40_u32, order, any::<bool>(), 0.0..0.3, 1..6_u32).prop_map(
        |(input, chunk, order, mixed, ratio, interval)| {
            let config = EngineConfig::sglang(Blocks(1), timing());
            let Style::Sglang(style) = config.style else {
                unreachable!("it is SGLang")
            };
            Style::Sglang(homing_engine::config::SglangConfig {
                max_prefill_tokens: Tokens(input),
                chunk_tokens: Tokens(chunk),
                order,
                mixing: if mixed {
                    Mixing::PrefillWithDecode
                } else {
                    Mixing::PrefillAlone
                },
                new_token_ratio: ratio,
                min_new_token_ratio: 0.0,
                ratio_decay_steps: 5,
                event_interval: interval,
                ..style
            })
        },
    )
}

fn timing() -> Timing {
    Timing::Constant(Constant {
        prefill: Millis(3.0),
        decode: Millis(1.0),
        kv_bytes_per_token: 1_000,
    })
}

fn tiers() -> impl Strategy<Value = Vec<TierConfig>> {
    let one = |tier, capacity| TierConfig {
        tier,
        capacity: Blocks(capacity),
        onboard: GigabytesPerSecond(0.01),
    };
    prop_oneof![
        3 => Just(Vec::new()),
        1 => (1..8_u32, 0..8_u32).prop_map(move |(host, disk)| vec![one(Tier::Host, host), one(Tier::Disk, disk)]),
    ]
}

fn config() -> impl Strategy<Value = EngineConfig> {
    let style = prop_oneof![vllm_style(), sglang_style()];
    let sizes = (1..5_u32, 4..24_u32, 1..6_u32, 1..4_u16);
    (style, sizes, any::<[bool; 3]>(), tiers()).prop_map(|(style, sizes, [barrier, caching, physical], tiers)| {
        let (block_size, blocks, max_running, ranks) = sizes;
        let base = EngineConfig::vllm(Blocks(blocks), timing());
        EngineConfig {
            style,
            block_size: BlockSize::new(block_size).expect("it is not 0"),
            max_model_len: Tokens(blocks * block_size),
            max_running,
            max_waiting: 12,
            ranks,
            barrier: if barrier { Barrier::EachStep } else { Barrier::Off },
            // Most of the time, for nothing much is checked without.
            prefix_caching: if caching || blocks % 4 > 0 {
                PrefixCaching::On
            } else {
                PrefixCaching::Off
            },
            adapters: AdapterConfig {
                slots: 1 + u32::from(ranks % 2),
                load: Millis(5.0),
            },
            copies: if physical { CopyRule::Physical } else { CopyRule::Shared },
            tiers,
            events: Events::WithTokens,
            label_mask: 0xabcd,
            ..base
        }
    })
}

/// What a listener to one rank knows.
struct View {
    oracle: Oracle,
    next: Sequence,
    /// Copies on the device by label.
    copies: HashMap<u64, u32>,
}

impl View {
    fn new(config: &EngineConfig) -> Self {
        let mut oracle = Oracle::new(config.hasher, 10_000);
        oracle.add_rank(RankId::new(0, 0), Copies::Counted);
        Self {
            oracle,
            next: Sequence(0),
            copies: HashMap::new(),
        }
    }

    fn hear(&mut self, config: &EngineConfig, batch: &EventBatch) {
        assert_eq!(batch.batch.sequence, self.next, "numbers are consecutive");
        self.next = self.next.next();
        assert_eq!(batch.batch.changes.len(), batch.tokens.len());
        let rank = RankId::new(0, 0);
        for (change, tokens) in batch.batch.changes.iter().zip(&batch.tokens) {
            match change {
                KvChange::Stored(stored) => {
                    if stored.tier == Tier::Device {
                        check_tokens(config, stored, tokens);
                        for block in &stored.blocks {
                            *self.copies.entry(block.label.get()).or_default() += 1;
                        }
                    }
                    self.oracle.store(rank, stored);
                }
                KvChange::Removed(removed) => {
                    assert_eq!(self.oracle.remove(rank, removed), 0, "{removed:?} was not there");
                    for label in removed.labels.iter().filter(|_| removed.tier == Tier::Device) {
                        let copies = self.copies.get_mut(&label.get()).expect("it was stored");
                        *copies -= 1;
                    }
                }
                KvChange::Cleared(scope) => {
                    self.oracle.clear(rank, *scope);
                    self.copies.clear();
                }
            }
        }
    }

    fn compare(&self, engine: &Engine, rank: DpRank, chains: &[Vec<BlockKey>]) {
        let pool = engine.pool(rank).expect("there is a rank");
        if pool.has_changes() {
            return;
        }
        let mut held: HashMap<u64, u32> = HashMap::new();
        for (key, _) in pool.contents() {
            *held.entry(key.0 ^ engine.config().label_mask).or_default() += 1;
        }
        let mut told = self.copies.clone();
        told.retain(|_, copies| *copies > 0);
        assert_eq!(told, held, "what was told is what is there, copy by copy");
        let below = pool.offloaded().map(|(key, _)| key);
        let anywhere: BTreeSet<BlockKey> = pool.contents().map(|(key, _)| key).chain(below).collect();
        assert_eq!(self.oracle.held_keys(), anywhere, "parents are right");
        let truth = self.oracle.truth();
        for keys in chains {
            let told = truth.lookup(keys)[&RankId::new(0, 0)];
            assert_eq!(told[Tier::Device.index()], pool.leading(keys).0);
        }
    }
}

fn check_tokens(config: &EngineConfig, stored: &Stored, tokens: &[u32]) {
    let size = config.block_size.get() as usize;
    assert_eq!(tokens.len(), stored.blocks.len() * size);
    for (index, (block, tokens)) in stored.blocks.iter().zip(tokens.chunks(size)).enumerate() {
        let first = index == 0 && stored.parent.is_none();
        let extras = Extras {
            adapter: config.hasher.adapter(stored.adapter.as_ref()),
            salt: stored.salt.as_ref().filter(|_| first),
            media: &[],
        };
        assert_eq!(block.content, config.hasher.content(tokens, &extras));
    }
}

struct Live {
    request: Request,
    answer: Vec<u32>,
}

struct World {
    engine: Engine,
    now: Time,
    views: Vec<View>,
    live: HashMap<RequestNo, Live>,
    chains: Vec<Vec<BlockKey>>,
    next_id: u64,
    /// What is held for others, by the list of what was told; with its rank.
    staged: BTreeMap<RequestNo, (DpRank, Staged)>,
    /// Blocks that wait for their KV, with their rank.
    pulling: BTreeMap<RequestNo, (DpRank, Blocks)>,
    /// Requests whose prompts may be computed.
    prefilling: BTreeSet<RequestNo>,
    /// Everything that came of it, for comparing two runs.
    log: Vec<String>,
    reached: Reached,
}

/// How often what is worth a test happened.
#[derive(Clone, Copy, Debug, Default)]
struct Reached {
    hits: usize,
    preemptions: usize,
    evictions: usize,
    copies: usize,
    below: usize,
    clears: usize,
    chunks: usize,
    mixed: usize,
    staged: usize,
    lapsed: usize,
    taken: usize,
}

impl Reached {
    fn note(&mut self, outcome: &Outcome, view: &View) {
        self.hits += outcome
            .admitted
            .iter()
            .filter(|admitted| admitted.cached > Tokens(0))
            .count();
        self.preemptions += outcome.preempted.len();
        self.copies += view.copies.values().filter(|copies| **copies > 1).count();
        self.chunks += usize::from(outcome.prefilled > 0 && outcome.tokens.is_empty());
        self.mixed += usize::from(outcome.prefilled > 0 && outcome.decoded > 0);
        self.staged += outcome.staged.len();
        self.lapsed += outcome.lapsed.len();
        self.taken += outcome.admitted.iter().filter(|admitted| admitted.taken.0 > 0).count();
        for change in outcome.events.iter().flat_map(|batch| &batch.batch.changes) {
            match change {
                KvChange::Stored(stored) => self.below += usize::from(stored.tier != Tier::Device),
                KvChange::Removed(_) => self.evictions += 1,
                KvChange::Cleared(_) => self.clears += 1,
            }
        }
    }

    fn add(&mut self, other: Self) {
        self.hits += other.hits;
        self.preemptions += other.preemptions;
        self.evictions += other.evictions;
        self.copies += other.copies;
        self.below += other.below;
        self.clears += other.clears;
        self.chunks += other.chunks;
        self.mixed += other.mixed;
        self.staged += other.staged;
        self.lapsed += other.lapsed;
        self.taken += other.taken;
    }

    fn least(&self) -> usize {
        let all = [
            self.hits,
            self.preemptions,
            self.evictions,
            self.copies,
            self.below,
            self.clears,
            self.chunks,
            self.mixed,
            self.staged,
            self.lapsed,
            self.taken,
        ];
        all.into_iter().min().unwrap_or(0)
    }
}

/// One of them, if there are any.
fn nth<T>(all: &BTreeMap<RequestNo, T>, which: usize) -> Option<RequestNo> {
    all.keys().nth(which % all.len().max(1)).copied()
}

const ADAPTERS: [&str; 2] = ["a", "b"];

impl World {
    fn new(config: EngineConfig) -> Self {
        let views = (0..config.ranks).map(|_| View::new(&config)).collect();
        let mut engine = Engine::new(config).expect("the configuration is right");
        for name in ADAPTERS {
            engine.load_adapter(&AdapterName::new(name)).expect("there is a slot");
        }
        Self {
            engine,
            now: Time::ZERO,
            views,
            live: HashMap::new(),
            chains: Vec::new(),
            next_id: 0,
            staged: BTreeMap::new(),
            pulling: BTreeMap::new(),
            prefilling: BTreeSet::new(),
            log: Vec::new(),
            reached: Reached::default(),
        }
    }

    fn apply(&mut self, op: &Op) {
        match op {
            Op::Submit(ask) => self.submit(ask),
            Op::Cancel(which) => {
                let mut ids: Vec<RequestNo> = self.live.keys().copied().collect();
                ids.sort_unstable();
                if let Some(id) = ids.get(which % ids.len().max(1)) {
                    assert!(self.engine.cancel(*id));
                    self.live.remove(id);
                }
            }
            Op::Step => {
                if let Some(next) = self.engine.wake_at() {
                    self.now = self.now.max(next);
                }
                self.poll();
            }
            Op::Late(millis) => {
                self.now = self.now + Millis(f64::from(*millis));
                self.poll();
            }
            Op::Clear(running) => {
                let _ = self.engine.clear(*running);
            }
            Op::Restart => {
                let mut lost: Vec<RequestNo> = self.live.drain().map(|(id, _)| id).collect();
                lost.sort_unstable();
                assert_eq!(self.engine.restart(), lost);
                self.staged.clear();
                self.pulling.clear();
                self.views = self.views.iter().map(|_| View::new(self.engine.config())).collect();
            }
            Op::Receive(which) => {
                if let Some(id) = nth(&self.pulling, *which) {
                    assert!(self.engine.received(id));
                    self.pulling.remove(&id);
                }
            }
            Op::Miss(which, then) => {
                if let Some(id) = nth(&self.pulling, *which) {
                    assert!(self.engine.transfer_failed(id, *then));
                    self.pulling.remove(&id);
                    if *then == OnFailure::End {
                        self.live.remove(&id);
                    }
                }
            }
            Op::Release(which) => {
                if let Some(id) = nth(&self.staged, *which) {
                    assert!(self.engine.release(id) && !self.engine.release(id));
                    self.staged.remove(&id);
                }
            }
            Op::Renew(which) => {
                if let Some(id) = nth(&self.staged, *which) {
                    let until = self.now + Millis(20.0);
                    assert!(self.engine.renew(id, until));
                    if let Some((_, staged)) = self.staged.get_mut(&id) {
                        staged.until = until;
                    }
                }
            }
        }
        self.engine.check().expect("all holds");
        self.compare_transit();
    }

    /// What is staged and what is on its way is what was told, rank by rank.
    fn compare_transit(&self) {
        let listed: Vec<Staged> = self.staged.values().map(|(_, staged)| *staged).collect();
        let mut held: Vec<Staged> = self.engine.staged().collect();
        held.sort_unstable_by_key(|staged| staged.request);
        assert_eq!(held, listed);
        for rank in (0..self.engine.config().ranks).map(DpRank) {
            let load = self.engine.load(rank).expect("there is a rank");
            let staged = self.staged.values().filter(|(on, _)| *on == rank);
            assert_eq!(
                load.staged_blocks,
                staged.map(|(_, staged)| staged.blocks.0).sum::<u32>()
            );
            let pulling = self.pulling.values().filter(|(on, _)| *on == rank);
            assert_eq!(load.incoming_blocks, pulling.map(|(_, blocks)| blocks.0).sum::<u32>());
        }
    }

    fn submit(&mut self, ask: &Ask) {
        let config = self.engine.config();
        let request = Request {
            ending: ask.ending,
            seed: u64::from(ask.family),
            adapter: ask.adapter.map(|which| AdapterName::new(ADAPTERS[usize::from(which)])),
            salt: ask.salted.then(|| CacheSalt::new("salt")),
            priority: ask.priority,
            handover: ask.handover,
            placement: ask
                .rank
                .map_or(Placement::Any, |rank| Placement::On(DpRank(rank % config.ranks))),
            ..Request::plain(
                self.next_id,
                crate::support::prompt(ask.family, ask.length),
                ask.outputs,
            )
        };
        self.next_id += 1;
        if self.engine.submit(request.clone()).is_ok() {
            self.live.insert(
                request.id,
                Live {
                    request,
                    answer: Vec::new(),
                },
            );
        }
    }

    fn poll(&mut self) {
        let mut outcome = Outcome::default();
        while self.engine.poll(self.now, &mut outcome) {
            assert!(outcome.at <= self.now && outcome.started <= outcome.at);
            self.take(&outcome);
            self.log.push(format!("{outcome:?}"));
        }
    }

    fn take(&mut self, outcome: &Outcome) {
        self.engine.check().expect("all holds");
        let block_size = self.engine.config().block_size.get();
        for admitted in &outcome.admitted {
            let most = (admitted.prompt.0 - 1) / block_size * block_size;
            let most = if admitted.taken.0 > 0 {
                admitted.prompt.0 - 1
            } else {
                most
            };
            assert!(
                admitted.cached.0 <= most,
                "{admitted:?}: at least one token is computed"
            );
            if admitted.taken.0 == 0 {
                self.prefilling.insert(admitted.request);
            }
        }
        self.prefilling.extend(&outcome.preempted);
        assert!(
            outcome.prefilled == 0 || !self.prefilling.is_empty(),
            "what was taken over is computed anew"
        );
        self.take_transit(outcome);
        for output in &outcome.tokens {
            // A request that was cancelled says nothing any more.
            let live = self.live.get_mut(&output.request).expect("it is not over");
            live.answer.push(output.token);
            self.prefilling.remove(&output.request);
        }
        // A clearing at the end of a step takes blocks from those who spoke in it.
        self.prefilling.extend(&outcome.preempted);
        for finished in &outcome.finished {
            let live = self.live.remove(&finished.request).expect("it is not over");
            assert_eq!(finished.generated.0 as usize, live.answer.len());
            self.judge(&live);
        }
        let view = &mut self.views[usize::from(outcome.rank.0)];
        if let Some(batch) = &outcome.events {
            view.hear(self.engine.config(), batch);
        }
        view.compare(&self.engine, outcome.rank, &self.chains);
        self.reached.note(outcome, view);
        assert!(outcome.load.blocks.active <= outcome.load.blocks.total);
    }

    fn take_transit(&mut self, outcome: &Outcome) {
        for staged in &outcome.staged {
            assert!(
                outcome
                    .finished
                    .iter()
                    .any(|finished| finished.request == staged.request)
            );
            self.staged.insert(staged.request, (outcome.rank, *staged));
        }
        for lapsed in &outcome.lapsed {
            let (_, staged) = self.staged.remove(lapsed).expect("it was staged");
            assert_eq!(staged.until, outcome.at, "a lease ends when it ends");
        }
        for reserved in &outcome.reserved {
            assert!(self.live.contains_key(&reserved.request) && reserved.missing.0 > 0);
            self.pulling.insert(reserved.request, (outcome.rank, reserved.blocks));
        }
    }

    /// An answer is that of an undisturbed run.
    fn judge(&mut self, live: &Live) {
        let request = &live.request;
        let limit = self.engine.config().max_model_len.0 - request.prompt.len() as u32;
        let undisturbed = EngineConfig::vllm(Blocks(100), timing());
        let mut alone = crate::support::Driver::new(undisturbed);
        alone.submit(Request {
            max_tokens: Tokens(request.max_tokens.0.min(limit)),
            adapter: None,
            placement: Placement::Any,
            handover: Handover::None,
            ..request.clone()
        });
        alone.run();
        let expected = alone.answers.remove(&request.id).unwrap_or_default();
        assert_eq!(live.answer, expected, "{request:?}");
        let mut tokens = request.prompt.to_vec();
        tokens.extend(&live.answer);
        let prompt = Prompt {
            adapter: request.adapter.as_ref(),
            salt: request.salt.as_ref(),
            ..Prompt::text(&tokens, self.engine.config().block_size)
        };
        let mut keys = Vec::new();
        self.engine.config().hasher.keys(&prompt, &mut keys);
        self.chains.push(keys);
    }

    /// All that was taken comes to an end, and nothing is left in use.
    fn end(&mut self) {
        for _ in 0..5_000 {
            self.poll();
            self.compare_transit();
            if !self.pulling.is_empty() {
                self.apply(&Op::Receive(0));
                continue;
            }
            let Some(next) = self.engine.wake_at() else { break };
            self.now = self.now.max(next);
        }
        assert!(self.live.is_empty(), "{} requests never end", self.live.len());
        assert_eq!(self.engine.live(), 0);
        for rank in 0..self.engine.config().ranks {
            assert_eq!(
                self.engine.load(DpRank(rank)).expect("there is a rank").blocks.active,
                0
            );
        }
    }
}

fn run(config: EngineConfig, ops: &[Op]) -> World {
    let mut world = World::new(config);
    for op in ops {
        world.apply(op);
    }
    world.end();
    world
}

/// The property below would be worth little if nothing happened in it.
#[test]
fn what_is_worth_a_test_happens() {
    for style in [vllm_style().boxed(), sglang_style().boxed()] {
        let mut runner = TestRunner::deterministic();
        let mut reached = Reached::default();
        for _ in 0..300 {
            let draw = (config(), style.clone(), prop::collection::vec(op(), 1..60));
            let (config, style, ops) = draw.new_tree(&mut runner).expect("it can be drawn").current();
            reached.add(run(EngineConfig { style, ..config }, &ops).reached);
        }
        assert!(reached.least() >= 20, "{reached:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn whatever_happens_everything_holds(config in config(), ops in prop::collection::vec(op(), 1..60)) {
        run(config, &ops);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(50))]

    #[test]
    fn the_same_inputs_give_the_same_outcomes(config in config(), ops in prop::collection::vec(op(), 1..60)) {
        prop_assert_eq!(run(config.clone(), &ops).log, run(config, &ops).log);
    }
}

#[test]
fn every_planted_bug_is_found() {
    for bug in Bug::ALL {
        let mut runner = TestRunner::new(ProptestConfig {
            cases: 2_000,
            failure_persistence: None,
            max_shrink_iters: 0,
            ..ProptestConfig::default()
        });
        let inputs = (config(), prop::collection::vec(op(), 1..60));
        let found = runner.run(&inputs, |(config, ops)| {
            let buggy = EngineConfig {
                bug: Some(bug),
                ..config
            };
            let survived = catch_unwind(AssertUnwindSafe(|| run(buggy, &ops))).is_ok();
            prop_assert!(survived);
            Ok(())
        });
        assert!(found.is_err(), "{bug:?} was not found");
    }
}
