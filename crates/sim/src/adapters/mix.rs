//! Who is asked for? A few much, many a little, and from time to time others.

use homing_domain::AdapterName;

use crate::Rng;

/// Popularity by Zipf's law over adapters whose order shifts.
#[derive(Clone, Debug)]
pub struct Mix {
    names: Vec<AdapterName>,
    /// What all up to each place have together.
    upto: Vec<f64>,
    /// Places by which the order has moved.
    moved: usize,
    /// Places by which it moves at once.
    step: usize,
}

impl Mix {
    /// So many adapters.
    pub fn new(adapters: u32) -> Self {
        let mut upto: Vec<f64> = Vec::new();
        for place in 1..=adapters.max(1) {
            let before = upto.last().copied().unwrap_or(0.0);
            upto.push(before + 1.0 / f64::from(place));
        }
        Self {
            names: (0..adapters.max(1))
                .map(|number| AdapterName::new(format!("lora-{number:03}")))
                .collect(),
            upto,
            moved: 0,
            step: (adapters as usize / 10).max(1),
        }
    }

    /// All names.
    pub fn names(&self) -> &[AdapterName] {
        &self.names
    }

    /// Others are popular from now on.
    pub fn shift(&mut self) {
        self.moved = (self.moved + self.step) % self.names.len();
    }

    /// One of them.
    pub fn draw(&self, rng: &mut Rng) -> AdapterName {
        let all = self.upto.last().copied().unwrap_or(1.0);
        let drawn = rng.share() * all;
        let place = self
            .upto
            .partition_point(|upto| *upto < drawn)
            .min(self.names.len() - 1);
        self.names[(place + self.moved) % self.names.len()].clone()
    }
}
