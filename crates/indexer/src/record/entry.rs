//! What is in an entry? One thing that was done to a feed, with its time; numbers are written in seven bits a byte, the
//! lowest first, except for those that are hashes.

use homing_domain::{
    BlockKey, CacheGroup, ContentHash, Digest, DpRank, KeyHasher, KvBatch, Label, Listed, ListedParent, RankId,
    Sequence, StoredBlock, Tier, WorkerId,
};
use homing_feed::{AskId, ClearReach, Coverage, Identity, Input, ListHead, Part, Recovery, Reply, Source};
use homing_index::Copies;
use homing_keeper::Told;
use homing_wire::Frame;
use homing_wire::frame::{FrameError, FrameWriter, decode};

/// What a feed was told, as it is read back.
#[derive(Debug)]
pub(super) enum Done {
    Input(Input),
    Maintain(u32),
    /// Nothing more was recorded, and nothing is missing.
    End,
}

const END: u8 = 0;
const TICK: u8 = 1;
const MAINTAIN: u8 = 2;
const DISCOVERED: u8 = 3;
const LEFT: u8 = 4;
const WORKER_LEFT: u8 = 5;
const CONNECTED: u8 = 6;
const DISCONNECTED: u8 = 7;
const HEARD: u8 = 8;
const HEARTBEAT: u8 = 9;
const OVERFLOWED: u8 = 10;
const REPLY_BATCH: u8 = 11;
const REPLAY_END: u8 = 12;
const LIST_HEAD: u8 = 13;
const LIST_ITEMS: u8 = 14;
const LIST_END: u8 = 15;
const GONE: u8 = 16;
const FAILED: u8 = 17;

/// The entry that says that nothing is missing.
pub(super) fn put_end(out: &mut Vec<u8>) {
    out.push(END);
}

/// Appends what was done to a feed, or an error.
pub(super) fn put(told: Told<'_>, frames: FrameWriter, out: &mut Vec<u8>) -> Result<(), FrameError> {
    match told {
        Told::Maintain(work) => {
            out.push(MAINTAIN);
            put_number(out, u64::from(work));
            Ok(())
        }
        Told::Input(input) => put_input(input, frames, out),
    }
}

fn put_input(input: &Input, frames: FrameWriter, out: &mut Vec<u8>) -> Result<(), FrameError> {
    let tagged = |out: &mut Vec<u8>, tag: u8, rank: RankId| {
        out.push(tag);
        put_rank(out, rank);
    };
    match input {
        Input::Tick => out.push(TICK),
        Input::WorkerLeft(worker) => {
            out.push(WORKER_LEFT);
            put_number(out, u64::from(worker.0));
        }
        Input::Discovered { rank, source } => {
            tagged(out, DISCOVERED, *rank);
            put_source(out, source);
        }
        Input::Left(rank) => tagged(out, LEFT, *rank),
        Input::Connected(rank) => tagged(out, CONNECTED, *rank),
        Input::Disconnected(rank) => tagged(out, DISCONNECTED, *rank),
        Input::Heard { rank, batch } => {
            tagged(out, HEARD, *rank);
            frames.batch(batch, out)?;
        }
        Input::Heartbeat { rank, identity, newest } => {
            tagged(out, HEARTBEAT, *rank);
            put_identity(out, *identity);
            put_position(out, *newest);
        }
        Input::Overflowed { rank, highest } => {
            tagged(out, OVERFLOWED, *rank);
            put_optional(out, highest.map(|highest| highest.0));
        }
        Input::Reply(reply) => put_reply(reply, frames, out)?,
    }
    Ok(())
}

fn put_reply(reply: &Reply, frames: FrameWriter, out: &mut Vec<u8>) -> Result<(), FrameError> {
    out.push(match &reply.part {
        Part::Batch(_) => REPLY_BATCH,
        Part::ReplayEnd => REPLAY_END,
        Part::ListHead(_) => LIST_HEAD,
        Part::ListItems(_) => LIST_ITEMS,
        Part::ListEnd { .. } => LIST_END,
        Part::Gone => GONE,
        Part::Failed => FAILED,
    });
    put_rank(out, reply.rank);
    put_number(out, reply.ask.0);
    match &reply.part {
        Part::Batch(batch) => frames.batch(batch, out)?,
        Part::ListHead(head) => {
            put_identity(out, head.identity);
            put_position(out, head.position);
            out.push(u8::from(head.coverage == Coverage::Complete));
            out.push(u8::from(head.truncated));
        }
        Part::ListItems(items) => {
            put_number(out, items.len() as u64);
            for item in items {
                put_item(out, item);
            }
        }
        Part::ListEnd { items } => put_number(out, *items),
        Part::ReplayEnd | Part::Gone | Part::Failed => {}
    }
    Ok(())
}

pub(super) fn put_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn put_hash(out: &mut Vec<u8>, hash: u64) {
    out.extend_from_slice(&hash.to_le_bytes());
}

fn put_optional(out: &mut Vec<u8>, number: Option<u64>) {
    out.push(u8::from(number.is_some()));
    if let Some(number) = number {
        put_number(out, number);
    }
}

fn put_rank(out: &mut Vec<u8>, rank: RankId) {
    put_number(out, u64::from(rank.worker.0));
    put_number(out, u64::from(rank.dp.0));
}

fn put_identity(out: &mut Vec<u8>, identity: Identity) {
    put_hash(out, identity.engine);
    put_hash(out, identity.agent);
}

fn put_position(out: &mut Vec<u8>, position: Option<(Sequence, Digest)>) {
    put_optional(out, position.map(|(sequence, _)| sequence.0));
    if let Some((_, digest)) = position {
        put_hash(out, digest.0);
    }
}

fn put_source(out: &mut Vec<u8>, source: &Source) {
    put_identity(out, source.identity);
    out.push(match source.recovery {
        Recovery::LiveOnly => 0,
        Recovery::Replay => 1,
        Recovery::List => 2,
    });
    out.push(match source.clear_reach {
        ClearReach::Rank => 0,
        ClearReach::Worker => 1,
    });
    out.push(match source.copies {
        Copies::Counted => 0,
        Copies::Set => 1,
    });
}

fn put_item(out: &mut Vec<u8>, item: &Listed) {
    match item.parent {
        ListedParent::Root => out.push(0),
        ListedParent::Label(label) => {
            out.push(1);
            put_hash(out, label.get());
        }
        ListedParent::Key(key) => {
            out.push(2);
            put_hash(out, key.0);
        }
    }
    out.push(item.tier as u8);
    out.push(item.group.0);
    put_number(out, u64::from(item.copies));
    put_number(out, item.blocks.len() as u64);
    for block in &item.blocks {
        put_hash(out, block.label.get());
        put_hash(out, block.content.0);
    }
}

/// What is wrong with an entry whose checks are right: another program wrote it, or a mistake of ours.
pub(super) type Wrong = String;

/// Reads the parts of an entry. No count is believed beyond the bytes that there are.
#[derive(Debug)]
pub(super) struct Parts<'a> {
    bytes: &'a [u8],
}

impl<'a> Parts<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// What was done, to the end of the entry.
    pub(super) fn done(mut self, hasher: &KeyHasher) -> Result<Done, Wrong> {
        let done = match self.byte()? {
            END => Done::End,
            MAINTAIN => Done::Maintain(self.small("work")?),
            tag => Done::Input(self.input(tag, hasher)?),
        };
        if self.bytes.is_empty() {
            Ok(done)
        } else {
            Err("an entry that is longer than what it says".to_owned())
        }
    }

    pub(super) fn is_end(&self) -> bool {
        self.bytes == [END]
    }

    fn input(&mut self, tag: u8, hasher: &KeyHasher) -> Result<Input, Wrong> {
        match tag {
            TICK => return Ok(Input::Tick),
            WORKER_LEFT => return Ok(Input::WorkerLeft(WorkerId(self.small("worker")?))),
            _ => {}
        }
        let rank = self.rank()?;
        let input = match tag {
            DISCOVERED => Input::Discovered {
                rank,
                source: self.source()?,
            },
            LEFT => Input::Left(rank),
            CONNECTED => Input::Connected(rank),
            DISCONNECTED => Input::Disconnected(rank),
            HEARD => Input::Heard {
                rank,
                batch: self.batch(hasher)?,
            },
            HEARTBEAT => Input::Heartbeat {
                rank,
                identity: self.identity()?,
                newest: self.position()?,
            },
            OVERFLOWED => Input::Overflowed {
                rank,
                highest: self.optional()?.map(Sequence),
            },
            _ => Input::Reply(Reply {
                ask: AskId(self.number()?),
                rank,
                part: self.part(tag, hasher)?,
            }),
        };
        Ok(input)
    }

    fn part(&mut self, tag: u8, hasher: &KeyHasher) -> Result<Part, Wrong> {
        Ok(match tag {
            REPLY_BATCH => Part::Batch(self.batch(hasher)?),
            REPLAY_END => Part::ReplayEnd,
            LIST_HEAD => Part::ListHead(ListHead {
                identity: self.identity()?,
                position: self.position()?,
                coverage: self.either(Coverage::Warming, Coverage::Complete)?,
                truncated: self.flag()?,
            }),
            LIST_ITEMS => {
                let count = self.number()?;
                // Room is made as they come: the count is only claimed.
                let items = (0..count).map(|_| self.item());
                Part::ListItems(items.collect::<Result<_, _>>()?)
            }
            LIST_END => Part::ListEnd { items: self.number()? },
            GONE => Part::Gone,
            FAILED => Part::Failed,
            _ => return Err(format!("an entry of the unknown kind {tag}")),
        })
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Wrong> {
        let split = self.bytes.split_at_checked(length);
        let (taken, rest) = split.ok_or("an entry that is shorter than what it says")?;
        self.bytes = rest;
        Ok(taken)
    }

    fn byte(&mut self) -> Result<u8, Wrong> {
        self.take(1).map(|bytes| bytes[0])
    }

    fn flag(&mut self) -> Result<bool, Wrong> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(format!("{other} where there is yes or no")),
        }
    }

    fn either<T>(&mut self, no: T, yes: T) -> Result<T, Wrong> {
        Ok(if self.flag()? { yes } else { no })
    }

    pub(super) fn number(&mut self) -> Result<u64, Wrong> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if bits.checked_shl(shift).map(|shifted| shifted >> shift) != Some(bits) {
                break;
            }
            number |= bits << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err("a number of more than 64 bits".to_owned())
    }

    fn small<N: TryFrom<u64>>(&mut self, what: &str) -> Result<N, Wrong> {
        let number = self.number()?;
        N::try_from(number).map_err(|_| format!("{number} is too large for a {what}"))
    }

    fn hash(&mut self) -> Result<u64, Wrong> {
        let bytes = self.take(8)?;
        Ok(bytes.iter().rev().fold(0, |hash, byte| hash << 8 | u64::from(*byte)))
    }

    fn optional(&mut self) -> Result<Option<u64>, Wrong> {
        if self.flag()? {
            self.number().map(Some)
        } else {
            Ok(None)
        }
    }

    fn rank(&mut self) -> Result<RankId, Wrong> {
        Ok(RankId {
            worker: WorkerId(self.small("worker")?),
            dp: DpRank(self.small("rank")?),
        })
    }

    fn identity(&mut self) -> Result<Identity, Wrong> {
        Ok(Identity {
            engine: self.hash()?,
            agent: self.hash()?,
        })
    }

    fn position(&mut self) -> Result<Option<(Sequence, Digest)>, Wrong> {
        match self.optional()? {
            Some(sequence) => Ok(Some((Sequence(sequence), Digest(self.hash()?)))),
            None => Ok(None),
        }
    }

    fn source(&mut self) -> Result<Source, Wrong> {
        Ok(Source {
            identity: self.identity()?,
            recovery: match self.byte()? {
                0 => Recovery::LiveOnly,
                1 => Recovery::Replay,
                2 => Recovery::List,
                other => return Err(format!("an unknown recovery {other}")),
            },
            clear_reach: self.either(ClearReach::Rank, ClearReach::Worker)?,
            copies: self.either(Copies::Counted, Copies::Set)?,
        })
    }

    /// A batch, which is all that is left.
    fn batch(&mut self, hasher: &KeyHasher) -> Result<KvBatch, Wrong> {
        let frame = std::mem::take(&mut self.bytes);
        match decode(hasher, frame).map_err(|error| error.to_string())? {
            Frame::Batch(batch) => Ok(batch),
            _ => Err("a frame that is no batch".to_owned()),
        }
    }

    fn item(&mut self) -> Result<Listed, Wrong> {
        let parent = match self.byte()? {
            0 => ListedParent::Root,
            1 => ListedParent::Label(Label::new(self.hash()?)),
            2 => ListedParent::Key(BlockKey(self.hash()?)),
            other => return Err(format!("an unknown parent {other}")),
        };
        let tier = usize::from(self.byte()?);
        let tier = Tier::ALL.get(tier).copied().ok_or("an unknown tier")?;
        let group = CacheGroup(self.byte()?);
        let copies = self.small("number of copies")?;
        let count: usize = self.small("number of blocks")?;
        let bytes = self.take(count.checked_mul(16).ok_or("too many blocks")?)?;
        let mut blocks = Parts::new(bytes);
        let block = |_| {
            Ok::<_, Wrong>(StoredBlock {
                label: Label::new(blocks.hash()?),
                content: ContentHash(blocks.hash()?),
            })
        };
        Ok(Listed {
            parent,
            tier,
            group,
            copies,
            blocks: (0..count).map(block).collect::<Result<_, _>>()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use homing_domain::{HashSeed, KvChange, Removed, Stored};
    use proptest::prelude::*;

    fn hasher() -> KeyHasher {
        KeyHasher::new(HashSeed::PUBLIC)
    }

    fn written(told: Told<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        put(told, FrameWriter::new(&hasher()), &mut out).unwrap();
        out
    }

    fn inputs() -> Vec<Input> {
        let rank = RankId::new(70_000, 300);
        let identity = Identity {
            engine: u64::MAX,
            agent: 1,
        };
        let position = Some((Sequence(u64::MAX), Digest(5)));
        let block = |number| StoredBlock {
            label: Label::new(number),
            content: ContentHash(!number),
        };
        let batch = KvBatch {
            sequence: Sequence(1 << 40),
            digest: Digest(7),
            sent_ms: Some(1_700_000_000_000),
            changes: vec![
                KvChange::Stored(Stored::plain(Some(Label::new(1)), vec![block(2), block(3)])),
                KvChange::Removed(Removed::plain(vec![Label::new(9)])),
            ],
        };
        let source = |recovery, clear_reach, copies| Source {
            identity,
            recovery,
            clear_reach,
            copies,
        };
        let item = |parent| Listed {
            parent,
            tier: Tier::Disk,
            group: CacheGroup(255),
            copies: 3,
            blocks: vec![block(4), block(5)],
        };
        let items = [
            ListedParent::Root,
            ListedParent::Label(Label::new(6)),
            ListedParent::Key(BlockKey(7)),
        ];
        let head = |coverage, position, truncated| {
            Part::ListHead(ListHead {
                identity,
                position,
                coverage,
                truncated,
            })
        };
        let parts = [
            Part::Batch(batch.clone()),
            Part::ReplayEnd,
            head(Coverage::Complete, position, true),
            head(Coverage::Warming, None, false),
            Part::ListItems(items.map(item).to_vec()),
            Part::ListItems(vec![]),
            Part::ListEnd { items: u64::MAX },
            Part::Gone,
            Part::Failed,
        ];
        let sources = [
            source(Recovery::LiveOnly, ClearReach::Rank, Copies::Counted),
            source(Recovery::Replay, ClearReach::Worker, Copies::Set),
            source(Recovery::List, ClearReach::Rank, Copies::Set),
        ];
        let mut inputs = vec![
            Input::Tick,
            Input::Left(rank),
            Input::WorkerLeft(rank.worker),
            Input::Connected(rank),
            Input::Disconnected(rank),
            Input::Heard { rank, batch },
        ];
        inputs.extend([None, position].map(|newest| Input::Heartbeat { rank, identity, newest }));
        inputs.extend([None, Some(Sequence(0))].map(|highest| Input::Overflowed { rank, highest }));
        inputs.extend(sources.map(|source| Input::Discovered { rank, source }));
        inputs.extend(parts.map(|part| {
            let ask = AskId(1 << 63);
            Input::Reply(Reply { ask, rank, part })
        }));
        inputs
    }

    #[test]
    fn what_is_written_is_read_back() {
        for input in inputs() {
            let bytes = written(Told::Input(&input));
            match Parts::new(&bytes).done(&hasher()) {
                Ok(Done::Input(read)) => assert_eq!(format!("{read:?}"), format!("{input:?}")),
                other => panic!("{input:?} became {other:?}"),
            }
            // Every byte counts: what is cut is noticed, and what is too long as well.
            assert!(
                Parts::new(&bytes[..bytes.len() - 1]).done(&hasher()).is_err(),
                "{input:?}"
            );
            assert!(
                Parts::new(&[&bytes[..], &[0]].concat()).done(&hasher()).is_err(),
                "{input:?}"
            );
        }
        let bytes = written(Told::Maintain(5000));
        assert!(matches!(Parts::new(&bytes).done(&hasher()), Ok(Done::Maintain(5000))));
    }

    proptest! {
        #[test]
        fn numbers_are_read_back(number: u64) {
            let mut out = Vec::new();
            put_number(&mut out, number);
            prop_assert_eq!(Parts::new(&out).number(), Ok(number));
        }

        #[test]
        fn no_bytes_do_harm(bytes in proptest::collection::vec(any::<u8>(), 0..200), tag in 0..20_u8) {
            let _ = Parts::new(&bytes).done(&hasher());
            let tagged = [&[tag][..], &bytes].concat();
            let _ = Parts::new(&tagged).done(&hasher());
        }
    }
}
