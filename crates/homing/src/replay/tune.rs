//! `homing tune`: which settings and how many workers keep a promise? The search itself is in `homing_sim::study::tune`.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use anyhow::ensure;
use homing_scheduler::policy;
use homing_sim::study::tune::{Search, Settings, Space, Try, Worth};
use serde_json::{Value, json};

use super::args::TuneArgs;
use super::json::good_share;
use super::plan::{self, Plan};
use super::run::{self, Progress, Shown};
use super::{split, table, written};
use crate::show::Style;

/// What is printed.
pub fn run(args: &TuneArgs, style: Style) -> anyhow::Result<String> {
    ensure!(
        args.promise > 0.0 && args.promise <= 1.0,
        "--promise is {}, expected a share above 0 and up to 1",
        args.promise
    );
    policy::by_spec(&args.policy)?;
    let budget = Duration::from_secs_f64(written::time("--budget", &args.budget)?.0 / 1e3);
    let began = Instant::now();
    let plan = Plan::new(&args.fleet, None)?;
    let mut search = Search::new(Space {
        seed: args.fleet.seed,
        most_workers: split::workers(&args.fleet),
        prefill: args
            .fleet
            .prefill
            .map(|prefill| f64::from(prefill) / f64::from(split::workers(&args.fleet))),
        promise: args.promise,
        policy: args.policy.clone(),
        others: plan::policies(&["all".to_owned()])?,
        start_within: plan.setup.routers.config.start_within,
    });
    let most = args.tries.unwrap_or(u32::MAX);
    let progress = Progress::new(plan.requests() * u64::from(args.tries.unwrap_or(40)), "tune");
    let searched = std::thread::scope(|scope| {
        scope.spawn(|| progress.show());
        let searched = (0..most).try_for_each(|number| {
            // The first try is made whatever it takes, and with a number of tries time does not matter.
            let over = args.tries.is_none() && began.elapsed() >= budget;
            let next = if over && number > 0 { None } else { search.next_try() };
            let Some(settings) = next else { return Err(None) };
            let worth = tried(&plan, args, &settings, &progress).map_err(Some)?;
            search.tell(settings, worth);
            Ok(())
        });
        progress.finish();
        searched
    });
    if let Err(Some(error)) = searched {
        return Err(error);
    }
    Ok(if args.fleet.json {
        format!("{}\n", object(args, &search, began.elapsed()))
    } else {
        story(args, &plan, &search, style)
    })
}

fn tried(plan: &Plan, args: &TuneArgs, settings: &Settings, progress: &Progress) -> anyhow::Result<Worth> {
    let mut setup = plan.fleet(&settings.policy, plan.setup.seed);
    setup.workers.count = settings.workers;
    setup.split = match settings.prefill {
        0 => None,
        prefill => Some(split::of(&args.fleet, prefill)?),
    };
    setup.routers.config.start_within = settings.start_within;
    // Faults of workers that a smaller fleet does not have do not happen.
    setup
        .faults
        .retain(|fault| written::ends(fault.kind).0 < settings.workers);
    let tally = run::one(plan, &setup, Shown::NOTHING, progress)?.tally;
    Ok(Worth {
        good: good_share(&tally),
        goodput: tally.per_second(tally.counts.good),
        ttft_p50: tally.ttft.at(0.5),
        ttft_p99: tally.ttft.at(0.99),
        itl_p99: tally.itl.at(0.99),
    })
}

fn object(args: &TuneArgs, search: &Search, elapsed: Duration) -> Value {
    let list = |tries: &[&Try]| -> Vec<Value> { tries.iter().map(|of| written_try(search, of)).collect() };
    json!({
        "command": "tune",
        "promise": args.promise,
        "seed": args.fleet.seed,
        "tries": search.tried().len(),
        "best": search.best().map(|of| written_try(search, of)),
        "frontier": list(&search.frontier()),
        "all": list(&search.tried().iter().collect::<Vec<_>>()),
        "elapsed_s": elapsed.as_secs_f64(),
        "peak_rss_mib": super::peak_rss_mib(),
    })
}

fn written_try(search: &Search, of: &Try) -> Value {
    json!({
        "workers": of.settings.workers,
        "prefill": of.settings.prefill,
        "policy": of.settings.policy,
        "start_within_ms": of.settings.start_within.0,
        "keeps_promise": search.keeps(of),
        "good_share": of.worth.good,
        "goodput_rps": of.worth.goodput,
        "ttft_ms_p50": of.worth.ttft_p50,
        "ttft_ms_p99": of.worth.ttft_p99,
        "itl_ms_p99": of.worth.itl_p99,
    })
}

fn story(args: &TuneArgs, plan: &Plan, search: &Search, style: Style) -> String {
    let mut text = table::head(plan, style);
    let count = search.tried().len();
    let (promise, slo) = (args.promise * 100.0, &args.fleet.slo);
    let _ = writeln!(
        text,
        "{}  {promise:.0} % of requests within {slo}\n",
        style.bold("promise")
    );
    let title = format!(
        "{:>7}  {:<44} {:>12} {:>7} {:>10} {:>10} {:>10} {:>9}",
        "workers", "policy", "start within", "good", "goodput/s", "TTFT p50", "TTFT p99", "ITL p99"
    );
    let _ = writeln!(
        text,
        "frontier of {count} tries: no other has fewer workers and a lower TTFT p99\n{}",
        style.bold(&title)
    );
    for of in search.frontier() {
        let _ = writeln!(text, "{}", line(search, of));
    }
    if let Some(best) = search.best() {
        let word = if search.keeps(best) {
            "best: the fewest workers that keep the promise"
        } else {
            "none keeps the promise; the nearest"
        };
        let _ = writeln!(text, "\n{word}\n{}\n{}", style.bold(&title), line(search, best));
    }
    let _ = writeln!(text, "\nthe same again: --seed {} --tries {count}", args.fleet.seed);
    text
}

fn line(search: &Search, of: &Try) -> String {
    let (settings, worth) = (&of.settings, &of.worth);
    format!(
        "{:>7}  {:<44} {:>9} ms {:>6.1}% {:>10.2} {:>7.0} ms {:>7.0} ms {:>6.1} ms{}",
        match settings.prefill {
            0 => settings.workers.to_string(),
            prefill => format!("{prefill}+{}", settings.workers - prefill),
        },
        settings.policy,
        settings.start_within.0,
        worth.good * 100.0,
        worth.goodput,
        worth.ttft_p50,
        worth.ttft_p99,
        worth.itl_p99,
        if search.keeps(of) { "" } else { "  (breaks it)" },
    )
}
