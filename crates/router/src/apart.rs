//! What is asked and answered where two workers may serve a request?

use std::sync::Arc;

use homing_disagg::{
    Alone, Choice, ChooseSettings, Endpoint, Hold, Means, Need, Pairing, Protocol, StagingLimits, Tried, Why,
};
use homing_domain::{RequestId, Tokens};
use homing_load::{PromptWork, Ticket};
use homing_profile::Millis;
use homing_scheduler::{CacheUse, Decision, Overrides, Phase, Pin, Policy, Reuse};

use crate::question::{Question, Routed};

/// How pairs are chosen and bounded.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ApartConfig {
    /// One or two, and which two.
    pub choose: ChooseSettings,
    /// What may be staged.
    pub staging: StagingLimits,
}

/// The policies of a router. What is none is as for whole requests.
#[derive(Debug)]
pub struct Policies {
    /// For requests that one worker serves.
    pub whole: Box<dyn Policy>,
    /// For prompts.
    pub prefill: Option<Box<dyn Policy>>,
    /// For outputs.
    pub decode: Option<Box<dyn Policy>>,
}

impl Policies {
    /// One for everything.
    pub fn one(policy: Box<dyn Policy>) -> Self {
        Self {
            whole: policy,
            prefill: None,
            decode: None,
        }
    }

    pub(crate) fn use_overlap(&self) -> bool {
        let halves = [self.prefill.as_ref(), self.decode.as_ref()];
        let halves = halves.into_iter().flatten().any(|policy| policy.uses_overlap());
        self.whole.uses_overlap() || halves
    }
}

/// Whether the router chooses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Naming {
    /// It does, but for what is pinned.
    #[default]
    Chosen,
    /// Whoever asks has to name the workers: an outer router has chosen.
    Direct,
}

/// That, and how, two workers may serve a request. Who generates, or does all of it, is subject to [`Question::wanted`].
#[derive(Clone, Debug)]
pub struct Apart {
    /// What is to be chosen.
    pub need: Need,
    /// Whom not, besides those in [`Question::wanted`].
    pub tried: Tried,
    /// The prefill worker, where the caller names it. Then there are two.
    pub prefill: Option<Pin>,
    /// Whether the router chooses.
    pub naming: Naming,
}

impl Default for Apart {
    fn default() -> Self {
        Self {
            need: Need::Request(Alone::Allowed),
            tried: Tried::default(),
            prefill: None,
            naming: Naming::Chosen,
        }
    }
}

/// The half of a request that computes its prompt.
#[derive(Clone, Debug, PartialEq)]
pub struct PrefillHalf {
    /// Under which id it is booked.
    pub id: RequestId,
    /// Where, and why.
    pub decision: Decision,
    /// Tokens of the prompt that are predicted to come from the rank's cache.
    pub cached: Tokens,
    /// Under what it is booked; none if it was not to be.
    pub ticket: Option<Ticket>,
    /// The room for its KV; none if it was not to be booked.
    pub hold: Option<Hold>,
    /// How it hands over.
    pub protocol: Protocol,
    /// Where it can be met, if it can.
    pub endpoint: Option<Endpoint>,
}

impl PrefillHalf {
    /// How its KV is handed over. `entropy` makes the number of the room.
    pub fn means(&self, entropy: u64) -> Means {
        match (self.protocol, &self.endpoint) {
            (Protocol::Rendezvous, Some(endpoint)) => {
                Means::Rendezvous(endpoint.meeting(entropy, self.decision.chosen.rank.dp))
            }
            _ => Means::ByResult,
        }
    }
}

/// Why one worker or two, and the second half where there are two.
#[derive(Clone, Debug, PartialEq)]
pub struct Halves {
    /// Why.
    pub why: Why,
    /// The half that computes the prompt; none if one worker does all of it, or if it has been computed.
    pub prefill: Option<PrefillHalf>,
    /// The pair as it was predicted.
    pub pairing: Option<Pairing>,
}

impl Halves {
    /// Until the first token, as predicted of the pair.
    pub fn first_token(&self) -> Option<Millis> {
        self.pairing.map(|pairing| pairing.first_token)
    }
}

impl Routed {
    /// What was chosen, as a [`homing_disagg::Handoff`] wants to hear it. `entropy` makes the number of a room, where there is one.
    pub fn choice(&self, need: Need, entropy: u64) -> Choice {
        let rank = self.decision.chosen.rank;
        let prefill = self.halves.as_ref().and_then(|halves| halves.prefill.as_ref());
        match (need, prefill) {
            (_, Some(prefill)) => Choice::Pair {
                prefill: prefill.decision.chosen.rank,
                decode: rank,
                means: prefill.means(entropy),
            },
            (Need::DecodeFor { .. }, None) => Choice::Decode(rank),
            (Need::Request(_), None) => Choice::Whole(rank),
        }
    }

    /// Both decisions and why there are two, as JSON, for logs and answers.
    pub fn to_json(&self) -> String {
        let Some(halves) = &self.halves else {
            return self.decision.to_json();
        };
        let (why, decision) = (halves.why.to_json(), self.decision.to_json());
        match &halves.prefill {
            Some(prefill) => {
                let prefill = prefill.decision.to_json();
                format!("{{\"why\":{why},\"prefill\":{prefill},\"decode\":{decision}}}")
            }
            None => format!("{{\"why\":{why},\"one_worker\":{decision}}}"),
        }
    }
}

impl Question {
    /// The question of its prompt alone, as a pool of prefill workers is asked: it leaves no output there.
    #[must_use]
    pub fn prefill_half(&self) -> Self {
        let apart = self.apart.as_deref();
        let mut half = self.clone();
        half.id = prefill_id(&self.id);
        half.phase = Phase::Prefill;
        half.apart = None;
        half.wanted.pinned = apart.and_then(|apart| apart.prefill);
        // The rank is one of the worker that answers.
        half.wanted.dp = None;
        half.wanted
            .tried
            .extend(apart.into_iter().flat_map(|apart| &apart.tried.prefill));
        half.overrides = Overrides {
            decode_weight: Some(0.0),
            expected_output: Some(Tokens(0)),
            ..self.overrides
        };
        half
    }

    /// The question of its output alone, as a pool of decode workers is asked: its prompt is no work there, and is not assumed to be
    /// shared.
    #[must_use]
    pub fn decode_half(&self) -> Self {
        let mut half = self.clone();
        half.phase = Phase::Decode;
        half.apart = None;
        half.wanted
            .tried
            .extend(self.apart.iter().flat_map(|apart| &apart.tried.decode));
        half.overrides = Overrides {
            work: PromptWork::None,
            reuse: Reuse::None,
            // What it holds shortens the transfer, which is counted there, and spares it no prefill.
            cache: CacheUse::Ignored,
            ..self.overrides
        };
        half
    }

    /// The question for one worker that does all of it.
    #[must_use]
    pub fn whole(&self) -> Self {
        let mut whole = self.clone();
        // Those who decode can compute prompts as well, unless they are known not to.
        whole.phase = Phase::Alone;
        whole.apart = None;
        let tried = self.apart.iter().map(|apart| &apart.tried);
        let tried = tried.flat_map(|tried| tried.prefill.iter().chain(&tried.decode));
        whole.wanted.tried.extend(tried);
        whole
    }
}

/// Under which id the prompt of a request is booked.
pub fn prefill_id(id: &RequestId) -> RequestId {
    RequestId::new(Arc::from(format!("{}/prefill", id.as_str())))
}
