//! Who exists? Workers, their ranks, what they are for, and where a block can lie.

use std::fmt;
use std::sync::Arc;

/// An engine process with an address. The number is given by whoever discovered it and is not reused while it lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerId(pub u32);

/// One data-parallel part of a worker, counted from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DpRank(pub u16);

/// One data-parallel part of one worker: the thing that has a cache of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RankId {
    /// The process.
    pub worker: WorkerId,
    /// Its part.
    pub dp: DpRank,
}

impl RankId {
    /// Rank `dp` of worker `worker`.
    pub const fn new(worker: u32, dp: u16) -> Self {
        Self {
            worker: WorkerId(worker),
            dp: DpRank(dp),
        }
    }
}

impl fmt::Display for RankId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.worker.0, self.dp.0)
    }
}

/// Which part of a request a worker serves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Role {
    /// Computes the prompt's KV and hands it over.
    Prefill,
    /// Takes KV over and generates.
    Decode,
    /// Does the whole request.
    #[default]
    Both,
}

impl Role {
    /// As settings and reports spell it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Prefill => "prefill",
            Self::Decode => "decode",
            Self::Both => "both",
        }
    }

    /// Whether a worker of this role can compute a prompt.
    pub const fn prefills(self) -> bool {
        matches!(self, Self::Prefill | Self::Both)
    }

    /// Whether a worker of this role can generate.
    pub const fn decodes(self) -> bool {
        matches!(self, Self::Decode | Self::Both)
    }
}

/// Where a block lies, nearest to the computation first. The order is the order of the cost of using it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Tier {
    /// Memory of the accelerator.
    #[default]
    Device = 0,
    /// Memory of the host.
    Host = 1,
    /// A local disk.
    Disk = 2,
    /// Storage that is not the worker's own.
    External = 3,
}

impl Tier {
    /// How many tiers there are.
    pub const COUNT: usize = 4;
    /// All tiers, nearest first.
    pub const ALL: [Self; Self::COUNT] = [Self::Device, Self::Host, Self::Disk, Self::External];

    /// The tier's place in [`Tier::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// The cache group of a hybrid model that a block belongs to. Engines number them from 0; most have only that one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CacheGroup(pub u8);

macro_rules! name {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Takes the name as it was given.
            pub fn new(name: impl Into<Arc<str>>) -> Self {
                Self(name.into())
            }

            /// The name.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl From<&str> for $name {
            fn from(name: &str) -> Self {
                Self::new(name)
            }
        }
    };
}

name!(
    /// A model as clients call it. Together with the block size it decides which index a request is looked up in.
    ModelName
);
name!(
    /// A LoRA adapter. Part of the content of every block computed with it.
    AdapterName
);
name!(
    /// What keeps one tenant's blocks apart from another's. Part of the content of a sequence's first block.
    CacheSalt
);
name!(
    /// One request of one client, as our receipts and logs name it.
    RequestId
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiers_are_ordered_by_what_using_them_costs() {
        assert!(Tier::ALL.is_sorted());
        for (place, tier) in Tier::ALL.into_iter().enumerate() {
            assert_eq!(tier.index(), place);
        }
    }

    #[test]
    fn both_does_either() {
        assert!(Role::Both.prefills() && Role::Both.decodes());
        assert!(!Role::Prefill.decodes() && !Role::Decode.prefills());
    }
}
