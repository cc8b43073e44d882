//! Which clients?

use std::sync::Arc;

use homing_domain::AdapterName;
use homing_profile::Millis;
use homing_scheduler::queue::ClassSpec;
use homing_trace::generate::{Arrivals, Documents, Generated, Kind, Length, Sessions, Share, Workload, WorkloadError};
use homing_trace::transform::merge;
use homing_trace::{Client, Traffic};

use crate::Rng;

/// How much comes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Amount {
    /// Requests.
    pub(super) requests: u64,
    /// Within about so long, if they do not wait for each other.
    pub(super) span: Millis,
}

impl Amount {
    pub(super) fn draw(rng: &mut Rng, workers: u32) -> Self {
        let seconds = rng.between(4, 40);
        let per_second = u64::from(workers) * rng.between(1, 25);
        Self {
            requests: (seconds * per_second).clamp(40, 1_200),
            span: Millis(seconds as f64 * 1_000.0),
        }
    }

    fn per_second(self) -> f64 {
        (self.requests as f64 * 1_000.0 / self.span.0).max(1.0)
    }
}

/// Clients of one or two kinds.
pub(super) fn drawn(
    rng: &mut Rng,
    amount: Amount,
    classes: &[ClassSpec],
) -> Result<impl Traffic + use<>, WorkloadError> {
    let kinds = rng.between(1, 2);
    let mut streams: Vec<Generated> = Vec::new();
    let deadline = rng.chance(300).then(|| Millis(rng.between(50, 8_000) as f64));
    let adapters = adapters(rng);
    let clients = clients(rng, classes);
    for _ in 0..kinds {
        let kind = kind(rng);
        // Each session brings several requests.
        let turns = match &kind {
            Kind::Sessions(sessions) => f64::from(sessions.turns.mean),
            _ => 1.0,
        };
        let per_second = amount.per_second() / turns / kinds as f64;
        let workload = Workload {
            clients: clients.clone(),
            adapters: adapters.clone(),
            deadline,
            ..Workload::new(rng.number(), arrivals(rng, per_second), kind)
        };
        streams.push(workload.requests()?);
    }
    Ok(merge(streams).take(amount.requests as usize))
}

/// Requests that differ in class and tenant only, more than can be served.
pub(super) fn alike(
    rng: &mut Rng,
    amount: Amount,
    classes: &[ClassSpec],
) -> Result<impl Traffic + use<>, WorkloadError> {
    let per_second = amount.per_second() * 4.0;
    let kind = Kind::Unrelated {
        prompt: Length::always(rng.between(100, 500) as u32),
        answer: Length::always(rng.between(2, 20) as u32),
    };
    let share = |at: usize| Share {
        weight: 1,
        what: Client {
            tenant: Some(format!("tenant {}", at % 2).into()),
            class: classes.get(at / 2).map(|class| class.name.as_str().into()),
            priority: 0,
        },
    };
    let workload = Workload {
        clients: (0..2 * classes.len()).map(share).collect(),
        ..Workload::new(rng.number(), Arrivals::Poisson { per_second }, kind)
    };
    Ok(workload.requests()?.take(amount.requests as usize))
}

fn kind(rng: &mut Rng) -> Kind {
    let answer = Length::about(rng.between(3, 40) as u32);
    match rng.below(4) {
        0 | 1 => Kind::Sessions(Sessions {
            openings: rng.between(1, 6) as u32,
            opening: Length::about(rng.between(20, 300) as u32),
            first: Length::about(rng.between(10, 200) as u32),
            next: Length::about(rng.between(5, 80) as u32),
            answer,
            turns: Length::about(rng.between(2, 8) as u32),
            pause: Millis(rng.between(10, 3_000) as f64),
            context: u32::MAX,
        }),
        2 => Kind::Documents(Documents {
            opening: Length::always(40),
            documents: rng.between(2, 30) as u32,
            document: Length::about(rng.between(30, 200) as u32),
            in_prompt: Length::always(rng.between(1, 3) as u32),
            question: Length::about(20),
            answer,
        }),
        _ => Kind::Unrelated {
            prompt: Length::about(rng.between(20, 500) as u32),
            answer,
        },
    }
}

fn arrivals(rng: &mut Rng, per_second: f64) -> Arrivals {
    match rng.below(5) {
        0 => Arrivals::Constant { per_second },
        1 => Arrivals::Poisson { per_second },
        2 => Arrivals::Gamma {
            per_second,
            variation: 3.0,
        },
        3 => Arrivals::OnOff {
            per_second: per_second * 3.0,
            on: Millis(1_000.0),
            off: Millis(2_000.0),
        },
        _ => Arrivals::Bursts {
            every: Millis(1_000.0),
            size: (per_second as u32).max(1),
        },
    }
}

fn adapters(rng: &mut Rng) -> Vec<Share<Option<AdapterName>>> {
    if !rng.chance(300) {
        return Vec::new();
    }
    let named = (0..rng.between(1, 6)).map(|number| Share {
        weight: 1,
        what: Some(AdapterName::from(format!("adapter {number}").as_str())),
    });
    let without = Share { weight: 2, what: None };
    named.chain([without]).collect()
}

fn clients(rng: &mut Rng, classes: &[ClassSpec]) -> Vec<Share<Client>> {
    let tenants = rng.between(1, 4);
    let clients = (0..rng.between(1, 8)).map(|_| {
        let class = classes.get(rng.place(classes.len()));
        Share {
            weight: rng.between(1, 4) as u32,
            what: Client {
                tenant: Some(Arc::from(format!("tenant {}", rng.below(tenants)))),
                class: class.map(|class| class.name.as_str().into()),
                priority: rng.between(0, 3) as i32 - 1,
            },
        }
    });
    clients.collect()
}
