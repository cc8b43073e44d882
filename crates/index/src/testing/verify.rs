//! Is the index sound inside? Everything that its parts promise each other, checked by brute force.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::Index;
use crate::blocks::room_of;
use crate::record::RunId;
use crate::runs::RunMeta;
use crate::slots::{SlotState, label_hash};
use crate::write::Place;

impl Index {
    /// Checks every invariant that can be checked. Says which one is broken.
    pub fn verify(&self) -> Result<(), String> {
        let mut places: FxHashMap<u64, Place> = FxHashMap::default();
        let (mut blocks, mut slots) = (0, 0);
        for run in self.runs.iter() {
            self.verify_run(run, &mut places)?;
            blocks += self.len_of(run) as u64;
            slots += room_of(self.heap.header(self.runs.record(run).blocks()).words) as u64;
        }
        let counted = (self.blocks, self.block_slots, self.labels.len(), self.first_keys.len());
        let found = (blocks, slots, blocks, self.runs.live() as u64);
        if counted != found {
            return Err(format!(
                "blocks, block slots, labels, runs are counted as {counted:?} but are {found:?}"
            ));
        }
        if self.blocks > self.config.capacity {
            return Err(format!(
                "{} blocks where {} are allowed",
                self.blocks, self.config.capacity
            ));
        }
        self.verify_slots()?;
        if self.config.bug.is_none() {
            self.verify_forks()?;
            self.verify_names()?;
        }
        Ok(())
    }

    /// Every label of a slot's own leads to its block, and nothing else is in that table.
    fn verify_names(&self) -> Result<(), String> {
        let mut names = 0;
        for slot in self.slots.occupied() {
            let info = self.slots.info(slot);
            let (mut own, mut bytes) = (0, 0);
            for run in self.runs.iter() {
                let Some(detail) = info.details.get(run) else { continue };
                bytes += u64::from(detail.bytes());
                for offset in detail.offsets() {
                    let place = Place {
                        run,
                        offset: offset as u16,
                    };
                    let run_label = self.label_at(place);
                    for label in detail.labels_at(offset, run_label.get()) {
                        let is_own = label != run_label;
                        own += u64::from(is_own);
                        if is_own && self.find_own(slot, label) != Some(place) {
                            return Err(format!("slot {slot} calls {place:?} {label:?}, but finds it elsewhere"));
                        }
                    }
                }
            }
            if own != info.own_labels || bytes != info.details.bytes_inside() {
                let counted = (info.own_labels, info.details.bytes_inside());
                return Err(format!(
                    "slot {slot}: own labels, bytes of details are counted as {counted:?} but are {:?}",
                    (own, bytes)
                ));
            }
            names += own;
        }
        if names != self.names.len() {
            return Err(format!("{names} own labels, but {} in the table", self.names.len()));
        }
        Ok(())
    }

    fn verify_run(&self, run: RunId, places: &mut FxHashMap<u64, Place>) -> Result<(), String> {
        let fields = self.runs.record(run).fields();
        let len = fields.shape.len as usize;
        let stored = self.blocks_of(run);
        let key = |offset: usize| stored.key(offset);
        if len == 0 || key(0) != fields.first || key(len - 1) != fields.last {
            return Err(format!("run {run}: {len} blocks, first or last key is wrong"));
        }
        if self.run_starting_with(fields.first) != Some(run) {
            return Err(format!("run {run} is not found by its first key"));
        }
        for offset in 0..len {
            let place = Place {
                run,
                offset: offset as u16,
            };
            if let Some(other) = places.insert(key(offset), place) {
                return Err(format!("one key at {other:?} and {place:?}"));
            }
            let hash = label_hash(homing_domain::Label::new(stored.label(offset)));
            if self
                .labels
                .find(hash, |value| self.renumbered.place(value) == place)
                .is_none()
            {
                return Err(format!("the label of {place:?} is not in the table"));
            }
        }
        let mut seen: Vec<usize> = Vec::new();
        for (cut, set) in self
            .levels(&fields)
            .into_iter()
            .chain([(fields.shape.len, fields.full)])
        {
            let members = set.members(&self.heap);
            if members.iter().any(|slot| seen.contains(slot)) || cut > fields.shape.len || cut == 0 {
                return Err(format!("run {run}: a slot at two levels, or a level of {cut} of {len}"));
            }
            seen.extend(members);
        }
        self.verify_links(run)
    }

    fn verify_links(&self, run: RunId) -> Result<(), String> {
        let meta = self.runs.meta(run);
        let heads: Vec<RunId> = self.forks_of(run).collect();
        let mut offsets: Vec<u16> = Vec::new();
        for head in heads {
            let fork = self.runs.meta(head);
            let place = Place {
                run,
                offset: fork.parent_offset,
            };
            if fork.parent != run || fork.prev != 0 || fork.parent_offset >= meta.kid_reach {
                return Err(format!("run {head} heads a fork of {run} but says {fork:?}"));
            }
            if fork.parent_offset as usize >= self.len_of(run) || self.key_at(place).0 != fork.before {
                return Err(format!("run {head} follows {place:?}, which is another block"));
            }
            if offsets.contains(&fork.parent_offset) {
                return Err(format!("two forks follow {place:?}"));
            }
            offsets.push(fork.parent_offset);
        }
        if meta.begins {
            return Ok(());
        }
        // The fork of this run is the one that its key leads to, and it is in it.
        let is_head = |head: u64| self.runs.meta(head as RunId).before == meta.before;
        let head = self.forks.heads.find(meta.before, is_head).map(|head| head as RunId);
        let is_in = head.is_some_and(|head| self.chain(head, |meta| meta.next).any(|other| other == run));
        if !is_in {
            return Err(format!("run {run} is not in the fork of {head:?}: {meta:?}"));
        }
        Ok(())
    }

    fn verify_forks(&self) -> Result<(), String> {
        let metas = self.runs.iter().map(|run| self.runs.meta(run));
        let heads = metas.filter(|meta| !meta.begins && meta.prev == 0);
        let (dangling, attached): (Vec<&RunMeta>, Vec<&RunMeta>) = heads.partition(|head| head.parent == 0);
        let found = ((dangling.len() + attached.len()) as u64, dangling.len() as u64);
        let counted = (self.forks.heads.len(), self.forks.dangling);
        if counted != found {
            return Err(format!(
                "forks, and those that dangle, are counted as {counted:?} but are {found:?}"
            ));
        }
        let keys = self.runs.iter().flat_map(|run| {
            let blocks = self.blocks_of(run);
            (0..self.len_of(run)).map(move |offset| blocks.key(offset))
        });
        let keys: FxHashSet<u64> = keys.collect();
        match dangling.iter().find(|head| keys.contains(&head.before)) {
            Some(head) => Err(format!("the block that a fork misses is there: {head:?}")),
            None => Ok(()),
        }
    }

    fn verify_slots(&self) -> Result<(), String> {
        for slot in self
            .slots
            .in_state(SlotState::Live)
            .chain(self.slots.in_state(SlotState::Draft))
        {
            let mut blocks = 0;
            let info = self.slots.info(slot);
            if info.rank.worker.0 >= 1000 {
                // A filler of the tests, which holds nothing.
                continue;
            }
            for run in self.runs_of(slot) {
                match info.details.get(run) {
                    Some(detail) => {
                        blocks += detail.offsets().len() as u64;
                        if detail.cuts() != self.cuts(run, slot) && self.config.bug.is_none() {
                            return Err(format!("slot {slot}: details of run {run} are not what readers see"));
                        }
                    }
                    None => blocks += u64::from(self.cut(run, slot)),
                }
            }
            if blocks != info.blocks && self.config.bug.is_none() {
                return Err(format!("slot {slot} holds {blocks} blocks but counts {}", info.blocks));
            }
        }
        Ok(())
    }
}
