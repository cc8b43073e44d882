//! What is told of a fleet, as a table? Two looks at it and what happened in between.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::show::{Style, commas};

/// Texts of a line, and how each column is to be headed.
const HEADS: [&str; 11] = [
    "WORKER",
    "MODEL",
    "HEALTH",
    "VIEW",
    "UNDER WAY",
    "RUNS",
    "WAITS",
    "CACHE USED",
    "PREDICTED",
    "CACHED",
    "REQ/S",
];

/// A fleet at two moments.
pub(super) struct Fleet<'a> {
    now: &'a Value,
    rates: Vec<Rates>,
    seconds: f64,
}

/// What happened to one worker in between.
struct Rates {
    requests: f64,
    failed: f64,
    tokens: f64,
}

impl<'a> Fleet<'a> {
    /// How it is now, and what happened since before.
    pub(super) fn between(before: &Value, now: &'a Value) -> Self {
        let seconds = (number(&now["uptime_ms"]) - number(&before["uptime_ms"])).max(1.0) / 1e3;
        let then = |url: &Value| workers(before).iter().find(|worker| worker["url"] == *url);
        let rates = workers(now)
            .iter()
            .map(|worker| {
                let before = then(&worker["url"]);
                let rate = |of: &dyn Fn(&Value) -> f64| (of(worker) - before.map_or(0.0, of)).max(0.0) / seconds;
                Rates {
                    requests: rate(&|worker| number(&worker["served"])),
                    failed: rate(&|worker| number(&worker["failed"])),
                    tokens: rate(&|worker| number(&worker["truth"]["prompt_tokens"])),
                }
            })
            .collect();
        Self { now, rates, seconds }
    }

    /// As the gateway tells it, with rates.
    pub(super) fn json(&self) -> Value {
        let mut told = self.now.clone();
        let each = told["workers"].as_array_mut().into_iter().flatten().zip(&self.rates);
        for (worker, rates) in each {
            worker["rates"] = json!({
                "requests_per_second": rates.requests,
                "failures_per_second": rates.failed,
                "prompt_tokens_per_second": rates.tokens,
            });
        }
        told["rates"] = json!({
            "over_seconds": self.seconds,
            "requests_per_second": self.rates.iter().map(|rates| rates.requests).sum::<f64>(),
            "failures_per_second": self.rates.iter().map(|rates| rates.failed).sum::<f64>(),
            "prompt_tokens_per_second": self.rates.iter().map(|rates| rates.tokens).sum::<f64>(),
        });
        told
    }

    /// As a table.
    pub(super) fn text(&self, style: Style) -> String {
        let mut out = self.summary(style);
        let rows: Vec<[String; HEADS.len()]> = workers(self.now).iter().zip(&self.rates).map(row).collect();
        let widths: Vec<usize> = (0..HEADS.len())
            .map(|column| {
                let cells = rows.iter().map(|row| row[column].chars().count());
                cells.chain([HEADS[column].len()]).max().unwrap_or(0)
            })
            .collect();
        let mut line = |cells: &[&str], paint: &dyn Fn(&str) -> String| {
            let cells = cells.iter().zip(&widths).enumerate().map(|(column, (cell, width))| {
                // Names to the left, numbers to the right.
                if column < 4 {
                    format!("{cell:width$}")
                } else {
                    format!("{cell:>width$}")
                }
            });
            let cells: Vec<String> = cells.collect();
            let _ = writeln!(out, "{}", paint(cells.join("  ").trim_end()));
        };
        if !rows.is_empty() {
            line(&HEADS, &|text| style.bold(text));
        }
        for (row, worker) in rows.iter().zip(workers(self.now)) {
            let cells: Vec<&str> = row.iter().map(String::as_str).collect();
            let is_well = worker["health"] == "up" && worker["draining"] != true;
            line(&cells, &|text| {
                if is_well { text.to_owned() } else { style.red(text) }
            });
        }
        for worker in workers(self.now) {
            findings(worker, style, &mut out);
        }
        out
    }

    fn summary(&self, style: Style) -> String {
        let now = self.now;
        let state = if now["ready"] == true {
            style.green("ready")
        } else {
            let why = now["not_ready"].as_str().unwrap_or("it does not say why");
            style.red(&format!("not ready: {why}"))
        };
        let sum = |of: fn(&Rates) -> f64| self.rates.iter().map(of).sum::<f64>();
        let queue = &now["queue"];
        format!(
            "{state}, {} workers, {} requests under way, {} wait, {:.1} requests/s, {:.1} failures/s, {} prompt tokens/s\n",
            workers(now).len(),
            number(&queue["running"]),
            number(&queue["waiting"]),
            sum(|rates| rates.requests),
            sum(|rates| rates.failed),
            commas(sum(|rates| rates.tokens) as u64),
        )
    }
}

fn row((worker, rates): (&Value, &Rates)) -> [String; HEADS.len()] {
    let text = |value: &Value| value.as_str().unwrap_or("?").to_owned();
    let ranks = worker["ranks"].as_array().map_or(&[][..], Vec::as_slice);
    let sum = |name: &str| ranks.iter().map(|rank| number(&rank[name])).sum::<f64>().to_string();
    let usage: Vec<f64> = ranks.iter().filter_map(|rank| rank["usage"].as_f64()).collect();
    let truth = &worker["truth"];
    let share = |name: &str| {
        let prompt = number(&truth["prompt_tokens"]);
        if prompt > 0.0 {
            format!("{:.0} %", number(&truth[name]) / prompt * 100.0)
        } else {
            "-".to_owned()
        }
    };
    let health = if worker["draining"] == true {
        "drains".to_owned()
    } else {
        text(&worker["health"])
    };
    [
        text(&worker["url"]),
        text(&worker["model"]),
        health,
        views(ranks),
        number(&worker["in_flight"]).to_string(),
        sum("running"),
        sum("waiting"),
        usage
            .iter()
            .copied()
            .reduce(f64::max)
            .map_or_else(|| "-".to_owned(), |usage| format!("{:.0} %", usage * 100.0)),
        share("predicted_tokens"),
        share("cached_tokens"),
        format!("{:.1}", rates.requests),
    ]
}

/// The states of all ranks: one word if they are alike.
fn views(ranks: &[Value]) -> String {
    let mut counted: Vec<(&str, usize)> = Vec::new();
    for rank in ranks {
        let view = rank["view"].as_str().unwrap_or("?");
        match counted.iter_mut().find(|(known, _)| *known == view) {
            Some((_, count)) => *count += 1,
            None => counted.push((view, 1)),
        }
    }
    match counted.as_slice() {
        [(view, _)] => (*view).to_owned(),
        several => {
            let words = several.iter().map(|(view, count)| format!("{count} {view}"));
            words.collect::<Vec<_>>().join(", ")
        }
    }
}

fn findings(worker: &Value, style: Style, out: &mut String) {
    let url = worker["url"].as_str().unwrap_or("?");
    let found = worker["findings"].as_array().map_or(&[][..], Vec::as_slice);
    for finding in found {
        let word = |name: &str| finding[name].as_str().unwrap_or("?").to_owned();
        let head = format!("{} {}: {}", word("severity"), word("check"), word("seen"));
        let head = if finding["severity"] == "fault" {
            style.red(&head)
        } else {
            head
        };
        let _ = writeln!(
            out,
            "\n{url}: {head}\n    it costs   {}\n    to change  {}",
            word("cost"),
            word("change")
        );
    }
    if let (Some(state), Some(reason)) = (worker["stall"]["state"].as_str(), worker["stall"]["reason"].as_str()) {
        let for_ms = number(&worker["stall"]["for_ms"]);
        let _ = writeln!(
            out,
            "\n{}",
            style.red(&format!("{url}: {state} for {:.1} s: {reason}", for_ms / 1e3))
        );
    }
    if let Some(diagnosis) = worker["diagnosis"].as_str() {
        let _ = writeln!(out, "\n{diagnosis}");
    }
}

fn workers(fleet: &Value) -> &[Value] {
    fleet["workers"].as_array().map_or(&[], Vec::as_slice)
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use homing_config::Colour;

    fn fleet(uptime: u64, served: u64) -> Value {
        json!({
            "ready": true, "uptime_ms": uptime, "queue": {"running": 3, "waiting": 1},
            "workers": [
                {
                    "url": "http://a:1", "model": "m", "health": "up", "draining": false, "in_flight": 3, "served": served, "failed": 0,
                    "ranks": [
                        {"rank": 0, "view": "live", "running": 2, "waiting": 0, "usage": 0.25},
                        {"rank": 1, "view": "stale", "running": 1, "waiting": 4, "usage": 0.5},
                    ],
                    "truth": {"prompt_tokens": served * 100, "predicted_tokens": served * 50, "cached_tokens": served * 49},
                    "findings": [{"check": "usage", "severity": "warning", "seen": "a", "cost": "b", "change": "c"}],
                },
                {
                    "url": "http://long-name:2", "model": "m", "health": "down", "draining": false, "in_flight": 0, "served": 0,
                    "failed": 7, "ranks": [{"rank": 0, "view": "none"}], "truth": {}, "diagnosis": "it is odd",
                    "stall": {"state": "ejected", "reason": "no token comes", "for_ms": 1234},
                },
            ],
        })
    }

    #[test]
    fn a_fleet_is_a_table_with_findings_below() {
        let (before, now) = (fleet(1000, 10), fleet(3000, 30));
        let text = Fleet::between(&before, &now).text(Style::of(Colour::Off));
        let expected = "\
ready, 2 workers, 3 requests under way, 1 wait, 10.0 requests/s, 0.0 failures/s, 1,000 prompt tokens/s
WORKER              MODEL  HEALTH  VIEW             UNDER WAY  RUNS  WAITS  CACHE USED  PREDICTED  CACHED  REQ/S
http://a:1          m      up      1 live, 1 stale          3     3      4        50 %       50 %    49 %   10.0
http://long-name:2  m      down    none                     0     0      0           -          -       -    0.0

http://a:1: warning usage: a
    it costs   b
    to change  c

http://long-name:2: ejected for 1.2 s: no token comes

it is odd
";
        assert_eq!(text, expected);
    }

    #[test]
    fn scripts_get_what_was_told_and_rates() {
        let (before, now) = (fleet(1000, 10), fleet(3000, 30));
        let told = Fleet::between(&before, &now).json();
        assert_eq!(told["rates"]["requests_per_second"], 10.0);
        assert_eq!(told["rates"]["over_seconds"], 2.0);
        assert_eq!(told["workers"][0]["rates"]["prompt_tokens_per_second"], 1000.0);
        assert_eq!(told["workers"][1]["url"], "http://long-name:2");
    }

    #[test]
    fn why_it_is_not_ready_is_said() {
        let now = json!({"ready": false, "not_ready": "no worker was told of", "workers": []});
        let text = Fleet::between(&now, &now).text(Style::of(Colour::Off));
        assert!(
            text.starts_with("not ready: no worker was told of, 0 workers"),
            "{text}"
        );
    }
}
