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

    /// Adds the numbers from `start` on and before `end`.
    pub(crate) fn insert_all(&mut self, start: usize, end: usize) {
        if start >= end {
            return;
        }
        let words = end.div_ceil(64);
        if words > self.0.len() {
            self.0.resize(words, 0);
        }
        for (index, word) in self.0.iter_mut().enumerate().take(words).skip(start / 64) {
            let below = |number: usize| match number.saturating_sub(index * 64) {
                bits @ 0..64 => (1 << bits) - 1,
                _ => u64::MAX,
            };
            *word |= below(end) & !below(start);
        }
    }

    /// Takes the numbers from `start` on out.
    pub(crate) fn cut(&mut self, start: usize) {
        if start >= self.end() {
            return;
        }
        self.0.truncate(start.div_ceil(64));
        if let (Some(word), bits @ 1..) = (self.0.last_mut(), start % 64) {
            *word &= (1 << bits) - 1;
        }
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
        if self.0.len() * 4 < self.0.capacity() {
            self.0.shrink_to(self.0.len() * 2);
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

    #[test]
    fn many_come_and_go_as_one_by_one() {
        let edges = [0, 1, 5, 63, 64, 65, 127, 128, 200];
        for start in edges {
            for end in edges {
                let mut bits = Bits::prefix(3);
                bits.insert_all(start, end);
                let mut wanted = Bits::prefix(3);
                (start..end).for_each(|number| wanted.insert(number));
                assert_eq!(bits, wanted, "{start}..{end}");
                for cut in edges {
                    let (mut bits, mut wanted) = (bits.clone(), wanted.clone());
                    bits.cut(cut);
                    (cut..200).for_each(|number| wanted.remove(number));
                    assert_eq!(bits, wanted, "{start}..{end} cut at {cut}");
                }
            }
        }
    }
}
