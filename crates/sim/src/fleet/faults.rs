//! What goes wrong, and when?

use homing_profile::{Millis, Time};

use crate::Rng;

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FaultKind {
    /// A worker dies; when the fault ends it lives anew.
    Crash {
        /// Which.
        worker: u32,
    },
    /// A worker computes slower by a factor.
    Slow {
        /// Which.
        worker: u32,
        /// By how much.
        factor: f64,
    },
    /// Of a worker's batches so many out of a thousand are lost on the way to each router.
    Loss {
        /// Whose.
        worker: u32,
        /// How many.
        per_mille: u32,
    },
    /// Of a worker's batches so many out of a thousand come twice.
    Repeat {
        /// Whose.
        worker: u32,
        /// How many.
        per_mille: u32,
    },
    /// Of a worker's batches so many out of a thousand come late and are overtaken.
    Reorder {
        /// Whose.
        worker: u32,
        /// How many.
        per_mille: u32,
    },
    /// A router hears nothing of a worker's events, and cannot ask for them.
    FeedCut {
        /// Who hears nothing.
        router: u32,
        /// Of whom.
        worker: u32,
    },
    /// A router cannot reach a worker: requests fail, answers under way break, events do not come.
    Partition {
        /// Who.
        router: u32,
        /// Whom.
        worker: u32,
    },
    /// A router dies and is back at once, knowing nothing. Its clients come again.
    RouterRestart {
        /// Which.
        router: u32,
    },
    /// So many out of a thousand clients that come meanwhile give up before their answer is whole.
    Impatience {
        /// How many.
        per_mille: u32,
    },
}

impl FaultKind {
    /// What it is called in plans and logs.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Crash { .. } => "crash",
            Self::Slow { .. } => "slow",
            Self::Loss { .. } => "loss",
            Self::Repeat { .. } => "repeat",
            Self::Reorder { .. } => "reorder",
            Self::FeedCut { .. } => "feed-cut",
            Self::Partition { .. } => "partition",
            Self::RouterRestart { .. } => "router-restart",
            Self::Impatience { .. } => "impatience",
        }
    }
}

/// A fault with its time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fault {
    /// When it begins.
    pub at: Time,
    /// How long it lasts.
    pub lasts: Millis,
    /// What it is.
    pub kind: FaultKind,
}

/// Faults by chance: `count` of them, within the first `span` of the world.
pub fn by_chance(rng: &mut Rng, count: u32, span: Millis, (workers, routers): (u32, u32)) -> Vec<Fault> {
    let fault = |rng: &mut Rng| {
        let worker = rng.below(u64::from(workers)) as u32;
        let router = rng.below(u64::from(routers)) as u32;
        let per_mille = rng.between(10, 400) as u32;
        let kind = match rng.below(9) {
            0 => FaultKind::Crash { worker },
            1 => FaultKind::Slow {
                worker,
                factor: rng.between(2, 12) as f64,
            },
            2 => FaultKind::Loss { worker, per_mille },
            3 => FaultKind::Repeat { worker, per_mille },
            4 => FaultKind::Reorder { worker, per_mille },
            5 => FaultKind::FeedCut { router, worker },
            6 => FaultKind::Partition { router, worker },
            7 => FaultKind::RouterRestart { router },
            _ => FaultKind::Impatience { per_mille },
        };
        let at = Time::from_millis(rng.below(span.0 as u64) as f64);
        let lasts = Millis(rng.between(1, (span.0 / 4.0).max(2.0) as u64) as f64);
        Fault { at, lasts, kind }
    };
    let mut faults: Vec<Fault> = (0..count).map(|_| fault(rng)).collect();
    faults.sort_by_key(|fault| fault.at);
    faults
}
