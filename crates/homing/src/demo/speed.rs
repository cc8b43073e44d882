//! How fast are lookups? A taste, on one thread; `bench/` measures properly and beside peers.

use std::hint::black_box;
use std::time::{Duration, Instant};

use homing_domain::Blocks;

use super::fleet::Fleet;
use super::placement::Sample;

const LONG_ENOUGH: Duration = Duration::from_millis(150);

/// What was timed.
#[derive(Clone, Copy, Debug)]
pub struct Speed {
    /// Lookups in a second, keys given.
    pub lookups_per_second: f64,
    /// Prompts in a second, from tokens to answer.
    pub prompts_per_second: f64,
    /// Blocks of a prompt, on average.
    pub mean_blocks: Blocks,
}

/// Times lookups of the prompts that were served last.
pub fn measure(fleet: &Fleet, samples: &[Sample]) -> Speed {
    let (reader, mut answer) = fleet.reader();
    let lookups_per_second = rate(samples, |sample| reader.lookup(black_box(&sample.keys), &mut answer));
    let mut keys = Vec::new();
    let prompts_per_second = rate(samples, |sample| {
        keys.clear();
        fleet.append_keys(black_box(&sample.tokens), &mut keys);
        reader.lookup(&keys, &mut answer);
    });
    let blocks: usize = samples.iter().map(|sample| sample.keys.len()).sum();
    Speed {
        lookups_per_second,
        prompts_per_second,
        mean_blocks: Blocks((blocks / samples.len().max(1)) as u32),
    }
}

fn rate(samples: &[Sample], mut each: impl FnMut(&Sample)) -> f64 {
    let begun = Instant::now();
    let mut done = 0_u64;
    while begun.elapsed() < LONG_ENOUGH {
        for sample in samples {
            each(sample);
        }
        done += samples.len() as u64;
    }
    done as f64 / begun.elapsed().as_secs_f64()
}
