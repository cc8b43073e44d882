//! How do lookups fare on several threads, and beside a writer?

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crate::contender::{Contender, Form, Probe};
use crate::measure::{clock_ns, draw, p50_p99};
use crate::rng::Rng;

/// What a reader and a writer achieved beside each other.
pub struct Beside {
    /// Of single lookups with keys given, in ns.
    pub p50: f64,
    /// See `p50`.
    pub p99: f64,
    /// Blocks stored and removed, in millions per second.
    pub writes: f64,
    /// How many lookups were made.
    pub lookups: usize,
    /// How many of their answers were not of one instant.
    pub unsettled: u64,
}

/// Millions of lookups per second with this many threads, keys given.
pub fn throughput(contender: &dyn Contender, threads: usize, places: &Range<usize>, each: usize, rng: &mut Rng) -> f64 {
    let mut probes: Vec<_> = (0..threads)
        .map(|_| (contender.probe(), draw(places, each, rng)))
        .collect();
    let start = Instant::now();
    std::thread::scope(|scope| {
        for (probe, places) in &mut probes {
            scope.spawn(|| probe.batch(Form::Keys, places));
        }
    });
    (threads * each) as f64 / start.elapsed().as_secs_f64() / 1e6
}

/// Which lookups beside a writer count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// As many as there are requests in the order, the same for every contender. Of all until the writer is done, a slow writer's reader makes more,
    /// and a smaller share of them comes to a request for the first time, when everything is far.
    Once,
    /// All: the index fills while they are made, so that the first are not like the last.
    All,
}

/// Looks up in this order, again and again, on one thread until what was prepared has been applied on another.
pub fn beside_writer(contender: &mut dyn Contender, block_ops: usize, order: &[u32], counted: Counted) -> Beside {
    let mut probe = contender.probe();
    let done = AtomicBool::new(false);
    let mut samples = Vec::with_capacity(1 << 20);
    let took = std::thread::scope(|scope| {
        let reader = scope.spawn(|| read_until(&done, probe.as_mut(), order, &mut samples));
        let took = contender.apply();
        done.store(true, Ordering::Release);
        assert!(reader.join().is_ok(), "the reader ended well");
        took
    });
    let lookups = samples.len();
    if counted == Counted::Once {
        samples.truncate(order.len());
    }
    let (p50, p99) = p50_p99(&mut samples, clock_ns());
    Beside {
        p50,
        p99,
        writes: block_ops as f64 / took.as_secs_f64() / 1e6,
        lookups,
        unsettled: probe.unsettled(),
    }
}

fn read_until(done: &AtomicBool, probe: &mut dyn Probe, order: &[u32], samples: &mut Vec<u64>) {
    for places in order.chunks(32).cycle() {
        probe.each(Form::Keys, places, samples);
        if done.load(Ordering::Acquire) {
            return;
        }
    }
}
