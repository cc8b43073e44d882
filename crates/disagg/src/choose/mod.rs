//! One worker or two, and which two?
//!
//! Each candidate comes with what the policy of its pool weighs it by and with what is predicted of it, in milliseconds. A pair takes
//! until its first token what the longer of prefill and the wait for a decode place takes, the transfer, and the first step of the
//! decode worker; it costs others what each half costs others. The best pair is compared with the best worker for the whole.
//!
//! **Invariant:** a pair is of two different workers that understand each other's KV and between which it may travel.
//!
//! **Invariant:** where two are required, one is never chosen; where a pair is impossible, the reason is told.
//!
//! Cost: of each side the best [`ChooseSettings::keep`] are looked at for each value of the required labels, each with each.
//!
//! It filters nobody by health, role or adapter, and books nothing: the router does.

mod pairs;

use homing_domain::{ModelName, RankId, Tokens};
use homing_profile::Millis;
use homing_scheduler::{Draw, Label};

use crate::format::{Agreement, Traits};
use crate::handoff::Alone;
use crate::refused::Refused;
use crate::topology::Topology;

/// The name of the limit of prompt tokens that may be queued on a prefill rank.
pub const QUEUED_LIMIT: &str = "disagg.queued-tokens";
/// The name of the limit of blocks that may be staged on a prefill rank.
pub const STAGED_LIMIT: &str = "disagg.staged-share";

/// How it is decided whether two workers serve a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Whether {
    /// By what both ways are predicted to cost.
    Predicted {
        /// What it weighs that those who decode on a worker wait while it computes a prompt: in times of the prompt's time, for each of
        /// them.
        stall: f64,
        /// A pair has to be better by this share: predictions are not exact, and a pair can fail in more ways.
        margin: f64,
    },
    /// By a rule: one worker if less than so many tokens, and less than such a share of the prompt, are not in its cache.
    Rules {
        /// Tokens.
        uncached: Tokens,
        /// The share.
        share: f64,
    },
    /// Always two, where there are two.
    Always,
}

impl Whether {
    /// Rules with the numbers that others use: 2,048 tokens and 0.7.
    pub const RULES: Self = Self::Rules {
        uncached: Tokens(2_048),
        share: 0.7,
    };
}

/// How two are chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Judge {
    /// As pairs.
    #[default]
    Together,
    /// The first prefill worker that has somebody for it, then the first decode worker that fits it: for policies whose costs are no
    /// times, and for comparison.
    OneAfterTheOther,
}

/// How it is chosen.
#[derive(Clone, Debug, PartialEq)]
pub struct ChooseSettings {
    /// One or two.
    pub whether: Whether,
    /// How two are chosen.
    pub judge: Judge,
    /// Candidates of each side that are looked at, for each value of the required labels.
    pub keep: usize,
    /// Between whom KV may travel.
    pub topology: Vec<Topology>,
    /// Whether what is not known of KV agrees.
    pub agreement: Agreement,
    /// Prompt tokens that may be queued on a prefill rank; beyond it, it gets no more.
    pub most_queued: u64,
    /// By which share predicted times to the first token are off: pairs that are no further from the best are as good.
    pub error: f64,
}

impl Default for ChooseSettings {
    fn default() -> Self {
        Self {
            whether: Whether::Predicted {
                stall: 0.1,
                margin: 0.02,
            },
            judge: Judge::Together,
            keep: 16,
            topology: Vec::new(),
            agreement: Agreement::Presumed,
            most_queued: u64::MAX,
            error: 0.05,
        }
    }
}

/// A rank that could compute the prompt.
#[derive(Clone, Copy, Debug)]
pub struct Prefiller<'a> {
    /// Which.
    pub rank: RankId,
    /// What its policy weighs it by.
    pub cost: f64,
    /// Until the prompt has been computed.
    pub first_token: Millis,
    /// Prompt tokens that are queued there.
    pub queued: u64,
    /// Blocks that are staged there, and how many may be.
    pub staged: (u64, u64),
    /// Whether what the prompt will leave there has room.
    pub has_room: bool,
    /// Bytes that are leaving it.
    pub leaving: u64,
    /// What matters of it.
    pub traits: &'a Traits,
    /// Where it is.
    pub labels: &'a [Label],
}

/// A rank that could generate.
#[derive(Clone, Copy, Debug)]
pub struct Decoder<'a> {
    /// Which.
    pub rank: RankId,
    /// What its policy weighs it by.
    pub cost: f64,
    /// What of its cost is the time until its first token: [`Decoder::ready`] or [`Decoder::step`], whichever is longer.
    pub first_token: Millis,
    /// Until there is room for the request.
    pub ready: Millis,
    /// From the arrival of KV to the first token.
    pub step: Millis,
    /// Tokens of the prompt that are in its cache.
    pub cached: Tokens,
    /// Bytes that are coming to it.
    pub arriving: u64,
    /// What matters of it.
    pub traits: &'a Traits,
    /// Where it is.
    pub labels: &'a [Label],
}

/// A rank that could do all of it.
#[derive(Clone, Copy, Debug)]
pub struct Whole {
    /// Which.
    pub rank: RankId,
    /// What its policy weighs it by.
    pub cost: f64,
    /// Until the first token.
    pub first_token: Millis,
    /// By how much longer steps are, all together, because the prompt is computed in them.
    pub stalls: Millis,
    /// Tokens of the prompt that are not in its cache.
    pub uncached: Tokens,
    /// Sequences that decode there.
    pub decoding: u32,
}

/// What is known when it is chosen. Candidates are sorted, best first; of the first of each list it does not matter.
#[derive(Clone, Copy, Debug)]
pub struct Scene<'a> {
    /// The model.
    pub model: &'a ModelName,
    /// Tokens of the prompt.
    pub prompt: Tokens,
    /// Bytes of KV that a token leaves behind.
    pub bytes_per_token: u64,
    /// Who could compute the prompt.
    pub prefills: &'a [Prefiller<'a>],
    /// Who could generate.
    pub decodes: &'a [Decoder<'a>],
    /// Who could do all of it.
    pub wholes: &'a [Whole],
    /// Whether one worker may serve it.
    pub alone: Alone,
    /// Who named workers.
    pub named: Named,
    /// How far from the best a choice may be; 0 is the best.
    pub temperature: f64,
    /// The chance that may be used.
    pub draw: Draw,
}

/// Whether the caller named workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Named {
    /// Nobody, or the decode worker, which may then do all of it.
    #[default]
    NoPrefill,
    /// The prefill worker: so there are two.
    Prefill,
}

/// Two workers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pairing {
    /// A place in [`Scene::prefills`].
    pub prefill: usize,
    /// A place in [`Scene::decodes`].
    pub decode: usize,
    /// What the pair is weighed by.
    pub cost: f64,
    /// Until its first token.
    pub first_token: Millis,
    /// How long the transfer takes.
    pub transfer: Millis,
    /// Bytes that travel.
    pub bytes: u64,
}

/// What was chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Way {
    /// Two workers.
    Pair(Pairing),
    /// One: a place in [`Scene::wholes`].
    Whole(usize),
}

/// Why one or two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Because {
    /// Two are predicted to cost less.
    PairCostsLess,
    /// One is.
    WholeCostsLess,
    /// The prompt is short, or mostly cached.
    LittleToCompute,
    /// There is enough to compute.
    MuchToCompute,
    /// Two serve whatever they can.
    Always,
    /// Two are required.
    Required,
    /// The caller named a prefill worker.
    Named,
    /// Nobody can do all of it.
    NobodyAlone,
    /// There is no prefill worker for it.
    NoPrefill,
    /// There is no decode worker for it but those that do all of it.
    NoPair,
    /// Prefill workers have too much to do.
    PrefillBusy,
    /// Too much is staged on prefill workers.
    StagedFull,
    /// Prefills have failed often enough.
    PrefillsFailed,
    /// The prompt has been computed, and needs a decode worker.
    AlreadyStaged,
}

impl Because {
    /// As reports spell it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::PairCostsLess => "pair costs less",
            Self::WholeCostsLess => "one worker costs less",
            Self::LittleToCompute => "little to compute",
            Self::MuchToCompute => "much to compute",
            Self::Always => "two wherever there are two",
            Self::Required => "two are required",
            Self::Named => "prefill worker named",
            Self::NobodyAlone => "nobody serves alone",
            Self::NoPrefill => "no prefill worker",
            Self::NoPair => "no pair fits",
            Self::PrefillBusy => "prefill busy",
            Self::StagedFull => "staged full",
            Self::PrefillsFailed => "prefills failed",
            Self::AlreadyStaged => "already staged",
        }
    }
}

/// The reasons of a choice.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Why {
    /// The one that decided.
    pub because: Because,
    /// The best pair.
    pub pair: Option<Pairing>,
    /// What one worker for all of it is weighed by, and its time until the first token.
    pub whole: Option<(f64, Millis)>,
    /// Pairs that were looked at.
    pub pairs: u32,
    /// Those that differ in their KV.
    pub other_format: u32,
    /// Those between which KV may not travel.
    pub other_place: u32,
}

impl Why {
    /// As JSON, for logs and answers.
    pub fn to_json(&self) -> String {
        crate::json::why(self)
    }
}

/// What was chosen, and why.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice {
    /// What.
    pub way: Way,
    /// Why.
    pub why: Why,
}

/// Chooses.
pub fn choose(settings: &ChooseSettings, scene: &Scene<'_>) -> Result<Choice, Refused> {
    let whole = best_whole(settings, scene);
    let mut why = Why {
        because: Because::PrefillsFailed,
        pair: None,
        whole: whole.map(|(_, cost, first_token)| (cost, first_token)),
        pairs: 0,
        other_format: 0,
        other_place: 0,
    };
    let alone = |because, why: Why| {
        let (at, _, _) = whole?;
        let allowed = scene.alone != Alone::Never && scene.named == Named::NoPrefill;
        allowed.then_some(Choice {
            way: Way::Whole(at),
            why: Why { because, ..why },
        })
    };
    if scene.alone == Alone::Only
        && let Some(choice) = alone(Because::PrefillsFailed, why)
    {
        return Ok(choice);
    }
    if let (Whether::Rules { uncached, share }, Some((at, _, _))) = (settings.whether, whole) {
        let left = scene.wholes[at].uncached;
        let part = f64::from(left.0) / f64::from(scene.prompt.0.max(1));
        if left < uncached
            && part < share
            && let Some(choice) = alone(Because::LittleToCompute, why)
        {
            return Ok(choice);
        }
    }
    let found = match pairs::best_pair(settings, scene, &mut why) {
        Ok(found) => found,
        Err((because, refused)) => return alone(because, why).ok_or(refused),
    };
    why.pair = Some(found);
    let because = match (settings.whether, whole) {
        _ if scene.alone == Alone::Never => Because::Required,
        _ if scene.named == Named::Prefill => Because::Named,
        (_, None) => Because::NobodyAlone,
        (Whether::Predicted { margin, .. }, Some((_, cost, _))) => {
            if found.cost * (1.0 + margin) >= cost
                && let Some(choice) = alone(Because::WholeCostsLess, why)
            {
                return Ok(choice);
            }
            Because::PairCostsLess
        }
        (Whether::Rules { .. }, Some(_)) => Because::MuchToCompute,
        (Whether::Always, Some(_)) => Because::Always,
    };
    Ok(Choice {
        way: Way::Pair(found),
        why: Why { because, ..why },
    })
}

/// The best for all of it, what it costs with what its prompt does to those who decode there, and its time until the first token.
fn best_whole(settings: &ChooseSettings, scene: &Scene<'_>) -> Option<(usize, f64, Millis)> {
    let stall = match settings.whether {
        Whether::Predicted { stall, .. } => stall,
        Whether::Rules { .. } | Whether::Always => 0.0,
    };
    let cost = |whole: &Whole| whole.cost + stall * f64::from(whole.decoding) * whole.stalls.0;
    // Costs of policies that do not count in time are not compared with each other by what we add to them: their first is their choice.
    let look_at = if stall > 0.0 { scene.wholes.len() } else { 1 };
    let costs = scene.wholes.iter().take(look_at).enumerate();
    let costs = costs.map(|(at, whole)| (at, cost(whole), whole.first_token));
    costs.min_by(|one, other| one.1.total_cmp(&other.1))
}

/// Chooses who takes over what the first of [`Scene::prefills`] has staged.
pub fn choose_decode(settings: &ChooseSettings, scene: &Scene<'_>) -> Result<Choice, Refused> {
    let mut why = Why {
        because: Because::AlreadyStaged,
        pair: None,
        whole: None,
        pairs: 0,
        other_format: 0,
        other_place: 0,
    };
    let found = pairs::best_for_first(settings, scene, &mut why)?;
    Ok(Choice {
        way: Way::Pair(found),
        why: Why {
            pair: Some(found),
            ..why
        },
    })
}
