//! Where do requests come from? A file, or a generator by name.
//!
//! A trace is read once; if it is small it is kept, else it is read again whenever it begins anew.

use std::fs::File;
use std::io::BufReader;
use std::sync::Arc;

use anyhow::{Context as _, bail, ensure};
use homing_domain::BlockSize;
use homing_profile::Millis;
use homing_trace::generate::{Documents, Generated, Kind, Length, Sessions, Share};
use homing_trace::{
    Arrivals, Client, Factor, Problem, ReadOptions, Reader, Request, TraceError, Traffic, Window, Workload,
};

use super::written;

/// A stream of requests.
pub type Requests = Box<dyn Iterator<Item = Result<Request, TraceError>> + Send>;

/// The most segments of prompts that are kept, 16 bytes each.
const KEPT_SEGMENTS: usize = 1 << 22;
/// The most requests that are kept.
const KEPT_REQUESTS: usize = 1 << 19;
/// The most requests of a generator.
const MAX_GENERATED: u64 = 1 << 32;

#[derive(Clone)]
enum Origin {
    File { path: String, block: BlockSize },
    Generator { workload: Box<Workload>, requests: u64 },
}

/// A trace that can begin anew.
#[derive(Clone)]
pub struct Source {
    origin: Origin,
    name: String,
    speed: Factor,
    slice: Option<Window>,
    kept: Option<Arc<[Request]>>,
}

/// How a trace is read.
pub struct Reading {
    /// Tokens of a hash id.
    pub block: u32,
    /// How many times as fast.
    pub speed: f64,
    /// Which part.
    pub slice: Option<Window>,
}

impl Source {
    /// The trace of this name, read or looked at once.
    pub fn new(name: &str, reading: &Reading) -> anyhow::Result<Self> {
        let block = BlockSize::new(reading.block).context("--trace-block must not be 0")?;
        let speed = Factor::new(reading.speed).filter(|speed| (1e-6..=1e6).contains(&speed.get()));
        let speed = speed.with_context(|| format!("--speed is {}, expected a number above 0", reading.speed))?;
        let kind = name.split(':').next().unwrap_or_default();
        let origin = if let Some(kind) = generator(kind) {
            workload(name, kind)?
        } else {
            let unknown = || {
                format!(
                    "the trace {name:?} cannot be read, and is no generator: these are {}",
                    KINDS.join(", ")
                )
            };
            File::open(name).with_context(unknown)?;
            Origin::File {
                path: name.to_owned(),
                block,
            }
        };
        let mut source = Self {
            origin,
            name: name.to_owned(),
            speed,
            slice: reading.slice,
            kept: None,
        };
        source.kept = source.keep()?;
        Ok(source)
    }

    /// What it is called: of a file the last part of its path.
    pub fn name(&self) -> &str {
        match &self.origin {
            Origin::File { path, .. } => path.rsplit('/').next().unwrap_or(path),
            Origin::Generator { .. } => &self.name,
        }
    }

    /// Begins it anew.
    pub fn open(&self) -> Result<Requests, TraceError> {
        if let Some(kept) = &self.kept {
            let kept = kept.clone();
            return Ok(Box::new((0..kept.len()).map(move |place| Ok(kept[place].clone()))));
        }
        let all: Requests = match &self.origin {
            Origin::File { path, block } => {
                let options = ReadOptions {
                    block: *block,
                    ..ReadOptions::new(path)
                };
                let file = File::open(path).map_err(|error| TraceError {
                    label: path.as_str().into(),
                    line: 0,
                    problem: Problem::Unreadable(error.to_string()),
                })?;
                Box::new(Reader::open(BufReader::with_capacity(1 << 16, file), options)?)
            }
            Origin::Generator { workload, requests } => Box::new(generated(workload, *requests)),
        };
        let faster = all.sped_up(self.speed);
        Ok(match self.slice {
            Some(window) => Box::new(faster.sliced(window)),
            None => Box::new(faster),
        })
    }

    fn keep(&self) -> anyhow::Result<Option<Arc<[Request]>>> {
        let (mut kept, mut segments) = (Vec::new(), 0);
        for request in self.open()? {
            let request = request?;
            segments += request.prompt.segments.len();
            if segments > KEPT_SEGMENTS || kept.len() >= KEPT_REQUESTS {
                return Ok(None);
            }
            kept.push(request);
        }
        ensure!(!kept.is_empty(), "there is no request in {}", self.name);
        Ok(Some(kept.into()))
    }
}

/// The first requests of a workload, in order of arrival: those of a session come one after the other, but begin together.
fn generated(workload: &Workload, requests: u64) -> std::iter::Take<Generated> {
    let all = workload.clone().requests().expect("it was checked when it was read");
    all.take(usize::try_from(requests).unwrap_or(usize::MAX))
}

const KINDS: [&str; 4] = ["chat", "agents", "documents", "unrelated"];

fn generator(kind: &str) -> Option<Kind> {
    Some(match kind {
        "chat" => Kind::Sessions(Sessions::chat()),
        "agents" => Kind::Sessions(Sessions::agents()),
        "documents" => Kind::Documents(Documents::default()),
        "unrelated" => Kind::Unrelated {
            prompt: Length::about(2_000),
            answer: Length::about(250),
        },
        _ => return None,
    })
}

/// `chat:rate=5,requests=1000,seed=1,...`.
fn workload(name: &str, mut kind: Kind) -> anyhow::Result<Origin> {
    let (mut rate, mut variation, mut requests, mut seed) = (2.0, None, 1_000_u64, 1_u64);
    let (mut on_off, mut tenants) = (None, 0_u32);
    let given = name.split_once(':').map_or("", |(_, given)| given);
    for part in given.split(',').filter(|part| !part.is_empty()) {
        let (key, value) = part.split_once('=').unwrap_or((part, ""));
        let expected = known(kind);
        let wrong = || format!("the trace {name:?} has {part:?}, expected {expected}");
        let number = || {
            value
                .parse::<f64>()
                .ok()
                .filter(|value| (0.0..=1e9).contains(value))
                .with_context(wrong)
        };
        let count = || homing_config::quantity::count(value).with_context(wrong);
        match key {
            "rate" => rate = number()?,
            "variation" => variation = Some(number()?),
            "on-off" => {
                let (on, off) = value.split_once('/').with_context(wrong)?;
                on_off = Some((written::time("on", on)?, written::time("off", off)?));
            }
            "requests" => requests = count()?,
            "seed" => seed = count()?,
            "tenants" => tenants = count()?.min(10_000) as u32,
            _ => {
                let mean = u32::try_from(count()?).ok().with_context(wrong)?;
                *length(&mut kind, key).with_context(wrong)? = Length::about(mean);
            }
        }
    }
    ensure!(
        (1..=MAX_GENERATED).contains(&requests),
        "a generator makes from 1 to {MAX_GENERATED} requests, not {requests}"
    );
    let arrivals = arrivals(rate, variation, on_off)?;
    let clients = (0..tenants).map(|tenant| Share {
        weight: 1,
        what: Client {
            tenant: Some(format!("tenant-{tenant}").into()),
            ..Client::default()
        },
    });
    let workload = Workload {
        clients: clients.collect(),
        ..Workload::new(seed, arrivals, kind)
    };
    workload
        .clone()
        .requests()
        .with_context(|| format!("the trace {name:?}"))?;
    Ok(Origin::Generator {
        workload: Box::new(workload),
        requests,
    })
}

fn arrivals(per_second: f64, variation: Option<f64>, on_off: Option<(Millis, Millis)>) -> anyhow::Result<Arrivals> {
    Ok(match (variation, on_off) {
        (Some(_), Some(_)) => bail!("a generator has either variation or on-off"),
        (Some(variation), None) if variation < 1e-6 => Arrivals::Constant { per_second },
        (Some(variation), None) => Arrivals::Gamma { per_second, variation },
        (None, Some((on, off))) => Arrivals::OnOff { per_second, on, off },
        (None, None) => Arrivals::Poisson { per_second },
    })
}

/// The length that a key stands for.
fn length<'a>(kind: &'a mut Kind, key: &str) -> Option<&'a mut Length> {
    Some(match (kind, key) {
        (Kind::Sessions(of), "opening") => &mut of.opening,
        (Kind::Sessions(of), "first") => &mut of.first,
        (Kind::Sessions(of), "next") => &mut of.next,
        (Kind::Sessions(of), "answer") => &mut of.answer,
        (Kind::Sessions(of), "turns") => &mut of.turns,
        (Kind::Documents(of), "document") => &mut of.document,
        (Kind::Documents(of), "in-prompt") => &mut of.in_prompt,
        (Kind::Documents(of), "question") => &mut of.question,
        (Kind::Documents(of), "answer") => &mut of.answer,
        (Kind::Unrelated { prompt, .. }, "prompt") => prompt,
        (Kind::Unrelated { answer, .. }, "answer") => answer,
        _ => return None,
    })
}

fn known(kind: Kind) -> String {
    let lengths = match kind {
        Kind::Sessions(_) => "opening, first, next, answer, turns",
        Kind::Documents(_) => "document, in-prompt, question, answer",
        Kind::Unrelated { .. } => "prompt, answer",
    };
    format!(
        "rate=PER_SECOND, variation=NUMBER, on-off=TIME/TIME, requests=NUMBER, seed=NUMBER, tenants=NUMBER, or a mean length: {lengths}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(name: &str) -> anyhow::Result<Source> {
        let reading = Reading {
            block: 512,
            speed: 1.0,
            slice: None,
        };
        Source::new(name, &reading)
    }

    #[test]
    fn generators_have_names_and_settings() {
        for name in [
            "chat",
            "agents:requests=30",
            "documents:rate=9,document=100",
            "unrelated:prompt=10,tenants=3",
        ] {
            let source = source(name).expect(name);
            assert_eq!(source.name(), name);
            let requests: Vec<Request> = source.open().expect(name).collect::<Result<_, _>>().expect(name);
            assert_eq!(requests.len(), if name.contains("30") { 30 } else { 1_000 });
            assert!(
                requests
                    .windows(2)
                    .all(|pair| pair[0].arrival.earliest() <= pair[1].arrival.earliest())
            );
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (name, words) in [
            (
                "nothing.jsonl",
                "the trace \"nothing.jsonl\" cannot be read, and is no generator: these are chat, agents",
            ),
            ("chat:speed=1", "has \"speed=1\", expected rate=PER_SECOND"),
            ("chat:rate=fast", "has \"rate=fast\""),
            ("chat:rate=0", "per_second is 0"),
            ("chat:requests=0", "from 1 to"),
            ("chat:variation=1,on-off=1s/1s", "either variation or on-off"),
        ] {
            let said = format!("{:#}", source(name).err().expect(name));
            assert!(said.contains(words), "{said}");
        }
    }
}
