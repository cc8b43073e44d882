//! Which offsets? A growable set of small numbers.

/// One bit per offset.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bits(Vec<u64>);

impl Bits {
    /// The numbers below `count`.
    pub(crate) fn prefix(count: usize) -> Self {
        let mut words = vec![u64::MAX; count / 64];
        if !count.is_multiple_of(64) {
            words.push((1 << (count % 64)) - 1);
        }
        Self(words)
    }

    pub(crate) fn contains(&self, number: usize) -> bool {
        self.0
            .get(number / 64)
            .is_some_and(|word| word >> (number % 64) & 1 == 1)
    }

    pub(crate) fn insert(&mut self, number: usize) {
        if number / 64 >= self.0.len() {
            self.0.resize(number / 64 + 1, 0);
        }
        self.0[number / 64] |= 1 << (number % 64);
    }

    pub(crate) fn remove(&mut self, number: usize) {
        if let Some(word) = self.0.get_mut(number / 64) {
            *word &= !(1 << (number % 64));
        }
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
    }

    /// The first number from `start` on that is not in.
    pub(crate) fn first_absent(&self, start: usize) -> usize {
        let mut number = start;
        while let Some(word) = self.0.get(number / 64) {
            let ones = (!(word >> (number % 64))).trailing_zeros() as usize;
            let left = 64 - number % 64;
            if ones < left {
                return number + ones;
            }
            number += left;
        }
        number
    }

    /// One more than the highest number.
    pub(crate) fn end(&self) -> usize {
        self.0
            .last()
            .map_or(0, |word| self.0.len() * 64 - word.leading_zeros() as usize)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = usize> {
        self.0
            .iter()
            .enumerate()
            .flat_map(|(index, word)| crate::sets::bits_in(*word, index * 64))
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn prefixes_end_where_they_should() {
        for count in [0, 1, 63, 64, 65, 128, 200] {
            let mut bits = Bits::prefix(count);
            assert_eq!((bits.first_absent(0), bits.end()), (count, count));
            assert_eq!(bits.iter().count(), count);
            bits.insert(count + 3);
            assert_eq!((bits.first_absent(0), bits.end()), (count, count + 4));
            bits.remove(count + 3);
            assert_eq!(bits, Bits::prefix(count));
        }
    }
}
