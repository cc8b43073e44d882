//! What does a trace say of itself? Reads one from the standard input:
//!
//!     cargo run --release -p homing-trace --example summary < trace.jsonl

use std::io::stdin;

use homing_domain::BlockSize;
use homing_profile::Millis;
use homing_trace::analyse::{Accesses, Summary};
use homing_trace::{ReadOptions, Reader, Request, TraceError};

fn main() -> Result<(), TraceError> {
    let options = ReadOptions::new("standard input");
    let block = options.block;
    let trace: Vec<Request> = Reader::open(stdin().lock(), options)?.collect::<Result<_, _>>()?;
    let opened = || trace.iter().cloned().map(Ok);
    let summary = Summary::of(opened(), block, |_| Millis::ZERO)?;
    println!("{summary:#?}");
    println!(
        "blocks of {block} that came before: {:.2}%",
        summary.cached_share_of_blocks() * 1e2
    );
    for size in [Some(block), BlockSize::new(16)].into_iter().flatten() {
        let accesses = Accesses::of(opened(), size)?;
        let distinct = accesses.distinct_blocks();
        println!("{size}: {distinct} distinct");
        for part in [1, 2, 4, 8, 16, 32, 64] {
            let share = accesses.pooled(distinct / part).cached_share();
            println!(
                "  1/{part} of them kept as well as can be: {:.2}% of prompt tokens",
                share * 1e2
            );
        }
    }
    Ok(())
}
