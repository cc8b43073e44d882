//! Who is admitted, who waits, in which order, and who is refused?
//!
//! A request that cannot start now is put into the queue, or refused with the limit that it exceeded. Waiting requests belong to a
//! *class* and, within it, to a *tenant*. Turns between classes, and between the tenants of a class, are charged in tokens that
//! are not cached: who has taken the least for its quantum is next. Within a tenant: strict priority, then the earliest deadline,
//! then the class's [`Order`].
//!
//! **Invariant:** each request that was put in leaves exactly once: taken, cancelled or expired.
//!
//! **Invariant:** a request that cannot go anywhere now keeps nobody else from going, and earns nothing while it waits.
//!
//! Cost: a turn sorts classes and tenants that wait; at most [`MOST_ASKED`] requests of a tenant are asked about.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use homing_domain::{RequestId, Tokens};
use homing_profile::{Millis, Time};
use rustc_hash::FxHashMap;

use crate::bugs::planted;

/// Requests of one tenant that are asked about in one turn; those behind them wait for the next.
pub const MOST_ASKED: usize = 256;

/// Tenants of a class that are remembered although nothing of theirs waits, for what they took; beyond that they are forgotten.
pub const MOST_REMEMBERED: usize = 4_096;

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

/// Bounds of what waits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Requests.
    pub requests: usize,
    /// Prompt tokens that are not cached.
    pub tokens: u64,
    /// The time to a first token beyond which a request is refused rather than queued.
    pub first_token: Millis,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            requests: 4_096,
            tokens: 64_000_000,
            first_token: Millis(60_000.0),
        }
    }
}

/// Why a request was not queued.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Refused {
    /// A limit would be exceeded.
    #[error("{scope}: {what} would be {value}, at most {limit} are allowed; try again in {} ms", .retry_after.0.ceil())]
    Exceeded {
        /// Of which class, or of all.
        scope: String,
        /// Of what.
        what: &'static str,
        /// What it would be.
        value: u64,
        /// What it may be.
        limit: u64,
        /// When there may be room.
        retry_after: Millis,
    },
    /// A request of this id waits already.
    #[error("request {0} waits already")]
    Known(RequestId),
    /// There is no such class.
    #[error("there is no class {0}")]
    NoSuchClass(usize),
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
    /// Prompt tokens that are not cached where it would go.
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

/// A request's place among its tenant's.
type Rank = (Reverse<i32>, u64, u64, u64);

/// How much was taken, in tokens; of a class over its quantum.
#[derive(Clone, Copy, Debug, Default)]
struct Taken(f64);

#[derive(Debug, Default)]
struct Lane {
    waiting: BTreeMap<Rank, Waiting>,
    taken: Taken,
}

#[derive(Debug)]
struct Class {
    spec: ClassSpec,
    lanes: FxHashMap<Tenant, Lane>,
    taken: Taken,
    /// What the tenant that was next last had taken: who comes anew begins there.
    level: f64,
    requests: usize,
    tokens: u64,
}

/// All that waits.
#[derive(Debug)]
pub struct Queue {
    classes: Vec<Class>,
    total: Limits,
    tokens: u64,
    level: f64,
    places: FxHashMap<RequestId, (usize, Tenant, Rank)>,
    deadlines: BTreeMap<(Time, u64), RequestId>,
    arrivals: u64,
    /// A mistake to make on purpose, for tests that must find it.
    #[cfg(any(test, feature = "testing"))]
    pub bug: Option<crate::Bug>,
}

impl Queue {
    /// An empty queue with these classes, and bounds for all of them together.
    pub fn new(classes: Vec<ClassSpec>, total: Limits) -> Self {
        let class = |spec| Class {
            spec,
            lanes: FxHashMap::default(),
            taken: Taken::default(),
            level: 0.0,
            requests: 0,
            tokens: 0,
        };
        Self {
            classes: classes.into_iter().map(class).collect(),
            total,
            tokens: 0,
            level: 0.0,
            places: FxHashMap::default(),
            deadlines: BTreeMap::new(),
            arrivals: 0,
            #[cfg(any(test, feature = "testing"))]
            bug: None,
        }
    }

    /// Puts a request in, or says which bound it would break. `first_token` is the best that is predicted for it.
    pub fn put(&mut self, request: Waiting, first_token: Millis) -> Result<(), Refused> {
        let Some(class) = self.classes.get_mut(request.class) else {
            return Err(Refused::NoSuchClass(request.class));
        };
        if self.places.contains_key(&request.id) {
            return Err(Refused::Known(request.id));
        }
        let tokens = u64::from(request.uncached.0);
        let held = (class.requests, class.tokens);
        if !planted!(self.bug, ClassLimitIgnored) {
            check(&class.spec.name, &class.spec.limits, held, tokens, first_token)?;
        }
        check(
            "all classes",
            &self.total,
            (self.places.len(), self.tokens),
            tokens,
            first_token,
        )?;
        self.arrivals += 1;
        let mut rank = rank_of(&request, class.spec.order, self.arrivals);
        if planted!(self.bug, PriorityInverted) {
            rank.0 = Reverse(request.priority.saturating_neg());
        }
        if class.requests == 0 {
            class.taken.0 = class.taken.0.max(self.level);
        }
        class.requests += 1;
        class.tokens += tokens;
        self.tokens += tokens;
        let level = class.level;
        let lane = class.lanes.entry(request.tenant).or_insert_with(|| Lane {
            taken: Taken(level),
            ..Lane::default()
        });
        if lane.waiting.is_empty() {
            lane.taken.0 = lane.taken.0.max(level);
        }
        self.places
            .insert(request.id.clone(), (request.class, request.tenant, rank));
        if let Some(deadline) = request.deadline {
            self.deadlines.insert((deadline, rank.3), request.id.clone());
        }
        lane.waiting.insert(rank, request);
        Ok(())
    }

    /// Takes the next request for which `can` says that it can go. Overlaps can be looked up again by whoever answers.
    pub fn take(&mut self, mut can: impl FnMut(&Waiting) -> Can) -> Option<Waiting> {
        let mut order: Vec<usize> = (0..self.classes.len())
            .filter(|at| self.classes[*at].requests > 0)
            .collect();
        order.sort_by(|a, b| self.classes[*a].taken.0.total_cmp(&self.classes[*b].taken.0));
        let mut blocked = Vec::new();
        for at in order {
            let Some((tenant, rank)) = self.classes[at].next(&mut can) else {
                blocked.push(at);
                continue;
            };
            let class = &mut self.classes[at];
            self.level = class.taken.0;
            let (cost, quantum) = (class.cost(tenant, rank), class.spec.quantum.max(1));
            if !planted!(self.bug, TenantNotCharged) {
                class.charge(tenant, cost);
            }
            let quantum = if planted!(self.bug, QuantumIgnored) { 1 } else { quantum };
            class.taken.0 += cost / f64::from(quantum);
            // Who could not go keeps what it has and gains nothing on those who went.
            for at in blocked {
                self.classes[at].taken.0 = self.classes[at].taken.0.max(self.level);
            }
            return self.remove(at, tenant, rank);
        }
        None
    }

    /// Takes a request out that nobody waits for any more.
    pub fn cancel(&mut self, id: &RequestId) -> Option<Waiting> {
        let (class, tenant, rank) = *self.places.get(id)?;
        if planted!(self.bug, CancelledStays) {
            return self.waiting(class, tenant, rank).cloned();
        }
        self.remove(class, tenant, rank)
    }

    /// Takes all requests out whose deadline has come.
    pub fn expire(&mut self, now: Time) -> Vec<Waiting> {
        let mut gone = Vec::new();
        while let Some((&(deadline, _), id)) = self.deadlines.first_key_value() {
            if deadline > now {
                break;
            }
            let Some((class, tenant, rank)) = self.places.get(id).copied() else {
                self.deadlines.pop_first();
                continue;
            };
            if planted!(self.bug, ExpiredStays) {
                gone.extend(self.waiting(class, tenant, rank).cloned());
                self.deadlines.pop_first();
                continue;
            }
            gone.extend(self.remove(class, tenant, rank));
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

    /// Tokens that wait.
    pub fn tokens(&self) -> u64 {
        self.tokens
    }

    fn waiting(&self, at: usize, tenant: Tenant, rank: Rank) -> Option<&Waiting> {
        self.classes.get(at)?.lanes.get(&tenant)?.waiting.get(&rank)
    }

    fn remove(&mut self, at: usize, tenant: Tenant, rank: Rank) -> Option<Waiting> {
        let class = &mut self.classes[at];
        let lane = class.lanes.get_mut(&tenant)?;
        let request = lane.waiting.remove(&rank)?;
        if lane.waiting.is_empty() {
            class.tidy();
        }
        let tokens = u64::from(request.uncached.0);
        class.requests -= 1;
        class.tokens -= tokens;
        self.tokens -= tokens;
        self.places.remove(&request.id);
        if let Some(deadline) = request.deadline {
            self.deadlines.remove(&(deadline, rank.3));
        }
        Some(request)
    }
}

impl Class {
    /// The first request that can go, of the tenant that has taken the least.
    fn next(&mut self, can: &mut impl FnMut(&Waiting) -> Can) -> Option<(Tenant, Rank)> {
        let waits = |(_, lane): &(&Tenant, &Lane)| !lane.waiting.is_empty();
        let lanes = self.lanes.iter().filter(waits);
        let mut order: Vec<(f64, Tenant)> = lanes.map(|(tenant, lane)| (lane.taken.0, *tenant)).collect();
        order.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        for (at, (taken, tenant)) in order.iter().enumerate() {
            let lane = self.lanes.get(tenant)?;
            let mut asked = lane.waiting.iter().take(MOST_ASKED);
            let Some((rank, _)) = asked.find(|(_, request)| can(request) == Can::Go) else {
                continue;
            };
            let rank = *rank;
            self.level = *taken;
            for (_, blocked) in &order[..at] {
                if let Some(lane) = self.lanes.get_mut(blocked) {
                    lane.taken.0 = lane.taken.0.max(*taken);
                }
            }
            return Some((*tenant, rank));
        }
        None
    }

    /// Forgets tenants of whom nothing waits, unless they have taken more than their share so far.
    fn tidy(&mut self) {
        let level = self.level;
        self.lanes
            .retain(|_, lane| !lane.waiting.is_empty() || lane.taken.0 > level);
        if self.lanes.len() > self.requests + MOST_REMEMBERED {
            self.lanes.retain(|_, lane| !lane.waiting.is_empty());
        }
    }

    /// What a request costs its tenant and its class.
    fn cost(&self, tenant: Tenant, rank: Rank) -> f64 {
        let request = self.lanes.get(&tenant).and_then(|lane| lane.waiting.get(&rank));
        request.map_or(0.0, |request| f64::from(request.uncached.0.max(1)))
    }

    fn charge(&mut self, tenant: Tenant, cost: f64) {
        if let Some(lane) = self.lanes.get_mut(&tenant) {
            lane.taken.0 += cost;
        }
    }
}

fn rank_of(request: &Waiting, order: Order, arrival: u64) -> Rank {
    let later = match order {
        Order::FirstCome => 0,
        Order::Shortest { per_token } => (per_token * f64::from(request.uncached.0)).nanos(),
    };
    let came = request
        .since
        .0
        .saturating_add(later)
        .saturating_sub(request.jump.nanos());
    let deadline = request.deadline.map_or(u64::MAX, |deadline| deadline.0);
    (Reverse(request.priority), deadline, came, arrival)
}

fn check(scope: &str, limits: &Limits, held: (usize, u64), tokens: u64, first_token: Millis) -> Result<(), Refused> {
    let exceeded = |what, value, limit| {
        Err(Refused::Exceeded {
            scope: scope.to_owned(),
            what,
            value,
            limit,
            // By then a request like those that wait will have been begun.
            retry_after: Millis(first_token.0.clamp(100.0, 60_000.0)),
        })
    };
    let (requests, waiting) = (held.0 + 1, held.1.saturating_add(tokens));
    if requests > limits.requests {
        return exceeded("waiting requests", requests as u64, limits.requests as u64);
    }
    if waiting > limits.tokens {
        return exceeded("waiting prompt tokens", waiting, limits.tokens);
    }
    if first_token.0 > limits.first_token.0 {
        return exceeded(
            "milliseconds to the first token",
            first_token.0 as u64,
            limits.first_token.0 as u64,
        );
    }
    Ok(())
}
