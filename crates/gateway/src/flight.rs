//! A request that is at a worker: what the router, the worker's health and its predictions are told when it ends.
//!
//! **Invariant:** a flight ends once. Whoever drops one says with it that nothing can be said: the client went away.
//!
//! **Invariant:** the worker's health is told before its booking ends, so that nobody who waits goes to a worker that just failed.

use std::sync::Arc;
use std::time::Instant;

use homing_discovery::{Outcome, Pass};
use homing_domain::{RankId, Tokens};
use homing_load::End;
use homing_protocol::Usage;
use homing_telemetry::Prediction;

use crate::booked::Booked;
use crate::gateway::Gateway;
use crate::progress::{Presence, RankWatch};
use crate::truth::{Feature, Fit};
use crate::worker::Worker;

/// Whether the tokens of an answer are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CountedTokens {
    Yes,
    No,
}

/// A request at a worker.
#[derive(Debug)]
pub(crate) struct Flight {
    gateway: Arc<Gateway>,
    pub(crate) worker: Arc<Worker>,
    /// What is booked for it, unless somebody else ends that.
    booked: Option<Booked>,
    /// Whether the worker's health was told.
    told: bool,
    pass: Pass,
    /// What we counted of its prompt, if we know all of it.
    counted: Option<u32>,
    feature: Feature,
    /// When tokens last came, and how many there were then.
    last: Option<(Instant, u64)>,
    presence: Presence,
}

impl Flight {
    pub(crate) fn new(
        gateway: &Arc<Gateway>,
        worker: Arc<Worker>,
        booked: Option<Booked>,
        rank: RankId,
        pass: Pass,
    ) -> Self {
        worker.enter();
        let expected = booked.as_ref().and_then(|booked| booked.expected);
        Self {
            presence: Presence::new(worker.clone(), rank, expected, gateway.clock.now()),
            gateway: gateway.clone(),
            worker,
            told: false,
            booked,
            pass,
            counted: None,
            feature: Feature::Plain,
            last: None,
        }
    }

    /// What we counted, to be compared.
    pub(crate) fn count(&mut self, counted: Option<u32>, feature: Feature) {
        self.counted = counted;
        self.feature = feature;
    }

    /// So many tokens came so far.
    pub(crate) fn output(&mut self, generated: u64) {
        let now = Instant::now();
        match self.last {
            Some((before, count)) if generated > count => {
                self.presence.record_token(self.gateway.clock.at(now));
                let tokens = u32::try_from(generated - count).unwrap_or(u32::MAX);
                let gap = (now - before) / tokens;
                self.gateway.metrics.gateway.inter_token.observe(gap);
                self.presence.observe_step(gap);
                self.last = Some((now, generated));
            }
            Some(_) => {}
            None => self.last = Some((now, generated)),
        }
        if let Some(booked) = &mut self.booked {
            booked.output(u32::try_from(generated).unwrap_or(u32::MAX));
        }
    }

    /// Its answer begins to stream.
    pub(crate) fn begin_stream(&mut self) {
        self.presence.begin_stream(self.gateway.clock.now());
    }

    /// The client waits for what comes next.
    pub(crate) fn await_token(&mut self) {
        self.presence.await_token();
    }

    /// Something of its answer came. Of an answer whose tokens are not counted, every piece is progress.
    pub(crate) fn receive(&mut self, tokens: CountedTokens) {
        self.presence.receive();
        if tokens == CountedTokens::No {
            self.presence.record_token(self.gateway.clock.now());
        }
    }

    /// Tells when its rank is lost.
    pub(crate) fn watch(&self) -> Option<RankWatch> {
        self.presence.watch()
    }

    /// It was answered.
    pub(crate) fn served(mut self, usage: Option<Usage>, generated: u64) {
        self.told = true;
        self.presence.finish(self.gateway.clock.now());
        self.tell(Outcome::Served);
        let Some(booked) = self.booked.take() else { return };
        let cached = self.judge(&booked, usage);
        let generated = usage.map_or(generated, |usage| usage.completion);
        booked.end(End::Finished, u32::try_from(generated).unwrap_or(u32::MAX), cached);
    }

    /// It failed.
    pub(crate) fn failed(mut self, outcome: Outcome) {
        self.told = true;
        self.tell(outcome);
        if let Some(booked) = self.booked.take() {
            booked.end(End::Failed, 0, None);
        }
    }

    /// Compares what was predicted with what came. Returns what the router may learn from.
    fn judge(&self, booked: &Booked, usage: Option<Usage>) -> Option<Tokens> {
        let metrics = &self.gateway.metrics.gateway;
        let usage = usage?;
        metrics.prompt_tokens.add(usage.prompt);
        let Some(counted) = self.counted else {
            metrics.cached_tokens.add(usage.cached.unwrap_or(0));
            return None;
        };
        let same = self.gateway.drift.saw(self.feature, counted, usage.prompt);
        if !same {
            metrics.drifted_prompts.add(1);
            metrics.cached_tokens.add(usage.cached.unwrap_or(0));
            return None;
        }
        let cached = usage
            .cached
            .map(|cached| Tokens(u32::try_from(cached).unwrap_or(u32::MAX)));
        let predicted = booked.cached();
        let fit = self.worker.truth.saw(usage.prompt, predicted, cached);
        metrics
            .judged_predictions
            .of(match fit {
                Some(Fit::Equal) => Prediction::Equal,
                Some(Fit::Less) => Prediction::Less,
                Some(Fit::More) => Prediction::More,
                None => Prediction::Unsaid,
            })
            .add(1);
        if let Some(cached) = cached {
            metrics.predicted_tokens.add(u64::from(predicted.0));
            metrics.cached_tokens.add(u64::from(cached.0));
        }
        cached
    }

    fn tell(&self, outcome: Outcome) {
        self.gateway.outcome(&self.worker, self.pass, outcome);
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        if !self.told {
            self.tell(Outcome::Unknown);
        }
        self.worker.leave();
    }
}
