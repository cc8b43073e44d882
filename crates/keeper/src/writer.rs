//! The one thread that writes to an index: takes orders one after the other, and has questions asked.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use homing_domain::RankId;
use homing_feed::{AskId, Command, Feed, Input, Notice};
use homing_telemetry::Metrics;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;

use crate::board::Board;
use crate::clock::Clock;
use crate::flow::{KeptBatches, Room, Window};
use crate::keeper::{Snapshot, View};
use crate::lane::Lanes;
use crate::source::{Source, Trouble, Voice};
use crate::spares::SpareMaker;
use crate::tally::Tally;

/// How often the feed is told that time passed.
const TICK: Duration = Duration::from_millis(100);
/// Orders that are taken at once.
const HANDFUL: usize = 256;
/// Housekeeping of the index after each handful, in its units of about 100 ns.
const HOUSEKEEPING: u32 = 500;

/// What is done to a feed. Whoever does the same to another feed at the same times gets the same index.
#[derive(Clone, Copy, Debug)]
pub enum Told<'a> {
    /// It is told this.
    Input(&'a Input),
    /// Its index is given so much time for housekeeping, in the units of [`homing_index::Index::maintain`].
    Maintain(u32),
}

/// Called with what is done to a feed, and when.
pub type RecordHook = Box<dyn FnMut(u64, Told<'_>) + Send>;
/// Called with what happened to a view, and the feed.
pub type NoticeHook = Box<dyn FnMut(Notice, &Feed) + Send>;
/// Called with the time, and the feed.
pub type TickHook = Box<dyn FnMut(u64, &Feed) + Send>;

/// What else is to be done on the writer's thread. Must be quick.
#[derive(Default)]
pub struct Hooks {
    /// Called with everything that is done to the feed, before it is, and when.
    pub record: Option<RecordHook>,
    /// Called with what happened to the views that readers see, and the feed.
    pub notice: Option<NoticeHook>,
    /// Called a few times per second with the time and the feed, when it has been told that time passed.
    pub tick: Option<TickHook>,
}

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hooks")
    }
}

/// What the writer is asked to do.
pub(crate) enum Order {
    /// Something happened.
    Input(Input),
    /// Something came through a lane, and took room there.
    Received { input: Input, room: Room },
    /// A rank comes.
    Join {
        rank: RankId,
        source: Arc<dyn Source>,
        trouble: Trouble,
        window: Window,
        done: oneshot::Sender<Result<(), homing_index::IndexError>>,
    },
    /// How are things?
    View(oneshot::Sender<View>),
    /// What does this rank hold?
    List(RankId, oneshot::Sender<Option<Snapshot>>),
    /// This rank's engine lives anew.
    Renew(RankId),
}

pub(crate) struct Writer {
    pub(crate) feed: Feed,
    pub(crate) clock: Clock,
    pub(crate) lanes: Lanes,
    /// Where questions are asked.
    pub(crate) runtime: Handle,
    pub(crate) hooks: Hooks,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) tally: Tally,
    pub(crate) sources: HashMap<RankId, (Arc<dyn Source>, Trouble)>,
    pub(crate) asked: HashMap<AskId, AbortHandle>,
    pub(crate) kept: KeptBatches,
    pub(crate) board: Board,
    pub(crate) spares: SpareMaker,
}

impl Writer {
    /// Runs until nobody can give orders any more.
    pub(crate) async fn run(mut self, mut orders: mpsc::Receiver<Order>) {
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        let mut handful = Vec::with_capacity(HANDFUL);
        loop {
            tokio::select! {
                biased;
                _ = tick.tick() => self.tick(),
                taken = orders.recv_many(&mut handful, HANDFUL) => {
                    if taken == 0 {
                        break;
                    }
                    let started = Instant::now();
                    for order in handful.drain(..) {
                        self.take(order);
                    }
                    self.kept.settle(|rank| self.feed.buffered(rank));
                    self.maintain(HOUSEKEEPING);
                    self.board.publish_changes(self.clock.now_ms(), &self.feed);
                    self.metrics.index.write_slice.observe(started.elapsed());
                }
            }
            self.carry_out();
        }
        for (_, task) in self.asked {
            task.abort();
        }
    }

    fn tick(&mut self) {
        self.step(Input::Tick);
        self.kept.settle(|rank| self.feed.buffered(rank));
        self.maintain(HOUSEKEEPING * 10);
        self.asked.retain(|_, task| !task.is_finished());
        let now_ms = self.clock.now_ms();
        self.tally.follow(&self.feed, now_ms, &self.metrics);
        self.board.publish(now_ms, &self.feed);
        if let Some(tick) = &mut self.hooks.tick {
            tick(now_ms, &self.feed);
        }
    }

    fn take(&mut self, order: Order) {
        match order {
            Order::Input(input) => self.step(input),
            Order::Received { input, room } => self.receive(input, room),
            Order::Join {
                rank,
                source,
                trouble,
                window,
                done,
            } => {
                let input = Input::Discovered {
                    rank,
                    source: source.joining().source,
                };
                let now_ms = self.clock.now_ms();
                self.record(now_ms, Told::Input(&input));
                self.board.touched(rank);
                let joined = self.feed.step(now_ms, input);
                if joined.is_ok() {
                    self.sources.insert(rank, (source, trouble));
                    self.kept.joined(rank, window);
                }
                let _ = done.send(joined);
            }
            Order::View(reply) => {
                let _ = reply.send(self.view());
            }
            Order::List(rank, reply) => {
                let _ = reply.send(Snapshot::of(&self.feed, self.clock.now_ms(), rank));
            }
            Order::Renew(rank) => self.renew(rank),
        }
    }

    fn receive(&mut self, input: Input, room: Room) {
        match input {
            Input::Left(rank) => {
                self.sources.remove(&rank);
                self.tally.left(rank);
                self.kept.left(rank);
                self.step(input);
            }
            Input::Heard { rank, .. } => {
                let before = self.feed.buffered(rank);
                self.step(input);
                self.kept.processed(rank, room, self.feed.buffered(rank) > before);
            }
            input => self.step(input),
        }
    }

    fn step(&mut self, input: Input) {
        let now_ms = self.clock.now_ms();
        self.record(now_ms, Told::Input(&input));
        self.board.touched_by(&input);
        if let Err(error) = self.feed.step(now_ms, input) {
            tracing::error!(%error, "a rank was refused");
        }
        if let Some(notice) = &mut self.hooks.notice {
            for happened in self.feed.take_notices() {
                notice(happened, &self.feed);
            }
        }
    }

    fn maintain(&mut self, work: u32) {
        let now_ms = self.clock.now_ms();
        self.record(now_ms, Told::Maintain(work));
        self.feed.maintain(work);
        self.spares.tend();
    }

    fn record(&mut self, now_ms: u64, told: Told<'_>) {
        if let Some(record) = &mut self.hooks.record {
            record(now_ms, told);
        }
    }

    fn carry_out(&mut self) {
        while let Some(command) = self.feed.next_command() {
            match command {
                Command::Ask(ask) => {
                    if let Some((source, _)) = self.sources.get(&ask.rank) {
                        let voice = Voice::new(ask, self.lanes.of(ask.rank).clone());
                        let task = self.runtime.spawn(source.clone().answer(ask, voice));
                        self.asked.insert(ask.id, task.abort_handle());
                        self.metrics.transport.replay_requests.add(1);
                    }
                }
                Command::Cancel(ask) => {
                    if let Some(task) = self.asked.remove(&ask) {
                        task.abort();
                    }
                }
            }
        }
    }

    fn view(&self) -> View {
        let trouble = |rank| self.sources.get(&rank).and_then(|(_, trouble)| trouble.get());
        View::of(&self.feed, self.clock.now_ms(), trouble)
    }

    /// The feed learns it from an identity that it has not seen.
    fn renew(&mut self, rank: RankId) {
        let known = self.feed.status(self.clock.now_ms(), rank);
        if let (Some(status), Some((source, _))) = (known, self.sources.get(&rank)) {
            let mut source = source.joining().source;
            source.identity = status.identity;
            source.identity.engine = source.identity.engine.wrapping_add(1);
            self.step(Input::Discovered { rank, source });
        }
    }
}
