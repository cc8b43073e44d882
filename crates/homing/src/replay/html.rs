//! The figures of a replay as one page that needs nothing else: plots, and a slider over requests with the decision about each.

use homing_sim::study::Quantiles;
use serde_json::{Value, json};

use super::Told;
use super::plan::Plan;
use super::run::PolicyRuns;

const TEMPLATE: &str = include_str!("report.html");
const PLACE: &str = "__DATA__";
/// Cells of time of the plot of cached shares: few enough that lines can be told apart.
const CACHED_CELLS: usize = 64;

/// The page.
pub fn page(plan: &Plan, told: &Told) -> String {
    let data = data(plan, told).to_string();
    // Within a script nothing may look like its end, whatever a trace is called.
    TEMPLATE.replacen(PLACE, &data.replace('<', "\\u003c"), 1)
}

fn data(plan: &Plan, told: &Told) -> Value {
    let style = crate::show::Style::of(homing_config::Colour::Off);
    let head = super::table::head(plan, style);
    let mut object = super::json::object(plan, told);
    object["head"] = head.lines().collect();
    object["ladder"] = json!({
        "infinite_cache": plan.yardstick.ladder.infinite_cache,
        "pooled_capacity": plan.yardstick.ladder.pooled_capacity,
    });
    let plots: Vec<Value> = told.policies.iter().map(plots).collect();
    object["plots"] = plots.into();
    object
}

fn plots(runs: &PolicyRuns) -> Value {
    let tally = &runs.runs[0].tally;
    let (length, cached) = tally.cached_over_time(CACHED_CELLS);
    let (cell, load) = tally.load_over_time();
    let rounded = |value: f64| (value * 1e4).round() / 1e4;
    let load: Vec<Vec<f64>> = load
        .into_iter()
        .map(|row| row.into_iter().map(rounded).collect())
        .collect();
    let cached: Vec<Option<f64>> = cached.into_iter().map(|share| share.map(rounded)).collect();
    let samples = runs.runs[0].samples.iter();
    let samples: Vec<Value> = samples
        .map(|sample| super::records::describe(&sample.record, sample.decision.as_deref()))
        .collect();
    json!({
        "policy": runs.policy,
        "ttft": curve(&runs.tally.ttft),
        "itl": curve(&runs.tally.itl),
        "e2e": curve(&runs.tally.e2e),
        "cached": {"cell_s": length.0 / 1e3, "shares": cached},
        "load": {"cell_s": cell.0 / 1e3, "workers": load},
        "samples": samples,
    })
}

/// Milliseconds by share of requests, denser where it is rare.
fn curve(of: &Quantiles) -> Vec<[f64; 2]> {
    let even = (0..99).map(|step| f64::from(step) / 100.0);
    let rare = (0..=20).map(|step| 0.99 + f64::from(step) / 2_000.0);
    let point = |share: f64| [(share * 1e4).round() / 1e4, (of.at(share) * 1e3).round() / 1e3];
    even.chain(rare).map(point).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_needs_nothing_from_elsewhere() {
        assert_eq!(TEMPLATE.matches(PLACE).count(), 1);
        for reference in ["src=", "href=", "@import", "fetch(", "http://", "https://"] {
            let others = TEMPLATE.replace("http://www.w3.org/2000/svg", "");
            assert!(!others.contains(reference), "{reference}");
        }
    }

    #[test]
    fn a_curve_never_falls() {
        let mut quantiles = Quantiles::default();
        for value in 1..1_000 {
            quantiles.add(f64::from(value * 7 % 1_000));
        }
        let curve = curve(&quantiles);
        assert!(
            curve
                .windows(2)
                .all(|pair| pair[0][0] < pair[1][0] && pair[0][1] <= pair[1][1])
        );
    }
}
