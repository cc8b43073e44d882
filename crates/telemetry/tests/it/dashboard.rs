//! Does the dashboard ask for metrics that there are, with labels that they have?

use std::collections::BTreeMap;
use std::path::Path;

use homing_telemetry::{Declaration, MetricKind, Metrics};
use serde_json::Value;

fn dashboard() -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ops/grafana/homing.json");
    let text = std::fs::read_to_string(path).expect("the dashboard is committed");
    serde_json::from_str(&text).expect("it is JSON")
}

/// All queries of a dashboard.
fn queries(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value {
                    Value::String(text) if name == "expr" || name == "query" => found.push(text.clone()),
                    value => queries(value, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| queries(item, found)),
        _ => {}
    }
}

/// Words of a query: names of metrics and labels.
fn words(query: &str) -> impl Iterator<Item = &str> {
    query.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_'))
}

/// The metric that a series is of, if there is one.
fn metric<'a>(all: &BTreeMap<&'a str, &'a Declaration>, series: &str) -> Option<&'a Declaration> {
    let of_histogram = ["_bucket", "_sum", "_count"].iter().find_map(|suffix| {
        let found = all.get(series.strip_suffix(suffix)?)?;
        (found.kind == MetricKind::Histogram).then_some(*found)
    });
    let plain = all.get(series).filter(|found| found.kind != MetricKind::Histogram);
    of_histogram.or(plain.copied())
}

#[test]
fn every_metric_of_the_dashboard_is_declared_and_every_label_is_one_of_its_own() {
    let all: BTreeMap<&str, &Declaration> = Metrics::declarations().map(|one| (one.name, one)).collect();
    let mut found = Vec::new();
    queries(&dashboard(), &mut found);
    let asked: Vec<&String> = found.iter().filter(|query| query.contains("homing_")).collect();
    assert!(asked.len() > 20, "{} queries", asked.len());
    for query in asked {
        let series: Vec<&str> = words(query).filter(|word| word.starts_with("homing_")).collect();
        let metrics: Vec<&Declaration> = series
            .iter()
            .map(|series| metric(&all, series).unwrap_or_else(|| panic!("there is no {series}: {query}")))
            .collect();
        // What stands after `by` must be a label of every metric in the query, `le` aside.
        let groups = query.split("by (").skip(1).filter_map(|rest| rest.split(')').next());
        for label in groups
            .flat_map(|group| group.split(", "))
            .filter(|label| *label != "le")
        {
            for metric in &metrics {
                let has = metric.labels().any(|(name, _)| name == label);
                assert!(has, "{} has no label {label}: {query}", metric.name);
            }
        }
    }
}

#[test]
fn a_query_for_something_else_would_be_found() {
    let all: BTreeMap<&str, &Declaration> = Metrics::declarations().map(|one| (one.name, one)).collect();
    assert!(metric(&all, "homing_gateway_first_token_seconds_bucket").is_some());
    for wrong in [
        "homing_gateway_first_token_seconds",
        "homing_index_live_runs_count",
        "homing_no_such_things",
    ] {
        assert!(metric(&all, wrong).is_none(), "{wrong}");
    }
}
