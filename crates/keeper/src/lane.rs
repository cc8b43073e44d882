//! Who decodes and hashes? Threads, each with a bounded queue; a rank stays with one.

use std::collections::HashMap;
use std::thread;

use bytes::Bytes;
use homing_domain::{Digest, DpRank, RankId, Sequence};
use homing_feed::{AskId, Identity, Input, Part, Reply};
use homing_telemetry::Metrics;
use homing_wire::{Decoded, Decoder, DecoderConfig};
use std::sync::Arc;
use tokio::sync::mpsc;

use crate::flow::{LaneQueue, Room};
use crate::source::Trouble;
use crate::writer::Order;

/// How many lanes, and how long.
#[derive(Clone, Copy, Debug)]
pub struct LanesConfig {
    /// Threads.
    pub threads: usize,
    /// What waits in front of each at most.
    pub bound: usize,
    /// Bytes of undecoded batches that are between the sockets of each and the index at most.
    pub bytes: u64,
}

/// All lanes of a process.
#[derive(Clone, Debug)]
pub struct Lanes {
    queues: Vec<LaneQueue>,
}

/// What goes through a lane.
#[derive(Debug)]
pub(crate) enum Parcel {
    /// From now on this rank's parcels come.
    Join {
        rank: RankId,
        decoder: Option<DecoderConfig>,
        writer: mpsc::Sender<Order>,
        trouble: Trouble,
    },
    /// No more of them.
    Leave(RankId),
    /// What its source says that needs no decoding.
    Input { rank: RankId, input: Input, room: Room },
    /// A live batch as the engine wrote it.
    Live {
        rank: RankId,
        sequence: Sequence,
        payload: Bytes,
        room: Room,
    },
    /// All that an engine which is polled had to say.
    Polled { rank: RankId, json: Bytes, room: Room },
    /// A batch of a replay as the engine wrote it.
    Replayed {
        rank: RankId,
        ask: AskId,
        sequence: Sequence,
        payload: Bytes,
        room: Room,
    },
}

impl Lanes {
    /// Starts the threads. They end when the last of the lanes' owners is gone.
    pub fn start(config: LanesConfig, metrics: &Arc<Metrics>) -> std::io::Result<Self> {
        let start = |number| {
            let (queue, parcels) = mpsc::channel(config.bound.max(1));
            let (metrics, queue_metrics) = (metrics.clone(), metrics.clone());
            let lane = Lane {
                listeners: HashMap::new(),
                metrics,
            };
            thread::Builder::new()
                .name(format!("lane-{number}"))
                .spawn(move || lane.run(parcels))?;
            Ok(LaneQueue::new(queue, config.bytes, queue_metrics))
        };
        let queues = (0..config.threads.max(1)).map(start).collect::<std::io::Result<_>>()?;
        Ok(Self { queues })
    }

    /// The lane of a rank: always the same.
    pub(crate) fn of(&self, rank: RankId) -> &LaneQueue {
        let number = rank.worker.0 as usize + rank.dp.0 as usize;
        &self.queues[number % self.queues.len()]
    }
}

struct Lane {
    listeners: HashMap<RankId, Listener>,
    metrics: Arc<Metrics>,
}

/// What a lane knows of one rank.
struct Listener {
    decoder: Option<Decoder>,
    writer: mpsc::Sender<Order>,
    trouble: Trouble,
    /// Whether what it said last was wrong.
    is_troubled: bool,
    /// The data-parallel rank that its stream says it is of.
    dp: Option<DpRank>,
    /// The last batch of an engine that is polled.
    newest: Option<(Sequence, Digest)>,
}

impl Lane {
    fn run(mut self, mut parcels: mpsc::Receiver<Parcel>) {
        while let Some(parcel) = parcels.blocking_recv() {
            self.handle(parcel);
        }
    }

    fn handle(&mut self, parcel: Parcel) {
        match parcel {
            Parcel::Join {
                rank,
                decoder,
                writer,
                trouble,
            } => {
                let listener = Listener {
                    decoder: decoder.map(Decoder::new),
                    writer,
                    trouble,
                    is_troubled: false,
                    dp: None,
                    newest: None,
                };
                self.listeners.insert(rank, listener);
            }
            Parcel::Leave(rank) => {
                if let Some(listener) = self.listeners.remove(&rank) {
                    listener.pass(Input::Left(rank), Room::default());
                }
            }
            Parcel::Input { rank, input, room } => {
                if let Some(listener) = self.listeners.get(&rank) {
                    listener.pass(input, room);
                }
            }
            Parcel::Live {
                rank,
                sequence,
                payload,
                room,
            } => {
                let Some(listener) = self.listeners.get_mut(&rank) else {
                    return;
                };
                match listener.decode(sequence, &payload, &self.metrics) {
                    Read::Batch(batch) => listener.pass(Input::Heard { rank, batch }, room),
                    Read::Foreign => {}
                    // It cannot be read, and so it is lost: what it said is missing from the view.
                    Read::Broken => {
                        let highest = Some(sequence);
                        listener.pass(Input::Overflowed { rank, highest }, room);
                    }
                }
            }
            // Its room is given back when all of it has been passed on.
            Parcel::Polled {
                rank,
                json,
                room: _room,
            } => {
                if let Some(listener) = self.listeners.get_mut(&rank) {
                    listener.polled(rank, &json, &self.metrics);
                }
            }
            Parcel::Replayed {
                rank,
                ask,
                sequence,
                payload,
                room,
            } => {
                let Some(listener) = self.listeners.get_mut(&rank) else {
                    return;
                };
                let part = match listener.decode(sequence, &payload, &self.metrics) {
                    Read::Batch(batch) => Part::Batch(batch),
                    Read::Foreign | Read::Broken => Part::Failed,
                };
                listener.pass(Input::Reply(Reply { ask, rank, part }), room);
            }
        }
    }
}

/// What became of a message.
enum Read {
    Batch(homing_domain::KvBatch),
    /// It is of another data-parallel rank.
    Foreign,
    /// It makes no sense.
    Broken,
}

impl Listener {
    /// Waits for room: the writer is never waited on by anything that it waits for.
    fn pass(&self, input: Input, room: Room) {
        let _ = self.writer.blocking_send(Order::Received { input, room });
    }

    fn decode(&mut self, sequence: Sequence, payload: &[u8], metrics: &Metrics) -> Read {
        let Some(decoder) = &mut self.decoder else {
            return Read::Broken;
        };
        let read = match decoder.decode(sequence, payload) {
            Ok(read) => read,
            Err(error) => {
                metrics.wire.broken_batches.add(1);
                self.complain(format!("batch {sequence} cannot be read: {error}"));
                return Read::Broken;
            }
        };
        crate::tally::decoded(&read, metrics);
        self.check(read)
    }

    /// Every answer, an empty one too, shows that the engine is there and has nothing more to say.
    fn polled(&mut self, rank: RankId, json: &[u8], metrics: &Metrics) {
        let Some(decoder) = &mut self.decoder else { return };
        let all = match decoder.decode_trtllm(json) {
            Ok(all) => all,
            Err(error) => {
                metrics.wire.broken_batches.add(1);
                self.complain(format!("an answer of the engine cannot be read: {error}"));
                self.pass(Input::Overflowed { rank, highest: None }, Room::default());
                return;
            }
        };
        for decoded in all {
            crate::tally::decoded(&decoded, metrics);
            if let Read::Batch(batch) = self.check(decoded) {
                self.newest = Some((batch.sequence, batch.digest));
                self.pass(Input::Heard { rank, batch }, Room::default());
            }
        }
        let (identity, newest) = (Identity::default(), self.newest);
        self.pass(Input::Heartbeat { rank, identity, newest }, Room::default());
    }

    fn check(&mut self, decoded: Decoded) -> Read {
        if let (Some(known), Some(said)) = (self.dp, decoded.dp)
            && known != said
        {
            self.complain(format!(
                "batches of data-parallel ranks {} and {} come on one port: give each rank a port of its own (ranks=N \
                 counts ports up from the first)",
                known.0, said.0
            ));
            return Read::Foreign;
        }
        self.dp = self.dp.or(decoded.dp);
        match decoded.refused {
            Some(refusal) => self.complain(refusal.to_string()),
            None if self.is_troubled => {
                self.is_troubled = false;
                self.trouble.set(None);
            }
            None => {}
        }
        Read::Batch(decoded.batch)
    }

    /// What is wrong with what it says; until it says something that is right.
    fn complain(&mut self, words: String) {
        self.is_troubled = true;
        self.trouble.set(Some(words));
    }
}
