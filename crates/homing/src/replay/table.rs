//! The figures of a replay as tables for people. `docs/replay.md` explains every column.

use std::fmt::Write as _;

use homing_sim::study::Quantiles;

use super::Told;
use super::json::mean;
use super::plan::Plan;
use super::run::PolicyRuns;
use super::stats::interval;
use crate::show::{Style, commas, percent};

/// All that is printed.
pub fn tell(plan: &Plan, told: &Told, style: Style) -> String {
    let mut text = head(plan, style);
    latency(&mut text, told, style);
    figures(&mut text, plan, told, style);
    seeds(&mut text, told, style);
    foot(&mut text, plan, told);
    text
}

/// What was served, and by whom.
pub fn head(plan: &Plan, style: Style) -> String {
    let (setup, summary) = (&plan.setup, &plan.survey.summary);
    let engine = &setup.workers.engine;
    let mut text = String::new();
    let believed = if plan.profiles.0 == plan.profiles.1 {
        String::new()
    } else {
        format!(" (believed to be {})", plan.profiles.1)
    };
    let _ = writeln!(
        text,
        "{}  {} workers of {}{believed}, {} blocks of {} tokens each; {} router{}, events {} ms late; seed {}",
        style.bold("fleet  "),
        setup.workers.count,
        plan.profiles.0,
        commas(engine.blocks.0.into()),
        engine.block_size.get(),
        setup.routers.count,
        if setup.routers.count == 1 { "" } else { "s" },
        setup.links.event_lag.0,
        setup.seed,
    );
    if let Some(split) = &setup.split {
        let who = match split.prefill {
            0 => "all compute prompts for others and answer".to_owned(),
            prefill => format!("{prefill} compute prompts, {} answer", setup.workers.count - prefill),
        };
        let rate = split.link.bandwidth.0;
        let _ = writeln!(text, "{}  {who}; KV leaves at {rate} GB/s", style.bold("split  "));
    }
    let _ = writeln!(
        text,
        "{}  {}: {} requests in {:.0} s, {} prompt and {} output tokens on average; keeps {:.2} workers busy",
        style.bold("trace  "),
        plan.source.name(),
        commas(summary.requests),
        summary.span.millis() / 1e3,
        commas(summary.prompt_tokens / summary.requests.max(1)),
        commas(summary.output_tokens / summary.requests.max(1)),
        plan.survey.workers_filled(),
    );
    let thinned = if plan.mix.last_kept < 1.0 {
        format!(", the last thinned to {}", percent(plan.mix.last_kept))
    } else {
        String::new()
    };
    let asked = plan
        .asked
        .map_or_else(String::new, |asked| format!(" of {asked} asked for"));
    let since = plan.counted.since.millis() / 1e3;
    let uncounted = match (plan.counted.since.0 > 0, plan.counted.until) {
        (false, None) => String::new(),
        (true, None) => format!("; the first {since:.0} s are not counted"),
        (_, Some(until)) => format!(
            "; what comes from {since:.0} s to {:.0} s is counted",
            until.millis() / 1e3
        ),
    };
    let _ = writeln!(
        text,
        "{}  {} cop{}{thinned}: {} requests, load {:.3}{asked}{uncounted}",
        style.bold("traffic"),
        plan.mix.copies,
        if plan.mix.copies == 1 { "y" } else { "ies" },
        commas(plan.requests()),
        plan.mix.load,
    );
    for fault in &setup.faults {
        let (at, lasts) = (fault.at.millis() / 1e3, fault.lasts.0 / 1e3);
        let _ = writeln!(
            text,
            "{}  {:?} at {at} s for {lasts} s",
            style.bold("fault  "),
            fault.kind
        );
    }
    text
}

fn width(told: &Told) -> usize {
    told.policies
        .iter()
        .map(|runs| runs.policy.len())
        .max()
        .unwrap_or(0)
        .max("policy".len())
}

fn latency(text: &mut String, told: &Told, style: Style) {
    let name = width(told);
    let four = |title: &str| format!("{:^34}", format!("{title}, ms"));
    let _ = writeln!(
        text,
        "\n{:name$}  {} {} {}",
        "",
        four("time to first token"),
        four("between tokens"),
        four("end to end")
    );
    let columns = ["mean", "p50", "p90", "p99"]
        .map(|column| format!("{column:>8}"))
        .join(" ");
    let _ = writeln!(
        text,
        "{}",
        style.bold(&format!("{:name$}  {columns} {columns} {columns}", "policy"))
    );
    for runs in &told.policies {
        let tally = &runs.tally;
        let cells = [cells(&tally.ttft), cells(&tally.itl), cells(&tally.e2e)].join(" ");
        let _ = writeln!(text, "{:name$}  {cells}", runs.policy);
    }
}

fn cells(of: &Quantiles) -> String {
    [of.mean(), of.at(0.5), of.at(0.9), of.at(0.99)]
        .map(|value| format!("{:>8}", number(value)))
        .join(" ")
}

/// Three digits or so.
fn number(value: f64) -> String {
    match value {
        value if value >= 100.0 => commas(value.round() as u64),
        value => format!("{value:.1}"),
    }
}

fn figures(text: &mut String, plan: &Plan, told: &Told, style: Style) {
    let name = width(told);
    let titles = [
        ("req/s", 7),
        ("tok/s", 8),
        ("goodput/s", 10),
        ("good", 7),
        ("cached", 7),
        ("predicted", 10),
        ("queued", 8),
        ("p99", 8),
        ("imbal.", 8),
        ("work", 6),
        ("preempt", 8),
        ("failed", 7),
        ("error", 6),
        ("over", 6),
        ("/bound", 7),
    ];
    let columns = titles.map(|(title, width)| format!("{title:>width$}")).concat();
    let _ = writeln!(text, "\n{}", style.bold(&format!("{:name$}{columns}", "policy")));
    for runs in &told.policies {
        let row = row(plan, runs);
        let _ = write!(text, "{:name$}", runs.policy);
        for (cell, (_, width)) in row.iter().zip(titles) {
            let _ = write!(text, "{cell:>width$}");
        }
        text.push('\n');
    }
}

fn row(plan: &Plan, runs: &PolicyRuns) -> [String; 15] {
    let (tally, counts) = (&runs.tally, &runs.tally.counts);
    let share = |share: f64| format!("{:.1}%", share * 100.0);
    let bound = plan.yardstick.mean_ttft().map_or(0.0, |mean| mean.0);
    [
        format!(
            "{:.2}",
            mean(runs, |run| run.tally.per_second(run.tally.counts.completed))
        ),
        format!(
            "{:.0}",
            mean(runs, |run| run.tally.per_second(run.tally.counts.output_tokens))
        ),
        format!("{:.2}", mean(runs, |run| run.tally.per_second(run.tally.counts.good))),
        share(super::json::good_share(tally)),
        share(tally.cached_share()),
        share(tally.predicted_share()),
        number(tally.queued.mean()),
        number(tally.queued.at(0.99)),
        format!("{:.2}", mean(runs, |run| run.tally.imbalance())),
        format!("{:.2}", mean(runs, |run| run.tally.work_imbalance())),
        commas(runs.runs.iter().map(|run| run.outcome.preemptions).sum()),
        commas(counts.failed + counts.given_up),
        format!("{:.0}%", tally.error.at(0.5) * 100.0),
        share(tally.overpromised_share()),
        if bound > 0.0 {
            format!("{:.2}", tally.ttft.mean() / bound)
        } else {
            "-".to_owned()
        },
    ]
}

fn seeds(text: &mut String, told: &Told, style: Style) {
    let count = told.policies.first().map_or(0, |runs| runs.runs.len());
    if count < 2 {
        return;
    }
    let name = width(told);
    let title = format!(
        "{:name$}  {:>22}  {:>22}  {:>22}",
        "policy", "TTFT p50, ms", "TTFT p99, ms", "goodput/s"
    );
    let _ = writeln!(
        text,
        "\nmean and 95% interval over {count} seeds\n{}",
        style.bold(&title)
    );
    for runs in told.policies.iter().filter(|runs| runs.runs.len() > 1) {
        let cell = |[low, high]: [f64; 2]| {
            let (mean, half) = (f64::midpoint(low, high), (high - low) / 2.0);
            format!("{mean:>12.2} +- {half:>6.2}")
        };
        let cells = [
            interval(runs, |tally| tally.ttft.at(0.5)),
            interval(runs, |tally| tally.ttft.at(0.99)),
            interval(runs, |tally| tally.per_second(tally.counts.good)),
        ]
        .map(cell);
        let _ = writeln!(
            text,
            "{:name$}  {}",
            runs.policy,
            cells.map(|cell| format!("{cell:>22}")).join("  ")
        );
    }
}

fn foot(text: &mut String, plan: &Plan, told: &Told) {
    let ladder = plan.yardstick.ladder;
    let _ = writeln!(
        text,
        "\ncached at most  infinite cache {}, one cache as large as all that knows the future {} (working set {} blocks)",
        percent(ladder.infinite_cache),
        percent(ladder.pooled_capacity),
        commas(plan.working_set),
    );
    if let Some(alone) = plan.yardstick.alone {
        let shortest = plan.yardstick.shortest_first;
        let shortest = shortest.map_or_else(String::new, |mean| {
            format!("{} ms as one server, shortest first; ", number(mean.0))
        });
        let _ = writeln!(
            text,
            "mean TTFT at least  {shortest}{} ms each alone on the fastest worker",
            number(alone.0)
        );
    }
    if let Some(found) = &told.best_found {
        let _ = writeln!(
            text,
            "best-found  the best of {} tries of a local search that began with {}: no bound",
            found.tries, found.begun_with
        );
    }
    let rss = told
        .peak_rss_mib
        .map_or_else(String::new, |mib| format!(", {mib:.0} MiB"));
    let _ = writeln!(text, "{:.1} s{rss}", told.elapsed.as_secs_f64());
}
