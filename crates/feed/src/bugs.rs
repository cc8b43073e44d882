//! Would the simulator notice? Mistakes that can be switched on one by one; each must be found.

/// A mistake of the kind that peers have made, or that we nearly made.
#[cfg(any(test, feature = "testing"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bug {
    /// An answer to a question that was given up is taken for one to the present question.
    NoEpochCheck,
    /// A batch that is older than the cursor is applied.
    StaleApplied,
    /// The highest number heard is forgotten when its batch is dropped from the buffer.
    DroppedTailForgotten,
    /// A clear of a whole worker empties only the rank on whose stream it came.
    ClearOnOneRankOnly,
    /// An answer that names another rank is believed.
    ForeignAnswerAccepted,
    /// A draft is shown before what was heard meanwhile is applied to it.
    SwapBeforeDrain,
    /// A batch with a known number and another digest is taken for a repeat.
    RestartTakenForGap,
    /// A batch that was applied is applied again when it comes again.
    RepeatCountedTwice,
}

#[cfg(any(test, feature = "testing"))]
impl Bug {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::NoEpochCheck,
        Self::StaleApplied,
        Self::DroppedTailForgotten,
        Self::ClearOnOneRankOnly,
        Self::ForeignAnswerAccepted,
        Self::SwapBeforeDrain,
        Self::RestartTakenForGap,
        Self::RepeatCountedTwice,
    ];
}

pub(crate) use homing_domain::planted;
