//! What happens right now, and what happened in each phase? Told by users, read by whoever shows it.
//!
//! **Invariant:** every request that began is running, completed, failed, or was given up because the demo ended.
//!
//! **Invariant:** a request is counted in the phase in which it ends.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::client::Heard;
use super::traffic::Asked;

/// For how long something is of now.
const RECENT: Duration = Duration::from_secs(4);
/// How many answers of a worker are looked at for that.
const MOST_RECENT: usize = 256;
/// Of so many answers one is kept to be compared; and how many in all, of each phase.
const KEPT_ONE_OF: u64 = 8;
const MOST_KEPT: usize = 64;
/// Those that went on elsewhere are all kept, up to this number.
const MOST_MOVED: usize = 512;

/// Shared by all who work on the demo.
#[derive(Debug, Default)]
pub struct Board {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    workers: Vec<Worker>,
    /// Requests of which nothing came yet.
    waiting: u32,
    tally: Tally,
}

#[derive(Debug)]
struct Worker {
    url: String,
    alive: bool,
    running: u32,
    served: u64,
    recent: VecDeque<Recent>,
}

#[derive(Debug)]
struct Recent {
    at: Instant,
    prompt: u64,
    cached: u64,
    first: Duration,
}

/// What came of the requests of a phase.
#[derive(Debug, Default)]
pub struct Tally {
    pub completed: u64,
    pub failed: u64,
    /// Tokens of prompts, and those of them that engines had cached, as they say.
    pub prompt_tokens: u64,
    pub cached_tokens: u64,
    /// Each request's time to its first token. There are as many as a fleet of pretended engines answers in ten minutes.
    pub first: Vec<Duration>,
    /// By worker: requests that it served.
    pub served: Vec<u64>,
    /// What is to be compared.
    pub kept: Vec<Kept>,
    /// Why the first of them failed.
    pub failure: Option<String>,
}

/// A question and its answer.
#[derive(Debug)]
pub struct Kept {
    pub asked: Arc<Asked>,
    pub text: String,
    pub way: Way,
}

/// What happened to an answer on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Nothing.
    Undisturbed,
    /// The worker that began it was killed.
    Moved,
}

/// A worker now.
#[derive(Clone, Debug, PartialEq)]
pub struct Now {
    pub alive: bool,
    pub running: u32,
    /// The share of recent prompts that it had cached, and the mean time to their first tokens, if there were some.
    pub recent: Option<(f64, Duration)>,
}

impl Board {
    /// A worker is there. Its number is its place.
    pub fn came(&self, url: &str) {
        let mut state = self.state();
        state.workers.push(Worker {
            url: url.to_owned(),
            alive: true,
            running: 0,
            served: 0,
            recent: VecDeque::new(),
        });
    }

    /// A worker was killed.
    pub fn killed(&self, number: usize) {
        if let Some(worker) = self.state().workers.get_mut(number) {
            worker.alive = false;
        }
    }

    /// What happened since the last time that this was asked: a phase begins.
    pub fn turn(&self) -> Tally {
        let mut state = self.state();
        let mut tally = std::mem::take(&mut state.tally);
        tally.served = state
            .workers
            .iter_mut()
            .map(|worker| std::mem::take(&mut worker.served))
            .collect();
        tally
    }

    /// What happens now.
    pub fn now(&self) -> (Vec<Now>, u32) {
        let mut state = self.state();
        let at = Instant::now();
        let workers = state.workers.iter_mut().map(|worker| worker.now(at)).collect();
        (workers, state.waiting)
    }

    /// Reads the tally of this phase so far.
    pub fn read<T>(&self, read: impl FnOnce(&Tally) -> T) -> T {
        read(&self.state().tally)
    }

    /// How many answers each worker is giving, first tokens behind them.
    pub fn running(&self) -> Vec<u32> {
        self.state().workers.iter().map(|worker| worker.running).collect()
    }

    /// A request begins.
    pub fn open(self: &Arc<Self>) -> Open {
        self.state().waiting += 1;
        Open {
            board: self.clone(),
            worker: None,
            begun: false,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Counts that somebody left half done are as good as any.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Worker {
    fn now(&mut self, at: Instant) -> Now {
        self.recent.retain(|recent| at.duration_since(recent.at) < RECENT);
        let sum = |of: fn(&Recent) -> u64| self.recent.iter().map(of).sum::<u64>() as f64;
        let count = u32::try_from(self.recent.len()).unwrap_or(u32::MAX);
        let first: Duration = self.recent.iter().map(|recent| recent.first).sum();
        Now {
            alive: self.alive,
            running: self.running,
            recent: (count > 0).then(|| (sum(|r| r.cached) / sum(|r| r.prompt).max(1.0), first / count.max(1))),
        }
    }
}

impl Tally {
    /// Tokens of prompts that came from caches, of all.
    pub fn cached_share(&self) -> f64 {
        self.cached_tokens as f64 / self.prompt_tokens.max(1) as f64
    }

    fn keep(&mut self, kept: Kept) {
        let most = match kept.way {
            Way::Moved => MOST_MOVED,
            Way::Undisturbed if self.completed % KEPT_ONE_OF == 1 => MOST_KEPT,
            Way::Undisturbed => return,
        };
        if self.kept.iter().filter(|other| other.way == kept.way).count() < most {
            self.kept.push(kept);
        }
    }
}

/// A request that is under way. When it is dropped without an end it was given up.
#[derive(Debug)]
pub struct Open {
    board: Arc<Board>,
    worker: Option<usize>,
    begun: bool,
}

impl Open {
    /// The first token came, from this worker.
    pub fn begins(&mut self, served_by: &str) {
        let mut state = self.board.state();
        state.waiting -= 1;
        self.begun = true;
        self.worker = state.workers.iter().position(|worker| worker.url == served_by);
        if let Some(worker) = self.worker {
            state.workers[worker].running += 1;
        }
    }

    /// All of it came.
    pub fn ends(self, asked: &Arc<Asked>, heard: &Heard) {
        let mut state = self.board.state();
        let mut way = Way::Undisturbed;
        if let Some(worker) = self.worker.and_then(|number| state.workers.get_mut(number)) {
            worker.served += 1;
            if !worker.alive {
                way = Way::Moved;
            }
            if worker.recent.len() >= MOST_RECENT {
                worker.recent.pop_front();
            }
            worker.recent.push_back(Recent {
                at: Instant::now(),
                prompt: heard.prompt_tokens,
                cached: heard.cached_tokens,
                first: heard.first,
            });
        }
        let tally = &mut state.tally;
        tally.completed += 1;
        tally.prompt_tokens += heard.prompt_tokens;
        tally.cached_tokens += heard.cached_tokens;
        tally.first.push(heard.first);
        tally.keep(Kept {
            asked: asked.clone(),
            text: heard.text.clone(),
            way,
        });
    }

    /// It failed.
    pub fn fails(self, why: &anyhow::Error) {
        let mut state = self.board.state();
        state.tally.failed += 1;
        state.tally.failure.get_or_insert_with(|| format!("{why:#}"));
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let mut state = self.board.state();
        if !self.begun {
            state.waiting -= 1;
        } else if let Some(worker) = self.worker {
            state.workers[worker].running -= 1;
        }
    }
}
