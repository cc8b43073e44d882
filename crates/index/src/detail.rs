//! What does one slot hold of one run, when it is more than "the first so many blocks, once each, on the device, under
//! the run's own labels"? Holes, copies, lower tiers, cache groups and labels of its own are kept here, by the writer
//! alone; readers see only how far the leading part reaches.
//!
//! **Invariant:** an offset in `plain` is held once, on the device, in group 0, under its primary label: the slot's own
//! if there is one, else the run's. Everything else is a cell, with its label spelt out.

use homing_domain::{CacheGroup, Label, Tier};

use crate::Copies;
use crate::bits::Bits;

/// So many copies of one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cell {
    label: u64,
    count: u32,
    offset: u16,
    tier: u8,
    group: u8,
}

impl Cell {
    fn order(&self) -> (u16, u64, u8, u8) {
        (self.offset, self.label, self.tier, self.group)
    }
}

/// Labels of the slot's own for plain blocks. Where a block is not plain, what they say is not valid.
#[derive(Clone, Debug, Default)]
struct OwnLabels {
    at: Bits,
    labels: Vec<u64>,
}

/// One kind of copy of one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Holding {
    pub(crate) label: Label,
    pub(crate) tier: Tier,
    pub(crate) group: CacheGroup,
}

impl Holding {
    fn is_plain(&self) -> bool {
        self.tier == Tier::Device && self.group == CacheGroup(0)
    }
}

/// What became of a copy that was to be taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// There was none.
    Nothing,
    /// The label still names the block.
    Copy,
    /// The label names the block no more.
    LastCopy,
}

/// What one slot holds of one run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Detail {
    plain: Bits,
    own: Option<Box<OwnLabels>>,
    cells: Vec<Cell>,
    /// Whether the run's count of slots with blocks beyond their leading part includes this one.
    pub(crate) counted_beyond: bool,
    /// Whether it changed in this step and is still to be published.
    pub(crate) dirty: bool,
    /// What [`Detail::bytes`] was when it was last counted.
    pub(crate) counted_bytes: u32,
}

impl Detail {
    /// The first `count` blocks, plainly.
    pub(crate) fn prefix(count: usize) -> Self {
        Self {
            plain: Bits::prefix(count),
            ..Self::default()
        }
    }

    /// Whether `label` names the block at `offset`. `run_label` is the run's own label there, as everywhere below.
    pub(crate) fn binds(&self, offset: usize, label: Label, run_label: u64) -> bool {
        self.plain.contains(offset) && self.primary(offset, run_label) == label.get()
            || self.cells_at(offset).iter().any(|cell| cell.label == label.get())
    }

    /// Whether `label` names the block at `offset`, other than as the run's label of a block that is held plainly.
    #[inline]
    pub(crate) fn calls(&self, offset: usize, label: Label) -> bool {
        self.own_label(offset) == Some(label.get())
            || self.cells_at(offset).iter().any(|cell| cell.label == label.get())
    }

    /// The slot's own label of a block that it plainly holds, if it has one.
    #[inline]
    pub(crate) fn own_label(&self, offset: usize) -> Option<u64> {
        let own = self.own.as_ref().filter(|own| own.at.contains(offset))?;
        self.plain.contains(offset).then(|| own.labels[offset])
    }

    /// Whether it is a plain leading part: then only labels tell it from what the run says itself.
    #[inline]
    pub(crate) fn is_lead(&self) -> bool {
        self.cells.is_empty() && self.plain.first_absent(0) == self.plain.end()
    }

    /// A plain leading part becomes longer. Each new block comes with the slot's own label, if it has one.
    pub(crate) fn extend_lead(&mut self, labels: &[Option<u64>]) {
        let (from, to) = (self.plain.end(), self.plain.end() + labels.len());
        self.plain.insert_all(from, to);
        if self.own.is_none() && labels.iter().all(Option::is_none) {
            return;
        }
        let own = self.own.get_or_insert_default();
        own.at.cut(from);
        own.labels.truncate(from);
        let Some(last) = labels.iter().rposition(Option::is_some) else {
            return;
        };
        let end = from + last + 1;
        if end > own.labels.capacity() {
            // Decoding adds block after block: some room ahead, but not as much as a vector would take.
            let room = end + end / 8 - own.labels.len();
            own.labels
                .reserve_exact(if labels.len() > 1 { end - own.labels.len() } else { room });
        }
        own.labels.resize(from, 0);
        own.labels
            .extend(labels[..=last].iter().map(|label| label.unwrap_or(0)));
        if labels[..=last].iter().all(Option::is_some) {
            own.at.insert_all(from, end);
        } else {
            let named = labels.iter().enumerate().filter(|(_, label)| label.is_some());
            named.for_each(|(index, _)| own.at.insert(from + index));
        }
    }

    /// Takes everything from `start` on away.
    pub(crate) fn cut(&mut self, start: usize) {
        self.plain.cut(start);
        self.cells.retain(|cell| (cell.offset as usize) < start);
        if let Some(own) = &mut self.own {
            own.at.cut(start);
            own.labels.truncate(own.at.end());
            if own.labels.is_empty() {
                self.own = None;
            } else if own.labels.len() * 2 < own.labels.capacity() {
                own.labels.shrink_to_fit();
            }
        }
    }

    /// Adds copies. Says whether the label names this block only since now.
    pub(crate) fn add(&mut self, offset: usize, holding: Holding, count: u32, copies: Copies, run_label: u64) -> bool {
        let bound = self.binds(offset, holding.label, run_label);
        let label = holding.label.get();
        if self.plain.contains(offset) && holding.is_plain() && self.primary(offset, run_label) == label {
            if copies == Copies::Counted {
                self.plain.remove(offset);
                self.put_cell(offset, holding, count + 1);
            }
        } else if let Some(cell) = self.cell_mut(offset, &holding) {
            if copies == Copies::Counted {
                cell.count = cell.count.saturating_add(count);
            }
        } else if holding.is_plain() && count == 1 && !self.plain.contains(offset) {
            self.set_plain(offset, label, run_label);
        } else {
            self.put_cell(offset, holding, count);
        }
        !bound
    }

    /// Takes one copy away.
    pub(crate) fn remove(&mut self, offset: usize, holding: Holding, run_label: u64) -> Taken {
        let label = holding.label.get();
        if let Some(cell) = self.cell_mut(offset, &holding) {
            cell.count -= 1;
            let left = cell.count;
            if left == 0 || left == 1 && holding.is_plain() && !self.plain.contains(offset) {
                self.cells
                    .retain(|cell| cell.order() != (offset as u16, label, holding.tier as u8, holding.group.0));
                if left == 1 {
                    self.set_plain(offset, label, run_label);
                }
            }
        } else if self.plain.contains(offset) && holding.is_plain() && self.primary(offset, run_label) == label {
            self.plain.remove(offset);
        } else {
            return Taken::Nothing;
        }
        if self.binds(offset, holding.label, run_label) {
            Taken::Copy
        } else {
            Taken::LastCopy
        }
    }

    /// Takes all copies under a label away.
    pub(crate) fn remove_label(&mut self, offset: usize, label: Label, run_label: u64) {
        self.cells
            .retain(|cell| cell.offset != offset as u16 || cell.label != label.get());
        if self.plain.contains(offset) && self.primary(offset, run_label) == label.get() {
            self.plain.remove(offset);
        }
    }

    /// Takes everything at an offset away. Returns the labels that named it.
    pub(crate) fn remove_all(&mut self, offset: usize, run_label: u64) -> Vec<Label> {
        let labels = self.labels_at(offset, run_label);
        self.plain.remove(offset);
        self.cells.retain(|cell| cell.offset != offset as u16);
        labels
    }

    /// Takes everything on one tier away. Returns the labels that went, once, with the offsets of their blocks: they may
    /// have other copies.
    pub(crate) fn clear_tier(&mut self, tier: Tier) -> Vec<(usize, Label)> {
        let mut gone = Vec::new();
        self.cells.retain(|cell| {
            let goes = cell.tier == tier as u8;
            if goes {
                gone.push((cell.offset as usize, Label::new(cell.label)));
            }
            !goes
        });
        if tier == Tier::Device {
            let plain = std::mem::take(&mut self.plain);
            if let Some(own) = self.own.take() {
                let named = own.at.iter().filter(|offset| plain.contains(*offset));
                gone.extend(named.map(|offset| (offset, Label::new(own.labels[offset]))));
            }
        }
        gone.sort_unstable();
        gone.dedup();
        gone
    }

    /// Every label that names the block at `offset`, once.
    pub(crate) fn labels_at(&self, offset: usize, run_label: u64) -> Vec<Label> {
        let plain = self.plain.contains(offset).then(|| self.primary(offset, run_label));
        let mut labels: Vec<u64> = self
            .cells_at(offset)
            .iter()
            .map(|cell| cell.label)
            .chain(plain)
            .collect();
        labels.sort_unstable();
        labels.dedup();
        labels.into_iter().map(Label::new).collect()
    }

    /// All copies at an offset.
    pub(crate) fn holdings_at(&self, offset: usize, run_label: u64) -> Vec<(Holding, u32)> {
        let plain = self.plain.contains(offset).then(|| {
            let label = Label::new(self.primary(offset, run_label));
            (
                Holding {
                    label,
                    tier: Tier::Device,
                    group: CacheGroup(0),
                },
                1,
            )
        });
        let cells = self.cells_at(offset).iter().map(|cell| {
            let holding = Holding {
                label: Label::new(cell.label),
                tier: Tier::ALL[cell.tier as usize],
                group: CacheGroup(cell.group),
            };
            (holding, cell.count)
        });
        plain.into_iter().chain(cells).collect()
    }

    pub(crate) fn holds(&self, offset: usize) -> bool {
        self.plain.contains(offset) || !self.cells_at(offset).is_empty()
    }

    /// The offsets at which something is held.
    pub(crate) fn offsets(&self) -> Vec<usize> {
        let mut offsets: Vec<usize> = self
            .plain
            .iter()
            .chain(self.cells.iter().map(|cell| cell.offset as usize))
            .collect();
        offsets.sort_unstable();
        offsets.dedup();
        offsets
    }

    /// How many leading blocks are held on tiers up to each tier.
    pub(crate) fn cuts(&self) -> [u16; Tier::COUNT] {
        Tier::ALL.map(|deepest| {
            let mut cut = 0;
            loop {
                cut = self.plain.first_absent(cut);
                if !self.cells_at(cut).iter().any(|cell| cell.tier <= deepest as u8) {
                    return cut as u16;
                }
                cut += 1;
            }
        })
    }

    /// One more than the highest offset that is held.
    pub(crate) fn end(&self) -> usize {
        self.plain
            .end()
            .max(self.cells.last().map_or(0, |cell| cell.offset as usize + 1))
    }

    /// Whether the leading part says it all.
    pub(crate) fn is_simple(&self) -> bool {
        self.cells.is_empty() && self.uses_no_own_label() && self.plain.first_absent(0) == self.plain.end()
    }

    /// Bytes of it, about.
    pub(crate) fn bytes(&self) -> u32 {
        let own = self
            .own
            .as_ref()
            .map_or(0, |own| own.labels.capacity() * 8 + own.at.end() / 8 + 64);
        (size_of::<Self>() + self.cells.capacity() * size_of::<Cell>() + self.plain.end() / 8 + own) as u32
    }

    fn uses_no_own_label(&self) -> bool {
        self.own
            .as_ref()
            .is_none_or(|own| own.at.iter().all(|offset| !self.plain.contains(offset)))
    }

    fn primary(&self, offset: usize, run_label: u64) -> u64 {
        match &self.own {
            Some(own) if own.at.contains(offset) => own.labels[offset],
            _ => run_label,
        }
    }

    fn set_plain(&mut self, offset: usize, label: u64, run_label: u64) {
        self.plain.insert(offset);
        if label == run_label {
            if let Some(own) = &mut self.own {
                own.at.remove(offset);
            }
            return;
        }
        let own = self.own.get_or_insert_default();
        if own.labels.len() <= offset {
            own.labels.resize(offset + 1, 0);
        }
        own.at.insert(offset);
        own.labels[offset] = label;
    }

    fn cells_at(&self, offset: usize) -> &[Cell] {
        let start = self.cells.partition_point(|cell| (cell.offset as usize) < offset);
        let count = self.cells[start..]
            .iter()
            .take_while(|cell| cell.offset as usize == offset)
            .count();
        &self.cells[start..start + count]
    }

    fn cell_mut(&mut self, offset: usize, holding: &Holding) -> Option<&mut Cell> {
        let wanted = (offset as u16, holding.label.get(), holding.tier as u8, holding.group.0);
        let index = self.cells.binary_search_by_key(&wanted, Cell::order).ok()?;
        Some(&mut self.cells[index])
    }

    fn put_cell(&mut self, offset: usize, holding: Holding, count: u32) {
        let cell = Cell {
            label: holding.label.get(),
            count,
            offset: offset as u16,
            tier: holding.tier as u8,
            group: holding.group.0,
        };
        let index = self.cells.partition_point(|other| other.order() < cell.order());
        self.cells.insert(index, cell);
    }
}
