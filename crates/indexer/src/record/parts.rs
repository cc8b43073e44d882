//! How is an entry read?

use homing_domain::{
    BlockKey, CacheGroup, ContentHash, Digest, DpRank, KeyHasher, KvBatch, Label, Listed, ListedParent, RankId,
    Sequence, StoredBlock, Tier, WorkerId,
};
use homing_feed::{AskId, ClearReach, Coverage, Identity, Input, ListHead, Part, Recovery, Reply, Source};
use homing_index::Copies;
use homing_wire::Frame;
use homing_wire::frame::decode;

use super::entry::{
    CONNECTED, DISCONNECTED, DISCOVERED, DOUBTED, Done, END, FAILED, GONE, HEARD, HEARTBEAT, LEFT, LIST_END, LIST_HEAD,
    LIST_ITEMS, MAINTAIN, OVERFLOWED, REPLAY_END, REPLY_BATCH, TICK, WORKER_LEFT,
};

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
            DOUBTED => Input::Doubted(rank),
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
