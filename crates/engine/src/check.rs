//! Does everything hold that must? For tests of this and other crates.

use rustc_hash::FxHashMap;

use crate::config::Style;
use crate::rank::Rank;
use crate::sequence::Fate;

impl Rank {
    /// Sequences that were cancelled and go when the present step ends.
    pub(crate) fn leaving(&self) -> usize {
        let held = self.running.iter().chain(&self.sglang.chunked).copied();
        let held = held.chain(self.transit.sequences());
        held.filter(|slot| self.sequences[*slot as usize].fate == Fate::Vanishes)
            .count()
    }

    pub(crate) fn check(&self) -> Result<(), String> {
        let counts = self.pool.counts();
        if counts.free + counts.active + counts.inactive != counts.total {
            return Err(format!("{counts:?} do not add up"));
        }
        if self.running.len() > self.config.max_running as usize {
            return Err(format!("{} sequences run", self.running.len()));
        }
        let mut references = FxHashMap::default();
        for id in self.transit.staged_blocks() {
            *references.entry(id).or_insert(0) += 1;
        }
        let running = self.running.iter().chain(&self.sglang.chunked).copied();
        for slot in running.chain(self.transit.sequences()) {
            let sequence = &self.sequences[slot as usize];
            for id in &sequence.blocks {
                *references.entry(*id).or_insert(0) += 1;
            }
            let room = sequence.blocks.len() as u32 * self.config.block_size.get();
            let wanted = sequence.computed + sequence.scheduled;
            if sequence.room != room || wanted > room || sequence.computed > sequence.length {
                return Err(format!("{:?} has computed {wanted} of room for {room}", sequence.id));
            }
        }
        if counts.active as usize != references.len() {
            return Err(format!(
                "{} blocks are active, {} are held",
                counts.active,
                references.len()
            ));
        }
        for (id, held) in references {
            let counted = self.pool.references(id).map_err(|error| error.to_string())?;
            if counted != held {
                return Err(format!("{id:?} has {counted} references and {held} holders"));
            }
        }
        for &slot in &self.waiting {
            let sequence = &self.sequences[slot as usize];
            if !sequence.blocks.is_empty() || sequence.scheduled > 0 {
                return Err(format!("{:?} waits with blocks", sequence.id));
            }
        }
        if matches!(self.config.style, Style::Vllm(_)) && self.sglang.chunked.is_some() {
            return Err("vLLM has no prompt apart".to_owned());
        }
        Ok(())
    }
}
