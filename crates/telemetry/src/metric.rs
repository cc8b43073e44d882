//! What is a counter, a gauge, a histogram, and how are they written for a scraper?
//!
//! Each is a few atomics with relaxed ordering: a scrape sees every update some time, and no order between metrics.

use std::fmt::Write as _;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::declare::{Declaration, Label, MetricKind};

/// Only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Counts `number` more.
    pub fn add(&self, number: u64) {
        self.0.fetch_add(number, Relaxed);
    }

    /// Follows a count that someone else keeps; never goes back.
    pub fn follow(&self, total: u64) {
        self.0.fetch_max(total, Relaxed);
    }

    /// What was counted.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Goes up and down.
#[derive(Debug, Default)]
pub struct Gauge(AtomicU64);

impl Gauge {
    /// A part of it that was `before` is `now`: for a sum of what several keep.
    pub fn shift(&self, before: u64, now: u64) {
        self.0.fetch_add(now.wrapping_sub(before), Relaxed);
    }

    /// It is now `value`.
    pub fn set(&self, value: u64) {
        self.0.store(value, Relaxed);
    }

    /// One more.
    pub fn raise(&self) {
        self.0.fetch_add(1, Relaxed);
    }

    /// One less; never below 0.
    pub fn lower(&self) {
        // Above 0 the update always yields a value; at 0 there is nothing to take back.
        let _ = self.0.fetch_update(Relaxed, Relaxed, |value| value.checked_sub(1));
    }

    /// What it is.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Upper bounds of the buckets of every histogram, in nanoseconds: from what one memory access takes to what a repair
/// may take.
pub const BOUNDS_NANOS: [u64; 28] = [
    100,
    250,
    500,
    1_000,
    2_500,
    5_000,
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    100_000_000,
    250_000_000,
    500_000_000,
    1_000_000_000,
    2_500_000_000,
    5_000_000_000,
    10_000_000_000,
    25_000_000_000,
    50_000_000_000,
    100_000_000_000,
];

/// How long things took.
#[derive(Debug)]
pub struct Histogram {
    /// Observations up to each bound and above the one before it; the last takes the rest.
    buckets: [AtomicU64; BOUNDS_NANOS.len() + 1],
    sum_nanos: AtomicU64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            buckets: std::array::from_fn(|_| AtomicU64::new(0)),
            sum_nanos: AtomicU64::new(0),
        }
    }
}

impl Histogram {
    /// One more thing took this long.
    pub fn observe(&self, took: Duration) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let bucket = BOUNDS_NANOS.partition_point(|&bound| bound < nanos);
        self.buckets[bucket].fetch_add(1, Relaxed);
        self.sum_nanos.fetch_add(nanos, Relaxed);
    }

    /// How many things were observed.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|bucket| bucket.load(Relaxed)).sum()
    }
}

/// A label with a closed list of values.
pub trait LabelValue: Copy {
    /// What the label is called.
    const NAME: &'static str;
    /// All values.
    const VALUES: &'static [&'static str];

    /// The place of this value among them.
    fn place(self) -> usize;
}

/// One metric for each value of a label.
#[derive(Debug)]
pub struct PerLabel<L, M> {
    series: Box<[M]>,
    label: PhantomData<fn(L)>,
}

impl<L: LabelValue, M: Default> Default for PerLabel<L, M> {
    fn default() -> Self {
        Self {
            series: L::VALUES.iter().map(|_| M::default()).collect(),
            label: PhantomData,
        }
    }
}

impl<L: LabelValue, M> PerLabel<L, M> {
    /// The metric of this value; of two labels the first is chosen here, the second in what is returned.
    pub fn of(&self, value: L) -> &M {
        &self.series[value.place()]
    }
}

/// What can be declared and written.
pub(crate) trait Metric {
    const KIND: MetricKind;
    const LABEL: Option<Label> = None;
    const SECOND: Option<Label> = None;

    /// Writes its lines. `labels` is empty, or `name="value"` for each label, with commas between them.
    fn render(&self, name: &str, labels: &str, out: &mut String);
}

/// Writes a metric with its help and type.
pub(crate) fn render_family(declaration: &Declaration, metric: &impl Metric, out: &mut String) {
    let Declaration { name, kind, help, .. } = declaration;
    line(out, format_args!("# HELP {name} {help}"));
    line(out, format_args!("# TYPE {name} {}", kind.as_str()));
    metric.render(name, "", out);
}

impl Metric for Counter {
    const KIND: MetricKind = MetricKind::Counter;

    fn render(&self, name: &str, labels: &str, out: &mut String) {
        line(out, format_args!("{name}{} {}", braced(labels), self.get()));
    }
}

impl Metric for Gauge {
    const KIND: MetricKind = MetricKind::Gauge;

    fn render(&self, name: &str, labels: &str, out: &mut String) {
        line(out, format_args!("{name}{} {}", braced(labels), self.get()));
    }
}

impl Metric for Histogram {
    const KIND: MetricKind = MetricKind::Histogram;

    fn render(&self, name: &str, labels: &str, out: &mut String) {
        let comma = if labels.is_empty() { "" } else { "," };
        let mut below = 0;
        for (bucket, bound) in self.buckets.iter().zip(BOUNDS_NANOS) {
            below += bucket.load(Relaxed);
            let bound = bound as f64 / 1e9;
            line(
                out,
                format_args!("{name}_bucket{{{labels}{comma}le=\"{bound}\"}} {below}"),
            );
        }
        // Not `count()`: an observation made meanwhile must not make the last bucket differ from the count.
        below += self.buckets[BOUNDS_NANOS.len()].load(Relaxed);
        line(out, format_args!("{name}_bucket{{{labels}{comma}le=\"+Inf\"}} {below}"));
        let sum = Duration::from_nanos(self.sum_nanos.load(Relaxed)).as_secs_f64();
        line(out, format_args!("{name}_sum{} {sum}", braced(labels)));
        line(out, format_args!("{name}_count{} {below}", braced(labels)));
    }
}

impl<L: LabelValue, M: Metric> Metric for PerLabel<L, M> {
    const KIND: MetricKind = M::KIND;
    const LABEL: Option<Label> = Some((L::NAME, L::VALUES));
    const SECOND: Option<Label> = M::LABEL;

    fn render(&self, name: &str, labels: &str, out: &mut String) {
        let comma = if labels.is_empty() { "" } else { "," };
        for (value, metric) in L::VALUES.iter().zip(&self.series) {
            metric.render(name, &format!("{labels}{comma}{}=\"{value}\"", L::NAME), out);
        }
    }
}

fn braced(labels: &str) -> String {
    if labels.is_empty() {
        String::new()
    } else {
        format!("{{{labels}}}")
    }
}

fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    writeln!(out, "{text}").expect("a string takes all that is written to it");
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;
    use proptest::prelude::*;

    #[derive(Clone, Copy)]
    enum Side {
        Left,
        Right,
    }

    impl LabelValue for Side {
        const NAME: &'static str = "side";
        const VALUES: &'static [&'static str] = &["left", "right"];
        fn place(self) -> usize {
            self as usize
        }
    }

    fn declared(kind: MetricKind) -> Declaration {
        Declaration {
            name: "homing_x",
            kind,
            help: "What it is.",
            label: None,
            second: None,
        }
    }

    #[test]
    fn two_labels_stand_beside_each_other() {
        type Both = PerLabel<Side, PerLabel<Side, Counter>>;
        let counter = Both::default();
        counter.of(Side::Right).of(Side::Left).add(2);
        let mut out = String::new();
        counter.render("homing_x", "", &mut out);
        assert!(out.contains("homing_x{side=\"right\",side=\"left\"} 2\n"), "{out}");
        assert_eq!(<Both as Metric>::SECOND, Some(("side", Side::VALUES)));
    }

    #[test]
    fn a_labelled_counter_writes_one_line_per_value() {
        let counter = PerLabel::<Side, Counter>::default();
        counter.of(Side::Right).add(2);
        counter.of(Side::Left).follow(5);
        counter.of(Side::Left).follow(4);
        let mut out = String::new();
        render_family(&declared(MetricKind::Counter), &counter, &mut out);
        expect![[r#"
            # HELP homing_x What it is.
            # TYPE homing_x counter
            homing_x{side="left"} 5
            homing_x{side="right"} 2
        "#]]
        .assert_eq(&out);
    }

    #[test]
    fn a_gauge_goes_up_and_down_and_not_below_0() {
        let gauge = Gauge::default();
        gauge.set(7);
        gauge.set(3);
        gauge.raise();
        for _ in 0..2 {
            gauge.lower();
        }
        let mut out = String::new();
        gauge.render("homing_x", "", &mut out);
        assert_eq!(out, "homing_x 2\n");
        for _ in 0..3 {
            gauge.lower();
        }
        assert_eq!(gauge.get(), 0);
    }

    #[test]
    fn buckets_are_cumulative_and_include_their_bound() {
        let histogram = Histogram::default();
        for nanos in [100, 101, 20_000_000_000, 200_000_000_000] {
            histogram.observe(Duration::from_nanos(nanos));
        }
        let mut out = String::new();
        histogram.render("homing_x", "", &mut out);
        let lines: Vec<&str> = out.lines().collect();
        assert_eq!(lines[0], "homing_x_bucket{le=\"0.0000001\"} 1");
        assert_eq!(lines[1], "homing_x_bucket{le=\"0.00000025\"} 2");
        assert_eq!(lines[24], "homing_x_bucket{le=\"10\"} 2");
        assert_eq!(lines[27], "homing_x_bucket{le=\"100\"} 3");
        assert_eq!(lines[28], "homing_x_bucket{le=\"+Inf\"} 4");
        assert_eq!(lines[29], "homing_x_sum 220.000000201");
        assert_eq!(lines[30], "homing_x_count 4");
    }

    proptest! {
        #[test]
        fn every_observation_is_counted_once(nanos in prop::collection::vec(any::<u64>(), 0..50)) {
            let histogram = Histogram::default();
            for &nanos in &nanos {
                histogram.observe(Duration::from_nanos(nanos));
            }
            prop_assert_eq!(histogram.count(), nanos.len() as u64);
        }
    }
}
