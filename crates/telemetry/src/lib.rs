//! What does Homing tell about itself, and what is it called?
//!
//! Every metric is declared once, in [`names`]: its name, kind, help text and labels. A metric is a field of a struct, so
//! that a name which is not declared does not compile, and [`Metrics::render`] writes all of them in the Prometheus text
//! format.
//!
//! **Invariant:** labels take values of a closed list, but for those of [`workers`], of which there are as many as there are
//! ranks. No request, model or tenant can make the number of series grow.
//!
//! **Invariant:** updating a metric takes no lock and does not allocate.
//!
//! - [`names`]: what is declared, and [`labels`]: by what it is told apart; [`workers`]: what is told of each rank of each worker;
//! - [`metric`]: counters, gauges, histograms and labels;
//! - [`trace`]: spans, and how collectors are told of them;
//! - [`mod@reference`]: the page `docs/reference/metrics.md`.

mod declare;
pub mod labels;
pub mod metric;
pub mod names;
pub mod reference;
pub mod trace;
pub mod workers;

pub use declare::{Declaration, Label, MetricKind};
pub use labels::{
    AdapterMove, Asked, Asker, BodyRefusal, Change, FieldAction, FoundSeverity, HandoffFate, LegEnd, LegKind, Outcome,
    Prediction, Quota, ReadLimit, RefusedResponseId, RepairKind, RequestEnd, RoutePart, Skip, SourceKind, TokenSource,
    TryFailure, TurnedAway, ViewState, WorkerRole,
};
pub use metric::{Counter, Gauge, Histogram, LabelValue, PerLabel};
pub use names::{
    AgentMetrics, DiscoveryMetrics, FeedMetrics, GatewayMetrics, HttpMetrics, IndexMetrics, IndexerMetrics, Metrics,
    TransportMetrics, WireMetrics,
};
