//! Which number is this? Counts with a unit in their type, so that tokens are never added to blocks.

use std::fmt;
use std::num::NonZeroU32;
use std::ops::{Add, AddAssign};

/// A number of tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tokens(pub u32);

/// A number of whole blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Blocks(pub u32);

/// How many tokens make a block. Never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockSize(NonZeroU32);

impl BlockSize {
    /// A block of `tokens` tokens, or `None` for zero.
    pub const fn new(tokens: u32) -> Option<Self> {
        match NonZeroU32::new(tokens) {
            Some(tokens) => Some(Self(tokens)),
            None => None,
        }
    }

    /// Tokens in a block.
    pub const fn get(self) -> u32 {
        self.0.get()
    }

    /// How many blocks `tokens` fill completely; the rest is not cached and has no key.
    pub const fn full_blocks(self, tokens: Tokens) -> Blocks {
        Blocks(tokens.0 / self.0.get())
    }

    /// How many tokens of a prompt come from a cache that holds so many leading blocks of it. Engines compute one token at least, to
    /// have an answer, and what they take from a cache are whole blocks: of a prompt that is cached to its end the last block is
    /// computed again.
    pub const fn reused(self, prompt: Tokens, blocks: Blocks) -> Tokens {
        let most = self.full_blocks(Tokens(prompt.0.saturating_sub(1)));
        if blocks.0 < most.0 {
            self.tokens_in(blocks)
        } else {
            self.tokens_in(most)
        }
    }

    /// How many tokens are in `blocks`, saturating.
    pub const fn tokens_in(self, blocks: Blocks) -> Tokens {
        Tokens(blocks.0.saturating_mul(self.0.get()))
    }
}

macro_rules! count {
    ($unit:ident, $name:literal) => {
        impl Add for $unit {
            type Output = Self;
            fn add(self, other: Self) -> Self {
                Self(self.0.saturating_add(other.0))
            }
        }
        impl AddAssign for $unit {
            fn add_assign(&mut self, other: Self) {
                *self = *self + other;
            }
        }
        impl fmt::Display for $unit {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{} {}", self.0, $name)
            }
        }
    };
}

count!(Tokens, "tokens");
count!(Blocks, "blocks");

impl fmt::Display for BlockSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} tokens per block", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tail_that_does_not_fill_a_block_is_no_block() {
        let size = BlockSize::new(16).unwrap();
        assert_eq!(size.full_blocks(Tokens(15)), Blocks(0));
        assert_eq!(size.full_blocks(Tokens(16)), Blocks(1));
        assert_eq!(size.full_blocks(Tokens(33)), Blocks(2));
        assert_eq!(size.tokens_in(Blocks(3)), Tokens(48));
        assert_eq!(size.tokens_in(Blocks(u32::MAX)), Tokens(u32::MAX));
    }

    #[test]
    fn one_token_is_computed_with_its_block() {
        let size = BlockSize::new(16).unwrap();
        let reused = |prompt, blocks| size.reused(Tokens(prompt), Blocks(blocks)).0;
        assert_eq!([reused(33, 1), reused(33, 2), reused(33, 9)], [16, 32, 32]);
        assert_eq!([reused(32, 2), reused(16, 1), reused(0, 1)], [16, 0, 0]);
        assert_eq!(BlockSize::new(1).unwrap().reused(Tokens(5), Blocks(5)), Tokens(4));
    }

    #[test]
    fn a_block_of_no_tokens_does_not_exist() {
        assert_eq!(BlockSize::new(0), None);
    }
}
