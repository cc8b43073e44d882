//! Are the addresses of a registration allowed?
//!
//! Names are resolved, and each of their addresses must be allowed. A name that does not resolve yet is taken: it is judged again
//! whenever it is used.
//!
//! **Invariant:** at most [`MAX_LOOKUPS`] names are resolved at once, and a registration waits no longer than its limit.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::sync::Arc;
use std::time::Duration;

use homing_config::register_tokens::RegisterToken;
use homing_config::{AddressRules, Endpoint, EventSource, HttpUrl, WorkerSpec};
use thiserror::Error;
use tokio::sync::Semaphore;

/// Names that are resolved at once.
const MAX_LOOKUPS: usize = 16;

/// Judges the addresses of registrations.
#[derive(Debug)]
pub(crate) struct AddressCheck {
    rules: Arc<AddressRules>,
    lookups: Arc<Semaphore>,
    timeout: Duration,
}

/// An address of a worker is not allowed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{host}: {why}")]
pub struct AddressProblem {
    host: String,
    why: String,
}

impl AddressCheck {
    pub(crate) fn new(rules: Arc<AddressRules>, timeout: Duration) -> Self {
        Self {
            rules,
            lookups: Arc::new(Semaphore::new(MAX_LOOKUPS)),
            timeout,
        }
    }

    /// Whether all addresses of a worker are allowed that this token registers.
    pub(crate) async fn check(&self, worker: &WorkerSpec, token: &RegisterToken) -> Result<(), AddressProblem> {
        let Some(loopback) = worker.scope.loopback_use() else {
            return Ok(());
        };
        for (host, ports) in places(worker) {
            let problem = |why: String| AddressProblem {
                host: host.clone(),
                why,
            };
            let addresses = match host.parse::<IpAddr>() {
                Ok(address) => vec![address],
                // Where it leads may change behind our back, and the token's networks are known here only.
                Err(_) if !token.networks.is_empty() => {
                    let why = "the token allows some networks only, so an IP address is needed and not a name";
                    return Err(problem(why.to_owned()));
                }
                Err(_) => self.resolve(host.clone()).await,
            };
            for address in addresses {
                for port in &ports {
                    let judged = self.rules.check(SocketAddr::new(address, *port), loopback);
                    judged.map_err(|denied| problem(denied.to_string()))?;
                }
                if !token.networks.is_empty() && !token.networks.contains(address) {
                    return Err(problem("the token does not allow this network".to_owned()));
                }
            }
        }
        Ok(())
    }

    /// The addresses of a name; none, if it does not resolve in time.
    async fn resolve(&self, host: String) -> Vec<IpAddr> {
        let lookup = async {
            let permit = self.lookups.clone().acquire_owned().await.ok()?;
            let looked_up = tokio::task::spawn_blocking(move || {
                // Held until the system answers, however long that takes.
                let _permit = permit;
                let found = (host.as_str(), 0).to_socket_addrs();
                found.map(|found| found.map(|address| address.ip()).collect())
            });
            looked_up.await.ok()?.ok()
        };
        let found = tokio::time::timeout(self.timeout, lookup).await;
        found.ok().flatten().unwrap_or_default()
    }
}

/// All hosts that are connected to because of a worker, with their ports.
fn places(worker: &WorkerSpec) -> BTreeMap<String, Vec<u16>> {
    let mut places: BTreeMap<String, Vec<u16>> = BTreeMap::new();
    let mut add = |host: &str, port: u16| places.entry(host.to_owned()).or_default().push(port);
    let mut add_url = |url: &HttpUrl| add(url.host(), url.port());
    add_url(&worker.url);
    if let EventSource::Agent(url) | EventSource::Poll(url) = &worker.source {
        add_url(url);
    }
    for (_, source) in worker.rank_sources() {
        let EventSource::Stream { events, replay, .. } = source else {
            continue;
        };
        for endpoint in [Some(events.endpoint), replay].into_iter().flatten() {
            match endpoint {
                Endpoint::Tcp { host, port } => add(&host, port),
                // A registration has none.
                Endpoint::Ipc { .. } => {}
            }
        }
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;
    use homing_config::{AddressScope, Config, WorkerDefaults};

    fn check_with(token: &RegisterToken, scope: AddressScope, worker: &str) -> Result<(), String> {
        let defaults: WorkerDefaults = Config::default().worker_defaults().scoped(scope);
        let worker = WorkerSpec::parse(worker, &defaults).map_err(|problems| problems[0].to_string())?;
        let rules = AddressRules {
            deny: Config::default().discovery.register_deny,
            own_listeners: vec!["127.0.0.1:8080".parse().unwrap()],
            ..AddressRules::default()
        };
        let check = AddressCheck::new(Arc::new(rules), Duration::from_secs(20));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let checked = runtime.block_on(check.check(&worker, token));
        checked.map_err(|problem| problem.to_string())
    }

    #[test]
    fn every_address_of_a_worker_is_judged() {
        let token = RegisterToken::unrestricted("a", [0; 32]);
        for (worker, expected) in [
            ("http://10.0.0.1:8000,events=tcp://10.0.0.1:5557", None),
            ("http://169.254.169.254", Some("169.254.169.254 is in 169.254.0.0/16")),
            (
                "http://10.0.0.1,events=tcp://169.254.0.1:5557",
                Some("is in 169.254.0.0/16"),
            ),
            (
                "http://10.0.0.1,events=tcp://10.0.0.1:1,replay=tcp://[fe80::1]:2",
                Some("is in fe80::/10"),
            ),
            ("http://10.0.0.1,agent=http://0.0.0.0:7600", Some("is in 0.0.0.0/8")),
            ("http://127.0.0.1:8000", Some("loopback address")),
            ("http://localhost:8000", Some("loopback address")),
            ("http://2130706433:8000", Some("loopback address")),
            ("http://127.0.0.1:8080", Some("loopback address")),
            ("http://10.0.0.1,events=bind:tcp://*:1", Some("settings file only")),
            ("http://10.0.0.1,events=ipc:///run/x", Some("settings file only")),
            (
                "http://10.0.0.1,events=tcp://10.0.0.1:1,replay=ipc:///run/x",
                Some("settings file only"),
            ),
        ] {
            let found = check_with(&token, AddressScope::Registered, worker);
            match expected {
                None => assert_eq!(found, Ok(()), "{worker}"),
                Some(words) => assert!(
                    found.as_ref().is_err_and(|why| why.contains(words)),
                    "{worker}: {found:?}"
                ),
            }
        }
        let locally = |worker| check_with(&token, AddressScope::RegisteredLocally, worker);
        assert_eq!(locally("http://localhost:8000,events=tcp://127.0.0.1:5557"), Ok(()));
        // A port of a further rank counts as well.
        let own = locally("http://127.0.0.1:8000,events=tcp://127.0.0.1:8078,ranks=3").unwrap_err();
        assert!(own.contains("127.0.0.1:8080 is an address of this gateway"), "{own}");
    }

    #[test]
    fn a_token_with_networks_takes_addresses_of_them_only() {
        let token = RegisterToken {
            networks: "10.1.0.0/16".parse().unwrap(),
            ..RegisterToken::unrestricted("a", [0; 32])
        };
        let found = |worker| check_with(&token, AddressScope::Registered, worker);
        assert_eq!(found("http://10.1.2.3,events=tcp://10.1.2.3:5557"), Ok(()));
        for (worker, words) in [
            ("http://10.2.0.1", "does not allow this network"),
            (
                "http://10.1.0.1,events=tcp://10.2.0.1:5557",
                "does not allow this network",
            ),
            ("http://gpu-1:8000", "an IP address is needed"),
        ] {
            assert!(found(worker).is_err_and(|why| why.contains(words)), "{worker}");
        }
    }
}
