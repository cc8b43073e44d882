//! Engine, agent and router restart in turn: is the router's index what the engine holds, each time, and never less than
//! it must be in between?

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;

use crate::support::{BLOCK_SIZE, Engine, EngineSpec, Proxy, RANK, Router, Running, Start, hasher, settings, until};
use homing_domain::{BlockSize, Prompt, Tier};
use homing_feed::State;
use homing_index::{Answer, Reader};

/// Looks a prefix up again and again, and remembers the least that was found of it.
struct Sampler {
    least: Arc<AtomicU64>,
    samples: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Sampler {
    fn start(reader: &Reader, tokens: &[u32]) -> Self {
        let mut keys = Vec::new();
        hasher().keys(
            &Prompt::text(tokens, BlockSize::new(BLOCK_SIZE).expect("above 0")),
            &mut keys,
        );
        let (least, samples) = (Arc::new(AtomicU64::new(u64::MAX)), Arc::new(AtomicU64::new(0)));
        let stop = Arc::new(AtomicBool::new(false));
        let (to, count, until) = (least.clone(), samples.clone(), stop.clone());
        let reader = reader.clone();
        let thread = std::thread::spawn(move || {
            let mut answer = Answer::default();
            while !until.load(Relaxed) {
                reader.lookup(&keys, &mut answer);
                if answer.is_settled() {
                    let slot = answer.ranks().find(|(rank, _)| *rank == RANK).map(|(_, slot)| slot);
                    let depth = slot.map_or(0, |slot| answer.depth(slot, Tier::Device).0);
                    to.fetch_min(u64::from(depth), Relaxed);
                    count.fetch_add(1, Relaxed);
                }
                std::thread::yield_now();
            }
        });
        Self {
            least,
            samples,
            stop,
            thread: Some(thread),
        }
    }

    /// The least since this was last called.
    fn least(&self) -> u64 {
        self.least.swap(u64::MAX, Relaxed)
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            assert!(thread.join().is_ok() && self.samples.load(Relaxed) > 0);
        }
    }
}

/// Restarts of the engine that the router has noticed. Learning who is there counts, too.
async fn restarts(router: &Router) -> u64 {
    router.viewed().await.status.counters.restarts
}

async fn incarnation(agent: &Running) -> String {
    agent.rank(0).await["incarnation"]
        .as_str()
        .expect("it is known")
        .to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_restarts_in_turn() {
    let mut engine = Engine::start(EngineSpec::new(Start::At(1000)));
    let (labels, tokens) = engine.store(40);
    let mut config = settings(&[engine.worker()]);
    let agent = Running::start(&config).await;
    config.agent.listen = agent.address;
    let address = agent.address;
    let router = Router::start(address, &engine.url()).await;
    router.converges(&engine.truth, State::Live).await;
    let first = incarnation(&agent).await;

    // What comes is watched; what the agent did not hear, it fetches, and the router gets it as if nothing had been.
    engine.store(5);
    engine.remove(&labels[30..]);
    engine.store_unheard(7);
    engine.store(3);
    router.converges(&engine.truth, State::Live).await;

    // A new router is complete without a word from the engine.
    drop(router);
    let router = Router::start(address, &engine.url()).await;
    router.converges(&engine.truth, State::Live).await;

    // A new agent: the old view serves until the new one is there, whatever the engine did meanwhile.
    let sampler = Sampler::start(router.keeper.reader(), &tokens);
    agent.stop().await;
    engine.store(6);
    let agent = Running::start(&config).await;
    router.converges(&engine.truth, State::Live).await;
    assert_eq!(incarnation(&agent).await, first, "only the agent is new");
    let known = restarts(&router).await;
    assert_eq!(sampler.least(), 30);
    drop(sampler);

    // A new engine: what it held is void, at the agent and at the router.
    let mut engine = engine.restart(Start::At(2000));
    engine.store(9);
    router.converges(&engine.truth, State::Live).await;
    assert_ne!(incarnation(&agent).await, first);
    assert_eq!(restarts(&router).await, known + 1);

    // Both at once, engine first.
    agent.stop().await;
    let mut engine = engine.restart(Start::At(3000));
    engine.store(4);
    let agent = Running::start(&config).await;
    engine.store(2);
    router.converges(&engine.truth, State::Live).await;
    assert_eq!(restarts(&router).await, known + 2);

    engine.clear();
    engine.store(2);
    router.converges(&engine.truth, State::Live).await;
    agent.stop().await;
    until("the router says that nobody tells it anything", || async {
        matches!(router.viewed().await.status.state, State::Stale { .. })
    })
    .await;
}

/// The life of an engine is told apart by what its HTTP server says, by what the feed notices, or by both.
#[tokio::test(flavor = "multi_thread")]
async fn a_restart_is_noticed_whatever_the_engine_tells() {
    for (before, after) in [
        (Start::At(1), Start::At(1)),
        (Start::NotTold, Start::NotTold),
        (Start::Absent, Start::Absent),
        (Start::At(1), Start::Absent),
        (Start::Absent, Start::At(2)),
    ] {
        let mut engine = Engine::start(EngineSpec::new(before));
        engine.store(20);
        let agent = Running::start(&settings(&[engine.worker()])).await;
        let router = Router::start(agent.address, &engine.url()).await;
        router.converges(&engine.truth, State::Live).await;
        let first = incarnation(&agent).await;
        let known = restarts(&router).await;
        let mut engine = engine.restart(after);
        // It has passed our cursor again before we look.
        for _ in 0..3 {
            engine.store(5);
        }
        router.converges(&engine.truth, State::Live).await;
        assert_ne!(incarnation(&agent).await, first, "{before:?} {after:?}");
        assert_eq!(restarts(&router).await, known + 1, "{before:?} {after:?}");
        agent.stop().await;
    }
}

/// An engine that lives anew and says the very same: only its start tells, and then nothing of before is kept.
#[tokio::test(flavor = "multi_thread")]
async fn a_restart_that_only_the_start_time_tells() {
    let mut engine = Engine::start(EngineSpec::new(Start::At(1)));
    engine.store(20);
    let agent = Running::start(&settings(&[engine.worker()])).await;
    let router = Router::start(agent.address, &engine.url()).await;
    router.converges(&engine.truth, State::Live).await;
    let (first, known) = (incarnation(&agent).await, restarts(&router).await);
    let mut engine = engine.restart_alike(Start::At(2));
    engine.store(20);
    until("the agent serves another life", || async {
        let rank = agent.rank(0).await;
        rank["served"] == true && rank["incarnation"] != first.as_str()
    })
    .await;
    until("the router knows it", || async { restarts(&router).await == known + 1 }).await;
    router.converges(&engine.truth, State::Live).await;
    agent.stop().await;
}

/// A connection that breaks is no restart: the agent goes on where it was, and so do those who watch.
#[tokio::test(flavor = "multi_thread")]
async fn a_broken_connection_to_the_engine_costs_no_list() {
    let mut engine = Engine::start(EngineSpec::new(Start::At(1)));
    let proxy = Proxy::start(engine.spec.events.strip_prefix("tcp://").unwrap().parse().unwrap()).await;
    let events = format!("tcp://{}", proxy.address);
    let worker = engine.worker().replace(&engine.spec.events, &events);
    let agent = Running::start(&settings(&[worker])).await;
    agent.has_read(0).await;
    engine.store(20);
    let router = Router::start(agent.address, &engine.url()).await;
    router.converges(&engine.truth, State::Live).await;
    let before = agent.rank(0).await;
    let lists = router.viewed().await.status.counters.lists;
    proxy.refuse();
    until("the agent serves nothing", || async {
        agent.rank(0).await["served"] == false
    })
    .await;
    engine.store(7);
    proxy.accept();
    router.converges(&engine.truth, State::Live).await;
    let after = agent.rank(0).await;
    assert_eq!(
        (&after["incarnation"], &after["epoch"]),
        (&before["incarnation"], &before["epoch"])
    );
    assert_eq!(router.viewed().await.status.counters.lists, lists);
    agent.stop().await;
}

/// An engine without a replay socket: what was missed is lost, and nobody claims otherwise.
#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_cannot_replay() {
    let spec = EngineSpec {
        replay: "-".to_owned(),
        ..EngineSpec::new(Start::At(1))
    };
    let mut engine = Engine::start(spec);
    let agent = Running::start(&settings(&[engine.worker()])).await;
    agent.has_read(0).await;
    let router = Router::start(agent.address, &engine.url()).await;
    engine.store(20);
    router.converges(&engine.truth, State::Live).await;
    let first = incarnation(&agent).await;
    let mut engine = engine.restart(Start::At(2));
    agent.has_read(0).await;
    assert_ne!(incarnation(&agent).await, first);
    engine.store(3);
    router.converges(&engine.truth, State::Live).await;
    agent.stop().await;
}

/// An agent that came late, to an engine that does not keep all: its list says so, and so does the router.
#[tokio::test(flavor = "multi_thread")]
async fn a_late_agent_says_that_its_list_is_incomplete() {
    let spec = EngineSpec {
        kept: 2,
        ..EngineSpec::new(Start::At(1))
    };
    let mut engine = Engine::start(spec);
    for _ in 0..5 {
        engine.store(10);
    }
    let agent = Running::start(&settings(&[engine.worker()])).await;
    agent.has_read(5).await;
    assert_eq!(agent.rank(0).await["complete"], false);
    let router = Router::start(agent.address, &engine.url()).await;
    until("the router is warming with what there is", || async {
        let viewed = router.viewed().await;
        viewed.status.state == State::Warming && viewed.stats.blocks == 20
    })
    .await;
    engine.clear();
    engine.store(1);
    router.converges(&engine.truth, State::Live).await;
    // From then on the agent knows all, and so does a router that comes now.
    let router = Router::start(agent.address, &engine.url()).await;
    router.converges(&engine.truth, State::Live).await;
    assert_eq!(agent.rank(0).await["complete"], true);
    agent.stop().await;
}
