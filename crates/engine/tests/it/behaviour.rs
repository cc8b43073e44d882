//! What do engines do? One test for each behaviour that docs/engine-model.md claims.

use std::sync::Arc;

use crate::support::{Driver, prompt, told};
use homing_domain::{AdapterName, BlockSize, Blocks, CacheSalt, DpRank, KvChange, Tokens};
use homing_engine::config::{AdapterConfig, Barrier, ChunkedPrefill, Mixing, Order, PrefixCaching, Reserve};
use homing_engine::pool::TierConfig;
use homing_engine::{
    ClearError, ConfigError, Ending, Engine, EngineConfig, Events, Finish, Outcome, Placement, Request, RequestNo,
    Running, Style, SubmitError, Time, Tracing,
};
use homing_profile::{Constant, GigabytesPerSecond, Millis, Timing};

/// A step that prefills takes 10 ms, one that decodes 1 ms.
fn timing() -> Timing {
    Timing::Constant(Constant {
        prefill: Millis(10.0),
        decode: Millis(1.0),
        kv_bytes_per_token: 1_000,
    })
}

fn sized(config: EngineConfig, block_size: u32) -> EngineConfig {
    config.with_block_size(BlockSize::new(block_size).expect("it is not 0"))
}

/// vLLM with so many blocks of 4 tokens.
fn vllm(blocks: u32) -> EngineConfig {
    sized(EngineConfig::vllm(Blocks(blocks), timing()), 4).tap(|config| {
        config.blocks = Blocks(blocks);
        config.max_model_len = Tokens(blocks * 4);
    })
}

/// SGLang with so many pages of 4 tokens.
fn sglang(pages: u32) -> EngineConfig {
    sized(EngineConfig::sglang(Blocks(4 * pages), timing()), 4)
}

trait Tap: Sized {
    fn tap(self, change: impl FnOnce(&mut Self)) -> Self;
}

impl Tap for EngineConfig {
    fn tap(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }
}

fn style_of(config: &mut EngineConfig) -> &mut homing_engine::config::VllmConfig {
    match &mut config.style {
        Style::Vllm(style) => style,
        Style::Sglang(_) => panic!("it is vLLM"),
    }
}

fn sglang_style(config: &mut EngineConfig) -> &mut homing_engine::config::SglangConfig {
    match &mut config.style {
        Style::Sglang(style) => style,
        Style::Vllm(_) => panic!("it is SGLang"),
    }
}

#[test]
fn a_request_is_prefilled_then_decoded() {
    let mut driver = Driver::new(vllm(100));
    driver.submit(Request::plain(1, prompt(1, 10), 3));
    let steps = driver.run();
    let ends: Vec<f64> = steps.iter().map(|step| step.at.millis()).collect();
    assert_eq!(ends, [10.0, 11.0, 12.0]);
    assert_eq!(steps[0].prefilled, 10);
    assert_eq!((steps[1].prefilled, steps[1].decoded), (0, 1));
    let finished = steps[2].finished[0];
    assert_eq!(
        (finished.reason, finished.generated, finished.cached),
        (Finish::Length, Tokens(3), Tokens(0))
    );
    assert_eq!(steps[2].load.blocks.active, 0);
    assert_eq!(steps[0].load.running, 1);
}

#[test]
fn at_least_one_token_is_computed() {
    for config in [vllm(100), sglang(100)] {
        let mut driver = Driver::new(config);
        let cached = |driver: &mut Driver, id, length| {
            driver.submit(Request::plain(id, prompt(1, length), 1));
            let steps = driver.run();
            steps
                .iter()
                .flat_map(|step| &step.admitted)
                .map(|admitted| admitted.cached.0)
                .sum::<u32>()
        };
        assert_eq!(cached(&mut driver, 1, 16), 0);
        // Four known blocks: the last is computed anew.
        assert_eq!(cached(&mut driver, 2, 16), 12);
        assert_eq!(cached(&mut driver, 3, 17), 16);
        assert_eq!(cached(&mut driver, 4, 15), 12);
        assert_eq!(cached(&mut driver, 5, 3), 0);
    }
}

/// As in the capture of vLLM 0.32: four times the same prompt of whole blocks, four events of its last block, and as many
/// removals. SGLang tells one.
#[test]
fn copies_are_told_one_by_one_by_vllm_and_shared_by_sglang() {
    for (config, copies) in [(vllm(20), 4), (sglang(20), 1)] {
        let mut driver = Driver::new(config);
        for id in 0..4 {
            driver.submit(Request::plain(id, prompt(1, 8), 1));
            driver.run();
        }
        let labels = |stored: bool| {
            let mut labels: Vec<u64> = Vec::new();
            for change in driver.batches.iter().flat_map(|batch| &batch.batch.changes) {
                match change {
                    KvChange::Stored(of) if stored => labels.extend(of.blocks.iter().map(|block| block.label.get())),
                    KvChange::Removed(of) if !stored => labels.extend(of.labels.iter().map(|label| label.get())),
                    _ => (),
                }
            }
            labels
        };
        let stored = labels(true);
        let last = stored[1];
        assert_eq!(
            stored.iter().filter(|label| **label == last).count(),
            copies,
            "{stored:?}"
        );
        assert_eq!(stored.iter().filter(|label| **label == stored[0]).count(), 1);
        driver.submit(Request::plain(9, prompt(2, 76), 1));
        driver.run();
        let labels = |batch: &homing_engine::EventBatch| {
            let mut removed = 0;
            for change in &batch.batch.changes {
                if let KvChange::Removed(of) = change {
                    removed += of.labels.iter().filter(|label| label.get() == last).count();
                }
            }
            removed
        };
        assert_eq!(driver.batches.iter().map(labels).sum::<usize>(), copies);
    }
}

#[test]
fn requests_of_one_step_share_what_vllm_computes_in_it() {
    let mut driver = Driver::new(vllm(100));
    driver.submit(Request::plain(1, prompt(1, 40), 1));
    driver.submit(Request::plain(2, prompt(1, 40), 1));
    let steps = driver.run();
    let cached: Vec<u32> = steps[0].admitted.iter().map(|admitted| admitted.cached.0).collect();
    assert_eq!(cached, [0, 36]);
    let mut driver = Driver::new(sglang(100));
    driver.submit(Request::plain(1, prompt(1, 40), 1));
    driver.submit(Request::plain(2, prompt(1, 40), 1));
    let steps = driver.run();
    let admitted = steps.iter().flat_map(|step| &step.admitted);
    assert_eq!(admitted.map(|admitted| admitted.cached.0).collect::<Vec<_>>(), [0, 0]);
    assert_eq!(driver.counts().inactive, 10, "what both computed is there once");
}

#[test]
fn vllm_removes_one_by_one_before_it_stores_and_the_end_of_a_prefix_first() {
    let mut driver = Driver::new(vllm(6));
    driver.submit(Request::plain(1, prompt(1, 16), 1));
    driver.run();
    driver.submit(Request::plain(2, prompt(2, 17), 1));
    driver.run();
    let shown = told(&driver.batches);
    assert_eq!(shown, ["0: +a(bcd)", "1: -d -c -b +e(fgh)"]);
}

#[test]
fn sglang_says_first_that_nothing_is_there_and_joins_what_it_removes() {
    let mut driver = Driver::new(sglang(6));
    driver.run();
    assert_eq!(told(&driver.batches), ["0: cleared"]);
    driver.submit(Request::plain(1, prompt(1, 16), 1));
    driver.run();
    driver.submit(Request::plain(2, prompt(2, 17), 1));
    driver.run();
    let shown = told(&driver.batches);
    assert_eq!(shown[1..], ["1: +a(bcd)", "2: -(dcb) +e(fgh)"]);
}

#[test]
fn blocks_of_answers_are_told_as_they_fill_or_at_the_end() {
    let mut driver = Driver::new(vllm(100));
    driver.submit(Request::plain(1, prompt(1, 6), 9));
    driver.run();
    assert_eq!(told(&driver.batches), ["0: +a", "1: a+b", "2: b+c"]);

    let mut driver = Driver::new(sglang(100));
    driver.submit(Request::plain(1, prompt(1, 6), 7));
    driver.run();
    // All whole pages but for the last token, which is not computed.
    assert_eq!(told(&driver.batches), ["0: cleared", "1: +a", "2: a+(bc)"]);
}

#[test]
fn sglang_keeps_events_back_while_it_only_decodes() {
    let mut driver = Driver::new(sglang(1_000));
    for (id, outputs) in [(1, 5), (2, 100)] {
        driver.submit(Request::plain(id, prompt(id as u32, 8), outputs));
    }
    let steps = driver.run();
    let told_at: Vec<usize> = (0..steps.len()).filter(|step| steps[*step].events.is_some()).collect();
    // The first request is over in step 5; its page is told 40 steps after the prefill. The first batch is the clear.
    assert_eq!(told_at, [0, 1, 41, 100]);
}

#[test]
fn vllm_tells_a_clear_with_its_next_step() {
    let mut driver = Driver::new(vllm(100));
    driver.submit(Request::plain(1, prompt(1, 8), 1));
    driver.run();
    driver.engine.clear(Running::Keep).expect("nobody runs");
    driver.engine.clear(Running::Keep).expect("nobody runs");
    assert!(driver.run().is_empty());
    assert_eq!(driver.counts().inactive, 0);
    driver.submit(Request::plain(2, prompt(1, 8), 1));
    driver.run();
    assert_eq!(told(&driver.batches), ["0: +a(b)", "1: cleared cleared +a(b)"]);
}

#[test]
fn a_clear_waits_for_nobody_but_can_preempt_in_vllm() {
    let mut driver = Driver::new(vllm(100));
    driver.submit(Request::plain(1, prompt(1, 8), 3));
    driver.poll();
    assert_eq!(driver.engine.clear(Running::Keep), Err(ClearError::Busy(1)));
    driver
        .engine
        .clear(Running::Preempt)
        .expect("those who run are preempted");
    let steps = driver.run();
    assert_eq!(told(&driver.batches), ["0: +a(b) cleared", "1: +a(b)"]);
    let finished = steps.last().expect("there were steps").finished[0];
    assert_eq!((finished.generated, finished.preemptions), (Tokens(3), 1));

    let mut driver = Driver::new(sglang(100));
    driver.submit(Request::plain(1, prompt(1, 8), 3));
    driver.poll();
    assert_eq!(driver.engine.clear(Running::Preempt), Err(ClearError::Busy(1)));
    driver.run();
    driver.engine.clear(Running::Keep).expect("nobody runs");
    let steps = driver.run();
    assert_eq!(steps.len(), 1, "it is told without a step");
    assert_eq!(told(&driver.batches).last().expect("it was told"), "2: cleared");
}

#[test]
fn a_restart_is_a_new_life() {
    let mut driver = Driver::new(vllm(100));
    driver.submit(Request::plain(1, prompt(1, 8), 1));
    driver.run();
    driver.submit(Request::plain(7, prompt(1, 8), 5));
    driver.submit(Request::plain(3, prompt(1, 8), 5));
    driver.poll();
    assert_eq!(driver.engine.restart(), [RequestNo(3), RequestNo(7)]);
    assert_eq!((driver.engine.live(), driver.engine.wake_at()), (0, None));
    driver.submit(Request::plain(7, prompt(1, 8), 1));
    driver.run();
    let [first, second] = &driver.batches[..] else {
        panic!("{:?}", driver.batches)
    };
    assert_eq!(first.batch.sequence, second.batch.sequence);
    assert_eq!(first.batch.changes, second.batch.changes);
    assert_ne!(first.batch.digest, second.batch.digest, "lives can be told apart");
}

#[test]
fn vllm_preempts_the_last_and_computes_it_anew() {
    // Two sequences of 8 tokens that grow to 24: together they need 12 blocks, there are 8.
    let mut driver = Driver::new(vllm(8));
    driver.submit(Request::plain(1, prompt(1, 8), 16));
    driver.submit(Request::plain(2, prompt(2, 8), 16));
    let steps = driver.run();
    let preempted: Vec<RequestNo> = steps.iter().flat_map(|step| step.preempted.clone()).collect();
    assert_eq!(preempted, [RequestNo(2)]);
    let order: Vec<u64> = steps
        .iter()
        .flat_map(|step| &step.finished)
        .map(|finished| finished.request.0)
        .collect();
    assert_eq!(order, [1, 2]);
    for id in [1, 2] {
        assert_eq!(
            driver.answers[&RequestNo(id)],
            crate::support::undisturbed(&prompt(id as u32, 8), 16)
        );
    }
    assert_eq!(steps.last().expect("there were steps").load.preemptions, 1);
}

#[test]
fn priority_decides_who_is_admitted_and_who_gives_way() {
    let by_priority = vllm(8).tap(|config| style_of(config).order = Order::Priority);
    let mut driver = Driver::new(by_priority.clone());
    for (id, priority) in [(1, 5), (2, 0)] {
        driver.submit(Request {
            priority,
            ..Request::plain(id, prompt(id as u32, 8), 16)
        });
    }
    let steps = driver.run();
    let admitted: Vec<u64> = steps[0].admitted.iter().map(|admitted| admitted.request.0).collect();
    assert_eq!(admitted, [2, 1]);
    let preempted: Vec<RequestNo> = steps.iter().flat_map(|step| step.preempted.clone()).collect();
    assert_eq!(preempted, [RequestNo(1)]);

    let mut driver = Driver::new(by_priority.tap(|config| config.max_running = 1));
    for (id, priority) in [(1, 0), (2, 3), (3, -1)] {
        driver.submit(Request {
            priority,
            ..Request::plain(id, prompt(id as u32, 4), 1)
        });
    }
    let steps = driver.run();
    let order: Vec<u64> = steps
        .iter()
        .flat_map(|step| &step.finished)
        .map(|finished| finished.request.0)
        .collect();
    assert_eq!(order, [3, 1, 2]);
}

#[test]
fn long_prompts_are_computed_in_chunks_beside_those_who_decode() {
    let config = vllm(100).tap(|config| style_of(config).max_batched_tokens = Tokens(20));
    let mut driver = Driver::new(config.clone());
    driver.submit(Request::plain(1, prompt(1, 10), 5));
    driver.poll();
    driver.submit(Request::plain(2, prompt(2, 50), 1));
    let steps = driver.run();
    let shapes: Vec<(u64, u32)> = steps.iter().map(|step| (step.prefilled, step.decoded)).collect();
    assert_eq!(shapes, [(10, 0), (19, 1), (19, 1), (12, 1), (0, 1)]);

    let refused = Engine::new(config.tap(|config| style_of(config).chunked_prefill = ChunkedPrefill::Off));
    assert!(matches!(refused, Err(ConfigError::StepTooShort { .. })));
    let whole = vllm(25).tap(|config| {
        style_of(config).chunked_prefill = ChunkedPrefill::Off;
        style_of(config).max_batched_tokens = Tokens(100);
    });
    let mut driver = Driver::new(whole);
    driver.submit(Request::plain(1, prompt(1, 40), 1));
    driver.submit(Request::plain(2, prompt(2, 39), 1));
    driver.submit(Request::plain(3, prompt(3, 40), 1));
    let shapes: Vec<u64> = driver.run().iter().map(|step| step.prefilled).collect();
    assert_eq!(shapes, [79, 40]);
}

#[test]
fn a_watermark_and_a_reserve_keep_requests_out() {
    let first_step = |config: EngineConfig| {
        let mut driver = Driver::new(config);
        driver.submit(Request::plain(1, prompt(1, 20), 2));
        driver.submit(Request::plain(2, prompt(2, 20), 2));
        let admitted = driver.run()[0].admitted.len();
        assert_eq!(driver.engine.live(), 0);
        admitted
    };
    assert_eq!(first_step(vllm(10)), 2);
    assert_eq!(first_step(vllm(10).tap(|config| style_of(config).watermark = 0.2)), 1);
    let chunks = |reserve| {
        vllm(9).tap(|config| {
            style_of(config).max_batched_tokens = Tokens(24);
            style_of(config).reserve = reserve;
        })
    };
    assert_eq!(first_step(chunks(Reserve::WholePrompt)), 1);
    assert_eq!(first_step(chunks(Reserve::Chunk)), 2);
}

#[test]
fn sglang_computes_prompts_first_and_mixes_only_if_asked() {
    let shapes = |mixing| {
        let mut driver = Driver::new(sglang(1_000).tap(|config| {
            sglang_style(config).mixing = mixing;
            sglang_style(config).chunk_tokens = Tokens(20);
        }));
        driver.submit(Request::plain(1, prompt(1, 10), 4));
        driver.poll();
        driver.poll();
        driver.submit(Request::plain(2, prompt(2, 50), 1));
        let steps = driver.run();
        let steps = steps.iter().filter(|step| step.prefilled > 0 || step.decoded > 0);
        steps.map(|step| (step.prefilled, step.decoded)).collect::<Vec<_>>()
    };
    assert_eq!(
        shapes(Mixing::PrefillAlone),
        [(10, 0), (20, 0), (20, 0), (10, 0), (0, 1), (0, 1), (0, 1)]
    );
    assert_eq!(shapes(Mixing::PrefillWithDecode), [(10, 0), (20, 1), (20, 1), (10, 1)]);
}

#[test]
fn sglang_prefers_the_longest_prefix() {
    let order = |order| {
        let mut driver = Driver::new(sglang(1_000).tap(|config| {
            sglang_style(config).order = order;
            config.max_running = 1;
        }));
        driver.submit(Request::plain(1, prompt(1, 40), 1));
        driver.run();
        driver.submit(Request::plain(2, prompt(2, 40), 1));
        driver.submit(Request::plain(3, prompt(1, 60), 1));
        let steps = driver.run();
        steps
            .iter()
            .flat_map(|step| &step.finished)
            .map(|finished| finished.request.0)
            .collect::<Vec<_>>()
    };
    assert_eq!(order(Order::Arrival), [2, 3]);
    assert_eq!(order(Order::LongestPrefix), [3, 2]);
}

#[test]
fn sglang_keeps_room_for_answers_and_retracts_the_shortest() {
    // Room for 80 tokens; each request may come to 8 + 40.
    let first_step = |ratio: f64| {
        let mut driver = Driver::new(sglang(20).tap(|config| {
            sglang_style(config).new_token_ratio = ratio;
            sglang_style(config).min_new_token_ratio = 0.0;
        }));
        for id in 1..=2 {
            driver.submit(Request::plain(id, prompt(id as u32, 8), 40));
            driver.poll();
            driver.poll();
        }
        let steps = driver.run();
        for id in 1..=2 {
            assert_eq!(
                driver.answers[&RequestNo(id)],
                crate::support::undisturbed(&prompt(id as u32, 8), 40)
            );
        }
        steps.iter().map(|step| step.preempted.len()).sum::<usize>()
    };
    assert_eq!(first_step(1.0), 0, "the second waits for the first");
    assert_eq!(first_step(0.0), 1, "both begin, and one gives way");
}

#[test]
fn a_continuation_gives_the_rest_of_an_undisturbed_run() {
    let ending = Ending::About(30);
    let mut request = Request {
        ending,
        seed: 4,
        ..Request::plain(1, prompt(1, 21), 200)
    };
    let mut driver = Driver::new(vllm(100));
    driver.submit(request.clone());
    let whole_steps = driver.run();
    let whole = driver.answers[&RequestNo(1)].clone();
    assert!(
        whole.len() > 3 && whole_steps.last().expect("it ran").finished[0].reason == Finish::Stop,
        "{whole:?}"
    );
    for cut in 1..whole.len() {
        let mut continued: Vec<u32> = prompt(1, 21);
        continued.extend(&whole[..cut]);
        request.prompt = Arc::from(continued);
        for config in [sglang(100), vllm(30)] {
            let mut other = Driver::new(config);
            other.submit(request.clone());
            other.run();
            assert_eq!(other.answers[&RequestNo(1)], whole[cut..]);
        }
    }
    request.seed = 5;
    driver.submit(Request {
        id: RequestNo(2),
        ..request
    });
    driver.run();
    assert_ne!(driver.answers[&RequestNo(2)], whole);
}

#[test]
fn an_answer_stops_where_it_is_told_to() {
    let whole = crate::support::undisturbed(&prompt(1, 8), 20);
    let mut driver = Driver::new(vllm(100));
    driver.submit(Request {
        stop: vec![whole[6]],
        ..Request::plain(1, prompt(1, 8), 20)
    });
    let steps = driver.run();
    assert_eq!(
        driver.answers[&RequestNo(1)],
        whole[..=whole.iter().position(|token| *token == whole[6]).expect("it is there")]
    );
    assert_eq!(steps.last().expect("it ran").finished[0].reason, Finish::Stop);
    // The longest sequence that there can be.
    driver.submit(Request::plain(2, prompt(1, 396), 100));
    let steps = driver.run();
    let finished = steps.last().expect("it ran").finished[0];
    assert_eq!((finished.reason, finished.generated), (Finish::Length, Tokens(4)));
    driver.submit(Request::plain(3, prompt(1, 400), 0));
    let steps = driver.run();
    assert_eq!(steps.last().expect("it ran").finished[0].generated, Tokens(0));
}

#[test]
fn cancelled_requests_leave_nothing_behind() {
    for config in [vllm(100), sglang(100)] {
        let mut driver = Driver::new(config.tap(|config| config.max_running = 1));
        for id in 1..=3 {
            driver.submit(Request::plain(id, prompt(id as u32, 8), 50));
        }
        driver.poll();
        // One waits, one is in a step.
        assert!(driver.engine.cancel(RequestNo(2)) && driver.engine.cancel(RequestNo(1)));
        assert!(!driver.engine.cancel(RequestNo(1)) && !driver.engine.cancel(RequestNo(9)));
        let steps = driver.run();
        assert!(!driver.answers.contains_key(&RequestNo(1)) && !driver.answers.contains_key(&RequestNo(2)));
        assert_eq!(driver.answers[&RequestNo(3)].len(), 50);
        assert_eq!(steps.last().expect("it ran").load.blocks.active, 0);
    }
}

#[test]
fn ranks_have_caches_of_their_own_and_may_wait_for_each_other() {
    for (barrier, ends) in [(Barrier::Off, [10.0, 11.0]), (Barrier::EachStep, [10.0, 20.0])] {
        let mut driver = Driver::new(vllm(100).tap(|config| {
            config.ranks = 2;
            config.barrier = barrier;
        }));
        assert_eq!(driver.submit(Request::plain(1, prompt(1, 8), 2)), DpRank(0));
        driver.poll();
        // Comes while the first rank decodes, or is kept from it.
        assert_eq!(driver.submit(Request::plain(2, prompt(1, 8), 1)), DpRank(1));
        driver.now = Time::from_millis(5.0);
        let steps = driver.run();
        let of_first: Vec<f64> = steps
            .iter()
            .filter(|step| step.rank == DpRank(0))
            .map(|step| step.at.millis())
            .collect();
        assert_eq!(of_first, ends);
        assert!(
            steps
                .iter()
                .flat_map(|step| &step.admitted)
                .all(|admitted| admitted.cached == Tokens(0))
        );
        let on = Request {
            placement: Placement::On(DpRank(1)),
            ..Request::plain(3, prompt(1, 9), 1)
        };
        assert_eq!(driver.submit(on), DpRank(1));
        assert_eq!(driver.run()[0].admitted[0].cached, Tokens(8));
    }
}

#[test]
fn adapters_take_slots_and_time() {
    let mut driver = Driver::new(vllm(100).tap(|config| {
        config.adapters = AdapterConfig {
            slots: 1,
            load: Millis(100.0),
        };
    }));
    let [a, b] = ["a", "b"].map(AdapterName::new);
    let with = |adapter: &AdapterName, id, outputs| Request {
        adapter: Some(adapter.clone()),
        ..Request::plain(id, prompt(1, 8), outputs)
    };
    assert_eq!(
        driver.engine.submit(with(&a, 1, 2)),
        Err(SubmitError::UnknownAdapter(a.clone()))
    );
    driver.engine.load_adapter(&a).expect("there is a slot");
    driver.engine.load_adapter(&b).expect("names take no slot");
    driver.submit(with(&a, 1, 2));
    driver.submit(with(&b, 2, 2));
    driver.submit(with(&a, 3, 2));
    driver.poll();
    let used = driver.engine.adapter_use(DpRank(0)).expect("there is a rank");
    assert_eq!((used.running, used.waiting), (vec![a.clone()], vec![b.clone()]));
    let steps = driver.run();
    let ends: Vec<f64> = steps.iter().map(|step| step.at.millis()).collect();
    // The second waits until no one uses the first adapter; the third does not wait for the second.
    assert_eq!(ends, [110.0, 111.0, 221.0, 222.0]);
    let cached: Vec<(u64, u32)> = steps
        .iter()
        .flat_map(|step| &step.admitted)
        .map(|admitted| (admitted.request.0, admitted.cached.0))
        .collect();
    assert_eq!(cached, [(1, 0), (3, 4), (2, 0)], "adapters do not share blocks");
    driver.engine.unload_adapter(&b).expect("it is loaded");
    assert_eq!(
        driver.engine.submit(with(&b, 4, 2)),
        Err(SubmitError::UnknownAdapter(b))
    );
}

#[test]
fn salts_keep_blocks_apart() {
    let mut driver = Driver::new(vllm(100));
    for (id, salt) in [(1, None), (2, Some("x")), (3, Some("x"))] {
        let salt = salt.map(CacheSalt::new);
        driver.submit(Request {
            salt,
            ..Request::plain(id, prompt(1, 9), 1)
        });
        let cached = driver.run()[0].admitted[0].cached.0;
        assert_eq!(cached, if id == 3 { 8 } else { 0 });
    }
}

#[test]
fn blocks_come_back_from_below_for_a_price() {
    let tier = TierConfig {
        tier: homing_domain::Tier::Host,
        capacity: Blocks(100),
        // A block of 4 tokens takes 4 ms.
        onboard: GigabytesPerSecond(0.001),
    };
    let mut driver = Driver::new(vllm(6).tap(|config| config.tiers = vec![tier]));
    for (id, family, length) in [(1, 1, 17), (2, 2, 20), (3, 1, 17)] {
        driver.submit(Request::plain(id, prompt(family, length), 1));
        let started = driver.now;
        let steps = driver.run();
        let (cached, took) = (steps[0].admitted[0].cached, steps[0].at.since(started));
        let expected = match id {
            3 => (Tokens(16), Millis(1.0 + 3.0 * 4.0)),
            _ => (Tokens(0), Millis(10.0)),
        };
        assert_eq!((cached, took), expected, "request {id}");
    }
}

#[test]
fn without_prefix_caching_nothing_is_found_or_told() {
    let mut driver = Driver::new(vllm(100).tap(|config| config.prefix_caching = PrefixCaching::Off));
    for id in 1..=2 {
        driver.submit(Request::plain(id, prompt(1, 40), 10));
        assert_eq!(driver.run()[0].admitted[0].cached, Tokens(0));
    }
    assert!(driver.batches.is_empty());
    assert_eq!(driver.counts().inactive, 0);
}

#[test]
fn a_driver_who_comes_late_hears_when_things_happened() {
    let mut driver = Driver::new(vllm(100));
    driver.submit(Request::plain(1, prompt(1, 8), 5));
    driver.poll();
    driver.now = Time::from_millis(500.0);
    let mut outcome = Outcome::default();
    let mut ends = Vec::new();
    while driver.engine.poll(driver.now, &mut outcome) {
        ends.push(outcome.at.millis());
    }
    assert_eq!(ends, [10.0, 11.0, 12.0, 13.0, 14.0]);
    // What comes after a pause begins when it comes.
    driver.submit(Request::plain(2, prompt(2, 8), 1));
    assert_eq!(driver.run()[0].at, Time::from_millis(510.0));
    driver.engine.set_slowdown(3.0);
    driver.submit(Request::plain(3, prompt(3, 8), 1));
    assert_eq!(driver.run()[0].at, Time::from_millis(540.0));
}

#[test]
fn allocations_and_evictions_can_be_traced() {
    let mut driver = Driver::new(vllm(4).tap(|config| config.tracing = Tracing::On));
    driver.submit(Request::plain(1, prompt(1, 8), 1));
    driver.run();
    driver.submit(Request::plain(2, prompt(2, 12), 1));
    let steps = driver.run();
    let shown: Vec<String> = steps[0]
        .trace
        .iter()
        .map(|line| {
            let counts = line.counts;
            format!(
                "{} {:?} {:?} of {} free {} active {} inactive {} total {} rank {}",
                line.at,
                line.act,
                line.blocks,
                line.block_size,
                counts.free,
                counts.active,
                counts.inactive,
                counts.total,
                line.rank.0
            )
        })
        .collect();
    assert_eq!(
        shown,
        [
            "10.000 ms Allocated [2, 3] of 4 free 0 active 2 inactive 2 total 4 rank 0",
            "10.000 ms Evicted [1] of 4 free 1 active 2 inactive 1 total 4 rank 0",
            "10.000 ms Allocated [1] of 4 free 0 active 3 inactive 1 total 4 rank 0",
        ]
    );
}

#[test]
fn what_cannot_be_taken_is_refused_with_its_reason() {
    let mut driver = Driver::new(vllm(10).tap(|config| config.max_waiting = 2));
    let mut refused = |request: Request| driver.engine.submit(request).expect_err("it is wrong").to_string();
    assert_eq!(refused(Request::plain(1, vec![], 1)), "the prompt is empty");
    let long = refused(Request::plain(1, prompt(1, 40), 1));
    assert_eq!(
        long,
        "the prompt has 40 tokens, but prompt and answer may have 40 together"
    );
    let elsewhere = Request {
        placement: Placement::On(DpRank(1)),
        ..Request::plain(1, prompt(1, 4), 1)
    };
    assert_eq!(refused(elsewhere), "there is no rank 1");
    driver.submit(Request::plain(1, prompt(1, 4), 1));
    let mut refused = |request: Request| driver.engine.submit(request).expect_err("it is wrong").to_string();
    assert_eq!(
        refused(Request::plain(1, prompt(1, 4), 1)),
        "request 1 is running already"
    );
    driver.submit(Request::plain(2, prompt(1, 4), 1));
    let mut refused = |request: Request| driver.engine.submit(request).expect_err("it is wrong").to_string();
    assert_eq!(
        refused(Request::plain(3, prompt(1, 4), 1)),
        "2 requests are waiting already"
    );
}

#[test]
fn configurations_that_could_never_work_are_refused() {
    let refused = |config: EngineConfig| Engine::new(config).expect_err("it is wrong").to_string();
    assert_eq!(
        refused(vllm(10).tap(|config| config.ranks = 0)),
        "ranks must be at least 1"
    );
    let long = vllm(10).tap(|config| config.max_model_len = Tokens(41));
    assert_eq!(
        refused(long),
        "a sequence of 41 tokens does not fit into a cache of 40 tokens"
    );
    let wrong = vllm(10).tap(|config| style_of(config).order = Order::LongestPrefix);
    assert_eq!(refused(wrong), "the longest prefix first is an order of SGLang only");
    let short = sglang(10).tap(|config| sglang_style(config).chunk_tokens = Tokens(3));
    assert_eq!(refused(short), "a chunk of 3 tokens is less than a page of 4 tokens");
    let share = vllm(10).tap(|config| style_of(config).watermark = 1.5);
    assert_eq!(refused(share), "watermark is 1.5, but must be from 0 to 1");
}

#[test]
fn events_can_carry_the_tokens_that_real_ones_do() {
    let mut driver = Driver::new(vllm(100).tap(|config| config.events = Events::WithTokens));
    driver.submit(Request::plain(1, prompt(1, 6), 6));
    driver.run();
    let mut all = prompt(1, 6);
    all.extend(&driver.answers[&RequestNo(1)]);
    let tokens: Vec<u32> = driver.batches.iter().flat_map(|batch| batch.tokens.concat()).collect();
    assert_eq!(tokens, all[..8]);
}
