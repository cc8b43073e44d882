//! How is an entry written?

use homing_domain::{Digest, Listed, ListedParent, RankId, Sequence};
use homing_feed::{ClearReach, Coverage, Identity, Input, Part, Recovery, Reply, Source};
use homing_index::Copies;
use homing_keeper::Told;
use homing_wire::frame::{FrameError, FrameWriter};

use super::entry::{
    CONNECTED, DISCONNECTED, DISCOVERED, DOUBTED, END, FAILED, GONE, HEARD, HEARTBEAT, LEFT, LIST_END, LIST_HEAD,
    LIST_ITEMS, MAINTAIN, OVERFLOWED, REPLAY_END, REPLY_BATCH, TICK, WORKER_LEFT,
};

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
        Input::Doubted(rank) => tagged(out, DOUBTED, *rank),
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
