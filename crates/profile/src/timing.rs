//! How long will this take? One question, three models.

use std::sync::Arc;

use homing_domain::Tokens;

use crate::profile::Profile;
use crate::step::{Chunk, DecodeBatch, GigabytesPerSecond, Millis, Step};

/// What an engine does besides computing in each step (scheduling, sampling, launching), where nobody says better.
pub const DEFAULT_OVERHEAD: Millis = Millis(1.0);

/// A model of step times.
#[derive(Clone, Debug)]
pub enum Timing {
    /// Measured parts, added up, and the engine's own overhead for each step.
    Measured {
        /// The tables. Shared: a simulation has hundreds of engines.
        profile: Arc<Profile>,
        /// What the engine does besides.
        overhead: Millis,
    },
    /// A few coefficients.
    Polynomial(Polynomial),
    /// The same for every step.
    Constant(Constant),
}

/// A step's time from a few coefficients, all in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Polynomial {
    /// For every step.
    pub base: f64,
    /// For each token of a prompt that is computed.
    pub per_prefill_token: f64,
    /// For each pair of a computed token of a prompt and a token before it.
    pub per_prefill_pair: f64,
    /// For each sequence that generates.
    pub per_sequence: f64,
    /// For each token whose KV is read by them.
    pub per_context_token: f64,
    /// Bytes of KV that a token leaves behind.
    pub kv_bytes_per_token: u64,
}

impl Default for Polynomial {
    /// Roughly a model of 8 billion parameters on one large device.
    fn default() -> Self {
        Self {
            base: 6.0,
            per_prefill_token: 0.023,
            per_prefill_pair: 7.6e-7,
            per_sequence: 0.01,
            per_context_token: 2.9e-5,
            kv_bytes_per_token: 131_072,
        }
    }
}

/// A step's time whatever is in it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Constant {
    /// If some of it is prefill.
    pub prefill: Millis,
    /// If some of it is decode. A step with both takes the sum.
    pub decode: Millis,
    /// Bytes of KV that a token leaves behind.
    pub kv_bytes_per_token: u64,
}

impl Timing {
    /// A measured profile with [`DEFAULT_OVERHEAD`].
    pub fn measured(profile: Profile) -> Self {
        Self::Measured {
            profile: Arc::new(profile),
            overhead: DEFAULT_OVERHEAD,
        }
    }

    /// How long a step takes. Nothing to do takes no time.
    pub fn step(&self, step: &Step<'_>) -> Millis {
        if step.sequences() == 0 {
            return Millis::ZERO;
        }
        match self {
            Self::Measured { profile, overhead } => profile.step(step) + *overhead,
            Self::Polynomial(polynomial) => polynomial.step(step),
            Self::Constant(constant) => constant.step(step),
        }
    }

    /// How long a prompt of `new` tokens after `cached` ones takes, in a step of its own.
    pub fn prefill(&self, new: Tokens, cached: Tokens) -> Millis {
        let chunk = [Chunk { new, cached }];
        self.step(&Step {
            prefill: if new > Tokens(0) { &chunk } else { &[] },
            decode: DecodeBatch::default(),
        })
    }

    /// How long a step of these generating sequences takes.
    pub fn decode(&self, batch: DecodeBatch) -> Millis {
        self.step(&Step {
            prefill: &[],
            decode: batch,
        })
    }

    /// By how much a step of these sequences becomes longer for all of them if one of this context joins. Never negative.
    pub fn decode_increase(&self, batch: DecodeBatch, context: Tokens) -> Millis {
        let increase = self.decode(batch.and(context)) - self.decode(batch);
        Millis(increase.0.max(0.0))
    }

    /// How long the KV of so many tokens takes to move at a rate.
    pub fn transfer(&self, tokens: Tokens, rate: GigabytesPerSecond) -> Millis {
        rate.time_of(self.kv_bytes_per_token().saturating_mul(u64::from(tokens.0)))
    }

    /// Bytes of KV that a token leaves behind.
    pub fn kv_bytes_per_token(&self) -> u64 {
        match self {
            Self::Measured { profile, .. } => profile.kv_bytes_per_token(),
            Self::Polynomial(polynomial) => polynomial.kv_bytes_per_token,
            Self::Constant(constant) => constant.kv_bytes_per_token,
        }
    }
}

impl Polynomial {
    fn step(&self, step: &Step<'_>) -> Millis {
        let prefill = |chunk: &Chunk| {
            let (new, cached) = (f64::from(chunk.new.0), f64::from(chunk.cached.0));
            self.per_prefill_token * new + self.per_prefill_pair * new * (cached + new / 2.0)
        };
        let decode =
            self.per_sequence * f64::from(step.decode.sequences) + self.per_context_token * step.decode.context as f64;
        let prefill: f64 = step.prefill.iter().map(prefill).sum();
        Millis((self.base + prefill + decode).max(0.0))
    }
}

impl Constant {
    fn step(&self, step: &Step<'_>) -> Millis {
        let mut time = Millis::ZERO;
        if !step.prefill.is_empty() {
            time += self.prefill;
        }
        if step.decode.sequences > 0 {
            time += self.decode;
        }
        time
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_simple_models_do_what_they_say() {
        let polynomial = Timing::Polynomial(Polynomial {
            base: 1.0,
            per_prefill_token: 0.1,
            per_prefill_pair: 0.01,
            per_sequence: 2.0,
            per_context_token: 0.5,
            kv_bytes_per_token: 1_000,
        });
        assert_eq!(polynomial.prefill(Tokens(10), Tokens(0)), Millis(1.0 + 1.0 + 0.5));
        assert_eq!(polynomial.prefill(Tokens(10), Tokens(20)), Millis(1.0 + 1.0 + 2.5));
        assert_eq!(
            polynomial.decode(DecodeBatch::even(3, Tokens(4))),
            Millis(1.0 + 6.0 + 6.0)
        );
        assert_eq!(
            polynomial.decode_increase(DecodeBatch::even(3, Tokens(4)), Tokens(6)),
            Millis(5.0)
        );
        assert_eq!(polynomial.transfer(Tokens(50), GigabytesPerSecond(1.0)), Millis(0.05));

        let constant = Timing::Constant(Constant {
            prefill: Millis(20.0),
            decode: Millis(5.0),
            kv_bytes_per_token: 1,
        });
        let both = Step {
            prefill: &[Chunk {
                new: Tokens(7),
                cached: Tokens(0),
            }],
            decode: DecodeBatch::even(1, Tokens(1)),
        };
        assert_eq!(constant.step(&both), Millis(25.0));
        for timing in [polynomial, constant] {
            assert_eq!(timing.step(&Step::default()), Millis::ZERO);
            assert_eq!(timing.prefill(Tokens(0), Tokens(100)), Millis::ZERO);
        }
    }
}
