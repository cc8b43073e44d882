//! How does a figure change over time, in memory that does not grow with it?
//!
//! At most [`CELLS`] cells of equal length. When time goes beyond the last, two cells become one each, twice as long.

use homing_profile::{Millis, Time};

/// The most cells.
pub const CELLS: usize = 256;
/// How long a cell is at first.
const FIRST: Millis = Millis(250.0);

/// Sums over cells of time.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    cells: Vec<f64>,
    length: Millis,
}

impl Default for Series {
    fn default() -> Self {
        Self {
            cells: Vec::new(),
            length: FIRST,
        }
    }
}

impl Series {
    /// Adds an amount at a moment.
    pub fn add(&mut self, at: Time, amount: f64) {
        let cell = self.cell(at.millis());
        self.cells[cell] += amount;
    }

    /// Adds how long something lasted, to each cell its part, in milliseconds.
    pub fn add_span(&mut self, from: Time, to: Time) {
        let (from, to) = (from.millis(), to.millis());
        if to <= from {
            return;
        }
        let last = self.cell(to);
        let first = self.cell(from);
        for cell in first..=last {
            let begin = self.length.0 * cell as f64;
            let part = to.min(begin + self.length.0) - from.max(begin);
            self.cells[cell] += part.max(0.0);
        }
    }

    /// All cells, in order.
    pub fn cells(&self) -> &[f64] {
        &self.cells
    }

    /// How long each is.
    pub fn length(&self) -> Millis {
        self.length
    }

    /// The same in cells of this length, which is that of another series: a power of two times ours.
    pub fn coarsened(&self, length: Millis) -> Vec<f64> {
        let mut copy = self.clone();
        while copy.length.0 < length.0 {
            copy.halve();
        }
        copy.cells
    }

    fn cell(&mut self, at: f64) -> usize {
        while at >= self.length.0 * CELLS as f64 {
            self.halve();
        }
        let cell = (at / self.length.0) as usize;
        if self.cells.len() <= cell {
            self.cells.resize(cell + 1, 0.0);
        }
        cell
    }

    fn halve(&mut self) {
        self.cells = self.cells.chunks(2).map(|pair| pair.iter().sum()).collect();
        self.length = Millis(self.length.0 * 2.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_stay_while_cells_grow() {
        let mut series = Series::default();
        for second in 0..1_000 {
            series.add(Time::from_millis(f64::from(second) * 1_000.0), 1.0);
        }
        assert!(series.cells().len() <= CELLS);
        assert_eq!(series.length(), Millis(4_000.0));
        assert!(series.cells().iter().all(|cell| (*cell - 4.0).abs() < 1e-9));
    }

    #[test]
    fn a_span_is_spread_over_its_cells() {
        let mut series = Series::default();
        series.add_span(Time::from_millis(100.0), Time::from_millis(600.0));
        assert_eq!(series.cells(), [150.0, 250.0, 100.0]);
        series.add_span(Time::from_millis(300.0), Time::from_millis(300.0));
        assert!((series.cells().iter().sum::<f64>() - 500.0).abs() < 1e-9);
        assert_eq!(series.coarsened(Millis(500.0)), [400.0, 100.0]);
    }
}
