//! Which script do these bytes spell? Every byte string spells one, so that a fuzzer can search among them.

use homing_domain::Tier;

use super::{Script, Step};

/// Longer scripts find nothing that shorter ones do not, and take long.
const MAX_STEPS: usize = 64;

impl Script {
    /// The script that the bytes spell. Bytes that are missing are read as zeros.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let mut bytes = Bytes(bytes);
        let count = 1 + bytes.below(7);
        let ranks = (0..count).map(|_| {
            let kind = bytes.next();
            (kind.is_multiple_of(3), kind / 3 % 5 == 4)
        });
        let ranks = ranks.collect();
        let (bounded, capacity) = (bytes.below(3) == 2, 4 + u64::from(bytes.below(56)));
        let orphans = match bytes.below(12) {
            few @ 0..6 => usize::from(few),
            _ => 1000,
        };
        let padding = [0, 0, 60, 130][usize::from(bytes.below(4))];
        let mut steps = Vec::new();
        while !bytes.0.is_empty() && steps.len() < MAX_STEPS {
            steps.push(bytes.step());
        }
        Self {
            ranks,
            capacity: if bounded { capacity } else { 0 },
            orphans,
            padding,
            steps,
        }
    }
}

/// What is left to be read.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn next(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        *first
    }

    fn below(&mut self, bound: u8) -> u8 {
        self.next() % bound
    }

    fn tier(&mut self) -> Tier {
        match self.below(10) {
            0..6 => Tier::Device,
            6 | 7 => Tier::Host,
            8 => Tier::Disk,
            _ => Tier::External,
        }
    }

    fn step(&mut self) -> Step {
        let (kind, rank) = (self.below(30), self.next());
        match kind {
            0..6 => Step::Store {
                rank,
                sequence: self.below(6),
                from: 0,
                count: 1 + self.below(23),
                tier: Tier::Device,
                group: 0,
            },
            6..12 => Step::Store {
                rank,
                sequence: self.below(6),
                from: self.below(24),
                count: self.below(24),
                tier: self.tier(),
                group: u8::from(self.below(6) == 5),
            },
            12..15 => Step::StoreStrange {
                rank,
                parent: Some(self.below(16)).filter(|parent| *parent < 12),
                blocks: (0..=self.below(3)).map(|_| (self.below(12), self.below(4))).collect(),
            },
            15..23 => Step::Remove {
                rank,
                sequence: self.below(6),
                from: self.below(24),
                count: self.below(24),
                tier: self.tier(),
                group: u8::from(self.below(6) == 5),
                tail_first: self.below(2) == 1,
            },
            23 => Step::Clear {
                rank,
                tier: Some(self.tier()).filter(|_| rank >= 128),
            },
            24 => Step::Rejoin { rank },
            25 => Step::Reinstall { rank },
            26 => Step::Replace {
                rank,
                sequence: self.below(6),
                count: self.below(24),
            },
            27 => Step::Renumber { run: rank },
            _ => Step::Maintain,
        }
    }
}
