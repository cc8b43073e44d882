//! What is known, for people and for tests?

use homing_disagg::{StagedCounters, StagedOn};
use homing_load::{Counters, RankLoad, Report, Standing};
use homing_profile::{Millis, Time};
use homing_scheduler::RankFacts;
use homing_scheduler::calibration::Record;

use crate::desk::Desk;

/// What is known of one rank.
#[derive(Clone, Debug)]
pub struct RankState {
    /// Who it is, and whether it serves.
    pub facts: RankFacts,
    /// What it does.
    pub load: RankLoad,
    /// How long the prompts that are booked there take.
    pub backlog: Millis,
    /// What is staged there, and what is on its way from and to it.
    pub staged: StagedOn,
    /// Whether it does what it should.
    pub standing: Standing,
    /// What its engine said last.
    pub reported: Option<Report>,
    /// How good predictions were.
    pub record: Record,
}

/// What is known.
#[derive(Clone, Debug)]
pub struct State {
    /// When.
    pub now: Time,
    /// The policy.
    pub policy: &'static str,
    /// Each rank, by its place.
    pub ranks: Vec<RankState>,
    /// Requests that wait.
    pub waiting: usize,
    /// The tokens of their prompts.
    pub waiting_tokens: u64,
    /// Requests that are booked.
    pub booked: usize,
    /// Blocks that are staged on prefill workers, or will be.
    pub staged_blocks: u64,
    /// What became of what was staged.
    pub staged: StagedCounters,
    /// The share of ranks that were busy lately.
    pub utilisation: f64,
    /// What happened since the beginning.
    pub counters: Counters,
    /// Whether nothing is booked and every sum is zero, as it must be when all requests have ended.
    pub at_rest: bool,
}

impl State {
    pub(crate) fn of(desk: &Desk, now: Time) -> Self {
        let core = &desk.core;
        let ranks = core.load.places().filter_map(|(place, rank)| {
            Some(RankState {
                facts: core.fleet.facts(place)?.clone(),
                load: rank.clone(),
                backlog: rank.backlog(now),
                staged: core.staging.on(rank.rank()),
                standing: rank.standing(now),
                reported: core.load.reported(place),
                record: desk.calibration.of(place).cloned().unwrap_or_default(),
            })
        });
        Self {
            now,
            policy: core.scheduler.policy().name(),
            ranks: ranks.collect(),
            waiting: desk.queue.len(),
            waiting_tokens: desk.queue.tokens(),
            booked: core.load.live(),
            staged_blocks: core.staging.blocks(),
            staged: core.staging.counters(),
            utilisation: core.load.utilisation(now),
            counters: core.load.counters(),
            at_rest: core.load.is_at_rest() && desk.is_at_rest(),
        }
    }
}
