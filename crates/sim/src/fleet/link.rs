//! When does what is sent over a link that others use too arrive?
//!
//! All that is being sent shares the bandwidth in equal parts (processor sharing, which is what many connections over one network
//! card come to); what was sent arrives a latency later. It is for KV that moves between workers
//! ([`super::split`]). Messages of a few bytes take what [`super::Links`] says.
//!
//! **Invariant:** no byte is sent twice or lost: whenever something is under way, all of the bandwidth is used.
//!
//! **Invariant:** of two transfers that begin together the smaller does not arrive later; of equals, the one that began first.
//!
//! Cost: the logarithm of what is under way for each beginning, end and change; nothing for each byte. It is done by a clock of its
//! own that says how much each transfer has got since the link came to be: it runs the slower the more there are, and a transfer is
//! sent when that clock shows what it showed at its beginning and its size.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use homing_profile::{GigabytesPerSecond, Millis, Time};
use thiserror::Error;

/// Bytes that a link of one gigabyte per second sends in a millisecond.
const BYTES_PER_MS: f64 = 1e6;
/// Moments are rounded up to nanoseconds, so what is due within one is due.
const ROUNDING: f64 = 1e-6;

/// What a link is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkSpec {
    /// From when something was sent until it arrives.
    pub latency: Millis,
    /// What all transfers share.
    pub bandwidth: GigabytesPerSecond,
    /// Transfers that may be under way.
    pub most: usize,
}

/// Why something cannot be sent.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
pub enum LinkError {
    /// A link cannot be so.
    #[error("a link has a latency of {latency} ms and {bandwidth} GB/s, expected numbers, the second of them above 0")]
    Impossible {
        /// Its latency.
        latency: f64,
        /// Its bandwidth.
        bandwidth: f64,
    },
    /// There is too much under way.
    #[error("{most} transfers are under way already")]
    Full {
        /// How many may be.
        most: usize,
    },
}

/// Names a transfer of a link. Never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransferNo(pub u64);

/// Where on the link's own clock a transfer is sent: bytes, which are never negative and so are ordered as their bits are.
type Mark = (u64, TransferNo);

/// A link in use.
#[derive(Clone, Debug)]
pub struct Link {
    spec: LinkSpec,
    /// Up to when everything was worked out, in milliseconds.
    now: f64,
    /// What each transfer got since the link came to be, in bytes.
    clock: f64,
    /// What is being sent, by when it is done.
    sending: BTreeSet<Mark>,
    marks: BTreeMap<TransferNo, u64>,
    /// What was sent and has not arrived, in the order of arrival.
    arriving: VecDeque<(Time, TransferNo)>,
    begun: u64,
}

impl Link {
    /// A link over which nothing was sent.
    pub fn new(spec: LinkSpec) -> Result<Self, LinkError> {
        Ok(Self {
            spec: checked(spec)?,
            now: 0.0,
            clock: 0.0,
            sending: BTreeSet::new(),
            marks: BTreeMap::new(),
            arriving: VecDeque::new(),
            begun: 0,
        })
    }

    /// So many bytes are to be sent from now on. Times must not go back.
    pub fn begin(&mut self, now: Time, bytes: u64) -> Result<TransferNo, LinkError> {
        self.advance(now);
        let most = self.spec.most;
        if self.under_way() >= most {
            return Err(LinkError::Full { most });
        }
        let number = TransferNo(self.begun);
        self.begun += 1;
        if self.sending.is_empty() {
            // Small numbers are exact.
            self.clock = 0.0;
        }
        let mark = (self.clock + bytes as f64).to_bits();
        self.sending.insert((mark, number));
        self.marks.insert(number, mark);
        self.advance(now);
        Ok(number)
    }

    /// Nobody wants it any more. Returns how many bytes were not sent; none if it is not being sent.
    pub fn cancel(&mut self, now: Time, number: TransferNo) -> Option<u64> {
        self.advance(now);
        let mark = self.marks.remove(&number)?;
        self.sending.remove(&(mark, number));
        Some((f64::from_bits(mark) - self.clock).max(0.0).round() as u64)
    }

    /// It has another bandwidth from now on, for what is under way too.
    pub fn change(&mut self, now: Time, bandwidth: GigabytesPerSecond) -> Result<(), LinkError> {
        self.advance(now);
        self.spec = checked(LinkSpec { bandwidth, ..self.spec })?;
        Ok(())
    }

    /// When the next arrives, if nothing else begins or ends until then.
    pub fn due(&self) -> Option<Time> {
        let sent = self.first_sent().map(|at| moment(at) + self.spec.latency);
        let arriving = self.arriving.front().map(|(at, _)| *at);
        arriving.into_iter().chain(sent).min()
    }

    /// The next of those that arrived until now, and when it did.
    pub fn arrived(&mut self, now: Time) -> Option<(Time, TransferNo)> {
        self.advance(now);
        let is_due = self.arriving.front().is_some_and(|(at, _)| *at <= now);
        is_due.then(|| self.arriving.pop_front()).flatten()
    }

    /// What is being sent or has not arrived.
    pub fn under_way(&self) -> usize {
        self.sending.len() + self.arriving.len()
    }

    /// How long so many bytes would take if nothing else were under way.
    pub fn alone(&self, bytes: u64) -> Millis {
        Millis(bytes as f64 / self.bytes_per_ms() + self.spec.latency.0)
    }

    fn bytes_per_ms(&self) -> f64 {
        self.spec.bandwidth.0 * BYTES_PER_MS
    }

    /// When the first of those that are being sent is.
    fn first_sent(&self) -> Option<f64> {
        let (mark, _) = self.sending.first()?;
        let bytes = (f64::from_bits(*mark) - self.clock).max(0.0);
        Some(self.now + bytes * self.sending.len() as f64 / self.bytes_per_ms())
    }

    /// Works out what was sent until now.
    fn advance(&mut self, now: Time) {
        let now = now.millis();
        while let Some(at) = self.first_sent().filter(|at| *at <= now + ROUNDING) {
            let Some((mark, number)) = self.sending.pop_first() else {
                break;
            };
            self.marks.remove(&number);
            (self.now, self.clock) = (at, f64::from_bits(mark));
            self.arriving.push_back((moment(at) + self.spec.latency, number));
        }
        if now > self.now {
            if !self.sending.is_empty() {
                self.clock += (now - self.now) * self.bytes_per_ms() / self.sending.len() as f64;
            }
            self.now = now;
        }
    }
}

/// A moment, rounded up.
fn moment(millis: f64) -> Time {
    Time((millis * 1e6 - 1e-3).ceil().max(0.0) as u64)
}

fn checked(spec: LinkSpec) -> Result<LinkSpec, LinkError> {
    let (latency, bandwidth) = (spec.latency.0, spec.bandwidth.0);
    if latency.is_finite() && latency >= 0.0 && bandwidth.is_finite() && bandwidth > 0.0 {
        Ok(spec)
    } else {
        Err(LinkError::Impossible { latency, bandwidth })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A gigabyte per second, or a megabyte per millisecond.
    fn link(latency: f64) -> Link {
        let spec = LinkSpec {
            latency: Millis(latency),
            bandwidth: GigabytesPerSecond(1.0),
            most: 64,
        };
        Link::new(spec).expect("it can be so")
    }

    fn at(millis: f64) -> Time {
        Time::from_millis(millis)
    }

    /// All arrivals, in milliseconds.
    fn run(link: &mut Link) -> Vec<(f64, u64)> {
        let mut all = Vec::new();
        while let Some(due) = link.due() {
            let (when, number) = link.arrived(due).expect("what is due arrives");
            all.push(((when.millis() * 1e3).round() / 1e3, number.0));
        }
        assert_eq!(link.under_way(), 0);
        all
    }

    const MB: u64 = 1_000_000;

    #[test]
    fn one_alone_takes_its_size_and_the_latency() {
        let mut link = link(2.0);
        assert_eq!(link.alone(10 * MB), Millis(12.0));
        link.begin(at(5.0), 10 * MB).unwrap();
        assert_eq!(link.due(), Some(at(17.0)));
        assert_eq!(link.arrived(at(16.9)), None);
        assert_eq!(run(&mut link), [(17.0, 0)]);
    }

    #[test]
    fn two_share_and_the_one_that_is_left_has_all() {
        // 0: 10 MB from 0 on; 1: 4 MB from 2 on. Until 2 ms the first sends 2 MB, then both send half: 1 is done at 10 ms, when 0 has 4
        // MB left, which take until 14 ms.
        let mut link = link(0.0);
        link.begin(at(0.0), 10 * MB).unwrap();
        link.begin(at(2.0), 4 * MB).unwrap();
        assert_eq!(run(&mut link), [(10.0, 1), (14.0, 0)]);
    }

    #[test]
    fn equal_ones_arrive_together_in_the_order_of_their_beginning() {
        let mut link = link(1.0);
        for _ in 0..3 {
            link.begin(at(0.0), 4 * MB).unwrap();
        }
        assert_eq!(run(&mut link), [(13.0, 0), (13.0, 1), (13.0, 2)]);
    }

    #[test]
    fn what_is_not_wanted_any_more_leaves_its_part_to_the_others() {
        // Both send half: after 4 ms each has sent 2 MB. Then the other has all: 6 MB more until 10 ms.
        let mut link = link(0.0);
        let gone = link.begin(at(0.0), 50 * MB).unwrap();
        link.begin(at(0.0), 8 * MB).unwrap();
        assert_eq!(link.cancel(at(4.0), gone), Some(48 * MB));
        assert_eq!(link.cancel(at(4.0), gone), None);
        assert_eq!(run(&mut link), [(10.0, 1)]);
    }

    #[test]
    fn a_link_that_becomes_slow_is_so_for_what_is_under_way() {
        // 3 MB in 3 ms, then 7 MB at a tenth of the speed.
        let mut link = link(0.5);
        link.begin(at(0.0), 10 * MB).unwrap();
        link.change(at(3.0), GigabytesPerSecond(0.1)).unwrap();
        assert_eq!(run(&mut link), [(73.5, 0)]);
    }

    #[test]
    fn what_was_sent_arrives_whatever_happens_to_the_link() {
        let mut link = link(10.0);
        let number = link.begin(at(0.0), MB).unwrap();
        link.change(at(2.0), GigabytesPerSecond(1e-6)).unwrap();
        assert_eq!(link.cancel(at(2.0), number), None, "it is on its way");
        assert_eq!(run(&mut link), [(11.0, 0)]);
    }

    #[test]
    fn nothing_at_all_arrives_after_the_latency_and_limits_are_kept() {
        let mut link = link(3.0);
        link.begin(at(1.0), 0).unwrap();
        assert_eq!(run(&mut link), [(4.0, 0)]);
        for _ in 0..64 {
            link.begin(at(5.0), MB).unwrap();
        }
        assert_eq!(link.begin(at(5.0), MB), Err(LinkError::Full { most: 64 }));
        for wrong in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let changed = link.change(at(5.0), GigabytesPerSecond(wrong));
            assert!(matches!(changed, Err(LinkError::Impossible { .. })), "{wrong}");
        }
    }

    /// The naive way: every transfer with what is left of it, from one beginning or end to the next.
    fn naive(transfers: &[(f64, u64)]) -> Vec<f64> {
        let mut left: Vec<f64> = transfers.iter().map(|(_, bytes)| *bytes as f64).collect();
        let mut ends = vec![None; transfers.len()];
        let mut now = 0.0;
        while ends.iter().any(Option::is_none) {
            let sending: Vec<usize> = (0..left.len())
                .filter(|at| ends[*at].is_none() && transfers[*at].0 <= now)
                .collect();
            let share = BYTES_PER_MS / sending.len().max(1) as f64;
            let next_end = sending
                .iter()
                .map(|at| now + left[*at] / share)
                .fold(f64::INFINITY, f64::min);
            let later = transfers
                .iter()
                .map(|(begins, _)| *begins)
                .filter(|begins| *begins > now);
            let next = later.fold(next_end, f64::min);
            for at in sending {
                left[at] -= (next - now) * share;
                if left[at] < 1e-3 {
                    ends[at] = Some(next);
                }
            }
            now = next;
        }
        ends.into_iter().flatten().collect()
    }

    proptest! {
        #[test]
        fn any_transfers_arrive_when_a_naive_model_says(
            mut transfers in prop::collection::vec((0..40_u32, 0..30_000_000_u64), 1..24),
        ) {
            transfers.sort_by_key(|(begins, _)| *begins);
            let transfers: Vec<(f64, u64)> = transfers.into_iter().map(|(begins, bytes)| (f64::from(begins), bytes)).collect();
            let mut link = link(0.0);
            let mut found = vec![0.0; transfers.len()];
            for (begins, bytes) in &transfers {
                link.begin(at(*begins), *bytes).unwrap();
                // What arrived meanwhile is asked for, or is kept.
                if bytes % 2 == 0 {
                    while let Some((when, number)) = link.arrived(at(*begins)) {
                        found[number.0 as usize] = when.millis();
                    }
                }
            }
            for (when, number) in run(&mut link) {
                found[number as usize] = when;
            }
            for (found, expected) in found.iter().zip(naive(&transfers)) {
                prop_assert!((found - expected).abs() < 2e-3, "{found} is not {expected}");
            }
        }
    }
}
