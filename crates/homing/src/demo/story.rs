//! What did the demo measure, for a person?

use std::fmt::Write as _;

use homing_config::Config;

use super::fleet::MS_BETWEEN_REQUESTS;
use super::hot::Hot;
use super::placement::{Served, Share};
use super::workload::SYSTEM_PROMPTS;
use super::{Exact, Guess, Informed, Report};
use crate::show::{Style, commas, percent, short};

const BAR: usize = 32;
/// Fleets larger than this are told in part.
const WORKERS_SHOWN: usize = 16;
/// What is worth being called fewer.
const FEWER: f64 = 1.05;
/// The hottest prefixes.
const HOT_SHOWN: usize = 3;

/// The whole story.
pub fn tell(config: &Config, report: &Report, style: Style) -> String {
    let mut teller = Teller {
        out: String::new(),
        style,
    };
    teller.opening(config, report);
    teller.placements(report);
    teller.workers(report.placed(), config.demo.cache.0);
    match &report.informed {
        Informed::Events(exact) => {
            teller.index(exact);
            teller.hot(config, &exact.hot);
            teller.restart(exact);
            teller.hole(exact);
        }
        Informed::Approximate(guess) => teller.guess(guess),
        Informed::None(_) => {}
    }
    teller.verdict(report);
    teller.out
}

struct Teller {
    out: String,
    style: Style,
}

impl Teller {
    fn opening(&mut self, config: &Config, report: &Report) {
        let demo = &config.demo;
        let served = report.placed();
        self.line(&format!(
            "{} {}",
            self.style.bold("homing demo"),
            self.style.dim(&format!("(seed {})", demo.seed))
        ));
        self.line("");
        self.line(&format!(
            "  fleet     {} workers, each caching {} blocks of {} tokens",
            demo.workers,
            commas(demo.cache.0.into()),
            config.block_size.get()
        ));
        self.line(&format!(
            "  traffic   {} conversations of {} turns over {SYSTEM_PROMPTS} shared system prompts",
            commas(demo.sessions.into()),
            demo.turns
        ));
        self.line(&format!(
            "            {} requests, {} prompt tokens; one every {MS_BETWEEN_REQUESTS} ms of virtual time",
            commas(served.requests),
            short(served.prompt_tokens as f64)
        ));
        match report.informed {
            Informed::Events(_) => self.line("  view      workers report what they store and remove"),
            Informed::Approximate(_) => self.line(&format!(
                "  view      a guess: workers report nothing; what was routed is taken to be there for {} s",
                config.approximate.ttl.as_secs_f64()
            )),
            Informed::None(_) => self.line("  view      none: nothing is stored or looked up, only the load is known"),
        }
    }

    fn placements(&mut self, report: &Report) {
        self.heading("How much of the prompts was already cached where they went?");
        let mut placements = vec![("in turn", &report.round_robin)];
        match &report.informed {
            Informed::Events(exact) => placements.push(("to its home", &exact.homing)),
            Informed::Approximate(guess) => placements.extend([
                ("by the guess", &guess.guessed),
                ("by events", &guess.homing), // as it would have been
            ]),
            Informed::None(by_load) => placements.push(("by load", by_load)),
        }
        for (name, served) in placements {
            let share = served.share_cached();
            let bar = self.style.bar(share, BAR);
            self.line(&format!("  {name:<12} {bar}  {:>7}", percent(share)));
        }
        let computed = |served: &Served| (served.prompt_blocks - served.cached).max(1) as f64;
        let fewer = computed(&report.round_robin) / computed(report.placed());
        let fewer = if fewer >= FEWER {
            self.style.green(&format!("{fewer:.1}x fewer"))
        } else {
            "about as many".to_owned()
        };
        let (turn, placed) = (report.round_robin.mean_work_ahead(), report.placed().mean_work_ahead());
        self.line(&format!(
            "  {fewer} prompt tokens to compute; before a first token {} blocks instead of {}",
            short(placed),
            short(turn)
        ));
    }

    fn workers(&mut self, served: &Served, cache: u32) {
        self.heading("Who did the work?");
        let most = served
            .per_worker
            .iter()
            .map(|share| share.requests)
            .max()
            .unwrap_or(1)
            .max(1);
        for (number, share) in served.per_worker.iter().enumerate().take(WORKERS_SHOWN) {
            let bar = self.style.bar(share.requests as f64 / most as f64, BAR);
            let Share { requests, holds, .. } = share;
            let cached = percent(share.cached as f64 / share.prompt_blocks.max(1) as f64);
            let full = percent(f64::from(holds.0) / f64::from(cache));
            self.line(&format!(
                "  worker {number:<5} {bar}  {:>7} requests, {cached:>7} cached, cache {full:>7} full",
                commas(*requests)
            ));
        }
        let hidden = served.per_worker.len().saturating_sub(WORKERS_SHOWN);
        if hidden > 0 {
            let more = self.style.dim(&format!("  and {hidden} more"));
            self.line(&more);
        }
    }

    fn index(&mut self, exact: &Exact) {
        let (size, speed) = (exact.size, exact.speed);
        self.heading("What did the index do?");
        self.line(&format!(
            "  heard     {} events; holds {} distinct blocks in {} runs, {} (block, worker) entries",
            commas(size.events),
            commas(size.blocks),
            commas(size.runs),
            commas(size.entries)
        ));
        self.line(&format!(
            "  memory    {} bytes, {} of them from the start; {:.1} for each entry",
            commas(size.bytes),
            commas(size.bytes_when_empty),
            size.bytes_per_entry()
        ));
        self.line(&format!(
            "  lookups   {} a second on one thread ({} ns each, {} on average); from tokens {} a second",
            short(speed.lookups_per_second),
            commas((1e9 / speed.lookups_per_second) as u64),
            speed.mean_blocks,
            short(speed.prompts_per_second)
        ));
    }

    fn hot(&mut self, config: &Config, hot: &[Hot]) {
        self.heading("Which prefixes are hot?");
        let most = hot.first().map_or(1, |hottest| hottest.uses).max(1);
        for hot in hot.iter().take(HOT_SHOWN) {
            let bar = self.style.bar(f64::from(hot.uses) / f64::from(most), BAR);
            let name = format!("prompt {}", hot.system_prompt);
            let uses = commas(hot.uses.into());
            self.line(&format!("  {name:<12} {bar}  {uses:>7} recent uses of {}", hot.blocks));
        }
        if hot.is_empty() {
            self.line("  no system prompt fills a block");
        }
        // Counts are kept in quarters of the window, of which the last has just begun or is almost over.
        let window = config.index.heat_window.as_secs_f64();
        let note = format!(
            "  shared system prompts, routed in the last {} to {window} s; counts may be a little too high",
            window * 0.75
        );
        self.line(&self.style.dim(&note));
    }

    fn guess(&mut self, guess: &Guess) {
        let Guess { guessed, size, .. } = guess;
        self.heading("How good was the guess?");
        self.line(&format!(
            "  answers   {} compared with the caches themselves: {} right, {} too high, {} too low",
            commas(guessed.checked),
            commas(guessed.checked - guessed.wrong()),
            commas(guessed.too_high),
            commas(guessed.too_low)
        ));
        self.line(&format!(
            "  blocks    where requests were sent, {} were there; {} that it took to be there were not, and of {} it did not know",
            commas(guessed.cached),
            commas(guessed.missed),
            commas(guessed.unknown)
        ));
        self.line(&format!(
            "  memory    {} distinct blocks, {} (block, worker) entries, {} bytes",
            commas(size.blocks),
            commas(size.entries),
            commas(size.bytes)
        ));
        for note in [
            "  too high: the worker evicted what was routed to it, and does not say so",
            "  too low: it was generated there, which the router does not see, or was forgotten: too old, or too much",
        ] {
            self.line(&self.style.dim(note));
        }
    }

    fn restart(&mut self, exact: &Exact) {
        let restart = exact.restart;
        self.heading(&format!("Worker {} restarts. Does the index notice?", restart.worker));
        self.line(&format!(
            "  its cache of {} is gone; one prompt that it held:",
            restart.lost
        ));
        let most = restart.again.0.max(restart.before.0).max(1);
        for (when, depth) in [
            ("before", restart.before),
            ("restarted", restart.after),
            ("served again", restart.again),
        ] {
            self.depth(when, depth.0, most);
        }
    }

    fn hole(&mut self, exact: &Exact) {
        let hole = exact.hole;
        self.heading(&format!(
            "Worker {} drops block {} of a prefix. And now?",
            hole.worker, hole.at
        ));
        let most = hole.before.0.max(1);
        for (when, depth) in [
            ("before", hole.before),
            ("with a hole", hole.cut),
            ("repaired", hole.repaired),
        ] {
            self.depth(when, depth.0, most);
        }
    }

    fn verdict(&mut self, report: &Report) {
        self.line("");
        let index = match report.informed {
            Informed::Events(_) => "the index",
            Informed::Approximate(_) => "the index that hears events",
            Informed::None(_) => {
                self.line("  nothing was stored and nothing looked up, so there are no answers to compare");
                return;
            }
        };
        let wrong = report.wrong_answers();
        let verdict = format!("wrong answers: {wrong}");
        let verdict = if wrong == 0 {
            self.style.green(&verdict)
        } else {
            self.style.red(&verdict)
        };
        self.line(&format!(
            "  {} answers of {index} compared with the caches themselves, {verdict}",
            commas(report.checked_answers())
        ));
    }

    fn depth(&mut self, when: &str, depth: u32, most: u32) {
        let bar = self.style.bar(f64::from(depth) / f64::from(most), BAR);
        self.line(&format!("  {when:<12} {bar}  {depth:>5} leading blocks"));
    }

    fn heading(&mut self, text: &str) {
        self.line("");
        let text = self.style.bold(text);
        self.line(&text);
    }

    fn line(&mut self, text: &str) {
        writeln!(self.out, "{text}").expect("a string takes all that is written to it");
    }
}
