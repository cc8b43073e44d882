//! Of which runs does a slot hold something that its leading part does not say? A map in parts, so that no growth of it
//! takes long: a rank with labels of its own has an entry for nearly every run that it holds.

use rustc_hash::FxHashMap;

use crate::detail::Detail;
use crate::record::RunId;

const PARTS: usize = 16;

type Part = FxHashMap<RunId, Box<Detail>>;

/// The details of one slot, by run.
#[derive(Debug, Default)]
pub(crate) struct Details {
    /// Most slots have none.
    parts: Option<Box<[Part; PARTS]>>,
    len: usize,
    /// Bytes of the details, as far as they were told.
    bytes: u64,
}

impl Details {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline]
    pub(crate) fn get(&self, run: RunId) -> Option<&Detail> {
        let parts = self.parts.as_ref().filter(|_| self.len > 0)?;
        parts[part_of(run)].get(&run).map(|detail| &**detail)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, run: RunId) -> Option<&mut Detail> {
        let parts = self.parts.as_mut()?;
        parts[part_of(run)].get_mut(&run).map(|detail| &mut **detail)
    }

    pub(crate) fn contains(&self, run: RunId) -> bool {
        self.get(run).is_some()
    }

    /// Puts a detail where there is none.
    pub(crate) fn insert(&mut self, run: RunId, mut detail: Box<Detail>) {
        detail.counted_bytes = detail.bytes();
        self.bytes += u64::from(detail.counted_bytes);
        let parts = self
            .parts
            .get_or_insert_with(|| Box::new(std::array::from_fn(|_| Part::default())));
        parts[part_of(run)].insert(run, detail);
        self.len += 1;
    }

    pub(crate) fn remove(&mut self, run: RunId) -> Option<Box<Detail>> {
        let part = &mut self.parts.as_mut()?[part_of(run)];
        let detail = part.remove(&run)?;
        if part.len() * 8 < part.capacity() {
            part.shrink_to(part.len() * 2);
        }
        self.bytes -= u64::from(detail.counted_bytes);
        self.len -= 1;
        Some(detail)
    }

    /// A detail changed: its size is counted anew.
    pub(crate) fn recount(&mut self, run: RunId) {
        let Some(detail) = self.get_mut(run) else { return };
        let bytes = detail.bytes();
        let before = std::mem::replace(&mut detail.counted_bytes, bytes);
        self.bytes = self.bytes + u64::from(bytes) - u64::from(before);
    }

    /// Bytes of what is in the map, as it was last counted.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn bytes_inside(&self) -> u64 {
        self.bytes
    }

    /// Bytes of the map and of what is in it, as it was last counted.
    pub(crate) fn bytes(&self) -> u64 {
        let entry = size_of::<(RunId, Box<Detail>)>() + 1;
        let map: usize = match &self.parts {
            Some(parts) => {
                size_of::<[Part; PARTS]>() + parts.iter().map(|part| part.capacity() * 8 / 7 * entry).sum::<usize>()
            }
            None => 0,
        };
        map as u64 + self.bytes
    }
}

/// Neighbours go to different parts: runs are numbered in the order in which they came.
#[inline]
fn part_of(run: RunId) -> usize {
    run as usize % PARTS
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_those_of_what_is_there() {
        let mut details = Details::default();
        for run in 1..500 {
            details.insert(run, Box::new(Detail::prefix(run as usize)));
        }
        let filled = details.bytes();
        let alone: u64 = (1..500).map(|run| u64::from(Detail::prefix(run).bytes())).sum();
        assert!(filled > alone && filled < 2 * alone, "{filled} of {alone}");
        let more = u64::from(Detail::prefix(4000).bytes()) - u64::from(Detail::prefix(7).bytes());
        details.get_mut(7).unwrap().extend_lead(&vec![None; 3993]);
        details.recount(7);
        assert_eq!(details.bytes(), filled + more);
        for run in 1..500 {
            assert!(details.remove(run).is_some() && details.remove(run).is_none());
        }
        assert!(details.is_empty());
        assert!(details.bytes() < 4096, "{} bytes for nothing", details.bytes());
    }
}
