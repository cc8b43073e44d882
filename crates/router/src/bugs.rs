//! Would the simulator notice? Mistakes that can be switched on one by one; each must be found.

/// A mistake of the kind that peers have made, or that we nearly made.
#[cfg(any(test, feature = "testing"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bug {
    /// What is booked is the second best, where there is one.
    BookedOnRunnerUp,
    /// A rank that takes no new requests gets them.
    DrainIgnored,
    /// Of deadlines only the longest wait counts.
    DeadlineIgnored,
    /// Where ranks are is not looked up again after one came or went.
    PlacesKept,
    /// The sessions of a rank that went belong to the one that gets its place.
    SessionsKept,
    /// A request goes where it failed before.
    TriedForgotten,
    /// Nobody is told of a request that expired.
    ExpiryUntold,
}

#[cfg(any(test, feature = "testing"))]
impl Bug {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::BookedOnRunnerUp,
        Self::DrainIgnored,
        Self::DeadlineIgnored,
        Self::PlacesKept,
        Self::SessionsKept,
        Self::TriedForgotten,
        Self::ExpiryUntold,
    ];
}

pub(crate) use homing_domain::planted;
