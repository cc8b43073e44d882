//! What is said before, between and after, for somebody who sees it for the first time?

use std::fmt::Write as _;

use homing_config::Config;

use super::phase::Phase;
use super::times::Times;
use super::traffic::GROUPS;
use super::{End, Happened, Outcome, Report};
use crate::show::{Style, commas, millis, percent, wrapped};

/// Differences smaller than this are not worth a word.
const WORTH: f64 = 1.05;
/// How long lines of sentences are.
const WIDTH: usize = 96;
const NAMES: usize = 34;
const COLUMN: usize = 13;

/// Who is there, and what they do.
pub fn opening(config: &Config, style: Style) -> String {
    let demo = &config.demo;
    let cache = u64::from(demo.cache.0) * u64::from(config.block_size.get());
    let pace = if (config.mock.speedup - 1.0).abs() < f64::EPSILON {
        String::new()
    } else {
        format!(", {} times as fast", config.mock.speedup)
    };
    let told = [
        (
            "engines",
            format!(
                "pretended: no GPU, but real HTTP and real events about their caches. A step takes as long as {}{pace}. Each \
                 caches {} tokens, less than all conversations have together.",
                model(&config.mock.profile),
                commas(cache)
            ),
        ),
        ("gateway", "what `homing serve` runs.".to_owned()),
        (
            "people",
            format!(
                "talk to {GROUPS} assistants with a system prompt each, read answers as they come, think, and go on with all that \
                 was said. What is measured, they measure."
            ),
        ),
    ];
    let mut out = format!(
        "{}  {} engines, a gateway and {} people in conversation, all in this process\n\n",
        style.bold("homing demo"),
        demo.workers,
        demo.users
    );
    for (name, words) in told {
        for (number, part) in (0..).zip(wrapped(&words, WIDTH - 10)) {
            line(
                &mut out,
                &format!("  {:<10}{part}", if number == 0 { name } else { "" }),
            );
        }
    }
    out
}

/// Which model on which device a profile is of, in words.
fn model(profile: &str) -> String {
    match homing_profile::builtin::load(profile) {
        Ok(profile) => format!("that of {} on {}", profile.shape().model, profile.shape().device),
        Err(_) => format!("the profile `{profile}` says"),
    }
}

/// What is going to happen in a phase.
pub(super) fn heading(phase: Phase, policy: &str, happened: Happened, style: Style) -> String {
    let number = Phase::ALL.iter().position(|other| *other == phase).unwrap_or(0) + 1;
    let (title, words) = match (phase, happened) {
        (Phase::RoundRobin, _) => (
            "Round robin".to_owned(),
            "each request goes to the next engine, as a plain load balancer does it".to_owned(),
        ),
        (Phase::Homing, _) => (
            "Homing".to_owned(),
            format!(
                "new engines, empty caches, the same people. Requests go by the policy `{policy}`: where the first token comes soonest"
            ),
        ),
        (_, Happened::Killed { worker, answering }) => (
            format!("Worker {worker} is killed"),
            format!("in the middle of {answering} answers. They go on elsewhere"),
        ),
        (_, Happened::Added { worker, after }) => (
            format!("Worker {worker} is added"),
            format!(
                "with an empty cache. It registered itself and took requests {} later",
                millis(after.as_secs_f64() * 1e3)
            ),
        ),
        (_, Happened::Nothing) => (phase.title().to_owned(), String::new()),
    };
    format!("\n  {number}  {}: {words}\n", style.bold(&title))
}

/// What came of a phase, in a line.
pub(super) fn summary(outcome: &Outcome, style: Style) -> String {
    let tally = &outcome.tally;
    let first = Times::of(&tally.first).map_or_else(String::new, |first| {
        format!(", first token p50 {} p99 {}", millis(first.p50), millis(first.p99))
    });
    let failed = match tally.failed {
        0 => String::new(),
        failed => format!(", {}", style.red(&format!("{failed} failed"))),
    };
    format!(
        "     {} answered{failed}, {} of prompts from cache{first}\n",
        commas(tally.completed),
        percent(tally.cached_share())
    )
}

/// What changed from phase to phase, and what to do next.
pub fn end(config: &Config, report: &Report, style: Style) -> String {
    let mut out = String::new();
    if report.phases.is_empty() {
        out.push_str("\n  stopped before the first part was over\n");
        return out;
    }
    table(&mut out, report, style);
    out.push('\n');
    for sentence in sentences(config, report, style) {
        for (number, part) in (0..).zip(wrapped(&sentence, WIDTH)) {
            line(&mut out, &format!("  {} {part}", if number == 0 { "-" } else { " " }));
        }
    }
    if report.end == End::Interrupted {
        line(&mut out, "  stopped before its end: answers were not compared");
    }
    line(&mut out, "");
    line(
        &mut out,
        &format!("  {}", style.bold("Next: put it before engines of your own")),
    );
    line(
        &mut out,
        "    homing serve --worker http://gpu-1:8000,events=tcp://gpu-1:5557,replay=tcp://gpu-1:5558 --worker http://gpu-2:8000,...",
    );
    out
}

fn table(out: &mut String, report: &Report, style: Style) {
    let row = |name: &str, cell: &dyn Fn(&Outcome) -> String| {
        let cells: Vec<String> = report
            .phases
            .iter()
            .map(|outcome| format!("{:>COLUMN$}", cell(outcome)))
            .collect();
        let cells = cells.concat();
        format!("  {name:<NAMES$}{cells}")
    };
    let time = |of: fn(&Times) -> f64| {
        move |outcome: &Outcome| Times::of(&outcome.tally.first).map_or_else(String::new, |times| millis(of(&times)))
    };
    line(out, "");
    line(out, &style.bold(&row("", &|outcome| outcome.phase.title().to_owned())));
    let rows = [
        row("requests answered", &|outcome| commas(outcome.tally.completed)),
        row("  in a second", &|outcome| {
            format!("{:.1}", outcome.tally.completed as f64 / outcome.took.as_secs_f64())
        }),
        row("failed", &|outcome| commas(outcome.tally.failed)),
        row("of prompts, found in cache", &|outcome| {
            percent(outcome.tally.cached_share())
        }),
        row("prompt tokens to compute, each", &|outcome| {
            let tally = &outcome.tally;
            commas((tally.prompt_tokens - tally.cached_tokens) / tally.completed.max(1))
        }),
        row("first token, on average", &time(|times| times.mean)),
        row("  half of them within", &time(|times| times.p50)),
        row("  99 of 100 within", &time(|times| times.p99)),
        row("retried before the first token", &|outcome| {
            commas(outcome.counters.retried)
        }),
        row("moved to another worker after it", &|outcome| {
            commas(outcome.counters.migrated)
        }),
    ];
    for row in rows {
        line(out, &row);
    }
}

fn sentences(config: &Config, report: &Report, style: Style) -> Vec<String> {
    let mut sentences = Vec::new();
    let of = |phase: Phase| report.phases.iter().find(|outcome| outcome.phase == phase);
    if let (Some(before), Some(after)) = (of(Phase::RoundRobin), of(Phase::Homing)) {
        sentences.extend(compared(before, after, style));
    }
    let compared = &report.compared;
    if let Some(outcome) = of(Phase::Killed)
        && let Happened::Killed { worker, answering } = outcome.happened
        && report.end == End::ByItself
    {
        let (failed, wrong) = report.failed_and_wrong();
        let verdict = match (failed, wrong) {
            (0, 0) => style.green("none failed, none differed"),
            _ => style.red(&format!("{failed} failed, {wrong} differed")),
        };
        sentences.push(format!(
            "Worker {worker} died while it gave {answering} answers. {} answers, {} that went on elsewhere among them, were compared \
             with those of an engine that nobody disturbs: {verdict}.",
            compared.answers, compared.moved
        ));
    }
    if let Some(outcome) = of(Phase::Added)
        && let Happened::Added { worker, .. } = outcome.happened
    {
        let served = outcome.tally.served.get(worker).copied().unwrap_or(0);
        let share = served as f64 / outcome.tally.completed.max(1) as f64;
        sentences.push(format!(
            "Worker {worker} came with nothing cached, and served {} of the requests from then on.",
            percent(share)
        ));
    }
    let homing = || {
        report
            .phases
            .iter()
            .filter(|outcome| outcome.phase != Phase::RoundRobin)
    };
    let sum = |of: fn(&Outcome) -> u64| homing().map(of).sum::<u64>();
    let events = sum(|outcome| outcome.counters.events);
    if events > 0 {
        let lost = match config.demo.drop_every {
            0 => String::new(),
            every => format!(" One message of {every} was lost on purpose:"),
        };
        sentences.push(format!(
            "Workers told of their caches in {} events.{lost} {} repairs. What the gateway predicted to be cached was so to the token for \
             {} of {} requests.",
            commas(events),
            commas(sum(|outcome| outcome.counters.repairs)),
            commas(sum(|outcome| outcome.counters.right)),
            commas(sum(|outcome| outcome.counters.predicted)),
        ));
    }
    sentences
}

/// What the policy changed.
fn compared(before: &Outcome, after: &Outcome, style: Style) -> Option<String> {
    let each = |outcome: &Outcome| {
        let tally = &outcome.tally;
        (tally.prompt_tokens - tally.cached_tokens) as f64 / tally.completed.max(1) as f64
    };
    let (slow, soon) = (Times::of(&before.tally.first)?, Times::of(&after.tally.first)?);
    let words = |ratio: f64, more: &str, less: &str| match ratio {
        ratio if ratio >= WORTH => style.green(&format!("{ratio:.1}x {more}")),
        ratio if ratio <= 1.0 / WORTH => style.red(&format!("{:.1}x {less}", 1.0 / ratio)),
        _ => "about as".to_owned(),
    };
    Some(format!(
        "By the same people, on the same engines: {} prompt tokens to compute for each request, first tokens {} on average.",
        words(each(before) / each(after).max(1.0), "fewer", "more"),
        words(slow.mean / soon.mean, "sooner", "later"),
    ))
}

fn line(out: &mut String, text: &str) {
    writeln!(out, "{text}").expect("a string takes all that is written to it");
}
