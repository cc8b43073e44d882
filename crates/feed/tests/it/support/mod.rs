//! A feed with a hand on every input: says what happened in one line each, and reads what came of it.

use homing_domain::{
    BlockKey, ClearScope, ContentHash, Digest, HashSeed, KeyHasher, KvBatch, KvChange, Label, Listed, ListedParent,
    RankId, Removed, Sequence, Stored, StoredBlock, Tier,
};
use homing_feed::{
    AskId, ClearReach, Command, Coverage, Feed, FeedConfig, Identity, Input, ListHead, Part, RankStatus, Recovery,
    Reply, Source, State, What,
};
use homing_index::{Answer, Copies, Index, IndexConfig};

pub const RANK: RankId = RankId::new(1, 0);
pub const SIBLING: RankId = RankId::new(1, 1);

pub struct Bed {
    pub feed: Feed,
    pub now: u64,
    hasher: KeyHasher,
}

pub fn source(recovery: Recovery) -> Source {
    Source {
        identity: Identity { engine: 1, agent: 0 },
        recovery,
        clear_reach: ClearReach::Rank,
        copies: Copies::Counted,
    }
}

/// A batch of life `life` that stores the block `number` at the root, alone.
pub fn store(life: u64, number: u64) -> KvBatch {
    let block = StoredBlock {
        label: Label::new(number),
        content: ContentHash(number),
    };
    batch(life, number, vec![KvChange::Stored(Stored::plain(None, vec![block]))])
}

pub fn remove(life: u64, number: u64, label: u64) -> KvBatch {
    let removed = Removed::plain(vec![Label::new(label)]);
    batch(life, number, vec![KvChange::Removed(removed)])
}

pub fn clear(life: u64, number: u64) -> KvBatch {
    batch(life, number, vec![KvChange::Cleared(ClearScope::AllTiers)])
}

pub fn batch(life: u64, number: u64, changes: Vec<KvChange>) -> KvBatch {
    KvBatch {
        sequence: Sequence(number),
        digest: Digest(life * 1_000_003 + number),
        sent_ms: None,
        changes,
    }
}

impl Bed {
    pub fn new() -> Self {
        Self::with(FeedConfig::default())
    }

    pub fn with(config: FeedConfig) -> Self {
        let hasher = KeyHasher::new(HashSeed::PUBLIC);
        Self {
            feed: Feed::new(config, Index::new(IndexConfig::new(hasher))),
            now: 1_000_000,
            hasher,
        }
    }

    /// A rank with a source of this kind, subscribed and restored from batches `0..=newest` of life 1.
    pub fn live(recovery: Recovery, newest: u64) -> Self {
        let mut bed = Self::new();
        bed.join(RANK, source(recovery));
        match recovery {
            Recovery::LiveOnly => (0..=newest).for_each(|number| bed.hear(store(1, number))),
            Recovery::Replay => {
                let (ask, what) = bed.asked();
                assert_eq!(what, What::Replay { from: Sequence(0) });
                bed.replay(ask, (0..=newest).map(|number| store(1, number)));
            }
            Recovery::List => {
                let (ask, what) = bed.asked();
                assert_eq!(what, What::List);
                bed.list(ask, newest, Coverage::Complete, 0..=newest);
            }
        }
        assert_eq!(bed.state(), State::Live);
        assert_eq!(bed.held(), (0..=newest).collect::<Vec<_>>());
        bed
    }

    pub fn join(&mut self, rank: RankId, source: Source) {
        self.say(Input::Discovered { rank, source });
        self.say(Input::Connected(rank));
    }

    pub fn say(&mut self, input: Input) {
        self.feed.step(self.now, input).expect("the index has room");
    }

    pub fn hear(&mut self, batch: KvBatch) {
        self.say(Input::Heard { rank: RANK, batch });
    }

    pub fn pass(&mut self, ms: u64) {
        self.now += ms;
        self.say(Input::Tick);
    }

    pub fn commands(&mut self) -> Vec<Command> {
        std::iter::from_fn(|| self.feed.next_command()).collect()
    }

    /// The one question that is asked now; cancellations of earlier ones may come with it.
    pub fn asked(&mut self) -> (AskId, What) {
        let (_, ask, what) = self.asked_of();
        (ask, what)
    }

    pub fn asked_of(&mut self) -> (RankId, AskId, What) {
        let asks: Vec<_> = self
            .commands()
            .into_iter()
            .filter_map(|command| match command {
                Command::Ask(ask) => Some((ask.rank, ask.id, ask.what)),
                Command::Cancel(_) => None,
            })
            .collect();
        assert_eq!(asks.len(), 1, "{asks:?}");
        asks[0]
    }

    pub fn asks_nothing(&mut self) {
        let commands = self.commands();
        assert!(
            !commands.iter().any(|command| matches!(command, Command::Ask(_))),
            "{commands:?}"
        );
    }

    pub fn part(&mut self, ask: AskId, part: Part) {
        self.say(Input::Reply(Reply { ask, rank: RANK, part }));
    }

    pub fn replay(&mut self, ask: AskId, batches: impl IntoIterator<Item = KvBatch>) {
        for batch in batches {
            self.part(ask, Part::Batch(batch));
        }
        self.part(ask, Part::ReplayEnd);
    }

    pub fn head(&self, position: u64, coverage: Coverage) -> ListHead {
        ListHead {
            identity: self.status().identity,
            position: Some((Sequence(position), store(1, position).digest)),
            coverage,
            truncated: false,
        }
    }

    pub fn items(numbers: impl IntoIterator<Item = u64>) -> Vec<Listed> {
        numbers
            .into_iter()
            .map(|number| Listed {
                parent: ListedParent::Root,
                tier: Tier::Device,
                group: homing_domain::CacheGroup(0),
                copies: 1,
                blocks: vec![StoredBlock {
                    label: Label::new(number),
                    content: ContentHash(number),
                }],
            })
            .collect()
    }

    pub fn list(&mut self, ask: AskId, position: u64, coverage: Coverage, numbers: impl IntoIterator<Item = u64>) {
        let items = Self::items(numbers);
        let count = items.len() as u64;
        self.part(ask, Part::ListHead(self.head(position, coverage)));
        self.part(ask, Part::ListItems(items));
        self.part(ask, Part::ListEnd { items: count });
    }

    pub fn status(&self) -> RankStatus {
        self.feed.status(self.now, RANK).expect("the rank is here")
    }

    pub fn state(&self) -> State {
        self.status().state
    }

    pub fn cursor(&self) -> Option<u64> {
        self.status().cursor.map(|sequence| sequence.0)
    }

    /// Which of the blocks `0..200` readers see on the rank.
    pub fn held(&self) -> Vec<u64> {
        self.held_by(RANK)
    }

    pub fn held_by(&self, rank: RankId) -> Vec<u64> {
        let reader = self.feed.reader();
        let mut answer = Answer::default();
        let holds = |number: &u64| {
            let key: BlockKey = self.hasher.child(self.hasher.root(), ContentHash(*number));
            reader.lookup(&[key], &mut answer);
            let depth = |(found, slot)| (found == rank).then(|| answer.depth(slot, Tier::Device).0);
            answer.ranks().find_map(depth).unwrap_or(0) > 0
        };
        (0..200).filter(holds).collect()
    }
}
