//! Which mistakes can be planted?

use std::fmt;

use crate::fleet::FleetSetup;

/// A mistake that is made on purpose, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bug {
    /// In the feed.
    Feed(homing_feed::Bug),
    /// In what is booked.
    Load(homing_load::Bug),
    /// In the queue.
    Queue(homing_scheduler::Bug),
    /// In the router.
    Router(homing_router::Bug),
    /// In the way of a request that two workers serve.
    Handoff(homing_disagg::Bug),
}

/// Mistakes of the feed that a wrong decision could come from here. The others need agents, clears of whole workers, answers of
/// others or lives that end at one certain number: the world of feeds has them, and finds all.
const FEED: [homing_feed::Bug; 2] = [homing_feed::Bug::StaleApplied, homing_feed::Bug::RepeatCountedTwice];

/// Mistakes of a handoff that show in a world. The others need answers of a router that come late, one that chooses what it may not, or
/// more workers than fail one after the other: the explorer of the handoff has them, and finds all.
const HANDOFF: [homing_disagg::Bug; 6] = [
    homing_disagg::Bug::DecodeSeatKept,
    homing_disagg::Bug::LeavingForgetsKv,
    homing_disagg::Bug::KvReadTwice,
    homing_disagg::Bug::LeaseIgnored,
    homing_disagg::Bug::MeetingUnlimited,
    homing_disagg::Bug::OtherLegForgotten,
];

impl Bug {
    /// All of them.
    pub fn all() -> Vec<Self> {
        let feed = FEED.into_iter().map(Self::Feed);
        let load = homing_load::Bug::ALL.into_iter().map(Self::Load);
        let queue = homing_scheduler::Bug::ALL.into_iter().map(Self::Queue);
        let router = homing_router::Bug::ALL.into_iter().map(Self::Router);
        let handoff = HANDOFF.into_iter().map(Self::Handoff);
        feed.chain(load).chain(queue).chain(router).chain(handoff).collect()
    }

    pub(super) fn plant(self, setup: &mut FleetSetup) {
        match self {
            Self::Feed(bug) => setup.routers.feed.bug = Some(bug),
            Self::Load(bug) => setup.routers.config.load.bug = Some(bug),
            Self::Queue(bug) => setup.routers.config.queue_bug = Some(bug),
            Self::Router(bug) => setup.routers.config.bug = Some(bug),
            Self::Handoff(bug) => {
                if let Some(split) = &mut setup.split {
                    split.handoff.bug = Some(bug);
                }
            }
        }
    }
}

impl fmt::Display for Bug {
    /// As on the command line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Feed(bug) => write!(f, "feed-{}", crate::kebab(bug)),
            Self::Load(bug) => write!(f, "load-{}", crate::kebab(bug)),
            Self::Queue(bug) => write!(f, "queue-{}", crate::kebab(bug)),
            Self::Router(bug) => write!(f, "router-{}", crate::kebab(bug)),
            Self::Handoff(bug) => write!(f, "handoff-{}", crate::kebab(bug)),
        }
    }
}

/// The planted mistake that is called so.
pub fn bug_named(name: &str) -> Option<Bug> {
    Bug::all().into_iter().find(|bug| bug.to_string() == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bugs_are_known_by_their_names() {
        for bug in Bug::all() {
            assert_eq!(bug_named(&bug.to_string()), Some(bug));
        }
        let fence = Bug::Load(homing_load::Bug::FenceIgnored);
        assert_eq!(fence.to_string(), "load-fence-ignored");
        assert_eq!(bug_named("none"), None);
    }
}
