//! What do the operator's settings mean to those who do the work?

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use homing_config::{
    AddressRules, CacheView as AskedView, Config, Disagg, DisaggWhen, Switch, TopologyRule, WorkerSpec,
};
use homing_disagg::{Endpoint, Enforce, Topology, Traits, Whether};
use homing_discovery::{Facts, HealthConfig, ProbeConfig, RegistrationsConfig, RosterConfig, WatchConfig};
use homing_domain::{BlockSize, KeyHasher};
use homing_index::ApproximateConfig;
use homing_profile::{GigabytesPerSecond, Millis, Profile, Timing, builtin};
use homing_router::{ApartConfig, CacheView, Policies, RouterConfig};
use homing_scheduler::policy::{self, PolicyError};
use homing_scheduler::queue::{ClassSpec, Limits, Order};
use homing_wire::Dialect;

use crate::clock::Clock;
use crate::error::StartError;

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
    router.apart = apart(&config.disagg);
    router
}

/// When two workers serve a request, and which.
pub(crate) fn apart(disagg: &Disagg) -> ApartConfig {
    let topology = disagg.topology().unwrap_or_default();
    let topology = topology.into_iter().map(|rule| match rule {
        TopologyRule::Required(label) => Topology {
            label: label.into(),
            enforce: Enforce::Required,
        },
        TopologyRule::Preferred(label, weight) => Topology {
            label: label.into(),
            enforce: Enforce::Preferred(weight),
        },
    });
    let mut apart = ApartConfig::default();
    apart.choose.whether = match disagg.when {
        DisaggWhen::Predicted => Whether::Predicted {
            stall: disagg.stall,
            margin: disagg.margin,
        },
        DisaggWhen::Rules => Whether::Rules {
            uncached: disagg.uncached_tokens,
            share: disagg.uncached_share,
        },
        DisaggWhen::Always => Whether::Always,
    };
    apart.choose.topology = topology.collect();
    apart.choose.most_queued = disagg.queued_tokens.unwrap_or(u64::MAX);
    apart.staging.most_share = disagg.staged_share;
    apart
}

/// The policies of a router. They were read when the gateway began.
pub(crate) fn policies(config: &Config) -> Result<Policies, PolicyError> {
    let own = |policy: &Option<String>| policy.as_deref().map(policy::by_spec).transpose();
    Ok(Policies {
        whole: policy::by_spec(&config.serve.policy)?,
        prefill: own(&config.disagg.prefill_policy)?,
        decode: own(&config.disagg.decode_policy)?,
    })
}

/// How a worker hands KV over.
pub(crate) fn traits(spec: &WorkerSpec, facts: &Facts, disagg: &Disagg) -> Traits {
    let mut traits = match spec.dialect {
        Dialect::Sglang => {
            let endpoint = facts.bootstrap.map(|port| Endpoint {
                host: spec.url.host().into(),
                port,
                dp_size: spec.ranks,
            });
            Traits::rendezvous(endpoint)
        }
        _ => Traits::by_result(),
    };
    traits.format.model = Some(spec.model.as_str().into());
    traits.format.block_size = facts.block_size;
    traits.rate = GigabytesPerSecond(disagg.link / 8.0);
    traits
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

/// What registrations may be. The addresses are those where the gateway itself listens.
pub(crate) fn registrations(config: &Config, own_listeners: Vec<SocketAddr>) -> RegistrationsConfig {
    let registrations = RegistrationsConfig::of(config);
    let rules = AddressRules {
        own_listeners,
        ..(*registrations.rules).clone()
    };
    RegistrationsConfig {
        rules: Arc::new(rules),
        ..registrations
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_of_pairs_are_their_own() {
        let ours = apart(&Config::default().disagg);
        assert_eq!(ours.choose, ApartConfig::default().choose);
        assert_eq!(ours.staging, ApartConfig::default().staging);
    }
}
