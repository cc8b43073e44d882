//! When a file that changed may be used: once its size, its time of change and its bytes have stood still for [`SETTLE_TIME`].
//!
//! Editors and scripts truncate a file before they write it. What stands there in between is not what anyone wants.
//!
//! Time is an argument.

use std::time::{Duration, Instant, SystemTime};

use crate::secret::digest_of;

/// How long a file must stand still before it is used.
pub const SETTLE_TIME: Duration = Duration::from_millis(500);

/// What a file was when it was read. Its text is not kept: it could be a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileVersion {
    size_bytes: u64,
    modified: Option<SystemTime>,
    digest: [u8; 32],
}

/// How long a file has stood still.
#[derive(Clone, Copy, Debug, Default)]
pub struct Settling {
    seen: Option<(FileVersion, Instant)>,
}

impl FileVersion {
    pub(crate) fn new(size_bytes: u64, modified: Option<SystemTime>, text: &str) -> Self {
        Self {
            size_bytes,
            modified,
            digest: digest_of(text.as_bytes()),
        }
    }
}

impl Settling {
    /// Takes what the file is now; returns for how long it must still stand still: zero if it may be used.
    pub fn observe(&mut self, now: Instant, version: FileVersion) -> Duration {
        match self.seen {
            Some((seen, since)) if seen == version => SETTLE_TIME.saturating_sub(now.saturating_duration_since(since)),
            _ => {
                self.seen = Some((version, now));
                SETTLE_TIME
            }
        }
    }

    /// The file could not be read: whatever stands there next is new.
    pub fn reset(&mut self) {
        self.seen = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_used_when_it_has_stood_still() {
        let began = Instant::now();
        let at = |millis| began + Duration::from_millis(millis);
        let version = |text| FileVersion::new(1, None, text);
        let mut settling = Settling::default();
        assert_eq!(settling.observe(at(0), version("a")), SETTLE_TIME);
        assert_eq!(settling.observe(at(400), version("a")), Duration::from_millis(100));
        assert_eq!(settling.observe(at(450), version("b")), SETTLE_TIME);
        assert_eq!(settling.observe(at(900), version("a")), SETTLE_TIME);
        assert_eq!(settling.observe(at(1400), version("a")), Duration::ZERO);
        assert_eq!(settling.observe(at(9000), version("a")), Duration::ZERO);
        settling.reset();
        assert_eq!(settling.observe(at(9001), version("a")), SETTLE_TIME);
        let touched = FileVersion::new(1, Some(SystemTime::UNIX_EPOCH), "a");
        assert_eq!(settling.observe(at(9002), touched), SETTLE_TIME);
    }
}
