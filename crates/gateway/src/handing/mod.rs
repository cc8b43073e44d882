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

mod legs;
mod terms;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use homing_disagg::{Command, Handoff, Input, Leg, Need, Outcome, Retry, Side, Tried as TriedWorkers, Turn};
use homing_domain::{RankId, RequestId, WorkerId};
use homing_router::{Apart, Question, Turned};
use homing_telemetry::LegKind;
use tokio::sync::{oneshot, watch};
use tokio::task::{AbortHandle, JoinSet};

use crate::booked::{Booked, Half};
use crate::lane::Lane;
use crate::refusal::Refuse;
use crate::sending::{Answer, Failed, Sending, Tried};
use crate::trip::{NoAnswer, Trip};
use crate::worker::Worker;

pub(crate) use terms::require;

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
    /// Who is to blame instead of its worker if that says that it failed.
    instead: Option<WorkerId>,
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
    /// What prefill legs said, and at which workers.
    told: BTreeMap<Leg, (WorkerId, Bytes)>,
    /// Decode workers that were given KV of another one.
    given: BTreeSet<WorkerId>,
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
        let settings = terms::settings(&trip.way.gateway.config.load().disagg, trip.way.until);
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
            given: BTreeSet::new(),
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
        let is_gone = |worker: &WorkerId| {
            table
                .workers
                .get(worker)
                .is_none_or(|worker| worker.is_silent() || worker.is_stalled())
        };
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
                self.way.gateway.metrics.gateway.handoffs.of(terms::label(fate)).add(1);
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
            Outcome::Failed(words) => Begun::Nothing(Trip::failed(Some(
                self.failed.take().unwrap_or_else(|| terms::broken(&words)),
            ))),
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
