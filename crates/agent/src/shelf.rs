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

mod shelved;
mod terms;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use homing_domain::{Digest, KeyHasher, KvBatch, Sequence};
use homing_feed::{RankStatus, State, Why};
use homing_telemetry::Metrics;
use homing_wire::frame::{FrameWriter, Heartbeat};
use tokio::sync::Notify;

use self::shelved::{Shelved, Vouched};
use crate::life::{Before, Outcome, Question, Testimony};
use crate::ring::{Lost, RingLimits};

pub(crate) use self::shelved::position;
pub(crate) use self::terms::Errand;
pub use self::terms::{Follow, From, Generation, Owner, Place, Reading, Refusal, Standing};

/// How many bytes one reading takes from the ring, unless a single batch is longer.
const READING: usize = 256 << 10;

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

impl Shelf {
    /// An empty one.
    pub fn new(owner: Owner, hasher: &KeyHasher, limits: RingLimits, metrics: Arc<Metrics>) -> Self {
        Self {
            owner,
            frames: FrameWriter::new(hasher),
            metrics,
            shelved: Mutex::new(Shelved::new(limits)),
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
            // The engine's first batch makes our view complete. Who took a list before cannot know that of its own.
            None if at.sequence == Sequence(0) && !batch.is_barrier() => shelved.change_epoch(),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::life::{Life, StartTime};
    use homing_config::HttpUrl;
    use homing_domain::{BlockSize, HashSeed, ModelName, RankId};
    use homing_feed::{Counters, Coverage, Identity};
    use homing_keeper::Subject;
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

    fn at(sequence: u64) -> (Sequence, Digest) {
        (Sequence(sequence), Digest(sequence + 100))
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
            is_stream_proven: true,
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
        shelf.replaced(Some(at(7)), 0);
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
        shelf.replaced(Some(at(7)), 0);
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
        assert!(
            !shelf.is_current(before.generation),
            "a list from before is not taken for one of now"
        );
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
        let before = shelf.standing().unwrap();
        shelf.applied(&batch(0));
        // With the engine's first batch the view is complete, and those who are there learn it by coming again.
        assert_ne!(shelf.standing().unwrap().beat.epoch, before.beat.epoch);
        assert!(matches!(shelf.read(&place), Reading::Ended));
        let place = shelf.watch(From::Sequence(Sequence(0)), Follow::Yes).unwrap();
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
