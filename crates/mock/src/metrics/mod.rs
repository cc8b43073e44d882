//! What does a scraper read? The engine's own names, for each rank.

mod sglang;
mod vllm;

use std::fmt::{self, Write as _};
use std::sync::Arc;

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use homing_config::MockDialect;
use homing_domain::DpRank;
use homing_engine::{AdapterUse, Load};

use crate::app::App;
use crate::tally::{Histogram, Tally};

/// `/metrics`.
pub(crate) async fn page(State(app): State<Arc<App>>) -> Response {
    let kind = (header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8");
    // Writing to text does not fail.
    ([kind], render(&app).unwrap_or_default()).into_response()
}

/// What is known of a rank.
struct Rank {
    labels: String,
    block_size: u32,
    load: Load,
    adapters: AdapterUse,
    adapter_slots: u32,
    tally: Tally,
    /// Requests that wait for the other side, counted at the first rank.
    meeting: usize,
}

/// Blocks that stay for another engine. No engine tells it.
const STAGED: Family = Family {
    name: "mock:staged_blocks",
    help: "Blocks that stay for another engine.",
    kind: "gauge",
    series: &[("", |rank| f64::from(rank.load.staged_blocks))],
};

type Number = fn(&Rank) -> f64;

/// Series of one name.
struct Family {
    name: &'static str,
    help: &'static str,
    kind: &'static str,
    /// Labels besides those of the rank, and where the number comes from.
    series: &'static [(&'static str, Number)],
}

/// Values by size.
struct Spread {
    name: &'static str,
    help: &'static str,
    of: fn(&Rank) -> &Histogram,
}

fn render(app: &App) -> Result<String, fmt::Error> {
    let mut out = String::new();
    let ranks: Vec<Rank> = (0..app.settings.engine.ranks)
        .filter_map(|rank| seen(app, DpRank(rank)))
        .collect();
    let created = app.core.started();
    match app.dialect() {
        MockDialect::Vllm => {
            families(&mut out, &ranks, vllm::FAMILIES, Some(created))?;
            spreads(&mut out, &ranks, vllm::SPREADS, Some(created))?;
            if app.core.kv.is_some() {
                families(&mut out, &ranks, vllm::NIXL, Some(created))?;
                spreads(&mut out, &ranks, vllm::NIXL_SPREADS, Some(created))?;
            }
            vllm::more(&mut out, app, &ranks)?;
        }
        MockDialect::Sglang => {
            families(&mut out, &ranks, sglang::FAMILIES, None)?;
            spreads(&mut out, &ranks, sglang::SPREADS, None)?;
            if app.core.kv.is_some() {
                families(&mut out, &ranks, sglang::SPLIT, None)?;
            }
        }
    }
    head(
        &mut out,
        "process_start_time_seconds",
        "Start time of the process since unix epoch in seconds.",
        "gauge",
    )?;
    writeln!(out, "process_start_time_seconds {created}")?;
    Ok(out)
}

fn seen(app: &App, rank: DpRank) -> Option<Rank> {
    let model = escaped(app.settings.model.as_str());
    let labels = match app.dialect() {
        MockDialect::Vllm => format!("engine=\"{}\",model_name=\"{model}\"", rank.0),
        MockDialect::Sglang => format!("dp_rank=\"{}\",model_name=\"{model}\"", rank.0),
    };
    let meeting = app.core.kv.as_ref().map_or(0, crate::kv::Kv::waiting);
    let meeting = if rank.0 == 0 { meeting } else { 0 };
    app.core.look(rank, |load, adapters, tally| Rank {
        labels,
        block_size: app.settings.engine.block_size.get(),
        load: *load,
        adapters: adapters.clone(),
        adapter_slots: app.settings.engine.adapters.slots,
        tally: tally.clone(),
        meeting,
    })
}

/// `created`: since when is counted, where the dialect's library says so for everything that only grows.
fn families(out: &mut String, ranks: &[Rank], families: &[Family], created: Option<f64>) -> fmt::Result {
    for family in families {
        let name = family.name;
        head(out, name, family.help, family.kind)?;
        let all = || {
            ranks
                .iter()
                .flat_map(|rank| family.series.iter().map(move |series| (rank, series)))
        };
        for (rank, (more, number)) in all() {
            writeln!(out, "{name}{{{}{more}}} {}", rank.labels, number(rank))?;
        }
        if let (Some(created), Some(stem)) = (created, name.strip_suffix("_total")) {
            head(out, &format!("{stem}_created"), family.help, "gauge")?;
            for (rank, (more, _)) in all() {
                writeln!(out, "{stem}_created{{{}{more}}} {created}", rank.labels)?;
            }
        }
    }
    Ok(())
}

fn spreads(out: &mut String, ranks: &[Rank], spreads: &[Spread], created: Option<f64>) -> fmt::Result {
    for spread in spreads {
        let name = spread.name;
        head(out, name, spread.help, "histogram")?;
        for rank in ranks {
            histogram(out, name, &rank.labels, (spread.of)(rank))?;
        }
        if let Some(created) = created {
            head(out, &format!("{name}_created"), spread.help, "gauge")?;
            for rank in ranks {
                writeln!(out, "{name}_created{{{}}} {created}", rank.labels)?;
            }
        }
    }
    Ok(())
}

fn head(out: &mut String, name: &str, help: &str, kind: &str) -> fmt::Result {
    writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}")
}

fn histogram(out: &mut String, name: &str, labels: &str, values: &Histogram) -> fmt::Result {
    for (end, count) in values.cumulative() {
        writeln!(out, "{name}_bucket{{{labels},le=\"{end:?}\"}} {count}")?;
    }
    writeln!(out, "{name}_bucket{{{labels},le=\"+Inf\"}} {}", values.count)?;
    writeln!(
        out,
        "{name}_count{{{labels}}} {}\n{name}_sum{{{labels}}} {}",
        values.count, values.sum
    )
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
