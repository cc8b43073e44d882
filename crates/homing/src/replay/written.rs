//! How are objectives, parts of a trace, faults and the like written?
//!
//! **Invariant:** what is wrong is said with the text that is wrong and an example of what would be right.

use anyhow::{Context as _, bail, ensure};
use homing_config::quantity;
use homing_profile::{Millis, Time};
use homing_sim::fleet::{Disparity, Fault, FaultKind};
use homing_sim::study::Slo;
use homing_trace::Window;

/// The most faults of a plan.
const MAX_FAULTS: usize = 10_000;

/// A time, such as `5ms`; a plain number is seconds.
pub fn time(what: &str, text: &str) -> anyhow::Result<Millis> {
    let millis = quantity::millis(text.trim());
    let millis = millis.with_context(|| format!("{what} is {text:?}, expected a time such as 5ms, 2s or 1m"))?;
    Ok(Millis(millis as f64))
}

/// `ttft=2s,itl=50ms`; what is not named does not matter.
pub fn slo(text: &str) -> anyhow::Result<Slo> {
    let unlimited = Millis(f64::INFINITY);
    let mut slo = Slo {
        ttft: unlimited,
        itl: unlimited,
    };
    for part in text.split(',') {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        let place = match name.trim() {
            "ttft" => &mut slo.ttft,
            "itl" => &mut slo.itl,
            _ => bail!("--slo has {part:?}, expected ttft=TIME and itl=TIME, such as ttft=2s,itl=50ms"),
        };
        *place = time(&format!("--slo {}", name.trim()), value)?;
    }
    Ok(slo)
}

/// `10m-20m`, `1000` or `500+1000`.
pub fn slice(text: &str) -> anyhow::Result<Window> {
    let wrong = || format!("--slice is {text:?}, expected times such as 10m-20m, or requests such as 1000 or 500+1000");
    if let Some((from, to)) = text.split_once('-') {
        let (from, to) = (quantity::millis(from), quantity::millis(to));
        let (from, to) = from.zip(to).with_context(wrong)?;
        ensure!(from < to, wrong());
        return Ok(Window::Time(
            Time::from_millis(from as f64),
            Time::from_millis(to as f64),
        ));
    }
    let (skip, take) = text.split_once('+').unwrap_or(("0", text));
    let (skip, take) = quantity::count(skip).zip(quantity::count(take)).with_context(wrong)?;
    ensure!(take > 0, wrong());
    Ok(Window::Count { skip, take })
}

/// A time, or a share of this span such as `10%`.
pub fn warmup(text: &str, span: Time) -> anyhow::Result<Time> {
    if text.trim().ends_with('%') {
        let share = quantity::ratio(text.trim()).filter(|share| (0.0..1.0).contains(share));
        let share = share.with_context(|| format!("--warmup is {text:?}, expected a share below 100%"))?;
        return Ok(Time::from_millis(span.millis() * share));
    }
    let cut = Time::from_millis(time("--warmup", text)?.0);
    ensure!(
        cut <= span || cut == Time::ZERO,
        "--warmup is {text}, but the last request arrives after {:.1} s: nothing would be counted",
        span.millis() / 1e3
    );
    Ok(cut)
}

/// `none`, or parts such as `speed=0.3,overhead=1ms-5ms,noise=0.1,slow=2`; what is not named is not there.
pub fn disparity(text: &str) -> anyhow::Result<Disparity> {
    let mut disparity = Disparity::NONE;
    if text == "none" {
        return Ok(disparity);
    }
    for part in text.split(',') {
        let wrong = || {
            format!("--disparity has {part:?}, expected any of speed=0.3, overhead=1ms-5ms, noise=0.1, slow=2, or none")
        };
        let (name, value) = part.split_once('=').with_context(wrong)?;
        let number = |least: f64, most: f64| {
            let number: Option<f64> = value.parse().ok();
            number
                .filter(|number| (least..=most).contains(number))
                .with_context(wrong)
        };
        match name {
            "speed" => disparity.speed = number(0.0, 0.95)?,
            "noise" => disparity.noise = number(0.0, 0.95)?,
            "slow" => disparity.slow = number(0.1, 1_000.0)?,
            "overhead" => {
                let (least, most) = value.split_once('-').unwrap_or((value, value));
                let (least, most) = quantity::millis(least)
                    .zip(quantity::millis(most))
                    .with_context(wrong)?;
                ensure!(least <= most, wrong());
                disparity.overhead = (Millis(least as f64), Millis(most as f64));
            }
            _ => bail!(wrong()),
        }
    }
    Ok(disparity)
}

/// A plan of faults: `crash:3@60s+30s,slow:1x4@10s+60s`, or one on each line; `#` begins a comment. `fleet` is how many workers and
/// routers there are.
pub fn faults(text: &str, fleet: (u32, u32)) -> anyhow::Result<Vec<Fault>> {
    let mut faults = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default();
        for written in line.split(',').map(str::trim).filter(|written| !written.is_empty()) {
            let fault =
                fault(written, fleet).with_context(|| format!("line {} of the faults, {written:?}", number + 1))?;
            ensure!(faults.len() < MAX_FAULTS, "there are more than {MAX_FAULTS} faults");
            faults.push(fault);
        }
    }
    faults.sort_by_key(|fault| fault.at);
    Ok(faults)
}

const FAULTS: &str = "expected KIND@TIME+DURATION, where KIND is crash:WORKER, hang:WORKER, drain:WORKER, leave:WORKER, \
     adapter-failure:WORKER, slow:WORKERxFACTOR, loss:WORKER/PERMILLE, \
     repeat:WORKER/PERMILLE, reorder:WORKER/PERMILLE, misread:WORKER/PERMILLE, feed-cut:ROUTER/WORKER, partition:ROUTER/WORKER, router-restart:ROUTER, \
     impatience:PERMILLE, slow-clients:PERMILLE or late-words:PERMILLE";

fn fault(written: &str, (workers, routers): (u32, u32)) -> anyhow::Result<Fault> {
    let (what, when) = written.split_once('@').context(FAULTS)?;
    let (at, lasts) = when.split_once('+').unwrap_or((when, "0s"));
    let (name, of) = what.split_once(':').context(FAULTS)?;
    let number = |text: &str| text.trim().parse::<u32>().ok().context(FAULTS);
    let pair = |by: char| {
        let (one, other) = of.split_once(by).context(FAULTS)?;
        anyhow::Ok((number(one)?, other))
    };
    let share = || {
        let (worker, per_mille) = pair('/')?;
        anyhow::Ok((worker, number(per_mille)?))
    };
    let kind = match name.trim() {
        "crash" => FaultKind::Crash { worker: number(of)? },
        "hang" => FaultKind::Hang { worker: number(of)? },
        "drain" => FaultKind::Drain { worker: number(of)? },
        "leave" => FaultKind::Leave { worker: number(of)? },
        "adapter-failure" => FaultKind::AdapterFailure { worker: number(of)? },
        "slow" => {
            let (worker, factor) = pair('x')?;
            let factor: f64 = factor
                .parse()
                .ok()
                .filter(|factor| (1.0..=1e6).contains(factor))
                .context(FAULTS)?;
            FaultKind::Slow { worker, factor }
        }
        "loss" | "repeat" | "reorder" | "misread" => {
            let (worker, per_mille) = share()?;
            ensure!(per_mille <= 1_000, "{per_mille} out of a thousand are more than all");
            match name.trim() {
                "loss" => FaultKind::Loss { worker, per_mille },
                "repeat" => FaultKind::Repeat { worker, per_mille },
                "reorder" => FaultKind::Reorder { worker, per_mille },
                _ => FaultKind::Misread { worker, per_mille },
            }
        }
        "feed-cut" | "partition" => {
            let (router, worker) = share()?;
            if name.trim() == "feed-cut" {
                FaultKind::FeedCut { router, worker }
            } else {
                FaultKind::Partition { router, worker }
            }
        }
        "router-restart" => FaultKind::RouterRestart { router: number(of)? },
        "impatience" | "slow-clients" | "late-words" => {
            let per_mille = number(of)?;
            ensure!(per_mille <= 1_000, "{per_mille} out of a thousand are more than all");
            match name.trim() {
                "impatience" => FaultKind::Impatience { per_mille },
                "slow-clients" => FaultKind::SlowClients { per_mille },
                _ => FaultKind::LateWords { per_mille },
            }
        }
        _ => bail!(FAULTS),
    };
    let (worker, router) = ends(kind);
    ensure!(
        worker < workers,
        "there is no worker {worker}: they are numbered from 0 to {}",
        workers - 1
    );
    ensure!(
        router < routers,
        "there is no router {router}: they are numbered from 0 to {}",
        routers - 1
    );
    Ok(Fault {
        at: Time::from_millis(time("the beginning", at)?.0),
        lasts: time("the duration", lasts)?,
        kind,
    })
}

/// Which worker and which router a fault is about; 0 if about none.
pub fn ends(kind: FaultKind) -> (u32, u32) {
    match kind {
        FaultKind::Crash { worker }
        | FaultKind::Hang { worker }
        | FaultKind::Drain { worker }
        | FaultKind::Leave { worker }
        | FaultKind::AdapterFailure { worker }
        | FaultKind::Slow { worker, .. }
        | FaultKind::Loss { worker, .. }
        | FaultKind::Repeat { worker, .. }
        | FaultKind::Reorder { worker, .. }
        | FaultKind::Misread { worker, .. } => (worker, 0),
        FaultKind::FeedCut { router, worker } | FaultKind::Partition { router, worker } => (worker, router),
        FaultKind::RouterRestart { router } => (0, router),
        FaultKind::Impatience { .. }
        | FaultKind::SlowClients { .. }
        | FaultKind::LateWords { .. }
        | FaultKind::LostAnswers { .. } => (0, 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said<T>(result: anyhow::Result<T>) -> String {
        format!("{:#}", result.err().expect("it is wrong"))
    }

    #[test]
    fn objectives() {
        let right = slo("ttft=2s,itl=50ms").unwrap();
        assert_eq!((right.ttft, right.itl), (Millis(2_000.0), Millis(50.0)));
        assert!(slo("itl=10ms").unwrap().ttft.0.is_infinite());
        assert!(said(slo("ttft=soon")).contains("--slo ttft is \"soon\", expected a time"));
        assert!(said(slo("tpot=5ms")).contains("--slo has \"tpot=5ms\", expected ttft=TIME"));
    }

    #[test]
    fn parts_of_a_trace() {
        let time = |millis: f64| Time::from_millis(millis);
        assert_eq!(slice("10m-20m").unwrap(), Window::Time(time(6e5), time(1.2e6)));
        assert_eq!(slice("1000").unwrap(), Window::Count { skip: 0, take: 1_000 });
        assert_eq!(slice("5+1k").unwrap(), Window::Count { skip: 5, take: 1_000 });
        for wrong in ["", "0", "2m-1m", "a-b", "1+"] {
            assert!(said(slice(wrong)).contains("--slice is"), "{wrong}");
        }
        assert_eq!(warmup("10%", time(1_000.0)).unwrap(), time(100.0));
        assert!(said(warmup("100%", time(1_000.0))).contains("below 100%"));
        assert!(said(warmup("2s", time(1_000.0))).contains("nothing would be counted"));
    }

    #[test]
    fn engines_that_differ() {
        assert_eq!(disparity("none").unwrap(), Disparity::NONE);
        let right = disparity("speed=0.3,overhead=1ms-5ms,noise=0.1,slow=1").unwrap();
        assert_eq!(right, Disparity::default());
        for wrong in ["fast", "speed=2", "overhead=5ms-1ms", "noise=x"] {
            assert!(said(disparity(wrong)).contains("--disparity has"), "{wrong}");
        }
    }

    #[test]
    fn plans_of_faults() {
        let plan = "# first\nslow:1x4@70s+60s, crash:3@60s+30s\nloss:0/100@1s+1s\nfeed-cut:1/2@5s+1s,partition:0/1@1s+1s\n\
                    router-restart:1@9s\nimpatience:500@0s+1s,repeat:1/9@1s+1s,reorder:1/9@1s+1s,misread:1/9@1s+1s\n\
                    hang:1@1s+1s,drain:2@1s+1s,leave:3@1s+1s,adapter-failure:0@1s+1s,slow-clients:9@1s+1s,late-words:9@1s+1s";
        let faults_of = |text: &str| faults(text, (4, 2));
        let right = faults_of(plan).unwrap();
        assert_eq!(right.len(), 16);
        assert!(right.windows(2).all(|pair| pair[0].at <= pair[1].at));
        let crash = right.iter().find(|fault| fault.kind.name() == "crash").unwrap();
        assert_eq!((crash.at, crash.lasts), (Time::from_millis(60_000.0), Millis(30_000.0)));
        for (wrong, words) in [
            ("crash@60s", "expected KIND@TIME+DURATION"),
            ("fire:1@60s", "expected KIND@TIME+DURATION"),
            ("crash:9@60s", "there is no worker 9: they are numbered from 0 to 3"),
            ("router-restart:2@60s", "there is no router 2"),
            ("crash:1@soon", "the beginning is \"soon\""),
            ("slow:1x0.5@1s", "expected KIND"),
            ("loss:1/2000@1s", "2000 out of a thousand"),
        ] {
            let said = said(faults_of(&format!("crash:1@1s\n{wrong}")));
            assert!(said.contains(words) && said.contains("line 2"), "{said}");
        }
    }
}
