//! What matters of a rank as one half of a pair, or alone?

use homing_disagg::choose::Prefiller;
use homing_disagg::{Decoder, Serves, Staging, Traits, Whole};
use homing_domain::{RankId, Role, Tokens};
use homing_load::{Place, RankLoad};
use homing_profile::{DecodeBatch, Millis, Time};
use homing_scheduler::{CacheUse, Candidate, Prediction, RankFacts};

use crate::core::Core;
use crate::question::Question;

impl Core {
    pub(crate) fn prefiller<'a>(
        &'a self,
        question: &Question,
        (of, prediction): (&Candidate, &Prediction),
        in_time: bool,
    ) -> Option<Prefiller<'a>> {
        let (facts, rank) = self.known(of.place)?;
        let capacity = self.load.spec(of.place).and_then(|spec| spec.capacity);
        let staged = self.staging.on(of.rank);
        let first_token = prediction.first_token();
        Some(Prefiller {
            rank: of.rank,
            cost: if in_time { of.cost } else { first_token.0 },
            first_token,
            queued: rank.pending_tokens(),
            staged: (staged.blocks, self.staging.limits().of(capacity)),
            has_room: self
                .staging
                .has_room(of.rank, capacity, self.prompt_blocks(question.prompt)),
            leaving: staged.leaving,
            traits: self.traits_of(of.place),
            labels: &facts.labels,
        })
    }

    /// A prefill worker that has computed the prompt: nothing of it is waited for any more.
    pub(crate) fn staged_on(&self, rank: RankId) -> Option<Prefiller<'_>> {
        let place = *self.places.get(&rank)?;
        let (facts, _) = self.known(place)?;
        Some(Prefiller {
            rank,
            cost: 0.0,
            first_token: Millis::ZERO,
            queued: 0,
            staged: (0, 0),
            has_room: true,
            leaving: self.staging.on(rank).leaving,
            traits: self.traits_of(place),
            labels: &facts.labels,
        })
    }

    pub(crate) fn decoder<'a>(
        &'a self,
        (now, question): (Time, &Question),
        (of, prediction): (&Candidate, &Prediction),
        in_time: bool,
        staging: &Staging,
    ) -> Option<Decoder<'a>> {
        let (facts, rank) = self.known(of.place)?;
        let timing = self.load.timings().get(rank.kind())?;
        let batch = DecodeBatch {
            sequences: rank.decoding(),
            context: rank.context(),
        };
        let step = timing.decode(batch.and(question.prompt)).0 * rank.factor();
        let first_token = prediction.first_token();
        let cached = match question.overrides.cache {
            CacheUse::Counts => self.spared(question.prompt, of.depths.device()),
            CacheUse::Ignored => Tokens(0),
        };
        Some(Decoder {
            rank: of.rank,
            cost: if in_time { of.cost } else { first_token.0 },
            first_token,
            ready: Millis(prediction.space.max(rank.prompts_ahead(now).0)),
            step: Millis(rank.step_wait() + step),
            cached,
            arriving: staging.on(of.rank).arriving,
            traits: self.traits_of(of.place),
            labels: &facts.labels,
        })
    }

    pub(crate) fn whole(
        &self,
        question: &Question,
        (of, prediction): (&Candidate, &Prediction),
        in_time: bool,
    ) -> Option<Whole> {
        let (_, rank) = self.known(of.place)?;
        let spared = self.spared(question.prompt, of.depths.spared());
        let first_token = prediction.first_token();
        // Those who decode there have a step anyway.
        let timing = self.load.timings().get(rank.kind())?;
        let step = timing.prefill(Tokens(1), Tokens(0)) * rank.present_factor();
        Some(Whole {
            rank: of.rank,
            cost: if in_time { of.cost } else { first_token.0 },
            first_token,
            stalls: Millis((prediction.prefill - step.0).max(0.0)),
            uncached: Tokens(question.prompt.0 - spared.0),
            decoding: rank.decoding(),
        })
    }

    pub(crate) fn known(&self, place: Place) -> Option<(&RankFacts, &RankLoad)> {
        Some((self.fleet.facts(place)?, self.load.rank(place)?))
    }

    /// What matters of a rank when KV is handed over. Of one that only computes prompts or only decodes, and of which nothing is known, it
    /// is what vLLM does.
    pub(crate) fn traits_of(&self, place: Place) -> &Traits {
        self.traits.get(&place).unwrap_or(&self.default_traits)
    }

    /// Notes in which parts of requests the rank at a place can take part.
    pub(crate) fn note_parts(&mut self, place: Place) {
        self.halves.clear(place);
        self.alone.clear(place);
        let Some(facts) = self.fleet.facts(place) else { return };
        let serves = self.traits_of(place).serves;
        // Who does everything takes part in pairs if it is known how.
        if facts.role != Role::Both || self.traits.contains_key(&place) {
            self.halves.set(place);
        }
        if facts.role == Role::Both || (facts.role == Role::Decode && serves == Serves::Whole) {
            self.alone.set(place);
        }
    }
}
