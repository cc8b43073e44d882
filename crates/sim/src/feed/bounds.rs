//! What must be true after every single step? Limits, notices, ends of repairs; and what the log keeps of a step.

use homing_domain::{KvBatch, RankId, Sequence};
use homing_feed::{Input, Notice, Part, RankStatus, State};

use super::checker::{Check, describe};
use super::events::Place;
use super::world::World;

impl World {
    /// After a feed was told something.
    pub(super) fn check_step(&mut self, router: usize, commands: usize) {
        let (feed, ranks) = (&self.routers[router].feed, self.setup.ranks());
        let under_way = feed.repairs_under_way();
        if under_way > self.setup.feed.max_repairs {
            self.violate(
                Check::Bounds,
                router,
                None,
                format!("{under_way} repairs are under way"),
            );
        }
        if commands > 4 * ranks {
            self.violate(
                Check::Bounds,
                router,
                None,
                format!("{commands} commands after one input"),
            );
        }
        self.follow_notices(router);
        let statuses: Vec<RankStatus> = self.routers[router].feed.statuses(self.now_ms).collect();
        for status in statuses {
            self.check_status(router, &status);
        }
    }

    /// The index has a place for each rank that the feed knows, and for no other.
    pub(super) fn check_places(&mut self, router: usize) {
        let feed = &self.routers[router].feed;
        let (known, in_index) = (feed.statuses(self.now_ms).count(), feed.index().stats().ranks as usize);
        if in_index != known {
            let found = format!("{in_index} ranks are in the index, {known} in the feed");
            self.violate(Check::Bounds, router, None, found);
        }
    }

    fn check_status(&mut self, router: usize, status: &RankStatus) {
        let rank = status.rank;
        if status.buffered > self.setup.feed.buffer_batches {
            let found = format!("{} batches are buffered", status.buffered);
            self.violate(Check::Bounds, router, Some(rank), found);
        }
        if status.state == State::Live
            && let Some(told) = self.unread(router, status)
        {
            let found = describe(status, &format!("the feed was told of {told}"));
            self.violate(Check::ReadAllItHeard, router, Some(rank), found);
        }
        let since = &mut self.routers[router].repairing_since_ms;
        if status.state != State::Repairing {
            since.remove(&rank);
            return;
        }
        let since_ms = *since.entry(rank).or_insert(self.now_ms);
        if self.now_ms - since_ms > self.setup.longest_repair_ms() {
            let found = format!("it is under repair since {since_ms} ms");
            self.violate(Check::RepairsEnd, router, Some(rank), found);
        }
    }

    /// Whether a batch that is about to be heard clears everything and is the newest of all.
    pub(super) fn is_enough(&self, router: usize, place: Place, batch: &KvBatch) -> bool {
        let newest = self.workers[place.worker].stream(place.rank).newest();
        let status = self.routers[router].feed.status(self.now_ms, self.id(place));
        // While a feed cannot tell of which life the subscription is, it has to ask.
        let is_ahead =
            |status: RankStatus| status.is_stream_proven && status.cursor.max(status.highest) < Some(batch.sequence);
        batch.is_barrier() && newest == Some((batch.sequence, batch.digest)) && status.is_some_and(is_ahead)
    }

    /// After it was heard.
    pub(super) fn check_clear(&mut self, router: usize, place: Place, sequence: Sequence) {
        let status = self.routers[router].feed.status(self.now_ms, self.id(place));
        if let Some(status) = status.filter(|status| (status.state, status.cursor) != (State::Live, Some(sequence))) {
            let found = describe(&status, &format!("{sequence} cleared everything"));
            self.violate(Check::ClearIsEnough, router, Some(status.rank), found);
        }
    }

    /// After a feed was told that an engine lives anew.
    pub(super) fn check_void(&mut self, router: usize, rank: RankId) {
        let stats = self.routers[router].feed.rank_stats(rank);
        let blocks = stats.map_or(0, |stats| stats.blocks);
        if blocks > 0 {
            let found = format!("{blocks} blocks after the feed was told that the engine lives anew");
            self.violate(Check::VoidAtOnce, router, Some(rank), found);
        }
    }

    /// The highest number that the feed was told of over this subscription, if the view has not read so far.
    fn unread(&self, router: usize, status: &RankStatus) -> Option<Sequence> {
        let place = Place::of(status.rank);
        let link = self.routers[router].links.get(&status.rank)?;
        let subscription = link.subscription?;
        let is_present = self.workers[place.worker].stream(place.rank).life == subscription.life;
        let told = subscription
            .told
            .filter(|told| status.cursor.is_none_or(|cursor| cursor < *told));
        told.filter(|_| is_present)
    }

    /// Whoever follows the notices knows where each view is.
    fn follow_notices(&mut self, router: usize) {
        for notice in self.routers[router].feed.take_notices() {
            match notice {
                Notice::Applied { rank, batch } => {
                    let position = Some((batch.sequence, batch.digest));
                    self.routers[router].followed.insert(rank, position);
                }
                Notice::Replaced(rank) => self.replaced(router, rank),
            }
        }
        let positions: Vec<RankId> = self.routers[router].followed.keys().copied().collect();
        for rank in positions {
            let followed = self.routers[router].followed[&rank];
            let position = self.routers[router].feed.position(rank);
            if position.is_some() && position != followed {
                let found = format!("the view is at {position:?}, those who follow it at {followed:?}");
                self.violate(Check::Notices, router, Some(rank), found);
            }
        }
    }

    fn replaced(&mut self, router: usize, rank: RankId) {
        let position = self.routers[router].feed.position(rank);
        self.routers[router].followed.insert(rank, position);
        if position.is_none() {
            // It began anew, and says so: what it was told of before is given up.
            self.routers[router].give_up_told(rank);
        }
        let Some(status) = self.routers[router].feed.status(self.now_ms, rank) else {
            return;
        };
        let is_empty = self.routers[router]
            .feed
            .rank_stats(rank)
            .is_none_or(|stats| stats.blocks == 0);
        let is_whole = !is_empty && status.coverage == homing_feed::Coverage::Complete;
        if is_whole && let Some(told) = self.unread(router, &status) {
            let found = describe(
                &status,
                &format!("the feed was told of {told} before the view was shown"),
            );
            self.violate(Check::WholeWhenShown, router, Some(rank), found);
        }
    }

    pub(super) fn log_input(&mut self, router: usize, input: &Input) {
        let numbers = match input {
            Input::Discovered { rank, source } => [20, number(*rank), source.identity.engine, source.identity.agent],
            Input::Left(rank) => [21, number(*rank), 0, 0],
            Input::WorkerLeft(worker) => [22, u64::from(worker.0), 0, 0],
            Input::Connected(rank) => [23, number(*rank), 0, 0],
            Input::Disconnected(rank) => [24, number(*rank), 0, 0],
            Input::Heard { rank, batch } => [25, number(*rank), batch.sequence.0, batch.digest.0],
            Input::Heartbeat { rank, newest, .. } => {
                [26, number(*rank), newest.map_or(0, |(sequence, _)| sequence.0), 0]
            }
            Input::Overflowed { rank, highest } => [27, number(*rank), highest.map_or(0, |highest| highest.0), 0],
            Input::Doubted(rank) => [30, number(*rank), 0, 0],
            Input::Reply(reply) => [28, number(reply.rank), reply.ask.0, part_number(&reply.part)],
            Input::Tick => [29, 0, 0, 0],
        };
        let now_ms = self.now_ms;
        let numbers = [now_ms, router as u64, numbers[0], numbers[1], numbers[2], numbers[3]];
        self.log.note(&numbers, || format!("{now_ms:>6} r{router} {input:?}"));
    }

    pub(super) fn log_status(&mut self, router: usize, status: &RankStatus) {
        let cursor = status.cursor.map_or(u64::MAX, |cursor| cursor.0);
        let now_ms = self.now_ms;
        self.log.note(
            &[
                number(status.rank),
                cursor,
                status.epoch,
                status.counters.applied,
                status.buffered as u64,
            ],
            || {
                let (rank, state, highest) = (status.rank, status.state, status.highest);
                format!(
                    "{now_ms:>6} r{router}      {rank} is {state:?} at {:?} of {highest:?}",
                    status.cursor
                )
            },
        );
    }
}

fn number(rank: RankId) -> u64 {
    u64::from(rank.worker.0) << 16 | u64::from(rank.dp.0)
}

fn part_number(part: &Part) -> u64 {
    match part {
        Part::Batch(batch) => batch.digest.0,
        Part::ReplayEnd => 1,
        Part::ListHead(head) => 2 + head.identity.engine,
        Part::ListItems(items) => items.len() as u64,
        Part::ListEnd { items } => items << 8,
        Part::Gone => 3,
        Part::Failed => 4,
    }
}
