//! Which engines, and how do they differ from what routers believe?

use homing_domain::{BlockSize, Blocks, Tokens};
use homing_engine::config::{AdapterConfig, EngineConfig, Order, Reserve, Style};
use homing_profile::{Millis, Polynomial, Timing};

use crate::Rng;
use crate::fleet::{Disparity, WorkerSetup};

/// The most tokens of prompt and answer.
const LONGEST: u64 = 2_048;

pub(super) fn timing(rng: &mut Rng) -> Timing {
    Timing::Polynomial(Polynomial {
        base: rng.between(4, 25) as f64,
        per_prefill_token: rng.between(10, 300) as f64 / 1_000.0,
        ..Polynomial::default()
    })
}

pub(super) fn workers(rng: &mut Rng, timing: Timing) -> WorkerSetup {
    let size = [4, 8, 16, 16, 32].map(|tokens| BlockSize::new(tokens).expect("it is not 0"));
    let block_size = rng.pick(size);
    // Small caches, so that blocks are evicted and requests preempted all the time.
    let most = rng.pick([3_000, 3_000, 12_000]);
    let tokens = rng.between(LONGEST, most);
    let blocks = Blocks((tokens / u64::from(block_size.get())) as u32);
    let mut engine = if rng.chance(600) {
        EngineConfig::vllm(blocks, timing)
    } else {
        EngineConfig::sglang(blocks, timing)
    };
    engine.block_size = block_size;
    engine.max_model_len = block_size.tokens_in(blocks).min(Tokens(LONGEST as u32));
    engine.max_running = rng.between(2, 24) as u32;
    engine.max_waiting = rng.pick([1, 4, 100, 1_000]);
    engine.ranks = rng.pick([1, 1, 2]);
    engine.adapters = AdapterConfig {
        slots: rng.pick([1, 2, 4]),
        load: Millis(rng.pick([0.0, 5.0, 50.0])),
    };
    let by_priority = rng.chance(300);
    match &mut engine.style {
        Style::Vllm(config) => {
            config.max_batched_tokens = Tokens(rng.pick([256, 1_024, 8_192]));
            config.reserve = rng.pick([Reserve::WholePrompt, Reserve::Chunk]);
            if by_priority {
                config.order = Order::Priority;
            }
        }
        Style::Sglang(config) => {
            config.chunk_tokens = Tokens(rng.pick([256, 1_024, 8_192]));
            config.event_interval = rng.pick([1, 5, 40]);
            if by_priority {
                config.order = Order::LongestPrefix;
            }
        }
    }
    let disparity = Disparity {
        speed: rng.pick([0.0, 0.1, 0.3]),
        overhead: (Millis(0.0), Millis(rng.pick([0.0, 1.0, 5.0]))),
        noise: rng.pick([0.0, 0.1, 0.5]),
        slow: rng.pick([1.0, 1.0, 1.0, 4.0]),
    };
    WorkerSetup {
        count: rng.between(1, 8) as u32,
        engine,
        disparity,
        ring: rng.pick([0, 4, 64, 1_000]),
    }
}
