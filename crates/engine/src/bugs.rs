//! Would the tests notice? Mistakes that can be switched on one by one; each must be found.

/// A mistake of the kind that models of engines make.
#[cfg(any(test, feature = "testing"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bug {
    /// A second copy of a block is not told when it comes, though it is when it goes.
    CopyNotTold,
    /// An eviction is not told.
    EvictionNotTold,
    /// A sequence that is cancelled in mid-step keeps its last block.
    CancelLeaks,
    /// A prompt that is wholly cached is not computed at all.
    NothingComputed,
    /// What was generated before a preemption is generated anew, with another text.
    PreemptionForgets,
    /// A batch of events takes the number of the one before.
    NumberRepeated,
    /// The blocks of a staged request can be evicted.
    StagedIsEvicted,
    /// A lease that ends leaves a block behind.
    LapseLeaks,
    /// A request whose KV does not come keeps its blocks.
    FailureLeaks,
    /// A request that is cancelled while its KV is on its way gives the blocks back at once.
    CancelFreesTarget,
    /// A prompt whose KV has come is computed all the same.
    TakenIsComputedAnew,
}

#[cfg(any(test, feature = "testing"))]
impl Bug {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::CopyNotTold,
        Self::EvictionNotTold,
        Self::CancelLeaks,
        Self::NothingComputed,
        Self::PreemptionForgets,
        Self::NumberRepeated,
        Self::StagedIsEvicted,
        Self::LapseLeaks,
        Self::FailureLeaks,
        Self::CancelFreesTarget,
        Self::TakenIsComputedAnew,
    ];
}

pub(crate) use homing_domain::planted;
