//! What would engines say about this traffic? Caches of a bounded size that evict the least recently used, leaves first.

use rustc_hash::FxHashMap;

use crate::catalog::BlockId;
use crate::log::Log;

/// Blocks that an engine computes in one step, and so announces in one event.
const STEP_BLOCKS: usize = 512;

/// Requests go round; each worker stores what it lacks and evicts what does not fit.
pub fn serve(requests: &[Vec<BlockId>], workers: u16, capacity: usize) -> Log {
    let mut caches: Vec<_> = (0..workers).map(|_| Cache::new(capacity)).collect();
    let mut log = Log::default();
    for (number, path) in requests.iter().enumerate() {
        let worker = number % usize::from(workers);
        caches[worker].request(&path[..path.len().min(capacity)], worker as u16, &mut log);
    }
    log
}

/// A list by use, oldest at one end.
///
/// **Invariant:** a block is used whenever one below it is, and is then put on the newer side of it. So the oldest is
/// always a leaf.
struct Cache {
    capacity: usize,
    nodes: Vec<Node>,
    places: FxHashMap<BlockId, usize>,
    free: Vec<usize>,
}

struct Node {
    block: BlockId,
    older: usize,
    newer: usize,
}

/// The node between the newest and the oldest.
const ENDS: usize = 0;

impl Cache {
    fn new(capacity: usize) -> Self {
        let ends = Node {
            block: BlockId::MAX,
            older: ENDS,
            newer: ENDS,
        };
        Self {
            capacity,
            nodes: vec![ends],
            places: FxHashMap::default(),
            free: Vec::new(),
        }
    }

    fn request(&mut self, path: &[BlockId], worker: u16, log: &mut Log) {
        let held = path.iter().take_while(|block| self.places.contains_key(block)).count();
        self.touch(&path[..held]);
        let mut stored = held;
        for step in path[held..].chunks(STEP_BLOCKS) {
            log.remove(worker, &self.evict(step.len()));
            log.store(worker, stored.checked_sub(1).map(|at| path[at]), step);
            for block in step {
                self.insert(*block);
            }
            stored += step.len();
        }
        self.touch(path);
    }

    /// Makes a path the newest, its end older than its beginning.
    fn touch(&mut self, path: &[BlockId]) {
        for block in path.iter().rev() {
            let place = self.places[block];
            self.unlink(place);
            self.link_newest(place);
        }
    }

    fn evict(&mut self, room: usize) -> Vec<BlockId> {
        let count = (self.places.len() + room).saturating_sub(self.capacity);
        (0..count).map(|_| self.evict_oldest()).collect()
    }

    fn evict_oldest(&mut self) -> BlockId {
        let place = self.nodes[ENDS].newer;
        let block = self.nodes[place].block;
        self.unlink(place);
        self.places.remove(&block);
        self.free.push(place);
        block
    }

    fn insert(&mut self, block: BlockId) {
        let node = Node {
            block,
            older: ENDS,
            newer: ENDS,
        };
        let place = if let Some(place) = self.free.pop() {
            self.nodes[place] = node;
            place
        } else {
            self.nodes.push(node);
            self.nodes.len() - 1
        };
        self.places.insert(block, place);
        self.link_newest(place);
    }

    fn unlink(&mut self, place: usize) {
        let (older, newer) = (self.nodes[place].older, self.nodes[place].newer);
        self.nodes[older].newer = newer;
        self.nodes[newer].older = older;
    }

    fn link_newest(&mut self, place: usize) {
        let newest = self.nodes[ENDS].older;
        self.nodes[place].older = newest;
        self.nodes[place].newer = ENDS;
        self.nodes[newest].newer = place;
        self.nodes[ENDS].older = place;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::Change;
    use crate::mooncake::Trace;
    use rustc_hash::FxHashSet;

    #[test]
    fn caches_stay_small_and_only_leaves_go() {
        let trace = Trace::generate(300, 9);
        let (workers, capacity) = (3, 6000);
        let log = serve(&trace.requests, workers, capacity);
        let mut parents = FxHashMap::default();
        for path in &trace.requests {
            parents.extend(path.windows(2).map(|pair| (pair[1], pair[0])));
        }
        let mut held = vec![FxHashSet::default(); usize::from(workers)];
        let mut evicted = 0;
        for op in log.ops(0..log.len()) {
            let held = &mut held[op.worker];
            for block in op.blocks {
                match op.change {
                    Change::Store { .. } => {
                        assert!(held.insert(*block), "a block that is held is not announced again");
                        assert!(parents.get(block).is_none_or(|parent| held.contains(parent)));
                    }
                    Change::Remove => {
                        evicted += 1;
                        assert!(held.remove(block));
                        assert!(!held.iter().any(|other| parents.get(other) == Some(block)), "a leaf");
                    }
                }
            }
            assert!(held.len() <= capacity);
            if evicted > 3000 {
                return;
            }
        }
        panic!("nothing was evicted");
    }
}
