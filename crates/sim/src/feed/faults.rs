//! What can go wrong, and did it?

use homing_trace::rng::Rng;

macro_rules! faults {
    ($($(#[$doc:meta])* $name:ident = $words:literal,)*) => {
        /// A kind of fault, or of event that is rare in a quiet world.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Fault {
            $($(#[$doc])* $name,)*
        }

        impl Fault {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// What it is, in words.
            pub const fn words(self) -> &'static str {
                match self {
                    $(Self::$name => $words,)*
                }
            }
        }
    };
}

faults! {
    /// A batch is lost.
    Loss = "batches lost",
    /// A batch comes twice.
    Repeat = "batches repeated",
    /// A batch overtakes another.
    Reorder = "batches overtaken",
    /// A subscription stands only after something was sent.
    LateSubscription = "subscriptions that came late",
    /// Nothing comes over a link for a while, and nobody says so.
    Silence = "links silent for a while",
    /// As before, and questions are lost as well.
    Partition = "links and questions cut off for a while",
    /// A link breaks and is made again.
    Disconnect = "links broken",
    /// A link is dead long before that is noticed.
    HalfOpen = "links dead long before it was noticed",
    /// A lane was full, and the number of what was dropped is known.
    Overflow = "lanes full",
    /// A lane was full before the number was read.
    OverflowUnread = "lanes full, numbers unread",
    /// An engine restarts.
    EngineRestart = "engines restarted",
    /// An engine restarts and is beyond its old number before anybody hears of it.
    EnginePasses = "engines restarted that passed their old number",
    /// An engine restarts, and the first number that is heard of it is the one that was expected.
    EngineSameNumber = "engines restarted that came to the expected number",
    /// An agent restarts and knows all that its engine holds.
    AgentRestart = "agents restarted",
    /// An agent restarts and knows nothing of what its engine holds.
    AgentForgets = "agents restarted that forgot",
    /// A router restarts.
    RouterRestart = "routers restarted",
    /// A worker leaves and comes back.
    WorkerLeaves = "workers gone and back",
    /// A rank leaves and comes back.
    RankLeaves = "ranks gone and back",
    /// A rank is discovered though it is known.
    DiscoveredAgain = "ranks discovered twice",
    /// Discovery tells of a life that is over.
    DiscoveredLate = "discoveries of a life that was over",
    /// A view is doubted, with or without a reason.
    Doubt = "views doubted",
    /// An engine does nothing for a while.
    Idle = "idle phases",
    /// All tiers of a rank are cleared.
    ClearAll = "clears of all tiers",
    /// One tier is cleared.
    ClearTier = "clears of one tier",
    /// All ranks of a worker are cleared, and one stream says so.
    ClearWorker = "clears of a worker on one stream",
    /// An answer comes slowly.
    AnswerSlow = "answers slow",
    /// An answer does not come.
    AnswerLost = "answers lost",
    /// A part of an answer is missing.
    AnswerHole = "answers with a hole",
    /// The end of an answer is missing.
    AnswerNoEnd = "answers without their end",
    /// An answer stops half way and says that it ends.
    AnswerCut = "answers cut off",
    /// A source says that it failed.
    AnswerFailed = "answers that failed",
    /// A part of an answer comes twice.
    AnswerRepeated = "answers with a part repeated",
    /// An answer comes although it is not wanted any more.
    AnswerLate = "answers after they were given up",
    /// An answer is about another rank.
    AnswerForeign = "answers that name another rank",
    /// A source says that it does not have what it has.
    AnswerGone = "answers that say gone",
    /// A source is asked for what its ring has lost.
    RingLost = "questions beyond the ring",
    /// A list of an agent that does not know all.
    ListWarming = "lists that may miss something",
    /// A list that a bound cut short.
    ListTruncated = "lists cut short by a bound",
}

/// Which kinds of faults there are in a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Faults(u64);

impl Faults {
    /// None.
    pub const NONE: Self = Self(0);

    /// Some of them: few, many or all.
    pub fn draw(rng: &mut Rng) -> Self {
        let share = rng.pick([150, 500, 800, 1000]);
        let drawn = Fault::ALL.iter().filter(|_| rng.chance(share));
        Self(drawn.fold(0, |bits, fault| bits | 1 << *fault as u64))
    }

    /// Whether it is one of them.
    pub const fn has(self, fault: Fault) -> bool {
        self.0 >> fault as u64 & 1 == 1
    }
}

/// How often each happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Happened(Vec<u64>);

impl Default for Happened {
    fn default() -> Self {
        Self(vec![0; Fault::ALL.len()])
    }
}

impl Happened {
    /// It happened once more.
    pub fn count(&mut self, fault: Fault) {
        self.0[fault as usize] += 1;
    }

    /// Adds what happened elsewhere.
    pub fn add(&mut self, other: &Self) {
        for (own, others) in self.0.iter_mut().zip(&other.0) {
            *own += others;
        }
    }

    /// Each kind, and how often it happened.
    pub fn iter(&self) -> impl Iterator<Item = (Fault, u64)> + '_ {
        Fault::ALL.iter().map(|fault| (*fault, self.0[*fault as usize]))
    }
}
