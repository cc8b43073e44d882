//! Would the tests notice? Mistakes that can be switched on one by one; each must be found by the property
//! tests, or by the schedules.

/// A mistake of the kind that peers have made, or that we nearly made.
#[cfg(any(test, feature = "testing"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bug {
    /// A second copy is not counted, so that the first removal drops the block.
    SetInsteadOfCounts,
    /// A block stored into a hole does not let what lies behind it count again.
    HoleNotRestored,
    /// A removal in mid-run does not stop what lies behind from counting.
    HoleIgnored,
    /// An orphan that joins gets one copy too many.
    OrphanJoinedTwice,
    /// An orphan is placed right away, as if its sequence began with it.
    OrphanAtRoot,
    /// A draft is live from the start.
    SwapVisibleBeforeFilled,
    /// When a run grows, ranks that held all of it still count as holding all of it.
    LevelNotUpdated,
    /// A label counts for a rank although only another rank uses it.
    ForeignLabelHonoured,
    /// A tier is forgotten: a removal from the host takes the device's copy.
    TierIgnored,
    /// Clearing a rank leaves its orphans.
    OrphansSurviveClear,
    /// An event of a rank is applied while one of its tiers is still being cleared.
    ClearNotAwaited,
    /// What waits for a label waits on when the engine has given that label up.
    LabelOutlivesBlock,
    /// A rank's own label comes to name a block without a look at whether it names another.
    NameTakenUnseen,
    /// Labels do not follow a run to its new number.
    NameLeftBehind,
    /// A slot is used again before it was swept.
    SlotReusedUnswept,
    /// Blocks that come again are not followed by what followed them before they went.
    DanglingForgotten,
    /// When the first run of those that follow one block goes, the others are not found by that block any more.
    HeirForgotten,
    /// A full index evicts blocks that others follow.
    InnerBlockEvicted,
    /// A rank that lost blocks because the index was full is not told from one that did not.
    EvictionUnmarked,
    /// A label that was given to a block for which there was no room goes on naming the block that it named before.
    RefusedLabelKept,
    /// What waits for blocks for which there was no room is forgotten as if the last of them had come first. So rare that
    /// one script is made to find it.
    RefusedOutOfTurn,
    /// Readers are not told that a run's coverage is being changed.
    NoVersionOnWrite,
    /// Readers are not told that the view was replaced.
    EpochNotRaised,
    /// A store is shown shallowest run first, so that a reader may see half of it.
    StoreShallowFirst,
    /// A removal is shown deepest run first, so that a reader may see half of it.
    RemoveDeepFirst,
    /// Somebody is said to hold new runs before readers can find them.
    CoverageBeforeView,
}

#[cfg(any(test, feature = "testing"))]
impl Bug {
    /// Those that one thread can notice, however much room there is.
    pub const ALL: [Self; 17] = [
        Self::SetInsteadOfCounts,
        Self::HoleNotRestored,
        Self::HoleIgnored,
        Self::OrphanJoinedTwice,
        Self::OrphanAtRoot,
        Self::SwapVisibleBeforeFilled,
        Self::LevelNotUpdated,
        Self::ForeignLabelHonoured,
        Self::TierIgnored,
        Self::OrphansSurviveClear,
        Self::ClearNotAwaited,
        Self::LabelOutlivesBlock,
        Self::NameTakenUnseen,
        Self::NameLeftBehind,
        Self::SlotReusedUnswept,
        Self::DanglingForgotten,
        Self::HeirForgotten,
    ];

    /// Those that one thread can notice only if the index is full.
    pub const FULL: [Self; 3] = [Self::InnerBlockEvicted, Self::EvictionUnmarked, Self::RefusedLabelKept];

    /// Those that show only while readers look on: the schedules find them, the property tests cannot.
    pub const CONCURRENT: [Self; 5] = [
        Self::NoVersionOnWrite,
        Self::EpochNotRaised,
        Self::StoreShallowFirst,
        Self::RemoveDeepFirst,
        Self::CoverageBeforeView,
    ];
}

#[cfg(any(test, feature = "testing"))]
macro_rules! planted {
    ($config:expr, $bug:ident) => {
        $config.bug == Some($crate::bugs::Bug::$bug)
    };
}

#[cfg(not(any(test, feature = "testing")))]
macro_rules! planted {
    ($config:expr, $bug:ident) => {
        false
    };
}

pub(crate) use planted;
