//! Whose registration holds, and until when?
//!
//! Names are what a worker calls itself; addresses are what it is. Time is an argument.
//!
//! **Invariant:** no two names have one address, and there are at most [`MAX_LEASES`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use homing_config::WorkerSpec;
use homing_config::worker::MAX_WORKERS;
use homing_profile::{Millis, Time};
use thiserror::Error;

/// How many registrations hold at once.
pub const MAX_LEASES: usize = MAX_WORKERS;

/// A registration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The worker.
    pub spec: Arc<WorkerSpec>,
    /// For how long it holds from the last word on.
    pub holds: Duration,
    /// Until when it holds.
    pub until: Time,
}

/// What a registration did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Put {
    /// It is new.
    Registered,
    /// It is the same as before and holds for longer.
    Renewed,
    /// It says something else than before, be it for how long it holds.
    Changed,
}

/// Why a registration was not taken.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LeaseProblem {
    /// Another name has the same address.
    #[error("{url} is registered as `{other}`")]
    SameAddress {
        /// The address.
        url: String,
        /// The other name.
        other: String,
    },
    /// There is no room.
    #[error("{MAX_LEASES} workers are registered, and there is no room for more")]
    Full,
}

/// All registrations.
#[derive(Debug, Default)]
pub struct Leases {
    by_name: BTreeMap<String, Lease>,
}

impl Leases {
    /// Takes a registration, or a further word of one. A word that says the same as before costs no look at the others.
    pub fn put(
        &mut self,
        now: Time,
        name: &str,
        spec: Arc<WorkerSpec>,
        holds: Duration,
    ) -> Result<(Put, Lease), LeaseProblem> {
        let put = match self.by_name.get(name) {
            Some(before) if before.spec == spec && before.holds == holds => Put::Renewed,
            Some(_) => Put::Changed,
            None if self.by_name.len() >= MAX_LEASES => return Err(LeaseProblem::Full),
            None => Put::Registered,
        };
        if put != Put::Renewed {
            self.check_address(name, &spec)?;
        }
        let until = now + Millis(holds.as_secs_f64() * 1e3);
        let lease = Lease { spec, holds, until };
        self.by_name.insert(name.to_owned(), lease.clone());
        Ok((put, lease))
    }

    /// Takes a registration back. `None` if there is none.
    pub fn remove(&mut self, name: &str) -> Option<Lease> {
        self.by_name.remove(name)
    }

    /// The registration of this name.
    pub fn get(&self, name: &str) -> Option<&Lease> {
        self.by_name.get(name)
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Lease)> {
        self.by_name.iter().map(|(name, lease)| (name.as_str(), lease))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Ends those that were not renewed in time, and says which.
    pub fn expire(&mut self, now: Time) -> Vec<String> {
        let over = self.by_name.iter().filter(|(_, lease)| lease.until <= now);
        let over: Vec<String> = over.map(|(name, _)| name.clone()).collect();
        for name in &over {
            self.by_name.remove(name);
        }
        over
    }

    fn check_address(&self, name: &str, spec: &WorkerSpec) -> Result<(), LeaseProblem> {
        let mut others = self.by_name.iter().filter(|(other, _)| *other != name);
        match others.find(|(_, lease)| lease.spec.url == spec.url) {
            None => Ok(()),
            Some((other, _)) => Err(LeaseProblem::SameAddress {
                url: spec.url.to_string(),
                other: other.clone(),
            }),
        }
    }

    /// When the next one ends.
    pub fn next_end(&self) -> Option<Time> {
        self.by_name.values().map(|lease| lease.until).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use homing_config::{CacheView, Config, WorkerDefaults};
    use proptest::prelude::*;

    fn spec(text: &str) -> Arc<WorkerSpec> {
        let defaults = WorkerDefaults {
            cache_view: CacheView::Approximate,
            ..Config::default().worker_defaults()
        };
        Arc::new(WorkerSpec::parse(text, &defaults).unwrap())
    }

    fn at(seconds: f64) -> Time {
        Time::from_millis(seconds * 1e3)
    }

    const LEASE: Duration = Duration::from_secs(10);

    #[test]
    fn a_registration_holds_as_long_as_it_is_renewed() {
        let mut leases = Leases::default();
        let mut put = |now, text| leases.put(at(now), "a", spec(text), LEASE).unwrap().0;
        assert_eq!(put(0.0, "http://a"), Put::Registered);
        assert_eq!(put(9.0, "http://a"), Put::Renewed);
        assert_eq!(put(10.0, "http://a,role=decode"), Put::Changed);
        assert_eq!(leases.next_end(), Some(at(20.0)));
        assert!(leases.expire(at(19.9)).is_empty());
        assert_eq!(leases.expire(at(20.0)), ["a"]);
        assert!(leases.is_empty());
    }

    #[test]
    fn an_address_has_one_name() {
        let mut leases = Leases::default();
        leases.put(at(0.0), "a", spec("http://x"), LEASE).unwrap();
        let refused = leases.put(at(1.0), "b", spec("http://x/"), LEASE).unwrap_err();
        assert_eq!(refused.to_string(), "http://x is registered as `a`");
        leases.remove("a").unwrap();
        let (put, _) = leases.put(at(2.0), "b", spec("http://x"), LEASE).unwrap();
        assert_eq!(put, Put::Registered);
        assert_eq!(leases.remove("a"), None);
    }

    #[test]
    fn there_is_a_bound() {
        let mut leases = Leases::default();
        for number in 0..MAX_LEASES {
            let name = format!("w{number}");
            leases
                .put(at(0.0), &name, spec(&format!("http://{name}")), LEASE)
                .unwrap();
        }
        assert_eq!(
            leases.put(at(0.0), "more", spec("http://more"), LEASE),
            Err(LeaseProblem::Full)
        );
        let (put, _) = leases.put(at(1.0), "w7", spec("http://w7"), LEASE).unwrap();
        assert_eq!(put, Put::Renewed);
    }

    proptest! {
        /// Against the plainest model: a name is there if it was put less than its lease ago and not removed since.
        #[test]
        fn names_hold_for_their_lease(ops in prop::collection::vec((0..4_u8, 0..5_u8, 0..20_u64), 0..60)) {
            let mut leases = Leases::default();
            let mut model: BTreeMap<String, u64> = BTreeMap::new();
            let mut now = 0;
            for (op, who, number) in ops {
                let name = format!("w{who}");
                match op {
                    0 => now += number,
                    1 => {
                        prop_assert_eq!(leases.remove(&name).is_some(), model.remove(&name).is_some());
                    }
                    _ => {
                        let holds = Duration::from_secs(number + 1);
                        let worker = spec(&format!("http://{name}"));
                        leases.put(at(now as f64), &name, worker, holds).unwrap();
                        model.insert(name, now + number + 1);
                    }
                }
                let ended = leases.expire(at(now as f64));
                prop_assert!(ended.iter().all(|name| model[name] <= now));
                model.retain(|_, until| *until > now);
                let names: Vec<&str> = leases.iter().map(|(name, _)| name).collect();
                prop_assert_eq!(names, model.keys().map(String::as_str).collect::<Vec<_>>());
                let next = model.values().min().map(|until| at(*until as f64));
                prop_assert_eq!(leases.next_end(), next);
            }
        }
    }
}
