//! Which blocks stay for whom, and what is to be done?

use std::sync::Arc;

use homing_domain::Tokens;
use homing_engine::{Engine, Outcome, RequestNo, Reserved};
use rustc_hash::FxHashMap;

use super::errand::Errand;
use super::plan::{Source, What};
use crate::state::Ear;

/// Blocks that stay for another engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) request: RequestNo,
    pub(crate) name: Arc<str>,
    pub(crate) fingerprint: u64,
    pub(crate) tokens: u32,
    /// Of those, how many came from the cache.
    pub(crate) cached: u32,
}

/// What the driver of the engine is to start.
#[derive(Debug)]
pub(crate) enum Job {
    /// KV is to be fetched.
    Fetch {
        source: Source,
        fingerprint: u64,
        reserved: Reserved,
    },
    /// What stays elsewhere is not needed.
    Decline(Source),
}

/// What was counted since the start of a life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) staged: u64,
    pub(crate) released: u64,
    pub(crate) lapsed: u64,
    pub(crate) received: u64,
    pub(crate) failed: u64,
}

/// What stays, what is to be done, what was counted.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    kept: FxHashMap<Arc<str>, Kept>,
    names: FxHashMap<RequestNo, Arc<str>>,
    /// Taken by the driver after each turn.
    pub(crate) jobs: Vec<Job>,
    pub(crate) counts: Counts,
}

impl Ledger {
    /// Takes what an outcome says of KV. Whoever listens to a staged request is told by the caller.
    pub(crate) fn take(&mut self, outcome: &Outcome, ears: &mut FxHashMap<RequestNo, Ear>) {
        for staged in &outcome.staged {
            self.counts.staged += 1;
            let Some(ear) = ears.get_mut(&staged.request) else {
                continue;
            };
            let Errand::Stage {
                name,
                fingerprint,
                told,
            } = std::mem::take(&mut ear.errand)
            else {
                continue;
            };
            let kept = Kept {
                request: staged.request,
                name: Arc::clone(&name),
                fingerprint,
                tokens: staged.tokens.0,
                cached: ear.over.cached,
            };
            self.names.insert(staged.request, Arc::clone(&name));
            self.kept.insert(name, kept.clone());
            if let Some(told) = told {
                // If nobody waits any more, the lease will end.
                let _ = told.send(kept);
            }
        }
        for lapsed in &outcome.lapsed {
            self.counts.lapsed += 1;
            if let Some(name) = self.names.remove(lapsed) {
                self.kept.remove(&name);
            }
        }
        for reserved in &outcome.reserved {
            let errand = ears
                .get_mut(&reserved.request)
                .map(|ear| std::mem::take(&mut ear.errand));
            if let Some(Errand::Fetch { source, fingerprint }) = errand {
                self.jobs.push(Job::Fetch {
                    source,
                    fingerprint,
                    reserved: *reserved,
                });
            }
        }
    }

    /// A request goes of which nobody wants to hear any more: what stays for it elsewhere is not needed, as vLLM says it.
    pub(crate) fn forget(&mut self, errand: Errand) {
        if let Errand::Fetch { source, .. } = errand
            && matches!(source.what, What::Staged { .. })
        {
            self.jobs.push(Job::Decline(source));
        }
    }

    pub(crate) fn kept(&self, name: &str) -> Option<&Kept> {
        self.kept.get(name)
    }

    /// Gives blocks back that another engine has. Returns whether they were there.
    pub(crate) fn release(&mut self, engine: &mut Engine, name: &str) -> bool {
        let Some(kept) = self.kept.remove(name) else {
            return false;
        };
        self.names.remove(&kept.request);
        engine.release(kept.request)
    }

    /// How much is missing, in tokens.
    pub(crate) fn missing(reserved: &Reserved) -> u32 {
        let Tokens(missing) = reserved.missing;
        missing
    }
}
