//! What goes wrong, and when?

use homing_profile::{Millis, Time};
use thiserror::Error;

use crate::Rng;

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FaultKind {
    /// A worker dies; when the fault ends it lives anew.
    Crash {
        /// Which.
        worker: u32,
    },
    /// A worker takes requests and answers none, until the fault ends; then it goes on.
    Hang {
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
    /// A worker takes no new requests, and says so.
    Drain {
        /// Which.
        worker: u32,
    },
    /// A worker is not there any more, as far as routers are told; what it computes it finishes. Then it is there again.
    Leave {
        /// Which.
        worker: u32,
    },
    /// A worker cannot load adapters, and has lost those that it had.
    AdapterFailure {
        /// Which.
        worker: u32,
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
    /// Of a worker's batches so many out of a thousand are misread by each router: what was removed is overlooked, and nothing tells.
    Misread {
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
    /// So many out of a thousand clients that come meanwhile do not read their answers for a while.
    SlowClients {
        /// How many.
        per_mille: u32,
    },
    /// So many out of a thousand answers of prefill workers are lost: what they staged stays.
    LostAnswers {
        /// How many.
        per_mille: u32,
    },
    /// So many out of a thousand ends of requests are told once more, later.
    LateWords {
        /// How many.
        per_mille: u32,
    },
}

/// The kinds that can be drawn, by name. A rolling restart is made of others: each worker in turn is drained and restarted.
pub const NAMES: [&str; 17] = [
    "crash",
    "hang",
    "slow",
    "drain",
    "leave",
    "adapter-failure",
    "loss",
    "repeat",
    "reorder",
    "misread",
    "feed-cut",
    "partition",
    "router-restart",
    "impatience",
    "slow-clients",
    "late-words",
    "rolling-restart",
];

/// The kinds that are drawn where two workers may serve a request; `lost-answers` only there.
pub(crate) const SPLIT_NAMES: [&str; 7] = [
    "crash",
    "hang",
    "slow",
    "drain",
    "partition",
    "impatience",
    "lost-answers",
];

/// There is no kind of fault of this name.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("there is no fault `{name}`; there are {}", NAMES.join(", "))]
pub struct UnknownFault {
    /// The name.
    pub name: String,
}

/// The kind of this name, as it is spelled here.
pub fn named(name: &str) -> Result<&'static str, UnknownFault> {
    let known = NAMES.into_iter().find(|known| *known == name);
    known.ok_or_else(|| UnknownFault { name: name.to_owned() })
}

impl FaultKind {
    /// What it is called in plans and logs.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Crash { .. } => "crash",
            Self::Hang { .. } => "hang",
            Self::Slow { .. } => "slow",
            Self::Drain { .. } => "drain",
            Self::Leave { .. } => "leave",
            Self::AdapterFailure { .. } => "adapter-failure",
            Self::Loss { .. } => "loss",
            Self::Repeat { .. } => "repeat",
            Self::Reorder { .. } => "reorder",
            Self::Misread { .. } => "misread",
            Self::FeedCut { .. } => "feed-cut",
            Self::Partition { .. } => "partition",
            Self::RouterRestart { .. } => "router-restart",
            Self::Impatience { .. } => "impatience",
            Self::SlowClients { .. } => "slow-clients",
            Self::LateWords { .. } => "late-words",
            Self::LostAnswers { .. } => "lost-answers",
        }
    }

    /// Whom it concerns: a router, a worker.
    pub const fn whom(&self) -> (Option<u32>, Option<u32>) {
        match *self {
            Self::Crash { worker }
            | Self::Hang { worker }
            | Self::Slow { worker, .. }
            | Self::Drain { worker }
            | Self::Leave { worker }
            | Self::AdapterFailure { worker }
            | Self::Loss { worker, .. }
            | Self::Repeat { worker, .. }
            | Self::Reorder { worker, .. }
            | Self::Misread { worker, .. } => (None, Some(worker)),
            Self::FeedCut { router, worker } | Self::Partition { router, worker } => (Some(router), Some(worker)),
            Self::RouterRestart { router } => (Some(router), None),
            Self::Impatience { .. } | Self::SlowClients { .. } | Self::LateWords { .. } | Self::LostAnswers { .. } => {
                (None, None)
            }
        }
    }

    /// Whether the other is the same thing happening to the same.
    pub(crate) fn is_alike(&self, other: &Self) -> bool {
        self.name() == other.name() && self.whom() == other.whom()
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

/// Which faults may be drawn.
#[derive(Clone, Debug)]
pub struct Among {
    /// Kinds, by name.
    pub kinds: Vec<&'static str>,
    /// They begin within the first so long.
    pub span: Millis,
    /// Workers.
    pub workers: u32,
    /// Routers.
    pub routers: u32,
}

/// Faults by chance: `count` of them, of any kind, within the first `span` of the world.
pub fn by_chance(rng: &mut Rng, count: u32, span: Millis, (workers, routers): (u32, u32)) -> Vec<Fault> {
    let among = Among {
        kinds: NAMES.to_vec(),
        span,
        workers,
        routers,
    };
    among.draw(rng, count)
}

impl Among {
    /// So many of them, by when they begin.
    pub fn draw(&self, rng: &mut Rng, count: u32) -> Vec<Fault> {
        let mut faults = Vec::new();
        for _ in 0..count {
            let at = Time::from_millis(rng.below(self.span.0 as u64) as f64);
            let lasts = Millis(rng.between(1, (self.span.0 / 4.0).max(2.0) as u64) as f64);
            match self.kinds.get(rng.place(self.kinds.len())) {
                // Machines are mended soon; people stay as they are.
                Some(&"impatience") => faults.extend(self.one(rng, "impatience").map(|kind| Fault {
                    at,
                    lasts: Millis(lasts.0 * 4.0),
                    kind,
                })),
                Some(&"rolling-restart") => faults.extend(self.rolling_restart(rng, at)),
                Some(&"leave") => faults.extend(self.leaves(rng, at)),
                Some(name) => faults.extend(self.one(rng, name).map(|kind| Fault { at, lasts, kind })),
                None => (),
            }
        }
        faults.sort_by_key(|fault| fault.at);
        faults
    }

    fn one(&self, rng: &mut Rng, name: &str) -> Option<FaultKind> {
        let worker = rng.below(u64::from(self.workers)) as u32;
        let router = rng.below(u64::from(self.routers)) as u32;
        let per_mille = rng.between(10, 400) as u32;
        let factor = rng.between(2, 12) as f64;
        Some(match name {
            "crash" => FaultKind::Crash { worker },
            "hang" => FaultKind::Hang { worker },
            "slow" => FaultKind::Slow { worker, factor },
            "drain" => FaultKind::Drain { worker },
            "adapter-failure" => FaultKind::AdapterFailure { worker },
            "loss" => FaultKind::Loss { worker, per_mille },
            "repeat" => FaultKind::Repeat { worker, per_mille },
            "reorder" => FaultKind::Reorder { worker, per_mille },
            "misread" => FaultKind::Misread { worker, per_mille },
            "feed-cut" => FaultKind::FeedCut { router, worker },
            "partition" => FaultKind::Partition { router, worker },
            "router-restart" => FaultKind::RouterRestart { router },
            "impatience" => FaultKind::Impatience { per_mille },
            "slow-clients" => FaultKind::SlowClients { per_mille },
            "late-words" => FaultKind::LateWords { per_mille },
            "lost-answers" => FaultKind::LostAnswers { per_mille },
            _ => return None,
        })
    }

    /// Some workers leave one after the other and come back in any order, so that they get each other's places.
    fn leaves(&self, rng: &mut Rng, from: Time) -> Vec<Fault> {
        let one = |_| Fault {
            at: from + Millis(rng.below(2_000) as f64),
            lasts: Millis(rng.between(500, 5_000) as f64),
            kind: FaultKind::Leave {
                worker: rng.below(u64::from(self.workers)) as u32,
            },
        };
        (0..3).map(one).collect()
    }

    /// Each worker in turn takes nothing new for a while, dies and is back soon.
    fn rolling_restart(&self, rng: &mut Rng, from: Time) -> Vec<Fault> {
        let each = rng.between(500, 5_000) as f64;
        let dead = rng.between(50, 500) as f64;
        let of = |worker: u32| {
            let at = from + Millis(each * f64::from(worker));
            let drain = Fault {
                at,
                lasts: Millis(each),
                kind: FaultKind::Drain { worker },
            };
            let crash = Fault {
                at: at + Millis(each - dead),
                lasts: Millis(dead - 1.0),
                kind: FaultKind::Crash { worker },
            };
            [drain, crash]
        };
        (0..self.workers).flat_map(of).collect()
    }
}
