//! What is there of one rank for those who ask?
//!
//! The index's writer puts batches on the shelf as it applies them; whoever watches takes them from there, at its own
//! speed, and holds nothing itself. The shelf also knows who speaks: the incarnation ([`crate::life`]) and the *epoch*,
//! which begins at random with the process and changes whenever the view was replaced or emptied otherwise than by the
//! batches of its stream.
//!
//! **Invariant:** what is read at once belongs together: everything is under one lock, and the writer changes the shelf
//! between two changes of the index. Whoever finds the same [`Generation`] before and after something else happened knows
//! that identity and stream were the same all the while.
//!
//! **Invariant:** the lock is held for the copying of a few handles, or of one batch; never across an await.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use homing_config::HttpUrl;
use homing_domain::{Digest, KeyHasher, KvBatch, RankId, Sequence};
use homing_feed::{RankStatus, State, Why};
use homing_keeper::Subject;
use homing_telemetry::Metrics;
use homing_wire::frame::{FrameWriter, Heartbeat, Position};
use thiserror::Error;
use tokio::sync::Notify;

use crate::life::{Before, Life, Outcome, Question, Testimony};
use crate::ring::{Lost, Mark, Ring, RingLimits, RingSize};

/// How many bytes one reading takes from the ring, unless a single batch is longer.
const READING: usize = 256 << 10;

/// Whose shelf it is.
#[derive(Clone, Debug)]
pub struct Owner {
    /// The rank.
    pub rank: RankId,
    /// The address of its worker.
    pub worker: HttpUrl,
    /// The index that it is in.
    pub subject: Subject,
}

/// Changes whenever those who watch must begin anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Generation(u64);

/// What one rank offers.
#[derive(Debug)]
pub struct Shelf {
    owner: Owner,
    frames: FrameWriter,
    metrics: Arc<Metrics>,
    /// Written by the index's writer and the witness, read by those who are served.
    shelved: Mutex<Shelved>,
    /// Told after every change that those who watch may wait for.
    changed: Notify,
    /// Told when there is something for the witness to do.
    asked: Notify,
}

#[derive(Debug)]
struct Shelved {
    ring: Ring,
    /// The last batch in the view. The ring may be empty all the same.
    position: Option<Position>,
    life: Life,
    epoch: u64,
    generation: u64,
    /// Whether the view was verified a short while ago.
    vouched: Vouched,
    /// The newest batch that did not go onto the shelf, while the view is built anew: it may be the last of what is built.
    unshelved: Option<KvBatch>,
    /// Where batches are encoded.
    scratch: Vec<u8>,
    /// What the metrics were told.
    told: RingSize,
    /// Whether the feed must be told that the engine lives anew. Taken by the witness.
    wants_renewal: bool,
    is_closed: bool,
}

/// What the witness is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Errand {
    /// Ask the engine when it was started.
    Ask(Question),
    /// Tell the feed that the engine lives anew.
    Renew,
}

/// Whether the view is verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Vouched {
    Yes,
    No(&'static str),
}

/// Who speaks, and where it is.
#[derive(Clone, Copy, Debug)]
pub struct Standing {
    /// Of which generation this is true.
    pub generation: Generation,
    /// Incarnation, epoch, position.
    pub beat: Heartbeat,
    /// The oldest batch in the ring.
    pub oldest: Option<Position>,
}

/// What a watch begins with.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Where it goes on.
    pub mark: Mark,
    /// Where what was asked for ends, if something was.
    pub until: Option<Mark>,
    /// Who speaks, and where it was then.
    pub standing: Standing,
}

/// What a watch is told next.
#[derive(Debug)]
pub enum Reading {
    /// Frames, and where to go on.
    Frames(Vec<Bytes>, Mark),
    /// All was read. This is where the stream is; the frame vouches for it if the agent does.
    AllRead(Bytes),
    /// What was read does not go on.
    Ended,
    /// The reader was slower than the ring is long.
    TooSlow,
}

/// What is asked of a watch beyond what comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    /// Only what comes.
    Now,
    /// Everything from this number on.
    Sequence(Sequence),
}

/// Whether a watch goes on when what was asked for has been sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Follow {
    /// It does.
    Yes,
    /// It does not.
    No,
}

/// Why something cannot be served.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    /// Not now.
    #[error("this rank cannot be served now: {0}")]
    NotReady(&'static str),
    /// What was asked for could only be confirmed, and it cannot.
    #[error("nothing new is known of this rank, and whether that is still so cannot be said: {0}")]
    NotVerified(&'static str),
    /// The ring has lost it.
    #[error("batch {from} is no longer here: {}; take a list", .oldest.map_or("none is".to_owned(), |at| format!("the oldest is {}", at.sequence)))]
    Gone {
        /// What was asked for.
        from: Sequence,
        /// The oldest there is.
        oldest: Option<Position>,
    },
    /// It is not there yet.
    #[error("batch {from} has not come yet: {}", .newest.map_or("none has".to_owned(), |at| format!("the newest is {}", at.sequence)))]
    Beyond {
        /// What was asked for.
        from: Sequence,
        /// The newest there is.
        newest: Option<Position>,
    },
}

impl Shelf {
    /// An empty one.
    pub fn new(owner: Owner, hasher: &KeyHasher, limits: RingLimits, metrics: Arc<Metrics>) -> Self {
        Self {
            owner,
            frames: FrameWriter::new(hasher),
            metrics,
            shelved: Mutex::new(Shelved {
                ring: Ring::new(limits),
                position: None,
                life: Life::new(),
                epoch: fastrand::u64(..),
                generation: 0,
                vouched: Vouched::No("it was not connected to yet"),
                unshelved: None,
                scratch: Vec::new(),
                told: RingSize::default(),
                wants_renewal: false,
                is_closed: false,
            }),
            changed: Notify::new(),
            asked: Notify::new(),
        }
    }

    /// Whose it is.
    pub fn owner(&self) -> &Owner {
        &self.owner
    }

    fn shelved(&self) -> MutexGuard<'_, Shelved> {
        self.shelved.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // ---- the writer's side ----

    /// A batch was heard. Whether it will be applied is not known yet.
    pub(crate) fn heard(&self, batch: &KvBatch) {
        let mut shelved = self.shelved();
        let follows = shelved.position.map(|at| at.sequence.next()) == Some(batch.sequence);
        let is_newer = |known: &KvBatch| known.sequence <= batch.sequence;
        if !follows && shelved.unshelved.as_ref().is_none_or(is_newer) {
            shelved.unshelved = Some(batch.clone());
        }
    }

    /// A connection to the engine stands.
    pub(crate) fn connected(&self) {
        let mut shelved = self.shelved();
        let before = match shelved.position {
            Some(_) => Before::Something,
            None => Before::Nothing,
        };
        shelved.life.connected(before);
        shelved.vouched = Vouched::No("it was not verified yet over the present connection");
        shelved.unshelved = None;
        shelved.begin_anew();
        drop(shelved);
        self.changed.notify_waiters();
        self.asked.notify_one();
    }

    /// It is gone.
    pub(crate) fn disconnected(&self) {
        let mut shelved = self.shelved();
        shelved.life.disconnected();
        shelved.vouched = Vouched::No(Why::Disconnected.words());
        shelved.begin_anew();
        drop(shelved);
        self.changed.notify_waiters();
    }

    /// A batch was applied to the view.
    pub(crate) fn applied(&self, batch: &KvBatch) {
        let mut shelved = self.shelved();
        let at = position((batch.sequence, batch.digest));
        match shelved.ring.newest() {
            // The view was replaced in the same step, and the batch was put there with it.
            Some(newest) if newest == at => return,
            // Cannot be, and if it is, what comes does not continue what was.
            Some(newest) if newest.sequence >= at.sequence => shelved.change_epoch(),
            _ => {}
        }
        shelved.put(batch, self.frames);
        shelved.tell(&self.metrics);
        drop(shelved);
        self.changed.notify_waiters();
    }

    /// The view was replaced or emptied: it is at this position now, and the feed has counted so many restarts.
    pub(crate) fn replaced(&self, at: Option<(Sequence, Digest)>, restarts: u64) {
        let mut shelved = self.shelved();
        let question = shelved.life.question();
        shelved.life.replaced(restarts);
        let is_asked = shelved.life.question() != question;
        shelved.change_epoch();
        shelved.position = at.map(position);
        // So that a router which took a list right here can show later that it did.
        let last = shelved.unshelved.take();
        if let Some(last) = last.filter(|batch| at == Some((batch.sequence, batch.digest))) {
            shelved.put(&last, self.frames);
        }
        shelved.tell(&self.metrics);
        drop(shelved);
        self.changed.notify_waiters();
        if is_asked {
            self.asked.notify_one();
        }
    }

    /// Time passed: this is how good the view is.
    pub(crate) fn ticked(&self, status: &RankStatus) {
        let (vouched, is_verified) = match status.state {
            State::Live | State::Warming => (Vouched::Yes, true),
            State::Repairing => (Vouched::No("something is missing and is being fetched"), false),
            State::Stale { why, .. } => (Vouched::No(why.words()), why == Why::Silent),
        };
        let mut shelved = self.shelved();
        shelved.vouched = vouched;
        if is_verified {
            let outcome = shelved.life.verified();
            self.settled(shelved, outcome);
        }
    }

    // ---- the witness's side ----

    /// Waits for something to do. Questions up to `answered` are done.
    pub(crate) async fn errand(&self, answered: Option<Question>) -> Errand {
        loop {
            if let Some(errand) = self.next_errand(answered) {
                return errand;
            }
            // One permit is kept, so that what came since we looked is not missed.
            self.asked.notified().await;
        }
    }

    fn next_errand(&self, answered: Option<Question>) -> Option<Errand> {
        let mut shelved = self.shelved();
        if std::mem::take(&mut shelved.wants_renewal) {
            return Some(Errand::Renew);
        }
        let question = shelved.life.question()?;
        (Some(question) > answered).then_some(Errand::Ask(question))
    }

    /// The question that is open.
    pub(crate) fn question(&self) -> Option<Question> {
        self.shelved().life.question()
    }

    /// The witness answers.
    pub(crate) fn testify(&self, question: Question, testimony: Testimony) {
        let mut shelved = self.shelved();
        let outcome = shelved.life.testified(question, testimony);
        self.settled(shelved, outcome);
    }

    fn settled(&self, mut shelved: MutexGuard<'_, Shelved>, outcome: Outcome) {
        if outcome == Outcome::Nothing {
            return;
        }
        shelved.wants_renewal |= outcome == Outcome::Renew;
        shelved.begin_anew();
        drop(shelved);
        self.changed.notify_waiters();
        self.asked.notify_one();
    }

    // ---- the side of those who are served ----

    /// Who speaks, and where it is; or why nobody does.
    pub fn standing(&self) -> Result<Standing, Refusal> {
        self.shelved().standing()
    }

    /// Whether a generation is the present one.
    pub fn is_current(&self, generation: Generation) -> bool {
        self.shelved().generation == generation.0
    }

    /// Begins to watch.
    pub fn watch(&self, from: From, follow: Follow) -> Result<Place, Refusal> {
        let shelved = self.shelved();
        let standing = shelved.standing()?;
        let end = shelved.ring.end();
        let From::Sequence(from) = from else {
            return Ok(Place {
                mark: end,
                until: None,
                standing,
            });
        };
        let newest = shelved.position;
        match newest {
            // The stream has not begun: its beginning is what comes.
            None if from == Sequence(0) => {}
            Some(newest) if from <= newest.sequence => {}
            _ => return Err(Refusal::Beyond { from, newest }),
        }
        if let (Follow::No, Vouched::No(why)) = (follow, shelved.vouched)
            && newest.is_none_or(|newest| newest.sequence == from)
        {
            return Err(Refusal::NotVerified(why));
        }
        let mark = match newest {
            None => end,
            Some(_) => shelved.ring.find(from).ok_or(Refusal::Gone {
                from,
                oldest: shelved.ring.oldest(),
            })?,
        };
        Ok(Place {
            mark,
            until: Some(end),
            standing,
        })
    }

    /// What comes next for a reader at this place; no further than `until`.
    pub(crate) fn read(&self, place: &Place) -> Reading {
        let shelved = self.shelved();
        if shelved.generation != place.standing.generation.0 {
            return Reading::Ended;
        }
        match shelved.ring.read(place.mark, READING) {
            Err(Lost) => Reading::TooSlow,
            Ok((frames, next)) if !frames.is_empty() => Reading::Frames(frames, next),
            Ok(_) => {
                let beat = Heartbeat {
                    position: shelved.position,
                    ..place.standing.beat
                };
                Reading::AllRead(match shelved.vouched {
                    Vouched::Yes => self.beat(&beat),
                    Vouched::No(_) => self.end_of_replay(&beat),
                })
            }
        }
    }

    /// A frame that says who speaks and where it is.
    pub(crate) fn beat(&self, beat: &Heartbeat) -> Bytes {
        let mut out = Vec::new();
        // A frame of a few bytes is never too long.
        let _ = self.frames.heartbeat(beat, &mut out);
        out.into()
    }

    /// A frame that says that what was asked for has been sent.
    pub(crate) fn end_of_replay(&self, beat: &Heartbeat) -> Bytes {
        let mut out = Vec::new();
        // A frame of a few bytes is never too long.
        let _ = self.frames.end_of_replay(beat, &mut out);
        out.into()
    }

    /// Waits until something changed since this was called first and polled.
    pub(crate) fn changed(&self) -> tokio::sync::futures::Notified<'_> {
        self.changed.notified()
    }

    /// Ends every watch, and begins no more.
    pub(crate) fn close(&self) {
        let mut shelved = self.shelved();
        shelved.is_closed = true;
        shelved.begin_anew();
        drop(shelved);
        self.changed.notify_waiters();
    }
}

impl Shelved {
    fn standing(&self) -> Result<Standing, Refusal> {
        if self.is_closed {
            return Err(Refusal::NotReady("the agent is about to end"));
        }
        let incarnation = self.life.incarnation();
        let incarnation = incarnation.ok_or_else(|| Refusal::NotReady(self.life.words()))?;
        Ok(Standing {
            generation: Generation(self.generation),
            beat: Heartbeat {
                position: self.position,
                incarnation,
                epoch: self.epoch,
            },
            oldest: self.ring.oldest(),
        })
    }

    fn begin_anew(&mut self) {
        self.generation += 1;
    }

    fn change_epoch(&mut self) {
        self.ring.clear();
        self.epoch = self.epoch.wrapping_add(1);
        self.begin_anew();
    }

    fn put(&mut self, batch: &KvBatch, frames: FrameWriter) {
        let at = position((batch.sequence, batch.digest));
        self.position = Some(at);
        self.scratch.clear();
        match frames.batch(batch, &mut self.scratch) {
            Ok(()) => self.ring.push(at, Bytes::copy_from_slice(&self.scratch)),
            Err(error) => {
                // It is in the view and cannot be sent: whoever watches must take a list.
                tracing::warn!(batch = %batch.sequence, %error, "a batch cannot be passed on");
                self.change_epoch();
            }
        }
    }

    fn tell(&mut self, metrics: &Metrics) {
        let size = self.ring.size();
        metrics.agent.ring_batches.shift(self.told.batches, size.batches);
        metrics.agent.ring_bytes.shift(self.told.bytes, size.bytes);
        self.told = size;
    }
}

pub(crate) fn position((sequence, digest): (Sequence, Digest)) -> Position {
    Position { sequence, digest }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::life::StartTime;
    use homing_domain::{BlockSize, HashSeed, ModelName};
    use homing_feed::{Counters, Coverage, Identity};
    use homing_wire::frame::{Frame, decode};

    const STARTED: Testimony = Testimony::Started(StartTime::from_bits(1));

    fn batch(sequence: u64) -> KvBatch {
        KvBatch {
            sequence: Sequence(sequence),
            digest: Digest(sequence + 100),
            sent_ms: None,
            changes: Vec::new(),
        }
    }

    fn at(sequence: u64) -> Option<(Sequence, Digest)> {
        Some((Sequence(sequence), Digest(sequence + 100)))
    }

    fn status(state: State) -> RankStatus {
        RankStatus {
            rank: RankId::new(0, 0),
            identity: Identity::default(),
            state,
            coverage: Coverage::Complete,
            cursor: None,
            highest: None,
            verified_ms: None,
            buffered: 0,
            epoch: 0,
            lag_ms: None,
            counters: Counters::default(),
        }
    }

    fn shelf() -> Shelf {
        let owner = Owner {
            rank: RankId::new(0, 0),
            worker: HttpUrl::parse("http://a").unwrap(),
            subject: Subject {
                model: ModelName::new("m"),
                block_size: BlockSize::new(16).unwrap(),
            },
        };
        let limits = RingLimits {
            batches: 4,
            bytes: u64::MAX,
        };
        Shelf::new(owner, &hasher(), limits, Arc::default())
    }

    fn hasher() -> KeyHasher {
        KeyHasher::new(HashSeed::PUBLIC)
    }

    /// Connected, verified and known.
    fn open() -> Shelf {
        let shelf = shelf();
        shelf.connected();
        assert_eq!(shelf.standing().unwrap_err(), Refusal::NotReady(Life::VERIFYING));
        shelf.ticked(&status(State::Live));
        assert_eq!(shelf.standing().unwrap_err(), Refusal::NotReady(Life::ASKING));
        shelf.testify(shelf.question().unwrap(), STARTED);
        shelf
    }

    fn read(shelf: &Shelf, place: &Place) -> Vec<u64> {
        match shelf.read(place) {
            Reading::Frames(frames, _) => {
                let number = |frame: &Bytes| match decode(&hasher(), frame) {
                    Ok(Frame::Batch(batch)) => batch.sequence.0,
                    other => panic!("{other:?}"),
                };
                frames.iter().map(number).collect()
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_replaced_view_is_another_epoch_of_the_same_life() {
        let shelf = open();
        shelf.applied(&batch(0));
        let (before, place) = (shelf.standing().unwrap(), shelf.watch(From::Now, Follow::Yes).unwrap());
        shelf.replaced(at(7), 0);
        let after = shelf.standing().unwrap();
        assert_eq!(after.beat.incarnation, before.beat.incarnation);
        assert_ne!(after.beat.epoch, before.beat.epoch);
        assert_eq!(after.beat.position.map(|at| at.sequence), Some(Sequence(7)));
        assert!(!shelf.is_current(before.generation));
        assert!(matches!(shelf.read(&place), Reading::Ended));
        let gone = shelf.watch(From::Sequence(Sequence(7)), Follow::Yes);
        assert!(matches!(gone, Err(Refusal::Gone { oldest: None, .. })));
    }

    #[test]
    fn the_last_batch_of_a_view_built_anew_is_there_to_be_shown() {
        let shelf = open();
        for number in [5, 6, 7] {
            shelf.heard(&batch(number));
        }
        shelf.replaced(at(7), 0);
        // As when a batch makes the feed give up its view and is the first of the next.
        shelf.applied(&batch(7));
        shelf.applied(&batch(8));
        let place = shelf.watch(From::Sequence(Sequence(7)), Follow::Yes).unwrap();
        assert_eq!(read(&shelf, &place), [7, 8]);
    }

    #[test]
    fn numbers_that_go_back_are_another_epoch() {
        let shelf = open();
        shelf.applied(&batch(7));
        let before = shelf.standing().unwrap();
        shelf.applied(&batch(3));
        let after = shelf.standing().unwrap();
        assert_ne!(after.beat.epoch, before.beat.epoch);
        assert_eq!(after.oldest.map(|at| at.sequence), Some(Sequence(3)));
    }

    #[test]
    fn nothing_is_served_between_two_lives() {
        let shelf = open();
        shelf.applied(&batch(0));
        let before = shelf.standing().unwrap();
        shelf.replaced(None, 1);
        shelf.applied(&batch(0));
        assert!(shelf.watch(From::Now, Follow::Yes).is_err());
        assert!(!shelf.is_current(before.generation), "a list from before is not taken for one of now");
        shelf.ticked(&status(State::Live));
        assert!(shelf.standing().is_err(), "who it is was not said yet");
        shelf.testify(shelf.question().unwrap(), STARTED);
        assert_ne!(shelf.standing().unwrap().beat.incarnation, before.beat.incarnation);
        let place = shelf.watch(From::Sequence(Sequence(0)), Follow::Yes).unwrap();
        assert_eq!(read(&shelf, &place), [0]);
    }

    #[test]
    fn what_is_not_verified_is_not_confirmed() {
        let shelf = open();
        shelf.applied(&batch(0));
        shelf.applied(&batch(1));
        let ask = |from| shelf.watch(From::Sequence(Sequence(from)), Follow::No).map(|_| ());
        assert_eq!(ask(1), Ok(()));
        shelf.ticked(&status(State::Repairing));
        assert!(matches!(ask(1), Err(Refusal::NotVerified(_))));
        assert_eq!(ask(0), Ok(()), "there is something to tell");
        shelf.ticked(&status(State::Warming));
        assert_eq!(ask(1), Ok(()));
    }

    #[test]
    fn a_stream_that_has_not_begun_can_be_waited_for() {
        let shelf = open();
        let place = shelf.watch(From::Sequence(Sequence(0)), Follow::Yes).unwrap();
        assert!(matches!(shelf.read(&place), Reading::AllRead(_)));
        let beyond = shelf.watch(From::Sequence(Sequence(1)), Follow::Yes);
        assert!(matches!(beyond, Err(Refusal::Beyond { newest: None, .. })));
        shelf.applied(&batch(0));
        assert_eq!(read(&shelf, &place), [0]);
    }

    #[test]
    fn a_closed_shelf_serves_nobody() {
        let shelf = open();
        let place = shelf.watch(From::Now, Follow::Yes).unwrap();
        shelf.close();
        assert!(matches!(shelf.read(&place), Reading::Ended));
        assert!(shelf.standing().is_err());
    }
}
