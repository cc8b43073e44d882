//! What does a client tell the router? Headers `x-homing-*`, the object `homing` in the body, and what agents say of themselves.
//!
//! **Invariant:** a header wins over the body, hint by hint.
//!
//! **Invariant:** a hint that is unknown, given twice or malformed is an error that names it: one that is silently ignored is
//! worse than none.
//!
//! **Invariant:** what is kept of a request is bounded: [`LONGEST`] bytes of a name, [`MOST`] names in a list.

use std::collections::BTreeMap;
use std::time::Duration;

use thiserror::Error;

use crate::ask::Ask;
use crate::given::{Given, Wrong};
use crate::json::{Kind, entries, kind, text};
use crate::session;
pub use crate::session::{Session, SessionFrom};

/// The longest name of a session, tenant, worker or label, in bytes.
pub const LONGEST: usize = 256;
/// The most workers or labels.
pub const MOST: usize = 1_024;

/// The beginning of our headers' names.
const PREFIX: &str = "x-homing-";
/// The header that names a data-parallel rank, as engines take it.
const RANK: &str = "x-data-parallel-rank";
/// Headers with that beginning that are no hints, and not ours to refuse.
const NO_HINTS: [&str; 1] = ["request-id"];

/// Whether something is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Switch {
    /// It is not.
    #[default]
    Off,
    /// It is.
    On,
}

/// What holds for one request only. What is none is as the policy was set up.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Overrides {
    /// How far from the best a choice may be; 0 is the best.
    pub temperature: Option<f64>,
    /// What a cached block is worth.
    pub overlap_credit: Option<f64>,
    /// What prefill weighs.
    pub prefill_scale: Option<f64>,
    /// What slowing down others' decoding weighs.
    pub decode_weight: Option<f64>,
    /// Whether cached prefixes count.
    pub cache: Option<Switch>,
    /// Whether the prompt is work for the rank that is chosen.
    pub work: Option<Switch>,
    /// Whether its prompt's blocks are assumed to be shared.
    pub reuse: Option<Switch>,
}

/// What a client tells.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Hints {
    /// What ties requests together that should stay together.
    pub session: Option<Session>,
    /// Higher goes first.
    pub priority: Option<i32>,
    /// How long the client waits for the first token.
    pub deadline: Option<Duration>,
    /// Who asks.
    pub tenant: Option<String>,
    /// The one worker that must serve it.
    pub worker: Option<String>,
    /// The one worker that must compute its prompt, where that may be another.
    pub prefill_worker: Option<String>,
    /// The data-parallel rank that must serve it, of whichever worker.
    pub dp_rank: Option<u32>,
    /// Workers among which it may go; empty: all.
    pub allowed: Vec<String>,
    /// Workers to which it must not go.
    pub excluded: Vec<String>,
    /// Labels that a worker must have.
    pub labels: BTreeMap<String, String>,
    /// Tokens that will be generated.
    pub expected_output: Option<u32>,
    /// What holds for it only.
    pub overrides: Overrides,
    /// Answer with the decision instead of running it.
    pub dry_run: Switch,
    /// Tell the decision with the answer.
    pub explain: Switch,
}

/// Why hints are not understood.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the hint {hint} {wrong}")]
pub struct BadHint {
    /// Which, as the client named it.
    pub hint: String,
    /// What is wrong with it.
    pub wrong: String,
}

/// What a hint does to what is known.
type Take = fn(&mut Hints, &Given<'_>) -> Result<(), Wrong>;

/// Every hint, by its name in the body. In a header it is written with `-` for `_`.
const HINTS: &[(&str, Take)] = &[
    ("session", |hints, given| {
        let from = SessionFrom::Hint;
        hints.session = Some(Session {
            id: given.name()?,
            from,
        });
        Ok(())
    }),
    ("priority", |hints, given| {
        given.integer().map(|it| hints.priority = Some(it))
    }),
    ("deadline", |hints, given| {
        given.duration().map(|it| hints.deadline = Some(it))
    }),
    ("tenant", |hints, given| given.name().map(|it| hints.tenant = Some(it))),
    ("worker", |hints, given| given.name().map(|it| hints.worker = Some(it))),
    ("prefill_worker", |hints, given| {
        given.name().map(|it| hints.prefill_worker = Some(it))
    }),
    ("workers", |hints, given| given.names().map(|it| hints.allowed = it)),
    ("exclude_workers", |hints, given| {
        given.names().map(|it| hints.excluded = it)
    }),
    ("labels", |hints, given| given.labels().map(|it| hints.labels = it)),
    ("expected_output", |hints, given| {
        given.integer().map(|it| hints.expected_output = Some(it))
    }),
    ("dry_run", |hints, given| given.switch().map(|it| hints.dry_run = it)),
    ("explain", |hints, given| given.switch().map(|it| hints.explain = it)),
];

/// What holds for one request only: fields of `overrides` in the body, `x-homing-override-*` in headers.
const OVERRIDES: &[(&str, Take)] = &[
    ("temperature", |hints, given| {
        given.number().map(|it| hints.overrides.temperature = Some(it))
    }),
    ("overlap_credit", |hints, given| {
        given.number().map(|it| hints.overrides.overlap_credit = Some(it))
    }),
    ("prefill_scale", |hints, given| {
        given.number().map(|it| hints.overrides.prefill_scale = Some(it))
    }),
    ("decode_weight", |hints, given| {
        given.number().map(|it| hints.overrides.decode_weight = Some(it))
    }),
    ("cache", |hints, given| {
        given.switch().map(|it| hints.overrides.cache = Some(it))
    }),
    ("work", |hints, given| {
        given.switch().map(|it| hints.overrides.work = Some(it))
    }),
    ("reuse", |hints, given| {
        given.switch().map(|it| hints.overrides.reuse = Some(it))
    }),
];

impl Hints {
    /// Reads what headers and body tell. Headers are names, in any case, and values; the body is the one that was read.
    pub fn read<'h>(
        headers: impl Iterator<Item = (&'h str, &'h [u8])>,
        body: Option<(&Ask, &[u8])>,
    ) -> Result<Self, BadHint> {
        let mut hints = Self::default();
        if let Some((ask, body)) = body
            && let Some(object) = ask.homing
        {
            hints.take_object(object.of(body), HINTS, "homing")?;
        }
        let mut seen = 0_u64;
        let mut agent = None;
        let mut rank = None;
        for (name, value) in headers {
            session::from_header(&mut agent, name, value);
            if name.eq_ignore_ascii_case(RANK) {
                rank = Some(rank_of(value, rank)?);
            }
            hints.take_header(name, value, &mut seen)?;
        }
        hints.dp_rank = rank.or_else(|| body.and_then(|(ask, _)| ask.dp_rank));
        if hints.session.is_none() {
            hints.session = agent.or_else(|| body.and_then(|(ask, _)| session::from_body(ask)));
        }
        Ok(hints)
    }

    /// What of it names workers or ranks, as the client wrote it.
    pub fn pin(&self) -> Option<&'static str> {
        [
            (self.worker.is_some(), "worker"),
            (self.prefill_worker.is_some(), "prefill_worker"),
            (!self.allowed.is_empty(), "workers"),
            (!self.excluded.is_empty(), "exclude_workers"),
            (self.dp_rank.is_some(), "data_parallel_rank"),
        ]
        .into_iter()
        .find_map(|(is_given, name)| is_given.then_some(name))
    }

    fn take_header(&mut self, name: &str, value: &[u8], seen: &mut u64) -> Result<(), BadHint> {
        let Some(given) = name
            .get(..PREFIX.len())
            .filter(|start| start.eq_ignore_ascii_case(PREFIX))
        else {
            return Ok(());
        };
        let rest = name[given.len()..].to_ascii_lowercase();
        if NO_HINTS.contains(&rest.as_str()) {
            return Ok(());
        }
        let bad = |wrong: String| BadHint {
            hint: shown(name),
            wrong,
        };
        let key = rest.replace('-', "_");
        let (table, key, first_bit) = match key.strip_prefix("override_") {
            Some(key) => (OVERRIDES, key, HINTS.len()),
            None => (HINTS, key.as_str(), 0),
        };
        let Some(place) = table.iter().position(|(known, _)| *known == key) else {
            return Err(bad(unknown(key)));
        };
        let bit = 1_u64 << (first_bit + place);
        if *seen & bit != 0 {
            return Err(bad("is given twice".to_owned()));
        }
        *seen |= bit;
        let text = std::str::from_utf8(value).map_err(|_| bad("is no text".to_owned()))?;
        table[place].1(self, &Given::Header(text.trim())).map_err(|wrong| bad(wrong.to_string()))
    }

    fn take_object(&mut self, object: &[u8], table: &[(&str, Take)], path: &str) -> Result<(), BadHint> {
        let bad = |hint: String, wrong: String| BadHint { hint, wrong };
        if kind(object) != Some(Kind::Object) {
            return Err(bad(path.to_owned(), "must be an object".to_owned()));
        }
        for (key, value) in entries(object).into_iter().flatten() {
            let key = text(key).unwrap_or_default();
            let named = || format!("{path}.{}", shown(&key));
            if path == "homing" && key == "overrides" {
                self.take_object(value, OVERRIDES, "homing.overrides")?;
                continue;
            }
            let Some((_, take)) = table.iter().find(|(known, _)| *known == key) else {
                return Err(bad(named(), unknown(&key)));
            };
            if value != b"null" {
                take(self, &Given::Json(value)).map_err(|wrong| bad(named(), wrong.to_string()))?;
            }
        }
        Ok(())
    }
}

/// The rank that a header names.
fn rank_of(value: &[u8], known: Option<u32>) -> Result<u32, BadHint> {
    let bad = |wrong: &str| BadHint {
        hint: RANK.to_owned(),
        wrong: wrong.to_owned(),
    };
    if known.is_some() {
        return Err(bad("is given twice"));
    }
    let text = std::str::from_utf8(value).unwrap_or_default();
    text.trim().parse().map_err(|_| bad("must be a whole number from 0 on"))
}

fn shown(name: &str) -> String {
    name.chars().take(64).collect()
}

/// What to say of a hint that there is not.
fn unknown(key: &str) -> String {
    let all = || HINTS.iter().chain(OVERRIDES).map(|(known, _)| *known);
    let near = |known: &&str| known.starts_with(key) || (known.len() > 3 && key.starts_with(known));
    match all().find(near).filter(|_| !key.is_empty()) {
        Some(known) => format!("is unknown; did you mean {known}?"),
        None => "is unknown".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::Endpoint;
    use crate::json::Limits;

    fn read(headers: &[(&str, &str)], body: &str) -> Result<Hints, BadHint> {
        let ask = Ask::read(Endpoint::ChatCompletions, body.as_bytes(), Limits::default()).unwrap();
        let headers = headers.iter().map(|(name, value)| (*name, value.as_bytes()));
        Hints::read(headers, Some((&ask, body.as_bytes())))
    }

    #[test]
    fn headers_and_body_say_the_same() {
        let headers = [
            ("X-Homing-Session", "s"),
            ("x-homing-priority", "-2"),
            ("x-homing-deadline", "1500ms"),
            ("x-homing-tenant", "t"),
            ("x-homing-worker", "w1"),
            ("x-homing-prefill-worker", "p1"),
            ("x-homing-workers", "w1, w2"),
            ("x-homing-exclude-workers", "w3"),
            ("x-homing-labels", "zone=a,gpu=h200"),
            ("x-homing-expected-output", "300"),
            ("x-homing-override-temperature", "0.5"),
            ("x-homing-override-cache", "off"),
            ("x-homing-dry-run", "1"),
            ("x-homing-explain", "true"),
            ("x-homing-request-id", "not a hint"),
        ];
        let body = r#"{"homing":{"session":"s","priority":-2,"deadline":"1.5s","tenant":"t","worker":"w1","prefill_worker":"p1","workers":["w1","w2"],
            "exclude_workers":["w3"],"labels":{"zone":"a","gpu":"h200"},"expected_output":300,
            "overrides":{"temperature":0.5,"cache":false},"dry_run":true,"explain":true}}"#;
        let by_headers = read(&headers, "{}").unwrap();
        assert_eq!(by_headers, read(&[], body).unwrap());
        assert_eq!(by_headers.deadline, Some(Duration::from_millis(1_500)));
        assert_eq!(by_headers.allowed, ["w1", "w2"]);
        assert_eq!(by_headers.labels["gpu"], "h200");
        assert_eq!(
            (by_headers.overrides.cache, by_headers.dry_run),
            (Some(Switch::Off), Switch::On)
        );
    }

    #[test]
    fn ranks_are_pins_of_header_or_body() {
        let rank = |headers: &[(&str, &str)], body: &str| read(headers, body).map(|hints| hints.dp_rank);
        assert_eq!(rank(&[], r#"{"data_parallel_rank":3}"#), Ok(Some(3)));
        assert_eq!(rank(&[], r#"{"data_parallel_rank":3,"routed_dp_rank":1}"#), Ok(Some(1)));
        assert_eq!(
            rank(&[("X-Data-Parallel-Rank", " 2 ")], r#"{"data_parallel_rank":3}"#),
            Ok(Some(2))
        );
        assert_eq!(rank(&[], r#"{"data_parallel_rank":null}"#), Ok(None));
        for wrong in ["-1", "x", "", "1.5"] {
            assert!(rank(&[("x-data-parallel-rank", wrong)], "{}").is_err(), "{wrong}");
        }
        assert!(rank(&[("x-data-parallel-rank", "1"), ("x-data-parallel-rank", "1")], "{}").is_err());
        let pin = |headers: &[(&str, &str)]| read(headers, "{}").unwrap().pin();
        assert_eq!(pin(&[("x-homing-session", "s"), ("x-homing-labels", "a=b")]), None);
        assert_eq!(pin(&[("x-homing-exclude-workers", "w")]), Some("exclude_workers"));
        assert_eq!(pin(&[("x-data-parallel-rank", "0")]), Some("data_parallel_rank"));
    }

    #[test]
    fn a_header_wins_over_the_body_hint_by_hint() {
        let hints = read(&[("x-homing-tenant", "h")], r#"{"homing":{"tenant":"b","priority":5}}"#).unwrap();
        assert_eq!((hints.tenant.as_deref(), hints.priority), (Some("h"), Some(5)));
        assert_eq!(read(&[], r#"{"homing":null}"#).unwrap(), Hints::default());
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (headers, body, said) in [
            (
                vec![("x-homing-sesion", "a")],
                "{}",
                "the hint x-homing-sesion is unknown",
            ),
            (
                vec![("x-homing-session-id", "a")],
                "{}",
                "the hint x-homing-session-id is unknown; did you mean session?",
            ),
            (
                vec![("x-homing-priority", "high")],
                "{}",
                "the hint x-homing-priority must be a whole number, not high",
            ),
            (
                vec![("x-homing-deadline", "-1s")],
                "{}",
                "the hint x-homing-deadline must be a time such as 500ms or 2s, not -1s",
            ),
            (
                vec![("x-homing-tenant", "a"), ("X-Homing-Tenant", "b")],
                "{}",
                "the hint X-Homing-Tenant is given twice",
            ),
            (
                vec![("x-homing-dry-run", "maybe")],
                "{}",
                "the hint x-homing-dry-run must be on or off, not maybe",
            ),
            (
                vec![("x-homing-labels", "zone")],
                "{}",
                "the hint x-homing-labels must be a list such as zone=a,gpu=h200, not zone",
            ),
            (
                vec![("x-homing-override-temperature", "nan")],
                "{}",
                "the hint x-homing-override-temperature must be a number from 0 on, not nan",
            ),
            (vec![], r#"{"homing":5}"#, "the hint homing must be an object"),
            (
                vec![],
                r#"{"homing":{"wokers":[]}}"#,
                "the hint homing.wokers is unknown",
            ),
            (
                vec![],
                r#"{"homing":{"overrides":{"x":1}}}"#,
                "the hint homing.overrides.x is unknown",
            ),
            (
                vec![],
                r#"{"homing":{"session":5}}"#,
                "the hint homing.session must be a name of 1 to 256 bytes, not 5",
            ),
            (
                vec![],
                r#"{"homing":{"session":""}}"#,
                "the hint homing.session must be a name of 1 to 256 bytes, not \"\"",
            ),
        ] {
            assert_eq!(read(&headers, body).unwrap_err().to_string(), said);
        }
        let long = "x".repeat(300);
        let error = read(&[("x-homing-tenant", &long)], "{}").unwrap_err();
        assert!(error.to_string().len() < 200, "{error}");
    }

    #[test]
    fn hints_of_agents_give_way_to_ours() {
        let agent = [("session_id", "codex-1"), ("x-homing-session", "ours")];
        assert_eq!(read(&agent, "{}").unwrap().session.unwrap().from, SessionFrom::Hint);
        assert_eq!(
            read(&agent[..1], "{}").unwrap().session.unwrap().from,
            SessionFrom::Codex
        );
    }
}
