//! One worker is broken, in whatever way, and the router likes it best: does the client get its answer none the less?

use std::collections::VecDeque;

use homing_disagg::{
    Alone, Bug, Choice, Command, Handoff, HandoffSettings, Input, Leg, Means, Meeting, Need, Outcome, PoolPhase, Reach,
    Require, With,
};
use homing_domain::{RankId, WorkerId};
use homing_profile::Time;

use crate::handoff::world::{decode_failed, nowhere, prefill_done, prefill_failed};

const PREFILLS: [u32; 3] = [1, 2, 3];
const DECODES: [u32; 3] = [11, 12, 13];

/// What is wrong with the first worker of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Broken {
    /// A prefill worker does not do its work: it fails so, or never says anything.
    Prefill(Option<Reach>),
    /// It does its work, and nobody gets its KV: who fetches it fails so, or waits for ever.
    Kv(Option<Reach>),
    /// A decode worker fails so whatever it is asked for, or never says anything.
    Decode(Option<Reach>),
}

impl Broken {
    fn all() -> impl Iterator<Item = Self> {
        let ways = [
            Some(Reach::Refused),
            Some(Reach::Said),
            Some(Reach::Unknown),
            Some(Reach::Silent),
            None,
        ];
        // Whoever cannot be reached does not say anything about KV.
        let of_kv = [Some(Reach::Said), Some(Reach::Silent), None].map(Self::Kv);
        let prefill = ways.map(Self::Prefill).into_iter();
        prefill.chain(of_kv).chain(ways.map(Self::Decode))
    }

    /// Whether somebody is left who can serve the request.
    fn can_be_served(self, (prefills, decodes): (usize, usize), require: Require) -> bool {
        match (self, require) {
            (Self::Prefill(_) | Self::Kv(_), Require::No) => true,
            (Self::Prefill(_) | Self::Kv(_), Require::Yes) => prefills > 1,
            (Self::Decode(_), _) => decodes > 1,
        }
    }
}

/// A request before such a fleet.
struct Fleet {
    handoff: Handoff,
    broken: Broken,
    prefills: usize,
    decodes: usize,
    means: Means,
    /// Whose KV is to be had.
    from: Option<WorkerId>,
    now: Time,
}

impl Fleet {
    /// What becomes of a request.
    fn serve(
        broken: Broken,
        (prefills, decodes): (usize, usize),
        means: Means,
        settings: HandoffSettings,
    ) -> Result<Outcome, String> {
        let mut out = Vec::new();
        let handoff = Handoff::begin(settings, PoolPhase::Active, &mut out);
        let now = Time::ZERO;
        let mut fleet = Self {
            handoff,
            broken,
            prefills,
            decodes,
            means,
            from: None,
            now,
        };
        let mut todo: VecDeque<Command> = out.into();
        for _ in 0..1_000 {
            let input = match todo.pop_front() {
                Some(Command::Finish(outcome)) => return Ok(outcome),
                Some(command) => fleet.answer(command),
                None => {
                    fleet.now = fleet.handoff.next_timer().ok_or("it waits for ever")?;
                    Some(Input::Tick)
                }
            };
            let Some(input) = input else { continue };
            let mut out = Vec::new();
            fleet.handoff.on(fleet.now, input, &mut out);
            todo.retain(|waiting| !cancels(&out, waiting));
            todo.extend(out);
        }
        Err("it does not end".to_owned())
    }

    fn answer(&mut self, command: Command) -> Option<Input> {
        match command {
            Command::Choose { turn, need, tried } => {
                let first = |list: &[u32], tried: &[WorkerId]| {
                    let free = list.iter().find(|worker| !tried.contains(&WorkerId(**worker)));
                    free.map(|worker| RankId::new(*worker, 0))
                };
                let prefill = first(&PREFILLS[..self.prefills], &tried.prefill);
                let decode = first(&DECODES[..self.decodes], &tried.decode);
                let choice = match (need, prefill, decode) {
                    (_, _, None) | (Need::Request(Alone::Never), None, _) => return Some(nowhere(turn)),
                    (Need::DecodeFor { .. }, _, Some(decode)) => Choice::Decode(decode),
                    (Need::Request(Alone::Only), _, Some(decode)) | (_, None, Some(decode)) => Choice::Whole(decode),
                    (_, Some(prefill), Some(decode)) => Choice::Pair {
                        prefill,
                        decode,
                        means: self.means.clone(),
                    },
                };
                if let Choice::Pair { prefill, .. } = choice {
                    self.from = Some(prefill.worker);
                }
                Some(Input::Chosen { turn, choice })
            }
            Command::StartPrefill { leg, rank, means, .. } => match self.broken {
                Broken::Prefill(way) if rank.worker == WorkerId(PREFILLS[0]) => {
                    way.map(|reach| prefill_failed(leg, reach))
                }
                // Who meets another has ended when its KV is there.
                Broken::Kv(_) if rank.worker == WorkerId(PREFILLS[0]) && means != Means::ByResult => None,
                _ => Some(prefill_done(leg, None)),
            },
            Command::StartDecode { leg, rank, with, .. } => self.decode(leg, rank, &with),
            _ => None,
        }
    }

    fn decode(&self, leg: Leg, rank: RankId, with: &With) -> Option<Input> {
        if let Broken::Decode(way) = self.broken
            && rank.worker == WorkerId(DECODES[0])
        {
            return way.map(|reach| decode_failed(leg, reach));
        }
        let from_first = *with != With::Whole && self.from == Some(WorkerId(PREFILLS[0]));
        match self.broken {
            Broken::Kv(way) if from_first => way.map(|reach| decode_failed(leg, reach)),
            // The other leg says what is wrong, or nobody does.
            Broken::Prefill(_) if from_first && matches!(with, With::Rendezvous(_)) => None,
            _ => Some(Input::DecodeDone { leg }),
        }
    }
}

/// Whether a leg that waits to be begun is not to be begun any more.
fn cancels(out: &[Command], waiting: &Command) -> bool {
    let (Command::StartPrefill { leg, .. } | Command::StartDecode { leg, .. }) = waiting else {
        return false;
    };
    out.contains(&Command::Cancel { leg: *leg })
}

pub fn check(require: Require, bug: Option<Bug>) -> Result<usize, String> {
    let meeting = Means::Rendezvous(Meeting {
        host: "p".into(),
        port: 8_998,
        room: 4,
    });
    let mut served = 0;
    for broken in Broken::all() {
        for fleet in (1..=3).flat_map(|prefills| (1..=3).map(move |decodes| (prefills, decodes))) {
            for means in [Means::ByResult, meeting.clone()] {
                let settings = HandoffSettings {
                    require,
                    bug,
                    ..HandoffSettings::default()
                };
                let outcome = Fleet::serve(broken, fleet, means.clone(), settings);
                let is_served = outcome == Ok(Outcome::Served);
                if !is_served && (outcome.is_err() || broken.can_be_served(fleet, require)) {
                    return Err(format!("{broken:?}, {fleet:?} workers, {means:?}: {outcome:?}"));
                }
                served += usize::from(is_served);
            }
        }
    }
    Ok(served)
}

#[test]
fn one_broken_worker_costs_nobody_an_answer() {
    for require in [Require::No, Require::Yes] {
        let served = check(require, None).unwrap_or_else(|why| panic!("{require:?}: {why}"));
        assert!(served > 100, "{served} requests");
    }
}
