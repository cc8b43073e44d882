//! What does the fleet do while a decision is made? The same for all contenders.

use crate::rng::Rng;

/// Tokens in a block.
pub const BLOCK_TOKENS: usize = 16;
/// Requests that are asked for in turn.
pub const ASKED: usize = 64;
/// Requests on each rank.
const LIVE: usize = 8;
/// Prompts that share a beginning.
const GROUP: usize = 8;
/// Ranks that hold a prompt.
const COPIES: usize = 4;

/// A request that a rank works on.
#[derive(Clone, Copy, Debug)]
pub struct Live {
    /// Where.
    pub rank: usize,
    /// Which prompt.
    pub prompt: usize,
    /// Tokens of it that were not cached.
    pub uncached: usize,
    /// Whether it has had its first token.
    pub decoding: bool,
}

/// A fleet and what it does.
#[derive(Debug)]
pub struct Traffic {
    /// Ranks.
    pub ranks: usize,
    /// Prompts, as tokens.
    pub prompts: Vec<Vec<u32>>,
    /// Which rank holds which prompt.
    pub stored: Vec<(usize, usize)>,
    /// Which rank works on what.
    pub live: Vec<Live>,
    /// The prompts that are asked for.
    pub asked: Vec<usize>,
}

impl Traffic {
    /// Prompts of so many tokens in groups that share their first half; each is held by a few ranks; each rank has eight
    /// requests, one of which waits for its first token, of prompts drawn from the same.
    pub fn new(ranks: usize, tokens: usize, rng: &mut Rng) -> Self {
        let mut prompts: Vec<Vec<u32>> = Vec::new();
        for at in 0..ASKED {
            let shared = if at % GROUP == 0 { 0 } else { tokens / 2 };
            let mut prompt: Vec<u32> = prompts
                .get(at / GROUP * GROUP)
                .map_or_else(Vec::new, |first| first[..shared].to_vec());
            prompt.extend((prompt.len()..tokens).map(|_| rng.below(1 << 17) as u32));
            prompts.push(prompt);
        }
        // What runs elsewhere is of other users: it shares nothing with what is asked for.
        let others: Vec<usize> = (0..ASKED)
            .map(|_| {
                prompts.push((0..2_048).map(|_| rng.below(1 << 17) as u32).collect());
                prompts.len() - 1
            })
            .collect();
        let mut stored = Vec::new();
        for prompt in 0..ASKED {
            for _ in 0..COPIES.min(ranks) {
                let holds = (rng.below(ranks), prompt);
                if !stored.contains(&holds) {
                    stored.push(holds);
                }
            }
        }
        let mut live = Vec::new();
        for rank in 0..ranks {
            for at in 0..LIVE {
                live.push(Live {
                    rank,
                    prompt: others[rng.below(others.len())],
                    uncached: rng.between(200, 2_048),
                    decoding: at + 1 < LIVE,
                });
            }
        }
        // A few of those asked for are running where they are held.
        for _ in 0..ASKED / 2 {
            let (rank, prompt) = stored[rng.below(stored.len())];
            live.push(Live {
                rank,
                prompt,
                uncached: 64.min(tokens),
                decoding: true,
            });
        }
        let mut asked: Vec<usize> = (0..ASKED).collect();
        rng.shuffle(&mut asked);
        Self {
            ranks,
            prompts,
            stored,
            live,
            asked,
        }
    }
}
