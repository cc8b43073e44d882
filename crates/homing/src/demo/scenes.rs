//! What happens when things break? Two scenes, each on the fleet as the workload left it.

use homing_domain::Blocks;

use super::fleet::Fleet;
use super::placement::Sample;

/// A worker restarts: its cache is gone at once, and the index knows.
#[derive(Clone, Copy, Debug)]
pub struct Restart {
    /// The worker.
    pub worker: usize,
    /// How many blocks it held.
    pub lost: Blocks,
    /// Leading blocks of a certain prompt that it held before.
    pub before: Blocks,
    /// And right after.
    pub after: Blocks,
    /// And after it served that prompt once more.
    pub again: Blocks,
    /// Answers compared.
    pub checked: u64,
    /// Answers that were wrong.
    pub wrong: u64,
}

/// A block in mid-prefix vanishes and is computed again.
#[derive(Clone, Copy, Debug)]
pub struct Hole {
    /// The worker.
    pub worker: usize,
    /// The place of the block that vanished.
    pub at: usize,
    /// Leading blocks of a certain prompt that the worker held before.
    pub before: Blocks,
    /// And without the block.
    pub cut: Blocks,
    /// And with the block stored again, alone.
    pub repaired: Blocks,
    /// Answers compared.
    pub checked: u64,
    /// Answers that were wrong.
    pub wrong: u64,
}

/// Counts answers while a scene goes on.
#[derive(Default)]
struct Watch {
    checked: u64,
    wrong: u64,
}

impl Watch {
    fn depth(&mut self, fleet: &mut Fleet, sample: &Sample, worker: usize) -> Blocks {
        let answers = fleet.ask(&sample.keys);
        self.checked += answers.compared;
        self.wrong += answers.wrong();
        answers.depths[worker]
    }
}

/// Restarts the worker that holds most of some prompt, and lets it serve that prompt again.
pub fn restart(fleet: &mut Fleet, samples: &[Sample]) -> Restart {
    let (worker, sample) = deepest(fleet, samples);
    let mut watch = Watch::default();
    let lost = fleet.cached(worker);
    let before = watch.depth(fleet, sample, worker);
    fleet.restart(worker);
    let after = watch.depth(fleet, sample, worker);
    fleet.serve(worker, &sample.keys);
    let again = watch.depth(fleet, sample, worker);
    Restart {
        worker,
        lost,
        before,
        after,
        again,
        checked: watch.checked,
        wrong: watch.wrong,
    }
}

/// Takes a block out of the middle of the longest prefix that is held somewhere, and lets it be computed again.
pub fn hole(fleet: &mut Fleet, samples: &[Sample]) -> Hole {
    let (worker, sample) = deepest(fleet, samples);
    let mut watch = Watch::default();
    let before = watch.depth(fleet, sample, worker);
    let at = before.0 as usize / 2;
    if let Some(&key) = sample.keys.get(at) {
        fleet.lose(worker, key);
    }
    let cut = watch.depth(fleet, sample, worker);
    fleet.serve(worker, &sample.keys[..before.0 as usize]);
    let repaired = watch.depth(fleet, sample, worker);
    Hole {
        worker,
        at,
        before,
        cut,
        repaired,
        checked: watch.checked,
        wrong: watch.wrong,
    }
}

/// The worker and the prompt with the longest prefix held.
fn deepest<'s>(fleet: &mut Fleet, samples: &'s [Sample]) -> (usize, &'s Sample) {
    let mut best = (Blocks(0), 0, &samples[0]);
    for sample in samples {
        for (worker, &depth) in fleet.ask(&sample.keys).depths.iter().enumerate() {
            if depth > best.0 {
                best = (depth, worker, sample);
            }
        }
    }
    (best.1, best.2)
}
