//! What does it cost to go through Homing? The same streams directly, through nginx as a plain proxy, and through `homing serve`.
//!
//! Workers are made for this (`upstream`), clients note when each piece came (`client`), proxies are processes whose processor time
//! and memory Linux counts (`proxies`).
//!
//! Contenders take turns in rounds, in an order drawn anew, on requests of their own that are made in the same way; a ratio is the
//! median over rounds. Every answer is checked: all its pieces, or the run fails.

mod client;
mod prompts;
mod proxies;
mod upstream;

use std::error::Error;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Runtime};

use crate::args::{GatewayArgs, GatewayPart};
use crate::lineup::OURS;
use crate::measure::percentile;
use crate::report::{About, Better, Report, section};
use crate::rng::Rng;
use crate::targets::Target;
use client::{Load, Seen};
use prompts::{Conversation, Job, Known, Prompts};
use proxies::{Homing, Proxy, get};
use upstream::{Pace, Place};

/// What goes wrong, in words.
pub type Failure = Box<dyn Error + Send + Sync>;

/// Workers behind each contender.
const WORKERS: usize = 4;
/// Pieces of an answer.
const PIECES: usize = 200;
/// Between two pieces of a stream.
const STEP: Duration = Duration::from_millis(20);
/// What is left of 2,000 tokens when a tenth is new, and how much each of a few turns adds.
const OPENING: usize = 1_600;
const TURN: usize = 200;
const TURNS: usize = 3;
const COLD: usize = 2_000;
const MESSAGE: usize = 100;
/// Long prompts, and how what they cost grows.
const LONG: usize = 100_000;
const LENGTHS: [usize; 3] = [1_000, 10_000, LONG];
const MOST_AT_ONCE: usize = 100;
const FIRST_TIME: &str = "first time";
const MOSTLY_SEEN: &str = "90% seen before";
const LONG_MESSAGE: usize = 500;
const LONG_PIECES: usize = 8;

const NGINX: &str = "nginx";
const DIRECT: &str = "direct";
const IN_TURN: &str = "homing, in turn";

const CPU: &str = "CPU per request, ms";
const APART: &str = "pieces that came apart, share";
const FIRST_P50: &str = "added to the first piece, p50 ms";
const FIRST_P99: &str = "added to the first piece, p99 ms";
const PIECE_P50: &str = "added to each piece, p50 ms";
const PIECE_P99: &str = "added to each piece, p99 ms";
const LONG_CPU: &str = "CPU per request, core-seconds";
const MEMORY: &str = "memory, MiB";
const RIGHT: &str = "predictions of cached tokens that were exact, share";

/// Everything that takes part in a run.
struct Bench {
    /// Workers.
    _workers: Runtime,
    clients: Runtime,
    pace: Arc<Pace>,
    prompts: Prompts,
    /// What clients go directly to.
    direct: Vec<Place>,
    proxies: Vec<Proxy>,
    rng: Rng,
    text: bool,
}

/// Measures, and says what holds.
pub fn run(args: &GatewayArgs, report: &mut Report) -> Result<Vec<Target>, Failure> {
    let limit = rlimit::increase_nofile_limit(u64::MAX)?;
    report.programs.push((NGINX, proxies::nginx_version(&args.nginx)?));
    let mut bench = Bench::new(args)?;
    if args.wants(GatewayPart::Cpu) {
        bench.cpu(args, report)?;
    }
    if args.wants(GatewayPart::Latency) {
        bench.latency(args, report)?;
    }
    if args.wants(GatewayPart::Long) {
        bench.long(args, report)?;
    }
    bench.judged(report)?;
    if args.wants(GatewayPart::Memory) {
        let streams = args.size.pick(5_000, 100);
        if limit < 2 * streams as u64 + 1_000 {
            return Err(format!("{streams} streams need twice as many open files, and {limit} is the limit").into());
        }
        bench.memory(streams, report)?;
    }
    let streams = args.size.pick(5_000, 100);
    Ok(bench.targets(streams, report))
}

impl Bench {
    fn new(args: &GatewayArgs) -> Result<Self, Failure> {
        let runtime = |name: &str| {
            let mut builder = Builder::new_multi_thread();
            builder.worker_threads(1).thread_name(name).enable_all().build()
        };
        let (workers, clients) = (runtime("workers")?, runtime("clients")?);
        let (pace, known) = (Pace::new(STEP), Known::default());
        let prompts = Prompts::new(args.tokenizer.as_deref(), known.clone())?;
        let start = || workers.block_on(upstream::start(WORKERS, &pace, &known));
        let threads = args.threads;
        let program = args.homing.clone().map_or_else(built, Ok)?;
        let homing = Homing {
            program: &program,
            tokenizer: args.tokenizer.as_deref(),
            policy: "time",
            threads,
        };
        let in_turn = Homing {
            policy: "round-robin",
            ..homing
        };
        let proxies = vec![
            Proxy::nginx(&args.nginx, &start()?, threads)?,
            Proxy::homing(OURS, homing, &start()?)?,
            Proxy::homing(IN_TURN, in_turn, &start()?)?,
        ];
        Ok(Self {
            direct: start()?,
            _workers: workers,
            clients,
            pace,
            prompts,
            proxies,
            rng: Rng::new(5),
            text: args.tokenizer.is_some(),
        })
    }

    /// How cases begin: of what prompts are made.
    fn case(&self, rest: &str) -> String {
        let what = if self.text { "chats" } else { "token ids" };
        format!("{what}, {rest}")
    }

    /// Where clients of a contender go.
    fn addresses(&self, proxy: Option<usize>) -> Vec<SocketAddr> {
        match proxy {
            Some(proxy) => vec![self.proxies[proxy].address],
            None => self.direct.iter().map(|place| place.address).collect(),
        }
    }

    fn send(&self, proxy: Option<usize>, users: Vec<Vec<Job>>, pieces: usize) -> Result<Seen, Failure> {
        let within = STEP * pieces as u32;
        let load = Load::new(users, within, pieces);
        self.clients.block_on(load.send(&self.addresses(proxy), &self.pace))
    }

    /// The first turn of each user, and those that follow, of which nine tenths were seen before.
    fn conversations(&mut self, users: usize, turns: usize) -> Result<(Vec<Vec<Job>>, Vec<Vec<Job>>), Failure> {
        let (mut first, mut rest) = (Vec::new(), Vec::new());
        for _ in 0..users {
            let mut conversation = Conversation::default();
            self.prompts.grow(&mut conversation, OPENING, MESSAGE);
            first.push(vec![self.prompts.job(&conversation, 1)?]);
            let mut jobs = Vec::with_capacity(turns);
            for _ in 0..turns {
                self.prompts.grow(&mut conversation, TURN, MESSAGE);
                jobs.push(self.prompts.job(&conversation, PIECES)?);
            }
            rest.push(jobs);
        }
        Ok((first, rest))
    }

    /// Prompts that begin as none before.
    fn cold(&mut self, users: usize, each: usize, tokens: usize, pieces: usize) -> Result<Vec<Vec<Job>>, Failure> {
        let mut all = Vec::new();
        for _ in 0..users {
            let mut jobs = Vec::new();
            for _ in 0..each {
                let mut conversation = Conversation::default();
                self.prompts.grow(&mut conversation, tokens, message(tokens));
                jobs.push(self.prompts.job(&conversation, pieces)?);
            }
            all.push(jobs);
        }
        Ok(all)
    }

    /// Processor time of each proxy for a streamed request.
    fn cpu(&mut self, args: &GatewayArgs, report: &mut Report) -> Result<(), Failure> {
        let users = args.size.pick(128, 4);
        let mut turns: Vec<usize> = (0..self.proxies.len()).collect();
        let mut figures = [(); 2].map(|()| [self.figures(), self.figures()]);
        for round in 0..args.size.pick(args.rounds, 1) {
            self.rng.shuffle(&mut turns);
            for turn in &turns {
                let (first, rest) = self.conversations(users, args.size.pick(TURNS, 1))?;
                let fresh = self.cold(users, 1, COLD, PIECES)?;
                self.send(Some(*turn), first, 1)?;
                for (case, load) in [rest, fresh].into_iter().enumerate() {
                    let (took, apart) = self.timed(*turn, load)?;
                    figures[case][0][*turn].1.push(took);
                    figures[case][1][*turn].1.push(apart);
                }
            }
            let last = |case: usize, figure: usize| -> Vec<(&str, f64)> {
                let all = figures[case][figure].iter();
                all.filter_map(|(name, values)| Some((*name, *values.last()?)))
                    .collect()
            };
            eprintln!(
                "gateway: round {round}, CPU ms per request: {:.2?}, new prompts: {:.2?}",
                last(0, 0),
                last(1, 0)
            );
            eprintln!("gateway: round {round}, pieces apart: {:.2?}", last(0, 1));
        }
        for (case, [cpu, apart]) in [self.warm_case(), self.cold_case()].into_iter().zip(&figures) {
            let (in_turn, others): (Vec<_>, Vec<_>) = cpu.iter().cloned().partition(|(name, _)| *name == IN_TURN);
            report.rounds(about(&case, CPU, Better::Lower), &others);
            report.rounds(
                about(&case, "CPU per request, ms, without looking at prompts", Better::Lower),
                &in_turn,
            );
            report.rounds(about(&case, APART, Better::Higher), apart);
        }
        Ok(())
    }

    fn warm_case(&self) -> String {
        self.case("2,000 tokens, 90% seen before, 200 pieces")
    }

    fn cold_case(&self) -> String {
        self.case("2,000 tokens, none seen before, 200 pieces")
    }

    fn figures(&self) -> Vec<(&'static str, Vec<f64>)> {
        self.proxies.iter().map(|proxy| (proxy.name, Vec::new())).collect()
    }

    /// Milliseconds of a core for each request of a load, and the share of pieces that came by themselves.
    fn timed(&self, proxy: usize, users: Vec<Vec<Job>>) -> Result<(f64, f64), Failure> {
        let before = self.proxies[proxy].busy();
        let seen = self.send(Some(proxy), users, PIECES)?;
        let took = self.proxies[proxy].busy() - before;
        let apart = seen.reads as f64 / (seen.requests * PIECES) as f64;
        Ok((took * 1e3 / seen.requests as f64, apart))
    }

    /// How much later clients get what workers send.
    fn latency(&mut self, args: &GatewayArgs, report: &mut Report) -> Result<(), Failure> {
        let users = args.size.pick(8, 2);
        // Nobody in between, nginx, us.
        let mut turns = [None, Some(0), Some(1)];
        let mut added: [[Vec<f64>; 4]; 3] = Default::default();
        for round in 0..args.size.pick(args.rounds, 1) {
            let mut seen = [[0.0; 4]; 3];
            self.rng.shuffle(&mut turns);
            for turn in turns {
                let (first, rest) = self.conversations(users, args.size.pick(TURNS, 1))?;
                self.send(turn, first, 1)?;
                let mut took = self.send(turn, rest, PIECES)?;
                seen[turn.map_or(0, |proxy| proxy + 1)] = quantiles(&mut took);
            }
            for (place, seen) in seen.iter().enumerate() {
                for (metric, value) in seen.iter().enumerate() {
                    added[place][metric].push(*value);
                }
            }
            eprintln!("gateway: round {round}, ms to the first piece and of each (p50, p99): {seen:.2?}");
        }
        let case = self.latency_case();
        for (metric, name) in [FIRST_P50, FIRST_P99, PIECE_P50, PIECE_P99].into_iter().enumerate() {
            let more = |place: usize| -> Vec<f64> {
                let pairs = added[place][metric].iter().zip(&added[0][metric]);
                pairs.map(|(this, direct)| this - direct).collect()
            };
            let figures = [(OURS, more(2)), (NGINX, more(1))];
            // A ratio of differences that may be next to nothing says little.
            for figure in figures {
                report.rounds(about(&case, name, Better::Lower), &[figure]);
            }
            let name = name.replace("added to", "direct, until");
            report.rounds(
                about(&case, &name, Better::Lower),
                &[(DIRECT, added[0][metric].clone())],
            );
        }
        Ok(())
    }

    fn latency_case(&self) -> String {
        self.case("2,000 tokens, 90% seen before, 8 users")
    }

    /// Processor time for long prompts, and for shorter ones: it must not grow faster than they do.
    fn long(&mut self, args: &GatewayArgs, report: &mut Report) -> Result<(), Failure> {
        let rounds = args.size.pick(args.rounds, 1);
        for tokens in LENGTHS {
            // Linux counts in hundredths of a second, so what takes less is measured many at a time.
            let count = args.size.pick((4 * LONG / tokens).min(MOST_AT_ONCE), 1);
            let (mut first, mut again) = (Vec::new(), Vec::new());
            for _ in 0..rounds {
                let (mut fresh, mut openings, mut grown) = (Vec::new(), Vec::new(), Vec::new());
                for _ in 0..count {
                    fresh.extend(self.cold(1, 1, tokens, LONG_PIECES)?.concat());
                    let mut conversation = Conversation::default();
                    self.prompts.grow(&mut conversation, tokens / 10 * 9, message(tokens));
                    openings.push(self.prompts.job(&conversation, LONG_PIECES)?);
                    self.prompts.grow(&mut conversation, tokens / 10, message(tokens));
                    grown.push(self.prompts.job(&conversation, LONG_PIECES)?);
                }
                first.push(self.each(&fresh)?);
                self.send(Some(1), shared(&openings), LONG_PIECES)?;
                again.push(self.each(&grown)?);
            }
            eprintln!("gateway: core-seconds of {tokens} tokens, first time {first:.4?}, 90% seen {again:.4?}");
            for (seen, values) in [(FIRST_TIME, first), (MOSTLY_SEEN, again)] {
                let case = self.long_case(tokens, seen);
                report.rounds(about(&case, LONG_CPU, Better::Lower), &[(OURS, values)]);
            }
        }
        Ok(())
    }

    fn long_case(&self, tokens: usize, seen: &str) -> String {
        self.case(&format!("{tokens} tokens, {seen}"))
    }

    /// Core-seconds of Homing for each of these requests.
    fn each(&self, jobs: &[Job]) -> Result<f64, Failure> {
        let count = jobs.len().max(1) as f64;
        let before = self.proxies[1].busy();
        self.send(Some(1), shared(jobs), LONG_PIECES)?;
        Ok((self.proxies[1].busy() - before) / count)
    }

    /// What is in memory while so many streams are open.
    fn memory(&mut self, streams: usize, report: &mut Report) -> Result<(), Failure> {
        const PIECES: usize = 20;
        let case = self.memory_case(streams);
        let mut figures = [0.0; 2];
        for (proxy, figure) in figures.iter_mut().enumerate() {
            let users = self.cold(streams, 1, COLD, PIECES)?;
            let before = self.proxies[proxy].memory();
            self.pace.set(Duration::from_millis(200));
            self.pace.hold.send_replace(true);
            let load = Load::new(users, Duration::from_millis(4 * streams as u64), PIECES);
            let open = load.open.clone();
            let (addresses, pace) = (self.addresses(Some(proxy)), self.pace.clone());
            let sending = self.clients.spawn(async move { load.send(&addresses, &pace).await });
            let began = Instant::now();
            let mut peak = 0;
            let mut most = before;
            while !sending.is_finished() {
                let now = open.load(Relaxed);
                peak = peak.max(now);
                most = self.proxies[proxy].memory().max(most);
                if now == streams || began.elapsed() > Duration::from_mins(3) {
                    self.pace.hold.send_replace(false);
                }
                std::thread::sleep(Duration::from_millis(50));
            }
            self.pace.hold.send_replace(false);
            self.clients.block_on(sending)??;
            let mebibytes = |bytes: f64| bytes / f64::from(1 << 20);
            eprintln!(
                "gateway: {}: {peak} streams at once, {:.0} MiB before, {:.0} MiB at most",
                self.proxies[proxy].name,
                mebibytes(before),
                mebibytes(most)
            );
            if peak < streams {
                return Err(format!("only {peak} of {streams} streams were open at once").into());
            }
            *figure = mebibytes(most);
        }
        self.pace.set(STEP);
        for (contender, value) in [(OURS, figures[1]), (NGINX, figures[0])] {
            report.single(about(&case, MEMORY, Better::Lower), contender, value);
        }
        Ok(())
    }

    fn memory_case(&self, streams: usize) -> String {
        self.case(&format!("2,000 tokens, {streams} streams at once"))
    }

    /// How often Homing knew what was cached: a bench in which it does not measures something else.
    fn judged(&self, report: &mut Report) -> Result<(), Failure> {
        let admin = self.proxies[1].admin.ok_or("Homing can be asked")?;
        let page = get(admin, "/admin/fleet")?;
        let body = page.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        let body = body
            .get(body.find('{').unwrap_or(0)..=body.rfind('}').unwrap_or(0))
            .unwrap_or_default();
        let fleet: serde_json::Value = serde_json::from_str(body)?;
        let sum = |key: &str| -> f64 {
            let workers = fleet["workers"].as_array().into_iter().flatten();
            workers.filter_map(|worker| worker["truth"][key].as_f64()).sum()
        };
        let (equal, less, more) = (sum("equal"), sum("less"), sum("more"));
        eprintln!(
            "gateway: predictions equal {equal}, less {less}, more {more}, {}",
            fleet["prompt_counts"]
        );
        let share = equal / (equal + less + more).max(1.0);
        let case = self.case("all requests");
        report.single(about(&case, RIGHT, Better::Higher), OURS, share);
        Ok(())
    }

    fn targets(&self, streams: usize, report: &Report) -> Vec<Target> {
        let find = |case: &str, metric: &str| report.compare(section::GATEWAY, case, metric);
        let mut targets = vec![
            Target::ratio(
                format!("{CPU}: {}, at most 1.5 times nginx's", self.warm_case()),
                find(&self.warm_case(), CPU),
                1.0 / 1.5,
            ),
            Target::limit(
                format!("{FIRST_P50}: {}", self.latency_case()),
                find(&self.latency_case(), FIRST_P50),
                1.0,
            ),
            Target::limit(
                format!("{PIECE_P50}: {}", self.latency_case()),
                find(&self.latency_case(), PIECE_P50),
                1.0,
            ),
        ];
        for (seen, limit) in [(FIRST_TIME, 0.15), (MOSTLY_SEEN, 0.03)] {
            let case = self.long_case(LONG, seen);
            targets.push(Target::limit(
                format!("{LONG_CPU}: {case}"),
                find(&case, LONG_CPU),
                limit,
            ));
        }
        let case = self.memory_case(streams);
        targets.push(Target::limit(format!("{MEMORY}: {case}"), find(&case, MEMORY), 512.0));
        targets.retain(|target| target.ours.is_some());
        targets
    }
}

/// The same requests for a few users: one after the other they would take as long as their answers.
fn shared(jobs: &[Job]) -> Vec<Vec<Job>> {
    const USERS: usize = 8;
    jobs.chunks(jobs.len().div_ceil(USERS).max(1))
        .map(<[Job]>::to_vec)
        .collect()
}

/// Tokens of a message in a prompt of so many.
fn message(tokens: usize) -> usize {
    if tokens >= LONG { LONG_MESSAGE } else { MESSAGE }
}

fn about<'a>(case: &'a str, metric: &'a str, better: Better) -> About<'a> {
    About {
        section: section::GATEWAY,
        case,
        metric,
        better,
    }
}

/// Milliseconds: of the first piece p50 and p99, of each piece p50 and p99.
fn quantiles(seen: &mut Seen) -> [f64; 4] {
    seen.first.sort_unstable();
    seen.pieces.sort_unstable();
    [
        percentile(&seen.first, 0.5) / 1e6,
        percentile(&seen.first, 0.99) / 1e6,
        percentile(&seen.pieces, 0.5) / 1e6,
        percentile(&seen.pieces, 0.99) / 1e6,
    ]
}

/// The program as `scripts/dist` leaves it.
fn built() -> Result<PathBuf, Failure> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let places = [
        target,
        Some(PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../target"))),
    ];
    let mut places = places.into_iter().flatten().map(|folder| folder.join("dist/homing"));
    let found = places.find(|program| Path::is_file(program));
    found.ok_or_else(|| {
        "there is no target/dist/homing: build it with `scripts/dist`, or name another with --homing".into()
    })
}
