//! What can be asked over HTTP, and how is it answered?
//!
//! What is refused is refused with a status that a program can act on and a line of text for a person.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, RawQuery, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::get;
use homing_domain::{DpRank, RankId, Sequence, WorkerId};
use homing_feed::{Coverage, State as ViewState};
use homing_keeper::{Fleet, ViewedRank};
use homing_telemetry::Metrics;
use serde::Serialize;
use thiserror::Error;

use crate::lists::{ListError, Lists};
use crate::shelf::{Follow, From as WatchFrom, Refusal, Shelf};
use crate::watch::{MAX_WATCHERS, Seats, Watch};

const FRAMES: &str = "application/vnd.homing.frames";
const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What the handlers share.
#[derive(Clone, Debug)]
pub(crate) struct Service {
    pub(crate) fleet: Arc<Fleet>,
    /// Ordered by worker and rank.
    pub(crate) shelves: Arc<[Arc<Shelf>]>,
    pub(crate) lists: Arc<Lists>,
    pub(crate) seats: Arc<Seats>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) heartbeat: Duration,
}

/// Why a request is refused.
#[derive(Clone, Debug, Error)]
enum HttpError {
    #[error("there is no worker {worker} with a rank {rank} here; see /v1/ranks")]
    UnknownRank { worker: String, rank: String },
    #[error("`{key}` must be {expected}, not `{given}`")]
    Query {
        key: &'static str,
        expected: &'static str,
        given: String,
    },
    #[error("`{given}` is no parameter of watch: `from` and `follow` are")]
    Parameter { given: String },
    #[error("`follow=false` needs `from`: without both there is nothing to send")]
    NothingToSend,
    #[error("{MAX_WATCHERS} watch already")]
    Full,
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error(transparent)]
    List(#[from] ListError),
}

impl HttpError {
    fn status(&self) -> StatusCode {
        match self {
            Self::UnknownRank { .. } => StatusCode::NOT_FOUND,
            Self::Query { .. } | Self::Parameter { .. } | Self::NothingToSend => StatusCode::BAD_REQUEST,
            Self::Refused(Refusal::Gone { .. }) => StatusCode::GONE,
            Self::Refused(Refusal::Beyond { .. }) => StatusCode::RANGE_NOT_SATISFIABLE,
            Self::Full | Self::Refused(_) | Self::List(_) => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

impl IntoResponse for HttpError {
    fn into_response(self) -> Response {
        (self.status(), format!("{self}\n")).into_response()
    }
}

pub(crate) fn router(service: Service) -> Router {
    Router::new()
        .route("/v1/ranks", get(ranks))
        .route("/v1/ranks/{worker}/{rank}/list", get(list))
        .route("/v1/ranks/{worker}/{rank}/watch", get(watch))
        .route("/health", get(health))
        .route("/metrics", get(metrics))
        .with_state(service)
}

#[derive(Debug, Serialize)]
struct Ranks {
    ranks: Vec<RankLine>,
}

/// One rank, as `/v1/ranks` tells it. Numbers of 64 bits that mean nothing by themselves are told in hexadecimal.
#[derive(Debug, Serialize)]
struct RankLine {
    worker: String,
    worker_number: u32,
    dp_rank: u16,
    model: String,
    block_size: u32,
    /// How good the agent's own view is.
    state: &'static str,
    why: Option<&'static str>,
    complete: bool,
    truncated: bool,
    /// Whether it can be listed and watched now; if not, `refusal` says why.
    served: bool,
    refusal: Option<String>,
    position: Option<u64>,
    oldest: Option<u64>,
    incarnation: Option<String>,
    epoch: Option<String>,
    blocks: u64,
    trouble: Option<String>,
}

async fn ranks(State(service): State<Service>) -> Result<Json<Ranks>, HttpError> {
    let mut viewed: Vec<ViewedRank> = Vec::new();
    for (_, keeper) in service.fleet.keepers() {
        let view = keeper.view().await.map_err(|_| ListError::NoIndex)?;
        viewed.extend(view.ranks);
    }
    let line = |shelf: &Arc<Shelf>| {
        let rank = viewed.iter().find(|viewed| viewed.status.rank == shelf.owner().rank)?;
        Some(rank_line(shelf, rank))
    };
    let ranks = service.shelves.iter().filter_map(line).collect();
    Ok(Json(Ranks { ranks }))
}

fn rank_line(shelf: &Shelf, viewed: &ViewedRank) -> RankLine {
    let (owner, status) = (shelf.owner(), &viewed.status);
    let standing = shelf.standing();
    let known = standing.as_ref().ok();
    RankLine {
        worker: owner.worker.to_string(),
        worker_number: owner.rank.worker.0,
        dp_rank: owner.rank.dp.0,
        model: owner.subject.model.to_string(),
        block_size: owner.subject.block_size.get(),
        state: status.state.name(),
        why: match status.state {
            ViewState::Stale { why, .. } => Some(why.words()),
            _ => None,
        },
        complete: status.coverage == Coverage::Complete,
        truncated: viewed.stats.truncated,
        served: known.is_some(),
        refusal: standing.as_ref().err().map(ToString::to_string),
        position: status.cursor.map(|sequence| sequence.0),
        oldest: known.and_then(|standing| standing.oldest).map(|at| at.sequence.0),
        incarnation: known.map(|standing| format!("{:016x}", standing.beat.incarnation)),
        epoch: known.map(|standing| format!("{:016x}", standing.beat.epoch)),
        blocks: viewed.stats.blocks,
        trouble: viewed.trouble.clone(),
    }
}

async fn list(
    State(service): State<Service>,
    Path((worker, rank)): Path<(String, String)>,
) -> Result<Response, HttpError> {
    let shelf = service.shelf(&worker, &rank)?;
    let list = service.lists.get(&shelf).await?;
    Ok(frames(Body::from_stream(list.stream())))
}

async fn watch(
    State(service): State<Service>,
    Path((worker, rank)): Path<(String, String)>,
    RawQuery(query): RawQuery,
) -> Result<Response, HttpError> {
    let shelf = service.shelf(&worker, &rank)?;
    let (from, follow) = parameters(query.as_deref().unwrap_or(""))?;
    let place = shelf.watch(from, follow);
    if let Err(Refusal::Gone { .. }) = place {
        service.metrics.agent.gone_answers.add(1);
    }
    let watch = Watch {
        place: place?,
        shelf,
        follow,
        heartbeat: service.heartbeat,
        seat: service.seats.take(&service.metrics).ok_or(HttpError::Full)?,
    };
    Ok(frames(Body::from_stream(watch.stream())))
}

async fn health() -> Json<Health> {
    Json(Health { status: "ok" })
}

#[derive(Debug, Serialize)]
struct Health {
    status: &'static str,
}

async fn metrics(State(service): State<Service>) -> Response {
    ([(header::CONTENT_TYPE, METRICS)], service.metrics.render()).into_response()
}

fn frames(body: Body) -> Response {
    ([(header::CONTENT_TYPE, FRAMES)], body).into_response()
}

impl Service {
    /// The rank of a worker, which is named by its number or by its address.
    fn shelf(&self, worker: &str, rank: &str) -> Result<Arc<Shelf>, HttpError> {
        let number = worker.parse().map(WorkerId);
        let dp = rank.parse().map(DpRank);
        let is_meant = |shelf: &&Arc<Shelf>| {
            let RankId {
                worker: known,
                dp: known_dp,
            } = shelf.owner().rank;
            let is_worker = match number {
                Ok(number) => known == number,
                Err(_) => shelf.owner().worker.to_string() == worker,
            };
            is_worker && dp == Ok(known_dp)
        };
        let found = self.shelves.iter().find(is_meant).cloned();
        found.ok_or_else(|| HttpError::UnknownRank {
            worker: worker.chars().take(200).collect(),
            rank: rank.chars().take(20).collect(),
        })
    }
}

/// What a watch is asked for: `from=N` and `follow=true|false`.
fn parameters(query: &str) -> Result<(WatchFrom, Follow), HttpError> {
    let (mut from, mut follow) = (WatchFrom::Now, Follow::Yes);
    for item in query.split('&').filter(|item| !item.is_empty()) {
        let (key, value) = item.split_once('=').unwrap_or((item, ""));
        let refused = |key, expected| HttpError::Query {
            key,
            expected,
            given: value.chars().take(40).collect(),
        };
        match (key, value) {
            ("from", number) => {
                let is_plain = number.bytes().all(|byte| byte.is_ascii_digit());
                let number = number.parse().ok().filter(|_| is_plain);
                let number = number.ok_or_else(|| refused("from", "the number of a batch"))?;
                from = WatchFrom::Sequence(Sequence(number));
            }
            ("follow", "true") => follow = Follow::Yes,
            ("follow", "false") => follow = Follow::No,
            ("follow", _) => return Err(refused("follow", "true or false")),
            (other, _) => {
                return Err(HttpError::Parameter {
                    given: other.chars().take(40).collect(),
                });
            }
        }
    }
    if (from, follow) == (WatchFrom::Now, Follow::No) {
        return Err(HttpError::NothingToSend);
    }
    Ok((from, follow))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_read_or_refused_in_words() {
        let from = |number| WatchFrom::Sequence(Sequence(number));
        for (query, expected) in [
            ("", (WatchFrom::Now, Follow::Yes)),
            ("from=7", (from(7), Follow::Yes)),
            ("from=0&follow=false", (from(0), Follow::No)),
            ("follow=true&from=18446744073709551615", (from(u64::MAX), Follow::Yes)),
        ] {
            assert_eq!(parameters(query).unwrap(), expected, "{query}");
        }
        for (query, words) in [
            ("from=", "`from` must be the number of a batch, not ``"),
            ("from=-1", "`from` must be the number of a batch, not `-1`"),
            ("from=+1", "`from` must be the number of a batch, not `+1`"),
            (
                "from=18446744073709551616",
                "`from` must be the number of a batch, not `18446744073709551616`",
            ),
            ("from=1&follow=no", "`follow` must be true or false, not `no`"),
            ("form=1", "`form` is no parameter of watch: `from` and `follow` are"),
            (
                "follow=false",
                "`follow=false` needs `from`: without both there is nothing to send",
            ),
        ] {
            let error = parameters(query).unwrap_err();
            assert_eq!(
                (error.to_string().as_str(), error.status()),
                (words, StatusCode::BAD_REQUEST)
            );
        }
    }
}
