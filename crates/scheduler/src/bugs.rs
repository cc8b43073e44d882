//! Would the simulator notice? Mistakes that can be switched on one by one; each must be found.

/// A mistake of the kind that peers have made, or that we nearly made.
#[cfg(any(test, feature = "testing"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bug {
    /// A request that expired is told of and stays in the queue.
    ExpiredStays,
    /// A request that was cancelled stays in the queue.
    CancelledStays,
    /// Only the bounds of all classes together are kept.
    ClassLimitIgnored,
    /// The least important goes first.
    PriorityInverted,
    /// What a tenant takes is charged to its class only.
    TenantNotCharged,
    /// All classes have the same share.
    QuantumIgnored,
}

#[cfg(any(test, feature = "testing"))]
impl Bug {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::ExpiredStays,
        Self::CancelledStays,
        Self::ClassLimitIgnored,
        Self::PriorityInverted,
        Self::TenantNotCharged,
        Self::QuantumIgnored,
    ];
}

pub(crate) use homing_domain::planted;
