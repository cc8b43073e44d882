//! What was left out of a batch, and why? Reasons are a closed list, so that metrics can name each.

use std::fmt;
use std::ops::AddAssign;

use homing_domain::BlockSize;

macro_rules! reasons {
    ($($(#[$doc:meta])* $variant:ident => $name:literal,)+) => {
        /// Why an event, or a part of one, is not in the decoded batch.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum SkipReason {
            $($(#[$doc])* $variant,)+
        }

        impl SkipReason {
            /// All reasons.
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$variant),+];

            /// Its name in metrics.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }
        }
    };
}

reasons! {
    /// An event of a kind that is not known.
    UnknownEvent => "unknown_event",
    /// The blocks lie in a place whose name is not known.
    UnknownMedium => "unknown_medium",
    /// The blocks lie at another worker, or it is not known at which.
    RemoteLocality => "remote_locality",
    /// The cache group keeps only a part of a prefix (sliding window, Mamba, chunked local, encoder only, cross
    /// attention), so that what it holds says nothing about a usable prefix.
    UnusableGroup => "unusable_group",
    /// The cache group is of a kind that is not known.
    UnknownGroupKind => "unknown_group_kind",
    /// The engine did not say of which kind the cache group is.
    UnlearnedGroup => "unlearned_group",
    /// The block is not full.
    PartialBlock => "partial_block",
    /// The number of tokens is not that of the blocks.
    TokensDoNotFit => "tokens_do_not_fit",
    /// The event names blocks without their tokens, and they were not seen before.
    NoTokens => "no_tokens",
    /// The engine's blocks are no multiple of ours; see [`BlockSizeRefusal`].
    BlockSize => "block_size",
    /// A block is split, and it is not told which parts of it the media touch.
    MediaInSplitBlock => "media_in_split_block",
    /// The block before it was skipped, so it would hang in the air.
    AfterSkipped => "after_skipped",
    /// Something was removed that had been skipped when it was stored.
    RemovalOfSkipped => "removal_of_skipped",
    /// A field is missing, of another type or out of range.
    BadFields => "bad_fields",
}

impl fmt::Display for SkipReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How many events were left out, wholly or in part, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Skipped {
    counts: [u32; SkipReason::ALL.len()],
}

impl Skipped {
    /// Counts one more.
    pub fn add(&mut self, reason: SkipReason) {
        let count = &mut self.counts[reason as usize];
        *count = count.saturating_add(1);
    }

    /// How many for this reason.
    pub fn get(&self, reason: SkipReason) -> u32 {
        self.counts[reason as usize]
    }

    /// How many in all.
    pub fn total(&self) -> u64 {
        self.counts.iter().map(|&count| u64::from(count)).sum()
    }

    /// Whether nothing was left out.
    pub fn is_empty(&self) -> bool {
        self.total() == 0
    }

    /// The reasons that occurred, with how often.
    pub fn iter(&self) -> impl Iterator<Item = (SkipReason, u32)> + '_ {
        let all = SkipReason::ALL.into_iter().zip(self.counts);
        all.filter(|&(_, count)| count > 0)
    }
}

impl AddAssign for Skipped {
    fn add_assign(&mut self, other: Self) {
        for (count, more) in self.counts.iter_mut().zip(other.counts) {
            *count = count.saturating_add(more);
        }
    }
}

/// An engine whose blocks cannot be expressed in ours. Its events are of no use until one of the two settings changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockSizeRefusal {
    /// Tokens in a block of the engine.
    pub engine: u32,
    /// Tokens in a block of the index.
    pub router: BlockSize,
}

impl fmt::Display for BlockSizeRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the engine has {} tokens per block and the router {}: the engine's must be the router's times 1 to {}",
            self.engine,
            self.router.get(),
            crate::decode::MAX_SPLIT
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_kept_apart_and_add_up() {
        let mut one = Skipped::default();
        assert!(one.is_empty());
        one.add(SkipReason::BadFields);
        one.add(SkipReason::BadFields);
        one.add(SkipReason::NoTokens);
        let mut sum = one;
        sum += one;
        let seen: Vec<_> = sum.iter().collect();
        assert_eq!(seen, [(SkipReason::NoTokens, 2), (SkipReason::BadFields, 4)]);
        assert_eq!(sum.total(), 6);
    }

    #[test]
    fn reasons_have_names_of_their_own() {
        let mut names: Vec<_> = SkipReason::ALL.map(SkipReason::name).into();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), SkipReason::ALL.len());
    }

    #[test]
    fn a_refusal_names_both_sizes() {
        let refusal = BlockSizeRefusal {
            engine: 24,
            router: BlockSize::new(16).unwrap(),
        };
        assert_eq!(
            refusal.to_string(),
            "the engine has 24 tokens per block and the router 16: the engine's must be the router's times 1 to 128"
        );
    }
}
