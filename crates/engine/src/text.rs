//! Which token comes next? A text that depends on what stands before it and a seed, and on nothing else.
//!
//! **Invariant:** the token after a text is a function of that text and the seed, so a request that continues another one
//! from its prompt and first outputs gets exactly the rest of what an undisturbed run gives: on another engine, in another
//! batch, with another block size.

/// What an engine can say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vocabulary {
    /// The first token that it generates.
    pub first: u32,
    /// How many it chooses among, from the first on.
    pub words: u32,
    /// The token that ends a text. Not among the words.
    pub end: u32,
}

impl Default for Vocabulary {
    /// A hundred thousand tokens, and an end after them.
    fn default() -> Self {
        Self {
            first: 0,
            words: 100_000,
            end: 100_000,
        }
    }
}

impl Vocabulary {
    pub(crate) fn is_right(&self) -> bool {
        let last = self.words.checked_sub(1).and_then(|more| self.first.checked_add(more));
        last.is_some_and(|last| !(self.first..=last).contains(&self.end))
    }
}

/// When a text ends by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ending {
    /// Never: it goes on to the longest length that was asked for.
    #[default]
    AtLength,
    /// After about so many tokens: each token is the last with a probability of one in so many, drawn from the text before it
    /// and the seed.
    About(u32),
}

/// Everything said so far, in 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TextState(u64);

/// The odd factor between tokens.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

impl TextState {
    pub(crate) fn of(tokens: &[u32]) -> Self {
        const STEP_2: u64 = STEP.wrapping_mul(STEP);
        const STEP_3: u64 = STEP_2.wrapping_mul(STEP);
        const STEP_4: u64 = STEP_3.wrapping_mul(STEP);
        let value = |token: u32| u64::from(token) + 1;
        let (fours, rest) = tokens.as_chunks::<4>();
        // The products of four tokens do not wait for each other.
        let state = fours.iter().fold(1_u64, |state, &[a, b, c, d]| {
            let far = value(a)
                .wrapping_mul(STEP_3)
                .wrapping_add(value(b).wrapping_mul(STEP_2));
            let near = value(c).wrapping_mul(STEP).wrapping_add(value(d));
            state.wrapping_mul(STEP_4).wrapping_add(far).wrapping_add(near)
        });
        rest.iter().fold(Self(state), |state, &token| state.and(token))
    }

    /// The text with one token more.
    #[inline]
    pub(crate) fn and(self, token: u32) -> Self {
        Self(self.0.wrapping_mul(STEP).wrapping_add(u64::from(token) + 1))
    }

    /// The token after the text.
    #[inline]
    pub(crate) fn next(self, seed: u64, ending: Ending, vocabulary: &Vocabulary) -> u32 {
        let drawn = mix(self.0 ^ seed.wrapping_mul(STEP));
        if let Ending::About(tokens) = ending
            && ((drawn >> 32) * u64::from(tokens)) >> 32 == 0
        {
            return vocabulary.end;
        }
        let word = ((drawn & u64::from(u32::MAX)) * u64::from(vocabulary.words)) >> 32;
        vocabulary.first + word as u32
    }
}

#[inline]
pub(crate) fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_text_is_the_same_in_one_piece_or_token_by_token(tokens in prop::collection::vec(any::<u32>(), 0..40), cut in 0..40_usize) {
            let (head, tail) = tokens.split_at(cut.min(tokens.len()));
            let grown = tail.iter().fold(TextState::of(head), |state, &token| state.and(token));
            prop_assert_eq!(grown, TextState::of(&tokens));
        }

        #[test]
        fn tokens_are_words(state in any::<u64>(), seed in any::<u64>()) {
            let vocabulary = Vocabulary { first: 7, words: 3, end: 1 };
            let token = TextState(state).next(seed, Ending::AtLength, &vocabulary);
            prop_assert!((7..10).contains(&token));
        }
    }

    #[test]
    fn texts_end_after_about_as_many_tokens_as_asked() {
        let vocabulary = Vocabulary::default();
        let length = |seed: u64| {
            let mut state = TextState::of(&[1, 2, 3]);
            (1..100_000_u32)
                .find(|_| {
                    let token = state.next(seed, Ending::About(50), &vocabulary);
                    state = state.and(token);
                    token == vocabulary.end
                })
                .expect("it ends")
        };
        let mean = (0..2_000).map(|seed| f64::from(length(seed))).sum::<f64>() / 2_000.0;
        assert!((45.0..55.0).contains(&mean), "{mean}");
    }

    #[test]
    fn the_end_is_no_word() {
        assert!(Vocabulary::default().is_right());
        assert!(
            !Vocabulary {
                first: 0,
                words: 10,
                end: 9
            }
            .is_right()
        );
        assert!(
            !Vocabulary {
                first: 0,
                words: 0,
                end: 9
            }
            .is_right()
        );
        assert!(
            !Vocabulary {
                first: u32::MAX,
                words: 2,
                end: 0
            }
            .is_right()
        );
    }
}
