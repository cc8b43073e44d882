//! How long does a decision take?

mod ours;
mod traffic;

use std::hint::black_box;
use std::time::Instant;

use crate::measure::{clock_ns, p50_p99};
use crate::rng::Rng;
use ours::Ours;
use traffic::Traffic;

/// Quick look.
pub fn look() {
    let clock = clock_ns();
    for (ranks, tokens) in [(8, 4096), (64, 4096), (512, 256), (512, 4096), (512, 16384), (4096, 4096)] {
        let traffic = Traffic::new(ranks, tokens, &mut Rng::new(3));
        let ours = Ours::new(&traffic, &std::env::args().nth(2).unwrap_or("time".to_owned()));
        let requests = ours.requests(&traffic);
        let mut side = ours.side();
        let mut best = [(f64::MAX, 0.0); 3];
        for _ in 0..40 {
            let mut samples = [Vec::new(), Vec::new(), Vec::new()];
            for _ in 0..4 {
                for (request, asked) in requests.iter().zip(&traffic.asked) {
                    let start = Instant::now();
                    black_box(ours.state.lock().unwrap().decide(request));
                    samples[0].push(start.elapsed().as_nanos() as u64);
                    let start = Instant::now();
                    black_box(ours.state.lock().unwrap().decide_book_free(request));
                    samples[1].push(start.elapsed().as_nanos() as u64);
                    let start = Instant::now();
                    black_box(ours.whole(&mut side, request, &traffic.prompts[*asked]));
                    samples[2].push(start.elapsed().as_nanos() as u64);
                }
            }
            for (best, samples) in best.iter_mut().zip(&mut samples) {
                let now = p50_p99(samples, clock);
                if now.0 < best.0 {
                    *best = now;
                }
            }
        }
        println!("{ranks} ranks {tokens} tokens: decide {:?} all {:?} whole {:?}", best[0], best[1], best[2]);
    }
}
