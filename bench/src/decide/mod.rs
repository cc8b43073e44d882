//! How long does a decision take, and what comes before and after it?
//!
//! Contenders take turns in rounds on the same requests, in an order drawn anew each round.

mod ours;
mod peer;
#[cfg(test)]
mod same;
mod traffic;

use std::hint::black_box;
use std::time::Instant;

use crate::args::Size;
use crate::measure::{clock_ns, p50_p99};
use crate::report::{About, Better, Report, section};
use crate::rng::Rng;
use homing_scheduler::policy::NAMES;
use ours::Ours;
use peer::Dynamo;
use traffic::{ASKED, Traffic};

/// Sizes of fleets.
pub const RANKS: [usize; 4] = [8, 64, 512, 4_096];
/// Lengths of prompts.
pub const TOKENS: [usize; 3] = [256, 4_096, 16_384];
/// The length at which the decision is measured without hash and lookup: they do not depend on it.
pub const MIDDLE: usize = TOKENS[1];

/// What is done with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// The decision alone: what the prompt overlaps with is known.
    Decide,
    /// The decision, the booking and its end.
    Book,
    /// All of it, from tokens: hash, lookup, decision, booking, end.
    Whole,
}

impl Work {
    /// As tables call it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Decide => "decide",
            Self::Book => "decide, book, free",
            Self::Whole => "from tokens",
        }
    }

    /// How tables and targets call its median.
    pub fn p50(self) -> String {
        format!("{}: p50 us", self.name())
    }
}

/// Who takes part.
pub trait Contender: Sync {
    /// As tables call it.
    fn name(&self) -> &'static str;
    /// A place for one thread to work from.
    fn seat(&self, thread: usize) -> Box<dyn Seat + '_>;
}

/// One thread's place.
pub trait Seat {
    /// Does the work for one of the requests.
    fn run(&mut self, work: Work, at: usize) -> u64;
}

/// How tables and targets call a fleet and a prompt.
pub fn case(ranks: usize, tokens: usize) -> String {
    format!("{ranks} ranks, prompts of {tokens} tokens")
}

/// Measures everything.
pub fn run(size: Size, report: &mut Report) {
    policies(size, report);
    for ranks in RANKS {
        for tokens in TOKENS {
            let case = case(ranks, tokens);
            eprintln!("decide: {case}");
            let traffic = Traffic::new(ranks, tokens, &mut Rng::new(3));
            let (ours, dynamo) = (Ours::new(&traffic, "time"), Dynamo::new(&traffic));
            let contenders: [&dyn Contender; 2] = [&ours, &dynamo];
            let works: &[Work] = if tokens == MIDDLE {
                &[Work::Decide, Work::Book, Work::Whole]
            } else {
                &[Work::Whole]
            };
            for work in works {
                alone(&contenders, *work, &case, size, report);
            }
            if tokens == MIDDLE {
                for work in [Work::Book, Work::Whole] {
                    together(&contenders, work, &case, size, report);
                }
            }
        }
    }
}

/// The decision alone by each of our policies: not only the default should be quick.
fn policies(size: Size, report: &mut Report) {
    let traffic = Traffic::new(512, MIDDLE, &mut Rng::new(3));
    for policy in NAMES {
        // `direct` wants each request to name its worker.
        if policy != "direct" {
            let ours = Ours::new(&traffic, policy);
            alone(
                &[&ours],
                Work::Decide,
                &format!("512 ranks, policy {policy}"),
                size,
                report,
            );
        }
    }
}

fn alone(contenders: &[&dyn Contender], work: Work, case: &str, size: Size, report: &mut Report) {
    let clock = clock_ns();
    let mut rng = Rng::new(11);
    let mut seats: Vec<_> = contenders.iter().map(|contender| contender.seat(0)).collect();
    let mut turns: Vec<usize> = (0..seats.len()).collect();
    let mut middles = vec![Vec::new(); seats.len()];
    let mut all = vec![Vec::new(); seats.len()];
    for round in 0..=size.pick(60, 2) {
        rng.shuffle(&mut turns);
        for turn in &turns {
            let mut samples = Vec::with_capacity(ASKED);
            for at in 0..ASKED {
                let start = Instant::now();
                black_box(seats[*turn].run(work, at));
                samples.push(start.elapsed().as_nanos() as u64);
            }
            if round > 0 {
                all[*turn].extend_from_slice(&samples);
                middles[*turn].push(p50_p99(&mut samples, clock).0 / 1e3);
            }
        }
    }
    let names = contenders.iter().map(|contender| contender.name());
    let figures: Vec<_> = names.zip(middles).collect();
    report.rounds(about(case, &work.p50(), Better::Lower), &figures);
    let tails = contenders.iter().zip(&mut all);
    let tails = tails.map(|(contender, all)| (contender.name(), vec![p50_p99(all, clock).1 / 1e3]));
    let metric = format!("{}: p99 us", work.name());
    report.rounds(about(case, &metric, Better::Lower), &tails.collect::<Vec<_>>());
}

/// Thousands in a second on one thread and on two that share the state.
fn together(contenders: &[&dyn Contender], work: Work, case: &str, size: Size, report: &mut Report) {
    for threads in [1, 2] {
        let mut figures: Vec<_> = contenders
            .iter()
            .map(|contender| (contender.name(), Vec::new()))
            .collect();
        for _ in 0..size.pick(5, 1) {
            for (contender, figure) in contenders.iter().zip(&mut figures) {
                figure.1.push(rate(*contender, work, threads, size.pick(20, 1)));
            }
        }
        let metric = format!("{}: thousands/s, {threads} threads", work.name());
        report.rounds(about(case, &metric, Better::Higher), &figures);
    }
}

fn rate(contender: &dyn Contender, work: Work, threads: usize, rounds: usize) -> f64 {
    let ready = &std::sync::Barrier::new(threads);
    let took: Vec<f64> = std::thread::scope(|scope| {
        let one = |thread: usize| {
            move || {
                let mut seat = contender.seat(thread + 1);
                ready.wait();
                let start = Instant::now();
                for _ in 0..rounds {
                    for at in 0..ASKED {
                        black_box(seat.run(work, at));
                    }
                }
                start.elapsed().as_secs_f64()
            }
        };
        let handles: Vec<_> = (0..threads).map(|thread| scope.spawn(one(thread))).collect();
        handles
            .into_iter()
            .map(|handle| handle.join().expect("no thread panicked"))
            .collect()
    });
    let longest = took.into_iter().fold(0.0, f64::max);
    (threads * rounds * ASKED) as f64 / longest / 1e3
}

fn about<'a>(case: &'a str, metric: &'a str, better: Better) -> About<'a> {
    About {
        section: section::DECIDE,
        case,
        metric,
        better,
    }
}
