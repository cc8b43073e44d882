//! Why may a rank not serve a request?

use std::fmt;

/// Why a rank is not eligible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Reason {
    /// It serves another model.
    OtherModel,
    /// It does another part of requests.
    OtherRole,
    /// It does not answer.
    Unhealthy,
    /// It takes no new requests.
    Draining,
    /// It cannot serve the adapter.
    NoAdapter,
    /// The request is pinned to another worker.
    NotPinned,
    /// The request is pinned to another rank of the worker.
    OtherDpRank,
    /// The caller does not allow it.
    NotAllowed,
    /// It was tried for this request, and failed.
    Tried,
    /// It lacks a label that is required.
    MissingLabel,
    /// A prompt there is long overdue, or it looks stalled; others are not so.
    Suspect,
    /// It has not answered anything yet and has enough to show what it can.
    Unverified,
}

impl Reason {
    /// All of them, in the order in which they are looked at.
    pub const ALL: [Self; 12] = [
        Self::OtherModel,
        Self::OtherRole,
        Self::Unhealthy,
        Self::Draining,
        Self::NoAdapter,
        Self::NotPinned,
        Self::OtherDpRank,
        Self::NotAllowed,
        Self::Tried,
        Self::MissingLabel,
        Self::Suspect,
        Self::Unverified,
    ];

    /// As reports spell it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::OtherModel => "other model",
            Self::OtherRole => "other role",
            Self::Unhealthy => "unhealthy",
            Self::Draining => "draining",
            Self::NoAdapter => "no such adapter",
            Self::NotPinned => "pinned elsewhere",
            Self::OtherDpRank => "pinned to another rank",
            Self::NotAllowed => "not allowed by the caller",
            Self::Tried => "tried before",
            Self::MissingLabel => "lacks a required label",
            Self::Suspect => "suspect",
            Self::Unverified => "unverified",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How many each reason excluded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Excluded([u32; Reason::ALL.len()]);

impl Excluded {
    /// How many this reason excluded.
    pub fn by(&self, reason: Reason) -> u32 {
        self.0[reason as usize]
    }

    /// The reasons that excluded any.
    pub fn reasons(&self) -> impl Iterator<Item = (Reason, u32)> + '_ {
        Reason::ALL
            .into_iter()
            .map(|reason| (reason, self.by(reason)))
            .filter(|(_, count)| *count > 0)
    }

    pub(crate) fn add(&mut self, reason: Reason, count: u32) {
        self.0[reason as usize] += count;
    }
}
