//! A request that two workers serve: legs, and who sees to them.
//!
//! What is to be done next is decided by a [`Handoff`]; here it is done. A task of its own drives it, because KV that is on its way has to arrive
//! whether or not the client still waits; the client's side waits for the beginning of an answer, and going away is how it says that it does
//! not wait any more.
//!
//! **Invariant:** whatever a leg held is ended when the task ends: what is booked, room for KV, connections.
//!
//! **Invariant:** the answer that a client gets is that of the decode leg, or of one worker that served everything.
//!
//! Each leg is sent as any request is ([`Sending::try_at`]); what differs is its body ([`homing_protocol::transfer`]).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use homing_disagg::{
    Command, Denial, Fate, Handoff, HandoffSettings, Input, Leg, Means, Need, Outcome, PrefillFailure, Prefilled,
    Reach, Retry, Side, Staged, Tried as TriedWorkers, Turn, With,
};
use homing_domain::{Blocks, RankId, RequestId, Tokens, WorkerId};
use homing_load::End;
use homing_profile::Millis;
use homing_protocol::transfer::{self, Handed, Meets};
use homing_router::{Apart, Question, Turned};
use homing_telemetry::{HandoffFate, LegEnd, LegKind, TryFailure};
use tokio::sync::{oneshot, watch};
use tokio::task::{AbortHandle, JoinSet};

use crate::lane::{Booked, Half, Lane};
use crate::record::{Leg as Part, Try};
use crate::refusal::Refuse;
use crate::sending::{Answer, Arriving, Failed, Sending, Tried};
use crate::timing;
use crate::trip::{NoAnswer, Trip};
use crate::worker::Worker;

/// What a client gets.
#[derive(Debug)]
pub(crate) enum Begun {
    /// An answer.
    Answer(Box<Answer>),
    /// The answer ended with the token that this worker computed with the prompt.
    Ended(WorkerId),
    /// None.
    Nothing(NoAnswer),
}

/// What came of something that was begun.
enum Came {
    Chosen(Turn, Need, Instant, Box<Result<Booked, Turned>>),
    Prefilled(Leg, Tried),
    Decoded(Leg, Tried),
    Fetched(Leg, Tried),
}

/// How often it is looked whether the workers of legs still live.
const LOOK: Duration = Duration::from_secs(1);

/// A leg under way.
struct Under {
    worker: WorkerId,
    task: AbortHandle,
    /// Its place among the tries of the record.
    place: usize,
    began: Instant,
    kind: LegKind,
    turn: Turn,
    /// Whether it meets another one.
    meets: bool,
}

/// One request that two workers may serve.
pub(crate) struct Handing {
    way: Sending,
    lane: Arc<Lane>,
    question: Question,
    deadline: Option<Duration>,
    handoff: Handoff,
    commands: Vec<Command>,
    tasks: JoinSet<Came>,
    choosing: BTreeMap<Turn, AbortHandle>,
    legs: BTreeMap<Leg, Under>,
    /// What is booked: for answers, and for prompts.
    seats: BTreeMap<Turn, Booked>,
    halves: BTreeMap<Turn, Half>,
    /// When each choice was asked for.
    asked: BTreeMap<Turn, Instant>,
    /// What prefill legs said.
    told: BTreeMap<Leg, Bytes>,
    /// The prefill worker that gave the whole answer.
    ended: Option<WorkerId>,
    /// What failed last, and what the router said last.
    failed: Option<Failed>,
    turned: Option<Turned>,
    phase: watch::Receiver<homing_disagg::PoolPhase>,
    client: Option<oneshot::Sender<Begun>>,
}

impl Handing {
    /// Ready when an answer has begun, or there will be none.
    pub(crate) async fn begin(trip: &Trip) -> Begun {
        let (tell, told) = oneshot::channel();
        let settings = settings(&trip.way.gateway.config.load().disagg, trip.way.until);
        let phase = trip.lane.phase();
        let mut commands = Vec::new();
        let now = *phase.borrow();
        let handing = Self {
            way: trip.way.clone(),
            lane: trip.lane.clone(),
            question: trip.question.clone(),
            deadline: trip.deadline,
            handoff: Handoff::begin(settings, now, &mut commands),
            commands,
            tasks: JoinSet::new(),
            choosing: BTreeMap::new(),
            legs: BTreeMap::new(),
            seats: BTreeMap::new(),
            halves: BTreeMap::new(),
            asked: BTreeMap::new(),
            told: BTreeMap::new(),
            ended: None,
            failed: None,
            turned: None,
            phase,
            client: Some(tell),
        };
        trip.lane.adapter_asked(&trip.question);
        tokio::spawn(handing.run());
        let begun = told.await;
        begun.unwrap_or_else(|_| Begun::Nothing(NoAnswer::Refused(Refuse::unavailable("the request was given up"))))
    }

    async fn run(mut self) {
        let mut look = tokio::time::interval(LOOK);
        look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            while !self.commands.is_empty() {
                for command in std::mem::take(&mut self.commands) {
                    self.carry_out(command);
                }
            }
            // An answer that comes is the client's; a prefill leg may still have to end.
            let answering = self.handoff.is_answering() && self.client.is_none();
            if self.handoff.is_over() || (answering && self.tasks.is_empty()) {
                break;
            }
            let timer = self.handoff.next_timer().map(|due| self.way.gateway.clock.instant(due));
            let sleep = async {
                match timer {
                    Some(due) => tokio::time::sleep_until(due.into()).await,
                    None => std::future::pending().await,
                }
            };
            let gone = async {
                match &mut self.client {
                    Some(client) => client.closed().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                Some(came) = self.tasks.join_next() => {
                    // What was cancelled says nothing.
                    if let Ok(came) = came {
                        self.came(came);
                    }
                }
                () = gone => {
                    self.client = None;
                    self.tell(Input::ClientGone);
                }
                () = sleep => self.tell(Input::Tick),
                _ = look.tick() => self.look(),
                changed = self.phase.changed() => {
                    if changed.is_ok() {
                        let phase = *self.phase.borrow_and_update();
                        self.tell(Input::Pool(phase));
                    }
                }
            }
        }
    }

    /// A leg at a worker that does not say that it lives would be waited for until its time is over.
    fn look(&mut self) {
        let table = self.way.gateway.table.load_full();
        let is_gone = |worker: &WorkerId| table.workers.get(worker).is_none_or(|worker| worker.is_silent());
        let gone: BTreeSet<WorkerId> = self.legs.values().map(|under| under.worker).filter(is_gone).collect();
        for worker in gone {
            self.tell(Input::WorkerGone(worker));
        }
    }

    fn tell(&mut self, input: Input) {
        self.handoff.on(self.way.gateway.clock.now(), input, &mut self.commands);
    }

    fn carry_out(&mut self, command: Command) {
        match command {
            Command::Choose { turn, need, tried } => self.choose(turn, need, tried),
            Command::Withdraw { turn } => {
                if let Some(task) = self.choosing.remove(&turn) {
                    task.abort();
                }
            }
            Command::StartPrefill { leg, turn, rank, means } => self.start_prefill(leg, turn, rank, &means),
            Command::StartDecode { leg, turn, rank, with } => self.start_decode(leg, turn, rank, &with),
            Command::Cancel { leg } => {
                if let Some(under) = self.legs.remove(&leg) {
                    under.task.abort();
                    self.way.record.ended(under.place, Some("was cancelled".to_owned()));
                }
            }
            Command::EndSeat { seat, end } => match seat.side {
                // What a leg has with it is ended by the leg.
                Side::Decode => {
                    if let Some(booked) = self.seats.remove(&seat.turn) {
                        booked.end(end, 0, None);
                    }
                }
                Side::Prefill => {
                    if let Some(half) = self.halves.get_mut(&seat.turn) {
                        half.end(end);
                    }
                }
            },
            Command::Settle { turn, fate } => {
                self.way.gateway.metrics.gateway.handoffs.of(label(fate)).add(1);
                if let Some(half) = self.halves.get_mut(&turn) {
                    half.settle(fate);
                }
            }
            Command::Finish(outcome) => self.finish(outcome),
        }
    }

    fn choose(&mut self, turn: Turn, need: Need, tried: TriedWorkers) {
        let mut question = self.question.clone();
        if turn.0 > 0 {
            // The one before it may not have been forgotten yet.
            let id = format!("{}/{}", question.id.as_str(), turn.0);
            question.id = RequestId::new(id.as_str());
        }
        let apart = question.apart.take().map_or_else(Apart::default, |apart| *apart);
        question.apart = Some(Box::new(Apart { need, tried, ..apart }));
        let (lane, asked) = (self.lane.clone(), Instant::now());
        let task = self
            .tasks
            .spawn(async move { Came::Chosen(turn, need, asked, Box::new(lane.route(question).await)) });
        self.choosing.insert(turn, task);
    }

    fn start_prefill(&mut self, leg: Leg, turn: Turn, rank: RankId, means: &Means) {
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
        self.under((leg, rank.worker), (turn, LegKind::Prefill, meets), this, async move {
            let tried = way.try_at(&worker, None, rank).await;
            drop(inside);
            Came::Prefilled(leg, tried)
        });
    }

    fn start_decode(&mut self, leg: Leg, turn: Turn, rank: RankId, with: &With) {
        let result = match with {
            With::ResultOf { leg, .. } | With::OneToken { leg, .. } => self.told.get(leg).cloned().unwrap_or_default(),
            With::Rendezvous(_) | With::Whole => Bytes::new(),
        };
        let Some(worker) = self.worker(rank) else {
            let words = "left".to_owned();
            let reach = Reach::Refused;
            return self.tell(Input::DecodeFailed { leg, reach, words });
        };
        let mut way = self.way.clone();
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
            self.under((leg, rank.worker), (turn, kind, false), this, async move {
                let tried = way.try_at(&worker, None, rank).await;
                booked.end(End::Cancelled, 1, None);
                Came::Fetched(leg, tried)
            });
            return;
        }
        // What of its prompt is cached there says nothing about our view of it: KV that was fetched counts as cached.
        way.counted = way.counted.filter(|_| part == Part::Whole);
        let meets = matches!(with, With::Rendezvous(_));
        self.under((leg, rank.worker), (turn, kind, meets), this, async move {
            Came::Decoded(leg, way.try_at(&worker, Some(booked), rank).await)
        });
    }

    fn under(
        &mut self,
        (leg, worker): (Leg, WorkerId),
        (turn, kind, meets): (Turn, LegKind, bool),
        this: Try,
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
        };
        self.legs.insert(leg, under);
    }

    fn came(&mut self, came: Came) {
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

    fn chosen(&mut self, turn: Turn, need: Need, asked: Instant, told: Result<Booked, Turned>) {
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
    fn left(&mut self, leg: Leg, failed: Option<String>) -> Option<Turn> {
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

    fn prefilled(&mut self, leg: Leg, tried: Tried) {
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

    fn handed(&mut self, leg: Leg, worker: WorkerId, handed: Handed) {
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
            self.told.insert(leg, told);
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

    fn prefill_failed(&mut self, leg: Leg, reach: Reach, failed: Failed) {
        let words = failed.why.clone();
        self.note(&failed);
        self.left(leg, Some(words.clone()));
        self.failed = Some(failed);
        let why = PrefillFailure::Other { reach, words };
        self.tell(Input::PrefillFailed { leg, why });
    }

    fn decoded(&mut self, leg: Leg, tried: Tried) {
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
                let (reach, words) = (reach_of(failed.kind), failed.why.clone());
                self.left(leg, Some(words.clone()));
                self.failed = Some(failed);
                self.tell(Input::DecodeFailed { leg, reach, words });
            }
        }
    }

    fn note(&self, failed: &Failed) {
        self.way.gateway.metrics.gateway.failed_tries.of(failed.kind).add(1);
        let why = self.way.gateway.told(&failed.why);
        tracing::info!(request = %self.question.id, %why, "a leg failed");
    }

    fn finish(&mut self, outcome: Outcome) {
        let begun = match outcome {
            // The answer was passed on when it began.
            Outcome::Left => return,
            Outcome::Served => match self.ended.take() {
                Some(worker) => Begun::Ended(worker),
                None => return,
            },
            Outcome::Refused(denial) => Begun::Nothing(match (self.failed.take(), self.turned.take()) {
                (Some(failed), _) => Trip::failed(Some(failed)),
                (None, Some(turned)) => NoAnswer::Refused(Refuse::turned(&turned, self.deadline)),
                (None, None) => NoAnswer::Refused(match denial.retry {
                    Retry::Soon => Refuse::unavailable(denial.words),
                    Retry::Never => Refuse::wrong(400, denial.words),
                }),
            }),
            Outcome::Failed(words) => {
                Begun::Nothing(Trip::failed(Some(self.failed.take().unwrap_or_else(|| broken(&words)))))
            }
        };
        self.answer(begun);
    }

    fn answer(&mut self, begun: Begun) {
        if let Some(client) = self.client.take() {
            drop(client.send(begun));
        }
    }

    fn worker(&self, rank: RankId) -> Option<Arc<Worker>> {
        self.way.gateway.table.load().workers.get(&rank.worker).cloned()
    }
}

fn settings(disagg: &homing_config::Disagg, until: Instant) -> HandoffSettings {
    let left = until.saturating_duration_since(Instant::now());
    let millis = |time: Duration| Millis(time.min(left).as_secs_f64() * 1e3);
    HandoffSettings {
        require: require(disagg),
        prefill_within: millis(disagg.prefill_timeout),
        begin_within: millis(disagg.begin_timeout),
        drain_within: Millis(disagg.begin_timeout.as_secs_f64() * 1e3),
        lease: Millis(disagg.lease.as_secs_f64() * 1e3),
        ..HandoffSettings::default()
    }
}

/// Whether there must be two.
pub(crate) fn require(disagg: &homing_config::Disagg) -> homing_disagg::Require {
    if disagg.require.is_on() {
        homing_disagg::Require::Yes
    } else {
        homing_disagg::Require::No
    }
}

/// How far a try got that failed so.
fn reach_of(kind: TryFailure) -> Reach {
    match kind {
        TryFailure::Connect | TryFailure::Closed => Reach::Refused,
        _ => Reach::Unknown,
    }
}

fn gone() -> PrefillFailure {
    PrefillFailure::Other {
        reach: Reach::Refused,
        words: "left".to_owned(),
    }
}

fn broken(why: &str) -> Failed {
    Failed {
        why: why.to_owned(),
        kind: TryFailure::Broken,
        said: None,
    }
}

/// Seconds since 1970 as an instant.
fn when(seconds: f64) -> Instant {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let ahead = Duration::try_from_secs_f64(seconds - since.as_secs_f64()).unwrap_or_default();
    Instant::now() + ahead
}

fn label(fate: Fate) -> HandoffFate {
    match fate {
        Fate::NotStaged => HandoffFate::NotStaged,
        Fate::HandedOver => HandoffFate::HandedOver,
        Fate::Drained => HandoffFate::Fetched,
        Fate::Lapses(_) => HandoffFate::Lapsed,
        Fate::Gone => HandoffFate::Gone,
    }
}
