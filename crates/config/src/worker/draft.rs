//! What is said about a worker, and what holds when nothing is said?
//!
//! A [`Draft`] has the values of one worker, each right by itself and with the others; [`Draft::finish`] fills in from the
//! settings what is not said.

use std::collections::BTreeMap;

use homing_domain::{BlockSize, ModelName, Role};
use homing_index::Copies;
use homing_wire::Dialect;

use crate::choices::{self, COPIES, COPIES_CHOICES, CacheView, DIALECT_CHOICES, DIALECTS, ROLE_CHOICES, ROLES};
use crate::error::Shown;
use crate::quantity;
use crate::words;
use crate::worker::address::{AddressFault, Endpoint, EventsEndpoint, EventsMode, HttpUrl};
use crate::worker::keys::{Form, WorkerKey};
use crate::worker::problem::WorkerProblem;
use crate::worker::{
    AddressScope, EventSource, MAX_LABELS, POLL_PATH, ViewBy, WithoutSource, WorkerDefaults, WorkerLabel, WorkerSpec,
};

/// What is said about one worker: right by itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct Draft {
    url: Option<HttpUrl>,
    agent: Option<HttpUrl>,
    events: Option<Events>,
    replay: Option<Endpoint>,
    role: Option<Role>,
    model: Option<ModelName>,
    block_size: Option<BlockSize>,
    labels: BTreeMap<String, String>,
    dialect: Option<Dialect>,
    ranks: Option<u16>,
    topic: Option<String>,
    cache_view: Option<CacheView>,
    copies: Option<Copies>,
}

#[derive(Clone, Debug)]
enum Events {
    Stream(EventsEndpoint),
    Poll(HttpUrl),
}

impl Draft {
    /// Takes the value `text` of `key`.
    pub fn take(&mut self, key: WorkerKey, text: &str) -> Result<(), WorkerProblem> {
        let malformed = || WorkerProblem::Malformed {
            key: key.name().to_owned(),
            shown: Shown::Text(text.to_owned()),
            expected: key.facts().form.to_string(),
        };
        let address = |fault: AddressFault| WorkerProblem::Address {
            key,
            shown: Shown::Text(text.to_owned()),
            fault,
        };
        let word = || words::is_word(text).then(|| text.to_owned()).ok_or_else(malformed);
        let count = || match &key.facts().form {
            Form::Count(_, range) => quantity::count(text)
                .filter(|count| range.contains(count))
                .ok_or_else(malformed),
            other => unreachable!("{key} is {other}, not a count"),
        };
        match key {
            WorkerKey::Url => self.url = Some(HttpUrl::parse(text).map_err(address)?),
            WorkerKey::Agent => self.agent = Some(HttpUrl::parse(text).map_err(address)?),
            WorkerKey::Events => self.events = Some(Events::parse(text).map_err(address)?),
            WorkerKey::Replay => self.replay = Some(Endpoint::parse(text).map_err(address)?),
            WorkerKey::Role => {
                self.role = Some(choices::named(ROLES, ROLE_CHOICES, text).ok_or_else(malformed)?);
            }
            WorkerKey::Model => self.model = Some(ModelName::new(word()?)),
            WorkerKey::BlockSize => {
                let size = u32::try_from(count()?).ok().and_then(BlockSize::new);
                self.block_size = Some(size.ok_or_else(malformed)?);
            }
            WorkerKey::Label => {
                let (key, value) = text.split_once('=').ok_or_else(malformed)?;
                self.label(key, value, format!("label={key}"))?;
            }
            WorkerKey::Dialect => {
                let dialect = choices::named(DIALECTS, DIALECT_CHOICES, text);
                self.dialect = Some(dialect.ok_or_else(malformed)?);
            }
            WorkerKey::Ranks => self.ranks = Some(u16::try_from(count()?).map_err(|_| malformed())?),
            WorkerKey::Topic => self.topic = Some(word()?),
            WorkerKey::CacheView => {
                let view = choices::named(CacheView::ALL, CacheView::CHOICES, text);
                self.cache_view = Some(view.ok_or_else(malformed)?);
            }
            WorkerKey::Copies => {
                self.copies = Some(choices::named(COPIES, COPIES_CHOICES, text).ok_or_else(malformed)?);
            }
        }
        Ok(())
    }

    /// Takes a label; `spelt` is how an error names it.
    pub fn label(&mut self, key: &str, value: &str, spelt: String) -> Result<(), WorkerProblem> {
        if !words::is_word(key) || key.contains('=') || !words::is_word(value) {
            return Err(WorkerProblem::Malformed {
                key: spelt,
                shown: Shown::Text(value.to_owned()),
                expected: format!("{}, and its key as well, without `=`", words::EXPECTED),
            });
        }
        match self.labels.insert(key.to_owned(), value.to_owned()) {
            None => Ok(()),
            Some(_) => Err(WorkerProblem::Twice { key: spelt }),
        }
    }

    /// What must hold between the keys of one worker.
    pub fn check(&self, problems: &mut Vec<WorkerProblem>) {
        use WorkerKey::{Agent, Events as EventsKey, Replay, Topic};
        let dialect = self.dialect.unwrap_or(Dialect::Vllm);
        if self.labels.len() > MAX_LABELS {
            problems.push(WorkerProblem::TooManyLabels);
        }
        if self.url.is_none() {
            problems.push(WorkerProblem::NoUrl);
        }
        let given = |key| match key {
            EventsKey => self.events.is_some(),
            Replay => self.replay.is_some(),
            Topic => self.topic.is_some(),
            _ => false,
        };
        if self.agent.is_some() {
            let excluded = [EventsKey, Replay, Topic].into_iter().filter(|key| given(*key));
            problems.extend(excluded.map(|other| WorkerProblem::Excludes {
                key: Agent,
                other,
                why: ": the agent listens to the engine itself",
            }));
        } else if self.events.is_none() {
            let needing = [Replay, Topic].into_iter().filter(|key| given(*key));
            problems.extend(needing.map(|key| WorkerProblem::Needs { key, other: EventsKey }));
        }
        self.check_dialect(dialect, problems);
        self.check_ranks(problems);
    }

    fn check_dialect(&self, dialect: Dialect, problems: &mut Vec<WorkerProblem>) {
        let polled = dialect == Dialect::TrtLlm;
        let other = |events: String, rule| WorkerProblem::EventsOfOtherDialect {
            events,
            dialect: dialect.name(),
            rule,
        };
        match &self.events {
            Some(Events::Stream(events)) if polled => {
                problems.push(other(
                    events.to_string(),
                    "such engines are polled at an http:// address",
                ));
            }
            Some(Events::Poll(url)) if !polled => {
                problems.push(other(
                    url.to_string(),
                    "such engines publish at a tcp:// or ipc:// endpoint",
                ));
            }
            Some(Events::Poll(_)) => {
                let given = [
                    (self.replay.is_some(), WorkerKey::Replay),
                    (self.topic.is_some(), WorkerKey::Topic),
                ];
                let excluded = given.into_iter().filter(|(given, _)| *given);
                problems.extend(excluded.map(|(_, key)| WorkerProblem::Excludes {
                    key,
                    other: WorkerKey::Events,
                    why: ": an engine that is polled has neither replay nor topics",
                }));
            }
            Some(Events::Stream(_)) | None => {}
        }
    }

    fn check_ranks(&self, problems: &mut Vec<WorkerProblem>) {
        let ranks = self.ranks.unwrap_or(1);
        let events = match &self.events {
            Some(Events::Stream(events)) => Some((WorkerKey::Events, &events.endpoint)),
            _ => None,
        };
        let replay = self.replay.as_ref().map(|replay| (WorkerKey::Replay, replay));
        for (key, endpoint) in events.into_iter().chain(replay) {
            let why = match endpoint {
                Endpoint::Tcp { port, .. } if port.checked_add(ranks - 1).is_some() => continue,
                Endpoint::Ipc { .. } if ranks == 1 => continue,
                Endpoint::Tcp { .. } => "the ports would go beyond 65535",
                Endpoint::Ipc { .. } => "a local socket has no port to count up",
            };
            problems.push(WorkerProblem::NoRoomForRanks {
                key,
                endpoint: endpoint.clone(),
                ranks,
                why,
            });
        }
    }

    /// The worker, with `defaults` where it says nothing.
    pub fn finish(self, defaults: &WorkerDefaults) -> Result<WorkerSpec, WorkerProblem> {
        let url = self.url.ok_or(WorkerProblem::NoUrl)?;
        let dialect = self.dialect.unwrap_or(Dialect::Vllm);
        let mut cache_view = self.cache_view.unwrap_or(defaults.cache_view);
        let mut view_by = ViewBy::Choice;
        let source = match (cache_view, self.agent, self.events) {
            (CacheView::Approximate | CacheView::None, _, _) => EventSource::Nobody,
            (CacheView::Events, Some(agent), _) => EventSource::Agent(agent),
            (CacheView::Events, None, Some(Events::Stream(events))) => EventSource::Stream {
                events,
                replay: self.replay,
                topic: self.topic.unwrap_or_default(),
            },
            (CacheView::Events, None, Some(Events::Poll(url))) => EventSource::Poll(url),
            (CacheView::Events, None, None) if dialect == Dialect::TrtLlm => EventSource::Poll(url.join(POLL_PATH)),
            (CacheView::Events, None, None)
                if self.cache_view.is_none() && defaults.without_source == WithoutSource::Approximate =>
            {
                cache_view = CacheView::Approximate;
                view_by = ViewBy::Assumption;
                EventSource::Nobody
            }
            (CacheView::Events, None, None) => {
                let from = match self.cache_view {
                    Some(_) => "",
                    None => " by the setting `index.cache-view`",
                };
                return Err(WorkerProblem::NoSource { from });
            }
        };
        check_sockets(&source, defaults)?;
        let labels = self.labels.into_iter();
        Ok(WorkerSpec {
            url,
            cache_view,
            view_by,
            source,
            role: self.role.unwrap_or_default(),
            model: self.model.unwrap_or_else(|| defaults.model.clone()),
            block_size: self.block_size.unwrap_or(defaults.block_size),
            labels: labels.map(|(key, value)| WorkerLabel { key, value }).collect(),
            dialect,
            ranks: self.ranks.unwrap_or(1),
            copies: self.copies.unwrap_or(defaults.copies),
            scope: defaults.scope,
        })
    }
}

/// Whether the sockets of a source may be opened here.
fn check_sockets(source: &EventSource, defaults: &WorkerDefaults) -> Result<(), WorkerProblem> {
    let EventSource::Stream { events, replay, .. } = source else {
        return Ok(());
    };
    let sockets = [
        (WorkerKey::Events, Some(&events.endpoint)),
        (WorkerKey::Replay, replay.as_ref()),
    ];
    for (key, endpoint) in sockets.into_iter().filter_map(|(key, endpoint)| Some((key, endpoint?))) {
        let is_bound = key == WorkerKey::Events && events.mode == EventsMode::Bind;
        let path = match endpoint {
            Endpoint::Ipc { path } => Some(path),
            Endpoint::Tcp { .. } => None,
        };
        if defaults.scope != AddressScope::Any && (is_bound || path.is_some()) {
            let endpoint = if is_bound {
                events.to_string()
            } else {
                endpoint.to_string()
            };
            return Err(WorkerProblem::OperatorOnly { key, endpoint });
        }
        if let (Some(path), Some(directory)) = (path, &defaults.socket_dir)
            && !defaults.allows_socket(path)
        {
            return Err(WorkerProblem::OutsideSocketDir {
                key,
                path: path.clone(),
                directory: directory.clone(),
            });
        }
    }
    Ok(())
}

impl Events {
    fn parse(text: &str) -> Result<Self, AddressFault> {
        if text.starts_with("http://") || text.starts_with("https://") {
            HttpUrl::parse(text).map(Self::Poll)
        } else {
            EventsEndpoint::parse(text).map(Self::Stream)
        }
    }
}
