//! Which worlds have workers that compute prompts for others?

use homing_disagg::{HandoffSettings, Judge, Require, Whether};
use homing_profile::{GigabytesPerSecond, Millis};

use super::Run;
use crate::Rng;
use crate::fleet::faults::{Among, NAMES, SPLIT_NAMES};
use crate::fleet::world::Care;
use crate::fleet::{FleetSetup, LinkSpec, SplitSetup};

/// Of a thousand worlds so many.
const SPLIT: u64 = 200;
/// Transfers over one link at once.
const MOST_TRANSFERS: usize = 1 << 16;

/// Perhaps makes a world one in which two workers may serve a request. Of chance of its own, so that other worlds are what they would
/// be if there were none.
pub(super) fn perhaps(run: &Run, care: Care, span: Millis, setup: &mut FleetSetup) {
    let mut rng = Rng::new(run.seed.rotate_left(17) ^ 0x0005_911b);
    if !rng.chance(SPLIT) || care == Care::Shares {
        return;
    }
    let rng = &mut rng;
    let workers = &mut setup.workers;
    workers.count = workers.count.max(rng.between(2, 5) as u32);
    let prefill = rng.between(1, u64::from(workers.count) - 1) as u32;
    // The shortest is over before a router hears of it.
    // One that ends at once is rare: where nothing is ever fetched, little can be seen.
    let lease = Millis(rng.pick([4.0, 300.0, 300.0, 2_000.0, 2_000.0, 20_000.0, 20_000.0]));
    setup.split = Some(SplitSetup {
        prefill,
        link: LinkSpec {
            latency: Millis(rng.pick([0.1, 1.0, 20.0])),
            bandwidth: GigabytesPerSecond(rng.pick([0.2, 1.0, 10.0])),
            most: MOST_TRANSFERS,
        },
        lease,
        handoff: HandoffSettings {
            require: if rng.chance(150) { Require::Yes } else { Require::No },
            turns: rng.between(1, 5) as u16,
            pairs: rng.between(1, 3) as u16,
            prefill_within: Millis(rng.pick([500.0, 3_000.0, 20_000.0])),
            begin_within: Millis(rng.pick([500.0, 3_000.0, 20_000.0])),
            drain_within: Millis(rng.pick([500.0, 3_000.0, 20_000.0])),
            lease_margin: Millis(rng.pick([10.0, 100.0])),
            lease,
            ..HandoffSettings::default()
        },
    });
    let choose = &mut setup.routers.config.apart.choose;
    choose.whether = rng.pick([
        Whether::Always,
        Whether::Always,
        Whether::Predicted {
            stall: 0.1,
            margin: 0.02,
        },
    ]);
    choose.judge = rng.pick([Judge::Together, Judge::OneAfterTheOther]);
    rng.pick(["time", "time", "blocks", "round-robin"])
        .clone_into(&mut setup.routers.policy);
    // It has no name on the command line: it happens where everything may.
    let everything = run.faults.len() == NAMES.len();
    let allowed = |kind: &&str| run.faults.contains(kind) || everything;
    let kinds: Vec<&str> = SPLIT_NAMES.into_iter().filter(allowed).collect();
    let among = Among {
        kinds,
        span,
        workers: setup.workers.count,
        routers: setup.routers.count,
    };
    let count = if among.kinds.is_empty() { 0 } else { rng.below(9) as u32 };
    setup.faults = among.draw(rng, count);
}
