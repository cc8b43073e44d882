//! What does the whole engine do? Ranks, who goes where, and the time.

use std::sync::Arc;

use homing_domain::{AdapterName, DpRank};
use rustc_hash::FxHashMap;
use thiserror::Error;

use crate::adapters::{AdapterNo, Registry};
use crate::config::{Barrier, ConfigError, EngineConfig, Style};
use crate::pool::Pool;
use crate::rank::{Rank, Slot};
use crate::request::{Load, Outcome, Placement, Request, RequestNo, SubmitError};
use crate::sequence::Sequence;
use crate::time::Time;

/// The most names of adapters that an engine remembers, served or not.
pub const MAX_ADAPTERS: usize = 4_096;

/// An engine: a state machine that is told what happens and when, and says what comes of it and when.
///
/// A driver tells it of requests ([`Engine::submit`], [`Engine::cancel`]), then calls [`Engine::poll`] until it returns false, then
/// waits until [`Engine::wake_at`] (or jumps there) and polls again.
///
/// ```
/// use homing_domain::Blocks;
/// use homing_engine::{Engine, EngineConfig, Outcome, Request, Time};
/// use homing_profile::{Polynomial, Timing};
///
/// let timing = Timing::Polynomial(Polynomial::default());
/// let mut engine = Engine::new(EngineConfig::vllm(Blocks(1_000), timing))?;
/// let mut now = Time::ZERO;
/// engine.submit(Request::plain(1, vec![7; 100], 3))?;
/// let (mut outcome, mut answer) = (Outcome::default(), Vec::new());
/// loop {
///     while engine.poll(now, &mut outcome) {
///         answer.extend(outcome.tokens.iter().map(|output| output.token));
///     }
///     match engine.wake_at() {
///         Some(next) => now = next,
///         None => break,
///     }
/// }
/// assert_eq!(answer.len(), 3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Engine {
    config: Arc<EngineConfig>,
    pub(crate) ranks: Vec<Rank>,
    /// Where each request is.
    pub(crate) live: FxHashMap<RequestNo, Place>,
    /// Those whose KV the driver is to bring, cancelled ones included.
    pub(crate) pulling: FxHashMap<RequestNo, Place>,
    /// On which rank the blocks of those that are over stay.
    pub(crate) staged: FxHashMap<RequestNo, u16>,
    adapters: Registry,
    arrivals: u64,
    life: u64,
    slowdown: f64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) rank: u16,
    pub(crate) slot: Slot,
}

/// What comes to an end. Of one moment, steps first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Step,
    Lease,
}

/// What is done with running requests when the cache is to be emptied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Running {
    /// They keep it from being emptied.
    Keep,
    /// They give their blocks back and are computed anew.
    Preempt,
}

/// Why the cache was not emptied. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ClearError {
    /// Requests are using it.
    #[error("{0} requests are not over")]
    Busy(usize),
}

/// Why an adapter was not loaded or unloaded.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AdapterError {
    /// It is there.
    #[error("the adapter {0} is loaded already")]
    Loaded(AdapterName),
    /// It is not there.
    #[error("there is no adapter {0}")]
    Unknown(AdapterName),
    /// The engine has no slots for adapters.
    #[error("the engine serves no adapters")]
    NoSlots,
    /// There were too many names.
    #[error("{MAX_ADAPTERS} names of adapters are remembered, and no more")]
    TooMany,
}

/// The adapters of a rank.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AdapterUse {
    /// On the device, the longest unused first.
    pub resident: Vec<AdapterName>,
    /// Of running requests.
    pub running: Vec<AdapterName>,
    /// Of requests that wait.
    pub waiting: Vec<AdapterName>,
}

impl Engine {
    /// An engine without requests and with an empty cache.
    pub fn new(config: EngineConfig) -> Result<Self, ConfigError> {
        config.check()?;
        let config = Arc::new(config);
        Ok(Self {
            ranks: ranks(&config, 0),
            config,
            live: FxHashMap::default(),
            pulling: FxHashMap::default(),
            staged: FxHashMap::default(),
            adapters: Registry::default(),
            arrivals: 0,
            life: 0,
            slowdown: 1.0,
        })
    }

    /// What it is.
    pub fn config(&self) -> &EngineConfig {
        &self.config
    }

    /// Takes a request, which waits for a step to begin: in [`Engine::poll`], not here, so that requests of one moment can begin
    /// together.
    pub fn submit(&mut self, request: Request) -> Result<DpRank, SubmitError> {
        if request.prompt.is_empty() {
            return Err(SubmitError::EmptyPrompt);
        }
        let limit = self.config.max_model_len.0;
        // A request that generates nothing may be as long as the model.
        let answer = usize::from(request.max_tokens.0 > 0);
        if request.prompt.len() + answer > limit as usize {
            let tokens = request.prompt.len();
            return Err(SubmitError::PromptTooLong { tokens, limit });
        }
        let id = request.id;
        if self.live.contains_key(&id) || self.pulling.contains_key(&id) || self.staged.contains_key(&id) {
            return Err(SubmitError::Repeated(request.id));
        }
        let adapter = match &request.adapter {
            None => None,
            Some(name) => {
                let known = self.adapters.find(name);
                Some(known.ok_or_else(|| SubmitError::UnknownAdapter(name.clone()))?)
            }
        };
        let index = self.place(request.placement)?;
        let rank = &mut self.ranks[usize::from(index)];
        if rank.waiting.len() >= self.config.max_waiting as usize {
            return Err(SubmitError::QueueFull(self.config.max_waiting));
        }
        let slot = rank.add(Sequence::new(request, adapter, self.arrivals, &self.config));
        self.arrivals += 1;
        self.live.insert(id, Place { rank: index, slot });
        Ok(DpRank(index))
    }

    /// Ends a request without a further word about it. Its blocks are given back, at the latest when the present step ends; those
    /// of a request whose KV is on its way when the driver says what became of that. Returns whether there was such a request.
    pub fn cancel(&mut self, id: RequestNo) -> bool {
        let Some(place) = self.live.remove(&id) else {
            return false;
        };
        self.ranks[usize::from(place.rank)].cancel(place.slot);
        true
    }

    /// Does the next thing that is due at `now`, describes it in `out` and returns true; or begins what can begin and returns
    /// false. Things happen at the times at which they are due, also if the driver comes late: `out` says when.
    pub fn poll(&mut self, now: Time, out: &mut Outcome) -> bool {
        loop {
            if let Some(index) = self.ranks.iter().position(|rank| rank.urgent) {
                out.clear();
                self.ranks[index].tell(now, out);
                return true;
            }
            if let Some(index) = self.ranks.iter().position(|rank| rank.transit.has_news()) {
                out.clear();
                self.ranks[index].announce(now, out);
                for reserved in &out.reserved {
                    if let Some(place) = self.live.get(&reserved.request) {
                        self.pulling.insert(reserved.request, *place);
                    }
                }
                return true;
            }
            if let Some((_, due, index)) = self.due(now) {
                out.clear();
                match due {
                    Due::Step => self.complete(index, out),
                    Due::Lease => {
                        self.ranks[index].lapse(out);
                        for lapsed in &out.lapsed {
                            self.staged.remove(lapsed);
                        }
                    }
                }
                return true;
            }
            match self.begin(now) {
                Some(ends) if ends <= now => (),
                _ if self.ranks.iter().any(|rank| rank.transit.has_news()) => (),
                _ => return false,
            }
        }
    }

    /// When the next step or lease ends, after [`Engine::poll`] returned false. `None`: not before a request or KV comes.
    pub fn wake_at(&self) -> Option<Time> {
        let ends = |rank: &Rank| [rank.flight.map(|flight| flight.ends), rank.transit.lease_ends()];
        self.ranks.iter().flat_map(ends).flatten().min()
    }

    /// How busy a rank is.
    pub fn load(&self, rank: DpRank) -> Option<Load> {
        Some(self.ranks.get(usize::from(rank.0))?.load())
    }

    /// The cache of a rank, as it is now: some of it may be computed only when the present step ends, and some of it may not
    /// have been told.
    pub fn pool(&self, rank: DpRank) -> Option<&Pool> {
        Some(&self.ranks.get(usize::from(rank.0))?.pool)
    }

    /// Requests that are not over.
    pub fn live(&self) -> usize {
        self.live.len()
    }

    /// Empties the cache of every rank.
    ///
    /// vLLM refuses while blocks are in use, unless those who run are to be preempted, and tells it with its next step: an idle
    /// engine keeps it back. SGLang refuses while there is any request, and tells it at once. Both refuse while KV is on its way
    /// in or out; if there is some when the step ends that was waited for, the cache stays as it is.
    pub fn clear(&mut self, running: Running) -> Result<(), ClearError> {
        let vllm = matches!(self.config.style, Style::Vllm(_));
        let preempt = vllm && running == Running::Preempt;
        let busy = |rank: &Rank| {
            let uses = rank.pool.counts().active > 0 || rank.flight.is_some();
            if uses || !vllm { rank.requests() } else { 0 }
        };
        let requests: usize = self.ranks.iter().map(busy).sum();
        let in_transit: usize = self.ranks.iter().map(|rank| rank.transit.holders()).sum();
        if in_transit > 0 {
            return Err(ClearError::Busy(requests.max(in_transit)));
        }
        if requests > 0 && !preempt {
            return Err(ClearError::Busy(requests));
        }
        for rank in &mut self.ranks {
            if rank.flight.is_some() {
                rank.clear_after_step = true;
                continue;
            }
            rank.preempt_all();
            rank.pool.clear().expect("nobody holds a block");
            rank.urgent = !vllm && rank.pool.has_changes();
        }
        Ok(())
    }

    /// Begins a new life: requests, cache and residents are gone, and events are numbered from 0 again. Adapters that are served
    /// stay so. Returns the requests that are lost, in the order of their numbers.
    pub fn restart(&mut self) -> Vec<RequestNo> {
        let mut lost: Vec<RequestNo> = self.live.drain().map(|(id, _)| id).collect();
        lost.sort_unstable();
        self.pulling.clear();
        self.staged.clear();
        self.life += 1;
        self.ranks = ranks(&self.config, self.life);
        lost
    }

    /// Makes every step that begins from now on longer by a factor, or shorter.
    pub fn set_slowdown(&mut self, factor: f64) {
        if factor.is_finite() && factor > 0.0 {
            self.slowdown = factor;
        }
    }

    /// Serves an adapter from now on. It gets to the device when a request first uses it.
    pub fn load_adapter(&mut self, name: &AdapterName) -> Result<(), AdapterError> {
        if self.config.adapters.slots == 0 {
            return Err(AdapterError::NoSlots);
        }
        if self.adapters.len() >= MAX_ADAPTERS {
            return Err(AdapterError::TooMany);
        }
        if self.adapters.add(name) {
            Ok(())
        } else {
            Err(AdapterError::Loaded(name.clone()))
        }
    }

    /// Serves an adapter no more. Requests that use it go on.
    pub fn unload_adapter(&mut self, name: &AdapterName) -> Result<(), AdapterError> {
        if self.adapters.remove(name) {
            Ok(())
        } else {
            Err(AdapterError::Unknown(name.clone()))
        }
    }

    /// The adapters that are served.
    pub fn adapters(&self) -> impl Iterator<Item = &AdapterName> {
        self.adapters.served()
    }

    /// The adapters of a rank.
    pub fn adapter_use(&self, rank: DpRank) -> Option<AdapterUse> {
        let rank = self.ranks.get(usize::from(rank.0))?;
        let name = |number: AdapterNo| self.adapters.name(number).clone();
        let in_use = rank.slots.resident().filter(|(_, running)| *running > 0);
        let waiting = rank.waiting.iter();
        let waiting = waiting.filter_map(|slot| rank.sequences[*slot as usize].adapter.map(name));
        let mut waiting: Vec<AdapterName> = waiting.collect();
        waiting.sort_unstable();
        waiting.dedup();
        Some(AdapterUse {
            resident: rank.slots.resident().map(|(number, _)| name(number)).collect(),
            running: in_use.map(|(number, _)| name(number)).collect(),
            waiting,
        })
    }

    fn place(&self, placement: Placement) -> Result<u16, SubmitError> {
        match placement {
            Placement::On(rank) if rank.0 < self.config.ranks => Ok(rank.0),
            Placement::On(rank) => Err(SubmitError::UnknownRank(rank)),
            Placement::Any => {
                let idlest = (0..self.config.ranks).min_by_key(|rank| self.ranks[usize::from(*rank)].requests());
                Ok(idlest.unwrap_or(0))
            }
        }
    }

    /// What ended first, and of which rank.
    fn due(&self, now: Time) -> Option<(Time, Due, usize)> {
        let ranks = || self.ranks.iter().enumerate();
        let steps = ranks().filter_map(|(index, rank)| Some((rank.flight?.ends, Due::Step, index)));
        let leases = ranks().filter_map(|(index, rank)| Some((rank.transit.lease_ends()?, Due::Lease, index)));
        steps.chain(leases).filter(|(ends, ..)| *ends <= now).min()
    }

    /// Ends the present step of a rank.
    fn complete(&mut self, index: usize, out: &mut Outcome) {
        self.ranks[index].complete(out);
        for finished in &out.finished {
            self.live.remove(&finished.request);
        }
        for staged in &out.staged {
            self.staged.insert(staged.request, index as u16);
        }
    }

    /// Begins the steps that can begin. Returns when the first of them ends.
    fn begin(&mut self, now: Time) -> Option<Time> {
        match self.config.barrier {
            Barrier::Off => {
                let slowdown = self.slowdown;
                let idle = self
                    .ranks
                    .iter_mut()
                    .filter(|rank| rank.flight.is_none() && rank.has_work());
                let begun = idle.filter_map(|rank| {
                    let start = rank.ready.take().unwrap_or(now).min(now);
                    rank.begin(start, slowdown)
                });
                begun.min()
            }
            Barrier::EachStep => self.begin_together(now),
        }
    }

    fn begin_together(&mut self, now: Time) -> Option<Time> {
        if self.ranks.iter().any(|rank| rank.flight.is_some()) {
            return None;
        }
        let ready = self.ranks.iter_mut().filter_map(|rank| rank.ready.take()).max();
        let start = ready.unwrap_or(now).min(now);
        let slowdown = self.slowdown;
        let busy = self.ranks.iter_mut().filter(|rank| rank.has_work());
        let longest = busy.filter_map(|rank| rank.begin(start, slowdown)).max()?;
        for flight in self.ranks.iter_mut().filter_map(|rank| rank.flight.as_mut()) {
            flight.ends = longest;
        }
        Some(longest)
    }
}

fn ranks(config: &Arc<EngineConfig>, life: u64) -> Vec<Rank> {
    (0..config.ranks)
        .map(|dp| Rank::new(config, DpRank(dp), life))
        .collect()
}

#[cfg(any(test, feature = "testing"))]
impl Engine {
    /// Says what does not hold that always must.
    pub fn check(&self) -> Result<(), String> {
        let live: usize = self.ranks.iter().map(Rank::requests).sum();
        let leaving: usize = self.ranks.iter().map(Rank::leaving).sum();
        if live - leaving != self.live.len() {
            return Err(format!("{live} requests on ranks, {} known", self.live.len()));
        }
        if self.staged().count() != self.staged.len() {
            return Err(format!("{} requests are staged", self.staged.len()));
        }
        self.ranks.iter().try_for_each(Rank::check)
    }
}
