//! Two engines, a router and a client as a model: what can happen next, and is what the handoff does right?

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use homing_disagg::{
    Alone, Bug, Choice, Command, Denial, Endpoint, Fate, Handoff, HandoffSettings, Input, Leg, Means, Need, PoolPhase,
    PrefillFailure, Prefilled, Reach, Require, Resume, Retry, Seat, Side, Staged, Tried, Turn, With,
};
use homing_domain::{Blocks, DpRank, RankId, WorkerId};
use homing_profile::{Millis, Time};

/// Prefill workers have small numbers, decode workers large ones.
const PREFILLS: [u32; 3] = [1, 2, 3];
const DECODES: [u32; 3] = [11, 12, 13];
const MARGIN: f64 = 10.0;

pub fn settings(require: Require, bug: Option<Bug>) -> HandoffSettings {
    HandoffSettings {
        require,
        turns: 3,
        pairs: 2,
        rechoices: 1,
        prefill_within: Millis(100.0),
        begin_within: Millis(50.0),
        drain_within: Millis(50.0),
        lease_margin: Millis(MARGIN),
        lease: Millis(1_000.0),
        bug,
    }
}

/// What may happen besides engines' answers, and how often.
#[derive(Clone, Copy, Debug, Hash)]
pub struct Disturbances {
    pub client: u8,
    pub workers: u8,
    pub pools: u8,
    pub late_words: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Prefill {
        met: bool,
    },
    /// Reads the KV of a choice, to go on with it or so that it is let go.
    Fetch {
        of: Turn,
        drain: bool,
    },
    Meet,
    Whole,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Run {
    kind: Kind,
    turn: Turn,
    rank: RankId,
    began: bool,
}

/// KV as its engine has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kv {
    /// Not there.
    None,
    /// Nobody can say.
    Unknown,
    Staged(Option<Time>),
    /// Read by a leg that goes on with it, or by one that does not.
    Read {
        drain: bool,
    },
    Gone,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Pair {
    prefill: RankId,
    kv: Kv,
}

#[derive(Clone, Debug, Hash)]
struct Question {
    turn: Turn,
    need: Need,
    tried: Tried,
    withdrawn: bool,
}

/// Everything but the handoff.
#[derive(Clone, Debug, Hash)]
struct Around {
    now: Time,
    require: Require,
    questions: Vec<Question>,
    legs: BTreeMap<Leg, Run>,
    /// Legs that were cancelled and of which a word may be under way.
    late: BTreeMap<Leg, Run>,
    /// What is booked and has not ended.
    booked: BTreeSet<Seat>,
    /// Pairs whose KV is not accounted for.
    pairs: BTreeMap<Turn, Pair>,
    gone: BTreeSet<WorkerId>,
    pool: PoolPhase,
    client_gone: bool,
    finished: bool,
    left: Disturbances,
    /// For each turn three: the question, and two more that ask suspects. And one that replaces a decode worker that went while its prompt
    /// was computed.
    max_questions: u16,
}

#[derive(Clone, Debug)]
pub struct World {
    pub handoff: Handoff,
    around: Around,
}

/// What is wrong.
pub type Check = Result<(), String>;

macro_rules! must {
    ($holds:expr, $($words:tt)*) => {
        if !$holds {
            return Err(format!($($words)*));
        }
    };
}

impl World {
    pub fn begin(settings: HandoffSettings, left: Disturbances) -> Result<Self, String> {
        let mut out = Vec::new();
        let require = settings.require;
        let max_questions = 4 * settings.turns + settings.rechoices;
        let handoff = Handoff::begin(settings, PoolPhase::Active, &mut out);
        let around = Around {
            now: Time::ZERO,
            require,
            questions: Vec::new(),
            legs: BTreeMap::new(),
            late: BTreeMap::new(),
            booked: BTreeSet::new(),
            pairs: BTreeMap::new(),
            gone: BTreeSet::new(),
            pool: PoolPhase::Active,
            client_gone: false,
            finished: false,
            left,
            max_questions,
        };
        let mut world = Self { handoff, around };
        world.around.obey(&out)?;
        world.check()?;
        Ok(world)
    }

    pub fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.handoff.fingerprint(), &self.around).hash(&mut hasher);
        hasher.finish()
    }

    pub fn is_over(&self) -> bool {
        self.handoff.is_over()
    }

    /// Something happens, and what follows is looked at.
    pub fn happen(&mut self, input: &Input) -> Check {
        let leaves = *input == Input::ClientGone;
        self.around.before(input)?;
        let mut out = Vec::new();
        self.handoff.on(self.around.now, input.clone(), &mut out);
        if leaves {
            self.around.nothing_lost(&out)?;
        }
        self.around.obey(&out)?;
        self.check()
    }

    /// Time passes until the next timer.
    pub fn wait(&mut self) -> Check {
        let Some(due) = self.handoff.next_timer() else {
            return Err("it waits for ever".to_owned());
        };
        self.around.now = self.around.now.max(due);
        self.around.lapse()?;
        self.happen(&Input::Tick)
    }

    /// All that can happen now.
    pub fn moves(&self) -> Vec<Option<Input>> {
        let mut moves: Vec<Option<Input>> = Vec::new();
        self.around.answers(&mut moves);
        self.around.words(&mut moves);
        if self.is_over() {
            // Nothing can come any more but late words and answers to questions that were withdrawn.
            return moves;
        }
        self.around.disturbances(&mut moves);
        if self.handoff.next_timer().is_some() {
            moves.push(None);
        }
        moves
    }

    /// Nothing happens but time, and it ends none the less; or everything fails, and it ends as well.
    pub fn ends(&self, mut adversary: impl FnMut(&Self) -> Option<Input>) -> Check {
        let mut world = self.clone();
        for _ in 0..64 {
            if world.is_over() {
                return Ok(());
            }
            match adversary(&world) {
                Some(input) => world.happen(&input)?,
                None => world.wait()?,
            }
        }
        Err("it does not end".to_owned())
    }

    /// Nobody answers but the router, who has nobody.
    pub fn silence(&self) -> Option<Input> {
        if let Some(open) = self.around.questions.iter().find(|question| !question.withdrawn) {
            return Some(nowhere(open.turn));
        }
        let begun = self.around.legs.iter().find(|(_, run)| run.began);
        let begun = begun.filter(|_| self.handoff.next_timer().is_none());
        begun.map(|(leg, _)| decode_failed(*leg, Reach::Answering(Resume::Impossible)))
    }

    /// The router always has somebody, and everybody fails.
    pub fn failure(&self) -> Option<Input> {
        let around = &self.around;
        if let Some(open) = around.questions.iter().find(|question| !question.withdrawn) {
            let mut moves = Vec::new();
            around.choices(open, &mut moves);
            let anew = |turn| {
                let (prefill, decode) = (RankId::new(1, 0), RankId::new(11, 0));
                let means = Means::ByResult;
                let choice = match open.need {
                    Need::DecodeFor { .. } => Choice::Decode(decode),
                    Need::Request(_) => Choice::Pair { prefill, decode, means },
                };
                Input::Chosen { turn, choice }
            };
            return Some(moves.into_iter().next().unwrap_or_else(|| anew(open.turn)));
        }
        let (leg, run) = around.legs.first_key_value()?;
        Some(match run.kind {
            Kind::Prefill { .. } => prefill_failed(*leg, Reach::Refused),
            _ if run.began => decode_failed(*leg, Reach::Answering(Resume::Possible)),
            _ => decode_failed(*leg, Reach::Refused),
        })
    }

    fn check(&self) -> Check {
        let around = &self.around;
        let open = around.questions.iter().any(|question| !question.withdrawn);
        if self.is_over() {
            must!(around.finished, "it is over, and nobody was told");
            must!(around.legs.is_empty(), "it is over, and legs go on: {:?}", around.legs);
            must!(
                around.booked.is_empty(),
                "it is over, and this is booked: {:?}",
                around.booked
            );
            must!(
                around.pairs.is_empty(),
                "it is over, and nobody knows of this KV: {:?}",
                around.pairs
            );
            must!(!open, "it is over, and a question is open");
            return Ok(());
        }
        must!(open || !around.legs.is_empty(), "it waits for nothing");
        let answering = around.legs.values().any(|run| run.began);
        must!(
            open || answering || self.handoff.next_timer().is_some(),
            "it waits for an engine without a limit: {:?}",
            around.legs
        );
        Ok(())
    }
}

impl Around {
    /// What an input means for the engines.
    fn before(&mut self, input: &Input) -> Check {
        match input {
            Input::Chosen { turn, choice } => self.booked_for(*turn, choice),
            Input::Nowhere { turn, .. } => self.questions.retain(|question| question.turn != *turn),
            Input::PrefillDone { leg, result } => {
                let kv = match result {
                    Prefilled::Staged(staged) | Prefilled::Answered(Some(staged)) => Kv::Staged(staged.expires),
                    Prefilled::Answered(None) => Kv::None,
                };
                self.prefill_ended(*leg, kv);
            }
            Input::PrefillFailed { leg, why } => {
                let unsure = matches!(
                    why,
                    PrefillFailure::Other {
                        reach: Reach::Said | Reach::Unknown | Reach::Silent,
                        ..
                    }
                );
                self.prefill_ended(*leg, if unsure { Kv::Unknown } else { Kv::None });
            }
            Input::DecodeBegan { leg } => self.begin(*leg)?,
            Input::DecodeDone { leg } => {
                self.begin(*leg)?;
                self.legs.remove(leg);
            }
            Input::DecodeFailed { leg, reach, .. } => {
                if matches!(reach, Reach::Answering(_)) {
                    self.begin(*leg)?;
                }
                let run = self.legs.remove(leg);
                if let (
                    Some(Run {
                        kind: Kind::Fetch { of, .. },
                        began: false,
                        ..
                    }),
                    Reach::Said | Reach::Unknown | Reach::Silent,
                ) = (run, reach)
                {
                    self.doubt(of);
                }
            }
            Input::ClientGone => self.client_gone = true,
            Input::WorkerGone(worker) => {
                self.gone.insert(*worker);
                let there = |pair: &&mut Pair| pair.prefill.worker == *worker && !matches!(pair.kv, Kv::Read { .. });
                for pair in self.pairs.values_mut().filter(there) {
                    pair.kv = Kv::Gone;
                }
            }
            Input::Pool(phase) => self.pool = *phase,
            Input::Tick => (),
        }
        Ok(())
    }

    fn booked_for(&mut self, turn: Turn, choice: &Choice) {
        self.questions.retain(|question| question.turn != turn);
        let mut book = |side| self.booked.insert(Seat { turn, side });
        book(Side::Decode);
        if let Choice::Pair { prefill, .. } = choice {
            book(Side::Prefill);
            let pair = Pair {
                prefill: *prefill,
                kv: Kv::None,
            };
            self.pairs.insert(turn, pair);
        }
    }

    fn prefill_ended(&mut self, leg: Leg, kv: Kv) {
        let run = self.legs.remove(&leg).or_else(|| self.late.remove(&leg));
        let pair = run.and_then(|run| self.pairs.get_mut(&run.turn));
        if let Some(pair) = pair.filter(|pair| matches!(pair.kv, Kv::None | Kv::Unknown)) {
            pair.kv = kv;
        }
    }

    fn begin(&mut self, leg: Leg) -> Check {
        let Some(run) = self.legs.get_mut(&leg) else {
            self.late.remove(&leg);
            return Ok(());
        };
        if run.began {
            return Ok(());
        }
        run.began = true;
        let (of, drain) = match run.kind {
            Kind::Fetch { of, drain } => (of, drain),
            Kind::Meet => (run.turn, false),
            Kind::Whole | Kind::Prefill { .. } => return Ok(()),
        };
        let met = run.kind == Kind::Meet;
        let Some(pair) = self.pairs.get_mut(&of) else {
            return Err(format!("there is no KV of {of:?}"));
        };
        let there = met || matches!(pair.kv, Kv::Staged(_));
        must!(there, "KV is read that is not there: {:?}", pair.kv);
        pair.kv = Kv::Read { drain };
        Ok(())
    }

    /// A leg that failed may have read it.
    fn doubt(&mut self, of: Turn) {
        if let Some(pair) = self.pairs.get_mut(&of).filter(|pair| matches!(pair.kv, Kv::Staged(_))) {
            pair.kv = Kv::Unknown;
        }
    }

    /// What engines drop when time has passed.
    fn lapse(&mut self) -> Check {
        for (turn, pair) in &mut self.pairs {
            let Kv::Staged(Some(expires)) = pair.kv else { continue };
            if expires > self.now {
                continue;
            }
            let fetched = |run: &Run| matches!(run.kind, Kind::Fetch { of, drain: false } if of == *turn) && !run.began;
            must!(
                !self.legs.values().any(fetched),
                "KV of {turn:?} lapses while it is fetched"
            );
            pair.kv = Kv::None;
        }
        Ok(())
    }

    /// When the client leaves, nothing ends through which KV is on its way.
    fn nothing_lost(&self, out: &[Command]) -> Check {
        for command in out {
            let Command::Cancel { leg } = command else { continue };
            let Some(run) = self.legs.get(leg) else { continue };
            let on_its_way = match run.kind {
                Kind::Prefill { .. } => self
                    .pairs
                    .get(&run.turn)
                    .is_some_and(|pair| !matches!(pair.kv, Kv::Read { .. })),
                Kind::Fetch { .. } | Kind::Meet => !run.began,
                Kind::Whole => false,
            };
            must!(!on_its_way, "the client's leaving ends {run:?}");
        }
        Ok(())
    }

    /// Carries commands out, and looks whether they make sense.
    fn obey(&mut self, out: &[Command]) -> Check {
        for command in out {
            match command {
                Command::Choose { turn, need, tried } => {
                    must!(
                        turn.0 < self.max_questions,
                        "{turn:?}, though {} questions are allowed",
                        self.max_questions
                    );
                    self.questions.push(Question {
                        turn: *turn,
                        need: *need,
                        tried: tried.clone(),
                        withdrawn: false,
                    });
                }
                Command::Withdraw { turn } => {
                    let open = self.questions.iter_mut().find(|question| question.turn == *turn);
                    let Some(open) = open else {
                        return Err(format!("{turn:?} is not open"));
                    };
                    open.withdrawn = true;
                }
                Command::StartPrefill { leg, turn, rank, means } => {
                    for side in [Side::Decode, Side::Prefill] {
                        must!(
                            self.holds(Seat { turn: *turn, side }),
                            "prefill begins without a {side:?} place"
                        );
                    }
                    let met = *means != Means::ByResult;
                    self.start(*leg, Kind::Prefill { met }, *turn, *rank)?;
                }
                Command::StartDecode { leg, turn, rank, with } => {
                    let side = Side::Decode;
                    must!(self.holds(Seat { turn: *turn, side }), "decode begins without a place");
                    let kind = self.decode_kind(with)?;
                    self.start(*leg, kind, *turn, *rank)?;
                }
                Command::Cancel { leg } => {
                    let Some(run) = self.legs.remove(leg) else {
                        return Err(format!("{leg:?} is cancelled and not under way"));
                    };
                    if let (Kind::Fetch { of, .. }, false) = (run.kind, run.began) {
                        self.doubt(of);
                    }
                    if let (Kind::Prefill { .. }, Some(pair)) = (run.kind, self.pairs.get_mut(&run.turn))
                        && pair.kv == Kv::None
                    {
                        pair.kv = Kv::Unknown;
                    }
                    if self.left.late_words > 0 {
                        self.late.insert(*leg, run);
                    }
                }
                Command::EndSeat { seat, .. } => {
                    must!(
                        self.booked.remove(seat),
                        "{seat:?} ends, and is not booked or has ended"
                    );
                }
                Command::Settle { turn, fate } => self.settle(*turn, *fate)?,
                Command::Finish(_) => {
                    must!(!self.finished, "the outcome is told twice");
                    self.finished = true;
                }
            }
        }
        Ok(())
    }

    fn holds(&self, seat: Seat) -> bool {
        self.booked.contains(&seat)
    }

    fn start(&mut self, leg: Leg, kind: Kind, turn: Turn, rank: RankId) -> Check {
        let run = Run {
            kind,
            turn,
            rank,
            began: false,
        };
        let new = !self.late.contains_key(&leg) && self.legs.insert(leg, run).is_none();
        must!(new, "{leg:?} is used twice");
        Ok(())
    }

    fn decode_kind(&self, with: &With) -> Result<Kind, String> {
        let (of, drain) = match with {
            With::Whole => {
                must!(self.require == Require::No, "one worker serves what two have to");
                return Ok(Kind::Whole);
            }
            With::Rendezvous(_) => return Ok(Kind::Meet),
            With::ResultOf { turn, .. } => (*turn, false),
            With::OneToken { turn, .. } => (*turn, true),
        };
        let kv = self.pairs.get(&of).map(|pair| pair.kv);
        let Some(Kv::Staged(expires)) = kv else {
            return Err(format!("KV is fetched that is not there: {kv:?}"));
        };
        let usable = expires.is_none_or(|expires| self.now + Millis(MARGIN) < expires);
        must!(usable, "KV is fetched at {} that lapses at {expires:?}", self.now);
        Ok(Kind::Fetch { of, drain })
    }

    fn settle(&mut self, turn: Turn, fate: Fate) -> Check {
        let now = self.now;
        let Some(pair) = self.pairs.remove(&turn) else {
            return Err(format!("{turn:?} is no pair, or its KV is accounted for"));
        };
        let right = match (fate, pair.kv) {
            (Fate::NotStaged, Kv::None)
            | (Fate::HandedOver, Kv::Read { drain: false })
            | (Fate::Drained, Kv::Read { drain: true })
            | (Fate::Gone, Kv::Gone) => true,
            // Counted too long is no harm, too short is a leak.
            (Fate::Lapses(at), Kv::Staged(expires)) => at >= expires.unwrap_or(now),
            (Fate::Lapses(at), Kv::None | Kv::Unknown | Kv::Gone) => at >= now,
            _ => false,
        };
        must!(right, "KV of {turn:?} is {:?}, and is said to be {fate:?}", pair.kv);
        Ok(())
    }

    /// What the router can answer.
    fn answers(&self, moves: &mut Vec<Option<Input>>) {
        for question in &self.questions {
            let mut choices = Vec::new();
            self.choices(question, &mut choices);
            // Who was asked after the question was withdrawn either has chosen already, or says nothing any more.
            moves.extend(choices.into_iter().map(Some));
            if !question.withdrawn {
                moves.push(Some(nowhere(question.turn)));
            }
        }
    }

    fn choices(&self, question: &Question, choices: &mut Vec<Input>) {
        let turn = question.turn;
        let free = |list: &[u32], tried: &[WorkerId]| {
            let mut free = list.iter().copied();
            let able = |worker: WorkerId| !tried.contains(&worker) && !self.gone.contains(&worker);
            free.find(|worker| able(WorkerId(*worker)))
                .map(|worker| RankId::new(worker, 0))
        };
        let decode = free(&DECODES, &question.tried.decode);
        let prefill = free(&PREFILLS, &question.tried.prefill);
        let mut choose = |choice| choices.push(Input::Chosen { turn, choice });
        match (question.need, prefill, decode) {
            (Need::Request(alone), prefill, Some(decode)) => {
                if let Some(prefill) = prefill.filter(|_| alone != Alone::Only) {
                    let meeting = endpoint().meeting(7, DpRank(0));
                    for means in [Means::ByResult, Means::Rendezvous(meeting)] {
                        choose(Choice::Pair { prefill, decode, means });
                    }
                }
                // A router that does not know better may choose one where two are required: it is not taken.
                choose(Choice::Whole(decode));
            }
            (Need::DecodeFor { .. }, _, Some(decode)) => choose(Choice::Decode(decode)),
            (_, _, None) => (),
        }
    }

    /// What engines can say.
    fn words(&self, moves: &mut Vec<Option<Input>>) {
        for (leg, run) in &self.legs {
            if self.gone.contains(&run.rank.worker) {
                // It is silent, or its connection breaks.
                moves.push(Some(match run.kind {
                    Kind::Prefill { .. } => prefill_failed(*leg, Reach::Unknown),
                    _ => decode_failed(*leg, Reach::Unknown),
                }));
                continue;
            }
            match run.kind {
                Kind::Prefill { met } => self.prefill_words(*leg, met, moves),
                _ => self.decode_words(*leg, run, moves),
            }
        }
        if self.left.late_words > 0 {
            for (leg, run) in &self.late {
                moves.push(Some(match run.kind {
                    Kind::Prefill { .. } => prefill_done(*leg, None),
                    _ => Input::DecodeBegan { leg: *leg },
                }));
            }
        }
    }

    fn prefill_words(&self, leg: Leg, met: bool, moves: &mut Vec<Option<Input>>) {
        moves.push(Some(prefill_done(leg, None)));
        if met {
            let why = PrefillFailure::NoRendezvous;
            moves.push(Some(Input::PrefillFailed { leg, why }));
        } else {
            for lease in [5.0, 30.0] {
                moves.push(Some(prefill_done(leg, Some(self.now + Millis(lease)))));
            }
            let result = Prefilled::Answered(None);
            moves.push(Some(Input::PrefillDone { leg, result }));
            let staged = Staged {
                blocks: Blocks(1),
                expires: None,
            };
            let result = Prefilled::Answered(Some(staged));
            moves.push(Some(Input::PrefillDone { leg, result }));
        }
        let why = PrefillFailure::Busy {
            limit: "l".to_owned(),
            queued: 2,
            most: 1,
        };
        moves.push(Some(Input::PrefillFailed { leg, why }));
        moves.push(Some(prefill_failed(leg, Reach::Refused)));
        moves.push(Some(prefill_failed(leg, Reach::Unknown)));
    }

    fn decode_words(&self, leg: Leg, run: &Run, moves: &mut Vec<Option<Input>>) {
        if run.began {
            moves.push(Some(Input::DecodeDone { leg }));
            for resume in [Resume::Possible, Resume::Impossible] {
                moves.push(Some(decode_failed(leg, Reach::Answering(resume))));
            }
            return;
        }
        let can_begin = match run.kind {
            Kind::Fetch { of, .. } => matches!(self.pairs.get(&of).map(|pair| pair.kv), Some(Kv::Staged(_))),
            // The prefill leg of the same choice is under way, or has done its work.
            Kind::Meet => self.pairs.get(&run.turn).is_some_and(|pair| pair.kv != Kv::Gone),
            _ => true,
        };
        if can_begin {
            moves.push(Some(Input::DecodeBegan { leg }));
            moves.push(Some(Input::DecodeDone { leg }));
        }
        for reach in [Reach::Refused, Reach::Said, Reach::Unknown] {
            moves.push(Some(decode_failed(leg, reach)));
        }
    }

    fn disturbances(&self, moves: &mut Vec<Option<Input>>) {
        if self.left.client > 0 && !self.client_gone {
            moves.push(Some(Input::ClientGone));
        }
        if self.left.workers > 0 {
            let mut workers: BTreeSet<WorkerId> = self.legs.values().map(|run| run.rank.worker).collect();
            let seated = self
                .legs
                .values()
                .filter(|run| matches!(run.kind, Kind::Prefill { met: false }));
            workers.extend(seated.map(|_| WorkerId(DECODES[0])));
            workers.extend(self.pairs.values().map(|pair| pair.prefill.worker));
            let here = workers.into_iter().filter(|worker| !self.gone.contains(worker));
            moves.extend(here.map(|worker| Some(Input::WorkerGone(worker))));
        }
        if self.left.pools > 0 {
            moves.push(Some(Input::Pool(match self.pool {
                PoolPhase::Active => PoolPhase::Gone,
                PoolPhase::NotYet | PoolPhase::Gone => PoolPhase::Active,
            })));
        }
    }

    /// A disturbance is used up.
    fn spend(&mut self, input: &Input) {
        let late = |leg: &Leg| self.late.contains_key(leg);
        let of = match input {
            Input::ClientGone => &mut self.left.client,
            Input::WorkerGone(_) => &mut self.left.workers,
            Input::Pool(_) => &mut self.left.pools,
            Input::PrefillDone { leg, .. } | Input::DecodeBegan { leg } if late(leg) => &mut self.left.late_words,
            _ => return,
        };
        *of = of.saturating_sub(1);
        if self.left.late_words == 0 {
            self.late.clear();
        }
    }
}

impl World {
    /// Something of [`World::moves`] happens.
    pub fn go(&mut self, step: Option<&Input>) -> Check {
        match step {
            Some(input) => {
                self.around.spend(input);
                self.happen(input)
            }
            None => self.wait(),
        }
    }
}

fn endpoint() -> Endpoint {
    Endpoint {
        host: "p".into(),
        port: 8_998,
        dp_size: 1,
    }
}

pub fn nowhere(turn: Turn) -> Input {
    let why = Denial {
        retry: Retry::Soon,
        words: "nobody".to_owned(),
    };
    Input::Nowhere { turn, why }
}

pub fn prefill_done(leg: Leg, expires: Option<Time>) -> Input {
    let blocks = Blocks(1);
    let result = Prefilled::Staged(Staged { blocks, expires });
    Input::PrefillDone { leg, result }
}

pub fn prefill_failed(leg: Leg, reach: Reach) -> Input {
    let words = "broken".to_owned();
    let why = PrefillFailure::Other { reach, words };
    Input::PrefillFailed { leg, why }
}

pub fn decode_failed(leg: Leg, reach: Reach) -> Input {
    let words = "broken".to_owned();
    Input::DecodeFailed { leg, reach, words }
}
