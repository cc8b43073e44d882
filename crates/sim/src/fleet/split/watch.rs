//! What must hold where two workers serve a request?

use homing_disagg::{Fate, Turn, With};
use homing_engine::RequestNo;
use homing_trace::Traffic;

use super::legs::leg_of;
use super::{Booked, LegAt};
use crate::fleet::calls::CallNo;
use crate::fleet::check::Check;
use crate::fleet::world::World;

impl<I: Traffic> World<I> {
    /// A handoff is over: nothing of it is left.
    pub(super) fn check_over(&mut self, number: CallNo) {
        let Some(split) = self.splits.get(&number) else { return };
        let mut wrong = Vec::new();
        for (turn, booked) in &split.turns {
            let seats = usize::from(booked.prefill.is_some()) + usize::from(booked.decode.is_some());
            if seats > 0 {
                let what = format!("{seats} places of turn {} of request {} are kept", turn.0, number.0);
                wrong.push((Check::EndsOnce, what));
            }
            if booked.hold.is_some() {
                let what = format!("nothing is said of the KV of turn {} of request {}", turn.0, number.0);
                wrong.push((Check::Staged, what));
            }
        }
        // What the engine has not finished and nobody ended goes on for nobody.
        let goes_on = |state: &&super::LegState| !matches!(state.at, LegAt::Over) && state.generated == 0;
        if let Some(state) = split.legs.values().find(goes_on) {
            let what = format!(
                "a leg of request {} goes on at {} when all is over",
                number.0, state.rank
            );
            wrong.push((Check::EndsOnce, what));
        }
        if self.calls.contains_key(&number) {
            wrong.push((Check::EndsOnce, format!("request {} is over without an end", number.0)));
        }
        for (check, what) in wrong {
            self.violated(check, what);
        }
    }

    /// A lease ended at an engine: that must have been said, or nothing.
    pub(super) fn check_lapse(&mut self, worker: u32, request: RequestNo) {
        let of = leg_of(request);
        let said = self.moves.fates.get(&of).copied();
        if let Some((fate, _)) = said.filter(|(fate, _)| !matches!(fate, Fate::Lapses(_))) {
            let what = format!(
                "KV of request {} lapsed at worker {worker}, and was said to be {fate:?}",
                of.0.0
            );
            self.violated(Check::Staged, what);
        }
    }

    /// A decode leg begins: what it is to fetch is there, as far as its router can know.
    pub(super) fn check_decode_leg(&mut self, number: CallNo, with: &With) {
        let (With::ResultOf { leg, .. } | With::OneToken { leg, .. }) = with else {
            return;
        };
        let state = self.splits.get(&number).and_then(|split| split.legs.get(leg));
        let expires = state.and_then(|state| state.staged).and_then(|staged| staged.expires);
        if let Some(expires) = expires.filter(|expires| *expires <= self.now) {
            let what = format!("request {} goes for KV whose lease ended at {expires}", number.0);
            self.violated(Check::Staged, what);
        }
    }

    /// Choices and questions are bounded. A question that is answered with nothing sends the request nowhere: for each turn there are up to
    /// three, because suspects of one side, then of the other, are asked about before the request is refused. A decode worker that goes
    /// while its prompt is computed is replaced, which is one more question and choice but no turn.
    pub(super) fn check_tries(&mut self, number: CallNo, turn: Turn) {
        let Some(setup) = &self.setup.split else { return };
        let (max_choices, rechoices) = (2 * usize::from(setup.handoff.turns), setup.handoff.rechoices);
        let max_questions = 4 * setup.handoff.turns + rechoices;
        let choices = self.splits.get(&number).map_or(0, |split| split.turns.len());
        let what = if choices > max_choices {
            format!("{choices} choices for request {}, {max_choices} are allowed", number.0)
        } else if turn.0 >= max_questions {
            let questions = turn.0 + 1;
            format!(
                "{questions} questions for request {}, {max_questions} are allowed",
                number.0
            )
        } else {
            return;
        };
        self.violated(Check::Bounds, what);
    }

    /// Nothing is sent to who is known to be unable.
    pub(super) fn check_places(&mut self, number: CallNo, booked: &Booked) {
        let Some(router) = self.splits.get(&number).map(|split| split.router) else {
            return;
        };
        let node = &self.routers[router as usize];
        let seats = [&booked.prefill, &booked.decode].into_iter().flatten();
        let wrong = seats
            .map(|seat| seat.rank)
            .find(|rank| node.believed_down.contains(&rank.worker.0) || node.drained.contains(&rank.worker.0));
        if let Some(rank) = wrong {
            let what = format!(
                "router {router} sends request {} to {rank}, which cannot serve it",
                number.0
            );
            self.violated(Check::RightPlace, what);
        }
    }

    /// While things are under way: whoever waits for an engine has a limit, and books are right.
    pub(crate) fn check_apart(&mut self) {
        let mut wrong = None;
        for (number, split) in &self.splits {
            let handoff = &split.handoff;
            let waits = split.waits.is_some() || handoff.is_answering();
            if !waits && handoff.next_timer().is_none() {
                wrong = Some(format!(
                    "nothing limits how long request {} waits for an engine",
                    number.0
                ));
            }
        }
        if let Some(what) = wrong {
            self.violated(Check::InTime, what);
        }
    }

    /// Blocks that engines hold for others or wait for.
    pub(crate) fn in_transit(&self) -> u64 {
        let mut blocks = 0;
        for worker in &self.workers {
            for rank in worker.ranks() {
                let load = worker.engine.load(rank.dp).unwrap_or_default();
                blocks += u64::from(load.staged_blocks) + u64::from(load.incoming_blocks);
            }
        }
        blocks
    }

    /// Whether nothing of requests that two served is left anywhere.
    pub(crate) fn is_apart_over(&self) -> bool {
        self.setup.split.is_none() || self.splits.is_empty() && self.moves.is_idle() && self.in_transit() == 0
    }

    /// At the end nothing is left.
    pub(crate) fn check_apart_at_end(&mut self) {
        let Some(split) = &self.setup.split else {
            return;
        };
        // What was left to lapse is counted until then, though its engine may have died meanwhile.
        let lapsed = self.now + split.lease + split.handoff.lease;
        self.outcome.staged_blocks_left = self.in_transit();
        if self.outcome.staged_blocks_left > 0 {
            let what = format!(
                "{} blocks are held for others in the end",
                self.outcome.staged_blocks_left
            );
            self.violated(Check::Staged, what);
        }
        for number in 0..self.routers.len() {
            let router = &self.routers[number].router;
            router.tick(lapsed);
            let staged = router.state(lapsed).staged_blocks;
            if staged > 0 {
                let what = format!("router {number} counts {staged} staged blocks in the end");
                self.violated(Check::Staged, what);
            }
        }
    }
}
