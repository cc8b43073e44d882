//! What does it mean, what was seen? Without a socket: the same data, the same words.

mod cache;
mod sockets;
mod tokens;

use homing_config::WorkerSpec;
use homing_wire::Dialect;

use crate::finding::{Check, Finding, Outcome, Severity};
use crate::observed::{Observed, Skew, Updating};

/// How far a clock may be off before it is said.
const SKEW_MS: u64 = 2000;

/// What came of each check, in the order of [`Check::ALL`].
pub fn judge(observed: &Observed) -> Vec<Outcome> {
    let mut outcomes = vec![engine(observed), models(observed)];
    outcomes.push(cache::caching(observed));
    outcomes.push(cache::block_size(observed));
    outcomes.extend(sockets::events(observed));
    outcomes.extend(sockets::replay(observed));
    outcomes.extend(tokens::tokenizer(observed));
    outcomes.push(cache::usage(observed));
    outcomes.push(adapters(observed));
    outcomes.push(clock(observed));
    outcomes.extend(cache::overlap(observed));
    outcomes
}

/// A finding in three sentences.
struct Words {
    seen: String,
    cost: String,
    change: String,
}

fn found(check: Check, severity: Severity, words: Words) -> Outcome {
    let Words { seen, cost, change } = words;
    Outcome::Found(Finding {
        check,
        severity,
        seen,
        cost,
        change,
    })
}

/// The words that depend on the engine.
fn flag<'a>(spec: &WorkerSpec, vllm: &'a str, sglang: &'a str) -> &'a str {
    match spec.dialect {
        Dialect::Sglang => sglang,
        _ => vllm,
    }
}

/// Names a rank where there are several.
fn of_rank(observed: &Observed, dp: u16) -> String {
    if observed.spec.ranks > 1 {
        format!("rank {dp}: ")
    } else {
        String::new()
    }
}

fn engine(observed: &Observed) -> Outcome {
    let (spec, facts) = (&observed.spec, &observed.facts);
    let Some(dialect) = facts.dialect else {
        return found(
            Check::Engine,
            Severity::Warning,
            Words {
                seen: "it answers neither like vLLM nor like SGLang".to_owned(),
                cost: "its block size, its ranks and where its events are must be said, and nothing of that is checked"
                    .to_owned(),
                change: "say dialect=, block-size=, ranks= and events= of this worker".to_owned(),
            },
        );
    };
    let said = spec.dialect;
    if dialect != said {
        return found(
            Check::Engine,
            Severity::Fault,
            Words {
                seen: format!("it answers as {dialect}, and its dialect was said to be {said}"),
                cost: "its events are read as those of another engine: none of them counts".to_owned(),
                change: format!("say dialect={dialect} of this worker"),
            },
        );
    }
    match &facts.version {
        Some(version) => Outcome::Well(Check::Engine, format!("{dialect} {version}")),
        None => Outcome::Well(Check::Engine, format!("{dialect}, which does not say its version")),
    }
}

fn models(observed: &Observed) -> Outcome {
    let (spec, facts) = (&observed.spec, &observed.facts);
    let Some(models) = &facts.models else {
        return Outcome::Unchecked(Check::Models, unlearnt(observed, "models"));
    };
    let names: Vec<&str> = models.iter().take(8).map(|model| model.name.as_str()).collect();
    let names = match models.len() {
        0 => "nothing".to_owned(),
        all if all > names.len() => format!("{} and {} more", names.join(", "), all - names.len()),
        _ => names.join(", "),
    };
    let said = spec.model.as_str();
    if models.iter().any(|model| model.name == said) {
        return Outcome::Well(Check::Models, format!("it serves {names}"));
    }
    found(
        Check::Models,
        Severity::Fault,
        Words {
            seen: format!("it serves {names}, and its model was said to be {said}"),
            cost: format!("requests for {said} are sent there and refused by it"),
            change: format!("say model= one of those of this worker, or start it with --served-model-name {said}"),
        },
    )
}

fn adapters(observed: &Observed) -> Outcome {
    match &observed.updating {
        Updating::Allowed => Outcome::Well(Check::Adapters, "adapters can be loaded while it runs".to_owned()),
        Updating::Unknown(why) => Outcome::Unchecked(Check::Adapters, why.clone()),
        Updating::Refused => found(
            Check::Adapters,
            Severity::Note,
            Words {
                seen: "LoRA adapters cannot be loaded while it runs".to_owned(),
                cost: "only adapters that it was started with can be served; nothing, if there are no others"
                    .to_owned(),
                change: flag(
                    &observed.spec,
                    "start it with VLLM_ALLOW_RUNTIME_LORA_UPDATING=True in its environment, and --enable-lora",
                    "start it with --enable-lora",
                )
                .to_owned(),
            },
        ),
    }
}

fn clock(observed: &Observed) -> Outcome {
    let Some(Skew {
        ahead_ms,
        give_or_take_ms,
    }) = observed.skew
    else {
        return Outcome::Unchecked(Check::Clock, "its answers have no date".to_owned());
    };
    let apart = ahead_ms.unsigned_abs();
    if apart.saturating_sub(give_or_take_ms) <= SKEW_MS {
        return Outcome::Well(Check::Clock, "its clock shows our time, to a few seconds".to_owned());
    }
    let side = if ahead_ms > 0 { "ahead of" } else { "behind" };
    found(
        Check::Clock,
        Severity::Warning,
        Words {
            seen: format!("its clock is about {} s {side} ours", apart.div_ceil(1000)),
            cost: "the delay of its events is shown wrong, and chat templates that write the date make other tokens there \
                   than here around midnight"
                .to_owned(),
            change: "let a time service (chrony, systemd-timesyncd) set the clock of its machine, or of this one".to_owned(),
        },
    )
}

/// Why something is not known of an engine.
fn unlearnt(observed: &Observed, fact: &str) -> String {
    let why = observed.facts.unlearnt.iter().find(|unlearnt| unlearnt.fact == fact);
    why.map_or_else(|| "it does not say".to_owned(), |unlearnt| unlearnt.why.clone())
}

#[cfg(test)]
mod tests;
