//! What does a prompt say, if nobody may know its text?
//!
//! A [`ContentId`] stands for an endless text. A [`Segment`] is the first so many tokens of one, and a [`Prompt`] is a list of
//! segments. Two prompts that begin with the same segments begin with the same tokens, and that is all that caches care about.
//! Tokens exist only where somebody asks for them: [`Spelling`] makes them from a seed, a content and a position.
//!
//! **Invariant:** equal segments of equal copies spell equal tokens; segments of different contents or copies spell tokens that
//! differ, up to chance of one in the number of words for each token.
//!
//! Cost: a segment takes 16 bytes however long it is, and spelling a token takes two or three nanoseconds.

use std::sync::Arc;

use homing_domain::Tokens;

use crate::rng::mix;

/// Which endless text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContentId(pub u64);

/// Where the number of a content comes from. Contents of different origins are different.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A trace names it, and may name it again.
    Named,
    /// It is a line's own and nobody else's.
    OfLine,
    /// It is an answer that nobody generated (see [`crate::Answer::StandIn`]).
    Answer,
    /// A generator made it up.
    Generated,
}

impl ContentId {
    /// The content with this number of this origin.
    pub const fn new(origin: Origin, number: u64) -> Self {
        let salt = match origin {
            Origin::Named => 0x6e61_6d65,
            Origin::OfLine => 0x6c69_6e65,
            Origin::Answer => 0x616e_7377,
            Origin::Generated => 0x6765_6e65,
        };
        Self(mix(number ^ mix(salt)))
    }
}

/// The first tokens of a content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Segment {
    /// Of which.
    pub content: ContentId,
    /// How many.
    pub length: Tokens,
}

/// Which of several copies of a trace something belongs to. What belongs to different copies has nothing in common.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CopyNo(pub u64);

impl CopyNo {
    /// Copy `number` of `of` copies of this one. Different numbers below `of` give different copies, and copies of different ones
    /// stay different.
    #[must_use]
    pub const fn copied(self, of: u64, number: u64) -> Self {
        Self(self.0.wrapping_mul(of).wrapping_add(number))
    }
}

/// What a prompt begins with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Start {
    /// Its segments: they are all of it.
    #[default]
    Fresh,
    /// The prompt and the answer of the request before it in its session; its segments come after them.
    Previous,
}

/// What is asked to be continued.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prompt {
    /// The copy that all its contents belong to.
    pub copy: CopyNo,
    /// What comes before the segments.
    pub start: Start,
    /// What is new in it, or all of it. Shared, because copies of a trace have the same.
    pub segments: Arc<[Segment]>,
}

impl Prompt {
    /// A prompt of these segments and nothing else.
    pub fn fresh(segments: impl Into<Arc<[Segment]>>) -> Self {
        Self {
            copy: CopyNo::default(),
            start: Start::Fresh,
            segments: segments.into(),
        }
    }

    /// A prompt that continues its session with these segments.
    pub fn continued(segments: impl Into<Arc<[Segment]>>) -> Self {
        Self {
            start: Start::Previous,
            ..Self::fresh(segments)
        }
    }

    /// Tokens of the segments; what comes before them is not counted.
    pub fn new_tokens(&self) -> Tokens {
        self.segments
            .iter()
            .fold(Tokens(0), |sum, segment| sum + segment.length)
    }
}

/// How contents become tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spelling {
    /// Other seeds, other tokens.
    pub seed: u64,
    /// The smallest token.
    pub first: u32,
    /// How many different tokens there are from it on. With 0 or 1 all texts are the same.
    pub words: u32,
}

impl Default for Spelling {
    /// A hundred thousand tokens from 0 on.
    fn default() -> Self {
        Self {
            seed: 0,
            first: 0,
            words: 100_000,
        }
    }
}

impl Spelling {
    /// Appends the tokens of a segment.
    pub fn spell(&self, copy: CopyNo, segment: Segment, tokens: &mut Vec<u32>) {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let length = segment.length.0 as usize;
        let mut state = mix(mix(self.seed ^ mix(copy.0.wrapping_add(STEP))) ^ segment.content.0);
        let word = |half: u64| self.first.wrapping_add(((half * u64::from(self.words)) >> 32) as u32);
        let (start, end) = (tokens.len(), tokens.len() + length);
        // Each number makes two tokens; the last of them may be one too many.
        tokens.resize(start + length.next_multiple_of(2), 0);
        for pair in tokens[start..].chunks_exact_mut(2) {
            state = state.wrapping_add(STEP);
            let drawn = mix(state);
            pair[0] = word(drawn & u64::from(u32::MAX));
            pair[1] = word(drawn >> 32);
        }
        tokens.truncate(end);
    }
}

/// A part of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// Tokens of a content.
    Content(CopyNo, Segment),
    /// Tokens that an engine said.
    Said(Arc<[u32]>),
}

impl Part {
    /// How many tokens.
    pub fn tokens(&self) -> Tokens {
        match self {
            Self::Content(_, segment) => segment.length,
            Self::Said(said) => Tokens(said.len().min(u32::MAX as usize) as u32),
        }
    }
}

/// A whole prompt: what came before in its session, and what is new.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Text {
    parts: Vec<Part>,
    tokens: Tokens,
}

impl Text {
    /// The segments of a prompt, without what comes before them.
    pub fn of(prompt: &Prompt) -> Self {
        let mut text = Self::default();
        text.append(prompt);
        text
    }

    /// Adds the segments of a prompt.
    pub fn append(&mut self, prompt: &Prompt) {
        for &segment in &*prompt.segments {
            self.push(Part::Content(prompt.copy, segment));
        }
    }

    /// Adds a part.
    pub fn push(&mut self, part: Part) {
        self.tokens += part.tokens();
        self.parts.push(part);
    }

    /// Its parts, in order.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// How long it is.
    pub fn len(&self) -> Tokens {
        self.tokens
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.tokens.0 == 0
    }

    /// Appends its tokens.
    pub fn tokens_into(&self, spelling: &Spelling, tokens: &mut Vec<u32>) {
        tokens.reserve(self.tokens.0 as usize + 1);
        for part in &self.parts {
            match part {
                Part::Content(copy, segment) => spelling.spell(*copy, *segment, tokens),
                Part::Said(said) => tokens.extend_from_slice(said),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn spelled(copy: u64, content: u64, length: u32) -> Vec<u32> {
        let mut tokens = Vec::new();
        let segment = Segment {
            content: ContentId(content),
            length: Tokens(length),
        };
        Spelling::default().spell(CopyNo(copy), segment, &mut tokens);
        tokens
    }

    proptest! {
        #[test]
        fn a_shorter_segment_is_the_beginning_of_a_longer_one(content: u64, copy: u64, short in 0..600_u32, more in 0..600_u32) {
            let (short, long) = (spelled(copy, content, short), spelled(copy, content, short + more));
            prop_assert_eq!(&long[..short.len()], &short[..]);
            prop_assert!(long.iter().all(|&token| token < 100_000));
        }

        #[test]
        fn other_contents_and_copies_have_other_tokens(content: u64, copy in 0..u64::MAX) {
            let tokens = spelled(copy, content, 16);
            prop_assert_ne!(&tokens, &spelled(copy + 1, content, 16));
            prop_assert_ne!(&tokens, &spelled(copy, content ^ 1, 16));
        }

        #[test]
        fn copies_of_copies_are_all_different(n in 1..20_u64, m in 1..20_u64) {
            let copies = (0..n).flat_map(|a| (0..m).map(move |b| CopyNo::default().copied(n, a).copied(m, b)));
            let mut copies: Vec<CopyNo> = copies.collect();
            copies.sort_unstable();
            copies.dedup();
            prop_assert_eq!(copies.len() as u64, n * m);
        }
    }

    #[test]
    fn a_text_is_as_long_as_its_tokens() {
        let segment = |content, length| Segment {
            content: ContentId(content),
            length: Tokens(length),
        };
        let mut text = Text::of(&Prompt::fresh([segment(1, 7), segment(2, 0), segment(1, 3)]));
        text.push(Part::Said(Arc::from([5, 6])));
        let mut tokens = Vec::new();
        text.tokens_into(&Spelling::default(), &mut tokens);
        assert_eq!(text.len(), Tokens(12));
        assert_eq!(tokens.len(), 12);
        assert_eq!(tokens[..3], tokens[7..10]);
        assert_eq!(tokens[10..], [5, 6]);
    }
}
