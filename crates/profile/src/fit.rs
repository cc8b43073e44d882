//! What is assumed where nothing was measured?
//!
//! Three forms, each fitted to a table by least squares of *relative* errors when a profile is loaded (some microseconds), with
//! no coefficient below zero, so that more work never takes less time:
//!
//! - [`Roofline`], for dense work and the LM head: a floor (reading the weights) that gives way to a line (computing), the
//!   power mean of both;
//! - [`DecodeForm`]: a start, a part per sequence and a part per token of context; short contexts start faster;
//! - [`PrefillForm`]: the larger of a latency (too little work to fill the device: it depends on the context alone) and a
//!   throughput (new tokens times context, and new tokens squared).
//!
//! Made from every second point of a shipped profile, each form is within 15% of every other point; a test says so.

/// Contexts up to this start faster than longer ones: a kernel that does not split them is enough.
const SHORT_CONTEXT: f64 = 512.0;
/// How sharply dense work turns from floor to line.
pub const DENSE_POWER: i32 = 2;
/// How sharply the LM head does.
pub const LM_HEAD_POWER: i32 = 4;

/// A floor that gives way to a line: `(floor^p + (slope * n)^p)^(1/p)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Roofline {
    floor: f64,
    slope: f64,
    power: i32,
}

impl Roofline {
    /// The nearest to `points` of size and time.
    pub fn fit(points: &[(f64, f64)], power: i32) -> Self {
        let rows = points
            .iter()
            .map(|&(size, ms)| ([1.0, size.powi(power)], ms.powi(power)));
        let [floor, slope] = least_squares(rows);
        Self { floor, slope, power }
    }

    /// The time at a size.
    pub fn at(&self, size: f64) -> f64 {
        (self.floor + self.slope * size.powi(self.power)).powf(1.0 / f64::from(self.power))
    }
}

/// Attention of decoding sequences.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DecodeForm([f64; 4]);

impl DecodeForm {
    /// The nearest to `points` of sequences, context and time.
    pub fn fit(points: &[(f64, f64, f64)]) -> Self {
        Self(least_squares(
            points
                .iter()
                .map(|&(sequences, context, ms)| (Self::terms(sequences, context), ms)),
        ))
    }

    /// The time for so many sequences of this context.
    pub fn at(&self, sequences: f64, context: f64) -> f64 {
        dot(&self.0, &Self::terms(sequences, context))
    }

    fn terms(sequences: f64, context: f64) -> [f64; 4] {
        [1.0, context.min(SHORT_CONTEXT), sequences, sequences * context]
    }
}

/// Attention of a chunk of a prompt.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PrefillForm {
    latency: [f64; 4],
    throughput: [f64; 5],
}

/// New tokens, cached tokens and time.
type PrefillPoint = (f64, f64, f64);

impl PrefillForm {
    /// The nearest to `points` of new tokens, cached tokens and time.
    ///
    /// Which points are bound by latency is not known: for each number of new tokens as a first guess, both parts are
    /// fitted to their points and the points given to the larger part, until none moves. The best outcome is taken.
    pub fn fit(points: &[PrefillPoint]) -> Self {
        let mut best = Self {
            latency: [0.0; 4],
            throughput: throughput_of(points),
        };
        let mut cuts: Vec<f64> = points.iter().map(|point| point.0).collect();
        cuts.dedup();
        for cut in cuts {
            let form = Self::fit_from(points, cut);
            if form.error(points) < best.error(points) {
                best = form;
            }
        }
        best
    }

    /// The time for so many new tokens after so many cached ones.
    pub fn at(&self, new: f64, cached: f64) -> f64 {
        let latency = dot(&self.latency, &latency_terms(new, cached));
        latency.max(dot(&self.throughput, &throughput_terms(new, cached)))
    }

    fn fit_from(points: &[PrefillPoint], cut: f64) -> Self {
        const ROUNDS: usize = 30;
        let (mut few, mut many): (Vec<_>, Vec<_>) = points.iter().partition(|point| point.0 < cut);
        let mut form = Self::of(&few, &many);
        for _ in 0..ROUNDS {
            let bound_by_latency = |point: &PrefillPoint| {
                let (latency, throughput) = (latency_terms(point.0, point.1), throughput_terms(point.0, point.1));
                dot(&form.latency, &latency) >= dot(&form.throughput, &throughput)
            };
            let (next_few, next_many): (Vec<_>, Vec<_>) = points.iter().partition(|point| bound_by_latency(point));
            if next_few == few {
                break;
            }
            (few, many) = (next_few, next_many);
            form = Self::of(&few, &many);
        }
        form
    }

    fn of(few: &[PrefillPoint], many: &[PrefillPoint]) -> Self {
        let latency = few.iter().map(|&(new, cached, ms)| (latency_terms(new, cached), ms));
        Self {
            latency: least_squares(latency),
            throughput: throughput_of(many),
        }
    }

    fn error(&self, points: &[PrefillPoint]) -> f64 {
        let error = |&(new, cached, ms): &PrefillPoint| (self.at(new, cached) / ms - 1.0).powi(2);
        points.iter().map(error).sum()
    }
}

fn throughput_of(points: &[PrefillPoint]) -> [f64; 5] {
    least_squares(
        points
            .iter()
            .map(|&(new, cached, ms)| (throughput_terms(new, cached), ms)),
    )
}

fn latency_terms(new: f64, cached: f64) -> [f64; 4] {
    [1.0, cached.min(SHORT_CONTEXT), cached, new]
}

fn throughput_terms(new: f64, cached: f64) -> [f64; 5] {
    [1.0, cached.min(SHORT_CONTEXT), new, new * cached, new * new]
}

fn dot<const N: usize>(a: &[f64; N], b: &[f64; N]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Coefficients, none below zero, that make the sum of squared relative errors small. Where one would be negative, its
/// term is left out and the others are fitted anew, the most negative first.
fn least_squares<const N: usize>(rows: impl Iterator<Item = ([f64; N], f64)>) -> [f64; N] {
    let mut products = [[0.0; N]; N];
    let mut targets = [0.0; N];
    for (terms, value) in rows {
        // Both sides are divided by the value, which is positive: what remains is the relative error.
        let terms = terms.map(|term| term / value);
        for i in 0..N {
            targets[i] += terms[i];
            for j in 0..N {
                products[i][j] += terms[i] * terms[j];
            }
        }
    }
    let mut used = [true; N];
    loop {
        let coefficients = solve(&products, &targets, &used);
        let worst = (0..N)
            .filter(|&i| used[i] && coefficients[i] < 0.0)
            .min_by(|&a, &b| weight(&products, &coefficients, a).total_cmp(&weight(&products, &coefficients, b)));
        match worst {
            None => return coefficients,
            Some(worst) => used[worst] = false,
        }
    }
}

/// How much a term contributes over all points.
fn weight<const N: usize>(products: &[[f64; N]; N], coefficients: &[f64; N], term: usize) -> f64 {
    coefficients[term] * products[term][term].sqrt()
}

/// Solves the normal equations of the used terms by elimination; what is not determined is 0.
fn solve<const N: usize>(products: &[[f64; N]; N], targets: &[f64; N], used: &[bool; N]) -> [f64; N] {
    /// Below this share of its own size a pivot is rounding, not information.
    const NOTHING: f64 = 1e-11;
    // Terms differ by ten orders of magnitude; equal sizes keep the elimination exact enough.
    let scale: [f64; N] = std::array::from_fn(|i| products[i][i].sqrt());
    let usable = |i: usize| used[i] && scale[i] > 0.0;
    let mut rows = [[0.0; N]; N];
    let mut right = [0.0; N];
    for i in (0..N).filter(|&i| usable(i)) {
        right[i] = targets[i] / scale[i];
        for j in (0..N).filter(|&j| usable(j)) {
            rows[i][j] = products[i][j] / (scale[i] * scale[j]);
        }
    }
    // The matrix is symmetric and not negative: elimination along the diagonal is stable.
    let mut determined = [false; N];
    for pivot in (0..N).filter(|&i| usable(i)) {
        if rows[pivot][pivot] < NOTHING {
            continue;
        }
        determined[pivot] = true;
        for row in (0..N).filter(|&row| row != pivot) {
            let factor = rows[row][pivot] / rows[pivot][pivot];
            let taken = rows[pivot].map(|value| factor * value);
            for (value, taken) in rows[row].iter_mut().zip(taken) {
                *value -= taken;
            }
            right[row] -= factor * right[pivot];
        }
    }
    std::array::from_fn(|i| {
        if determined[i] {
            right[i] / rows[i][i] / scale[i]
        } else {
            0.0
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(value: f64, expected: f64) {
        assert!((value / expected - 1.0).abs() < 1e-6, "{value} is not {expected}");
    }

    #[test]
    fn a_form_is_found_again_from_its_own_points() {
        let made = DecodeForm([0.01, 1e-5, 2e-4, 9e-7]);
        let mut points = Vec::new();
        for sequences in [1.0, 4.0, 64.0] {
            for context in [128.0, 512.0, 8192.0] {
                points.push((sequences, context, made.at(sequences, context)));
            }
        }
        near(DecodeForm::fit(&points).at(256.0, 100_000.0), made.at(256.0, 100_000.0));

        let made = Roofline {
            floor: 0.09,
            slope: 1e-6,
            power: 2,
        };
        let points: Vec<_> = [1.0, 64.0, 512.0, 4096.0].map(|n| (n, made.at(n))).to_vec();
        near(Roofline::fit(&points, 2).at(20_000.0), made.at(20_000.0));
    }

    #[test]
    fn the_two_parts_of_a_prefill_are_told_apart() {
        let made = PrefillForm {
            latency: [0.01, 1e-5, 1e-5, 0.0],
            throughput: [0.0, 0.0, 1e-5, 2e-8, 1e-8],
        };
        let mut points = Vec::new();
        for new in [16.0, 128.0, 512.0, 2048.0, 8192.0] {
            for cached in [0.0, 512.0, 4096.0, 65536.0] {
                points.push((new, cached, made.at(new, cached)));
            }
        }
        let fitted = PrefillForm::fit(&points);
        for (new, cached) in [(32.0, 10_000.0), (4096.0, 10_000.0), (30_000.0, 0.0)] {
            near(fitted.at(new, cached), made.at(new, cached));
        }
    }

    #[test]
    fn no_coefficient_is_negative_and_too_few_points_do_no_harm() {
        let falling = [(1.0, 10.0), (2.0, 5.0), (3.0, 1.0)];
        let fitted = Roofline::fit(&falling, 1);
        assert!(fitted.slope >= 0.0 && fitted.floor > 0.0, "{fitted:?}");
        let one = PrefillForm::fit(&[(16.0, 0.0, 1.0)]);
        near(one.at(16.0, 0.0), 1.0);
    }
}
