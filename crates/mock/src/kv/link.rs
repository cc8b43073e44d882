//! How long does KV take over a link that others use, too?
//!
//! All that is under way shares the rate in equal parts.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep};

#[derive(Debug)]
pub(super) struct SharedLink {
    bytes_per_second: f64,
    /// How many share it.
    sharing: watch::Sender<u32>,
}

impl SharedLink {
    pub(super) fn new(bytes_per_second: f64) -> Self {
        Self {
            bytes_per_second,
            sharing: watch::Sender::new(0),
        }
    }

    /// Waits until so many bytes are through.
    pub(super) async fn carry(&self, bytes: f64) {
        let mut left = bytes;
        let mut shared = self.sharing.subscribe();
        let _one = One::of(&self.sharing);
        loop {
            let sharing = (*shared.borrow_and_update()).max(1);
            let rate = self.bytes_per_second / f64::from(sharing);
            let since = Instant::now();
            let time = Duration::try_from_secs_f64((left / rate).max(0.0)).unwrap_or(Duration::MAX);
            tokio::select! {
                () = sleep(time) => return,
                // The sender is ours and does not go away.
                _ = shared.changed() => left -= since.elapsed().as_secs_f64() * rate,
            }
        }
    }
}

/// One of those who share a link, for as long as it lives.
struct One<'a>(&'a watch::Sender<u32>);

impl<'a> One<'a> {
    fn of(sharing: &'a watch::Sender<u32>) -> Self {
        sharing.send_modify(|sharing| *sharing += 1);
        Self(sharing)
    }
}

impl Drop for One<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|sharing| *sharing -= 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn two_take_twice_as_long_as_one() {
        let link = SharedLink::new(1_000.0);
        let began = Instant::now();
        link.carry(1_000.0).await;
        assert_eq!(began.elapsed().as_millis(), 1_000);
        let began = Instant::now();
        let both = async {
            tokio::join!(link.carry(1_000.0), async {
                link.carry(500.0).await;
                began.elapsed()
            })
        };
        let ((), first) = both.await;
        // Half of the rate each until the smaller is through, then all of it.
        assert_eq!((first.as_millis(), began.elapsed().as_millis()), (1_000, 1_500));
    }
}
