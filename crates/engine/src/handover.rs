//! How does KV leave an engine for another one, and come from it?
//!
//! A request can be *staged*: its prompt is computed, and when it ends at its length its blocks stay for another engine, until
//! they are released or their lease ends. A request can *take* its KV from elsewhere: blocks for its prompt are reserved, the
//! driver is told which tokens are missing and says when they have come; then it goes on without having computed them. Who
//! carries the KV, and how long that takes, is the driver's business.
//!
//! **Invariant:** a staged block is in use: nobody evicts it before it is released or its lease ends, and then it is as any
//! other.
//!
//! **Invariant:** a reserved block stays reserved until the driver says what became of the transfer, also if its request is
//! cancelled meanwhile: someone may be writing into it.
//!
//! **Invariant:** of a prompt that was taken over one token is computed, as vLLM does, so that there is something to sample
//! from. (SGLang gets the first token together with the KV; here it computes one, too.)

use homing_domain::{Blocks, Tokens};
use homing_profile::Millis;

use crate::engine::{Engine, Place};
use crate::request::RequestNo;
use crate::time::Time;

/// What is done with the KV of a request besides answering from it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Handover {
    /// Nothing.
    #[default]
    None,
    /// If the request ends at its length, its blocks stay for so long, for another engine. One that stops by itself leaves
    /// nothing to hand over, as with vLLM.
    Stage {
        /// For how long.
        lease: Millis,
    },
    /// The KV of its prompt comes from another engine.
    Take,
}

/// A request that is over and whose blocks stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Staged {
    /// Which.
    pub request: RequestNo,
    /// How many blocks.
    pub blocks: Blocks,
    /// Tokens whose KV is in them.
    pub tokens: Tokens,
    /// When they go, released or not.
    pub until: Time,
}

/// A request whose blocks are there and whose KV is not: the driver is to bring it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reserved {
    /// Which.
    pub request: RequestNo,
    /// How long its prompt is.
    pub prompt: Tokens,
    /// How many tokens of it, from its end, are not in the cache. At least one.
    pub missing: Tokens,
    /// Blocks that are held for it, shared ones included.
    pub blocks: Blocks,
}

/// What becomes of a request whose KV did not come: vLLM's `kv_load_failure_policy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFailure {
    /// It waits again, and its prompt is computed here.
    Recompute,
    /// It is over without a further word, as if it were cancelled.
    End,
}

impl Engine {
    /// Gives the blocks of a staged request back: another engine has them. Returns whether there were any.
    pub fn release(&mut self, id: RequestNo) -> bool {
        let Some(rank) = self.staged.remove(&id) else {
            return false;
        };
        self.ranks[usize::from(rank)].unstage(id)
    }

    /// Lets the lease of a staged request end at another time. Returns whether there is such a one.
    pub fn renew(&mut self, id: RequestNo, until: Time) -> bool {
        let Some(&rank) = self.staged.get(&id) else {
            return false;
        };
        self.ranks[usize::from(rank)].renew(id, until)
    }

    /// The KV that a reserved request misses has come. Returns whether one waited for it, cancelled or not.
    pub fn received(&mut self, id: RequestNo) -> bool {
        let Some(Place { rank, slot }) = self.pulling.remove(&id) else {
            return false;
        };
        self.ranks[usize::from(rank)].arrive(slot);
        true
    }

    /// The KV that a reserved request misses does not come. Returns whether one waited for it, cancelled or not.
    pub fn transfer_failed(&mut self, id: RequestNo, then: OnFailure) -> bool {
        let Some(Place { rank, slot }) = self.pulling.remove(&id) else {
            return false;
        };
        if then == OnFailure::End {
            self.live.remove(&id);
        }
        self.ranks[usize::from(rank)].miss(slot, then);
        true
    }

    /// What is staged, by rank and in the order of the requests' numbers.
    pub fn staged(&self) -> impl Iterator<Item = Staged> + '_ {
        self.ranks.iter().flat_map(|rank| rank.transit.staged())
    }
}
