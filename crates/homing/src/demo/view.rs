//! What is shown while the demo runs? On a terminal a few lines that are drawn again and again; else one plain line each second.
//!
//! **Invariant:** without a terminal nothing moves the cursor; with one, it is left as it was found.

use std::io::{self, Write as _};
use std::time::{Duration, Instant};

use super::board::Now;
use super::fleet::Counters;
use super::phase::Phase;
use super::times::Times;
use crate::show::{Style, commas, millis, percent};

const BAR: usize = 12;
/// A bar of running answers is full at this number, or at more where there are more.
const FULL: u32 = 12;
const REDRAW: Duration = Duration::from_millis(200);
const LINE: Duration = Duration::from_secs(1);
/// Lines are cut at the edge, so that each is one; and back.
const CUT: &str = "\x1b[?25l\x1b[?7l";
const WRAP: &str = "\x1b[?7h\x1b[?25h";

/// Who looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Somebody at a terminal.
    Terminal,
    /// Whoever reads lines.
    Lines,
    /// Nobody, until the end.
    Nobody,
}

/// What the demo looks like at a moment.
#[derive(Debug)]
pub struct Frame {
    pub phase: Phase,
    pub elapsed: Duration,
    pub left: Duration,
    pub workers: Vec<Now>,
    pub waiting: u32,
    pub completed: u64,
    pub failed: u64,
    pub cached_share: f64,
    pub first: Option<Times>,
    pub counters: Counters,
}

/// Where it is shown.
#[derive(Debug)]
pub struct Screen {
    mode: Mode,
    style: Style,
    /// Lines that will be drawn over.
    drawn: usize,
    /// When the last line was written.
    written: Option<Instant>,
}

impl Screen {
    /// Nothing is on it yet.
    pub fn new(mode: Mode, style: Style) -> Self {
        Self {
            mode,
            style,
            drawn: 0,
            written: None,
        }
    }

    /// How to write on it.
    pub fn style(&self) -> Style {
        self.style
    }

    /// How long to wait before the next frame.
    pub fn pause(&self) -> Duration {
        match self.mode {
            Mode::Terminal => REDRAW,
            Mode::Lines | Mode::Nobody => LINE / 4,
        }
    }

    /// Shows something that stays.
    pub fn say(&mut self, text: &str) -> anyhow::Result<()> {
        self.clear()?;
        if self.mode != Mode::Nobody {
            put(text)?;
        }
        Ok(())
    }

    /// Shows a moment, in place of the one before.
    pub fn frame(&mut self, frame: &Frame) -> anyhow::Result<()> {
        match self.mode {
            Mode::Nobody => {}
            Mode::Lines => {
                if self.written.is_none_or(|at| at.elapsed() >= LINE) {
                    self.written = Some(Instant::now());
                    put(&format!("{}\n", line(frame)))?;
                }
            }
            Mode::Terminal => {
                let lines = lines(frame, self.style);
                let text: String = lines.iter().flat_map(|line| [line.as_str(), "\n"]).collect();
                put(&format!("{CUT}{}{text}{WRAP}", over(self.drawn)))?;
                self.drawn = lines.len();
            }
        }
        Ok(())
    }

    /// Takes away what does not stay.
    pub fn clear(&mut self) -> anyhow::Result<()> {
        if self.drawn > 0 {
            put(&over(self.drawn))?;
            self.drawn = 0;
        }
        Ok(())
    }
}

/// Goes back over so many lines, and wipes them.
fn over(lines: usize) -> String {
    match lines {
        0 => String::new(),
        lines => format!("\x1b[{lines}A\x1b[J"),
    }
}

fn put(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// A moment in one line, for whoever reads lines.
fn line(frame: &Frame) -> String {
    let Counters {
        events,
        repairs,
        retried,
        migrated,
        ..
    } = frame.counters;
    let first = frame.first.map_or_else(
        || "no first token yet".to_owned(),
        |first| format!("first token p50 {} p99 {}", millis(first.p50), millis(first.p99)),
    );
    format!(
        "{:<13} {:>3} s  answered {}, failed {}, from cache {}, {first}, events {events}, repairs {repairs}, retries {retried}, \
         moved {migrated}",
        frame.phase.name(),
        frame.elapsed.as_secs(),
        frame.completed,
        frame.failed,
        percent(frame.cached_share),
    )
}

/// A moment in a few lines, for somebody at a terminal.
fn lines(frame: &Frame, style: Style) -> Vec<String> {
    let full = frame
        .workers
        .iter()
        .map(|worker| worker.running)
        .max()
        .unwrap_or(0)
        .max(FULL);
    let mut lines: Vec<String> = (0..)
        .zip(&frame.workers)
        .map(|(number, now)| worker(number, now, full, style))
        .collect();
    let failed = format!("{} failed", frame.failed);
    let failed = if frame.failed > 0 { style.red(&failed) } else { failed };
    let first = frame.first.map_or_else(String::new, |first| {
        format!(
            ", first token p50 {} p99 {}",
            style.bold(&millis(first.p50)),
            style.bold(&millis(first.p99))
        )
    });
    lines.push(format!(
        "     {} answered, {failed}, {} waiting; {} of prompts from cache{first}",
        style.bold(&commas(frame.completed)),
        frame.waiting,
        style.bold(&percent(frame.cached_share)),
    ));
    let counters = frame.counters;
    let left = match frame.left.as_secs_f64().ceil() as u64 {
        0 => "the last answers".to_owned(),
        seconds => format!("{seconds} s left"),
    };
    lines.push(style.dim(&format!(
        "     {} cache events, {} repairs; {} retries, {} answers moved; {left}",
        commas(counters.events),
        counters.repairs,
        counters.retried,
        counters.migrated
    )));
    lines
}

fn worker(number: usize, now: &Now, full: u32, style: Style) -> String {
    let name = format!("     worker {number}");
    if !now.alive {
        return format!("{name}  {}", style.red("killed"));
    }
    let running = style.bar(f64::from(now.running) / f64::from(full), BAR);
    let recent = match now.recent {
        None => style.dim("idle"),
        Some((share, first)) => format!(
            "{} {:>4} cached  first token {:>7}",
            style.bar(share, BAR),
            format!("{:.0} %", share * 100.0),
            millis(first.as_secs_f64() * 1e3)
        ),
    };
    format!("{name}  {running} {:>2} running  {recent}", now.running)
}

#[cfg(test)]
mod tests {
    use super::*;
    use homing_config::Colour;

    fn frame() -> Frame {
        let worker = |alive, running, recent| Now { alive, running, recent };
        Frame {
            phase: Phase::Killed,
            elapsed: Duration::from_millis(3_900),
            left: Duration::from_millis(1_200),
            workers: vec![
                worker(true, 6, Some((0.75, Duration::from_millis(41)))),
                worker(false, 0, None),
                worker(true, 0, None),
            ],
            waiting: 2,
            completed: 1_234,
            failed: 0,
            cached_share: 0.813,
            first: Times::of(&[Duration::from_millis(40), Duration::from_millis(90)]),
            counters: Counters {
                events: 5_000,
                repairs: 3,
                retried: 1,
                migrated: 9,
                right: 10,
                predicted: 11,
            },
        }
    }

    #[test]
    fn a_moment_is_one_line_for_whoever_reads_lines() {
        assert_eq!(
            line(&frame()),
            "worker-killed   3 s  answered 1234, failed 0, from cache 81.3 %, first token p50 40 ms p99 90 ms, events 5000, \
             repairs 3, retries 1, moved 9"
        );
    }

    #[test]
    fn a_moment_is_a_few_lines_at_a_terminal() {
        let shown = lines(&frame(), Style::of(Colour::Off)).join("\n");
        let expected = "     worker 0  ######......  6 running  #########...  75 % cached  first token   41 ms
     worker 1  killed
     worker 2  ............  0 running  idle
     1,234 answered, 0 failed, 2 waiting; 81.3 % of prompts from cache, first token p50 40 ms p99 90 ms
     5,000 cache events, 3 repairs; 1 retries, 9 answers moved; 2 s left";
        assert_eq!(shown, expected);
    }
}
