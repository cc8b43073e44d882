//! What is told of each rank of each worker? Declared here, written by who knows the workers.
//!
//! **Invariant:** every series has the labels `worker`, its address, and `rank`. There are as many as there are ranks, which is bounded
//! where workers are taken.

use std::fmt::Write as _;

use crate::declare::{Declaration, Label, MetricKind};

const WORKER: Option<Label> = Some(("worker", &[]));
const RANK: Option<Label> = Some(("rank", &[]));

macro_rules! told {
    ($( $(#[doc = $doc:literal])+ $field:ident: $kind:ident = $name:literal, )+) => {
        /// What is told of one rank.
        #[derive(Clone, Copy, Debug, Default, PartialEq)]
        pub struct WorkerNumbers {
            $( $(#[doc = $doc])+ pub $field: f64, )+
        }

        /// What is declared, in the order it is written.
        pub const DECLARATIONS: &[Declaration] = &[$( Declaration {
            name: $name,
            kind: MetricKind::$kind,
            help: concat!($($doc),+).trim_ascii(),
            label: WORKER,
            second: RANK,
        } ),+];

        impl WorkerNumbers {
            fn all(&self) -> [f64; DECLARATIONS.len()] {
                [$( self.$field ),+]
            }
        }
    };
}

told! {
    /// Requests that the rank computes, as its engine says.
    running: Gauge = "homing_worker_running_requests",
    /// Requests that wait at the rank, as its engine says.
    waiting: Gauge = "homing_worker_waiting_requests",
    /// Requests that are booked at the rank here.
    booked: Gauge = "homing_worker_booked_requests",
    /// Tokens of prompts that are booked at the rank and not computed yet.
    pending_tokens: Gauge = "homing_worker_pending_tokens",
    /// Predicted time until the rank has computed the prompts that are booked there.
    backlog: Gauge = "homing_worker_prefill_backlog_seconds",
    /// Blocks in use, in our size of them.
    used_blocks: Gauge = "homing_worker_used_blocks",
    /// Whether the worker is let have requests: 1 if so, and 0 if it is left out or drains.
    serving: Gauge = "homing_worker_serving_workers",
    /// Requests that the worker answered, all ranks together; told with rank 0.
    served: Counter = "homing_worker_served_requests_total",
    /// Requests that failed at the worker, all ranks together; told with rank 0.
    failed: Counter = "homing_worker_failed_requests_total",
    /// Tokens of prompts of the worker that were predicted to come from its cache, where it says how many did; told with rank 0.
    predicted_tokens: Counter = "homing_worker_predicted_tokens_total",
    /// Tokens of prompts that came from the cache of the worker, as it says; told with rank 0.
    cached_tokens: Counter = "homing_worker_cached_tokens_total",
}

/// Appends all of them in the Prometheus text format.
pub fn render_into<'a>(rows: impl Iterator<Item = (&'a str, u16, WorkerNumbers)>, out: &mut String) {
    let rows: Vec<(String, [f64; DECLARATIONS.len()])> = rows
        .map(|(worker, rank, numbers)| {
            let worker = worker.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            (format!("{{worker=\"{worker}\",rank=\"{rank}\"}}"), numbers.all())
        })
        .collect();
    for (place, Declaration { name, kind, help, .. }) in DECLARATIONS.iter().enumerate() {
        let kind = kind.as_str();
        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for (labels, numbers) in &rows {
            let _ = writeln!(out, "{name}{labels} {}", numbers[place]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rank_is_a_line_of_each_metric() {
        let mut out = String::new();
        let numbers = WorkerNumbers {
            running: 2.0,
            cached_tokens: 64.0,
            ..WorkerNumbers::default()
        };
        let rows = [("http://a", 0, numbers), ("http://a", 1, WorkerNumbers::default())];
        render_into(rows.into_iter(), &mut out);
        assert!(
            out.contains("homing_worker_running_requests{worker=\"http://a\",rank=\"0\"} 2\n"),
            "{out}"
        );
        assert!(
            out.contains("homing_worker_cached_tokens_total{worker=\"http://a\",rank=\"0\"} 64\n"),
            "{out}"
        );
        assert_eq!(out.lines().count(), DECLARATIONS.len() * 4);
    }
}
