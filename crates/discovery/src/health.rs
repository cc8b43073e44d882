//! May requests be sent to this worker?
//!
//! [`Health`] is a state machine for one worker. It hears what active questions led to ([`Ping`]) and what became of requests
//! ([`Outcome`]), and time is an argument.
//!
//! ```text
//!        a failure             failures in a row, or too large a share
//!   Up ------------> Suspect ------------------------------------------> Down
//!    ^ <------------                                                     |  ^
//!    |   all well again                          the pause is over, or   |  | a trial
//!    |                                           a ping answers again    v  | fails
//!    +------------------------------------------------------------- HalfOpen
//!                  enough trials went well, one at a time
//! ```
//!
//! Pings find a process that is gone; requests find one that takes everything and answers nothing. Therefore a worker that pings
//! found is back as soon as pings answer, while one that requests found must serve a request, however well it answers pings.
//!
//! **Invariant:** no two trials are under way at once. One of which nothing is heard any more is given up after a while.
//!
//! **Invariant:** whatever was heard before, a worker that answers and serves is up after a bounded number of words.
//!
//! **Invariant:** requests take nobody out for whom there is no [`Room`]: when most of the fleet seems ill, it is perhaps us.
//!
//! Cost: constant, no allocation. It does not know other workers, and sends nothing.

use std::time::Duration;

use homing_config::Config;
use homing_profile::{Millis, Time};

mod window;

use window::Window;

/// When a worker is taken for ill, and how it is tried again.
#[derive(Clone, Debug, PartialEq)]
pub struct HealthConfig {
    /// Failures in a row, of requests or of pings, after which it is left out. At least 1.
    pub failures: u32,
    /// The share of failures among the requests of `window` from which on it is left out.
    pub failure_rate: f64,
    /// Over which time that share is taken.
    pub window: Duration,
    /// How many requests there must have been in it.
    pub least_requests: u32,
    /// How long it is left out the first time; twice as long each time, varied a little.
    pub backoff: Duration,
    /// The longest.
    pub backoff_most: Duration,
    /// Trials that must go well before it is up again. At least 1.
    pub trials: u32,
    /// When a trial of which nothing was heard is given up.
    pub trial_limit: Duration,
}

/// How it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Well.
    Up,
    /// Something went wrong lately; it still gets requests.
    Suspect,
    /// It gets no request.
    Down {
        /// When it is tried again at the latest, unless pings go on failing.
        until: Time,
        /// Who found that it is ill.
        found_by: FoundBy,
    },
    /// It gets one request at a time, to see.
    HalfOpen {
        /// Who found that it was ill.
        found_by: FoundBy,
    },
}

/// Who found that a worker is ill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FoundBy {
    /// Active questions.
    Pings,
    /// What became of requests.
    Requests,
}

/// What an active question led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ping {
    /// It is well.
    Answered,
    /// It is not: says so, or cannot be reached.
    Failed,
    /// Nothing came in time.
    TimedOut,
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was answered, with whatever status below 500.
    Served,
    /// No connection.
    Connect,
    /// A status of 500 or above.
    ServerError,
    /// Taken, and nothing came in time.
    FirstByteTimeout,
    /// The answer broke off.
    Reset,
    /// Nothing can be said: the client went away, or another worker is to blame.
    Unknown,
}

/// Whether a request may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Yes. The pass is given back with the outcome.
    Yes(Pass),
    /// No.
    No,
}

/// As what a request was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// One of many.
    Ordinary,
    /// The one trial that is under way. Trials are numbered, so that a late word of one that was given up means nothing.
    Trial(u64),
}

/// Whether one more worker may be left out because of what became of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// Yes.
    Left,
    /// No: too many are out already.
    None,
}

/// A change of state, with its reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// What it was.
    pub from: State,
    /// What it is.
    pub to: State,
    /// Why, in words.
    pub why: &'static str,
}

/// The health of one worker.
#[derive(Clone, Debug)]
pub struct Health {
    config: HealthConfig,
    random: fastrand::Rng,
    state: State,
    /// Requests that failed in a row.
    failed_requests: u32,
    /// Pings that failed in a row.
    failed_pings: u32,
    /// What became of requests lately, while it was up.
    lately: Window,
    /// How often in a row it was left out.
    times_out: u32,
    /// Since when it is up, or was.
    up_since: Time,
    /// The trial under way, and since when.
    trial: Option<(u64, Time)>,
    next_trial: u64,
    good_trials: u32,
}

impl HealthConfig {
    /// As the operator asked for it.
    pub fn of(config: &Config) -> Self {
        let health = &config.health;
        Self {
            failures: health.failures,
            failure_rate: health.failure_rate,
            window: health.window,
            least_requests: health.least_requests,
            backoff: health.backoff,
            backoff_most: health.backoff_most,
            trials: health.trials,
            trial_limit: health.trial_limit,
        }
    }
}

impl Health {
    /// A worker that nobody has complained about. `seed` varies its pauses.
    pub fn new(config: HealthConfig, seed: u64) -> Self {
        Self {
            lately: Window::new(config.window),
            config,
            random: fastrand::Rng::with_seed(seed),
            state: State::Up,
            failed_requests: 0,
            failed_pings: 0,
            times_out: 0,
            up_since: Time::ZERO,
            trial: None,
            next_trial: 0,
            good_trials: 0,
        }
    }

    /// How it is.
    pub fn state(&self) -> State {
        self.state
    }

    /// Whether [`Health::admit`] would say yes.
    pub fn would_admit(&self, now: Time) -> bool {
        match self.state {
            State::Up | State::Suspect => true,
            State::Down { until, .. } => now >= until,
            State::HalfOpen { .. } => !self.is_trying(now),
        }
    }

    /// Whether a request may be sent now. Whoever gets a pass gives it back with [`Health::request`].
    pub fn admit(&mut self, now: Time) -> Admission {
        if !self.would_admit(now) {
            return Admission::No;
        }
        match self.state {
            State::Up | State::Suspect => return Admission::Yes(Pass::Ordinary),
            State::Down { found_by, .. } => self.half_open(found_by),
            State::HalfOpen { .. } => {}
        }
        let number = self.next_trial;
        self.next_trial += 1;
        self.trial = Some((number, now));
        Admission::Yes(Pass::Trial(number))
    }

    /// Takes what an active question led to.
    pub fn ping(&mut self, now: Time, ping: Ping) -> Option<Turn> {
        let from = self.state;
        let why = match ping {
            Ping::Answered => self.ping_answered(now),
            Ping::Failed => self.ping_failed(now, "pings fail"),
            Ping::TimedOut => self.ping_failed(now, "pings are not answered"),
        };
        self.turned(from, why)
    }

    /// Takes what became of a request that was admitted with `pass`.
    pub fn request(&mut self, now: Time, pass: Pass, outcome: Outcome, room: Room) -> Option<Turn> {
        let from = self.state;
        let why = match (pass, failure(outcome)) {
            (Pass::Trial(number), verdict) => self.trial_ended(now, number, verdict),
            (Pass::Ordinary, Verdict::Nothing) => "",
            (Pass::Ordinary, verdict) => self.request_ended(now, verdict, room),
        };
        self.turned(from, why)
    }

    fn ping_answered(&mut self, now: Time) -> &'static str {
        self.failed_pings = 0;
        match self.state {
            State::Up => "",
            State::Suspect => {
                // No requests may come to say that all is well; then the time without failures says it.
                if self.lately.failed(now) == 0 {
                    self.failed_requests = 0;
                }
                self.clear_suspicion(now)
            }
            State::Down { found_by, .. } => match found_by {
                FoundBy::Requests => "",
                FoundBy::Pings => {
                    self.half_open(FoundBy::Pings);
                    self.trial_went_well(now, "it answers pings again")
                }
            },
            State::HalfOpen { found_by } => match found_by {
                FoundBy::Requests => "",
                FoundBy::Pings => self.trial_went_well(now, "it answers pings again"),
            },
        }
    }

    fn ping_failed(&mut self, now: Time, why: &'static str) -> &'static str {
        self.failed_pings = self.failed_pings.saturating_add(1);
        let is_gone = self.failed_pings >= self.config.failures.max(1);
        match self.state {
            State::Up | State::Suspect | State::HalfOpen { .. } if is_gone => self.leave_out(now, FoundBy::Pings, why),
            State::Up | State::Suspect => {
                self.state = State::Suspect;
                why
            }
            // Further pings say the same: it is not tried with a request while they do, nor punished for longer.
            State::Down { until, .. } if is_gone => {
                let pause = self.pause();
                self.state = State::Down {
                    until: until.max(now + pause),
                    found_by: FoundBy::Pings,
                };
                why
            }
            State::Down { .. } => "",
            State::HalfOpen { .. } => {
                self.good_trials = 0;
                ""
            }
        }
    }

    fn request_ended(&mut self, now: Time, verdict: Verdict, room: Room) -> &'static str {
        if !matches!(self.state, State::Up | State::Suspect) {
            // It was sent before it was left out: what it met is known.
            return "";
        }
        let Verdict::Bad(why) = verdict else {
            self.lately.count_served(now);
            self.failed_requests = 0;
            return self.clear_suspicion(now);
        };
        self.lately.count_failed(now);
        self.failed_requests = self.failed_requests.saturating_add(1);
        if self.is_failing(now) && room == Room::Left {
            return self.leave_out(now, FoundBy::Requests, why);
        }
        self.state = State::Suspect;
        why
    }

    fn trial_ended(&mut self, now: Time, number: u64, verdict: Verdict) -> &'static str {
        if self.trial.is_none_or(|(open, _)| open != number) {
            return "";
        }
        // A trial is open only while it is half open.
        self.trial = None;
        match verdict {
            Verdict::Good => self.trial_went_well(now, "trials went well"),
            Verdict::Bad(why) => self.leave_out(now, FoundBy::Requests, why),
            Verdict::Nothing => "",
        }
    }

    fn trial_went_well(&mut self, now: Time, why: &'static str) -> &'static str {
        self.good_trials += 1;
        if self.good_trials >= self.config.trials {
            self.state = State::Up;
            self.up_since = now;
            self.trial = None;
            self.failed_requests = 0;
            self.failed_pings = 0;
            self.lately = Window::new(self.config.window);
        }
        why
    }

    fn clear_suspicion(&mut self, now: Time) -> &'static str {
        let is_well = self.failed_requests == 0 && self.failed_pings == 0 && !self.is_failing(now);
        if self.state == State::Suspect && is_well {
            self.state = State::Up;
        }
        "all is well again"
    }

    fn is_failing(&self, now: Time) -> bool {
        let (failed, all) = (self.lately.failed(now), self.lately.all(now));
        let share = f64::from(failed) / f64::from(all.max(1));
        self.failed_requests >= self.config.failures.max(1)
            || (all >= self.config.least_requests.max(1) && share >= self.config.failure_rate)
    }

    fn is_trying(&self, now: Time) -> bool {
        let limit = millis(self.config.trial_limit);
        self.trial.is_some_and(|(_, since)| now < since + limit)
    }

    fn half_open(&mut self, found_by: FoundBy) {
        self.state = State::HalfOpen { found_by };
        self.trial = None;
        self.good_trials = 0;
    }

    fn leave_out(&mut self, now: Time, found_by: FoundBy, why: &'static str) -> &'static str {
        let was_up = matches!(self.state, State::Up | State::Suspect);
        // Who was well for longer than it was ever left out begins anew.
        if was_up && now.since(self.up_since).0 > millis(self.config.backoff_most).0 {
            self.times_out = 0;
        }
        self.times_out = self.times_out.saturating_add(1);
        self.trial = None;
        let pause = self.pause();
        self.state = State::Down {
            until: now + pause,
            found_by,
        };
        why
    }

    /// How long it is left out this time: between four fifths and six fifths of what it would be, so that workers that failed
    /// together are not tried together.
    fn pause(&mut self) -> Millis {
        let doublings = self.times_out.saturating_sub(1).min(30);
        let pause = millis(self.config.backoff).0 * f64::from(1_u32 << doublings);
        Millis(pause.min(millis(self.config.backoff_most).0) * (0.8 + 0.4 * self.random.f64()))
    }

    fn turned(&self, from: State, why: &'static str) -> Option<Turn> {
        let is_same = match (from, self.state) {
            // A pause that is longer now is no news.
            (State::Down { found_by: was, .. }, State::Down { found_by: is, .. }) => was == is,
            (was, is) => was == is,
        };
        (!is_same).then_some(Turn {
            from,
            to: self.state,
            why,
        })
    }
}

impl Room {
    /// Whether one more may be left out where `out` of `all` workers are, and `most` is the largest share that may be.
    pub fn of(out: usize, all: usize, most: f64) -> Self {
        if (out + 1) as f64 <= most * all as f64 {
            Self::Left
        } else {
            Self::None
        }
    }
}

/// What an outcome says about the worker.
#[derive(Clone, Copy, Debug)]
enum Verdict {
    Good,
    Bad(&'static str),
    Nothing,
}

fn failure(outcome: Outcome) -> Verdict {
    match outcome {
        Outcome::Served => Verdict::Good,
        Outcome::Unknown => Verdict::Nothing,
        Outcome::Connect => Verdict::Bad("it cannot be connected to"),
        Outcome::ServerError => Verdict::Bad("requests fail with a status of 500 or above"),
        Outcome::FirstByteTimeout => Verdict::Bad("it takes requests and does not answer in time"),
        Outcome::Reset => Verdict::Bad("its answers break off"),
    }
}

fn millis(time: Duration) -> Millis {
    Millis(time.as_secs_f64() * 1e3)
}

#[cfg(test)]
mod tests;
