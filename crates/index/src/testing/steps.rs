//! What may happen to an index? Operations as plain data, chosen from so small a world that labels, contents and ranks
//! meet all the time.

use homing_domain::Tier;

/// One operation. Numbers are taken modulo what exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Blocks of the sequence `sequence` from block `from` on, as many as `count`, become known on a rank.
    Store {
        /// Which rank.
        rank: u8,
        /// Which sequence; sequences share prefixes.
        sequence: u8,
        /// The first block.
        from: u8,
        /// How many.
        count: u8,
        /// Where.
        tier: Tier,
        /// In which cache group.
        group: u8,
    },
    /// Blocks with labels that do not follow any sequence.
    StoreStrange {
        /// Which rank.
        rank: u8,
        /// The parent's label, if any.
        parent: Option<u8>,
        /// Labels and contents.
        blocks: Vec<(u8, u8)>,
    },
    /// Blocks of a sequence go, from the last to the first or the other way.
    Remove {
        /// Which rank.
        rank: u8,
        /// Which sequence.
        sequence: u8,
        /// The first block.
        from: u8,
        /// How many.
        count: u8,
        /// From where.
        tier: Tier,
        /// From which cache group.
        group: u8,
        /// Whether the deepest goes first.
        tail_first: bool,
    },
    /// Everything of a rank goes, or what is on one tier.
    Clear {
        /// Which rank.
        rank: u8,
        /// One tier only.
        tier: Option<Tier>,
    },
    /// A rank leaves and comes back empty.
    Rejoin {
        /// Which rank.
        rank: u8,
    },
    /// What a rank holds is listed, restored into a draft, and the draft published.
    Reinstall {
        /// Which rank.
        rank: u8,
    },
    /// A rank's content is replaced by some blocks of a sequence, through a draft; readers look on while it is filled.
    Replace {
        /// Which rank.
        rank: u8,
        /// Which sequence.
        sequence: u8,
        /// How many blocks of it.
        count: u8,
    },
    /// A run gets another number, as runs do when few are left; labels lead to the old one for a while.
    Renumber {
        /// Which run.
        run: u8,
    },
    /// Housekeeping.
    Maintain,
}

/// Which ranks there are and what they agree on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// For each rank: whether its labels are its own, and whether copies are a set.
    pub ranks: Vec<(bool, bool)>,
    /// Distinct blocks that the index may keep; 0 for as many as it likes.
    pub capacity: u64,
    /// Orphans that it may keep per rank.
    pub orphans: usize,
    /// Slots taken before the first rank, so that sets take every form.
    pub padding: u8,
    /// What happens.
    pub steps: Vec<Step>,
}
