//! Is there a cache, are its blocks ours, and is in it what we say?

use homing_config::Switch;

use super::{Words, flag, found, of_rank, unlearnt};
use crate::finding::{Check, Outcome, Severity};
use crate::observed::{Observed, Probed, Subscription};

pub(super) fn caching(observed: &Observed) -> Outcome {
    let said = observed.facts.prefix_caching;
    // What was cached of a repeated prompt, at any rank.
    let cached = probed(observed).filter_map(|(_, probed)| probed.again.cached).max();
    match (said, cached) {
        (Some(Switch::On), _) => Outcome::Well(Check::Caching, "prefixes are cached".to_owned()),
        (None, Some(1..)) => Outcome::Well(Check::Caching, "a prompt that came again was cached".to_owned()),
        (None, None) => Outcome::Unchecked(Check::Caching, unlearnt(observed, "prefix_caching")),
        (Some(Switch::Off), _) | (None, Some(0)) => found(
            Check::Caching,
            Severity::Fault,
            Words {
                seen: match said {
                    Some(_) => "its prefix cache is turned off".to_owned(),
                    None => "nothing of a prompt that came again was cached".to_owned(),
                },
                cost: "every prompt is computed anew: where a request goes makes no difference to its first token"
                    .to_owned(),
                change: flag(
                    &observed.spec,
                    "start it with --enable-prefix-caching, and without --no-enable-prefix-caching",
                    "start it without --disable-radix-cache",
                )
                .to_owned(),
            },
        ),
    }
}

pub(super) fn block_size(observed: &Observed) -> Outcome {
    let ours = observed.spec.block_size.get();
    let Some(theirs) = observed.facts.block_size else {
        return Outcome::Unchecked(Check::BlockSize, unlearnt(observed, "block_size"));
    };
    let theirs = theirs.get();
    if theirs == ours {
        return Outcome::Well(Check::BlockSize, format!("blocks of {ours} tokens here and there"));
    }
    if theirs.is_multiple_of(ours) {
        return Outcome::Well(
            Check::BlockSize,
            format!(
                "blocks of {ours} tokens here, of {theirs} there, which are {} of ours",
                theirs / ours
            ),
        );
    }
    let engine = flag(&observed.spec, "--block-size", "--page-size");
    found(
        Check::BlockSize,
        Severity::Fault,
        Words {
            seen: format!("blocks of {ours} tokens here, of {theirs} there"),
            cost: "blocks of another size are other blocks: no prefix we predict will be found there".to_owned(),
            change: format!("say block-size={theirs} of this worker, or start it with {engine} {ours}"),
        },
    )
}

pub(super) fn usage(observed: &Observed) -> Outcome {
    let reports = observed.facts.reports_cached;
    let answers: Vec<Option<u32>> = probed(observed).map(|(_, probed)| probed.again.cached).collect();
    let seen = match (answers.as_slice(), reports) {
        ([], Some(Switch::On)) => {
            return Outcome::Well(Check::Usage, "it says that its answers tell cached tokens".to_owned());
        }
        ([], Some(Switch::Off)) => "it says that its answers do not tell how many tokens came from the cache",
        ([], None) => return Outcome::Unchecked(Check::Usage, unlearnt(observed, "reports_cached")),
        (answers, _) if answers.iter().all(Option::is_some) => {
            return Outcome::Well(
                Check::Usage,
                "answers tell how many tokens came from the cache".to_owned(),
            );
        }
        // An engine that caches nothing has nothing to tell.
        (_, None) if observed.facts.prefix_caching == Some(Switch::Off) => {
            return Outcome::Unchecked(Check::Usage, "its prefix cache is turned off".to_owned());
        }
        _ => "its answers do not tell how many tokens came from the cache",
    };
    found(
        Check::Usage,
        Severity::Warning,
        Words {
            seen: seen.to_owned(),
            cost: "predictions cannot be compared with what happened: a view that is wrong is not noticed".to_owned(),
            change: flag(
                &observed.spec,
                "start it with --enable-prompt-tokens-details",
                "start it with --enable-cache-report",
            )
            .to_owned(),
        },
    )
}

pub(super) fn overlap(observed: &Observed) -> Vec<Outcome> {
    if observed.ranks.is_empty() {
        return vec![Outcome::Unchecked(
            Check::Overlap,
            "no prompt was to be sent".to_owned(),
        )];
    }
    let each = observed.ranks.iter().map(|rank| {
        let name = of_rank(observed, rank.dp);
        match (&rank.probed, &rank.subscription) {
            (Err(why), _) => found(
                Check::Overlap,
                Severity::Warning,
                Words {
                    seen: format!("{name}a prompt of a few blocks was not answered: {why}"),
                    cost:
                        "what it does with prompts that come again is not known, and requests may fail as this one did"
                            .to_owned(),
                    change: "see that it answers /v1/completions for this model; its log says more".to_owned(),
                },
            ),
            (Ok(probed), Subscription::Stands(_)) => compared(observed, &name, probed),
            (Ok(_), _) => Outcome::Unchecked(Check::Overlap, format!("{name}there are no events to predict it by")),
        }
    });
    each.collect()
}

fn compared(observed: &Observed, name: &str, probed: &Probed) -> Outcome {
    let size = observed.spec.block_size.get();
    // The last token is always computed.
    let predicted = probed.indexed.saturating_mul(size).min(probed.prompt.saturating_sub(1));
    let Some(cached) = probed.again.cached else {
        return Outcome::Unchecked(Check::Overlap, format!("{name}its answers do not tell cached tokens"));
    };
    if predicted == cached {
        let seen = format!("{name}of a prompt that came again {cached} tokens were predicted to be cached, and were");
        return Outcome::Well(Check::Overlap, seen);
    }
    let seen =
        format!("{name}of a prompt that came again {predicted} tokens were predicted to be cached, and {cached} were");
    let (severity, cost) = if cached < predicted {
        (
            Severity::Fault,
            "requests are sent there for a cache that it does not have",
        )
    } else {
        (
            Severity::Warning,
            "its cache is used less than it could be: requests go elsewhere because it is not known",
        )
    };
    found(
        Check::Overlap,
        severity,
        Words {
            seen,
            cost: cost.to_owned(),
            change: "change first what else is found here; if nothing is, say copies=set of this worker, and report this with --json"
                .to_owned(),
        },
    )
}

/// Ranks whose prompts were answered.
fn probed(observed: &Observed) -> impl Iterator<Item = (u16, &Probed)> {
    let ranks = observed.ranks.iter();
    ranks.filter_map(|rank| Some((rank.dp, rank.probed.as_ref().ok()?)))
}
