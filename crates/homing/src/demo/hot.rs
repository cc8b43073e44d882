//! Which prefixes are hot? What the recent-use counts say about the system prompts that conversations share.

use homing_domain::Blocks;

use super::fleet::Fleet;
use super::workload::{SYSTEM_PROMPTS, system_prompt};

/// A shared system prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hot {
    /// Which one.
    pub system_prompt: u64,
    /// Its full blocks.
    pub blocks: Blocks,
    /// How often the last of them was routed of late, and thus the whole of it.
    pub uses: u32,
}

/// All system prompts of at least one full block, the hottest first.
pub fn prefixes(fleet: &Fleet) -> Vec<Hot> {
    let hot = |number| {
        let keys = fleet.keys(&system_prompt(number));
        let last = keys.last()?;
        Some(Hot {
            system_prompt: number,
            blocks: Blocks(keys.len() as u32),
            uses: fleet.uses(*last),
        })
    };
    let mut all: Vec<Hot> = (0..SYSTEM_PROMPTS).filter_map(hot).collect();
    all.sort_by_key(|hot| std::cmp::Reverse(hot.uses));
    all
}
