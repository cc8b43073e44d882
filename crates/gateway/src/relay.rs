//! An answer on its way to the client.
//!
//! What comes from a worker is passed on as it came. Beside it, events are taken apart to learn what was generated and used; only what
//! we asked for and the client did not is taken out again. If the worker fails in the middle of an answer that can go on
//! elsewhere, it does, and the client sees one stream.
//!
//! **Invariant:** an event is passed on whole or not at all, and never twice.
//!
//! **Invariant:** nothing is read from a worker that the client has not taken what came before of: a slow client holds one piece.
//!
//! **Invariant:** however it ends, its flight and its account are ended.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use homing_discovery::{FoundBy, Outcome};
use homing_domain::WorkerId;
use homing_protocol::{AnswerFilter, Elsewhere, Problem};
use homing_telemetry::RequestEnd;
use http_body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep};

use crate::account::{Account, Ending};
use crate::events::Events;
use crate::flight::{CountedTokens, Flight};
use crate::progress::Loss;
use crate::reading::is_events;
use crate::sending::{Answer, Arriving};
use crate::trip::{NoAnswer, Trip};
use homing_platform::HttpConnection;

/// The body of an answer.
pub(crate) enum Reply {
    /// All of it is here.
    Whole(Option<Bytes>),
    /// It comes.
    Stream(Box<Relay>),
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Whole(_) => "Whole",
            Self::Stream(_) => "Stream",
        })
    }
}

impl Reply {
    pub(crate) fn whole(body: impl Into<Bytes>) -> Self {
        Self::Whole(Some(body.into()))
    }
}

impl Body for Reply {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match self.get_mut() {
            Self::Whole(body) => {
                let body = body.take().filter(|body| !body.is_empty());
                Poll::Ready(body.map(|body| Ok(Frame::data(body))))
            }
            Self::Stream(relay) => relay.poll(cx).map(|piece| piece.map(|piece| piece.map(Frame::data))),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(body) => SizeHint::with_exact(body.as_ref().map_or(0, |body| body.len() as u64)),
            Self::Stream(_) => SizeHint::default(),
        }
    }
}

/// Ready when the worker that answers hangs or goes down.
type Lost = Pin<Box<dyn Future<Output = Loss> + Send>>;

type Resuming = Pin<Box<dyn Future<Output = (Box<Trip>, Result<Answer, NoAnswer>)> + Send>>;

/// Where the rest of an answer comes from.
#[expect(clippy::large_enum_variant, reason = "it is what it is nearly all of the time")]
enum From {
    Worker {
        /// Until all of the answer was heard.
        flight: Option<Flight>,
        line: HttpConnection,
    },
    /// Another worker is being looked for.
    Resuming(Resuming),
    Nobody,
}

/// Whether what comes is taken apart.
enum Reading {
    /// Events.
    Events(Box<Events>),
    /// It is passed on as it is.
    Opaque,
}

/// An answer on its way.
pub(crate) struct Relay {
    from: From,
    reading: Reading,
    /// What takes fields of engines out of it.
    filter: Option<AnswerFilter>,
    /// While a worker answers, nobody else needs it.
    trip: Option<Box<Trip>>,
    account: Option<Account>,
    /// Who answers.
    worker: Option<WorkerId>,
    /// Until the stream found that it cannot leave.
    lost: Option<Lost>,
    status: u16,
    /// It broke off, and that cannot be said.
    cut: bool,
    ready: VecDeque<Bytes>,
    /// When the worker has been silent for too long, or the request has taken too long.
    timer: Pin<Box<Sleep>>,
    heard: Instant,
    /// Why the last worker failed.
    why: String,
    silence: Duration,
    until: Instant,
}

impl Relay {
    pub(crate) fn new(trip: Box<Trip>, account: Account, answer: Answer) -> Self {
        let status = answer.head.status.as_u16();
        let silence = trip.way.gateway.config.load().serve.times.silence;
        let events = is_events(&answer.head.headers) && answer.head.status.is_success();
        let reading = if events {
            Reading::Events(Box::new(Events::new(&trip, &answer.flight.worker)))
        } else {
            Reading::Opaque
        };
        let now = Instant::now();
        let until = Instant::from_std(trip.way.until);
        let mut relay = Self {
            from: From::Nobody,
            reading,
            filter: None,
            trip: Some(trip),
            account: Some(account),
            worker: None,
            lost: None,
            status,
            cut: false,
            ready: VecDeque::new(),
            timer: Box::pin(tokio::time::sleep_until((now + silence).min(until))),
            heard: now,
            why: String::new(),
            silence,
            until,
        };
        relay.take_over(answer);
        relay
    }

    fn take_over(&mut self, answer: Answer) {
        let Answer { mut flight, head, body } = answer;
        self.worker = Some(flight.worker.id);
        let gateway = self.trip.as_ref().map(|trip| &trip.way.gateway);
        self.filter = gateway.and_then(|gateway| gateway.answer_filter(&head.headers));
        flight.begin_stream();
        // Only a stream of events can go on elsewhere.
        let watch = flight.watch().filter(|_| matches!(self.reading, Reading::Events(_)));
        self.lost = watch.map(|watch| -> Lost { Box::pin(watch.into_loss()) });
        match body {
            Arriving::Whole(body) => {
                // A stream that was asked to go on was answered in one piece: there is nothing that could be passed on.
                drop((flight, body));
                self.from = From::Nobody;
            }
            Arriving::Pieces { begun, line } => {
                self.from = From::Worker {
                    flight: Some(flight),
                    line,
                };
                for piece in begun {
                    self.piece(piece);
                }
            }
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        loop {
            if let Some(piece) = self.ready.pop_front() {
                return Poll::Ready(Some(Ok(piece)));
            }
            match &mut self.from {
                From::Nobody if self.cut => {
                    // Nothing in it could say that it is not whole, so its connection ends.
                    self.cut = false;
                    return Poll::Ready(Some(Err(io::ErrorKind::UnexpectedEof.into())));
                }
                From::Nobody => return Poll::Ready(None),
                From::Resuming(resuming) => {
                    let (trip, answer) = ready!(resuming.as_mut().poll(cx));
                    self.resumed(trip, answer);
                }
                From::Worker { line, flight } => match line.poll_piece(cx) {
                    Poll::Ready(Some(Ok(piece))) => {
                        self.heard = Instant::now();
                        if let Some(flight) = flight {
                            // What cannot be counted, and what is not understood, shows progress by coming.
                            let is_counted =
                                matches!(&self.reading, Reading::Events(events) if events.ear.chunks() > 0);
                            flight.receive(if is_counted {
                                CountedTokens::Yes
                            } else {
                                CountedTokens::No
                            });
                        }
                        self.piece(piece);
                    }
                    Poll::Ready(Some(Err(error))) => self.broken(Outcome::Reset, &error.to_string()),
                    Poll::Ready(None) => self.ended(),
                    Poll::Pending => {
                        if let Some(flight) = flight {
                            flight.await_token();
                        }
                        ready!(self.wait(cx));
                    }
                },
            }
        }
    }

    /// Waits for the worker to go on. Ready when it has waited for too long.
    fn wait(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while let Some(lost) = &mut self.lost {
            let Poll::Ready(loss) = lost.as_mut().poll(cx) else {
                break;
            };
            self.lost = None;
            if self.leaves(loss) {
                return Poll::Ready(());
            }
        }
        loop {
            ready!(self.timer.as_mut().poll(cx));
            let now = Instant::now();
            if now >= self.until {
                self.broken(Outcome::Unknown, "the request took too long");
                return Poll::Ready(());
            }
            // The timer is set once for many pieces.
            let due = (self.heard + self.silence).min(self.until);
            if now >= due {
                let why = format!("said nothing for {:?}", self.silence);
                self.broken(Outcome::FirstByteTimeout, &why);
                return Poll::Ready(());
            }
            self.timer.as_mut().reset(due);
        }
    }

    /// Lets the answer go on elsewhere when its worker is lost. A stream that cannot stays: the worker may still go on.
    fn leaves(&mut self, loss: Loss) -> bool {
        let Some(mut trip) = self.trip.take() else { return false };
        let is_over = match loss {
            // Requests found that it is ill: this stream has its own evidence.
            Loss::Down(FoundBy::Requests) => false,
            Loss::Down(FoundBy::Pings) => true,
            Loss::Stalled => trip.way.gateway.config.load().health.stall.migrate_streams.is_on(),
        };
        let has_flight = matches!(&self.from, From::Worker { flight: Some(_), .. });
        if !is_over {
            self.watch_again();
        }
        if !is_over || !has_flight || self.resume(&mut trip).is_err() {
            self.trip = Some(trip);
            return false;
        }
        if let From::Worker {
            flight: Some(flight), ..
        } = std::mem::replace(&mut self.from, From::Nobody)
        {
            trip.question.wanted.tried.push(flight.worker.id);
            tracing::info!(
                request = %trip.way.record.id, worker = %flight.worker.name, why = loss.why(), "stream moved from a lost worker"
            );
            flight.failed(Outcome::Unknown);
        }
        trip.way.record.failed(loss.why());
        loss.why().clone_into(&mut self.why);
        self.from = From::Resuming(Box::pin(async move {
            let answer = trip.begin().await;
            (trip, answer)
        }));
        true
    }

    /// A stream that stays with a worker that hangs may leave it when something worse happens to the worker.
    fn watch_again(&mut self) {
        let From::Worker {
            flight: Some(flight), ..
        } = &self.from
        else {
            return;
        };
        self.lost = flight.watch().map(|watch| -> Lost { Box::pin(watch.into_loss()) });
    }

    /// A piece of the answer came.
    fn piece(&mut self, piece: Bytes) {
        let piece = match &mut self.filter {
            Some(filter) => filter.piece(piece),
            None => piece,
        };
        if piece.is_empty() {
            return;
        }
        let Reading::Events(events) = &mut self.reading else {
            self.ready.push_back(piece);
            return;
        };
        match events.pass(piece, &mut self.ready) {
            Ok(()) => {}
            Err(why) => {
                self.broken(Outcome::Reset, &why);
                return;
            }
        }
        let (chunks, done, over) = (events.ear.chunks(), events.done, events.over);
        if chunks > 0 {
            if let Some(account) = &mut self.account {
                account.first_token();
                account.came(events.before + chunks);
            }
            if let From::Worker {
                flight: Some(flight), ..
            } = &mut self.from
            {
                flight.output(chunks);
            }
        }
        if done {
            self.complete();
        }
        if over {
            self.from = From::Nobody;
        }
    }

    /// All of the answer was heard: what is still to come is the end of the connection's turn. Clients go away without waiting for it.
    fn complete(&mut self) {
        let From::Worker { flight, .. } = &mut self.from else {
            return;
        };
        let Some(flight) = flight.take() else { return };
        let (usage, output) = match &self.reading {
            Reading::Opaque => (None, 0),
            Reading::Events(events) => (events.usage, events.ear.chunks()),
        };
        flight.served(usage, output);
        self.close(RequestEnd::Served);
    }

    /// The worker has nothing more to say.
    fn ended(&mut self) {
        let rest = self.filter.as_mut().map(AnswerFilter::rest).unwrap_or_default();
        if matches!(self.reading, Reading::Opaque) && !rest.is_empty() {
            self.ready.push_back(rest);
        }
        let complete = match &self.reading {
            Reading::Opaque => true,
            Reading::Events(events) => events.done || events.finished,
        };
        if !complete {
            self.broken(Outcome::Reset, "ended its answer in the middle");
            return;
        }
        self.complete();
        if let (From::Worker { line, .. }, Some(trip), Some(worker)) =
            (std::mem::replace(&mut self.from, From::Nobody), &self.trip, self.worker)
        {
            trip.way.pool.put_back(worker, line);
        }
    }

    /// The worker failed in the middle of the answer.
    fn broken(&mut self, outcome: Outcome, why: &str) {
        let From::Worker { flight, .. } = std::mem::replace(&mut self.from, From::Nobody) else {
            return;
        };
        // What breaks after all was heard breaks nothing.
        let Some(flight) = flight else { return };
        let worker = flight.worker.clone();
        flight.failed(outcome);
        let Some(mut trip) = self.trip.take() else { return };
        trip.way.record.failed(&trip.way.gateway.told(why));
        why.clone_into(&mut self.why);
        trip.question.wanted.tried.push(worker.id);
        let told = trip.way.gateway.told(why);
        tracing::info!(request = %trip.way.record.id, worker = %worker.name, why = %told, "an answer broke off");
        match self.resume(&mut trip) {
            Ok(()) => {
                self.from = From::Resuming(Box::pin(async move {
                    let answer = trip.begin().await;
                    (trip, answer)
                }));
            }
            Err(why_not) => {
                let message = format!(
                    "the worker failed in the middle of the answer ({why}), which cannot go on elsewhere: {why_not}"
                );
                self.trip = Some(trip);
                self.give_up(&message);
            }
        }
    }

    /// Makes the request that goes on with the answer.
    fn resume(&mut self, trip: &mut Trip) -> Result<(), String> {
        let limits = trip.way.gateway.config.load().serve.retries.clone();
        let Reading::Events(events) = &mut self.reading else {
            return Err("it is no stream of events".to_owned());
        };
        if Instant::now() >= self.until {
            return Err("its time is over".to_owned());
        }
        if events.migrations >= limits.migrations {
            return Err(format!("it has gone on elsewhere {} times", events.migrations));
        }
        let generated = events.before + events.ear.chunks();
        if generated > u64::from(limits.migration_tokens.0) {
            return Err(format!("it has {generated} tokens already"));
        }
        let elsewhere = Elsewhere {
            wanted: trip.wanted,
            model: None,
            context: trip.context,
            prompt: trip.prompt.map(u64::from),
        };
        let so_far = events.so_far.as_mut().map_err(|why| why.to_string())?;
        let resumed = so_far.resume(&elsewhere).map_err(|why| why.to_string())?;
        events.migrations += 1;
        let chunks = u32::try_from(generated).unwrap_or(u32::MAX);
        events.next(resumed.ask.endpoint, resumed.editor, resumed.seam);
        trip.go_on(resumed.ask, resumed.sent, chunks, events.migrations);
        Ok(())
    }

    fn resumed(&mut self, trip: Box<Trip>, answer: Result<Answer, NoAnswer>) {
        self.from = From::Nobody;
        match answer {
            Ok(answer) if answer.head.status.is_success() && matches!(answer.body, Arriving::Pieces { .. }) => {
                trip.way.gateway.metrics.gateway.migrated_answers.add(1);
                self.trip = Some(trip);
                self.heard = Instant::now();
                self.timer.as_mut().reset((self.heard + self.silence).min(self.until));
                self.take_over(answer);
            }
            Ok(answer) => {
                let status = answer.head.status.as_u16();
                self.trip = Some(trip);
                self.give_up(&format!(
                    "the worker failed in the middle of the answer ({}), and another one answered with status {status}",
                    self.why
                ));
            }
            Err(no) => {
                let why = match no {
                    NoAnswer::Refused(refuse) => refuse.problem.message,
                    NoAnswer::Said(head, _) => format!("the last one answered with status {}", head.status.as_u16()),
                };
                self.trip = Some(trip);
                self.give_up(&format!(
                    "the worker failed in the middle of the answer ({}), and no other goes on with it: {why}",
                    self.why
                ));
            }
        }
    }

    /// Ends the answer with an error that says why.
    fn give_up(&mut self, message: &str) {
        if let Some(trip) = &self.trip {
            trip.way.gateway.metrics.gateway.broken_answers.add(1);
            tracing::warn!(request = %trip.way.record.id, "an answer is given up");
            self.cut = matches!(self.reading, Reading::Opaque);
            if !self.cut {
                let problem = Problem::new(502, message);
                self.ready
                    .push_back(problem.event(trip.asked.endpoint, trip.way.record.id.as_str()));
            }
        }
        self.close(RequestEnd::Failed);
    }

    fn close(&mut self, end: RequestEnd) {
        let (usage, output) = match &self.reading {
            Reading::Opaque => (None, 0),
            Reading::Events(events) => (events.total(), events.before + events.ear.chunks()),
        };
        if let Some(account) = self.account.take() {
            account.close(Ending {
                end,
                status: self.status,
                usage,
                output,
            });
        }
    }
}
