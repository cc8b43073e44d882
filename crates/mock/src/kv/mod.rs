//! How does KV get from one mock to another? Two protocols over real sockets, with blocks that stay until they are fetched.
//!
//! - `plan`: what a request asks for; `errand`: what is to be done for it besides answering;
//! - `ledger`: which blocks stay for whom, and what was counted;
//! - `talk`: the side channel's messages; `serving`: the side that has KV; `fetching`: the one that wants it;
//! - `rooms`: where two requests of SGLang meet; `link`: how long KV takes;
//! - `tell`: what is said of it all.
//!
//! No KV is carried, but its size decides how long it takes, and a fingerprint of the prompt goes along: KV of another prompt is not
//! taken. `docs/mock.md` says what is as in the real engines and what is not.
//!
//! **Invariant:** what is staged is released once: when the other side has it, when its lease ends, or in a restart.

mod errand;
mod fetching;
mod ledger;
mod link;
mod plan;
mod rooms;
mod serving;
mod talk;
mod tell;

use std::net::SocketAddr;

use homing_config::MockKv;
use homing_domain::Tokens;
use homing_engine::Handover;
use homing_profile::{GigabytesPerSecond, Millis, Timing};

use crate::clock::Clock;
pub(crate) use errand::{Errand, after_staging, begin};
pub(crate) use fetching::{Fetched, run};
pub(crate) use ledger::{Counts as KvCounts, Job, Kept, Ledger};
use link::SharedLink;
pub(crate) use plan::{Plan, Terms};
use rooms::Rooms;
pub(crate) use serving::serve;
pub(crate) use tell::{page, vllm_info};

/// What a worker needs to hand KV over.
#[derive(Debug)]
pub(crate) struct Kv {
    pub(crate) settings: MockKv,
    /// Where others fetch it.
    pub(crate) at: SocketAddr,
    link: SharedLink,
    rooms: Rooms,
    bytes_per_token: f64,
    speedup: f64,
    /// Tells this worker from others.
    mark: u64,
}

impl Kv {
    pub(crate) fn new(settings: MockKv, at: SocketAddr, timing: &Timing, speedup: f64) -> Self {
        // At one gigabyte per second a millisecond is a million bytes.
        let Millis(per_token) = timing.transfer(Tokens(1), GigabytesPerSecond(1.0));
        Self {
            settings,
            at,
            link: SharedLink::new(settings.link_gbps * 1e9 / 8.0 * speedup),
            rooms: Rooms::default(),
            bytes_per_token: per_token * 1e6,
            speedup,
            mark: fastrand::u64(..),
        }
    }

    /// How long blocks stay, as the engine's clock runs.
    pub(crate) fn stage(&self) -> Handover {
        let lease = self.settings.lease.as_secs_f64() * 1e3 * self.speedup;
        Handover::Stage { lease: Millis(lease) }
    }

    /// When a lease that is renewed now ends.
    pub(crate) fn lease_ends(&self, clock: &Clock) -> homing_engine::Time {
        match self.stage() {
            Handover::Stage { lease } => clock.now() + lease,
            Handover::None | Handover::Take => clock.now(),
        }
    }

    pub(crate) fn mark(&self) -> u64 {
        self.mark
    }

    fn bytes(&self, tokens: u32) -> f64 {
        f64::from(tokens) * self.bytes_per_token
    }

    /// Requests that wait for the other side.
    pub(crate) fn waiting(&self) -> usize {
        self.rooms.waiting()
    }
}

/// The prompt whose KV it is, in 64 bits.
fn fingerprint(prompt: &[u32]) -> u64 {
    let step = |state: u64, token: &u32| (state ^ u64::from(*token)).wrapping_mul(0x0100_0000_01b3);
    prompt.iter().fold(0xcbf2_9ce4_8422_2325, step)
}
