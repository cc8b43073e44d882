//! What does an engine say of itself? Others may send it requests too: what it reports beyond our own bookings is theirs.
//!
//! **Invariant:** a report never lowers what we booked, and counts ever less until its time is over.

use homing_profile::{Millis, Time};

/// What an engine said of one of its ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// When.
    pub at: Time,
    /// Requests that it computes.
    pub running: u32,
    /// Requests that wait.
    pub waiting: u32,
    /// Blocks in use.
    pub used_blocks: u32,
}

/// The load of a rank that is not ours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Others {
    pub(crate) waiting: u32,
    pub(crate) running: u32,
    pub(crate) blocks: u32,
}

/// The last report, and what it meant when it came.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reported {
    pub(crate) last: Option<Report>,
    others: Others,
}

impl Reported {
    /// Takes a report unless it is older than the last one. `ours` is what we have booked.
    pub(crate) fn take(&mut self, report: Report, ours: Others) {
        if self.last.is_some_and(|last| last.at > report.at) {
            return;
        }
        self.last = Some(report);
        let requests = (report.waiting + report.running).saturating_sub(ours.waiting + ours.running);
        let waiting = report.waiting.saturating_sub(ours.waiting).min(requests);
        self.others = Others {
            waiting,
            running: requests - waiting,
            blocks: report.used_blocks.saturating_sub(ours.blocks),
        };
    }

    /// What of it still counts.
    pub(crate) fn others(&self, now: Time, fade: Millis) -> Others {
        let Some(last) = self.last else {
            return Others::default();
        };
        let fresh = (1.0 - now.since(last.at).0 / fade.0.max(1.0)).max(0.0);
        let part = |count: u32| (f64::from(count) * fresh).round() as u32;
        let (waiting, running) = (part(self.others.waiting), part(self.others.running));
        // Blocks of nobody are ours, counted a little differently: they will be free when ours are.
        let blocks = if waiting + running > 0 {
            part(self.others.blocks)
        } else {
            0
        };
        Others {
            waiting,
            running,
            blocks,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_we_booked_is_not_counted_twice_and_age_takes_the_rest() {
        let mut reported = Reported::default();
        let (waiting, running) = (2, 3);
        let blocks = 100;
        let report = Report {
            at: Time::from_millis(1_000.0),
            running: 5,
            waiting: 4,
            used_blocks: 150,
        };
        reported.take(
            report,
            Others {
                waiting,
                running,
                blocks,
            },
        );
        let at = |millis| reported.others(Time::from_millis(millis), Millis(10_000.0));
        assert_eq!(
            (at(1_000.0).waiting, at(1_000.0).running, at(1_000.0).blocks),
            (2, 2, 50)
        );
        assert_eq!((at(6_000.0).waiting, at(6_000.0).blocks), (1, 25));
        assert_eq!(at(11_000.0), Others::default());
    }

    #[test]
    fn blocks_of_nobody_are_not_those_of_others() {
        let mut reported = Reported::default();
        let report = Report {
            running: 1,
            used_blocks: 12,
            ..Report::default()
        };
        let ours = Others {
            running: 1,
            blocks: 10,
            ..Others::default()
        };
        reported.take(report, ours);
        assert_eq!(reported.others(Time::ZERO, Millis(1_000.0)), Others::default());
    }

    #[test]
    fn a_report_that_comes_late_is_not_taken() {
        let mut reported = Reported::default();
        let of = |at, running| Report {
            at: Time::from_millis(at),
            running,
            ..Report::default()
        };
        reported.take(of(10.0, 1), Others::default());
        reported.take(of(5.0, 9), Others::default());
        assert_eq!(reported.others(Time::from_millis(10.0), Millis(1_000.0)).running, 1);
    }
}
