//! Which workers compute prompts for others?

use anyhow::{bail, ensure};
use homing_disagg::{ChooseSettings, HandoffSettings, Judge, Whether};
use homing_profile::{GigabytesPerSecond, Millis};
use homing_sim::fleet::{FleetSetup, LinkSpec, SplitSetup};

use super::args::FleetArgs;
use super::written;

/// From when KV was sent until it is there.
const LATENCY: Millis = Millis(1.0);
/// The most that stalls and margins can weigh.
const MOST_WEIGHT: f64 = 100.0;
/// Transfers over the link of one worker at once.
const MOST_TRANSFERS: usize = 1 << 16;

/// All workers.
pub fn workers(args: &FleetArgs) -> u32 {
    match (args.prefill, args.decode) {
        (Some(prefill), Some(decode)) => prefill + decode,
        _ => args.workers,
    }
}

/// How the fleet is split, if it is.
pub fn setup(args: &FleetArgs) -> anyhow::Result<Option<SplitSetup>> {
    let Some(prefill) = args.prefill else { return Ok(None) };
    ensure!(
        prefill < workers(args),
        "--prefill is {prefill} of {} workers: nobody is left to answer",
        workers(args)
    );
    Ok(Some(of(args, prefill)?))
}

/// What cannot happen in a split fleet is not asked for.
pub fn check(setup: &FleetSetup) -> anyhow::Result<()> {
    let odd = |fault: &&homing_sim::fleet::Fault| matches!(fault.kind.name(), "router-restart" | "leave");
    if let Some(fault) = setup.faults.iter().find(odd).filter(|_| setup.split.is_some()) {
        bail!(
            "--faults has {}, which is not simulated together with --prefill",
            fault.kind.name()
        );
    }
    Ok(())
}

/// A fleet of which so many compute prompts.
pub fn of(args: &FleetArgs, prefill: u32) -> anyhow::Result<SplitSetup> {
    ensure!(
        args.kv_link > 0.0 && args.kv_link.is_finite(),
        "--kv-link is {}, expected a number above 0",
        args.kv_link
    );
    let lease = written::time("--kv-lease", &args.kv_lease)?;
    Ok(SplitSetup {
        prefill,
        link: LinkSpec {
            latency: LATENCY,
            bandwidth: GigabytesPerSecond(args.kv_link),
            most: MOST_TRANSFERS,
        },
        lease,
        handoff: HandoffSettings {
            lease,
            ..HandoffSettings::default()
        },
    })
}

/// Whether two serve a request, and which two.
pub fn choose(args: &FleetArgs, choose: &mut ChooseSettings) -> anyhow::Result<()> {
    for (flag, value) in [("--stall", args.stall), ("--margin", args.margin)] {
        ensure!(
            (0.0..=MOST_WEIGHT).contains(&value),
            "{flag} is {value}, expected a number from 0 to {MOST_WEIGHT}"
        );
    }
    choose.whether = match args.apart.as_str() {
        "predicted" => Whether::Predicted {
            stall: args.stall,
            margin: args.margin,
        },
        "always" => Whether::Always,
        "rules" => Whether::RULES,
        other => bail!("--apart is {other:?}, expected predicted, always or rules"),
    };
    choose.judge = match args.pairs.as_str() {
        "together" => Judge::Together,
        "one-after-the-other" => Judge::OneAfterTheOther,
        other => bail!("--pairs is {other:?}, expected together or one-after-the-other"),
    };
    Ok(())
}
