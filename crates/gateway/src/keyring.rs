//! Who asks, and may he?
//!
//! A key is found by its digest. What it may use is counted for it and, where its tenant has limits, for all keys of the tenant
//! together.
//!
//! **Invariant:** when the file of keys changes, what a key or a tenant has used is not forgotten unless its limits change, and
//! requests under way go on.
//!
//! **Invariant:** a key is not kept, not logged and not sent to a worker.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use homing_config::Switch;
use homing_config::keys::{self, Digest, Keys, Quota};
use homing_platform::server::bearer;
use homing_protocol::{Hints, Problem, Usage};
use homing_telemetry::{Quota as Limit, RequestEnd};
use hyper::HeaderMap;
use hyper::header::{self, HeaderName, HeaderValue};
use subtle::ConstantTimeEq as _;

use crate::allowance::Allowance;
use crate::refusal::Refuse;

/// Where Anthropic's clients send their key.
pub(crate) const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// The keys; none, if nobody is asked for one.
#[derive(Debug, Default)]
pub(crate) struct Keyring {
    ring: ArcSwapOption<Ring>,
}

#[derive(Debug)]
struct Ring {
    /// By the first bytes of their digests; there is seldom more than one.
    keys: HashMap<u64, Vec<Arc<Key>>>,
    tenants: HashMap<String, Arc<Allowance>>,
}

/// One key.
#[derive(Debug)]
pub(crate) struct Key {
    digest: Digest,
    pub(crate) tenant: Arc<str>,
    priority: i32,
    pin: Switch,
    own: Arc<Allowance>,
    of_tenant: Option<Arc<Allowance>>,
}

/// Whether a key is known.
#[derive(Debug)]
pub(crate) enum Who {
    /// Nobody is asked for a key.
    Anybody,
    /// The owner of this key.
    Known(Arc<Key>),
    /// There is no key, or none that is known.
    Unknown(&'static str),
}

impl Keyring {
    /// These keys and no others, from now on.
    pub(crate) fn set(&self, keys: &Keys) {
        let now = Instant::now();
        let old = self.ring.load();
        let old = old.as_deref();
        let same = |held: Option<&Arc<Allowance>>, quota: Quota| {
            let held = held.filter(|held| held.quota() == quota);
            held.cloned().unwrap_or_else(|| Arc::new(Allowance::new(quota, now)))
        };
        let tenants: HashMap<String, Arc<Allowance>> = keys
            .tenants
            .iter()
            .map(|tenant| {
                let held = old.and_then(|old| old.tenants.get(&tenant.name));
                (tenant.name.clone(), same(held, tenant.quota))
            })
            .collect();
        let mut ring: HashMap<u64, Vec<Arc<Key>>> = HashMap::new();
        for spec in &keys.keys {
            let held = old.and_then(|old| old.find(&spec.digest));
            let key = Key {
                digest: spec.digest,
                tenant: spec.tenant.as_str().into(),
                priority: spec.priority,
                pin: spec.pin,
                own: same(held.map(|held| &held.own), spec.quota),
                of_tenant: tenants.get(&spec.tenant).cloned(),
            };
            ring.entry(first(&spec.digest)).or_default().push(Arc::new(key));
        }
        self.ring.store(Some(Arc::new(Ring { keys: ring, tenants })));
    }

    /// Whether keys are asked for.
    pub(crate) fn is_asked(&self) -> bool {
        self.ring.load().is_some()
    }

    /// Who sends these headers.
    pub(crate) fn who(&self, headers: &HeaderMap) -> Who {
        let ring = self.ring.load();
        let Some(ring) = ring.as_deref() else {
            return Who::Anybody;
        };
        let Some(said) = said(headers) else {
            return Who::Unknown("an API key is needed, as `Authorization: Bearer KEY` or `x-api-key: KEY`");
        };
        match ring.find(&keys::digest(said)) {
            Some(key) => Who::Known(key.clone()),
            None => Who::Unknown("the API key is not known"),
        }
    }
}

impl Ring {
    fn find(&self, digest: &Digest) -> Option<&Arc<Key>> {
        let near = self.keys.get(&first(digest))?;
        near.iter().find(|key| key.digest.ct_eq(digest).into())
    }
}

fn first(digest: &Digest) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&digest[..8]);
    u64::from_le_bytes(bytes)
}

/// The secret that was sent with a request.
pub(crate) fn said(headers: &HeaderMap) -> Option<&[u8]> {
    if let Some(value) = headers.get(header::AUTHORIZATION) {
        return bearer(value.as_bytes());
    }
    headers.get(X_API_KEY).map(HeaderValue::as_bytes)
}

impl Key {
    /// Begins a request, if there is one left. Who has used all tokens is refused as well, before anything is done for him.
    pub(crate) fn begin(&self, now: Instant) -> Result<(), Refuse> {
        self.tokens(now, 0.0)?;
        let limited = |wait| self.limited(Limit::Requests, wait);
        self.own.request(now).map_err(limited)?;
        if let Some(tenant) = &self.of_tenant
            && let Err(wait) = tenant.request(now)
        {
            self.own.request_back(now);
            return Err(limited(wait));
        }
        Ok(())
    }

    fn tokens(&self, now: Instant, tokens: f64) -> Result<(), Refuse> {
        let limited = |wait| self.limited(Limit::Tokens, wait);
        self.own.tokens(now, tokens).map_err(limited)?;
        if let Some(tenant) = &self.of_tenant
            && let Err(wait) = tenant.tokens(now, tokens)
        {
            self.own.charge_tokens(now, -tokens);
            return Err(limited(wait));
        }
        Ok(())
    }

    fn charge(&self, now: Instant, tokens: f64) {
        self.own.charge_tokens(now, tokens);
        if let Some(tenant) = &self.of_tenant {
            tenant.charge_tokens(now, tokens);
        }
    }

    fn limited(&self, of: Limit, wait: Duration) -> Refuse {
        let unit = match of {
            Limit::Requests => "requests",
            Limit::Tokens => "tokens",
        };
        let message = format!("the {unit} per minute of `{}` are used up", self.tenant);
        Refuse {
            problem: Problem::new(429, message).code("rate_limit_exceeded"),
            retry_after: Some(wait),
            end: RequestEnd::Refused,
            limit: Some(of),
        }
    }

    /// Whether requests with it may name workers and ranks.
    pub(crate) fn may_pin(&self) -> bool {
        self.pin.is_on()
    }

    /// What a client says of itself is put right: its tenant is the key's, and its priority at most the key's.
    pub(crate) fn overrule(&self, hints: &mut Hints) {
        hints.tenant = Some(self.tenant.as_ref().to_owned());
        hints.priority = Some(hints.priority.map_or(self.priority, |asked| asked.min(self.priority)));
    }
}

/// What a request was charged, until it is known what it used.
#[derive(Debug, Default)]
pub(crate) struct Tab {
    key: Option<Arc<Key>>,
    charged: f64,
}

impl Tab {
    /// Charges a prompt, if its tokens are left.
    pub(crate) fn open(key: Option<Arc<Key>>, prompt: u32) -> Result<Self, Refuse> {
        let charged = f64::from(prompt);
        if let Some(key) = &key {
            key.tokens(Instant::now(), charged)?;
        }
        Ok(Self { key, charged })
    }

    /// Charges what was used. What was not answered costs nothing, but for who went away before the end.
    pub(crate) fn close(&mut self, end: RequestEnd, usage: Option<Usage>, output: u64) {
        let Some(key) = self.key.take() else { return };
        let used = match end {
            RequestEnd::Served | RequestEnd::Cancelled => {
                let prompt = usage.map_or(self.charged, |usage| usage.prompt as f64);
                prompt + output as f64
            }
            RequestEnd::Wrong | RequestEnd::Refused | RequestEnd::Failed => 0.0,
        };
        key.charge(Instant::now(), used - self.charged);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use homing_config::keys::{KeySpec, TenantSpec};

    const LIMITED: Quota = Quota {
        requests: Some(2),
        tokens: None,
    };

    fn spec(key: &str, tenant: &str, quota: Quota) -> KeySpec {
        KeySpec {
            digest: keys::digest(key.as_bytes()),
            tenant: tenant.to_owned(),
            name: None,
            priority: 3,
            pin: Switch::Off,
            quota,
        }
    }

    fn with(name: &str, value: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let name: HeaderName = name.parse().unwrap();
        headers.insert(name, value.parse().unwrap());
        headers
    }

    fn known(ring: &Keyring, key: &str) -> Option<Arc<Key>> {
        match ring.who(&with("x-api-key", key)) {
            Who::Known(key) => Some(key),
            _ => None,
        }
    }

    #[test]
    fn a_key_is_found_wherever_clients_send_it() {
        let ring = Keyring::default();
        assert!(matches!(ring.who(&HeaderMap::new()), Who::Anybody));
        ring.set(&Keys {
            keys: vec![spec("one", "acme", Quota::default())],
            tenants: Vec::new(),
        });
        for (name, value, is_known) in [
            ("authorization", "Bearer one", true),
            ("authorization", "bearer  one", true),
            ("x-api-key", "one", true),
            ("authorization", "Bearer two", false),
            ("authorization", "Basic one", false),
            ("authorization", "one", false),
            ("authorization", "", false),
            ("x-api-key", "", false),
            ("cookie", "one", false),
        ] {
            let found = matches!(ring.who(&with(name, value)), Who::Known(_));
            assert_eq!(found, is_known, "{name}: {value}");
        }
        ring.set(&Keys::default());
        assert!(known(&ring, "one").is_none(), "a key that was taken away is not known");
    }

    #[test]
    fn keys_of_a_tenant_share_its_limit_and_a_new_file_forgets_nothing() {
        let ring = Keyring::default();
        let tenant = TenantSpec {
            name: "acme".to_owned(),
            quota: Quota {
                requests: Some(3),
                tokens: None,
            },
        };
        let mut keys = Keys {
            keys: vec![
                spec("one", "acme", LIMITED),
                spec("two", "acme", LIMITED),
                spec("x", "other", LIMITED),
            ],
            tenants: vec![tenant],
        };
        ring.set(&keys);
        let now = Instant::now();
        let begin = |key: &str| known(&ring, key).unwrap().begin(now).is_ok();
        assert_eq!([begin("one"), begin("one"), begin("one")], [true, true, false]);
        assert_eq!(
            [begin("two"), begin("two")],
            [true, false],
            "three of the tenant are used"
        );
        assert_eq!([begin("x"), begin("x")], [true, true]);
        keys.keys.pop();
        ring.set(&keys);
        let begin = |key: &str| known(&ring, key).unwrap().begin(now).is_ok();
        assert!(!begin("one") && !begin("two"));
        let refuse = known(&ring, "one").unwrap().begin(now).unwrap_err();
        assert_eq!((refuse.problem.status, refuse.limit), (429, Some(Limit::Requests)));
        assert!(
            refuse
                .retry_after_seconds()
                .is_some_and(|seconds| (1..=60).contains(&seconds))
        );
    }

    #[test]
    fn tokens_are_charged_before_by_guess_and_after_by_what_was_used() {
        let ring = Keyring::default();
        let quota = Quota {
            requests: None,
            tokens: Some(100),
        };
        ring.set(&Keys {
            keys: vec![spec("one", "acme", quota)],
            tenants: Vec::new(),
        });
        let key = known(&ring, "one");
        let mut refused = Tab::open(key.clone(), 90).unwrap();
        assert!(Tab::open(key.clone(), 90).is_err());
        refused.close(RequestEnd::Refused, None, 0);
        let mut served = Tab::open(key.clone(), 90).unwrap();
        let usage = Usage {
            prompt: 20,
            completion: 30,
            ..Usage::default()
        };
        served.close(RequestEnd::Served, Some(usage), 30);
        let mut gone = Tab::open(key.clone(), 40).unwrap();
        gone.close(RequestEnd::Cancelled, None, 500);
        assert!(Tab::open(key.clone(), 1).is_err());
        assert!(
            key.unwrap().begin(Instant::now()).is_err(),
            "who has no tokens begins nothing"
        );
    }

    #[test]
    fn what_a_client_says_of_itself_is_put_right() {
        let ring = Keyring::default();
        ring.set(&Keys {
            keys: vec![spec("one", "acme", Quota::default())],
            tenants: Vec::new(),
        });
        let key = known(&ring, "one").unwrap();
        for (asked, gets) in [(None, 3), (Some(9), 3), (Some(-2), -2)] {
            let mut hints = Hints {
                tenant: Some("root".to_owned()),
                priority: asked,
                ..Hints::default()
            };
            key.overrule(&mut hints);
            assert_eq!((hints.tenant.as_deref(), hints.priority), (Some("acme"), Some(gets)));
        }
    }
}
