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
    /// Whose it is: the name of a token.
    pub owner: Arc<str>,
    /// For how long it holds from the last word on.
    pub holds: Duration,
    /// Until when it holds.
    pub until: Time,
}

/// A registration that is asked for.
#[derive(Clone, Debug)]
pub struct Claim {
    /// What the worker is called.
    pub name: String,
    /// Whose it is to be.
    pub owner: Arc<str>,
    /// What happens if the name belongs to another owner.
    pub takeover: Takeover,
    /// The worker.
    pub spec: Arc<WorkerSpec>,
    /// For how long it holds from now on.
    pub holds: Duration,
}

/// Whether a name may be taken from its owner before its lease ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takeover {
    /// It may not.
    Refused,
    /// It may.
    Allowed,
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
    /// The name belongs to another owner.
    #[error("`{name}` was registered with another token, to which it belongs until its lease ends")]
    OtherOwner {
        /// The name.
        name: String,
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
    pub fn put(&mut self, now: Time, claim: Claim) -> Result<(Put, Lease), LeaseProblem> {
        self.check_owner(now, &claim.name, &claim.owner, claim.takeover)?;
        let put = match self.by_name.get(&claim.name) {
            Some(_) if self.is_renewal(&claim) => Put::Renewed,
            Some(_) => Put::Changed,
            None if self.by_name.len() >= MAX_LEASES => return Err(LeaseProblem::Full),
            None => Put::Registered,
        };
        if put != Put::Renewed {
            self.check_address(&claim.name, &claim.spec)?;
        }
        let lease = Lease {
            until: now + Millis(claim.holds.as_secs_f64() * 1e3),
            spec: claim.spec,
            owner: claim.owner,
            holds: claim.holds,
        };
        self.by_name.insert(claim.name, lease.clone());
        Ok((put, lease))
    }

    /// Whether a claim changes nothing but the time.
    pub fn is_renewal(&self, claim: &Claim) -> bool {
        let same = |lease: &Lease| lease.spec == claim.spec && lease.holds == claim.holds && lease.owner == claim.owner;
        self.by_name.get(&claim.name).is_some_and(same)
    }

    /// Whether this owner may replace or remove what has this name.
    pub fn check_owner(&self, now: Time, name: &str, owner: &str, takeover: Takeover) -> Result<(), LeaseProblem> {
        let held = self.by_name.get(name).filter(|lease| now < lease.until);
        match held {
            Some(lease) if takeover == Takeover::Refused && *lease.owner != *owner => {
                Err(LeaseProblem::OtherOwner { name: name.to_owned() })
            }
            _ => Ok(()),
        }
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

    fn claim(name: &str, text: &str, holds: Duration) -> Claim {
        Claim {
            name: name.to_owned(),
            owner: "one".into(),
            takeover: Takeover::Refused,
            spec: spec(text),
            holds,
        }
    }

    fn at(seconds: f64) -> Time {
        Time::from_millis(seconds * 1e3)
    }

    const LEASE: Duration = Duration::from_secs(10);

    #[test]
    fn a_registration_holds_as_long_as_it_is_renewed() {
        let mut leases = Leases::default();
        let mut put = |now, text| leases.put(at(now), claim("a", text, LEASE)).unwrap().0;
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
        leases.put(at(0.0), claim("a", "http://x", LEASE)).unwrap();
        let refused = leases.put(at(1.0), claim("b", "http://x/", LEASE)).unwrap_err();
        assert_eq!(refused.to_string(), "http://x is registered as `a`");
        leases.remove("a").unwrap();
        let (put, _) = leases.put(at(2.0), claim("b", "http://x", LEASE)).unwrap();
        assert_eq!(put, Put::Registered);
        assert_eq!(leases.remove("a"), None);
    }

    #[test]
    fn a_name_belongs_to_its_first_owner_until_its_lease_ends() {
        let mut leases = Leases::default();
        let by = |owner: &str, takeover, url| Claim {
            owner: owner.into(),
            takeover,
            ..claim("a", url, LEASE)
        };
        leases.put(at(0.0), by("one", Takeover::Refused, "http://a")).unwrap();
        let stolen = leases.put(at(9.0), by("two", Takeover::Refused, "http://b"));
        let other = LeaseProblem::OtherOwner { name: "a".to_owned() };
        assert_eq!(stolen, Err(other.clone()));
        assert_eq!(
            leases.check_owner(at(9.0), "a", "two", Takeover::Refused),
            Err(other.clone())
        );
        // Not even by saying the same as the owner.
        assert_eq!(
            leases.put(at(9.0), by("two", Takeover::Refused, "http://a")),
            Err(other)
        );
        assert_eq!(leases.get("a").unwrap().spec, spec("http://a"));
        let (put, _) = leases.put(at(9.0), by("one", Takeover::Refused, "http://c")).unwrap();
        assert_eq!(put, Put::Changed);
        // An operator may, and so may anyone when the lease is over.
        let (put, lease) = leases
            .put(at(10.0), by("operator", Takeover::Allowed, "http://c"))
            .unwrap();
        assert_eq!((put, &*lease.owner), (Put::Changed, "operator"));
        leases.put(at(20.0), by("two", Takeover::Refused, "http://c")).unwrap();
    }

    #[test]
    fn there_is_a_bound() {
        let mut leases = Leases::default();
        for number in 0..MAX_LEASES {
            let name = format!("w{number}");
            let url = format!("http://{name}");
            leases.put(at(0.0), claim(&name, &url, LEASE)).unwrap();
        }
        assert_eq!(
            leases.put(at(0.0), claim("more", "http://more", LEASE)),
            Err(LeaseProblem::Full)
        );
        let (put, _) = leases.put(at(1.0), claim("w7", "http://w7", LEASE)).unwrap();
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
                        let url = format!("http://{name}");
                        leases.put(at(now as f64), claim(&name, &url, holds)).unwrap();
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
