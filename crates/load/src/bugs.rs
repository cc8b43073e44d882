//! Would the simulator notice? Mistakes that can be switched on one by one; each must be found.

/// A mistake of the kind that peers have made, or that we nearly made.
#[cfg(any(test, feature = "testing"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bug {
    /// The booking of a request that failed is not released.
    FailureKeepsBooking,
    /// A word about an earlier attempt is taken for one about what is booked in its place now.
    FenceIgnored,
    /// The prompt of a request that was cancelled before its first token stays counted.
    CancelKeepsTokens,
    /// Leases end after an eighth of their time.
    LeaseShortened,
}

#[cfg(any(test, feature = "testing"))]
impl Bug {
    /// All of them.
    pub const ALL: [Self; 4] = [
        Self::FailureKeepsBooking,
        Self::FenceIgnored,
        Self::CancelKeepsTokens,
        Self::LeaseShortened,
    ];
}

pub(crate) use homing_domain::planted;
