//! How is each thing laid out? Writing and reading of bodies; all numbers are little-endian.

use homing_domain::{
    AdapterName, BlockKey, CacheGroup, CacheSalt, ClearScope, ContentHash, Digest, KvBatch, KvChange, Label, Listed,
    ListedParent, Removed, Sequence, Stored, StoredBlock, Tier,
};

use super::{FrameError, Heartbeat, Position, SnapshotEnd, SnapshotHeader};

pub(super) const BATCH: u8 = 1;
pub(super) const HEARTBEAT: u8 = 2;
pub(super) const END_OF_REPLAY: u8 = 3;
pub(super) const HEADER: u8 = 4;
pub(super) const ITEMS: u8 = 5;
pub(super) const END: u8 = 6;

const STORED: u8 = 1;
const REMOVED: u8 = 2;
const CLEARED: u8 = 3;
const HAS_PARENT: u8 = 1;
const HAS_ADAPTER: u8 = 2;
const HAS_SALT: u8 = 4;
const ONE_TIER: u8 = 1;

const ROOT: u8 = 0;
const LABEL: u8 = 1;
const KEY: u8 = 2;
/// The item goes on with the one before it.
const CONTINUED: u8 = 3;

const COMPLETE: u8 = 1;
const TRUNCATED: u8 = 2;
const ITEMS_KNOWN: u8 = 4;

/// The bytes before the blocks of a change, without names.
const CHANGE_HEAD: usize = 8;
/// The bytes of a label and a content hash.
pub(super) const BLOCK: usize = 16;

pub(super) fn put_u32(out: &mut Vec<u8>, number: u32) {
    out.extend_from_slice(&number.to_le_bytes());
}

pub(super) fn put_u64(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(&number.to_le_bytes());
}

fn put_optional(out: &mut Vec<u8>, number: Option<u64>) {
    out.push(u8::from(number.is_some()));
    put_u64(out, number.unwrap_or(0));
}

/// A count that must fit; a frame that would be so long is refused before it is sent.
fn put_count(out: &mut Vec<u8>, count: usize) {
    put_u32(out, u32::try_from(count).unwrap_or(u32::MAX));
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    put_count(out, text.len());
    out.extend_from_slice(text.as_bytes());
}

fn put_blocks(out: &mut Vec<u8>, blocks: &[StoredBlock]) {
    for block in blocks {
        put_u64(out, block.label.get());
        put_u64(out, block.content.0);
    }
}

pub(super) fn put_batch(out: &mut Vec<u8>, batch: &KvBatch) {
    put_u64(out, batch.sequence.0);
    put_u64(out, batch.digest.0);
    put_optional(out, batch.sent_ms);
    put_count(out, batch.changes.len());
    for change in &batch.changes {
        put_change(out, change);
    }
}

fn put_change(out: &mut Vec<u8>, change: &KvChange) {
    match change {
        KvChange::Stored(stored) => {
            let flag = |there: bool, flag: u8| if there { flag } else { 0 };
            let flags = flag(stored.parent.is_some(), HAS_PARENT)
                | flag(stored.adapter.is_some(), HAS_ADAPTER)
                | flag(stored.salt.is_some(), HAS_SALT);
            out.extend([STORED, stored.tier as u8, stored.group.0, flags]);
            put_count(out, stored.blocks.len());
            if let Some(parent) = stored.parent {
                put_u64(out, parent.get());
            }
            if let Some(adapter) = &stored.adapter {
                put_text(out, adapter.as_str());
            }
            if let Some(salt) = &stored.salt {
                put_text(out, salt.as_str());
            }
            put_blocks(out, &stored.blocks);
        }
        KvChange::Removed(removed) => {
            out.extend([REMOVED, removed.tier as u8, removed.group.0, 0]);
            put_count(out, removed.labels.len());
            for label in &removed.labels {
                put_u64(out, label.get());
            }
        }
        KvChange::Cleared(scope) => {
            let (tier, flags) = match scope {
                ClearScope::AllTiers => (0, 0),
                ClearScope::Only(tier) => (*tier as u8, ONE_TIER),
            };
            out.extend([CLEARED, tier, 0, flags]);
            put_count(out, 0);
        }
    }
}

pub(super) fn put_heartbeat(out: &mut Vec<u8>, beat: &Heartbeat) {
    put_optional(out, beat.position.map(|position| position.sequence.0));
    put_u64(out, beat.position.map_or(0, |position| position.digest.0));
    put_u64(out, beat.incarnation);
    put_u64(out, beat.epoch);
}

pub(super) fn put_header(out: &mut Vec<u8>, header: &SnapshotHeader) {
    put_heartbeat(out, &header.at);
    let flag = |there: bool, flag: u8| if there { flag } else { 0 };
    out.push(
        flag(header.complete, COMPLETE) | flag(header.truncated, TRUNCATED) | flag(header.items.is_some(), ITEMS_KNOWN),
    );
    put_u64(out, header.items.unwrap_or(0));
}

/// Which piece of an item is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    First,
    Further,
}

pub(super) fn put_item(out: &mut Vec<u8>, item: &Listed, piece: Piece, blocks: &[StoredBlock]) {
    let (tag, parent) = match (piece, item.parent) {
        (Piece::Further, _) => (CONTINUED, None),
        (Piece::First, ListedParent::Root) => (ROOT, None),
        (Piece::First, ListedParent::Label(label)) => (LABEL, Some(label.get())),
        (Piece::First, ListedParent::Key(key)) => (KEY, Some(key.0)),
    };
    out.extend([tag, item.tier as u8, item.group.0, 0]);
    put_u32(out, item.copies);
    put_count(out, blocks.len());
    if let Some(parent) = parent {
        put_u64(out, parent);
    }
    put_blocks(out, blocks);
}

pub(super) fn put_end(out: &mut Vec<u8>, end: &SnapshotEnd) {
    put_u64(out, end.items);
    put_u64(out, end.blocks);
}

/// Reads bodies. Every count is compared with what is left before room is made for it.
#[derive(Debug)]
pub(super) struct Body<'a> {
    bytes: &'a [u8],
}

const fn malformed(what: &'static str) -> FrameError {
    FrameError::Malformed { what }
}

impl<'a> Body<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    pub(super) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.bytes)
    }

    pub(super) fn finish(self) -> Result<(), FrameError> {
        if self.bytes.is_empty() {
            Ok(())
        } else {
            Err(malformed("it is longer than what it says"))
        }
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], FrameError> {
        let (taken, rest) = self
            .bytes
            .split_at_checked(length)
            .ok_or(malformed("it is shorter than what it says"))?;
        self.bytes = rest;
        Ok(taken)
    }

    fn array<const LENGTH: usize>(&mut self) -> Result<[u8; LENGTH], FrameError> {
        let (taken, rest) = self
            .bytes
            .split_first_chunk()
            .ok_or(malformed("it is shorter than what it says"))?;
        self.bytes = rest;
        Ok(*taken)
    }

    pub(super) fn u8(&mut self) -> Result<u8, FrameError> {
        self.array().map(|[byte]| byte)
    }

    pub(super) fn u32(&mut self) -> Result<u32, FrameError> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, FrameError> {
        self.array().map(u64::from_le_bytes)
    }

    fn optional(&mut self) -> Result<Option<u64>, FrameError> {
        let there = self.u8()?;
        let number = self.u64()?;
        match there {
            0 => Ok(None),
            1 => Ok(Some(number)),
            _ => Err(malformed("a presence that is neither 0 nor 1")),
        }
    }

    /// A count of things of at least `size` bytes, all of which must be there.
    fn count(&mut self, size: usize) -> Result<usize, FrameError> {
        let count = self.u32()? as usize;
        self.has(count, size)
    }

    fn has(&self, count: usize, size: usize) -> Result<usize, FrameError> {
        if count.checked_mul(size).is_none_or(|bytes| bytes > self.bytes.len()) {
            return Err(malformed("a count beyond its end"));
        }
        Ok(count)
    }

    fn tier(&mut self) -> Result<Tier, FrameError> {
        let tier = usize::from(self.u8()?);
        Tier::ALL.get(tier).copied().ok_or(malformed("an unknown tier"))
    }

    fn text(&mut self) -> Result<&'a str, FrameError> {
        let length = self.count(1)?;
        str::from_utf8(self.take(length)?).map_err(|_| malformed("a name that is no text"))
    }

    fn blocks(&mut self, count: usize) -> Result<Vec<StoredBlock>, FrameError> {
        let count = self.has(count, BLOCK)?;
        let (blocks, _) = self.take(count * BLOCK)?.as_chunks::<BLOCK>();
        Ok(blocks.iter().map(block).collect())
    }

    pub(super) fn batch(&mut self) -> Result<KvBatch, FrameError> {
        let sequence = Sequence(self.u64()?);
        let digest = Digest(self.u64()?);
        let sent_ms = self.optional()?;
        let count = self.count(CHANGE_HEAD)?;
        let mut changes = Vec::with_capacity(count);
        for _ in 0..count {
            changes.push(self.change()?);
        }
        Ok(KvBatch {
            sequence,
            digest,
            sent_ms,
            changes,
        })
    }

    fn change(&mut self) -> Result<KvChange, FrameError> {
        let tag = self.u8()?;
        let tier = self.tier()?;
        let group = CacheGroup(self.u8()?);
        let flags = self.u8()?;
        let count = self.u32()? as usize;
        match tag {
            STORED if flags <= (HAS_PARENT | HAS_ADAPTER | HAS_SALT) => {
                let has = |flag: u8| (flags & flag != 0).then_some(());
                let parent = has(HAS_PARENT).map(|()| self.u64()).transpose()?;
                let adapter = has(HAS_ADAPTER).map(|()| self.text()).transpose()?;
                let salt = has(HAS_SALT).map(|()| self.text()).transpose()?;
                Ok(KvChange::Stored(Stored {
                    parent: parent.map(Label::new),
                    blocks: self.blocks(count)?,
                    tier,
                    group,
                    adapter: adapter.map(AdapterName::new),
                    salt: salt.map(CacheSalt::new),
                }))
            }
            REMOVED if flags == 0 => {
                let count = self.has(count, 8)?;
                let (labels, _) = self.take(count * 8)?.as_chunks::<8>();
                let labels = labels.iter().map(|&label| Label::new(u64::from_le_bytes(label)));
                Ok(KvChange::Removed(Removed {
                    labels: labels.collect(),
                    tier,
                    group,
                }))
            }
            CLEARED if flags == 0 && count == 0 => Ok(KvChange::Cleared(ClearScope::AllTiers)),
            CLEARED if flags == ONE_TIER && count == 0 => Ok(KvChange::Cleared(ClearScope::Only(tier))),
            _ => Err(malformed("an unknown change")),
        }
    }

    pub(super) fn heartbeat(&mut self) -> Result<Heartbeat, FrameError> {
        let sequence = self.optional()?;
        let digest = Digest(self.u64()?);
        Ok(Heartbeat {
            position: sequence.map(|sequence| Position {
                sequence: Sequence(sequence),
                digest,
            }),
            incarnation: self.u64()?,
            epoch: self.u64()?,
        })
    }

    pub(super) fn header(&mut self) -> Result<SnapshotHeader, FrameError> {
        let at = self.heartbeat()?;
        let flags = self.u8()?;
        let items = self.u64()?;
        if flags > (COMPLETE | TRUNCATED | ITEMS_KNOWN) {
            return Err(malformed("an unknown flag of a list"));
        }
        Ok(SnapshotHeader {
            at,
            complete: flags & COMPLETE != 0,
            truncated: flags & TRUNCATED != 0,
            items: (flags & ITEMS_KNOWN != 0).then_some(items),
        })
    }

    /// The next item of a chunk; `None` at its end. `last` is the last block of the item before, and is moved on.
    pub(super) fn item(&mut self, last: &mut Option<Label>) -> Result<Option<(Listed, Piece)>, FrameError> {
        if self.bytes.is_empty() {
            return Ok(None);
        }
        let tag = self.u8()?;
        let tier = self.tier()?;
        let group = CacheGroup(self.u8()?);
        self.u8()?;
        let copies = self.u32()?;
        let count = self.u32()? as usize;
        let (parent, piece) = match tag {
            ROOT => (ListedParent::Root, Piece::First),
            LABEL => (ListedParent::Label(Label::new(self.u64()?)), Piece::First),
            KEY => (ListedParent::Key(BlockKey(self.u64()?)), Piece::First),
            CONTINUED => {
                let before = last.ok_or(malformed("an item that goes on with nothing"))?;
                (ListedParent::Label(before), Piece::Further)
            }
            _ => return Err(malformed("an unknown parent of an item")),
        };
        let blocks = self.blocks(count)?;
        *last = blocks.last().map(|block| block.label);
        let item = Listed {
            parent,
            tier,
            group,
            copies,
            blocks,
        };
        Ok(Some((item, piece)))
    }

    pub(super) fn end(&mut self) -> Result<SnapshotEnd, FrameError> {
        Ok(SnapshotEnd {
            items: self.u64()?,
            blocks: self.u64()?,
        })
    }
}

fn block(bytes: &[u8; BLOCK]) -> StoredBlock {
    let half = |from: usize| u64::from_le_bytes(std::array::from_fn(|byte| bytes[from + byte]));
    StoredBlock {
        label: Label::new(half(0)),
        content: ContentHash(half(8)),
    }
}
