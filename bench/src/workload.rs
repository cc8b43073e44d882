//! What is stored where? Sequences with shared beginnings, replicated on random workers.
//!
//! Sequences come in groups that share a beginning, as requests with one system prompt do. A worker announces a block
//! only when it did not hold it, as engines do. The part of a sequence after the shared beginning is stored in segments:
//! before each but the first, a sibling that continues the same prefix otherwise, so that no structure can append the
//! segment in place and pretend that the path was one run.

use crate::catalog::{BlockId, Catalog, Labels};
use crate::log::Log;
use crate::rng::Rng;

/// The shape of a workload.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// Fleet size.
    pub workers: u16,
    /// How many sequences.
    pub sequences: usize,
    /// Blocks of a sequence, least and most.
    pub length: (usize, usize),
    /// Sequences that share a beginning; 1: none do.
    pub group: usize,
    /// Workers that hold a sequence, on average.
    pub copies: f64,
    /// Segments that the part after the shared beginning is stored in.
    pub segments: usize,
    /// Whose labels.
    pub labels: Labels,
}

impl Scenario {
    /// The main workload at a fleet size.
    pub const fn main(workers: u16, sequences: usize) -> Self {
        Self {
            workers,
            sequences,
            length: (64, 512),
            group: 100,
            copies: 4.5,
            segments: 1,
            labels: Labels::Shared,
        }
    }

    /// How tables and targets call it.
    pub fn case(&self) -> String {
        let labels = self.labels.name();
        let Self {
            workers,
            copies,
            segments,
            ..
        } = self;
        format!("{workers} workers, {copies} copies, {labels} labels, {segments} segments per path")
    }
}

/// One sequence.
pub struct Sequence {
    /// All its blocks.
    pub path: Vec<BlockId>,
    group: usize,
    /// Where what it shares with its group ends.
    shared: usize,
    /// Where segments begin, each with the sibling stored before it. The first segment has none.
    cuts: Vec<(usize, BlockId)>,
    holders: Vec<u16>,
}

impl Sequence {
    /// Where the part begins that it shares with no other.
    pub fn own(&self) -> usize {
        self.shared
    }

    /// Who holds it.
    pub fn holders(&self) -> &[u16] {
        &self.holders
    }
}

/// The sequences, and who holds them now.
pub struct Workload {
    /// The shape it was drawn from.
    pub scenario: Scenario,
    /// Its blocks.
    pub catalog: Catalog,
    /// Its sequences.
    pub sequences: Vec<Sequence>,
    /// How many sequences of a group a worker holds, at `group * workers + worker`: while it is not zero, the worker
    /// holds the shared beginning.
    shared: Vec<u32>,
    rng: Rng,
}

impl Workload {
    /// Draws the sequences. Nothing is stored yet.
    pub fn new(scenario: Scenario, seed: u64) -> Self {
        let groups = scenario.sequences.div_ceil(scenario.group);
        let mut workload = Self {
            scenario,
            catalog: Catalog::new(),
            sequences: Vec::with_capacity(scenario.sequences),
            shared: vec![0; groups * usize::from(scenario.workers)],
            rng: Rng::new(seed),
        };
        for group in 0..groups {
            let beginning = workload.draw_beginning();
            let members = scenario.group.min(scenario.sequences - workload.sequences.len());
            for _ in 0..members {
                let sequence = workload.draw_sequence(group, &beginning);
                workload.sequences.push(sequence);
            }
        }
        workload
    }

    /// Stores every sequence on its workers, in random order.
    pub fn build(&mut self) -> Log {
        let mut pairs = Vec::new();
        for sequence in 0..self.sequences.len() {
            for worker in self.draw_workers() {
                pairs.push((sequence, worker));
            }
        }
        self.rng.shuffle(&mut pairs);
        let mut log = Log::default();
        for (sequence, worker) in pairs {
            self.store(sequence, worker, &mut log);
        }
        log
    }

    /// Moves copies from worker to worker until `block_ops` blocks were stored or removed.
    pub fn churn(&mut self, block_ops: usize) -> Log {
        let mut log = Log::default();
        while log.block_ops() < block_ops {
            let sequence = self.rng.below(self.sequences.len());
            let holders = &self.sequences[sequence].holders;
            let to = self.rng.below(usize::from(self.scenario.workers)) as u16;
            if holders.is_empty() || holders.contains(&to) {
                continue;
            }
            let from = holders[self.rng.below(holders.len())];
            self.remove(sequence, from, &mut log);
            self.store(sequence, to, &mut log);
        }
        log
    }

    /// Removes everything, in random order, leaves first.
    pub fn empty(&mut self) -> Log {
        let mut pairs: Vec<_> = self
            .sequences
            .iter()
            .enumerate()
            .flat_map(|(at, sequence)| sequence.holders.iter().map(move |worker| (at, *worker)))
            .collect();
        self.rng.shuffle(&mut pairs);
        let mut log = Log::default();
        for (sequence, worker) in pairs {
            self.remove(sequence, worker, &mut log);
        }
        log
    }

    /// How many (block, worker) pairs are held now.
    pub fn entries(&self) -> usize {
        let workers = usize::from(self.scenario.workers);
        let mut beginnings = vec![0; self.shared.len() / workers];
        let mut own = 0;
        for sequence in &self.sequences {
            beginnings[sequence.group] = sequence.shared;
            own += (sequence.path.len() - sequence.shared + sequence.cuts.len()) * sequence.holders.len();
        }
        let held = self.shared.iter().enumerate().filter(|(_, users)| **users > 0);
        own + held.map(|(at, _)| beginnings[at / workers]).sum::<usize>()
    }

    fn draw_beginning(&mut self) -> Vec<BlockId> {
        let mut path = Vec::new();
        if self.scenario.group > 1 {
            let (least, _) = self.scenario.length;
            let count = self.rng.between(least / 2, least * 2 - 8);
            self.catalog.grow(None, count, &mut path);
        }
        path
    }

    fn draw_sequence(&mut self, group: usize, beginning: &[BlockId]) -> Sequence {
        let (least, most) = self.scenario.length;
        let own = self.rng.between(least, most).saturating_sub(beginning.len()).max(1);
        let mut path = beginning.to_vec();
        let segments = self.scenario.segments.min(own);
        let mut cuts = Vec::new();
        for segment in 0..segments {
            let count = own * (segment + 1) / segments - own * segment / segments;
            let parent = path.last().copied();
            if let (true, Some(parent)) = (segment > 0, parent) {
                let mut sibling = Vec::new();
                self.catalog.grow(Some(parent), 1, &mut sibling);
                cuts.push((path.len(), sibling[0]));
            }
            self.catalog.grow(parent, count, &mut path);
        }
        Sequence {
            path,
            group,
            shared: beginning.len(),
            cuts,
            holders: Vec::new(),
        }
    }

    fn draw_workers(&mut self) -> Vec<u16> {
        let whole = self.scenario.copies.floor();
        let copies = whole as usize + usize::from(self.rng.chance(self.scenario.copies - whole));
        let mut workers: Vec<u16> = Vec::with_capacity(copies);
        while workers.len() < copies.min(usize::from(self.scenario.workers)) {
            let worker = self.rng.below(usize::from(self.scenario.workers)) as u16;
            if !workers.contains(&worker) {
                workers.push(worker);
            }
        }
        workers
    }

    fn store(&mut self, sequence: usize, worker: u16, log: &mut Log) {
        let sequence = &mut self.sequences[sequence];
        sequence.holders.push(worker);
        let users = &mut self.shared[sequence.group * usize::from(self.scenario.workers) + usize::from(worker)];
        let mut start = if *users == 0 { 0 } else { sequence.shared };
        *users += 1;
        for (cut, sibling) in &sequence.cuts {
            store_part(worker, &sequence.path, start..*cut, log);
            log.store(worker, Some(sequence.path[cut - 1]), &[*sibling]);
            start = *cut;
        }
        store_part(worker, &sequence.path, start..sequence.path.len(), log);
    }

    fn remove(&mut self, sequence: usize, worker: u16, log: &mut Log) {
        let sequence = &mut self.sequences[sequence];
        sequence.holders.retain(|holder| *holder != worker);
        let users = &mut self.shared[sequence.group * usize::from(self.scenario.workers) + usize::from(worker)];
        *users -= 1;
        let kept = if *users == 0 { 0 } else { sequence.shared };
        let siblings = sequence.cuts.iter().rev().map(|(_, sibling)| *sibling);
        let own = sequence.path[kept..].iter().rev().copied();
        log.remove(worker, &siblings.chain(own).collect::<Vec<_>>());
    }
}

fn store_part(worker: u16, path: &[BlockId], part: std::ops::Range<usize>, log: &mut Log) {
    let parent = part.start.checked_sub(1).map(|at| path[at]);
    log.store(worker, parent, &path[part]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::Change;
    use rustc_hash::FxHashSet;

    #[test]
    fn entries_are_what_the_log_says_and_all_go_in_the_end() {
        let scenario = Scenario {
            segments: 8,
            ..Scenario::main(16, 250)
        };
        let mut workload = Workload::new(scenario, 1);
        let mut held = FxHashSet::default();
        let mut apply = |log: &Log| {
            for op in log.ops(0..log.len()) {
                for block in op.blocks {
                    let changed = match op.change {
                        Change::Store { .. } => held.insert((op.worker, *block)),
                        Change::Remove => held.remove(&(op.worker, *block)),
                    };
                    assert!(changed, "no block is stored or removed twice");
                }
            }
            held.len()
        };
        assert_eq!(apply(&workload.build()), workload.entries());
        assert_eq!(apply(&workload.churn(50_000)), workload.entries());
        assert_eq!(apply(&workload.empty()), 0);
    }
}
