//! What dynamo's router does for a request, without its runtime: its load projection, its default selector, its table of active
//! sequences and its concurrent radix tree, called one after the other on the caller's thread.
//!
//! In its own router these run in one actor behind a channel, and its selection service adds more; neither is measured here.

use std::collections::HashMap;

use dynamo_kv_router::indexer::{MatchDetails, TieredMatchDetails};
use dynamo_kv_router::protocols::{
    BlockHashOptions, ExternalSequenceBlockHash, KvCacheEvent, KvCacheEventData, KvCacheStoreData,
    KvCacheStoredBlockData, LocalBlockHash, PrefillLoadHint, RouterEvent, RoutingConstraints, WorkerConfigLike,
    WorkerId, WorkerWithDpRank, compute_block_hash_for_seq, compute_seq_hash_for_block,
};
use dynamo_kv_router::scheduling::overlap::OverlapAnalysis;
use dynamo_kv_router::scheduling::{OverlapSignals, ScheduleMode};
use dynamo_kv_router::{
    ActiveSequencesMultiWorker, DefaultWorkerSelector, KvRouterConfig, NoopSequencePublisher, SchedulingRequest,
    SequenceRequest, WorkerLoadProjection, WorkerSelectionInput, WorkerSelector,
};
use rustc_hash::FxHashMap;
use tokio::time::Instant;

use crate::contender::Index as _;
use crate::dynamo::Tree;

use super::traffic::{BLOCK_TOKENS, Traffic};
use super::{Contender, Seat, Work};

/// How tables call it.
pub const DYNAMO: &str = "dynamo";

/// A worker of one rank.
struct Worker {
    blocks: u64,
}

impl WorkerConfigLike for Worker {
    fn data_parallel_start_rank(&self) -> u32 {
        0
    }

    fn data_parallel_size(&self) -> u32 {
        1
    }

    fn max_num_batched_tokens(&self) -> Option<u64> {
        Some(8_192)
    }

    fn total_kv_blocks(&self) -> Option<u64> {
        Some(self.blocks)
    }
}

/// A fleet at work.
pub struct Dynamo<'a> {
    traffic: &'a Traffic,
    config: KvRouterConfig,
    workers: HashMap<WorkerId, Worker>,
    selector: DefaultWorkerSelector,
    sequences: ActiveSequencesMultiWorker<NoopSequencePublisher>,
    tree: Tree,
}

/// What a thread keeps to itself.
struct Side<'a> {
    dynamo: &'a Dynamo<'a>,
    ids: Vec<String>,
    requests: Vec<SchedulingRequest>,
    /// Its actor keeps one map of loads from request to request.
    loads: Loads,
}

type Loads = FxHashMap<WorkerWithDpRank, WorkerLoadProjection>;

impl<'a> Dynamo<'a> {
    /// Everything that the traffic says of the fleet, booked and stored.
    pub fn new(traffic: &'a Traffic) -> Self {
        let config = KvRouterConfig::default();
        let ranges = (0..traffic.ranks as u64).map(|worker| (worker, (0, 1))).collect();
        let sequences =
            ActiveSequencesMultiWorker::new(NoopSequencePublisher, BLOCK_TOKENS, ranges, false, 0, "aggregated");
        let mut tree = Tree::new();
        tree.apply(
            traffic
                .stored
                .iter()
                .map(|(rank, prompt)| stored(*rank, &traffic.prompts[*prompt]))
                .collect(),
        );
        let dynamo = Self {
            traffic,
            workers: (0..traffic.ranks as u64)
                .map(|worker| (worker, Worker { blocks: 32_768 }))
                .collect(),
            selector: DefaultWorkerSelector::new(Some(config.clone()), "aggregated"),
            config,
            sequences,
            tree,
        };
        for (at, live) in traffic.live.iter().enumerate() {
            let hashes = compute_seq_hash_for_block(&contents(&traffic.prompts[live.prompt]));
            let id = format!("live {at}");
            dynamo.add(id.clone(), live.rank as u64, hashes, live.uncached);
            if live.decoding {
                let done = dynamo.sequences.mark_prefill_completed(&id, Instant::now());
                assert!(done.is_ok(), "the request is there");
            }
        }
        dynamo
    }

    fn add(&self, id: String, worker: u64, hashes: Vec<u64>, uncached: usize) {
        let request = SequenceRequest {
            request_id: id,
            token_sequence: Some(hashes),
            track_prefill_tokens: true,
            expected_output_tokens: Some(300),
            prefill_load_hint: Some(PrefillLoadHint {
                initial_effective_prefill_tokens: uncached,
                expected_prefill_duration: None,
            }),
            worker: WorkerWithDpRank::new(worker, 0),
            lora_name: None,
        };
        let added = self.sequences.add_request(request, Instant::now());
        assert!(added.is_ok(), "the id is new");
    }

    fn signals(&self, contents: &[LocalBlockHash]) -> OverlapSignals {
        let tiered = TieredMatchDetails {
            device: MatchDetails {
                overlap_scores: self.tree.matches(contents),
                ..MatchDetails::default()
            },
            ..TieredMatchDetails::default()
        };
        OverlapAnalysis::new(&self.config, BLOCK_TOKENS as u32, &tiered).signals()
    }

    /// Projects the load of every rank and selects one of them.
    fn choose(&self, request: &mut SchedulingRequest) -> (u64, usize) {
        self.sequences.bench_project_worker_loads_into(
            request.token_seq.as_deref(),
            Instant::now(),
            &mut request.worker_loads,
        );
        let input =
            WorkerSelectionInput::configured(&self.workers, request, request.eligibility(), BLOCK_TOKENS as u32);
        let chosen = self.selector.select_worker(input).expect("everyone is eligible");
        (chosen.worker.worker_id, chosen.cached_tokens)
    }

    /// Selects, books and frees.
    fn place(&self, id: &str, request: &mut SchedulingRequest) -> u64 {
        let (worker, cached) = self.choose(request);
        let hashes = request.token_seq.clone().unwrap_or_default();
        self.add(id.to_owned(), worker, hashes, request.isl_tokens.saturating_sub(cached));
        let freed = self.sequences.free(&id.to_owned(), Instant::now());
        assert!(freed.is_ok(), "the request is there");
        worker
    }
}

impl Contender for Dynamo<'_> {
    fn name(&self) -> &'static str {
        DYNAMO
    }

    fn seat(&self, thread: usize) -> Box<dyn Seat + '_> {
        let prompts = self.traffic.asked.iter().map(|prompt| &self.traffic.prompts[*prompt]);
        let requests = prompts.map(|tokens| {
            let contents = contents(tokens);
            let hashes = compute_seq_hash_for_block(&contents);
            request(tokens.len(), hashes, self.signals(&contents))
        });
        Box::new(Side {
            dynamo: self,
            requests: requests.collect(),
            loads: Loads::default(),
            ids: (0..self.traffic.asked.len())
                .map(|at| format!("asked {at} of {thread}"))
                .collect(),
        })
    }
}

impl Seat for Side<'_> {
    fn run(&mut self, work: Work, at: usize) -> u64 {
        let dynamo = self.dynamo;
        let mut fresh;
        let request = if work == Work::Whole {
            let tokens = &dynamo.traffic.prompts[dynamo.traffic.asked[at]];
            let contents = contents(tokens);
            let hashes = compute_seq_hash_for_block(&contents);
            fresh = request(tokens.len(), hashes, dynamo.signals(&contents));
            &mut fresh
        } else {
            &mut self.requests[at]
        };
        request.worker_loads = std::mem::take(&mut self.loads);
        let worker = if work == Work::Decide {
            dynamo.choose(request).0
        } else {
            dynamo.place(&self.ids[at], request)
        };
        self.loads = std::mem::take(&mut request.worker_loads);
        worker
    }
}

/// A request as the selector takes it, before loads were projected.
pub fn request(tokens: usize, hashes: Vec<u64>, overlap: OverlapSignals) -> SchedulingRequest {
    SchedulingRequest {
        mode: ScheduleMode::QueryOnly { request_id: None },
        token_seq: Some(hashes),
        isl_tokens: tokens,
        lora_name: None,
        expected_output_tokens: Some(300),
        affinity_target: None,
        pinned_worker: None,
        allowed_worker_ids: None,
        routing_constraints: RoutingConstraints::default(),
        router_config_override: None,
        track_prefill_tokens: true,
        priority_jump: 0.0,
        strict_priority: 0,
        policy_class: None,
        session_context: None,
        overlap,
        kv_transfer_candidates: None,
        retain_kv_transfer_chain: false,
        shared_cache_hits: None,
        worker_loads: Loads::default(),
        resp_tx: None,
    }
}

fn contents(tokens: &[u32]) -> Vec<LocalBlockHash> {
    compute_block_hash_for_seq(tokens, BLOCK_TOKENS as u32, BlockHashOptions::default())
}

fn stored(rank: usize, tokens: &[u32]) -> RouterEvent {
    let contents = contents(tokens);
    let names = compute_seq_hash_for_block(&contents);
    let blocks = contents
        .iter()
        .zip(names)
        .map(|(content, name)| KvCacheStoredBlockData {
            block_hash: ExternalSequenceBlockHash(name),
            tokens_hash: *content,
            mm_extra_info: None,
        });
    let data = KvCacheEventData::Stored(KvCacheStoreData {
        parent_hash: None,
        start_position: None,
        blocks: blocks.collect(),
    });
    let event = KvCacheEvent {
        event_id: 0,
        data,
        dp_rank: 0,
    };
    RouterEvent::new(rank as u64, event)
}
