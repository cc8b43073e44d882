//! Which blocks does a text have? Names like those of real block keys, made from contents without spelling them.
//!
//! **Invariant:** two texts have the same first names exactly if they have the same first blocks, up to collisions of 64 bits.

use std::hash::{BuildHasher, Hash};

use homing_domain::{AdapterName, BlockSize, Tokens};
use rustc_hash::FxBuildHasher;

use crate::content::{Part, Text};
use crate::rng::mix;

/// The names of a text's blocks, one after the other.
pub(super) struct Namer {
    size: u32,
    /// Tokens that the block at hand still lacks.
    lacks: u32,
    name: u64,
}

impl Namer {
    pub(super) fn new(size: BlockSize, adapter: Option<&AdapterName>) -> Self {
        let name = adapter.map_or(1, |adapter| hash(adapter.as_str()));
        Self {
            size: size.get(),
            lacks: size.get(),
            name,
        }
    }

    /// Appends the names of all blocks of a text; the last may be partial. How many tokens are in that, or 0.
    pub(super) fn names(mut self, text: &Text, names: &mut Vec<u64>) -> Tokens {
        for part in text.parts() {
            let length = part.tokens().0;
            let mut from = 0;
            while from < length {
                let taken = self.lacks.min(length - from);
                let piece = match part {
                    Part::Content(copy, segment) => hash((copy, segment.content, from, taken)),
                    Part::Said(said) => hash(&said[from as usize..(from + taken) as usize]),
                };
                self.name = mix(self.name.rotate_left(23) ^ piece);
                from += taken;
                self.lacks -= taken;
                if self.lacks == 0 {
                    names.push(self.name);
                    self.lacks = self.size;
                }
            }
        }
        let partial = self.size - self.lacks;
        if partial > 0 {
            names.push(self.name);
        }
        Tokens(partial)
    }
}

fn hash(value: impl Hash) -> u64 {
    mix(FxBuildHasher.hash_one(value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content::{ContentId, CopyNo, Prompt, Segment, Spelling};
    use homing_domain::{BlockKey, HashSeed, KeyHasher};
    use proptest::prelude::*;

    fn texts() -> impl Strategy<Value = (Text, Text)> {
        let segments = prop::collection::vec((0..3_u64, 0..40_u32), 0..8);
        let segments = segments.prop_map(|parts| {
            let segment = |(content, length)| Segment {
                content: ContentId(content),
                length: Tokens(length),
            };
            parts.into_iter().map(segment).collect::<Vec<Segment>>()
        });
        // Two texts with a common beginning, so that there is something to share.
        (segments.clone(), segments.clone(), segments, 0..2_u64).prop_map(|(begin, a, b, copy)| {
            let text = |end: Vec<Segment>, copy| {
                let mut prompt = Prompt::fresh([begin.clone(), end].concat());
                prompt.copy = CopyNo(copy);
                Text::of(&prompt)
            };
            (text(a, 0), text(b, copy))
        })
    }

    fn keys(text: &Text, size: BlockSize) -> Vec<BlockKey> {
        let (mut tokens, mut keys) = (Vec::new(), Vec::new());
        text.tokens_into(&Spelling::default(), &mut tokens);
        let prompt = homing_domain::Prompt::text(&tokens, size);
        KeyHasher::new(HashSeed::PUBLIC).keys(&prompt, &mut keys);
        keys
    }

    fn shared<T: PartialEq>(a: &[T], b: &[T]) -> usize {
        a.iter().zip(b).take_while(|(a, b)| a == b).count()
    }

    proptest! {
        #[test]
        fn texts_share_as_many_names_as_keys_of_real_tokens((a, b) in texts(), size in 1..20_u32) {
            let size = BlockSize::new(size).unwrap();
            let names = |text: &Text| {
                let mut names = Vec::new();
                let partial = Namer::new(size, None).names(text, &mut names);
                let full = size.full_blocks(text.len()).0 as usize;
                assert_eq!(names.len(), full + usize::from(partial.0 > 0));
                names.truncate(full);
                names
            };
            // Blocks of few tokens may be equal by chance, though their contents are not.
            if size.get() >= 4 {
                prop_assert_eq!(shared(&names(&a), &names(&b)), shared(&keys(&a, size), &keys(&b, size)));
            }
        }
    }

    #[test]
    fn adapters_have_blocks_of_their_own() {
        let text = Text::of(&Prompt::fresh([Segment {
            content: ContentId(1),
            length: Tokens(8),
        }]));
        let names = |adapter: Option<&str>| {
            let mut names = Vec::new();
            let adapter = adapter.map(AdapterName::new);
            Namer::new(BlockSize::new(4).unwrap(), adapter.as_ref()).names(&text, &mut names);
            names
        };
        assert_eq!(names(None).len(), 2);
        assert_eq!(names(Some("a")), names(Some("a")));
        assert_eq!(shared(&names(None), &names(Some("a"))), 0);
        assert_eq!(shared(&names(Some("b")), &names(Some("a"))), 0);
    }
}
