//! Are there prefill workers for this model, and what follows if not?
//!
//! **Invariant:** what is said is a function of who is there: saying the same twice changes nothing.

use std::collections::BTreeSet;

use homing_domain::{Role, WorkerId};

/// Whether requests may be served by one worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Require {
    /// They may, where that is better or there is no other way.
    #[default]
    No,
    /// Prefill and decode are always on different workers: `--require-disagg`.
    Yes,
}

/// What became of a model's prefill workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PoolPhase {
    /// None has ever come.
    #[default]
    NotYet,
    /// There are some.
    Active,
    /// There were some, and all have gone.
    Gone,
}

impl PoolPhase {
    /// As reports spell it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NotYet => "not yet activated",
            Self::Active => "active",
            Self::Gone => "deactivated",
        }
    }
}

/// Whether a phase changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changed {
    /// To this one.
    To(PoolPhase),
    /// It did not.
    No,
}

/// The workers of one model, by what they do.
#[derive(Clone, Debug, Default)]
pub struct Pool {
    prefill: BTreeSet<WorkerId>,
    decode: BTreeSet<WorkerId>,
    phase: PoolPhase,
}

impl Pool {
    /// A worker is there with this role, whatever it was before.
    pub fn up(&mut self, worker: WorkerId, role: Role) -> Changed {
        self.prefill.remove(&worker);
        self.decode.remove(&worker);
        // Who does everything needs no pair, and makes none necessary.
        if role == Role::Prefill {
            self.prefill.insert(worker);
        }
        if role.decodes() {
            self.decode.insert(worker);
        }
        self.settle()
    }

    /// A worker is not there any more.
    pub fn down(&mut self, worker: WorkerId) -> Changed {
        self.prefill.remove(&worker);
        self.decode.remove(&worker);
        self.settle()
    }

    /// What became of the prefill workers.
    pub fn phase(&self) -> PoolPhase {
        self.phase
    }

    /// Prefill workers that are there.
    pub fn prefill_workers(&self) -> usize {
        self.prefill.len()
    }

    /// Workers that can generate.
    pub fn decode_workers(&self) -> usize {
        self.decode.len()
    }

    /// Whether the model can be served, and may be listed as ready.
    pub fn is_ready(&self, require: Require) -> bool {
        let prefill = match require {
            Require::Yes => self.phase == PoolPhase::Active,
            Require::No => true,
        };
        prefill && !self.decode.is_empty()
    }

    fn settle(&mut self) -> Changed {
        let phase = match (self.prefill.is_empty(), self.phase) {
            (false, _) => PoolPhase::Active,
            (true, PoolPhase::NotYet) => PoolPhase::NotYet,
            (true, _) => PoolPhase::Gone,
        };
        if phase == self.phase {
            return Changed::No;
        }
        self.phase = phase;
        Changed::To(phase)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pools_come_and_go_and_saying_so_twice_changes_nothing() {
        let mut pool = Pool::default();
        let (one, other, decode) = (WorkerId(1), WorkerId(2), WorkerId(3));
        assert_eq!(pool.down(one), Changed::No, "nobody was there");
        assert_eq!(pool.phase(), PoolPhase::NotYet);
        assert_eq!(pool.up(decode, Role::Decode), Changed::No);
        assert!(pool.is_ready(Require::No) && !pool.is_ready(Require::Yes));
        for _ in 0..2 {
            assert_eq!(pool.up(one, Role::Prefill), Changed::To(PoolPhase::Active));
            assert_eq!(pool.up(one, Role::Prefill), Changed::No);
            assert!(pool.is_ready(Require::Yes));
            assert_eq!(pool.up(other, Role::Prefill), Changed::No);
            assert_eq!(pool.down(one), Changed::No);
            assert_eq!(pool.down(other), Changed::To(PoolPhase::Gone));
            assert_eq!(pool.down(other), Changed::No);
            assert!(pool.is_ready(Require::No) && !pool.is_ready(Require::Yes));
        }
    }

    #[test]
    fn a_worker_that_changes_its_role_leaves_its_old_pool() {
        let mut pool = Pool::default();
        pool.up(WorkerId(1), Role::Prefill);
        assert_eq!(pool.up(WorkerId(1), Role::Both), Changed::To(PoolPhase::Gone));
        assert_eq!((pool.prefill_workers(), pool.decode_workers()), (0, 1));
    }

    #[test]
    fn prefill_workers_alone_serve_nothing() {
        let mut pool = Pool::default();
        pool.up(WorkerId(1), Role::Prefill);
        assert!(!pool.is_ready(Require::Yes) && !pool.is_ready(Require::No));
    }
}
