//! What does `homing demo` do?
//!
//! It generates conversations, serves them with a fleet of pretended workers, once dealt out in turn and once sent where
//! they will be done first, and prints what was measured. What is known of the caches is `index.cache-view`:
//!
//! - `events`: an index hears what the workers emit. Every answer is compared with the caches themselves; then things are
//!   broken on purpose: a worker restarts, a block in mid-prefix vanishes. A wrong answer is a failure.
//! - `approximate`: the router guesses from what it routed. The guess is compared with the caches too, and with what events
//!   would have given; a wrong guess is told and is no failure.
//! - `none`: nothing is stored or looked up; requests go where the load is least.
//!
//! The parts:
//!
//! - [`workload`]: the conversations; [`cache`]: what a worker caches and the events it emits;
//! - [`view`]: what is known of the caches, kept in an index; [`fleet`]: workers and view together;
//! - [`placement`]: serves a workload; [`scenes`]: breaks things; [`speed`]: times lookups; [`hot`]: recent uses;
//! - [`story`] and [`json`]: how it is told.

mod cache;
mod fleet;
mod hot;
pub mod json;
mod placement;
mod scenes;
mod speed;
pub mod story;
mod view;
mod workload;

use homing_config::{CacheView, Config};
use homing_telemetry::Metrics;

use fleet::Fleet;
use hot::Hot;
use placement::{Policy, Served};
use scenes::{Hole, Restart};
use speed::Speed;
use view::Size;

/// All that was measured.
#[derive(Debug)]
pub struct Report {
    round_robin: Served,
    informed: Informed,
    /// What the view counted of itself, as a scraper would read it.
    pub metrics: Metrics,
}

/// What came of placing requests by what is known.
#[derive(Debug)]
enum Informed {
    Events(Box<Exact>),
    Approximate(Box<Guess>),
    /// Nothing is known but the load.
    None(Served),
}

/// What came of hearing events.
#[derive(Debug)]
struct Exact {
    homing: Served,
    /// The index after all was served.
    size: Size,
    speed: Speed,
    hot: Vec<Hot>,
    restart: Restart,
    hole: Hole,
}

/// What came of guessing.
#[derive(Debug)]
struct Guess {
    guessed: Served,
    /// What the guess kept after all was served.
    size: Size,
    /// What events would have given.
    homing: Served,
}

impl Report {
    /// Answers of the index that hears events which differed from the caches. Always 0, or something is broken. What a
    /// guess gets wrong is not counted here.
    pub fn wrong_answers(&self) -> u64 {
        let informed = match &self.informed {
            Informed::Events(exact) => exact.homing.wrong() + exact.restart.wrong + exact.hole.wrong,
            Informed::Approximate(guess) => guess.homing.wrong(),
            Informed::None(_) => 0,
        };
        self.round_robin.wrong() + informed
    }

    fn checked_answers(&self) -> u64 {
        let informed = match &self.informed {
            Informed::Events(exact) => exact.homing.checked + exact.restart.checked + exact.hole.checked,
            Informed::Approximate(guess) => guess.homing.checked,
            Informed::None(_) => 0,
        };
        self.round_robin.checked + informed
    }

    /// What came of the placement that the settings ask for.
    fn placed(&self) -> &Served {
        match &self.informed {
            Informed::Events(exact) => &exact.homing,
            Informed::Approximate(guess) => &guess.guessed,
            Informed::None(by_load) => by_load,
        }
    }
}

/// Runs all of it.
pub fn run(config: &Config) -> anyhow::Result<Report> {
    let serve = |policy, view| anyhow::Ok(placement::serve(config, policy, Fleet::new(config, view)?));
    // What is dealt out in turn needs no view; it has one where that is compared with the caches.
    let (round_robin, _, _) = match config.index.cache_view {
        CacheView::Events | CacheView::Approximate => serve(Policy::RoundRobin, CacheView::Events)?,
        CacheView::None => serve(Policy::RoundRobin, CacheView::None)?,
    };
    let (placed, mut fleet, samples) = serve(Policy::LeastWork, config.index.cache_view)?;
    let informed = match config.index.cache_view {
        CacheView::Events => Informed::Events(Box::new(Exact {
            homing: placed,
            size: fleet.size(),
            speed: speed::measure(&fleet, &samples),
            hot: hot::prefixes(&fleet),
            restart: scenes::restart(&mut fleet, &samples),
            hole: scenes::hole(&mut fleet, &samples),
        })),
        CacheView::Approximate => Informed::Approximate(Box::new(Guess {
            guessed: placed,
            size: fleet.size(),
            homing: serve(Policy::LeastWork, CacheView::Events)?.0,
        })),
        CacheView::None => Informed::None(placed),
    };
    Ok(Report {
        round_robin,
        informed,
        metrics: fleet.into_metrics(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::show::Style;
    use homing_config::Colour;
    use homing_domain::Blocks;
    use std::time::Duration;

    fn small() -> Config {
        let mut config = Config::default();
        config.demo.workers = 3;
        config.demo.sessions = 12;
        config.demo.turns = 3;
        config.demo.cache = Blocks(900);
        config
    }

    fn small_with(cache_view: CacheView) -> Config {
        let mut config = small();
        config.index.cache_view = cache_view;
        config
    }

    fn exact(config: &Config) -> Exact {
        match run(config).unwrap().informed {
            Informed::Events(exact) => *exact,
            other => panic!("{other:?}"),
        }
    }

    fn guess(config: &Config) -> Guess {
        match run(config).unwrap().informed {
            Informed::Approximate(guess) => *guess,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_index_is_never_wrong_and_knowing_caches_pays() {
        let report = run(&small()).unwrap();
        assert_eq!(report.wrong_answers(), 0);
        assert!(report.checked_answers() > 200);
        assert_eq!(report.placed().requests, 36);
        assert!(report.placed().share_cached() > report.round_robin.share_cached());
        assert_eq!((report.placed().missed, report.placed().unknown), (0, 0));
    }

    #[test]
    fn a_restart_empties_one_worker_and_a_hole_cuts_a_prefix() {
        let Exact { restart, hole, .. } = exact(&small());
        assert!(restart.before > Blocks(0));
        assert_eq!(restart.after, Blocks(0));
        assert!(restart.again >= restart.before);
        assert!(hole.cut < hole.before);
        assert_eq!(hole.repaired, hole.before);
    }

    #[test]
    fn a_guess_errs_both_ways_and_that_is_no_failure() {
        let mut config = small_with(CacheView::Approximate);
        config.demo.cache = Blocks(250);
        let report = run(&config).unwrap();
        assert_eq!(report.wrong_answers(), 0);
        let Guess { guessed, homing, size } = guess(&config);
        assert!(guessed.too_high > 0, "full caches evict what was routed: {guessed:?}");
        assert!(
            guessed.too_low > 0,
            "the router does not see what was generated: {guessed:?}"
        );
        assert!(guessed.missed > 0 && guessed.unknown > 0, "{guessed:?}");
        assert_eq!(guessed.checked, 36 * 3);
        assert_eq!(homing.wrong(), 0);
        assert!(size.entries > 0);
        assert_eq!(size.events, 0);
    }

    #[test]
    fn a_guess_keeps_to_its_bounds() {
        let mut config = small_with(CacheView::Approximate);
        config.approximate.max_blocks = Blocks(1024);
        config.approximate.prune_target_ratio = 0.5;
        assert!(guess(&config).size.entries <= 1024);
        let roomy = small_with(CacheView::Approximate);
        let mut hasty = small_with(CacheView::Approximate);
        hasty.approximate.ttl = Duration::from_secs(1);
        assert!(guess(&hasty).size.entries < guess(&roomy).size.entries);
        assert!(guess(&hasty).guessed.too_low > guess(&roomy).guessed.too_low);
    }

    #[test]
    fn without_a_view_nothing_is_stored_or_looked_up() {
        let report = run(&small_with(CacheView::None)).unwrap();
        assert_eq!((report.checked_answers(), report.wrong_answers()), (0, 0));
        assert_eq!(report.metrics.index.prefix_lookups.get(), 0);
        assert_eq!(report.metrics.index.memory_bytes.get(), 0);
        assert_eq!(report.placed().requests, 36);
        assert!(report.placed().per_worker.iter().all(|share| share.requests > 0));
        assert!(report.placed().cached < exact(&small()).homing.cached);
    }

    #[test]
    fn the_same_seed_tells_the_same_story() {
        for view in CacheView::ALL {
            let [one, two] = [1, 1].map(|_| run(&small_with(*view)).unwrap());
            assert_eq!(one.placed().cached, two.placed().cached);
            assert_eq!(one.placed().per_worker, two.placed().per_worker);
            let mut other = small_with(*view);
            other.demo.seed = 2;
            let other = run(&other).unwrap();
            assert_ne!(other.placed().prompt_blocks, one.placed().prompt_blocks);
        }
    }

    #[test]
    fn it_is_told_in_three_forms() {
        let told = [
            (CacheView::Events, "events", "homing", "wrong answers: 0"),
            (
                CacheView::Approximate,
                "approximate",
                "approximate",
                "How good was the guess?",
            ),
            (
                CacheView::None,
                "none",
                "by_load",
                "nothing was stored and nothing looked up",
            ),
        ];
        for (view, name, field, text) in told {
            let config = small_with(view);
            let report = run(&config).unwrap();
            let plain = story::tell(&config, &report, Style::of(Colour::Off));
            assert!(plain.is_ascii() && plain.contains(text), "{plain}");
            assert!(story::tell(&config, &report, Style::of(Colour::On)).contains('\x1b'));
            let object: serde_json::Value = serde_json::from_str(&json::object(&config, &report)).unwrap();
            assert_eq!(object["cache_view"], name);
            assert_eq!(object["wrong_answers"], 0);
            assert_eq!(object[field]["requests"], 36);
            assert!(report.metrics.render().contains("homing_index_distinct_blocks"));
        }
    }
}
