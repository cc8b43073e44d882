//! Would the explorer notice? Mistakes that can be switched on one by one; each must be found.

/// A mistake of the kind that peers have made, or that we nearly made.
#[cfg(any(test, feature = "testing"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bug {
    /// The decode place is kept when prefill fails.
    DecodeSeatKept,
    /// The client's leaving ends prefill at once, and its KV is forgotten.
    LeavingForgetsKv,
    /// A decode leg that may have read the KV is followed by another that reads it again.
    KvReadTwice,
    /// The lease is not looked at before KV is handed over.
    LeaseIgnored,
    /// Nothing limits how long the two legs of a meeting take.
    MeetingUnlimited,
    /// A worker that serves the whole request is taken although two are required.
    RequireIgnored,
    /// A place that was booked after the question was withdrawn is not given back.
    LateChoiceKept,
    /// A late word about an earlier leg is taken for one about the present leg.
    LateWordTaken,
    /// The other leg goes on when one leg of a meeting has failed.
    OtherLegForgotten,
    /// Tries are not counted.
    TriesUnbounded,
    /// KV that does not come is laid to the decode worker alone.
    SilenceOfOne,
}

#[cfg(any(test, feature = "testing"))]
impl Bug {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::DecodeSeatKept,
        Self::LeavingForgetsKv,
        Self::KvReadTwice,
        Self::LeaseIgnored,
        Self::MeetingUnlimited,
        Self::RequireIgnored,
        Self::LateChoiceKept,
        Self::LateWordTaken,
        Self::OtherLegForgotten,
        Self::TriesUnbounded,
        Self::SilenceOfOne,
    ];
}

pub(crate) use homing_domain::planted;
