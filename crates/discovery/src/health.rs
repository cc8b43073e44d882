//! May requests be sent to this worker?

use std::time::Duration;

use homing_profile::Time;

/// When a worker is taken for ill, and how it is tried again.
#[derive(Clone, Debug, PartialEq)]
pub struct HealthConfig {
    /// Failures in a row, of requests or of pings, after which it is left out.
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
    /// Trials that must go well before it is up again.
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
    /// It gets no request before `until`.
    Down {
        /// When it is tried again at the latest.
        until: Time,
    },
    /// It gets one request at a time, to see.
    HalfOpen,
}

/// What an active question led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ping {
    /// It is well.
    Answered,
    /// It is not, says so or cannot be reached.
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
    /// Nothing can be said: the client went away.
    Unknown,
}

/// Whether a worker may be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Yes; the pass is given back with the outcome.
    Yes(Pass),
    /// No.
    No,
}

/// As what a request was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// One of many.
    Ordinary,
    /// The one trial that is under way.
    Trial(u64),
}

/// Whether one more worker may be left out because of what requests met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// Yes.
    Left,
    /// No: too many are out already, and perhaps it is us.
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
    state: State,
}

impl Health {
    /// A worker that nobody has complained about. `seed` varies its pauses.
    pub fn new(config: HealthConfig, seed: u64) -> Self {
        let _ = (config, seed);
        Self { state: State::Up }
    }

    /// How it is.
    pub fn state(&self) -> State {
        self.state
    }

    /// Whether [`Health::admit`] would say yes, without asking for it.
    pub fn would_admit(&self, now: Time) -> bool {
        let _ = now;
        todo!()
    }

    /// Whether a request may be sent now.
    pub fn admit(&mut self, now: Time) -> Admission {
        let _ = now;
        todo!()
    }

    /// Takes what an active question led to.
    pub fn ping(&mut self, now: Time, ping: Ping) -> Option<Turn> {
        let _ = (now, ping);
        todo!()
    }

    /// Takes what became of a request that was admitted with `pass`.
    pub fn request(&mut self, now: Time, pass: Pass, outcome: Outcome, room: Room) -> Option<Turn> {
        let _ = (now, pass, outcome, room);
        todo!()
    }
}

impl Room {
    /// Whether there is room if `out` of `all` workers are left out and `most` is the largest share that may be.
    pub fn of(out: usize, all: usize, most: f64) -> Self {
        let _ = (out, all, most);
        todo!()
    }
}
