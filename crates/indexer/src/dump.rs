//! What does each rank hold, block by block? `GET /v1/dump`: lines of JSON, so that a person can read it and a program
//! can store it again.
//!
//! For each rank there is a line that begins with `{"rank":`, then one for each item of its list, parents before
//! children, then one that begins with `{"end":` and tells how much there was: a dump that is cut off is noticed. Each
//! rank is listed at one position of its stream; ranks are listed one after the other.
//!
//! Cost: the list of one rank in memory for each dump under way, and a pause of the index's writer while it is made.
//! Lookups do not notice.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_core::Stream;
use homing_domain::{Listed, ListedParent, StoredBlock, Tier};
use homing_feed::Coverage;
use homing_keeper::{Snapshot, Subject};
use serde::{Deserialize, Serialize};
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use crate::http::App;
use crate::problem::Problem;
use crate::shelf::{Seat, Shelf};

/// Dumps that may be under way at once.
pub(crate) const MOST: usize = 4;
/// Bytes after which lines are sent.
const PIECE: usize = 64 << 10;
/// Pieces that wait for the client at most.
const PIECES: usize = 4;

/// Which ranks are to be dumped: those that fit all of it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wanted {
    model: Option<String>,
    worker: Option<String>,
    dp_rank: Option<u16>,
}

impl Wanted {
    fn fits(&self, subject: &Subject, seat: &Seat) -> bool {
        let model = self
            .model
            .as_deref()
            .is_none_or(|model| subject.model.as_str() == model);
        let worker = self
            .worker
            .as_deref()
            .is_none_or(|worker| seat.worker == worker.trim_end_matches('/'));
        model && worker && self.dp_rank.is_none_or(|dp| seat.rank.dp.0 == dp)
    }
}

#[derive(Debug, Serialize)]
struct Head<'a> {
    rank: HeadRank<'a>,
    state: &'static str,
    complete: bool,
    truncated: bool,
    /// The last batch that is contained.
    position: Option<Position>,
    /// Names the seed of the content hashes.
    seed_id: String,
    items: usize,
}

#[derive(Debug, Serialize)]
struct HeadRank<'a> {
    worker: &'a str,
    worker_number: u32,
    dp_rank: u16,
    model: &'a str,
    block_size: u32,
}

#[derive(Debug, Serialize)]
struct Position {
    sequence: u64,
    digest: String,
}

#[derive(Debug, Serialize)]
struct Item {
    parent: Parent,
    tier: &'static str,
    group: u8,
    copies: u32,
    /// Label and content hash of each.
    blocks: Vec<[String; 2]>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum Parent {
    Root,
    Label(String),
    Key(String),
}

#[derive(Debug, Serialize)]
struct End {
    end: Counts,
}

#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Counts {
    items: u64,
    blocks: u64,
}

/// Begins a dump.
pub(crate) fn begin(app: &Arc<App>, wanted: Wanted) -> Result<Response, Problem> {
    if let Some(model) = &wanted.model {
        app.shelves.of_model(model)?;
    }
    let seats = app
        .shelves
        .seats()
        .filter(|(shelf, seat)| wanted.fits(&shelf.subject, seat));
    if seats.count() == 0 {
        return Err(Problem::NoSuchRank);
    }
    let permit = app.dumps.clone().try_acquire_owned();
    let permit = permit.map_err(|_none| Problem::Busy { most: MOST })?;
    let (pieces, body) = mpsc::channel(PIECES);
    tokio::spawn(write(app.clone(), wanted, Lines::new(pieces), permit));
    let body = Body::from_stream(Pieces(body));
    Ok(([(header::CONTENT_TYPE, "application/x-ndjson")], body).into_response())
}

async fn write(app: Arc<App>, wanted: Wanted, mut lines: Lines, _permit: OwnedSemaphorePermit) {
    for (shelf, seat) in app
        .shelves
        .seats()
        .filter(|(shelf, seat)| wanted.fits(&shelf.subject, seat))
    {
        match shelf.kept.list(seat.rank).await {
            Ok(Some(snapshot)) => {
                if write_rank(&app, shelf, seat, snapshot, &mut lines).await.is_err() {
                    return;
                }
            }
            Ok(None) => {}
            Err(gone) => {
                let _ = lines.pieces.send(Err(io::Error::other(gone))).await;
                return;
            }
        }
    }
    let _ = lines.flush().await;
}

async fn write_rank(
    app: &App,
    shelf: &Shelf,
    seat: &Seat,
    snapshot: Snapshot,
    lines: &mut Lines,
) -> Result<(), ClientGone> {
    let Snapshot {
        status,
        position,
        listing,
        held: _,
    } = snapshot;
    let head = Head {
        rank: HeadRank {
            worker: &seat.worker,
            worker_number: seat.rank.worker.0,
            dp_rank: seat.rank.dp.0,
            model: shelf.subject.model.as_str(),
            block_size: shelf.subject.block_size.get(),
        },
        state: status.state.name(),
        complete: status.coverage == Coverage::Complete,
        truncated: listing.truncated,
        position: position.map(|(sequence, digest)| Position {
            sequence: sequence.0,
            digest: hex(digest.0),
        }),
        seed_id: hex(app.hasher.seed_id()),
        items: listing.items.len(),
    };
    lines.line(&head).await?;
    let mut end = Counts::default();
    for item in listing.items {
        end.items += 1;
        end.blocks += item.blocks.len() as u64;
        lines.line(&Item::from(&item)).await?;
    }
    lines.line(&End { end }).await
}

impl From<&Listed> for Item {
    fn from(item: &Listed) -> Self {
        let block = |block: &StoredBlock| [hex(block.label.get()), hex(block.content.0)];
        Self {
            parent: match item.parent {
                ListedParent::Root => Parent::Root,
                ListedParent::Label(label) => Parent::Label(hex(label.get())),
                ListedParent::Key(key) => Parent::Key(hex(key.0)),
            },
            tier: tier_name(item.tier),
            group: item.group.0,
            copies: item.copies,
            blocks: item.blocks.iter().map(block).collect(),
        }
    }
}

const fn tier_name(tier: Tier) -> &'static str {
    match tier {
        Tier::Device => "device",
        Tier::Host => "host",
        Tier::Disk => "disk",
        Tier::External => "external",
    }
}

fn hex(number: u64) -> String {
    format!("{number:016x}")
}

/// Nobody reads any more.
struct ClientGone;

/// Lines on their way to the client.
struct Lines {
    piece: Vec<u8>,
    pieces: mpsc::Sender<io::Result<Bytes>>,
}

impl Lines {
    fn new(pieces: mpsc::Sender<io::Result<Bytes>>) -> Self {
        Self {
            piece: Vec::new(),
            pieces,
        }
    }

    async fn line(&mut self, line: &impl Serialize) -> Result<(), ClientGone> {
        let written = serde_json::to_writer(&mut self.piece, line);
        written.unwrap_or_else(|error| unreachable!("texts and numbers are JSON: {error}"));
        self.piece.push(b'\n');
        if self.piece.len() >= PIECE {
            self.flush().await?;
        }
        Ok(())
    }

    async fn flush(&mut self) -> Result<(), ClientGone> {
        let piece = Bytes::from(std::mem::take(&mut self.piece));
        self.pieces.send(Ok(piece)).await.map_err(|_| ClientGone)
    }
}

/// The pieces, as a body takes them.
struct Pieces(mpsc::Receiver<io::Result<Bytes>>);

impl Stream for Pieces {
    type Item = io::Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(context)
    }
}
