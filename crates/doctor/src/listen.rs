//! Do the events of a rank arrive, and are they those of the prompt that was sent?
//!
//! By the same sources, lanes, feed and index that a gateway has, of its own: nothing here touches those of a gateway.

use std::sync::Arc;
use std::time::{Duration, Instant};

use homing_config::{Config, EventSource, WorkerSpec};
use homing_domain::{BlockKey, DpRank, KeyHasher, Prompt, RankId, Sequence, Tier, WorkerId};
use homing_feed::{State, Why};
use homing_index::Answer;
use homing_keeper::{Hooks, Keeper, KeeperConfig, Lanes, LanesConfig, Sources, feed_config, index_config};
use homing_telemetry::{LabelValue as _, Metrics, Skip};
use homing_transport::zmq::{self, Endpoint, ReplayConfig};
use homing_wire::envelope;
use tokio::runtime::Handle;

use crate::observed::{ReplaySeen, Subscription};

/// How often it is looked whether something came.
const LOOK: Duration = Duration::from_millis(10);
/// Threads that decode: there is one rank at a time.
const THREADS: usize = 1;
/// Batches that wait to be decoded.
const LANE: usize = 1024;
/// From where on a replay is asked for: so far that nothing is sent but the end.
const FAR: Sequence = Sequence(u64::MAX >> 1);

/// Listens to one rank.
#[derive(Debug)]
pub(crate) struct Listener {
    keeper: Keeper,
    metrics: Arc<Metrics>,
    hasher: KeyHasher,
    rank: RankId,
    pub(crate) subscription: Subscription,
}

/// What was heard since the beginning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Heard {
    pub(crate) indexed: u32,
    pub(crate) batches: u64,
    pub(crate) skipped: Vec<(&'static str, u64)>,
    pub(crate) lag_ms: Option<u64>,
    pub(crate) waited: Duration,
}

impl Listener {
    /// Subscribes, and waits until the subscription stands or has failed.
    pub(crate) async fn begin(
        config: &Config,
        spec: &WorkerSpec,
        dp: DpRank,
        source: &EventSource,
        patience: Duration,
    ) -> Result<Self, String> {
        // Of its own, so that what is counted is of this rank.
        let metrics = Arc::new(Metrics::default());
        let rank = RankId {
            worker: WorkerId(0),
            dp,
        };
        let hasher = KeyHasher::new(config.hash_seed);
        let lanes = LanesConfig {
            threads: THREADS,
            bound: LANE,
        };
        let words = |error: &dyn std::error::Error| error.to_string();
        let lanes = Lanes::start(lanes, &metrics).map_err(|error| words(&error))?;
        let keeper = KeeperConfig {
            feed: feed_config(config, rank.worker),
            index: index_config(config, hasher),
            hooks: Hooks::default(),
        };
        let keeper =
            Keeper::start(keeper, &lanes, Handle::current(), metrics.clone()).map_err(|error| words(&error))?;
        let sources = Sources::new(config, &metrics);
        let mut listener = Self {
            keeper,
            metrics,
            hasher,
            rank,
            subscription: Subscription::Nobody,
        };
        let made = sources.of(spec, dp, source).map_err(|error| words(&error))?;
        if let Some(made) = made {
            listener.keeper.join(rank, made).await.map_err(|error| words(&error))?;
            listener.subscription = listener.stands(place(source), patience).await;
        }
        Ok(listener)
    }

    async fn stands(&self, at: String, patience: Duration) -> Subscription {
        let until = Instant::now() + patience;
        loop {
            let view = self.keeper.view().await;
            let seen = view.ok().and_then(|view| view.ranks.into_iter().next());
            let (state, trouble) = seen.map_or((None, None), |seen| (Some(seen.status.state), seen.trouble));
            match state {
                None
                | Some(State::Stale {
                    why: Why::Disconnected, ..
                }) => {}
                Some(_) => return Subscription::Stands(at),
            }
            if Instant::now() > until {
                let why = trouble.unwrap_or_else(|| format!("no connection within {patience:?}"));
                return Subscription::Failed { at, why };
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Waits until so many leading blocks of a prompt are in the index, or as long as there is patience. Without a subscription nothing
    /// is waited for.
    pub(crate) async fn blocks(&self, spec: &WorkerSpec, tokens: &[u32], wanted: u32, patience: Duration) -> Heard {
        let mut keys = Vec::new();
        let began = Instant::now();
        self.hasher.keys(&Prompt::text(tokens, spec.block_size), &mut keys);
        loop {
            let indexed = self.leading(&keys);
            let hopeless = !matches!(self.subscription, Subscription::Stands(_));
            if indexed >= wanted || hopeless || began.elapsed() > patience {
                return self.heard(indexed, began.elapsed());
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    fn leading(&self, keys: &[BlockKey]) -> u32 {
        let mut answer = Answer::default();
        self.keeper.reader().lookup(keys, &mut answer);
        let slot = answer.ranks().find(|(rank, _)| *rank == self.rank);
        slot.map_or(0, |(_, slot)| answer.depth(slot, Tier::External).0)
    }

    fn heard(&self, indexed: u32, waited: Duration) -> Heard {
        let wire = &self.metrics.wire;
        let counted = Skip::ALL.iter().map(|reason| {
            let count = wire.skipped_events.of(*reason).get();
            (Skip::VALUES[reason.place()], count)
        });
        Heard {
            indexed,
            batches: wire.decoded_batches.get() + wire.broken_batches.get(),
            skipped: counted.filter(|(_, count)| *count > 0).collect(),
            lag_ms: self.keeper.standing().rank(self.rank).and_then(|status| status.lag_ms),
            waited,
        }
    }
}

/// Where events are to be had, in words.
fn place(source: &EventSource) -> String {
    match source {
        EventSource::Nobody => "nowhere".to_owned(),
        EventSource::Agent(url) | EventSource::Poll(url) => url.to_string(),
        EventSource::Stream { events, .. } => events.to_string(),
    }
}

/// Asks a replay socket for what comes after everything: the end of that answer shows that there is one.
pub(crate) async fn replay(source: &EventSource, patience: Duration) -> ReplaySeen {
    let endpoint = match source {
        EventSource::Nobody => return ReplaySeen::NotNeeded("nobody publishes events"),
        EventSource::Agent(_) => return ReplaySeen::NotNeeded("an agent keeps what was lost"),
        EventSource::Poll(_) => return ReplaySeen::NotNeeded("the engine is asked for its events"),
        EventSource::Stream { replay: None, .. } => return ReplaySeen::Nowhere,
        EventSource::Stream {
            replay: Some(endpoint), ..
        } => endpoint,
    };
    let at = endpoint.to_string();
    match tokio::time::timeout(patience, answers(&at, patience)).await {
        Ok(Ok(())) => ReplaySeen::Answers(at),
        Ok(Err(why)) => ReplaySeen::Failed { at, why },
        Err(_) => ReplaySeen::Failed {
            at,
            why: format!("no answer within {patience:?}"),
        },
    }
}

async fn answers(at: &str, patience: Duration) -> Result<(), String> {
    let endpoint: Endpoint = at.parse().map_err(|error: zmq::EndpointError| error.to_string())?;
    let request = envelope::replay_request(FAR);
    let request: Vec<&[u8]> = request.iter().map(AsRef::as_ref).collect();
    let config = ReplayConfig {
        silence: patience,
        ..ReplayConfig::default()
    };
    let asked = zmq::replay(&endpoint, &request, config).await;
    let mut asked = asked.map_err(|error| error.to_string())?;
    let message = asked.next().await.map_err(|error| error.to_string())?;
    let frames: Vec<&[u8]> = message.frames().collect();
    match envelope::replayed(&frames) {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("it answers with something else than a replay: {error}")),
    }
}
