//! Was it as we said? What was predicted to be cached, against what the engine says was; how many tokens we counted, against how
//! many it counted.
//!
//! Less cached than predicted is evidence against a view. More is usually a sibling that came first. A prompt that has another
//! number of tokens there than here was rendered otherwise: then no prediction about it means anything, and the template is to
//! blame, not the view.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use homing_domain::Tokens;

/// How a prediction turned out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fit {
    /// As predicted.
    Equal,
    /// Less was cached than predicted.
    Less,
    /// More was.
    More,
}

/// Of what a prompt is made that changes how it is rendered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Feature {
    Plain,
    Tools,
    Media,
    Reasoning,
}

impl Feature {
    pub(crate) const ALL: [Self; 4] = [Self::Plain, Self::Tools, Self::Media, Self::Reasoning];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Tools => "tools",
            Self::Media => "media",
            Self::Reasoning => "reasoning",
        }
    }
}

/// What is known of the predictions for one worker.
#[derive(Debug, Default)]
pub(crate) struct Truth {
    equal: AtomicU64,
    less: AtomicU64,
    more: AtomicU64,
    /// Answers that did not say it.
    unsaid: AtomicU64,
    prompt_tokens: AtomicU64,
    predicted_tokens: AtomicU64,
    cached_tokens: AtomicU64,
}

/// The same as numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TruthCounts {
    pub(crate) equal: u64,
    pub(crate) less: u64,
    pub(crate) more: u64,
    pub(crate) unsaid: u64,
    pub(crate) prompt_tokens: u64,
    pub(crate) predicted_tokens: u64,
    pub(crate) cached_tokens: u64,
}

impl Truth {
    /// An answer came to a prompt of so many tokens.
    pub(crate) fn saw(&self, prompt: u64, predicted: Tokens, cached: Option<Tokens>) -> Option<Fit> {
        let Some(cached) = cached else {
            self.unsaid.fetch_add(1, Relaxed);
            return None;
        };
        self.prompt_tokens.fetch_add(prompt, Relaxed);
        self.predicted_tokens.fetch_add(u64::from(predicted.0), Relaxed);
        self.cached_tokens.fetch_add(u64::from(cached.0), Relaxed);
        let (fit, counter) = match cached.cmp(&predicted) {
            std::cmp::Ordering::Equal => (Fit::Equal, &self.equal),
            std::cmp::Ordering::Less => (Fit::Less, &self.less),
            std::cmp::Ordering::Greater => (Fit::More, &self.more),
        };
        counter.fetch_add(1, Relaxed);
        Some(fit)
    }

    pub(crate) fn counts(&self) -> TruthCounts {
        TruthCounts {
            equal: self.equal.load(Relaxed),
            less: self.less.load(Relaxed),
            more: self.more.load(Relaxed),
            unsaid: self.unsaid.load(Relaxed),
            prompt_tokens: self.prompt_tokens.load(Relaxed),
            predicted_tokens: self.predicted_tokens.load(Relaxed),
            cached_tokens: self.cached_tokens.load(Relaxed),
        }
    }
}

/// How often our count of a prompt's tokens was the engine's, by what the prompts are made of.
#[derive(Debug, Default)]
pub(crate) struct Drift {
    equal: [AtomicU64; Feature::ALL.len()],
    other: [AtomicU64; Feature::ALL.len()],
}

impl Drift {
    /// An engine counted so many tokens where we counted so many. Whether they are the same.
    pub(crate) fn saw(&self, feature: Feature, ours: u32, theirs: u64) -> bool {
        let same = u64::from(ours) == theirs;
        let counters = if same { &self.equal } else { &self.other };
        counters[feature as usize].fetch_add(1, Relaxed);
        same
    }

    /// Prompts that were counted alike, and those that were not.
    pub(crate) fn counts(&self, feature: Feature) -> (u64, u64) {
        let at = feature as usize;
        (self.equal[at].load(Relaxed), self.other[at].load(Relaxed))
    }
}

impl TruthCounts {
    /// Predictions that could be compared.
    pub(crate) fn compared(&self) -> u64 {
        self.equal + self.less + self.more
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_said_is_not_compared() {
        let truth = Truth::default();
        assert_eq!(truth.saw(40, Tokens(32), None), None);
        assert_eq!(truth.saw(40, Tokens(32), Some(Tokens(32))), Some(Fit::Equal));
        assert_eq!(truth.saw(40, Tokens(32), Some(Tokens(16))), Some(Fit::Less));
        assert_eq!(truth.saw(40, Tokens(32), Some(Tokens(48))), Some(Fit::More));
        let counts = truth.counts();
        assert_eq!((counts.compared(), counts.unsaid), (3, 1));
        assert_eq!(
            (counts.prompt_tokens, counts.predicted_tokens, counts.cached_tokens),
            (120, 96, 96)
        );
    }
}
