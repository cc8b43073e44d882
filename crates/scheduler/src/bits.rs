//! Which places? A set of them as a row of bits.

use homing_load::Place;

/// A set of places.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bits {
    words: Vec<u64>,
}

impl Bits {
    /// Whether the place is in it.
    #[inline]
    pub fn has(&self, place: Place) -> bool {
        let word = self.words.get(place.index() / 64);
        word.is_some_and(|word| word >> (place.index() % 64) & 1 == 1)
    }

    /// How many are in it.
    pub fn count(&self) -> u32 {
        self.words.iter().map(|word| word.count_ones()).sum()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }

    /// The one with so many before it.
    pub fn nth(&self, count: u32) -> Option<Place> {
        let mut left = count;
        for (at, word) in self.words.iter().enumerate() {
            let here = word.count_ones();
            if left < here {
                let mut word = *word;
                (0..left).for_each(|_| word &= word - 1);
                return Some(Place(at as u32 * 64 + word.trailing_zeros()));
            }
            left -= here;
        }
        None
    }

    /// Those that are, in order.
    #[inline]
    pub fn places(&self) -> Places<'_> {
        Places {
            words: &self.words,
            at: 0,
            left: self.words.first().copied().unwrap_or(0),
        }
    }

    /// 64 of them, as bits.
    #[inline]
    pub(crate) fn word(&self, at: usize) -> u64 {
        self.words.get(at).copied().unwrap_or(0)
    }

    /// Puts a place into it.
    pub fn set(&mut self, place: Place) {
        let word = place.index() / 64;
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        self.words[word] |= 1 << (place.index() % 64);
    }

    /// Takes a place out of it.
    pub fn clear(&mut self, place: Place) {
        if let Some(word) = self.words.get_mut(place.index() / 64) {
            *word &= !(1 << (place.index() % 64));
        }
    }

    pub(crate) fn copy_from(&mut self, other: &Self) {
        self.words.clear();
        self.words.extend_from_slice(&other.words);
    }

    /// Keeps what is in `other` too; returns how many went.
    pub(crate) fn keep(&mut self, other: Option<&Self>) -> u32 {
        let mut gone = 0;
        for (index, word) in self.words.iter_mut().enumerate() {
            let kept = *word & other.and_then(|other| other.words.get(index)).copied().unwrap_or(0);
            gone += (*word ^ kept).count_ones();
            *word = kept;
        }
        gone
    }

    /// Takes in what is in `other`.
    pub(crate) fn add_all(&mut self, other: &Self) {
        if self.words.len() < other.words.len() {
            self.words.resize(other.words.len(), 0);
        }
        for (word, other) in self.words.iter_mut().zip(&other.words) {
            *word |= other;
        }
    }

    /// Takes away what is in `other`; returns how many went.
    pub(crate) fn drop_all(&mut self, other: &Self) -> u32 {
        let mut gone = 0;
        for (word, other) in self.words.iter_mut().zip(&other.words) {
            gone += (*word & other).count_ones();
            *word &= !other;
        }
        gone
    }

    pub(crate) fn reset(&mut self) {
        self.words.clear();
    }
}

/// The places of a set, in order.
#[derive(Clone, Debug)]
pub struct Places<'a> {
    words: &'a [u64],
    at: usize,
    left: u64,
}

impl Iterator for Places<'_> {
    type Item = Place;

    #[inline]
    fn next(&mut self) -> Option<Place> {
        while self.left == 0 {
            self.at += 1;
            self.left = *self.words.get(self.at)?;
        }
        let bit = self.left.trailing_zeros();
        self.left &= self.left - 1;
        Some(Place(self.at as u32 * 64 + bit))
    }
}
