//! What do the operator's settings mean to those who do the work?

use std::time::Duration;

use homing_config::{CacheView as AskedView, Config, Switch, WorkerSpec};
use homing_discovery::{Facts, HealthConfig, ProbeConfig, RosterConfig, WatchConfig};
use homing_domain::{BlockSize, KeyHasher};
use homing_index::ApproximateConfig;
use homing_profile::{Millis, Profile, Timing, builtin};
use homing_router::{CacheView, RouterConfig};
use homing_scheduler::queue::{ClassSpec, Limits, Order};

use crate::clock::Clock;
use crate::service::StartError;

/// The router of one model and block size.
pub(crate) fn router(config: &Config, size: BlockSize, hasher: KeyHasher) -> RouterConfig {
    let queue = &config.serve.queue;
    let millis = |time: Duration| Millis(time.as_secs_f64() * 1e3);
    let limits = Limits {
        requests: queue.requests as usize,
        first_token: millis(queue.most_wait),
        ..Limits::default()
    };
    let mut router = RouterConfig::new(size, hasher);
    router.start_within = millis(queue.start_within);
    router.most_wait = millis(queue.most_wait);
    router.total = limits;
    // There is one class, whose limits are those of all.
    router.classes = vec![ClassSpec {
        name: "default".to_owned(),
        quantum: 1,
        order: Order::FirstCome,
        limits: Limits {
            requests: usize::MAX,
            tokens: u64::MAX,
            first_token: Millis(f64::MAX),
        },
    }];
    router.approximate = ApproximateConfig {
        ttl_ms: u64::try_from(config.approximate.ttl.as_millis()).unwrap_or(u64::MAX),
        max_blocks: config.approximate.max_blocks.0 as usize,
        prune_target_ratio: config.approximate.prune_target_ratio,
    };
    // More ranks than an index can hold are refused there.
    router.load.max_ranks = config.index.max_ranks as usize;
    router.seed = fastrand::u64(..);
    router
}

/// When a worker is taken for ill.
pub(crate) fn health(config: &Config) -> HealthConfig {
    let limits = &config.health;
    HealthConfig {
        failures: limits.failures,
        failure_rate: limits.failure_rate,
        window: limits.window,
        least_requests: limits.least_requests,
        backoff: limits.backoff,
        backoff_most: limits.backoff_most,
        trials: limits.trials,
        trial_limit: limits.trial_limit,
    }
}

/// How sources of workers are taken together.
pub(crate) fn roster(config: &Config) -> RosterConfig {
    RosterConfig {
        linger: config.discovery.linger,
        flap_window: config.discovery.flap_window,
        flap_wait: config.discovery.flap_wait,
    }
}

/// How workers are watched.
pub(crate) fn watch(config: &Config, clock: Clock) -> WatchConfig {
    WatchConfig {
        origin: clock.began(),
        probe: ProbeConfig {
            timeout: config.probe.timeout,
        },
        probe_interval: config.probe.interval,
        ping_interval: config.health.interval,
        ping_timeout: config.health.timeout,
        load_interval: config.load.interval,
        load_timeout: config.load.timeout,
        at_once: config.load.at_once as usize,
    }
}

/// A profile by name, or from a file.
pub(crate) fn timing(name: &str) -> Result<Timing, StartError> {
    let is_file = std::path::Path::new(name)
        .extension()
        .is_some_and(|extension| extension == "json");
    let profile = if is_file {
        let file = homing_config::read_text(name).map_err(|error| StartError::ProfileFile(error.to_string()))?;
        Profile::from_json(&file.text)?
    } else {
        builtin::load(name)?
    };
    Ok(Timing::measured(profile))
}

/// From where the cache of a worker is known.
pub(crate) fn view(spec: &WorkerSpec, facts: &Facts) -> CacheView {
    if facts.prefix_caching == Some(Switch::Off) {
        return CacheView::Nothing;
    }
    match spec.cache_view {
        AskedView::Events => CacheView::Events,
        AskedView::Approximate => CacheView::Guess,
        AskedView::None => CacheView::Nothing,
    }
}
