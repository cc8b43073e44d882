//! What does the reference page say? Written from the declarations, never by hand.

use std::fmt::Write as _;

use crate::metric::BOUNDS_NANOS;
use crate::names::Metrics;

const HEAD: &str = "\
# Metrics

<!-- Generated from crates/telemetry/src/names.rs by `HOMING_BLESS=1 cargo test -p homing-telemetry`. Do not edit. -->

In the Prometheus text format. Names are `homing_<area>_<noun>_<unit>`, and `_total` at the end of counters. Labels take
values of the closed lists below, so that the number of series does not depend on traffic; `worker` is the address of a worker and
`rank` the number of one of its ranks.

| name | kind | labels | what it says |
|---|---|---|---|
";

/// The page, as it is committed in `docs/reference/metrics.md`.
pub fn page() -> String {
    let mut page = HEAD.to_owned();
    for declaration in Metrics::declarations() {
        let labels = declaration.labels().map(|(name, values)| match values {
            [] => format!("`{name}`"),
            values => format!("`{name}`: {}", values.join(", ")),
        });
        let label = labels.collect::<Vec<_>>().join("; ");
        line(
            &mut page,
            format_args!(
                "| `{}` | {} | {label} | {} |",
                declaration.name,
                declaration.kind.as_str(),
                declaration.help
            ),
        );
    }
    let bounds: Vec<String> = BOUNDS_NANOS.iter().map(|&nanos| shown(nanos)).collect();
    line(
        &mut page,
        format_args!("\nBuckets of every histogram end at {}.", bounds.join(", ")),
    );
    page
}

fn shown(nanos: u64) -> String {
    match nanos {
        0..1_000 => format!("{nanos} ns"),
        1_000..1_000_000 => format!("{} µs", nanos as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{} ms", nanos as f64 / 1e6),
        _ => format!("{} s", nanos as f64 / 1e9),
    }
}

fn line(page: &mut String, text: std::fmt::Arguments<'_>) {
    writeln!(page, "{text}").expect("a string takes all that is written to it");
}
