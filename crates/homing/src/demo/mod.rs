//! What does `homing demo` do?
//!
//! It generates conversations, serves them twice with a fleet of pretended workers (requests dealt out in turn; requests
//! sent where they will be done first), keeps an index of what each worker caches from the events they emit, compares
//! every answer of the index with the caches themselves, then breaks things on purpose: a worker restarts, a block in
//! mid-prefix vanishes. What is printed is what was measured.
//!
//! - [`workload`]: the conversations; [`cache`]: what a worker caches and the events it emits;
//! - [`fleet`]: workers and index together, the only user of `homing-index`;
//! - [`placement`]: serves a workload; [`scenes`]: breaks things; [`speed`]: times lookups;
//! - [`story`] and [`json`]: how it is told.

mod cache;
mod fleet;
pub mod json;
mod placement;
mod scenes;
mod speed;
pub mod story;
mod workload;

use homing_config::Config;
use homing_telemetry::Metrics;

use fleet::{Fleet, Size};
use placement::{Policy, Served};
use scenes::{Hole, Restart};
use speed::Speed;

/// All that was measured.
#[derive(Debug)]
pub struct Report {
    round_robin: Served,
    homing: Served,
    /// The index after the second pass.
    size: Size,
    speed: Speed,
    restart: Restart,
    hole: Hole,
    /// The same, as a scraper would read it.
    pub metrics: Metrics,
}

impl Report {
    /// Answers of the index that differed from the caches. Always 0, or something is broken.
    pub fn wrong_answers(&self) -> u64 {
        self.round_robin.wrong + self.homing.wrong + self.restart.wrong + self.hole.wrong
    }

    fn checked_answers(&self) -> u64 {
        self.round_robin.checked + self.homing.checked + self.restart.checked + self.hole.checked
    }
}

/// Runs all of it.
pub fn run(config: &Config) -> anyhow::Result<Report> {
    let (round_robin, _, _) = placement::serve(config, Policy::RoundRobin, Fleet::new(config)?);
    let (homing, mut fleet, samples) = placement::serve(config, Policy::LeastWork, Fleet::new(config)?);
    let size = fleet.size();
    let speed = speed::measure(&fleet, &samples);
    let restart = scenes::restart(&mut fleet, &samples);
    let hole = scenes::hole(&mut fleet, &samples);
    Ok(Report {
        round_robin,
        homing,
        size,
        speed,
        restart,
        hole,
        metrics: fleet.into_metrics(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::show::Style;
    use homing_config::Colour;
    use homing_domain::Blocks;

    fn small() -> Config {
        let mut config = Config::default();
        config.demo.workers = 3;
        config.demo.sessions = 12;
        config.demo.turns = 3;
        config.demo.cache = Blocks(900);
        config
    }

    #[test]
    fn the_index_is_never_wrong_and_knowing_caches_pays() {
        let report = run(&small()).unwrap();
        assert_eq!(report.wrong_answers(), 0);
        assert!(report.checked_answers() > 200);
        assert_eq!(report.homing.requests, 36);
        assert!(report.homing.share_cached() > report.round_robin.share_cached());
    }

    #[test]
    fn a_restart_empties_one_worker_and_a_hole_cuts_a_prefix() {
        let Report { restart, hole, .. } = run(&small()).unwrap();
        assert!(restart.before > Blocks(0));
        assert_eq!(restart.after, Blocks(0));
        assert!(restart.again >= restart.before);
        assert!(hole.cut < hole.before);
        assert_eq!(hole.repaired, hole.before);
    }

    #[test]
    fn the_same_seed_tells_the_same_story() {
        let [one, two] = [1, 1].map(|_| run(&small()).unwrap());
        assert_eq!(one.homing.cached, two.homing.cached);
        assert_eq!(one.homing.per_worker, two.homing.per_worker);
        let mut other = small();
        other.demo.seed = 2;
        assert_ne!(run(&other).unwrap().homing.prompt_blocks, one.homing.prompt_blocks);
    }

    #[test]
    fn it_is_told_in_three_forms() {
        let config = small();
        let report = run(&config).unwrap();
        let plain = story::tell(&config, &report, Style::of(Colour::Off));
        assert!(plain.is_ascii() && plain.contains("wrong answers: 0"), "{plain}");
        assert!(story::tell(&config, &report, Style::of(Colour::On)).contains('\x1b'));
        let object: serde_json::Value = serde_json::from_str(&json::object(&config, &report)).unwrap();
        assert_eq!(object["wrong_answers"], 0);
        assert_eq!(object["homing"]["requests"], 36);
        assert!(report.metrics.render().contains("homing_index_distinct_blocks"));
    }
}
