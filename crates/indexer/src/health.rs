//! Is it there, and of whom does it know less than it should? `GET /health`.

use serde_json::{Value, json};

use crate::http::App;
use crate::ranks::stale;
use crate::shelf::{Shelf, state_name};

/// The most ranks that are named; the rest is counted.
const NAMED: usize = 100;

/// How it is, for a caller without a token.
pub(crate) const BRIEF: &str = "{\"status\":\"ok\"}";

/// How it is, as JSON. A rank that is not live is no reason to be restarted, so the status is ok whenever it answers.
pub(crate) fn report(app: &App) -> String {
    let shelves = &app.shelves;
    let mut not_live: Vec<String> = shelves.iter().flat_map(not_live).collect();
    let ranks: usize = shelves.iter().map(|shelf| shelf.seats.len()).sum();
    let unnamed = not_live.len().saturating_sub(NAMED);
    let live = ranks - not_live.len();
    not_live.truncate(NAMED);
    if unnamed > 0 {
        not_live.push(format!("and {unnamed} more"));
    }
    let mut report = json!({ "status": "ok", "ranks": ranks, "live": live, "not_live": not_live });
    if let Some(as_of_ms) = shelves.as_of_ms() {
        report["as_of_ms"] = Value::from(as_of_ms);
    }
    if let Some(recording) = &app.recording {
        report["recording"] = Value::from(if recording.is_running() { "running" } else { "ended" });
    }
    report.to_string()
}

fn not_live(shelf: &Shelf) -> Vec<String> {
    let standing = shelf.kept.standing();
    let told = |seat: &crate::shelf::Seat| {
        let status = standing.rank(seat.rank);
        let state = state_name(status);
        if state == "live" {
            return None;
        }
        let rank = format!("{} rank {}: {state}", seat.worker, seat.rank.dp.0);
        Some(match stale(status).1 {
            Some(why) => format!("{rank}, {why}"),
            None => rank,
        })
    };
    shelf.seats.iter().filter_map(told).collect()
}
