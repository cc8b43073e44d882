//! Whose turn is it within a class? The tenant's that has taken the least for its quantum; among equals the one's that has waited
//! the longest, so that tenants who come anew cannot pass one who waits.
//!
//! **Invariant:** `order` has exactly the tenants of whom something waits.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use homing_profile::Millis;
use rustc_hash::FxHashMap;

use super::limits::Held;
use super::{Can, ClassSpec, MOST_ASKED, MOST_REMEMBERED, Order, Tenant, Waiting};

/// A request's place among its tenant's.
pub(super) type Rank = (Reverse<i32>, u64, u64, u64);

/// How much was taken over a quantum, in tokens. Never negative, so that it is ordered as its bits are.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub(super) struct Taken(pub(super) f64);

/// A tenant's place among those that wait: what it has taken, then since when it waits.
type Turn = (u64, u64);

#[derive(Debug, Default)]
struct Lane {
    waiting: BTreeMap<Rank, Waiting>,
    taken: Taken,
    /// The number of the arrival by which it came to wait.
    joined: u64,
}

impl Lane {
    fn turn(&self) -> Turn {
        (self.taken.0.to_bits(), self.joined)
    }
}

#[derive(Debug)]
pub(super) struct Class {
    pub(super) spec: ClassSpec,
    pub(super) taken: Taken,
    pub(super) held: Held,
    lanes: FxHashMap<Tenant, Lane>,
    order: BTreeMap<Turn, Tenant>,
    /// What the tenant that was next last had taken: who comes anew begins there.
    level: f64,
}

impl Class {
    pub(super) fn new(spec: ClassSpec) -> Self {
        Self {
            spec,
            taken: Taken::default(),
            held: Held::default(),
            lanes: FxHashMap::default(),
            order: BTreeMap::new(),
            level: 0.0,
        }
    }

    pub(super) fn put(&mut self, request: Waiting, arrival: u64) -> Rank {
        let rank = rank_of(&request, self.spec.order, arrival);
        let (tenant, level) = (request.tenant, self.level);
        self.held.add(u64::from(request.prompt.0));
        let lane = self.lanes.entry(tenant).or_default();
        if lane.waiting.is_empty() {
            lane.taken.0 = lane.taken.0.max(level);
            lane.joined = arrival;
            self.order.insert(lane.turn(), tenant);
        }
        lane.waiting.insert(rank, request);
        rank
    }

    /// A request that waits; it stays.
    pub(super) fn peek(&self, tenant: Tenant, rank: Rank) -> Option<&Waiting> {
        self.lanes.get(&tenant)?.waiting.get(&rank)
    }

    pub(super) fn remove(&mut self, tenant: Tenant, rank: Rank) -> Option<Waiting> {
        let lane = self.lanes.get_mut(&tenant)?;
        let request = lane.waiting.remove(&rank)?;
        if lane.waiting.is_empty() {
            self.order.remove(&lane.turn());
            self.tidy();
        }
        self.held.remove(u64::from(request.prompt.0));
        Some(request)
    }

    /// The first request that can go, of the tenant that has taken the least.
    pub(super) fn next(&mut self, can: &mut impl FnMut(&Waiting) -> Can) -> Option<(Tenant, Rank)> {
        let mut found = None;
        for tenant in self.order.values() {
            let lane = self.lanes.get(tenant)?;
            let mut asked = lane.waiting.iter().take(MOST_ASKED);
            if let Some((rank, _)) = asked.find(|(_, request)| can(request) == Can::Go) {
                found = Some((*tenant, *rank, lane.turn()));
                break;
            }
        }
        let (tenant, rank, turn) = found?;
        self.level = f64::from_bits(turn.0);
        self.lift_before(turn);
        Some((tenant, rank))
    }

    /// Who could not go keeps its place among the others, and gains nothing on the one who went.
    fn lift_before(&mut self, turn: Turn) {
        while let Some(first) = self.order.first_entry().filter(|first| first.key().0 < turn.0) {
            let tenant = first.remove();
            if let Some(lane) = self.lanes.get_mut(&tenant) {
                lane.taken.0 = f64::from_bits(turn.0);
                self.order.insert(lane.turn(), tenant);
            }
        }
    }

    /// What a request costs its tenant and its class.
    pub(super) fn cost(&self, tenant: Tenant, rank: Rank) -> f64 {
        let request = self.peek(tenant, rank);
        request.map_or(0.0, |request| f64::from(request.uncached.0.max(1)))
    }

    /// Charges a tenant.
    pub(super) fn charge(&mut self, tenant: Tenant, cost: f64, quantum: u32) {
        let Some(lane) = self.lanes.get_mut(&tenant) else {
            return;
        };
        self.order.remove(&lane.turn());
        lane.taken.0 += cost / f64::from(quantum.max(1));
        self.order.insert(lane.turn(), tenant);
    }

    /// Forgets tenants of whom nothing waits, unless they have taken more than their share so far. Now and then, so that it
    /// costs each departure next to nothing.
    fn tidy(&mut self) {
        if self.lanes.len() <= 2 * self.order.len() + MOST_REMEMBERED {
            return;
        }
        let level = self.level;
        self.lanes
            .retain(|_, lane| !lane.waiting.is_empty() || lane.taken.0 > level);
        if self.lanes.len() > self.order.len() + MOST_REMEMBERED {
            self.lanes.retain(|_, lane| !lane.waiting.is_empty());
        }
    }
}

fn rank_of(request: &Waiting, order: Order, arrival: u64) -> Rank {
    let later = match order {
        Order::FirstCome => Millis::ZERO,
        Order::Shortest { per_token } => per_token * f64::from(request.uncached.0),
    };
    let came = request.since.0.saturating_add(later.nanos());
    let came = came.saturating_sub(request.jump.nanos());
    let deadline = request.deadline.map_or(u64::MAX, |deadline| deadline.0);
    (Reverse(request.priority), deadline, came, arrival)
}
