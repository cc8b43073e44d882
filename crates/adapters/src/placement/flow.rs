//! Which assignment moves least? A flow of least cost, from adapters to slots of workers.
//!
//! What can stay where it is stays. For the rest, a unit of flow goes from an adapter to a worker at the cost of a move and of the
//! worker's place in the adapter's order, and from there to one of its slots, the later ones of which cost more, so that moves are spread.

use std::collections::{BTreeMap, VecDeque};

use super::{Plan, Site, Wanted, order};

/// Workers that an adapter can be moved to, from the first of its order on. If these do not suffice, all are looked at.
const CANDIDATES: usize = 16;
/// To move an adapter, against keeping it.
const MOVE: i64 = 1_000;
/// Each adapter that a worker has already, against the next worker in an adapter's order.
const CROWDED: i64 = 4;

/// Finds places.
pub(super) fn place(wanted: &[Wanted], sites: &[Site]) -> Plan {
    let mut room: Vec<u32> = sites.iter().map(|site| site.slots).collect();
    let mut plan = Plan::new();
    let mut missing: Vec<(usize, u32)> = Vec::new();
    for (at, one) in wanted.iter().enumerate() {
        let mut left = one.replicas;
        let mut places = std::collections::BTreeSet::new();
        for site in order(&one.adapter, sites) {
            let worker = sites[site].worker;
            if left > 0 && room[site] > 0 && one.has.contains(&worker) && !one.not.contains(&worker) {
                places.insert(worker);
                room[site] -= 1;
                left -= 1;
            }
        }
        if !places.is_empty() {
            plan.insert(one.adapter.clone(), places);
        }
        if left > 0 {
            missing.push((at, left));
        }
    }
    for candidates in [CANDIDATES, usize::MAX] {
        if missing.is_empty() {
            break;
        }
        missing = Rest {
            wanted,
            sites,
            room: &mut room,
            plan: &mut plan,
        }
        .assign(&missing, candidates);
        if room.iter().all(|free| *free == 0) || candidates >= sites.len() {
            break;
        }
    }
    plan
}

/// What is not placed yet, and the room for it.
struct Rest<'a> {
    wanted: &'a [Wanted],
    sites: &'a [Site],
    room: &'a mut [u32],
    plan: &'a mut Plan,
}

impl Rest<'_> {
    /// Places as many as it can; returns those that are left.
    fn assign(&mut self, missing: &[(usize, u32)], candidates: usize) -> Vec<(usize, u32)> {
        let (source, sink) = (0, missing.len() + self.sites.len() + 1);
        let site_node = |site: usize| missing.len() + 1 + site;
        let mut graph = Graph::new(sink + 1);
        let mut edges: BTreeMap<(usize, usize), usize> = BTreeMap::new();
        for (at, (adapter, left)) in missing.iter().enumerate() {
            graph.edge(source, at + 1, i64::from(*left), 0);
            let one = &self.wanted[*adapter];
            let held = self.plan.get(&one.adapter);
            let fits = |site: &usize| {
                let worker = self.sites[*site].worker;
                self.room[*site] > 0
                    && !one.not.contains(&worker)
                    && !held.is_some_and(|places| places.contains(&worker))
            };
            let order = order(&one.adapter, self.sites);
            for (rank, site) in order
                .into_iter()
                .filter(fits)
                .take(candidates)
                .zip(0_i64..)
                .map(|(site, rank)| (rank, site))
            {
                edges.insert((at, site), graph.edge(at + 1, site_node(site), 1, MOVE + rank));
            }
        }
        for (site, free) in self.room.iter().enumerate() {
            let used = i64::from(self.sites[site].slots - free);
            let most = i64::try_from(missing.len()).unwrap_or(i64::MAX);
            for slot in 0..i64::from(*free).min(most) {
                graph.edge(site_node(site), sink, 1, (used + slot) * CROWDED);
            }
        }
        graph.fill(source, sink);
        let mut left: BTreeMap<usize, u32> = missing.iter().copied().collect();
        for ((at, site), edge) in edges {
            if graph.flows(edge) {
                let adapter = missing[at].0;
                self.room[site] -= 1;
                let places = self.plan.entry(self.wanted[adapter].adapter.clone()).or_default();
                places.insert(self.sites[site].worker);
                if let Some(count) = left.get_mut(&adapter) {
                    *count -= 1;
                }
            }
        }
        left.into_iter().filter(|(_, count)| *count > 0).collect()
    }
}

struct Edge {
    to: usize,
    room: i64,
    cost: i64,
}

/// Edges in pairs: each beside the one that takes its flow back.
struct Graph {
    edges: Vec<Edge>,
    from: Vec<Vec<usize>>,
}

impl Graph {
    fn new(nodes: usize) -> Self {
        Self {
            edges: Vec::new(),
            from: vec![Vec::new(); nodes],
        }
    }

    fn edge(&mut self, from: usize, to: usize, room: i64, cost: i64) -> usize {
        let number = self.edges.len();
        self.edges.push(Edge { to, room, cost });
        self.edges.push(Edge {
            to: from,
            room: 0,
            cost: -cost,
        });
        self.from[from].push(number);
        self.from[to].push(number + 1);
        number
    }

    fn flows(&self, edge: usize) -> bool {
        self.edges[edge + 1].room > 0
    }

    /// Sends one unit after the other by the cheapest way, until there is none. That is least in cost for each amount.
    fn fill(&mut self, source: usize, sink: usize) {
        while let Some(way) = self.cheapest(source, sink) {
            for edge in way {
                self.edges[edge].room -= 1;
                self.edges[edge ^ 1].room += 1;
            }
        }
    }

    /// The cheapest way with room on it, as its edges from the end. Costs can be negative where flow is taken back, but no circle is.
    fn cheapest(&self, source: usize, sink: usize) -> Option<Vec<usize>> {
        let mut cost = vec![i64::MAX; self.from.len()];
        let mut by = vec![usize::MAX; self.from.len()];
        let mut queued = vec![false; self.from.len()];
        let mut open = VecDeque::from([source]);
        cost[source] = 0;
        while let Some(node) = open.pop_front() {
            queued[node] = false;
            for number in &self.from[node] {
                let edge = &self.edges[*number];
                let reached = cost[node] + edge.cost;
                if edge.room > 0 && reached < cost[edge.to] {
                    cost[edge.to] = reached;
                    by[edge.to] = *number;
                    if !std::mem::replace(&mut queued[edge.to], true) {
                        open.push_back(edge.to);
                    }
                }
            }
        }
        if cost[sink] == i64::MAX {
            return None;
        }
        let mut way = Vec::new();
        let mut node = sink;
        while node != source {
            way.push(by[node]);
            node = self.edges[by[node] ^ 1].to;
        }
        Some(way)
    }
}
