//! What did the demo measure, for a person?

use std::fmt::Write as _;

use homing_config::Config;

use super::Report;
use super::placement::{Served, Share};
use super::workload::SYSTEM_PROMPTS;
use crate::show::{Style, commas, percent, short};

const BAR: usize = 32;
/// Fleets larger than this are told in part.
const WORKERS_SHOWN: usize = 16;

/// The whole story.
pub fn tell(config: &Config, report: &Report, style: Style) -> String {
    let mut teller = Teller {
        out: String::new(),
        style,
    };
    teller.opening(config, report);
    teller.placements(report);
    teller.workers(&report.homing, config.demo.cache.0);
    teller.index(report);
    teller.restart(report);
    teller.hole(report);
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
        let served = &report.homing;
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
            "            {} requests, {} prompt tokens",
            commas(served.requests),
            short(served.prompt_tokens as f64)
        ));
    }

    fn placements(&mut self, report: &Report) {
        self.heading("How much of the prompts was already cached where they went?");
        for (name, served) in [("in turn", &report.round_robin), ("to its home", &report.homing)] {
            let share = served.share_cached();
            let bar = self.style.bar(share, BAR);
            self.line(&format!("  {name:<12} {bar}  {:>7}", percent(share)));
        }
        let computed = |served: &Served| (served.prompt_blocks - served.cached).max(1) as f64;
        let fewer = computed(&report.round_robin) / computed(&report.homing);
        let (turn, home) = (report.round_robin.mean_work_ahead(), report.homing.mean_work_ahead());
        self.line(&format!(
            "  {} prompt tokens to compute; before a first token {} blocks instead of {}",
            self.style.green(&format!("{fewer:.1}x fewer")),
            short(home),
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

    fn index(&mut self, report: &Report) {
        let (size, speed) = (report.size, report.speed);
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

    fn restart(&mut self, report: &Report) {
        let restart = report.restart;
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

    fn hole(&mut self, report: &Report) {
        let hole = report.hole;
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
        let wrong = report.wrong_answers();
        let verdict = format!("wrong answers: {wrong}");
        let verdict = if wrong == 0 {
            self.style.green(&verdict)
        } else {
            self.style.red(&verdict)
        };
        self.line("");
        self.line(&format!(
            "  {} answers of the index compared with the caches themselves, {verdict}",
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
