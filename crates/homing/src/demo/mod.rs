//! What does `homing demo` do? It runs the product in one process, so that somebody who has neither GPU nor engine can see it work.
//!
//! Engines are `homing mock` with real sockets, before them is the gateway of `homing serve`, and people hold conversations with it
//! over HTTP. First requests are dealt out in turn; then, with new engines and the same people, they go where Homing's policy sends
//! them; then a worker is killed, and one is added. What is told was measured by those who asked.
//!
//! - [`traffic`]: what is said; [`client`]: a question and its answer over HTTP; [`users`]: who asks;
//! - [`engine`], [`fleet`]: who answers;
//! - [`board`]: what happens; [`check`]: were the answers right?
//! - [`view`]: what is shown meanwhile; [`story`] and [`json`]: what is told at the end.
//!
//! **Invariant:** nothing leaves the machine, and nothing is made up: a time is what a clock measured, a share what engines said.

mod board;
mod check;
mod client;
mod engine;
mod fleet;
pub mod json;
mod phase;
pub mod story;
mod times;
mod traffic;
mod users;
mod view;

use std::sync::Arc;
use std::time::{Duration, Instant};

use homing_config::{Config, Resolved};

use board::{Board, Tally};
use check::Compared;
use client::Endpoint;
use fleet::{Counters, Fleet};
use phase::Phase;
use traffic::Traffic;
use users::Users;
use view::Frame;
pub use view::{Mode, Screen};

use crate::service::Stop;

/// How long is waited for an answer to be under way somewhere, to be interrupted.
const VICTIM_PATIENCE: Duration = Duration::from_secs(2);
const POLL: Duration = Duration::from_millis(2);

/// All that was seen.
#[derive(Debug)]
pub struct Report {
    phases: Vec<Outcome>,
    compared: Compared,
    end: End,
}

/// How the demo ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    ByItself,
    Interrupted,
}

/// What came of a phase.
#[derive(Debug)]
struct Outcome {
    phase: Phase,
    policy: String,
    took: Duration,
    tally: Tally,
    counters: Counters,
    happened: Happened,
}

/// What was done to the fleet at the beginning of a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Happened {
    Nothing,
    /// This worker was killed while it gave so many answers.
    Killed {
        worker: usize,
        answering: u32,
    },
    /// This worker came, and took requests after so long.
    Added {
        worker: usize,
        after: Duration,
    },
}

impl Report {
    /// Requests that failed, and answers that were not what an undisturbed engine says.
    pub fn failed_and_wrong(&self) -> (u64, u64) {
        let failed = self.phases.iter().map(|outcome| outcome.tally.failed).sum();
        (failed, self.compared.wrong)
    }

    /// Why the first request failed, if one did.
    pub fn failure(&self) -> Option<&str> {
        self.phases.iter().find_map(|outcome| outcome.tally.failure.as_deref())
    }
}

/// Runs all of it, until its end or until it is stopped.
pub async fn run(resolved: &Resolved, mut screen: Screen, stop: Stop) -> anyhow::Result<Report> {
    screen.say(&story::opening(&resolved.config, screen.style()))?;
    let mut report = Report {
        phases: Vec::new(),
        compared: Compared::default(),
        end: End::Interrupted,
    };
    tokio::select! {
        shown = show(resolved, &mut screen, &mut report) => {
            shown?;
            report.end = End::ByItself;
        }
        // Whoever asks is gone at once, and what was seen so far is told.
        () = stop => {}
    }
    screen.clear()?;
    Ok(report)
}

async fn show(resolved: &Resolved, screen: &mut Screen, report: &mut Report) -> anyhow::Result<()> {
    let config = &resolved.config;
    let mut stage = Stage::open(resolved, Phase::RoundRobin, screen).await?;
    stage.play(screen).await?;
    report.phases.push(stage.close(screen).await?);

    let mut stage = Stage::open(resolved, Phase::Homing, screen).await?;
    stage.play(screen).await?;
    let victim = stage.victim().await;
    report.phases.push(stage.turn(Phase::Killed, screen)?);
    stage.kill(victim, screen)?;
    stage.play(screen).await?;
    report.phases.push(stage.turn(Phase::Added, screen)?);
    stage.add(screen).await?;
    stage.play(screen).await?;
    report.phases.push(stage.close(screen).await?);

    report.compared = check::compare(config, report.phases.iter().flat_map(|outcome| &outcome.tally.kept)).await?;
    Ok(())
}

/// A fleet and those who talk to it.
struct Stage<'a> {
    config: &'a Config,
    policy: String,
    fleet: Fleet,
    board: Arc<Board>,
    users: Users,
    // Of the phase that goes on.
    phase: Phase,
    began: Instant,
    counted: Counters,
    happened: Happened,
}

impl<'a> Stage<'a> {
    /// New engines with empty caches, a new gateway, and people who begin to talk.
    async fn open(resolved: &'a Resolved, phase: Phase, screen: &mut Screen) -> anyhow::Result<Self> {
        let config = &resolved.config;
        let policy = match phase {
            Phase::RoundRobin => "round-robin".to_owned(),
            _ => config.serve.policy.clone(),
        };
        let board = Arc::new(Board::default());
        let fleet = Fleet::start(resolved, &policy, &board).await?;
        let endpoint = Endpoint::new(&fleet.url, config.model.as_str());
        let traffic = Arc::new(Traffic::new(config.demo.seed, config.mock.speedup));
        screen.say(&story::heading(phase, &policy, Happened::Nothing, screen.style()))?;
        // What the gateway heard before anybody asked is no part of it.
        let counted = fleet.counters();
        Ok(Self {
            config,
            policy,
            fleet,
            users: Users::start(config.demo.users, &traffic, &endpoint, &board),
            board,
            phase,
            began: Instant::now(),
            counted,
            happened: Happened::Nothing,
        })
    }

    /// Lets the time of the phase pass.
    async fn play(&mut self, screen: &mut Screen) -> anyhow::Result<()> {
        let until = self.began + self.phase.length(self.config.demo.duration);
        loop {
            let left = until.saturating_duration_since(Instant::now());
            screen.frame(&self.frame(left))?;
            if left.is_zero() {
                return Ok(());
            }
            tokio::time::sleep(left.min(screen.pause())).await;
        }
    }

    /// The worker that gives the most answers, once there is one that gives some.
    async fn victim(&self) -> usize {
        let until = Instant::now() + VICTIM_PATIENCE;
        loop {
            let running = self.board.running();
            let most = (0..running.len()).max_by_key(|number| running[*number]).unwrap_or(0);
            if running.get(most).is_some_and(|running| *running > 0) || Instant::now() >= until {
                return most;
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// Kills a worker, in the middle of its answers.
    fn kill(&mut self, worker: usize, screen: &mut Screen) -> anyhow::Result<()> {
        let answering = self.board.running().get(worker).copied().unwrap_or(0);
        self.board.killed(worker);
        self.fleet.kill(worker);
        self.happens(Happened::Killed { worker, answering }, screen)
    }

    /// Adds a worker.
    async fn add(&mut self, screen: &mut Screen) -> anyhow::Result<()> {
        let worker = self.board.running().len();
        let after = self.fleet.add(&self.board).await?;
        self.happens(Happened::Added { worker, after }, screen)
    }

    fn happens(&mut self, happened: Happened, screen: &mut Screen) -> anyhow::Result<()> {
        self.happened = happened;
        screen.say(&story::heading(self.phase, &self.policy, happened, screen.style()))
    }

    /// A phase ends and the next one begins, while people go on.
    fn turn(&mut self, next: Phase, screen: &mut Screen) -> anyhow::Result<Outcome> {
        let counters = self.fleet.counters();
        let outcome = Outcome {
            phase: std::mem::replace(&mut self.phase, next),
            policy: self.policy.clone(),
            took: self.began.elapsed(),
            tally: self.board.turn(),
            counters: counters.since(self.counted),
            happened: std::mem::replace(&mut self.happened, Happened::Nothing),
        };
        self.began = Instant::now();
        self.counted = counters;
        screen.say(&story::summary(&outcome, screen.style()))?;
        Ok(outcome)
    }

    /// Nobody asks any more; who was asked answers. Then all are gone.
    async fn close(mut self, screen: &mut Screen) -> anyhow::Result<Outcome> {
        self.users.hush();
        while !self.users.are_quiet(screen.pause()).await {
            screen.frame(&self.frame(Duration::ZERO))?;
        }
        let outcome = self.turn(self.phase, screen)?;
        self.fleet.end().await?;
        Ok(outcome)
    }

    fn frame(&self, left: Duration) -> Frame {
        let (workers, waiting) = self.board.now();
        let counters = self.fleet.counters().since(self.counted);
        self.board.read(|tally| Frame {
            phase: self.phase,
            elapsed: self.began.elapsed(),
            left,
            workers,
            waiting,
            completed: tally.completed,
            failed: tally.failed,
            cached_share: tally.cached_share(),
            first: times::Times::of(&tally.first),
            counters,
        })
    }
}
