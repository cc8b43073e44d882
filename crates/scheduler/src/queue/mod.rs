//! Who is admitted, who waits, in which order, and who is refused?
//!
//! A request that cannot start now is put into the queue, or refused with the limit that it exceeded. Waiting requests belong to a
//! *class* and, within it, to a *tenant*. Turns between classes, and between the tenants of a class, are charged in tokens that
//! are not cached: who has taken the least for its quantum is next. Within a tenant: strict priority, then the earliest deadline,
//! then the class's [`Order`].
//!
//! Shares are those of deficit round robin; the form is that of fair queueing by virtual time, because requests are large and
//! few: `docs/policies.md` says why.
//!
//! **Invariant:** each request that was put in leaves exactly once: taken, cancelled or expired.
//!
//! **Invariant:** no more waits than the bounds allow. They count whole prompts, which do not change while a request waits; what is cached of
//! them does, and nobody who waits is to go because others took it. The work that waits is bounded by the time to a first token.
//!
//! **Invariant:** a request that cannot go anywhere now keeps nobody else from going, and earns nothing while it waits.
//!
//! **Invariant:** two tenants of a class that both wait have taken, each for its quantum, the same up to one request of each.
//!
//! Cost: a turn that goes to the first who is asked takes time by the logarithm of what waits; at most [`MOST_ASKED`] requests of
//! a tenant are asked about in one turn.

mod class;
mod limits;

use std::collections::BTreeMap;

use homing_domain::{RequestId, Tokens};
use homing_profile::{Millis, Time};
use rustc_hash::FxHashMap;

use crate::bugs::planted;
use class::{Class, Rank};
use limits::{Held, Wish};

pub use limits::{Limits, Refused};

/// Requests of one tenant that are asked about in one turn; those behind them wait for the next.
pub const MOST_ASKED: usize = 256;

/// Tenants of a class that are remembered although nothing of theirs waits, for what they took; beyond that they are forgotten.
pub const MOST_REMEMBERED: usize = 4_096;

/// Tenants that have a quantum of their own; beyond that all have 1.
pub const MOST_QUANTA: usize = 65_536;

/// How the limits of all classes together are called when one of them is exceeded.
pub const EVERYBODY: &str = "all classes";

/// A tenant, by a number that the router gives it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tenant(pub u32);

/// The order of requests that priority and deadline leave open.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Order {
    /// As they came.
    FirstCome,
    /// Short ones first: each token not cached counts as if the request had come so much later, so that a long one that has
    /// waited long enough is before every short one that comes after it.
    Shortest {
        /// For each token.
        per_token: Millis,
    },
}

/// What holds for a class of requests.
#[derive(Clone, Debug)]
pub struct ClassSpec {
    /// How it is called.
    pub name: String,
    /// Its share against other classes.
    pub quantum: u32,
    /// The order of its requests.
    pub order: Order,
    /// Its bounds.
    pub limits: Limits,
}

/// A request that waits.
#[derive(Clone, Debug, PartialEq)]
pub struct Waiting {
    /// Which.
    pub id: RequestId,
    /// Its class, as a place in the queue's classes.
    pub class: usize,
    /// Whose it is.
    pub tenant: Tenant,
    /// Greater goes first among its tenant's.
    pub priority: i32,
    /// By then it must have been taken.
    pub deadline: Option<Time>,
    /// It is treated as if it had come so much earlier.
    pub jump: Millis,
    /// Its prompt, which is what bounds count.
    pub prompt: Tokens,
    /// Prompt tokens that are not cached where it would go, which is what its turn costs.
    pub uncached: Tokens,
    /// When it came.
    pub since: Time,
}

/// Whether a request can go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Can {
    /// It can go now.
    Go,
    /// It cannot.
    Wait,
}

/// All that waits.
#[derive(Debug)]
pub struct Queue {
    classes: Vec<Class>,
    total: Limits,
    held: Held,
    /// Tokens of all that waits that are not cached.
    uncached: u64,
    /// What the class that was next last had taken: one that comes anew begins there.
    level: f64,
    places: FxHashMap<RequestId, (usize, Tenant, Rank)>,
    deadlines: BTreeMap<(Time, u64), RequestId>,
    quanta: FxHashMap<Tenant, u32>,
    arrivals: u64,
    /// A mistake to make on purpose, for tests that must find it.
    #[cfg(any(test, feature = "testing"))]
    pub bug: Option<crate::Bug>,
}

impl Queue {
    /// An empty queue with these classes, and bounds for all of them together.
    pub fn new(classes: Vec<ClassSpec>, total: Limits) -> Self {
        Self {
            classes: classes.into_iter().map(Class::new).collect(),
            total,
            held: Held::default(),
            uncached: 0,
            level: 0.0,
            places: FxHashMap::default(),
            deadlines: BTreeMap::new(),
            quanta: FxHashMap::default(),
            arrivals: 0,
            #[cfg(any(test, feature = "testing"))]
            bug: None,
        }
    }

    /// Gives a tenant its share against the others of its class, 1 if nothing is said. Beyond [`MOST_QUANTA`] nothing changes, and
    /// false is returned.
    pub fn set_quantum(&mut self, tenant: Tenant, quantum: u32) -> bool {
        if quantum <= 1 {
            self.quanta.remove(&tenant);
            return true;
        }
        if self.quanta.len() >= MOST_QUANTA && !self.quanta.contains_key(&tenant) {
            return false;
        }
        self.quanta.insert(tenant, quantum);
        true
    }

    /// Puts a request in, or says which bound it would break. `first_token` is the best that is predicted for it.
    pub fn put(&mut self, mut request: Waiting, first_token: Millis) -> Result<(), Refused> {
        let Some(class) = self.classes.get_mut(request.class) else {
            return Err(Refused::NoSuchClass(request.class));
        };
        if self.places.contains_key(&request.id) {
            return Err(Refused::Known(request.id));
        }
        let wish = Wish {
            tokens: u64::from(request.prompt.0),
            first_token,
            now: request.since,
        };
        if !planted!(self.bug, ClassLimitIgnored) {
            class.spec.limits.check(&class.spec.name, &mut class.held, wish)?;
        }
        self.total.check(EVERYBODY, &mut self.held, wish)?;
        if class.held.requests == 0 {
            class.taken.0 = class.taken.0.max(self.level);
        }
        if planted!(self.bug, PriorityInverted) {
            request.priority = request.priority.saturating_neg();
        }
        self.arrivals += 1;
        self.enter(request, self.arrivals);
        Ok(())
    }

    /// What is not cached of a waiting request has changed. It is charged for the new number, and its place among its tenant's
    /// is that of a request which came with it. Returns whether it waits.
    pub fn update(&mut self, id: &RequestId, uncached: Tokens) -> bool {
        let Some(&(class, tenant, rank)) = self.places.get(id) else {
            return false;
        };
        let Some(mut request) = self.remove(class, tenant, rank) else {
            return false;
        };
        request.uncached = uncached;
        // It came when it came.
        self.enter(request, rank.3);
        true
    }

    /// Takes the next request that can go. `can` is asked about requests in the order of their turns, and must not remember its
    /// earlier answers.
    pub fn take(&mut self, mut can: impl FnMut(&Waiting) -> Can) -> Option<Waiting> {
        let waits = |at: &usize| self.classes[*at].held.requests > 0;
        let mut order: Vec<usize> = (0..self.classes.len()).filter(waits).collect();
        order.sort_by(|a, b| self.classes[*a].taken.0.total_cmp(&self.classes[*b].taken.0));
        let mut blocked = Vec::new();
        for at in order {
            let Some((tenant, rank)) = self.classes[at].next(&mut can) else {
                blocked.push(at);
                continue;
            };
            let quantum = self.quanta.get(&tenant).copied().unwrap_or(1);
            let class = &mut self.classes[at];
            self.level = class.taken.0;
            let cost = class.cost(tenant, rank);
            if !planted!(self.bug, TenantNotCharged) {
                class.charge(tenant, cost, quantum);
            }
            let one = planted!(self.bug, QuantumIgnored);
            class.taken.0 += cost / f64::from(if one { 1 } else { class.spec.quantum.max(1) });
            // Who could not go keeps what it has and gains nothing on those who went.
            for at in blocked {
                self.classes[at].taken.0 = self.classes[at].taken.0.max(self.level);
            }
            let taken = self.remove(at, tenant, rank)?;
            let tokens = u64::from(taken.prompt.0);
            self.classes[at].held.flow.took(tokens);
            self.held.flow.took(tokens);
            return Some(taken);
        }
        None
    }

    /// Takes a request out that nobody waits for any more.
    pub fn cancel(&mut self, id: &RequestId) -> Option<Waiting> {
        if planted!(self.bug, CancelledStays) {
            let (class, tenant, rank) = *self.places.get(id)?;
            return self.classes[class].peek(tenant, rank).cloned();
        }
        self.leave(id)
    }

    /// Takes all requests out whose deadline has come.
    pub fn expire(&mut self, now: Time) -> Vec<Waiting> {
        let mut gone = Vec::new();
        while let Some((&(deadline, _), id)) = self.deadlines.first_key_value() {
            if deadline > now {
                break;
            }
            let id = id.clone();
            if planted!(self.bug, ExpiredStays) {
                let place = self.places.get(&id).copied();
                gone.extend(place.and_then(|(class, tenant, rank)| self.classes[class].peek(tenant, rank).cloned()));
                self.deadlines.pop_first();
                continue;
            }
            gone.extend(self.leave(&id));
        }
        gone
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Tokens of all prompts that wait.
    pub fn tokens(&self) -> u64 {
        self.held.tokens
    }

    /// Those of them that are not cached.
    pub fn uncached(&self) -> u64 {
        self.uncached
    }

    fn enter(&mut self, request: Waiting, arrival: u64) {
        let (at, tenant, id, deadline) = (request.class, request.tenant, request.id.clone(), request.deadline);
        self.held.add(u64::from(request.prompt.0));
        self.uncached += u64::from(request.uncached.0);
        let rank = self.classes[at].put(request, arrival);
        if let Some(deadline) = deadline {
            self.deadlines.insert((deadline, rank.3), id.clone());
        }
        self.places.insert(id, (at, tenant, rank));
    }

    fn leave(&mut self, id: &RequestId) -> Option<Waiting> {
        let (class, tenant, rank) = *self.places.get(id)?;
        self.remove(class, tenant, rank)
    }

    fn remove(&mut self, at: usize, tenant: Tenant, rank: Rank) -> Option<Waiting> {
        let request = self.classes[at].remove(tenant, rank)?;
        self.held.remove(u64::from(request.prompt.0));
        self.uncached -= u64::from(request.uncached.0);
        self.places.remove(&request.id);
        if let Some(deadline) = request.deadline {
            self.deadlines.remove(&(deadline, rank.3));
        }
        Some(request)
    }
}
