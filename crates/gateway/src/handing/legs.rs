//! Legs: what is sent for each, and what came of it.

use std::time::Instant;

use bytes::Bytes;
use homing_disagg::{Denial, Input, Leg, Means, Need, PrefillFailure, Prefilled, Reach, Retry, Staged, Turn, With};
use homing_discovery::Pass;
use homing_domain::{Blocks, RankId, Tokens, WorkerId};
use homing_load::End;
use homing_profile::Millis;
use homing_protocol::transfer::{self, Handed, Meets};
use homing_router::Turned;
use homing_telemetry::{LegEnd, LegKind, TryFailure};

use super::terms::{broken, gone, reach_of, when};
use super::{Begun, Came, Handing, Under};
use crate::booked::Booked;
use crate::record::{Leg as Part, Try};
use crate::refusal::Refuse;
use crate::sending::{Answer, Arriving, Failed, Laid, Tried};
use crate::timing;
use crate::trip::NoAnswer;

impl Handing {
    pub(super) fn start_prefill(&mut self, leg: Leg, turn: Turn, rank: RankId, means: &Means) {
        let (Some(worker), Some(half)) = (self.worker(rank), self.halves.get(&turn)) else {
            return self.tell(Input::PrefillFailed { leg, why: gone() });
        };
        let asked = self.asked.get(&turn).copied().unwrap_or_else(Instant::now);
        let why = self.seats.get(&turn).and_then(Booked::why);
        let this = timing::prefill(&worker, half, (why, asked));
        let mut way = self.way.clone();
        way.sent = match means {
            Means::ByResult => transfer::prefill(&way.sent),
            Means::Rendezvous(meeting) => {
                transfer::meeting(&way.sent, Meets::Prefill, (&meeting.host, meeting.port, meeting.room))
            }
        };
        let meets = matches!(means, Means::Rendezvous(_));
        // Its adapter stays where it is as long as it is used.
        let inside = self.lane.adapter_enter(worker.id, self.question.adapter.as_ref());
        self.under(
            (leg, rank.worker),
            (turn, LegKind::Prefill, meets),
            (this, None),
            async move {
                let tried = way.try_at(&worker, None, rank).await;
                drop(inside);
                Came::Prefilled(leg, tried)
            },
        );
    }

    pub(super) fn start_decode(&mut self, leg: Leg, turn: Turn, rank: RankId, with: &With) {
        let told = match with {
            With::ResultOf { leg, .. } | With::OneToken { leg, .. } => self.told.get(leg).cloned(),
            With::Rendezvous(_) | With::Whole => None,
        };
        let (maker, result) = told.map_or((None, Bytes::new()), |(maker, result)| (Some(maker), result));
        let Some(worker) = self.worker(rank) else {
            let words = "left".to_owned();
            let reach = Reach::Refused;
            return self.tell(Input::DecodeFailed { leg, reach, words });
        };
        let mut way = self.way.clone();
        // A worker that cannot go on with the KV of another is perhaps well; one that cannot with that of two is not.
        if *with != With::Whole && self.given.insert(rank.worker) {
            way.laid = Laid::ToAnother;
        }
        let instead = maker.filter(|_| way.laid == Laid::ToAnother);
        let (part, kind) = match with {
            With::ResultOf { .. } => {
                way.sent = transfer::decode(&way.sent, &result);
                (Part::Decode, LegKind::Decode)
            }
            With::OneToken { .. } => {
                way.sent = transfer::fetch(&way.sent, &result);
                (Part::Fetch, LegKind::Fetch)
            }
            With::Rendezvous(meeting) => {
                way.sent = transfer::meeting(&way.sent, Meets::Decode, (&meeting.host, meeting.port, meeting.room));
                (Part::Decode, LegKind::Decode)
            }
            With::Whole => (Part::Whole, LegKind::Whole),
        };
        if let With::ResultOf { turn, .. } | With::OneToken { turn, .. } = with
            && let Some(half) = self.halves.get(turn)
        {
            half.moving(rank);
        }
        let asked = self.asked.get(&turn).copied().unwrap_or_else(Instant::now);
        let Some(mut booked) = self.seats.remove(&turn) else {
            let (reach, words) = (Reach::Refused, "its place was given away".to_owned());
            return self.tell(Input::DecodeFailed { leg, reach, words });
        };
        let inside = self.lane.adapter_enter(worker.id, self.question.adapter.as_ref());
        booked.inside = inside.ok().flatten();
        let this = Try::new(&worker, part, &booked, asked);
        timing::routed(
            &self.way.gateway,
            &self.way.record,
            worker.spec.role,
            &this,
            booked.took,
        );
        if part == Part::Fetch {
            self.under((leg, rank.worker), (turn, kind, false), (this, instead), async move {
                let tried = way.try_at(&worker, None, rank).await;
                booked.end(End::Cancelled, 1, None);
                Came::Fetched(leg, tried)
            });
            return;
        }
        // What of its prompt is cached there says nothing about our view of it: KV that was fetched counts as cached.
        way.counted = way.counted.filter(|_| part == Part::Whole);
        let meets = matches!(with, With::Rendezvous(_));
        self.under((leg, rank.worker), (turn, kind, meets), (this, instead), async move {
            Came::Decoded(leg, way.try_at(&worker, Some(booked), rank).await)
        });
    }

    pub(super) fn under(
        &mut self,
        (leg, worker): (Leg, WorkerId),
        (turn, kind, meets): (Turn, LegKind, bool),
        (this, instead): (Try, Option<WorkerId>),
        task: impl Future<Output = Came> + Send + 'static,
    ) {
        let under = Under {
            worker,
            place: self.way.record.tried(this),
            task: self.tasks.spawn(task),
            began: Instant::now(),
            kind,
            turn,
            meets,
            instead,
        };
        self.legs.insert(leg, under);
    }

    pub(super) fn came(&mut self, came: Came) {
        match came {
            Came::Chosen(turn, need, asked, told) => self.chosen(turn, need, asked, *told),
            Came::Prefilled(leg, tried) => self.prefilled(leg, tried),
            Came::Decoded(leg, tried) => self.decoded(leg, tried),
            Came::Fetched(leg, tried) => {
                let (words, ok) = match tried {
                    Tried::Answered(answer) => (answer.head.status.to_string(), answer.head.status.is_success()),
                    Tried::Failed(failed) => (failed.why, false),
                };
                self.left(leg, (!ok).then(|| words.clone()));
                let reach = Reach::Unknown;
                self.tell(if ok {
                    Input::DecodeDone { leg }
                } else {
                    Input::DecodeFailed { leg, reach, words }
                });
            }
        }
    }

    pub(super) fn chosen(&mut self, turn: Turn, need: Need, asked: Instant, told: Result<Booked, Turned>) {
        self.choosing.remove(&turn);
        match told {
            Ok(mut booked) => {
                let choice = booked.routed.choice(need, fastrand::u64(..));
                if let Some(half) = booked.half.take() {
                    self.halves.insert(turn, half);
                }
                self.asked.insert(turn, asked);
                self.seats.insert(turn, booked);
                self.tell(Input::Chosen { turn, choice });
            }
            Err(turned) => {
                let refuse = Refuse::turned(&turned, self.deadline);
                let retry = if refuse.retry_after.is_some() {
                    Retry::Soon
                } else {
                    Retry::Never
                };
                let why = Denial {
                    retry,
                    words: turned.to_string(),
                };
                self.turned = Some(turned);
                self.tell(Input::Nowhere { turn, why });
            }
        }
    }

    /// A leg is not under way any more.
    pub(super) fn left(&mut self, leg: Leg, failed: Option<String>) -> Option<Turn> {
        let under = self.legs.remove(&leg)?;
        let metrics = &self.way.gateway.metrics.gateway;
        let end = if failed.is_none() {
            LegEnd::Answered
        } else {
            LegEnd::Failed
        };
        metrics.legs.of(under.kind).of(end).add(1);
        metrics.leg_duration.of(under.kind).observe(under.began.elapsed());
        let failed = failed.map(|why| self.way.gateway.told(&why).into_owned());
        self.way.record.ended(under.place, failed);
        Some(under.turn)
    }

    pub(super) fn prefilled(&mut self, leg: Leg, tried: Tried) {
        let answer = match tried {
            Tried::Answered(answer) => *answer,
            Tried::Failed(failed) => {
                let reach = reach_of(failed.kind);
                return self.prefill_failed(leg, reach, failed);
            }
        };
        let Answer { flight, head, body } = answer;
        let worker = flight.worker.id;
        let Arriving::Whole(body) = body else {
            flight.failed(homing_discovery::Outcome::Reset);
            return self.prefill_failed(leg, Reach::Unknown, broken("answered with a stream"));
        };
        if head.status.is_client_error() {
            // It is the request that is wrong: nobody else would take it either.
            flight.served(None, 0);
            self.answer(Begun::Nothing(NoAnswer::Said(Box::new(head), body)));
            let words = "refused the request".to_owned();
            self.left(leg, Some(words.clone()));
            self.tell(Input::ClientGone);
            let why = PrefillFailure::Other {
                reach: Reach::Refused,
                words,
            };
            return self.tell(Input::PrefillFailed { leg, why });
        }
        let Some(handed) = transfer::handed(self.way.ask.endpoint, &body) else {
            flight.failed(homing_discovery::Outcome::ServerError);
            return self.prefill_failed(leg, Reach::Unknown, broken("gave an answer that cannot be understood"));
        };
        flight.served(None, 1);
        self.handed(leg, worker, handed);
    }

    pub(super) fn handed(&mut self, leg: Leg, worker: WorkerId, handed: Handed) {
        let under = self.legs.get(&leg).map(|under| (under.turn, under.meets));
        let half = under.and_then(|(turn, _)| self.halves.get_mut(&turn));
        let meets = under.is_some_and(|(_, meets)| meets);
        let lease = Millis(self.way.gateway.config.load().disagg.lease.as_secs_f64() * 1e3);
        let clock = &self.way.gateway.clock;
        let staged = handed.told.as_ref().map(|_| Staged {
            blocks: Blocks(handed.blocks),
            expires: Some(handed.expires.map_or(clock.now() + lease, |at| clock.at(when(at)))),
        });
        if let Some(half) = half {
            if let Some(usage) = handed.usage {
                self.way.gateway.metrics.gateway.prompt_tokens.add(usage.prompt);
                let cached = usage
                    .cached
                    .map(|cached| Tokens(u32::try_from(cached).unwrap_or(u32::MAX)));
                let same = self
                    .way
                    .counted
                    .is_some_and(|counted| u64::from(counted) == usage.prompt);
                half.told = cached.filter(|_| same);
                self.way
                    .gateway
                    .metrics
                    .gateway
                    .cached_tokens
                    .add(usage.cached.unwrap_or(0));
                if same && let Some(worker) = self.way.gateway.table.load().workers.get(&worker) {
                    worker.truth.saw(usage.prompt, half.cached, cached);
                }
            }
            if let Some(staged) = &staged {
                half.staged(staged);
            }
        }
        if let Some(told) = handed.told {
            self.told.insert(leg, (worker, told));
        }
        self.left(leg, None);
        let result = match (staged, handed.ended) {
            // What it staged was read by the other leg, whose answer is the answer.
            _ if meets => Prefilled::Staged(Staged {
                blocks: Blocks(0),
                expires: None,
            }),
            (Some(staged), false) => Prefilled::Staged(staged),
            (staged, true) => {
                self.ended = Some(worker);
                Prefilled::Answered(staged)
            }
            (None, false) => {
                let failed =
                    broken("computed the prompt, and did not say how its KV is to be fetched: it has no connector");
                return self.prefill_failed(leg, Reach::Unknown, failed);
            }
        };
        self.tell(Input::PrefillDone { leg, result });
    }

    pub(super) fn prefill_failed(&mut self, leg: Leg, reach: Reach, failed: Failed) {
        let words = failed.why.clone();
        self.note(&failed);
        self.left(leg, Some(words.clone()));
        self.failed = Some(failed);
        let why = PrefillFailure::Other { reach, words };
        self.tell(Input::PrefillFailed { leg, why });
    }

    pub(super) fn decoded(&mut self, leg: Leg, tried: Tried) {
        match tried {
            Tried::Answered(answer) => {
                if let Some(under) = self.legs.get(&leg) {
                    self.way.record.began(under.place, answer.form());
                    let metrics = &self.way.gateway.metrics.gateway;
                    metrics.legs.of(under.kind).of(LegEnd::Answered).add(1);
                    metrics.leg_duration.of(under.kind).observe(under.began.elapsed());
                }
                self.legs.remove(&leg);
                self.tell(Input::DecodeBegan { leg });
                // Whoever does not wait any more drops it, and so ends it.
                self.answer(Begun::Answer(answer));
            }
            Tried::Failed(failed) => {
                self.note(&failed);
                if failed.kind == TryFailure::Status {
                    self.lay_to_another(leg);
                }
                let (reach, words) = (reach_of(failed.kind), failed.why.clone());
                self.left(leg, Some(words.clone()));
                self.failed = Some(failed);
                self.tell(Input::DecodeFailed { leg, reach, words });
            }
        }
    }

    /// Tells the health of the worker whose KV it was: who computes prompts that nobody can go on with is left out in the end.
    fn lay_to_another(&self, leg: Leg) {
        let instead = self.legs.get(&leg).and_then(|under| under.instead);
        let table = self.way.gateway.table.load();
        if let Some(worker) = instead.and_then(|worker| table.workers.get(&worker)) {
            self.way
                .gateway
                .outcome(worker, Pass::Ordinary, homing_discovery::Outcome::ServerError);
        }
    }

    pub(super) fn note(&self, failed: &Failed) {
        self.way.gateway.metrics.gateway.failed_tries.of(failed.kind).add(1);
        let why = self.way.gateway.told(&failed.why);
        tracing::info!(request = %self.question.id, %why, "a leg failed");
    }
}
