//! Which indexes are there, and who is in them?

use std::collections::BTreeMap;
use std::sync::Arc;

use homing_config::{EventSource, WorkerSpec};
use homing_domain::{BlockSize, RankId, WorkerId};
use homing_feed::RankStatus;
use homing_index::Reader;
use homing_keeper::{Keeper, KeeperGone, Member, Snapshot, Standing, Still, Subject, View};

use crate::problem::Problem;

/// An index, and how it came to be.
#[derive(Debug)]
pub(crate) enum Kept {
    /// It is kept true.
    Live(Keeper),
    /// It is what a recording led to.
    Still(Box<Still>, Arc<Standing>),
}

impl Kept {
    pub(crate) fn still(still: Still) -> Self {
        let standing = still.standing();
        Self::Still(Box::new(still), standing)
    }

    pub(crate) fn reader(&self) -> &Reader {
        match self {
            Self::Live(keeper) => keeper.reader(),
            Self::Still(still, _) => still.reader(),
        }
    }

    /// How good the views are, as of a short while ago. Waits for nobody.
    pub(crate) fn standing(&self) -> Arc<Standing> {
        match self {
            Self::Live(keeper) => keeper.standing(),
            Self::Still(_, standing) => standing.clone(),
        }
    }

    pub(crate) async fn view(&self) -> Result<View, KeeperGone> {
        match self {
            Self::Live(keeper) => keeper.view().await,
            Self::Still(still, _) => Ok(still.view()),
        }
    }

    pub(crate) async fn list(&self, rank: RankId) -> Result<Option<Snapshot>, KeeperGone> {
        match self {
            Self::Live(keeper) => keeper.list(rank).await,
            Self::Still(still, _) => Ok(still.list(rank)),
        }
    }
}

/// A rank of a worker, whether it is listened to or not.
#[derive(Clone, Debug)]
pub(crate) struct Seat {
    pub(crate) rank: RankId,
    /// The worker's address, as answers name it.
    pub(crate) worker: String,
    pub(crate) spec: Arc<WorkerSpec>,
}

impl Seat {
    /// Who tells what it caches, in a word.
    pub(crate) fn source(&self) -> &'static str {
        match self.spec.source {
            EventSource::Nobody => "none",
            EventSource::Agent(_) => "agent",
            EventSource::Stream { .. } => "engine",
            EventSource::Poll(_) => "poll",
        }
    }
}

/// The state of a rank's view, as answers name it. Of a rank that nobody listens to nothing is known.
pub(crate) fn state_name(status: Option<&RankStatus>) -> &'static str {
    status.map_or("stale", |status| status.state.name())
}

/// Why a rank that nobody listens to has no view.
pub(crate) const NOT_LISTENED_TO: &str = "nobody listens to its events";

/// One index with all ranks that are or could be in it.
#[derive(Debug)]
pub(crate) struct Shelf {
    pub(crate) subject: Subject,
    pub(crate) kept: Kept,
    /// Ordered by rank.
    pub(crate) seats: Vec<Seat>,
}

/// All indexes, ordered by model and block size.
#[derive(Debug)]
pub(crate) struct Shelves(Vec<Shelf>);

impl Shelves {
    /// `kept` has an index for each model and block size of the workers.
    pub(crate) fn new(members: Vec<Member>, kept: BTreeMap<Subject, Kept>) -> Self {
        let mut shelves: Vec<Shelf> = kept
            .into_iter()
            .map(|(subject, kept)| Shelf {
                subject,
                kept,
                seats: Vec::new(),
            })
            .collect();
        for Member { id, spec } in members {
            let subject = Subject::of(&spec);
            let seats = seats(id, spec);
            if let Some(shelf) = shelves.iter_mut().find(|shelf| shelf.subject == subject) {
                shelf.seats.extend(seats);
            }
        }
        Self(shelves)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Shelf> {
        self.0.iter()
    }

    /// Every rank, with the index that it is in.
    pub(crate) fn seats(&self) -> impl Iterator<Item = (&Shelf, &Seat)> {
        self.iter()
            .flat_map(|shelf| shelf.seats.iter().map(move |seat| (shelf, seat)))
    }

    /// The time at which they stand still, if they do.
    pub(crate) fn as_of_ms(&self) -> Option<u64> {
        let still = |shelf: &Shelf| match &shelf.kept {
            Kept::Live(_) => None,
            Kept::Still(still, _) => Some(still.now_ms()),
        };
        self.iter().filter_map(still).max()
    }

    /// The index that a question is for.
    pub(crate) fn find(&self, model: Option<&str>, block_size: Option<u64>) -> Result<&Shelf, Problem> {
        let model = match model {
            Some(model) => model,
            None => self.only_model()?,
        };
        let of_model = self.of_model(model)?;
        let sizes = || listed(of_model.iter().map(|shelf| size(shelf).to_string()));
        match (of_model.as_slice(), block_size) {
            ([only], None) => Ok(only),
            (_, None) => Err(Problem::BlockSizeNeeded {
                model: model.to_owned(),
                known: sizes(),
            }),
            (several, Some(wanted)) => several
                .iter()
                .copied()
                .find(|shelf| u64::from(size(shelf)) == wanted)
                .ok_or_else(|| Problem::UnknownBlockSize {
                    model: model.to_owned(),
                    block_size: wanted,
                    known: sizes(),
                }),
        }
    }

    /// The indexes of a model, at least one.
    pub(crate) fn of_model(&self, model: &str) -> Result<Vec<&Shelf>, Problem> {
        let shelves: Vec<&Shelf> = self
            .iter()
            .filter(|shelf| shelf.subject.model.as_str() == model)
            .collect();
        if shelves.is_empty() {
            return Err(Problem::UnknownModel {
                model: model.to_owned(),
                known: self.models(),
            });
        }
        Ok(shelves)
    }

    fn only_model(&self) -> Result<&str, Problem> {
        let mut models = self.iter().map(|shelf| shelf.subject.model.as_str());
        let first = models.next().unwrap_or_default();
        if models.all(|model| model == first) {
            Ok(first)
        } else {
            Err(Problem::ModelNeeded { known: self.models() })
        }
    }

    fn models(&self) -> String {
        let mut models: Vec<&str> = self.iter().map(|shelf| shelf.subject.model.as_str()).collect();
        models.dedup();
        listed(models.into_iter().map(|model| format!("{model:?}")))
    }
}

fn size(shelf: &Shelf) -> u32 {
    BlockSize::get(shelf.subject.block_size)
}

fn listed(words: impl Iterator<Item = String>) -> String {
    words.collect::<Vec<_>>().join(", ")
}

fn seats(worker: WorkerId, spec: WorkerSpec) -> impl Iterator<Item = Seat> {
    let spec = Arc::new(spec);
    (0..spec.ranks).map(move |dp| Seat {
        rank: RankId::new(worker.0, dp),
        worker: spec.url.to_string(),
        spec: spec.clone(),
    })
}
