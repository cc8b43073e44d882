//! Who is to blame, and is not asked again?
//!
//! Where KV goes from one worker to another and does not arrive, one of the two is to blame, and often nobody can say which. What a worker
//! says of itself counts; of two that are silent both are suspects. Others are asked before suspects are, and suspects before the request is
//! refused.
//!
//! **Invariant:** a suspect is one of those that were tried.

use homing_domain::{RankId, WorkerId};

use super::{Handoff, Pair, Reach, Tried};
use crate::bugs::planted;

/// Whom a failure of a pair is laid to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Blame {
    /// Probably: others say it of it.
    Prefill,
    Decode,
    /// One of them, and nobody knows which.
    Either,
}

/// Which suspects are asked again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Mercy {
    None,
    Decode,
    Prefill,
}

impl Handoff {
    /// Whom it is laid to that a decode worker did not go on with the KV of another.
    pub(super) fn blame(&mut self, pair: Pair, reach: Reach) -> Blame {
        match reach {
            Reach::Silent if planted!(self.settings.bug, SilenceOfOne) => Blame::Decode,
            Reach::Silent => Blame::Either,
            // It lives, so it is the other one. Unless it says so of everybody.
            Reach::Said => match pair.decode.map(|decode| decode.worker) {
                Some(decode) if !self.spoke.contains(&decode) => {
                    self.spoke.push(decode);
                    Blame::Prefill
                }
                _ => Blame::Either,
            },
            Reach::Refused | Reach::Unknown | Reach::Answering(_) => Blame::Decode,
        }
    }

    pub(super) fn lay_to(&mut self, blame: Blame, pair: Pair) {
        self.mercy = Mercy::None;
        if blame != Blame::Decode {
            suspect(&mut self.tried.prefill, &mut self.suspects.prefill, pair.prefill);
        }
        match (blame, pair.decode) {
            (Blame::Decode, Some(decode)) => self.decode_is_to_blame(decode),
            (Blame::Either, Some(decode)) => suspect(&mut self.tried.decode, &mut self.suspects.decode, decode),
            (Blame::Prefill, _) | (_, None) => (),
        }
    }

    pub(super) fn prefill_is_to_blame(&mut self, rank: RankId) {
        self.mercy = Mercy::None;
        note(&mut self.tried.prefill, &mut self.suspects.prefill, rank);
    }

    pub(super) fn decode_is_to_blame(&mut self, rank: RankId) {
        self.mercy = Mercy::None;
        note(&mut self.tried.decode, &mut self.suspects.decode, rank);
    }

    /// Nobody is left: suspects of one side may be asked again, and then those of the other, so that no two meet that failed together.
    /// Says whether there is somebody to be asked.
    pub(super) fn pardon(&mut self) -> bool {
        self.mercy = match self.mercy {
            Mercy::None if !self.suspects.decode.is_empty() => Mercy::Decode,
            Mercy::None | Mercy::Decode if !self.suspects.prefill.is_empty() => Mercy::Prefill,
            _ => return false,
        };
        true
    }

    /// Whom not to ask now.
    pub(super) fn avoided(&self) -> Tried {
        let mut avoided = self.tried.clone();
        match self.mercy {
            Mercy::None => (),
            Mercy::Decode => avoided.decode.retain(|worker| !self.suspects.decode.contains(worker)),
            Mercy::Prefill => avoided.prefill.retain(|worker| !self.suspects.prefill.contains(worker)),
        }
        avoided
    }
}

/// A worker failed, and by itself.
fn note(tried: &mut Vec<WorkerId>, suspects: &mut Vec<WorkerId>, rank: RankId) {
    suspects.retain(|suspect| *suspect != rank.worker);
    if !tried.contains(&rank.worker) {
        tried.push(rank.worker);
    }
}

fn suspect(tried: &mut Vec<WorkerId>, suspects: &mut Vec<WorkerId>, rank: RankId) {
    if !tried.contains(&rank.worker) {
        tried.push(rank.worker);
        suspects.push(rank.worker);
    }
}
