//! What does a stream of events say, and what of it is passed on?
//!
//! **Invariant:** an event is passed on whole or not at all, and never twice.
//!
//! Cost: where a piece is one event that is passed as it came, its bytes are not copied.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use homing_protocol::{
    Attention, Continuation, Ear, Editor, Endpoint, Event, Passed, Seam, SoFar, Splitter, Usage, WhyNot, response_ids,
};

use crate::stored_responses::IdSigner;
use crate::trip::Trip;
use crate::worker::Worker;

/// The longest event of a stream.
pub(crate) const LONGEST_EVENT: usize = 8 << 20;
/// How an answer ends that an engine gives up.
const GAVE_UP: &str = "abort";
/// What is kept of an answer in case that it has to go on elsewhere.
const MOST_KEPT: usize = 4 << 20;

/// What is known of a stream of events.
pub(crate) struct Events {
    splitter: Splitter,
    pub(crate) ear: Ear,
    editor: Editor,
    /// After the answer went on elsewhere.
    seam: Option<Seam>,
    /// What it would go on from, or why it cannot.
    pub(crate) so_far: Result<SoFar, WhyNot>,
    pub(crate) usage: Option<Usage>,
    /// Where responses have ids that clients see signed.
    id_signer: Option<IdSigner>,
    /// Tokens of workers that failed.
    pub(crate) before: u64,
    pub(crate) finished: bool,
    pub(crate) done: bool,
    /// It ended at the seam, although the worker may go on.
    pub(crate) over: bool,
    pub(crate) migrations: u32,
}

impl Events {
    /// The stream of this worker.
    pub(crate) fn new(trip: &Trip, worker: &Arc<Worker>) -> Self {
        let so_far = Continuation::possible(&trip.asked).map(|()| SoFar::new(&trip.asked, &trip.original, MOST_KEPT));
        let attention = if so_far.is_ok() {
            Attention::Words
        } else {
            Attention::Facts
        };
        Self {
            splitter: Splitter::new(LONGEST_EVENT),
            ear: Ear::new(trip.way.ask.endpoint, attention),
            editor: trip.plan.editor(),
            seam: None,
            so_far,
            usage: None,
            id_signer: trip.id_signer(worker),
            before: 0,
            finished: false,
            done: false,
            over: false,
            migrations: 0,
        }
    }

    /// The usage of all workers together. What the last one says of its prompt has the answer so far in it.
    pub(crate) fn total(&self) -> Option<Usage> {
        let usage = self.usage?;
        if self.migrations == 0 {
            return Some(usage);
        }
        Some(Usage {
            prompt: usage.prompt.saturating_sub(self.before),
            completion: usage.completion + self.before,
            cached: None,
            ..usage
        })
    }

    /// Another worker goes on.
    pub(crate) fn next(&mut self, endpoint: Endpoint, editor: Editor, seam: Seam) {
        self.before += self.ear.chunks();
        self.splitter = Splitter::new(LONGEST_EVENT);
        self.ear = Ear::new(endpoint, Attention::Words);
        self.editor = editor;
        self.seam = Some(seam);
    }

    /// Passes on what is whole of a piece.
    pub(crate) fn pass(&mut self, piece: Bytes, out: &mut VecDeque<Bytes>) -> Result<(), String> {
        let size = piece.len();
        self.splitter.push(piece.clone());
        // What waits there already is not touched.
        let begin = out.len();
        let (mut as_is, mut bytes) = (true, 0);
        let ended = loop {
            let event = match self.splitter.next_event() {
                Ok(Some(event)) => event,
                Ok(None) => break Ok(()),
                Err(error) => break Err(error.to_string()),
            };
            bytes += event.raw().len();
            match self.event(&event) {
                Ok(Passed::Pass) => out.push_back(event.into_raw()),
                Ok(Passed::Replace(instead)) => {
                    as_is = false;
                    out.push_back(instead);
                }
                Ok(Passed::Drop) => as_is = false,
                // What was said before it was heard, so it is passed on: the answer goes on behind it.
                Err(why) => {
                    as_is = false;
                    break Err(why);
                }
            }
        };
        if out.len() - begin > 1 {
            let joined = if as_is && bytes == size {
                piece
            } else {
                joined(out.range(begin..))
            };
            out.truncate(begin);
            out.push_back(joined);
        }
        ended
    }

    fn event(&mut self, event: &Event) -> Result<Passed, String> {
        let heard = self.ear.event(event);
        if let Some(error) = &heard.error
            && error.code.is_none_or(|code| code >= 500)
        {
            return Err(format!("said: {}", error.message));
        }
        if heard.finish.as_deref() == Some(GAVE_UP) {
            return Err("gave the answer up".to_owned());
        }
        let edited = self.editor.event(event);
        let passed = match (&mut self.seam, edited) {
            (None, edited) => edited,
            (Some(_), Passed::Drop) => Passed::Drop,
            (Some(seam), Passed::Pass) => seam.event(event).map_err(|why| why.to_string())?,
            (Some(seam), Passed::Replace(instead)) => {
                let edited = Event::new(instead);
                match seam.event(&edited).map_err(|why| why.to_string())? {
                    Passed::Pass => Passed::Replace(edited.raw().clone()),
                    other => other,
                }
            }
        };
        self.over |= self.seam.as_ref().is_some_and(Seam::is_over);
        self.done |= heard.done || self.over;
        self.finished |= heard.finish.is_some();
        self.usage = heard.usage.or(self.usage);
        if let Ok(so_far) = &mut self.so_far {
            so_far.hear(&heard);
        }
        Ok(self.with_signed_ids(event, passed))
    }

    /// The event with ids that the client can use. Streams that have them have nothing else that is changed.
    fn with_signed_ids(&self, event: &Event, passed: Passed) -> Passed {
        let Some(signer) = self.id_signer.as_ref().filter(|_| passed == Passed::Pass) else {
            return passed;
        };
        response_ids::replace_in_event(event, &|id| signer.sign(id)).map_or(Passed::Pass, Passed::Replace)
    }
}

fn joined<'a>(events: impl Iterator<Item = &'a Bytes> + Clone) -> Bytes {
    let mut joined = BytesMut::with_capacity(events.clone().map(Bytes::len).sum());
    for event in events {
        joined.extend_from_slice(event);
    }
    joined.freeze()
}
