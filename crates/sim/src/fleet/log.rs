//! What happened last?

use std::collections::VecDeque;

use homing_profile::Time;

/// Lines that are kept.
const LINES: usize = 400;

/// The last things that happened, if anybody wants to know.
#[derive(Debug, Default)]
pub(crate) struct Log {
    lines: Option<VecDeque<String>>,
}

impl Log {
    pub(crate) fn kept() -> Self {
        Self {
            lines: Some(VecDeque::new()),
        }
    }

    /// Something happened; it is put into words only if it is kept.
    pub(crate) fn say(&mut self, now: Time, what: impl FnOnce() -> String) {
        if let Some(lines) = &mut self.lines {
            if lines.len() == LINES {
                lines.pop_front();
            }
            lines.push_back(format!("{now}  {}", what()));
        }
    }

    pub(crate) fn take(&mut self) -> Vec<String> {
        self.lines.take().into_iter().flatten().collect()
    }
}
