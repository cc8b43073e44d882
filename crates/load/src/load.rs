//! What was booked where, and what became of it?

use homing_domain::{AdapterName, BlockKey, RequestId, Tokens};
use homing_profile::{Millis, Time, Timing};
use rustc_hash::FxHashMap;

use crate::again::Again;
use crate::booking::{Booking, Counters, End, Heard, LoadError, Place, Ticket};
use crate::bugs::planted;
use crate::cold::{Busy, Cold, Released, same_timing};
use crate::config::{LoadConfig, RankSpec, Track};
use crate::lanes::{Lanes, Since, WIDTH, after};
use crate::ledger::{By, Ledger, List, Stage};
use crate::pace::Pace;
use crate::prompts::Prompts;
use crate::rank::{Ahead, PARTS, RankLoad, Slopes, blocks_of};
use crate::report::{Others, Report, Reported};
use crate::usual::Usual;

/// All ranks of one model, and all that is booked on them.
#[derive(Debug)]
pub struct Load {
    pub(crate) config: LoadConfig,
    pub(crate) ranks: Vec<RankLoad>,
    /// What predictions need of `ranks`, written wherever those change.
    pub(crate) lanes: Vec<Lanes>,
    /// From when lanes count.
    pub(crate) base: Time,
    pub(crate) cold: Vec<Option<Cold>>,
    pub(crate) ledger: Ledger,
    pub(crate) ids: FxHashMap<RequestId, Ticket>,
    pub(crate) heard: List,
    pub(crate) prompts: Prompts,
    pub(crate) adapters: FxHashMap<(u32, AdapterName), u32>,
    pub(crate) fences: u64,
    pub(crate) counters: Counters,
    /// The median of what was learnt of the ranks of each kind.
    pub(crate) medians: Vec<f64>,
    pub(crate) ticked: Time,
    pub(crate) busy: Busy,
    /// The different timings that ranks came with. Ranks come with few, and none is forgotten.
    pub(crate) timings: Vec<Timing>,
    /// Places that have a rank.
    pub(crate) taken: usize,
    pub(crate) usual: Usual,
    pub(crate) again: Again,
}

impl Load {
    /// Nothing yet.
    pub fn new(config: LoadConfig) -> Self {
        Self {
            config,
            ranks: Vec::new(),
            lanes: Vec::new(),
            base: Time::ZERO,
            cold: Vec::new(),
            ledger: Ledger::default(),
            ids: FxHashMap::default(),
            heard: List::default(),
            prompts: Prompts::default(),
            adapters: FxHashMap::default(),
            fences: 0,
            counters: Counters::default(),
            medians: Vec::new(),
            ticked: Time::ZERO,
            busy: Busy::default(),
            timings: Vec::new(),
            taken: 0,
            usual: Usual::default(),
            again: Again::default(),
        }
    }

    /// What holds.
    pub fn config(&self) -> &LoadConfig {
        &self.config
    }

    /// A rank came. It starts at the median pace of the others.
    pub fn add_rank(&mut self, spec: RankSpec, now: Time) -> Result<Place, LoadError> {
        if self.places().any(|(_, rank)| rank.rank == spec.rank) {
            return Err(LoadError::KnownRank(spec.rank));
        }
        let empty = self.cold.iter().position(Option::is_none);
        let at = empty.unwrap_or(self.cold.len());
        if at >= self.config.max_ranks {
            let (what, limit) = ("ranks", self.config.max_ranks);
            return Err(LoadError::Full { what, limit });
        }
        let known = self.timings.iter().position(|timing| same_timing(timing, &spec.timing));
        let kind = known.unwrap_or(self.timings.len());
        if known.is_none() {
            self.timings.push(spec.timing.clone());
        }
        let rank = RankLoad::new(&spec, kind as u32);
        let cold = Cold {
            slopes: Slopes::of(&spec.timing, spec.chunk, rank.typical_prompt, rank.batch()),
            spec,
            pace: Pace::default(),
            reported: Reported::default(),
            all: List::default(),
            pending: List::default(),
            released: Released {
                at: now,
                ..Released::default()
            },
        };
        if at == self.cold.len() {
            self.ranks.push(rank);
            self.cold.push(Some(cold));
            self.lanes.resize(self.ranks.len().div_ceil(WIDTH), Lanes::default());
        } else {
            self.ranks[at] = rank;
            self.cold[at] = Some(cold);
        }
        self.taken += 1;
        self.refresh(at, now);
        Ok(Place(at as u32))
    }

    /// A rank went, and what was booked there with it, which is returned.
    pub fn remove_rank(&mut self, place: Place, now: Time) -> Vec<(RequestId, Ticket)> {
        let mut released = Vec::new();
        while let Some(at) = self.cold(place).and_then(|cold| cold.all.first()) {
            released.extend(self.ledger.get(at).map(|entry| entry.named(at)));
            self.release(at, now);
        }
        if self.cold.get_mut(place.index()).and_then(Option::take).is_some() {
            self.taken -= 1;
        }
        self.counters.orphaned += released.len() as u64;
        released
    }

    /// Books a request. Nothing is booked if it is refused.
    pub fn book(&mut self, booking: Booking, now: Time) -> Result<Ticket, LoadError> {
        let index = booking.place.index();
        if self.cold(booking.place).is_none() {
            return Err(LoadError::NoSuchPlace(booking.place));
        }
        if self.ids.contains_key(&booking.id) {
            return Err(LoadError::LiveId(booking.id));
        }
        if self.ledger.len() >= self.config.max_bookings {
            let (what, limit) = ("bookings", self.config.max_bookings);
            return Err(LoadError::Full { what, limit });
        }
        self.fences += 1;
        let fence = self.fences;
        let entry = self.entry(booking, fence, now);
        let (id, place, stage) = (entry.id.clone(), entry.place, entry.stage);
        let at = self.ledger.add(entry);
        let ticket = Ticket { at, fence };
        self.ids.insert(id, ticket);
        self.ledger.push(&mut self.heard, By::Heard, at);
        if let Some(cold) = self.cold[index].as_mut() {
            self.ledger.push(&mut cold.all, By::Rank, at);
            if stage == Stage::Prefill {
                self.ledger.push(&mut cold.pending, By::Pending, at);
            }
        }
        self.count_in(at, place as usize, now);
        self.counters.booked += 1;
        Ok(ticket)
    }

    /// The first token came: the prompt has been computed.
    pub fn prefill_done(&mut self, ticket: Ticket, now: Time) -> Heard {
        let Some(stage) = self.hear(ticket, now) else {
            return Heard::Stranger;
        };
        if stage == Stage::Decoding {
            return Heard::Known;
        }
        self.begin_decoding(ticket.at, now);
        Heard::News
    }

    /// So many tokens were generated in all. The first of them means that the prompt has been computed.
    pub fn output(&mut self, ticket: Ticket, generated: Tokens, now: Time) -> Heard {
        let Some(stage) = self.hear(ticket, now) else {
            return Heard::Stranger;
        };
        if stage != Stage::Decoding && generated.0 > 0 {
            self.begin_decoding(ticket.at, now);
        }
        let Some(entry) = self.ledger.get_mut(ticket.at) else {
            return Heard::Stranger;
        };
        if generated.0 <= entry.generated {
            return Heard::Known;
        }
        let rank = &mut self.ranks[entry.place as usize];
        rank.context += u64::from(generated.0 - entry.generated);
        entry.generated = generated.0;
        if self.config.output_blocks == Track::On {
            rank.output_blocks -= entry.output_blocks;
            rank.output_parts -= entry.output_parts;
            let size = self.config.block_size;
            let before = blocks_of(u64::from(entry.prompt), size);
            entry.output_blocks = blocks_of(u64::from(entry.prompt) + u64::from(generated.0), size) - before;
            let left = entry.expected.saturating_sub(generated.0);
            entry.output_parts = entry.output_blocks * PARTS * u64::from(left) / u64::from(entry.expected.max(1));
            rank.output_blocks += entry.output_blocks;
            rank.output_parts += entry.output_parts;
            let expected = blocks_of(u64::from(entry.prompt) + u64::from(entry.expected), size) - before;
            rank.coming -= entry.coming;
            entry.coming = expected.saturating_sub(entry.output_blocks);
            rank.coming += entry.coming;
        }
        let place = entry.place as usize;
        self.refresh_if_outdated(place, now);
        self.show(place);
        Heard::News
    }

    /// It is still alive; nothing else is known.
    pub fn touch(&mut self, ticket: Ticket, now: Time) -> Heard {
        self.hear(ticket, now).map_or(Heard::Stranger, |_| Heard::Known)
    }

    /// It ended.
    pub fn end(&mut self, ticket: Ticket, end: End, now: Time) -> Heard {
        if self.hear(ticket, now).is_none() {
            return Heard::Stranger;
        }
        if planted!(self.config.bug, FailureKeepsBooking) && end == End::Failed {
            return Heard::News;
        }
        let cancelled = planted!(self.config.bug, CancelKeepsTokens) && end == End::Cancelled;
        let kept = self
            .ledger
            .get(ticket.at)
            .filter(|entry| cancelled && entry.stage == Stage::Prefill);
        let kept = kept.map(|entry| (entry.place as usize, u64::from(entry.uncached)));
        self.release(ticket.at, now);
        if let Some((place, tokens)) = kept {
            self.ranks[place].ahead.tokens += tokens;
        }
        match end {
            End::Finished => self.counters.finished += 1,
            End::Failed => self.counters.failed += 1,
            End::Cancelled => self.counters.cancelled += 1,
        }
        Heard::News
    }

    /// Time passed: leases end, reports fade, what was learnt is forgotten a little. To be called about every second; costs
    /// time by the number of ranks. Returns the requests that were released.
    pub fn tick(&mut self, now: Time) -> Vec<(RequestId, Ticket)> {
        let mut expired = Vec::new();
        while let Some(at) = self.heard.first() {
            let Some(entry) = self.ledger.get(at) else { break };
            let shortened = planted!(self.config.bug, LeaseShortened);
            let lease = if shortened {
                self.config.lease.0 / 8.0
            } else {
                self.config.lease.0
            };
            if now.since(entry.heard).0 < lease {
                break;
            }
            expired.push(entry.named(at));
            self.release(at, now);
        }
        self.counters.expired += expired.len() as u64;
        let passed = now.since(self.ticked);
        self.ticked = self.ticked.max(now);
        self.base = self.ticked;
        self.find_medians();
        for place in 0..self.cold.len() {
            if let Some(cold) = self.cold[place].as_mut() {
                cold.pace.forget(passed);
                cold.released.fade(now);
                self.ranks[place].others = cold.reported.others(now, self.config.report_fade);
                self.refresh(place, now);
            }
        }
        expired
    }

    /// The median of what ranks say, for each kind of them; a kind of which nothing is known is taken to be as all others.
    fn find_medians(&mut self) {
        let old = |kind: usize| self.medians.get(kind).copied().unwrap_or(1.0);
        let said = |of: Option<usize>| {
            let ranks = self.cold.iter().zip(&self.ranks);
            let of_kind = ranks.filter(|(_, rank)| of.is_none_or(|kind| rank.kind() == kind));
            let said = of_kind.filter_map(|(cold, rank)| cold.as_ref()?.pace.evidence(old(rank.kind())));
            let mut said: Vec<f64> = said.collect();
            said.sort_by(f64::total_cmp);
            said.get(said.len() / 2).copied()
        };
        let all = said(None).unwrap_or(1.0);
        self.medians = (0..self.timings.len())
            .map(|kind| said(Some(kind)).unwrap_or(all))
            .collect();
    }

    /// An engine said how it is.
    pub fn report(&mut self, place: Place, report: Report, now: Time) -> Result<(), LoadError> {
        let rank = self.ranks.get_mut(place.index());
        let cold = self.cold.get_mut(place.index()).and_then(Option::as_mut);
        let (Some(rank), Some(cold)) = (rank, cold) else {
            return Err(LoadError::NoSuchPlace(place));
        };
        let ours = Others {
            waiting: rank.pending(),
            running: rank.decoding,
            blocks: (rank.prompt_blocks + rank.output_blocks).min(u64::from(u32::MAX)) as u32,
        };
        cold.reported.take(report, ours);
        rank.others = cold.reported.others(now, self.config.report_fade);
        self.show(place.index());
        Ok(())
    }

    /// The last report of a rank.
    pub fn reported(&self, place: Place) -> Option<Report> {
        self.cold(place)?.reported.last
    }

    /// The ticket of a live request.
    pub fn find(&self, id: &RequestId) -> Option<Ticket> {
        self.ids.get(id).copied()
    }

    /// One rank.
    pub fn rank(&self, place: Place) -> Option<&RankLoad> {
        self.cold(place)?;
        self.ranks.get(place.index())
    }

    /// All places in a row, so that a scheduler reads without looking anything up. Places without a rank are in it too.
    pub fn ranks(&self) -> &[RankLoad] {
        &self.ranks
    }

    /// What predictions need of all places, some places beside each other; the last may be of no rank.
    pub fn lanes(&self) -> &[Lanes] {
        &self.lanes
    }

    /// By how much prefills on a typical rank of this kind take longer than its timing says.
    pub fn typical_factor(&self, kind: usize) -> f64 {
        self.medians.get(kind).copied().unwrap_or(1.0)
    }

    /// A moment, as [`Load::lanes`] count.
    pub fn since(&self, now: Time) -> Since {
        Since(after(self.base, now))
    }

    /// The places that have a rank.
    pub fn places(&self) -> impl Iterator<Item = (Place, &RankLoad)> {
        let held = self.cold.iter().zip(&self.ranks).enumerate();
        held.filter(|(_, (cold, _))| cold.is_some())
            .map(|(at, (_, rank))| (Place(at as u32), rank))
    }

    /// The different timings of the ranks; [`RankLoad::kind`] is a place in it.
    pub fn timings(&self) -> &[Timing] {
        &self.timings
    }

    /// What the rank came with.
    pub fn spec(&self, place: Place) -> Option<&RankSpec> {
        Some(&self.cold(place)?.spec)
    }

    /// Tells for each rank how many leading blocks of a prompt are booked there, and when they are predicted to have been
    /// computed. Of several words about one rank the last is right.
    pub fn booked_blocks(&self, keys: &[BlockKey], mut tell: impl FnMut(Place, u32, Time)) {
        self.prompts
            .visit(keys, |place, blocks, ready| tell(Place(place), blocks, ready));
    }

    /// Requests of a rank that use an adapter.
    pub fn adapter_use(&self, place: Place, adapter: &AdapterName) -> u32 {
        self.adapters.get(&(place.0, adapter.clone())).copied().unwrap_or(0)
    }

    /// The share of ranks that had prompts to compute over the last seconds, from 0 to 1: how likely it is that a prompt waits.
    pub fn utilisation(&self, now: Time) -> f64 {
        self.busy.share(now, self.taken)
    }

    /// From which time on prompts are long: those that take longer are at most this share of all that the last thousand bookings compute, by
    /// their profiles and as far as they were not cached. Nothing while few have been booked.
    pub fn long_from(&self, share: f64) -> Option<Millis> {
        self.usual.beyond(share)
    }

    /// The share of what the last bookings compute that was seen in earlier prompts: it was evicted since, or is held elsewhere.
    pub fn computed_again(&self) -> f64 {
        self.again.share()
    }

    /// Bookings that live.
    pub fn live(&self) -> usize {
        self.ledger.len()
    }

    /// What happened.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Whether nothing is booked and every sum is zero. For tests and for dumps: a difference is a bug.
    pub fn is_at_rest(&self) -> bool {
        let at_rest = |rank: &RankLoad| {
            rank.pending() == 0
                && rank.ahead == Ahead::default()
                && rank.head == Ahead::default()
                && rank.decoding == 0
                && rank.context == 0
                && rank.prompt_blocks == 0
                && rank.output_blocks == 0
                && rank.output_parts == 0
                && rank.coming == 0
        };
        let tables = self.live() == 0 && self.ids.is_empty() && self.adapters.is_empty() && self.prompts.is_empty();
        tables && self.busy.ranks == 0 && self.ranks.iter().all(at_rest)
    }

    fn cold(&self, place: Place) -> Option<&Cold> {
        self.cold.get(place.index())?.as_ref()
    }
}
