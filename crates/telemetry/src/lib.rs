//! Which numbers does Homing tell about itself, and what are they called?
//!
//! Every metric is declared once, in [`names`]: its name, kind, help text and labels. A metric is a field of a struct, so
//! that a name which is not declared does not compile, and [`Metrics::render`] writes all of them in the Prometheus text
//! format.
//!
//! **Invariant:** labels take values of a closed list. The number of series is fixed when the program is built; no
//! request, model or tenant can make it grow.
//!
//! **Invariant:** updating a metric takes no lock and does not allocate.
//!
//! - [`names`]: what is declared, and [`labels`]: by what it is told apart;
//! - [`metric`]: counters, gauges, histograms and labels;
//! - [`mod@reference`]: the page `docs/reference/metrics.md`.

mod declare;
pub mod labels;
pub mod metric;
pub mod names;
pub mod reference;

pub use declare::{Declaration, MetricKind};
pub use labels::{
    Asked, Asker, Change, Outcome, Prediction, Quota, RepairKind, RequestEnd, Skip, SourceKind, TokenSource,
    TryFailure, TurnedAway, ViewState,
};
pub use metric::{Counter, Gauge, Histogram, LabelValue, PerLabel};
pub use names::{
    AgentMetrics, DiscoveryMetrics, FeedMetrics, GatewayMetrics, IndexMetrics, IndexerMetrics, Metrics,
    TransportMetrics, WireMetrics,
};
