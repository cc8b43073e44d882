//! How sure is a mean over a few seeds?

use homing_sim::study::Tally;

use super::run::PolicyRuns;

/// Student's t for 95%, by degrees of freedom from 1 on; beyond the list the normal distribution is near enough.
const T95: [f64; 10] = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228];
const NORMAL95: f64 = 1.96;

/// The mean of a figure over all seeds, less and more what 95% of such intervals need to hold the true mean.
pub fn interval(runs: &PolicyRuns, figure: impl Fn(&Tally) -> f64) -> [f64; 2] {
    let values: Vec<f64> = runs.runs.iter().map(|run| figure(&run.tally)).collect();
    of(&values)
}

fn of(values: &[f64]) -> [f64; 2] {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    if values.len() < 2 {
        return [mean, mean];
    }
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0);
    let t = T95.get(values.len() - 2).copied().unwrap_or(NORMAL95);
    let half = t * (variance / count).sqrt();
    [mean - half, mean + half]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_around_the_mean() {
        let [low, high] = of(&[1.0, 2.0, 3.0]);
        assert!((low - (2.0 - 4.303 / 3_f64.sqrt())).abs() < 1e-9 && (high + low - 4.0).abs() < 1e-9);
        let [low, high] = of(&[5.0]);
        assert!((low - 5.0).abs() < 1e-9 && (high - 5.0).abs() < 1e-9);
    }
}
