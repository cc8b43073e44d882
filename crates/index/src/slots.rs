//! Who is in which slot? A rank takes a small number while it lives. A rank that starts anew takes another one, which is
//! filled off-line and made live in one step; the old one is swept in the background and used again after that.

use std::sync::Arc;

use homing_domain::{Label, RankId};

use crate::details::Details;
use crate::orphans::Orphans;
use crate::{Copies, IndexError};

/// A rank's place in the bitsets. Valid until the rank is dropped, cleared as a whole or replaced; then every operation
/// with it is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Slot {
    pub(crate) index: u16,
    pub(crate) generation: u32,
}

impl Slot {
    /// The number that stands for the slot in the sets of an answer.
    pub const fn index(self) -> usize {
        self.index as usize
    }
}

/// The slots that count, as readers see them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Live {
    pub(crate) words: Vec<u64>,
    pub(crate) ranks: Vec<Option<(RankId, Slot)>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlotState {
    Free,
    /// Being filled; not seen by readers.
    Draft,
    Live,
    /// Its content is being swept away.
    Retired,
}

/// What the writer knows of one slot.
#[derive(Debug)]
pub(crate) struct SlotInfo {
    pub(crate) generation: u32,
    pub(crate) state: SlotState,
    pub(crate) rank: RankId,
    pub(crate) copies: Copies,
    /// Runs of which this slot holds something else than plain leading blocks.
    pub(crate) details: Details,
    /// How many labels of this slot are not the run's own.
    pub(crate) own_labels: u64,
    pub(crate) orphans: Orphans,
    /// Blocks held on any tier.
    pub(crate) blocks: u64,
    /// A bound made the index forget something of this slot.
    pub(crate) truncated: bool,
}

impl SlotInfo {
    fn new() -> Self {
        Self {
            generation: 0,
            state: SlotState::Free,
            rank: RankId::new(0, 0),
            copies: Copies::Counted,
            details: Details::default(),
            own_labels: 0,
            orphans: Orphans::default(),
            blocks: 0,
            truncated: false,
        }
    }
}

/// All slots.
#[derive(Debug)]
pub(crate) struct Slots {
    infos: Vec<SlotInfo>,
    max_ranks: usize,
    pub(crate) changed: bool,
}

impl Slots {
    /// Every rank may have a second slot that is being filled or swept.
    pub(crate) fn new(max_ranks: usize) -> Self {
        Self {
            infos: Vec::new(),
            max_ranks,
            changed: true,
        }
    }

    pub(crate) fn live(&self) -> Live {
        let highest = self.infos.iter().rposition(|info| info.state == SlotState::Live);
        let count = highest.map_or(0, |highest| highest + 1);
        let mut live = Live {
            words: vec![0; count.div_ceil(64)],
            ranks: vec![None; count],
        };
        for (index, info) in self
            .infos
            .iter()
            .enumerate()
            .filter(|(_, info)| info.state == SlotState::Live)
        {
            live.words[index / 64] |= 1 << (index % 64);
            live.ranks[index] = Some((
                info.rank,
                Slot {
                    index: index as u16,
                    generation: info.generation,
                },
            ));
        }
        live
    }

    pub(crate) fn take(&mut self, rank: RankId, copies: Copies, state: SlotState) -> Result<Slot, IndexError> {
        let used = self.infos.iter().filter(|info| info.state == SlotState::Live).count();
        let free = self.infos.iter().position(|info| info.state == SlotState::Free);
        let index = free.unwrap_or(self.infos.len());
        if used >= self.max_ranks && state == SlotState::Live || index >= 2 * self.max_ranks {
            return Err(IndexError::TooManyRanks { limit: self.max_ranks });
        }
        if index == self.infos.len() {
            self.infos.push(SlotInfo::new());
        }
        let generation = self.infos[index].generation.wrapping_add(1);
        self.infos[index] = SlotInfo {
            generation,
            state,
            rank,
            copies,
            ..SlotInfo::new()
        };
        self.changed |= state == SlotState::Live;
        Ok(Slot {
            index: index as u16,
            generation,
        })
    }

    pub(crate) fn live_slot_of(&self, rank: RankId) -> Option<Slot> {
        let index = self
            .infos
            .iter()
            .position(|info| info.state == SlotState::Live && info.rank == rank)?;
        Some(Slot {
            index: index as u16,
            generation: self.infos[index].generation,
        })
    }

    pub(crate) fn set_state(&mut self, slot: Slot, state: SlotState) {
        self.infos[slot.index()].state = state;
        self.changed = true;
    }

    /// The slot's number if it may be written to.
    pub(crate) fn check(&self, slot: Slot) -> Result<usize, IndexError> {
        match self.infos.get(slot.index()) {
            Some(info)
                if info.generation == slot.generation && matches!(info.state, SlotState::Live | SlotState::Draft) =>
            {
                Ok(slot.index())
            }
            _ => Err(IndexError::NoSuchSlot),
        }
    }

    #[inline]
    pub(crate) fn info(&self, index: usize) -> &SlotInfo {
        &self.infos[index]
    }

    #[inline]
    pub(crate) fn info_mut(&mut self, index: usize) -> &mut SlotInfo {
        &mut self.infos[index]
    }

    /// Every slot that may have content: live, in the making, or still to be swept.
    pub(crate) fn occupied(&self) -> impl Iterator<Item = usize> {
        let slots = self.infos.iter().enumerate();
        slots
            .filter(|(_, info)| info.state != SlotState::Free)
            .map(|(index, _)| index)
    }

    pub(crate) fn in_state(&self, state: SlotState) -> impl Iterator<Item = usize> {
        self.infos
            .iter()
            .enumerate()
            .filter(move |(_, info)| info.state == state)
            .map(|(index, _)| index)
    }
}

/// Where a label leads: hashed, because engines may number their blocks.
pub(crate) fn label_hash(label: Label) -> u64 {
    let mixed = label.get().wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

/// Where a label leads that one slot has for itself.
pub(crate) fn own_hash(slot: usize, label: Label) -> u64 {
    let mixed = label.get() ^ (slot as u64 + 1).wrapping_mul(0xd6e8_feb8_6659_fd93);
    label_hash(Label::new(mixed))
}

/// Everything that readers look at, published together.
#[derive(Clone, Debug)]
pub(crate) struct View {
    pub(crate) heap: Arc<crate::heap::Directory>,
    pub(crate) records: Arc<crate::runs::RecordDirectory>,
    pub(crate) first_keys: Arc<crate::table::Snapshot>,
    pub(crate) live: Arc<Live>,
}
