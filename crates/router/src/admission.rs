//! Who goes now, and who waits?
//!
//! A request goes while some eligible rank is predicted to begin with it soon; otherwise it waits here. When something changes,
//! those who wait are tried in the order of the queue, with overlaps looked up again.
//!
//! **Invariant:** nobody who asks anew goes before someone who waits and could go.

use homing_domain::Tokens;
use homing_profile::{Millis, Time};
use homing_scheduler::queue::{Can, Waiting};

use crate::bugs::planted;
use crate::core::{Considered, Outlook, Readers, Sight, Space};
use crate::desk::Desk;
use crate::question::{Effect, Question, Turned, Verdict};

/// Requests that might fit if enough of their prompt is in use already are tried in vain so often; those behind them that need
/// that have to wait for the next change, and others do not.
const TRIES: u32 = 4;

/// Whoever has waited so long for room in caches goes without it, to an engine that then keeps room free for the first of those that
/// wait: otherwise small requests could take the room of a large one for ever.
const PATIENCE: Millis = Millis(20_000.0);

impl Desk {
    /// A request wants to go.
    pub(crate) fn ask(&mut self, now: Time, mut question: Question, readers: &Readers, sight: &mut Sight) -> Verdict {
        if planted!(self.core.bug, TriedForgotten) {
            question.wanted.tried.clear();
        }
        let limits = (self.start_within, Space::Counts);
        let mut considered = match self.core.consider_any(now, &question, limits, sight) {
            Ok(considered) => considered,
            Err(turned) => return Verdict::Turned(turned),
        };
        if considered.can_start && !self.queue.is_empty() {
            // Whoever waits goes first: since it was tried last, time has passed. What is left after that is this one's.
            self.admit(now, readers, sight);
            readers.look_up(&question.keys, sight);
            considered = match self.core.consider_any(now, &question, limits, sight) {
                Ok(considered) => considered,
                Err(turned) => return Verdict::Turned(turned),
            };
        }
        if considered.can_start && !self.untried {
            return match self.carry_out(now, &question, considered, sight) {
                Ok(routed) => Verdict::Go(Box::new(routed)),
                Err(turned) => Verdict::Turned(turned),
            };
        }
        if self.core.load.find(&question.id).is_some() {
            return Verdict::Turned(homing_load::LoadError::LiveId(question.id).into());
        }
        match self.park(now, question, &considered) {
            Ok(()) => Verdict::Wait,
            Err(turned) => Verdict::Turned(turned),
        }
    }

    /// Lets the request wait, if there is room.
    fn park(&mut self, now: Time, question: Question, considered: &Considered) -> Result<(), Turned> {
        let decision = considered.computes();
        let chosen = &decision.chosen;
        let cached = self.core.spared(question.prompt, chosen.depths.spared());
        let uncached = Tokens(question.prompt.0 - cached.0);
        let latest = now + self.most_wait;
        let asked = question.deadline.filter(|_| !planted!(self.core.bug, DeadlineIgnored));
        let waiting = Waiting {
            id: question.id.clone(),
            class: question.class,
            tenant: question.tenant,
            priority: question.priority,
            deadline: Some(asked.map_or(latest, |deadline| deadline.min(latest))),
            jump: question.jump,
            prompt: question.prompt,
            uncached,
            since: now,
        };
        // What waits is computed by all that are eligible, before it is this one's turn.
        let rank = self.core.load.rank(chosen.place);
        let token = rank.map_or(0.0, homing_load::RankLoad::token_ms);
        let ahead = self.queue.uncached() as f64 * token / f64::from(decision.eligible.max(1));
        self.queue.put(waiting, Millis(chosen.first_token.0 + ahead))?;
        self.parked.insert(question.id.clone(), question);
        Ok(())
    }

    /// Something changed: whoever can go now goes.
    pub(crate) fn admit(&mut self, now: Time, readers: &Readers, sight: &mut Sight) {
        self.untried = false;
        let mut tries = TRIES;
        let mut sieve = std::mem::take(&mut sight.sieve);
        sieve.renew();
        while !self.queue.is_empty() && self.some_rank_starts(now) {
            let (core, parked, within) = (&self.core, &self.parked, self.start_within);
            let (mut found, mut changed) = (None, None);
            let mut untried = false;
            let taken = self.queue.take(|waiting| {
                let Some(question) = parked.get(&waiting.id) else {
                    return Can::Wait;
                };
                let space = if now.since(waiting.since).0 < PATIENCE.0 {
                    Space::Counts
                } else {
                    Space::Waived
                };
                match core.outlook(now, question, (within, space), &mut sieve) {
                    Outlook::Starts => (),
                    Outlook::Perhaps if tries > 0 => tries -= 1,
                    Outlook::Perhaps => {
                        untried = true;
                        return Can::Wait;
                    }
                    Outlook::Waits => return Can::Wait,
                }
                readers.look_up(&question.keys, sight);
                match core.consider_any(now, question, (within, space), sight) {
                    Ok(considered) if considered.can_start => {
                        found = Some(considered);
                        Can::Go
                    }
                    Ok(considered) => {
                        let spared = considered.computes().chosen.depths.spared();
                        let uncached = Tokens(question.prompt.0 - core.spared(question.prompt, spared).0);
                        if uncached != waiting.uncached {
                            changed = Some((waiting.id.clone(), uncached));
                        }
                        Can::Wait
                    }
                    Err(_) => Can::Wait,
                }
            });
            // What it is charged for, and its place where short ones go first, follow what is cached now.
            if let Some((id, uncached)) = changed {
                self.queue.update(&id, uncached);
            }
            let (Some(taken), Some(considered)) = (taken, found) else {
                self.untried = untried;
                break;
            };
            let Some(question) = self.parked.remove(&taken.id) else {
                continue;
            };
            let effect = match self.carry_out(now, &question, considered, sight) {
                Ok(routed) => Effect::Go {
                    id: taken.id,
                    routed: Box::new(routed),
                },
                Err(why) => Effect::Turned { id: taken.id, why },
            };
            self.effects.push_back(effect);
        }
        sight.sieve = sieve;
    }

    /// Whether any rank at all could begin with something soon. Cheaper than to try.
    fn some_rank_starts(&self, now: Time) -> bool {
        let within = self.start_within.0;
        let starts = |rank: &homing_load::RankLoad| rank.prompts_ahead(now).0 <= within;
        self.core.load.places().any(|(_, rank)| starts(rank))
    }

    /// Those whose time is over go nowhere.
    pub(crate) fn expire(&mut self, now: Time) {
        for gone in self.queue.expire(now) {
            self.parked.remove(&gone.id);
            let why = Turned::Expired(now.since(gone.since));
            if !planted!(self.core.bug, ExpiryUntold) {
                self.effects.push_back(Effect::Turned { id: gone.id, why });
            }
        }
    }
}
