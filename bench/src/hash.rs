//! How long does it take from tokens to the chain of keys?
//!
//! Each with its own hash: ours as `KeyHasher::keys` into a buffer that is kept; dynamo's as
//! `compute_block_hash_for_seq` followed by `compute_seq_hash_for_block`; smg's as `compute_content_hash` per block
//! followed by `chain_prefix_hash`.

use std::hint::black_box;
use std::time::Instant;

use dynamo_kv_router::protocols::{BlockHashOptions, compute_block_hash_for_seq, compute_seq_hash_for_block};
use homing_domain::{BlockKey, BlockSize, HashSeed, KeyHasher, Prompt};
use kv_index::{SequenceHash, chain_prefix_hash, compute_content_hash};

use crate::lineup::{OURS, SMG, TREE};
use crate::report::{About, Better, Report, section};
use crate::rng::Rng;

/// Block sizes measured.
pub const SIZES: [u32; 2] = [16, 64];
/// How targets call the figure that dynamo is held to.
pub const AGAINST_DYNAMO: &str = "keys, ns per token, against dynamo";
const AGAINST_ALL: &str = "keys, ns per token";

const PROMPTS: usize = 64;
const PROMPT_TOKENS: usize = 8192;
const ROUNDS: usize = 201;

/// How tables and targets call a block size.
pub fn case(size: u32) -> String {
    format!("block size {size}, prompts of {PROMPT_TOKENS} tokens")
}

/// Measures all three in rounds.
pub fn run(report: &mut Report) {
    let mut rng = Rng::new(7);
    let prompts: Vec<Vec<u32>> = (0..PROMPTS)
        .map(|_| (0..PROMPT_TOKENS).map(|_| rng.below(1 << 17) as u32).collect())
        .collect();
    for size in SIZES {
        let figures = measure(&prompts, size, &mut rng);
        let case = case(size);
        let about = |metric| About {
            section: section::HASH,
            case: &case,
            metric,
            better: Better::Lower,
        };
        report.rounds(about(AGAINST_ALL), &figures);
        let against: Vec<_> = figures.into_iter().filter(|(name, _)| *name != SMG).collect();
        report.rounds(about(AGAINST_DYNAMO), &against);
    }
}

type Work<'a> = (&'static str, Box<dyn FnMut(&[u32]) -> u64 + 'a>);

fn measure(prompts: &[Vec<u32>], size: u32, rng: &mut Rng) -> Vec<(&'static str, Vec<f64>)> {
    let mut works: [Work<'_>; 3] = [
        (OURS, Box::new(ours(size))),
        (TREE, Box::new(move |tokens| dynamo(tokens, size))),
        (SMG, Box::new(smg(size))),
    ];
    let mut figures: Vec<_> = works.iter().map(|(name, _)| (*name, Vec::new())).collect();
    let mut turns = [0, 1, 2];
    for round in 0..=ROUNDS {
        let first = rng.below(PROMPTS - 8);
        rng.shuffle(&mut turns);
        for turn in turns {
            let start = Instant::now();
            for tokens in &prompts[first..first + 8] {
                black_box((works[turn].1)(black_box(tokens)));
            }
            let ns = start.elapsed().as_nanos() as f64 / (8 * PROMPT_TOKENS) as f64;
            if round > 0 {
                figures[turn].1.push(ns);
            }
        }
    }
    figures
}

fn ours(size: u32) -> impl FnMut(&[u32]) -> u64 {
    let hasher = KeyHasher::new(HashSeed::PUBLIC);
    let size = BlockSize::new(size).expect("no size is zero");
    let mut keys: Vec<BlockKey> = Vec::new();
    move |tokens| {
        keys.clear();
        hasher.keys(&Prompt::text(tokens, size), &mut keys);
        keys.last().map_or(0, |key| key.0)
    }
}

fn dynamo(tokens: &[u32], size: u32) -> u64 {
    let contents = compute_block_hash_for_seq(tokens, size, BlockHashOptions::default());
    compute_seq_hash_for_block(&contents).last().copied().unwrap_or(0)
}

fn smg(size: u32) -> impl FnMut(&[u32]) -> u64 {
    let mut keys: Vec<SequenceHash> = Vec::new();
    move |tokens| {
        keys.clear();
        for block in tokens.chunks_exact(size as usize) {
            let content = compute_content_hash(block);
            let key = keys
                .last()
                .map_or(SequenceHash(content.0), |parent| chain_prefix_hash(*parent, content));
            keys.push(key);
        }
        keys.last().map_or(0, |key| key.0)
    }
}
