//! What is being done about a view that is not right?

use homing_domain::Sequence;

use crate::protocol::AskId;

/// What a repair is after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Goal {
    /// Is an idle source still where we are? Live batches are applied meanwhile.
    Probe,
    /// Verify the batch at the cursor, and fetch what follows.
    Replay,
    /// Build a draft from the oldest batches that the source still has.
    Rebuild,
    /// Fill a draft from a list.
    List,
}

/// Where a repair stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Waits for one of the permits.
    Queued,
    /// Asked; parts of the answer may have come.
    Asked { since_ms: u64, heard_ms: u64 },
    /// Failed, and will be tried again.
    BackingOff { until_ms: u64 },
}

/// Whether a replay has shown that it continues what we have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Proof {
    /// Not yet.
    Missing,
    /// The batch at our cursor came, and is the one that we applied.
    Given,
    /// Something between the cursor and what came is missing.
    Broken,
}

/// Where a replay did not go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stuck(pub(crate) Option<Sequence>);

#[derive(Debug)]
pub(crate) struct Repair {
    pub(crate) id: AskId,
    pub(crate) goal: Goal,
    pub(crate) phase: Phase,
    /// Tries that failed.
    pub(crate) failures: u32,
    /// Where the cursor stood when the last answer brought nothing that follows it.
    pub(crate) stuck_at: Option<Stuck>,
    /// Numbers up to here are lost, and are not waited for.
    pub(crate) beyond: Option<Sequence>,
    pub(crate) proof: Proof,
    /// Batches that were applied.
    pub(crate) applied: u64,
    /// Items of a list that came.
    pub(crate) items: u64,
}

impl Repair {
    pub(crate) fn new(id: AskId, goal: Goal) -> Self {
        Self {
            id,
            goal,
            phase: Phase::Queued,
            failures: 0,
            stuck_at: None,
            beyond: None,
            proof: Proof::Missing,
            applied: 0,
            items: 0,
        }
    }

    /// The same once more, under another name.
    pub(crate) fn again(&mut self, id: AskId) {
        self.id = id;
        self.phase = Phase::Queued;
        self.proof = Proof::Missing;
        self.applied = 0;
        self.items = 0;
    }
}
