//! Who waits for what the engine says, and what is counted of it?

use homing_domain::{AdapterName, DpRank};
use homing_engine::{Engine, Finish, Outcome, RequestNo, Staged, Time};
use rustc_hash::FxHashMap;
use tokio::sync::mpsc;

use crate::clock::Clock;
use crate::kv::{Errand, Ledger};
use crate::tally::{Over, Tally};

/// The engine, and who listens to it.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) engine: Engine,
    pub(crate) ears: FxHashMap<RequestNo, Ear>,
    pub(crate) next: u64,
    /// By rank.
    pub(crate) tallies: Vec<Tally>,
    /// When this life began, in seconds of Unix time.
    pub(crate) started: f64,
    /// Which number an adapter has in events.
    pub(crate) numbers: FxHashMap<AdapterName, u64>,
    /// Requests that were refused because too many wait.
    pub(crate) refused: u64,
    /// KV for others and from them.
    pub(crate) kv: Ledger,
}

/// Someone who waits for tokens.
#[derive(Debug)]
pub(crate) struct Ear {
    pub(crate) to: mpsc::Sender<Heard>,
    pub(crate) part: u32,
    pub(crate) asked: Time,
    /// When it was first computed, said its first word, and its last so far.
    pub(crate) turn: Option<Time>,
    pub(crate) first: Option<Time>,
    pub(crate) last: Option<Time>,
    /// Where it is computed.
    pub(crate) rank: DpRank,
    pub(crate) generated: u32,
    pub(crate) over: Over,
    /// What is to be done for it besides, until it is begun.
    pub(crate) errand: Errand,
    /// How many tokens of its prompt were cached where it was computed.
    pub(crate) cached_there: Option<u32>,
}

/// What happened to a part of an answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heard {
    pub(crate) part: u32,
    pub(crate) news: News,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// Its prompt is computed; so many tokens came from the cache.
    Admitted { cached: u32 },
    /// A token, and whether it is the last.
    Token(u32, Option<Finish>),
    /// Its blocks stay for another engine. Comes before its last token.
    Staged(Staged),
    /// Its KV did not come from where it is.
    Missed,
    /// It is over without a token.
    Computed,
    /// The engine died.
    Lost,
}

impl State {
    /// Ends a request that nobody listens to any more.
    pub(crate) fn forget(&mut self, id: RequestNo) {
        if let Some(ear) = self.ears.remove(&id) {
            self.engine.cancel(id);
            if let Some(tally) = self.tallies.get_mut(usize::from(ear.rank.0)) {
                tally.aborted += 1;
            }
            self.kv.forget(ear.errand);
        }
    }

    /// Ends a request whose answer is complete, because its text is.
    pub(crate) fn complete(&mut self, id: RequestNo, clock: &Clock) {
        if let Some(ear) = self.ears.remove(&id) {
            self.engine.cancel(id);
            if let Some(tally) = self.tallies.get_mut(usize::from(ear.rank.0)) {
                tally.finished(Finish::Stop, &ear.over(clock));
            }
        }
    }

    pub(crate) fn hand_out(&mut self, outcome: &Outcome, clock: &Clock) {
        let Some(tally) = self.tallies.get_mut(usize::from(outcome.rank.0)) else {
            return;
        };
        tally.expired += outcome.lapsed.len() as u64;
        for admitted in &outcome.admitted {
            tally.prompt_tokens += u64::from(admitted.prompt.0);
            tally.cached_tokens += u64::from(admitted.cached.0);
            tally.taken_tokens += u64::from(admitted.taken.0);
            if let Some(ear) = self.ears.get_mut(&admitted.request) {
                ear.turn.get_or_insert(outcome.started);
                ear.rank = outcome.rank;
                let cached = ear.cached_there.unwrap_or(admitted.cached.0);
                ear.over.cached = cached;
                ear.tell(News::Admitted { cached });
            }
        }
        self.kv.take(outcome, &mut self.ears);
        for staged in &outcome.staged {
            if let Some(ear) = self.ears.get(&staged.request) {
                ear.tell(News::Staged(*staged));
            }
        }
        let computed = outcome.prefilled as f64 + f64::from(outcome.decoded);
        if computed > 0.0 {
            tally.step.observe(computed);
        }
        for preempted in &outcome.preempted {
            if let Some(ear) = self.ears.get_mut(preempted) {
                ear.over.preemptions += 1;
            }
        }
        let last: FxHashMap<RequestNo, Finish> = outcome
            .finished
            .iter()
            .map(|finished| (finished.request, finished.reason))
            .collect();
        for output in &outcome.tokens {
            tally.generation_tokens += 1;
            let Some(ear) = self.ears.get_mut(&output.request) else {
                continue;
            };
            match ear.last.replace(outcome.at) {
                None => {
                    ear.first = Some(outcome.at);
                    tally.first_token.observe(clock.seconds(ear.asked, outcome.at));
                }
                Some(before) => tally.inter_token.observe(clock.seconds(before, outcome.at)),
            }
            ear.generated += 1;
            ear.tell(News::Token(output.token, last.get(&output.request).copied()));
        }
        for finished in &outcome.finished {
            if let Some(mut ear) = self.ears.remove(&finished.request) {
                ear.last = Some(outcome.at);
                tally.finished(finished.reason, &ear.over(clock));
                if finished.generated.0 == 0 {
                    ear.tell(News::Computed);
                }
            }
        }
    }
}

impl Ear {
    /// What became of its request.
    pub(crate) fn over(&self, clock: &Clock) -> Over {
        let last = self.last.unwrap_or(self.asked);
        let (turn, first) = (self.turn.unwrap_or(self.asked), self.first.unwrap_or(last));
        let since = |time| clock.seconds(self.asked, time);
        Over {
            turn: since(turn).min(since(first)),
            first: since(first),
            last: since(last),
            generated: self.generated,
            ..self.over
        }
    }

    pub(crate) fn tell(&self, news: News) {
        // There is room for all of it; who does not listen any more is taken out by its answer's end.
        let _ = self.to.try_send(Heard { part: self.part, news });
    }
}
