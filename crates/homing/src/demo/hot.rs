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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::fleet::MS_BETWEEN_REQUESTS;
    use crate::demo::placement::{Policy, serve};
    use crate::demo::workload::Workload;
    use homing_config::{CacheView, Config};
    use homing_domain::BlockSize;
    use std::time::Duration;

    /// How many of the last requests, as many as come in `time`, begin with a system prompt.
    fn truth(config: &Config, number: u64, time: Duration) -> u32 {
        let (system, all) = (system_prompt(number), Workload::new(&config.demo).count());
        let last = time.as_millis() as usize / MS_BETWEEN_REQUESTS as usize;
        let requests = Workload::new(&config.demo).skip(all.saturating_sub(last));
        requests.filter(|request| request.prompt.starts_with(&system)).count() as u32
    }

    #[test]
    fn recent_uses_are_those_of_the_window() {
        let mut config = Config::default();
        (config.demo.sessions, config.demo.turns) = (40, 4);
        for window in [Duration::from_secs(8), Duration::from_mins(1)] {
            config.index.heat_window = window;
            let fleet = Fleet::new(&config, CacheView::Events).unwrap();
            let (_, fleet, _) = serve(&config, Policy::LeastWork, fleet);
            let hot = prefixes(&fleet);
            assert_eq!(hot.len() as u64, SYSTEM_PROMPTS);
            assert!(hot.is_sorted_by(|one, next| one.uses >= next.uses), "{hot:?}");
            for hot in hot {
                // The window is kept to a quarter, and a few other blocks may share the cells of this one.
                let least = truth(&config, hot.system_prompt, window * 3 / 4);
                let most = truth(&config, hot.system_prompt, window) + 8;
                assert!((least..=most).contains(&hot.uses), "{least} to {most}: {hot:?}");
            }
        }
    }

    #[test]
    fn a_prompt_without_a_full_block_is_left_out() {
        let config = Config {
            block_size: BlockSize::new(1024).unwrap(),
            ..Config::default()
        };
        let fleet = Fleet::new(&config, CacheView::Events).unwrap();
        assert!(prefixes(&fleet).len() < SYSTEM_PROMPTS as usize);
    }
}
