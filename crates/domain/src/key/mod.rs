//! How is a block named?
//!
//! A block's *content hash* covers its tokens and whatever else changes what is in it: the adapter, the cache salt (in
//! the first block of a sequence only, because that is all that engines tell about it), and the identifiers and offsets
//! of multimodal content. A block's *key* is a mix of its parent's key and its content hash, so that a key stands for a
//! whole prefix. Only full blocks have keys. Model and block size are not part of a key: there is one index per model
//! and block size.
//!
//! **Invariant:** `content_of(parent, child(parent, content)) == content`. The chain step can be undone, so the index
//! keeps keys only and computes content hashes back when it must list them.
//!
//! **Invariant:** the same seed gives the same keys on every machine (`tests/it/vectors.rs` holds published examples), and
//! [`KeyHasher::keys`], which queries use, equals [`KeyHasher::content`] and [`KeyHasher::child`] block by block, which
//! events use.
//!
//! Cost: one product of 32 bits per token, four or more at a time where the processor can, none of which waits for
//! another; two of 64 bits per sixteen tokens; and one per block that waits for the block before; see `bench -- hash`.
//! With a secret [`HashSeed`] every constant below is unknown to clients, which makes crafted collisions impractical; this
//! is no cryptographic hash. "Exact" everywhere in this project means up to collisions of these 64 bits.
//!
//! `group.rs` says how sixteen tokens become a number, `blocks.rs` how numbers become content hashes and keys, `vector.rs`
//! and `way.rs` with which instructions.

mod blocks;
mod group;
#[cfg(target_arch = "x86_64")]
mod vector;
mod way;

use std::fmt;
use std::sync::Arc;

use crate::fleet::{AdapterName, CacheSalt};
use crate::units::{BlockSize, Blocks, Tokens};

use blocks::{BlockConstants, LINES_AHEAD, Run};
use group::{GroupConstants, fold};
use way::Way;

/// What is in a block, without what comes before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContentHash(pub u64);

/// The name of a block together with all that comes before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockKey(pub u64);

/// Where the constants of the hash come from. A setting: all parts of one deployment must agree on it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct HashSeed(u128);

impl HashSeed {
    /// The seed that everyone knows.
    pub const PUBLIC: Self = Self(0);

    /// A seed of 128 bits. Keep it secret where clients are not trusted.
    pub const fn new(seed: u128) -> Self {
        Self(seed)
    }
}

impl fmt::Debug for HashSeed {
    /// Says whether there is a secret, never what it is.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Self::PUBLIC {
            "HashSeed(public)"
        } else {
            "HashSeed(secret)"
        })
    }
}

/// The name of an image, a sound or another thing that stands for tokens. Kept as it is spelled: what shortens names must
/// know the seed, so that nobody can choose two that are taken for one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MediaId(Arc<str>);

impl MediaId {
    /// The identifier as the engine spells it.
    pub fn new(identifier: &str) -> Self {
        Self(identifier.into())
    }
}

/// Where multimodal content lies in a prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Media {
    /// What it is.
    pub id: MediaId,
    /// Its first token, counted from the start of the prompt.
    pub start: Tokens,
    /// How many tokens it stands for.
    pub length: Tokens,
}

/// Which tokens a block covers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Window {
    /// Its own.
    #[default]
    Plain,
    /// Its own and the first of the next block, as engines hash with speculative heads that look at pairs of tokens.
    OneTokenAhead,
}

/// All that decides the keys of a prompt's blocks.
#[derive(Clone, Copy, Debug)]
pub struct Prompt<'a> {
    /// Its tokens.
    pub tokens: &'a [u32],
    /// How many make a block.
    pub block_size: BlockSize,
    /// Which tokens a block covers.
    pub window: Window,
    /// The adapter it asks for. An empty name is none.
    pub adapter: Option<&'a AdapterName>,
    /// The salt it asks for. An empty one is none.
    pub salt: Option<&'a CacheSalt>,
    /// Its multimodal content, ordered by start.
    pub media: &'a [Media],
}

impl<'a> Prompt<'a> {
    /// Text for the base model.
    pub const fn text(tokens: &'a [u32], block_size: BlockSize) -> Self {
        Self {
            tokens,
            block_size,
            window: Window::Plain,
            adapter: None,
            salt: None,
            media: &[],
        }
    }

    /// How many blocks of it are full, and so have keys.
    pub fn full_blocks(&self) -> Blocks {
        let ahead = match self.window {
            Window::Plain => 0,
            Window::OneTokenAhead => 1,
        };
        let tokens = self.tokens.len().saturating_sub(ahead).min(u32::MAX as usize);
        self.block_size.full_blocks(Tokens(tokens as u32))
    }
}

/// The name of an adapter, hashed once for all blocks that are computed with it: an engine says how long it is and how many
/// blocks it is in. The default is no adapter. Means something only to the hasher that made it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AdapterHash(u64);

/// What else than its tokens is in a block.
#[derive(Clone, Copy, Debug, Default)]
pub struct Extras<'a> {
    /// The adapter it was computed with, from [`KeyHasher::adapter`].
    pub adapter: AdapterHash,
    /// The salt, for the first block of a sequence; `None` for all others.
    pub salt: Option<&'a CacheSalt>,
    /// Each thing that stands for some of its tokens, with its start counted from the block's start: negative where it
    /// began in an earlier block.
    pub media: &'a [(MediaId, i64)],
}

/// Makes keys. Cheap to copy; all copies made from one seed agree.
#[derive(Clone, Copy, Debug)]
pub struct KeyHasher {
    constants: BlockConstants,
    /// What whitens a context and what it absorbs, before they are multiplied: a name, then a place.
    names: [[u64; 2]; 2],
    root: BlockKey,
    id: u64,
    way: Way,
}

impl KeyHasher {
    /// The hasher of a seed.
    pub fn new(seed: HashSeed) -> Self {
        let (mut low, mut high) = (seed.0 as u64, ((seed.0 >> 64) as u64) ^ 0x686f_6d69_6e67_2f32);
        let mut next = || {
            low = low.wrapping_add(0x9e37_79b9_7f4a_7c15);
            high = high.wrapping_add(0x9e37_79b9_7f4a_7c15);
            split_mix(low ^ split_mix(high))
        };
        let mut added = [[0; group::GROUP]; 2];
        for pair in added.as_flattened_mut().as_chunks_mut::<2>().0 {
            let both = next();
            *pair = [both as u32, (both >> 32) as u32];
        }
        let white = [next(), next()];
        let names = [[next(), next()], [next(), next()]];
        let group_step = next() | 1;
        let step = next() | 1;
        let root = BlockKey(next());
        let id = fold(next(), next() ^ step);
        Self {
            constants: BlockConstants {
                group: GroupConstants { added, white },
                group_step,
                step,
            },
            names,
            root,
            id,
            way: Way::best(),
        }
    }

    /// Names the seed without giving it away: two hashers agree exactly if these do.
    pub const fn seed_id(&self) -> u64 {
        self.id
    }

    /// The key before the first block of every sequence.
    pub const fn root(&self) -> BlockKey {
        self.root
    }

    /// The key of the block with `content` after `parent`.
    #[inline]
    pub const fn child(&self, parent: BlockKey, content: ContentHash) -> BlockKey {
        BlockKey(self.constants.inherited(parent) ^ content.0)
    }

    /// The content of the block `key` whose parent is `parent`: the inverse of [`KeyHasher::child`].
    #[inline]
    pub const fn content_of(&self, parent: BlockKey, key: BlockKey) -> ContentHash {
        ContentHash(self.constants.inherited(parent) ^ key.0)
    }

    /// What an adapter adds to each block that is computed with it.
    pub fn adapter(&self, name: Option<&AdapterName>) -> AdapterHash {
        AdapterHash(self.with_name(0, FIELD_ADAPTER, name.map_or("", |name| name.as_str())))
    }

    /// The content hash of one block. `tokens` are those it covers: one more than its own with
    /// [`Window::OneTokenAhead`].
    pub fn content(&self, tokens: &[u32], extras: &Extras<'_>) -> ContentHash {
        let context = self.with_salt(extras.adapter.0, extras.salt);
        self.tokens_in(self.with_media(context, extras.media), tokens)
    }

    /// Makes `keys` those of the prompt's full blocks. What was there is overwritten, so that a list that is used again
    /// need not be cleared.
    pub fn keys(&self, prompt: &Prompt<'_>, keys: &mut Vec<BlockKey>) {
        self.keys_in_pieces(prompt, keys, usize::MAX, |_| {}, |_| {});
    }

    /// The same for tokens that may lie far away in memory, and keys with which something can be begun before all are
    /// there. `soon` is told of a token in each cache line some way before it is read, and may ask for the line. `so_far` is
    /// shown the keys after the first block, then after `piece` blocks more (an even number), twice as many more and so on, as
    /// long as there are more; never where blocks have other things than tokens in them.
    pub fn keys_in_pieces(
        &self,
        prompt: &Prompt<'_>,
        keys: &mut Vec<BlockKey>,
        piece: usize,
        soon: impl Fn(&u32),
        mut so_far: impl FnMut(&[BlockKey]),
    ) {
        let size = prompt.block_size.get() as usize;
        let blocks = prompt.full_blocks().0 as usize;
        let every = self.adapter(prompt.adapter).0;
        let first = self.with_salt(every, prompt.salt);
        if blocks == 0 || !prompt.media.is_empty() || prompt.window != Window::Plain {
            keys.clear();
            self.keys_with_extras(prompt, every, first, keys);
            return;
        }
        let (head, rest) = prompt.tokens[..blocks * size].split_at(size);
        tell_of_first(head, rest, &soon);
        keys.resize(blocks, self.root);
        keys[0] = self.child(self.root, self.tokens_in(first, head));
        // Blocks may be hashed two at a time.
        let mut piece = (piece & !1).max(2);
        let mut done = 1;
        while done < blocks {
            so_far(&keys[..done]);
            let end = blocks.min(done.saturating_add(piece));
            piece = piece.saturating_mul(2);
            let run = Run {
                context: every,
                parent: keys[done - 1],
                tokens: &rest[(done - 1) * size..],
                keys: &mut keys[done..end],
            };
            match size {
                16 => self.way.chain::<1, 2>(&self.constants, run, &soon),
                32 => self.way.chain::<1, 1>(&self.constants, run, &soon),
                64 => self.way.chain::<2, 1>(&self.constants, run, &soon),
                _ => self.chain_any(run, size),
            }
            done = end;
        }
    }

    fn chain_any(&self, run: Run<'_>, size: usize) {
        let Run {
            context,
            mut parent,
            tokens,
            keys,
        } = run;
        for (key, block) in keys.iter_mut().zip(tokens.chunks_exact(size)) {
            parent = self.child(parent, self.tokens_in(context, block));
            *key = parent;
        }
    }

    fn keys_with_extras(&self, prompt: &Prompt<'_>, every: u64, first: u64, keys: &mut Vec<BlockKey>) {
        let size = prompt.block_size.get() as usize;
        let covered = match prompt.window {
            Window::Plain => size,
            Window::OneTokenAhead => size + 1,
        };
        keys.reserve(prompt.full_blocks().0 as usize);
        let mut parent = self.root;
        // Each is hashed once, not in every block: a client says how long an identifier is and how many blocks it is in.
        let named = prompt
            .media
            .iter()
            .map(|thing| (thing, self.name(FIELD_MEDIA, &thing.id.0)));
        let named: Vec<(&Media, u64)> = named.collect();
        let mut media = named.as_slice();
        for block in 0..prompt.full_blocks().0 as usize {
            let start = block * size;
            let start_signed = i64::try_from(start).unwrap_or(i64::MAX);
            // What ended before this block will not come again.
            while media.first().is_some_and(|(m, _)| end_of(m) <= start as u64) {
                media = &media[1..];
            }
            let mut context = if block == 0 { first } else { every };
            for (thing, name) in media
                .iter()
                .take_while(|(m, _)| u64::from(m.start.0) < (start + size) as u64)
            {
                if end_of(thing) > start as u64 {
                    context = self.with_medium(context, *name, i64::from(thing.start.0) - start_signed);
                }
            }
            parent = self.child(parent, self.tokens_in(context, &prompt.tokens[start..start + covered]));
            keys.push(parent);
        }
    }

    fn with_salt(&self, context: u64, salt: Option<&CacheSalt>) -> u64 {
        self.with_name(context, FIELD_SALT, salt.map_or("", |s| s.as_str()))
    }

    /// An empty name is none.
    fn with_name(&self, context: u64, field: u64, name: &str) -> u64 {
        if name.is_empty() {
            return context;
        }
        absorb(&self.names[0], context, self.name(field, name))
    }

    fn with_media(&self, context: u64, media: &[(MediaId, i64)]) -> u64 {
        media.iter().fold(context, |context, (id, start)| {
            self.with_medium(context, self.name(FIELD_MEDIA, &id.0), *start)
        })
    }

    fn with_medium(&self, context: u64, name: u64, start: i64) -> u64 {
        let named = absorb(&self.names[0], context, name);
        absorb(&self.names[1], named, start.cast_unsigned())
    }

    #[inline]
    fn tokens_in(&self, context: u64, tokens: &[u32]) -> ContentHash {
        let start = self.constants.start(context, tokens.len());
        ContentHash(self.way.chained(&self.constants, start, tokens))
    }

    /// A name as a number: its bytes, four at a time, are hashed like tokens, with how many they are as the number of
    /// tokens.
    fn name(&self, field: u64, name: &str) -> u64 {
        let bytes = name.as_bytes();
        let mut state = self.constants.start(field, bytes.len());
        for chunk in bytes.chunks(4 * group::GROUP) {
            let mut words = [0; group::GROUP];
            let (whole, rest) = chunk.as_chunks::<4>();
            for (word, part) in words.iter_mut().zip(whole) {
                *word = u32::from_le_bytes(*part);
            }
            for (place, byte) in rest.iter().enumerate() {
                words[whole.len()] |= u32::from(*byte) << (8 * place);
            }
            state = self.way.chained(&self.constants, state, &words);
        }
        state
    }
}

/// Tells of the lines that nobody will be told of later, before any of them is read: the first that is waited for keeps those
/// behind it waiting.
fn tell_of_first(head: &[u32], rest: &[u32], soon: impl Fn(&u32)) {
    let (head, _) = head.as_chunks::<{ group::GROUP }>();
    let (rest, _) = rest.as_chunks::<{ group::GROUP }>();
    let (near, far) = rest.split_at(LINES_AHEAD.min(rest.len()));
    // Later it is told of two at a time.
    let (_, odd) = far.as_chunks::<2>();
    let lines = head.iter().chain(near).chain(odd);
    lines.for_each(|line| soon(&line[0]));
}

const FIELD_ADAPTER: u64 = 1;
const FIELD_SALT: u64 = 2;
const FIELD_MEDIA: u64 = 3;

fn absorb(white: &[u64; 2], context: u64, value: u64) -> u64 {
    fold(context ^ white[0], value ^ white[1])
}

fn end_of(media: &Media) -> u64 {
    u64::from(media.start.0) + u64::from(media.length.0)
}

const fn split_mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// A 64-bit hash of a label. Not keyed, because labels mean something only within their rank. Never of what is in a key:
/// anyone can craft two texts with the same.
pub(crate) fn hash_bytes(bytes: &[u8]) -> u64 {
    const A: u64 = 0x2d35_8dcc_aa6c_78a5;
    const B: u64 = 0x8bb8_4b93_962e_acc9;
    let mut state = fold(bytes.len() as u64 ^ A, B);
    for chunk in bytes.chunks(8) {
        let mut padded = [0; 8];
        padded[..chunk.len()].copy_from_slice(chunk);
        state = fold(state ^ u64::from_le_bytes(padded) ^ A, B) ^ state.rotate_left(29);
    }
    split_mix(state)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn hasher() -> KeyHasher {
        KeyHasher::new(HashSeed::PUBLIC)
    }

    fn keys_of(prompt: &Prompt<'_>) -> Vec<BlockKey> {
        let mut keys = Vec::new();
        hasher().keys(prompt, &mut keys);
        keys
    }

    fn size(tokens: u32) -> BlockSize {
        BlockSize::new(tokens).unwrap()
    }

    #[test]
    fn only_full_blocks_have_keys() {
        let tokens: Vec<u32> = (0..40).collect();
        assert_eq!(keys_of(&Prompt::text(&tokens, size(16))).len(), 2);
        assert_eq!(keys_of(&Prompt::text(&tokens[..15], size(16))).len(), 0);
        assert_eq!(keys_of(&Prompt::text(&[], size(16))).len(), 0);
        let ahead = Prompt {
            window: Window::OneTokenAhead,
            ..Prompt::text(&tokens[..33], size(16))
        };
        assert_eq!(keys_of(&ahead).len(), 2);
        let short = Prompt {
            tokens: &tokens[..32],
            ..ahead
        };
        assert_eq!(keys_of(&short).len(), 1);
    }

    #[test]
    fn each_thing_that_changes_content_changes_every_key_after_it() {
        let tokens: Vec<u32> = (0..64).collect();
        let plain = Prompt::text(&tokens, size(16));
        let (adapter, salt) = (AdapterName::new("sql"), CacheSalt::new("tenant"));
        let image = [Media {
            id: MediaId::new("cat"),
            start: Tokens(20),
            length: Tokens(4),
        }];
        let moved = [Media {
            start: Tokens(21),
            ..image[0].clone()
        }];
        let other = [Media {
            id: MediaId::new("dog"),
            ..image[0].clone()
        }];
        let base = keys_of(&plain);
        let variants = [
            (
                0,
                Prompt {
                    adapter: Some(&adapter),
                    ..plain
                },
            ),
            (
                0,
                Prompt {
                    salt: Some(&salt),
                    ..plain
                },
            ),
            (
                0,
                Prompt {
                    window: Window::OneTokenAhead,
                    ..plain
                },
            ),
            (1, Prompt { media: &image, ..plain }),
            (1, Prompt { media: &moved, ..plain }),
            (1, Prompt { media: &other, ..plain }),
        ];
        let mut seen = base.clone();
        for (first_changed, variant) in variants {
            let keys = keys_of(&variant);
            assert_eq!(keys[..first_changed], base[..first_changed], "{variant:?}");
            assert!(
                keys[first_changed..].iter().all(|key| !seen.contains(key)),
                "{variant:?}"
            );
            seen.extend(&keys[first_changed..]);
        }
    }

    #[test]
    fn an_empty_adapter_or_salt_is_none() {
        let tokens: Vec<u32> = (0..32).collect();
        let plain = Prompt::text(&tokens, size(16));
        let (adapter, salt) = (AdapterName::new(""), CacheSalt::new(""));
        assert_eq!(
            keys_of(&plain),
            keys_of(&Prompt {
                adapter: Some(&adapter),
                salt: Some(&salt),
                ..plain
            })
        );
    }

    #[test]
    fn an_adapter_is_not_taken_for_a_salt_of_the_same_spelling() {
        let tokens: Vec<u32> = (0..16).collect();
        let plain = Prompt::text(&tokens, size(16));
        let (adapter, salt) = (AdapterName::new("x"), CacheSalt::new("x"));
        assert_ne!(
            keys_of(&Prompt {
                adapter: Some(&adapter),
                ..plain
            }),
            keys_of(&Prompt {
                salt: Some(&salt),
                ..plain
            })
        );
    }

    #[test]
    fn an_image_over_several_blocks_marks_each_of_them() {
        let tokens = [7; 64];
        let image = [Media {
            id: MediaId::new("cat"),
            start: Tokens(10),
            length: Tokens(30),
        }];
        let with = keys_of(&Prompt {
            media: &image,
            ..Prompt::text(&tokens, size(16))
        });
        let hasher = hasher();
        let mut parent = hasher.root();
        for (block, start) in [(0, Some(10)), (1, Some(-6)), (2, Some(-22)), (3, None)] {
            let media: Vec<(MediaId, i64)> = start.map(|s| (image[0].id.clone(), s)).into_iter().collect();
            parent = hasher.child(
                parent,
                hasher.content(
                    &tokens[..16],
                    &Extras {
                        media: &media,
                        ..Extras::default()
                    },
                ),
            );
            assert_eq!(with[block], parent, "block {block}");
        }
    }

    #[test]
    fn seeds_disagree_and_say_so() {
        let other = KeyHasher::new(HashSeed::new(1));
        assert_ne!(other.seed_id(), hasher().seed_id());
        assert_ne!(other.root(), hasher().root());
        let high = KeyHasher::new(HashSeed::new(1 << 64));
        assert_ne!(high.seed_id(), other.seed_id());
        assert_eq!(format!("{:?}", HashSeed::new(42)), "HashSeed(secret)");
    }

    #[test]
    fn padding_is_not_taken_for_tokens() {
        let hasher = hasher();
        let none = Extras::default();
        let mut seen = Vec::new();
        for length in 0..40 {
            let hash = hasher.content(&vec![0; length], &none);
            assert!(!seen.contains(&hash), "length {length}");
            seen.push(hash);
        }
    }

    #[test]
    fn every_line_is_told_of_once_before_it_is_read() {
        for (block, blocks) in [(16, 41), (32, 100), (64, 30), (16, 1), (16, 4)] {
            let tokens: Vec<u32> = (0..block * blocks).collect();
            let prompt = Prompt::text(&tokens, size(block));
            let told = std::cell::RefCell::new(Vec::new());
            let mut keys = Vec::new();
            let soon = |token: &u32| told.borrow_mut().push(*token);
            hasher().keys_in_pieces(&prompt, &mut keys, usize::MAX, soon, |_| {});
            assert_eq!(keys, keys_of(&prompt));
            let expected: Vec<u32> = (0..block * blocks).step_by(16).collect();
            let mut sorted = told.take();
            sorted.sort_unstable();
            assert_eq!(sorted, expected, "{blocks} blocks of {block}");
            // In pieces, too.
            let mut seen = Vec::new();
            hasher().keys_in_pieces(&prompt, &mut keys, 10, soon, |keys| seen.push(keys.to_vec()));
            assert_eq!(keys, keys_of(&prompt));
            let mut sorted = told.take();
            sorted.sort_unstable();
            assert_eq!(sorted, expected, "{blocks} blocks of {block}");
            let ends = [1, 11, 31, 71].into_iter().filter(|end| *end < blocks as usize);
            let ends: Vec<usize> = ends.collect();
            assert_eq!(seen.iter().map(Vec::len).collect::<Vec<_>>(), ends);
            assert!(seen.iter().all(|some| keys.starts_with(some)));
        }
    }

    /// Hashers of a seed, one for each way to compute.
    fn hashers(seed: u128) -> Vec<KeyHasher> {
        let hasher = KeyHasher::new(HashSeed::new(seed));
        let with = |way| KeyHasher { way, ..hasher };
        Way::all().into_iter().map(with).collect()
    }

    #[test]
    fn names_that_differ_in_trailing_zeros_only_are_told_apart() {
        let hasher = hasher();
        let mut seen = Vec::new();
        for length in 0..140 {
            let name = hasher.name(FIELD_MEDIA, &"\0".repeat(length));
            assert!(!seen.contains(&name), "length {length}");
            seen.push(name);
        }
    }

    #[test]
    fn tokens_in_another_order_have_another_number() {
        let hasher = hasher();
        let tokens: Vec<u32> = (100..116).collect();
        let of = |tokens: &[u32]| hasher.content(tokens, &Extras::default());
        for one in 0..16 {
            for other in 0..one {
                let mut exchanged = tokens.clone();
                exchanged.swap(one, other);
                assert_ne!(of(&exchanged), of(&tokens), "{one} and {other}");
            }
        }
    }

    proptest! {
        #[test]
        fn every_way_gives_the_same_content(
            seed: u128,
            tokens in prop::collection::vec(any::<u32>(), 200),
            adapter in prop::option::of("[a-c]{0,70}"),
            salt in prop::option::of("[a-c]{0,70}"),
            media in prop::collection::vec(("[a-c]{0,70}", any::<i64>()), 0..3),
        ) {
            let (adapter, salt) = (adapter.map(AdapterName::new), salt.map(CacheSalt::new));
            let media: Vec<_> = media.iter().map(|(id, start)| (MediaId::new(id), *start)).collect();
            let hashers = hashers(seed);
            let of = |hasher: &KeyHasher, length: usize| {
                let adapter = hasher.adapter(adapter.as_ref());
                let extras = Extras { adapter, salt: salt.as_ref(), media: &media };
                hasher.content(&tokens[..length], &extras)
            };
            for length in 0..=200 {
                let contents: Vec<_> = hashers.iter().map(|hasher| of(hasher, length)).collect();
                prop_assert!(contents.iter().all(|content| content == &contents[0]), "{} tokens: {:x?}", length, contents);
            }
        }

        #[test]
        fn every_way_gives_the_same_keys(
            seed: u128,
            tokens in prop::collection::vec(any::<u32>(), 0..2000),
            block in prop_oneof![1_u32..40, Just(16), Just(32), Just(64)],
            ahead: bool,
            place in prop::option::of((0_u32..2000, 1_u32..100)),
            piece in 0_usize..40,
        ) {
            let media: Vec<_> = place
                .map(|(start, length)| Media { id: MediaId::new("cat"), start: Tokens(start), length: Tokens(length) })
                .into_iter()
                .collect();
            let prompt = Prompt {
                window: if ahead { Window::OneTokenAhead } else { Window::Plain },
                media: &media,
                ..Prompt::text(&tokens, size(block))
            };
            let of = |hasher: &KeyHasher| {
                let mut keys = Vec::new();
                hasher.keys(&prompt, &mut keys);
                keys
            };
            let keys: Vec<_> = hashers(seed).iter().map(of).collect();
            prop_assert!(keys.iter().all(|other| other == &keys[0]));
            // Whatever was there.
            let mut in_pieces = vec![BlockKey(7); piece];
            hashers(seed)[0].keys_in_pieces(&prompt, &mut in_pieces, piece, |_| {}, |_| {});
            prop_assert_eq!(&in_pieces, &keys[0]);
        }

        #[test]
        fn content_comes_back_out_of_a_key(seed: u128, parent: u64, content: u64) {
            let hasher = KeyHasher::new(HashSeed::new(seed));
            let key = hasher.child(BlockKey(parent), ContentHash(content));
            prop_assert_eq!(hasher.content_of(BlockKey(parent), key), ContentHash(content));
        }

        #[test]
        fn queries_and_events_name_blocks_alike(
            tokens in prop::collection::vec(any::<u32>(), 0..900),
            block in prop_oneof![1_u32..40, Just(16), Just(32), Just(64)],
            ahead: bool,
            adapter in prop::option::of("[a-c]{0,2}"),
            salt in prop::option::of("[a-c]{0,2}"),
        ) {
            let hasher = hasher();
            let adapter = adapter.map(AdapterName::new);
            let salt = salt.map(CacheSalt::new);
            let window = if ahead { Window::OneTokenAhead } else { Window::Plain };
            let prompt = Prompt {
                tokens: &tokens,
                block_size: size(block),
                window,
                adapter: adapter.as_ref(),
                salt: salt.as_ref(),
                media: &[],
            };
            let mut parent = hasher.root();
            let mut expected = Vec::new();
            for number in 0..prompt.full_blocks().0 as usize {
                let start = number * block as usize;
                let covered = &tokens[start..start + block as usize + usize::from(ahead)];
                let salt = if number == 0 { salt.as_ref() } else { None };
                parent = hasher.child(parent, hasher.content(covered, &Extras { adapter: hasher.adapter(adapter.as_ref()), salt, media: &[] }));
                expected.push(parent);
            }
            prop_assert_eq!(keys_of(&prompt), expected);
        }

        #[test]
        fn one_flipped_bit_changes_about_half_of_a_key(tokens in prop::collection::vec(any::<u32>(), 16), bit in 0..512_usize) {
            let hasher = hasher();
            let mut flipped = tokens.clone();
            flipped[bit / 32] ^= 1 << (bit % 32);
            let of = |tokens: &[u32]| hasher.child(hasher.root(), hasher.content(tokens, &Extras::default())).0;
            let changed = (of(&tokens) ^ of(&flipped)).count_ones();
            prop_assert!((8..=56).contains(&changed), "{} bits changed", changed);
        }
    }
}
