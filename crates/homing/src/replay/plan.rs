//! What was asked for becomes a fleet, its traffic, and what both are judged by.

use anyhow::{Context as _, bail, ensure};
use homing_config::quantity;
use homing_domain::{BlockSize, Blocks, HashSeed, KeyHasher, Tokens};
use homing_engine::EngineConfig;
use homing_feed::FeedConfig;
use homing_profile::{Millis, Profile, Timing, builtin};
use homing_router::{CacheView, RouterConfig};
use homing_scheduler::policy::{self, NAMES};
use homing_sim::fleet::{FleetSetup, Links, RouterSetup, WorkerSetup};
use homing_sim::study::{Counted, Mix, Mixed, Reuse, Slo, Survey, Work, Yardstick};
use homing_trace::{Spelling, TraceError};

use super::args::FleetArgs;
use super::source::{Reading, Requests, Source};
use super::{split, written};

/// Blocks of each worker while a share of the working set is asked for and that is not known yet.
const FIRST_BLOCKS: u32 = 49_152;
/// So often caches are fitted to the traffic and the traffic to the caches.
const ROUNDS: u32 = 3;
/// Batches that an engine can send again.
const RING: usize = 256;
/// How often a request is tried.
const ATTEMPTS: u32 = 3;
/// Policies that are compared unless others are named.
const POLICIES: [&str; 4] = ["time", "blocks", "prefix-affinity", "round-robin"];

/// All that runs are made of.
pub struct Plan {
    /// Where requests come from.
    pub source: Source,
    /// What is in them.
    pub survey: Survey,
    /// How many copies of them.
    pub mix: Mix,
    /// The load that was asked for.
    pub asked: Option<f64>,
    /// The most blocks that were worth keeping at one moment.
    pub working_set: u64,
    /// What no policy can beat.
    pub yardstick: Yardstick,
    /// The fleet, with the first seed and some policy.
    pub setup: FleetSetup,
    /// What a request must meet.
    pub slo: Slo,
    /// Which requests count.
    pub counted: Counted,
    /// The names of the profiles.
    pub profiles: (String, String),
    /// Runs at once.
    pub threads: usize,
}

impl Plan {
    /// Reads the trace and makes the fleet; if so, of the first `most` requests only.
    pub fn new(args: &FleetArgs, most: Option<u64>) -> anyhow::Result<Self> {
        let slo = written::slo(&args.slo)?;
        let source = Source::new(
            &args.trace,
            &Reading {
                block: args.trace_block,
                speed: args.speed,
                slice: args.slice.as_deref().map(written::slice).transpose()?,
            },
        )?;
        let believed = args.believed_profile.as_ref().unwrap_or(&args.profile);
        let room = Room::read(&args.blocks)?;
        let mut setup = setup(args, believed, &room)?;
        let work = work(&setup);
        let mut survey = Survey::of(|| source.open(), block_size(args)?, &work)?;
        let since = written::warmup(&args.warmup, survey.summary.span)?;
        let mut mix = mixed(args, &survey, most)?;
        let counted = |mix: &Mix, survey: &Survey| Counted {
            since,
            until: mix.end().filter(|_| survey.follows),
        };
        let mut reuse = Reuse::of((&survey, &work), mix, counted(&mix, &survey), || source.open())?;
        if let Room::Times(times) = room {
            // How many copies there are depends on how large batches can be, and the working set on how many copies there are.
            for _ in 0..ROUNDS {
                let each = times * reuse.working_set() as f64 / f64::from(split::workers(args));
                set_blocks(&mut setup, each.clamp(1.0, f64::from(u32::MAX)) as u32);
                survey.set_work(&self::work(&setup));
                let again = mixed(args, &survey, most)?;
                if again == mix {
                    break;
                }
                mix = again;
                reuse = Reuse::of((&survey, &work), mix, counted(&mix, &survey), || source.open())?;
            }
        }
        survey.forget_requests();
        let cache = setup.cache_tokens();
        ensure!(
            u64::from(survey.longest.0) <= cache,
            "the longest request has {} tokens, a worker's cache has room for {cache}: give it more --blocks",
            survey.longest.0
        );
        let yardstick = reuse.yardstick(&setup, &work);
        Ok(Self {
            counted: counted(&mix, &survey),
            mix,
            asked: args.load,
            working_set: reuse.working_set(),
            yardstick,
            setup,
            slo,
            profiles: (args.profile.clone(), believed.clone()),
            threads: threads(args),
            survey,
            source,
        })
    }

    /// The traffic from its beginning.
    pub fn traffic(&self) -> Result<Mixed<Requests>, TraceError> {
        self.mix.traffic(|| self.source.open())
    }

    /// Requests of the traffic.
    pub fn requests(&self) -> u64 {
        self.mix.requests
    }

    /// The fleet with this policy and seed.
    pub fn fleet(&self, policy: &str, seed: u64) -> FleetSetup {
        let mut setup = self.setup.clone();
        setup.seed = seed;
        setup.routers.config.seed = seed;
        policy.clone_into(&mut setup.routers.policy);
        setup
    }
}

fn mixed(args: &FleetArgs, survey: &Survey, most: Option<u64>) -> anyhow::Result<Mix> {
    let mix = match args.load {
        Some(load) => {
            ensure!(
                load > 0.0 && load.is_finite(),
                "--load is {load}, expected a number above 0"
            );
            Mix::load(survey, split::workers(args), load)?
        }
        None => Mix::copies(survey, split::workers(args), args.copies.unwrap_or(1)),
    };
    Ok(most.map_or(mix, |most| mix.limited(most)))
}

/// The policies that were named, checked; `all` stands for all that choose by themselves.
pub fn policies(named: &[String]) -> anyhow::Result<Vec<String>> {
    let mut policies: Vec<String> = Vec::new();
    let named: Vec<&str> = if named.is_empty() {
        POLICIES.to_vec()
    } else {
        named.iter().map(String::as_str).collect()
    };
    for name in named {
        if name == "all" {
            policies.extend(
                NAMES
                    .iter()
                    .filter(|name| **name != "direct")
                    .map(|name| (*name).to_owned()),
            );
        } else {
            let found = policy::by_spec(name)?;
            ensure!(
                !found.needs_pin(),
                "the policy `{name}` chooses nothing by itself: requests of a trace name no worker"
            );
            policies.push(name.to_owned());
        }
    }
    let mut seen = std::collections::BTreeSet::new();
    policies.retain(|policy| seen.insert(policy.clone()));
    Ok(policies)
}

/// How large caches are.
enum Room {
    Blocks(u32),
    /// So many times the working set, over all workers.
    Times(f64),
}

impl Room {
    fn read(text: &str) -> anyhow::Result<Self> {
        let wrong =
            || format!("--blocks is {text:?}, expected a number of blocks, or 0.5x for half of the working set");
        if let Some(times) = text.strip_suffix('x') {
            let times: Option<f64> = times.parse().ok();
            let times = times.filter(|times| *times > 0.0 && times.is_finite());
            return Ok(Self::Times(times.with_context(wrong)?));
        }
        let blocks = quantity::count(text).and_then(|blocks| u32::try_from(blocks).ok());
        Ok(Self::Blocks(blocks.filter(|blocks| *blocks > 0).with_context(wrong)?))
    }
}

fn block_size(args: &FleetArgs) -> anyhow::Result<BlockSize> {
    BlockSize::new(args.block_size).context("--block-size must not be 0")
}

fn setup(args: &FleetArgs, believed: &str, room: &Room) -> anyhow::Result<FleetSetup> {
    let size = block_size(args)?;
    let blocks = match room {
        Room::Blocks(blocks) => *blocks,
        Room::Times(_) => FIRST_BLOCKS,
    };
    // The constructor counts in blocks of 16 tokens; the longest sequence is set with the blocks.
    let mut engine = EngineConfig::vllm(Blocks(blocks), timing(&args.profile)?);
    engine.block_size = size;
    let mut config = RouterConfig::new(size, KeyHasher::new(HashSeed::PUBLIC));
    config.start_within = written::time("--start-within", &args.start_within)?;
    config.seed = args.seed;
    split::choose(args, &mut config.apart.choose)?;
    let view = match args.cache_view.as_str() {
        "events" => CacheView::Events,
        "guess" => CacheView::Guess,
        "nothing" => CacheView::Nothing,
        other => bail!("--cache-view is {other:?}, expected events, guess or nothing"),
    };
    let mut setup = FleetSetup {
        seed: args.seed,
        workers: WorkerSetup {
            count: split::workers(args),
            engine,
            disparity: written::disparity(&args.disparity)?,
            ring: RING,
        },
        routers: RouterSetup {
            count: args.routers,
            config,
            policy: "time".to_owned(),
            timing: timing(believed)?,
            view,
            feed: FeedConfig::default(),
            attempts: ATTEMPTS,
        },
        links: Links {
            event_lag: written::time("--event-lag", &args.event_lag)?,
            ..Links::default()
        },
        faults: faults(args)?,
        split: split::setup(args)?,
        spelling: Spelling::default(),
    };
    split::check(&setup)?;
    set_blocks(&mut setup, blocks);
    Ok(setup)
}

fn set_blocks(setup: &mut FleetSetup, blocks: u32) {
    let engine = &mut setup.workers.engine;
    engine.blocks = Blocks(blocks);
    engine.max_model_len = engine.block_size.tokens_in(Blocks(blocks)).min(Tokens(1 << 22));
}

fn faults(args: &FleetArgs) -> anyhow::Result<Vec<homing_sim::fleet::Fault>> {
    let Some(plan) = &args.faults else {
        return Ok(Vec::new());
    };
    // A plan has an @ in it; what has none can only be a file.
    let text = if plan.contains('@') {
        plan.clone()
    } else {
        homing_config::read_text(plan)?.text
    };
    written::faults(&text, (split::workers(args), args.routers)).context("--faults")
}

/// A profile by name, or from a file.
fn timing(name: &str) -> anyhow::Result<Timing> {
    let is_file = std::path::Path::new(name)
        .extension()
        .is_some_and(|extension| extension == "json");
    let profile = if is_file {
        let file = homing_config::read_text(name)?;
        Profile::from_json(&file.text).with_context(|| file.name.clone())?
    } else {
        builtin::load(name)?
    };
    Ok(Timing::measured(profile))
}

/// What a worker of this fleet takes, on average.
pub fn work(setup: &FleetSetup) -> Work {
    let (least, most) = setup.workers.disparity.overhead;
    Work {
        timing: setup.workers.engine.timing.clone(),
        overhead: Millis(f64::midpoint(least.0, most.0)),
        cache: Tokens(u32::try_from(setup.cache_tokens()).unwrap_or(u32::MAX)),
        sequences: setup.workers.engine.max_running,
    }
}

fn threads(args: &FleetArgs) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    args.threads.map_or(cores, |threads| threads as usize)
}
