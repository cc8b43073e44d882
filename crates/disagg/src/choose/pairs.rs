//! Which two?

use homing_profile::{GigabytesPerSecond, Millis};
use homing_scheduler::Label;

use super::{Because, ChooseSettings, Decoder, Judge, Pairing, Prefiller, QUEUED_LIMIT, STAGED_LIMIT, Scene, Why};
use crate::format::Reads;
use crate::refused::Refused;
use crate::topology::{self, Fit};

/// The best pair, or why there is none.
pub(super) fn best_pair(
    settings: &ChooseSettings,
    scene: &Scene<'_>,
    why: &mut Why,
) -> Result<Pairing, (Because, Refused)> {
    let Some(first) = scene.prefills.first() else {
        return Err((Because::NoPrefill, Refused::NoPrefillWorker(scene.model.clone())));
    };
    let known = scene.prefills.iter().enumerate();
    let known = known.filter(|(_, prefill)| topology::unknown(&settings.topology, prefill.labels).is_none());
    let mut known: Vec<(usize, &Prefiller<'_>)> = known.collect();
    if known.is_empty() {
        let rule = topology::unknown(&settings.topology, first.labels);
        let label = rule.map_or_else(String::new, |rule| rule.label.to_string());
        return Err((
            Because::NoPair,
            Refused::UnknownPlace {
                label,
                rank: first.rank,
            },
        ));
    }
    let queued = known.iter().map(|(_, prefill)| prefill.queued).min().unwrap_or(0);
    known.retain(|(_, prefill)| prefill.queued < settings.most_queued);
    if known.is_empty() {
        let (limit, most) = (QUEUED_LIMIT, settings.most_queued);
        return Err((Because::PrefillBusy, Refused::Busy { limit, queued, most }));
    }
    let staged = known.iter().map(|(_, prefill)| prefill.staged).min().unwrap_or((0, 0));
    known.retain(|(_, prefill)| prefill.has_room);
    if known.is_empty() {
        let (limit, (staged, most)) = (STAGED_LIMIT, staged);
        return Err((Because::StagedFull, Refused::StagedFull { limit, staged, most }));
    }
    best_of(settings, scene, known, why).ok_or((
        Because::NoPair,
        Refused::NoPair {
            pairs: why.pairs,
            format: why.other_format,
            topology: why.other_place,
        },
    ))
}

/// The best pair with the first prefill worker, whatever it has to do: the prompt has been computed.
pub(super) fn best_for_first(settings: &ChooseSettings, scene: &Scene<'_>, why: &mut Why) -> Result<Pairing, Refused> {
    let Some(first) = scene.prefills.first() else {
        return Err(Refused::NoPrefillWorker(scene.model.clone()));
    };
    if let Some(rule) = topology::unknown(&settings.topology, first.labels) {
        let label = rule.label.to_string();
        return Err(Refused::UnknownPlace {
            label,
            rank: first.rank,
        });
    }
    best_of(settings, scene, vec![(0, first)], why).ok_or(Refused::NoPair {
        pairs: why.pairs,
        format: why.other_format,
        topology: why.other_place,
    })
}

/// The best pair with one of these.
fn best_of(
    settings: &ChooseSettings,
    scene: &Scene<'_>,
    mut known: Vec<(usize, &Prefiller<'_>)>,
    why: &mut Why,
) -> Option<Pairing> {
    keep_best(settings, &mut known, |prefill| prefill.labels);
    let mut decodes: Vec<(usize, &Decoder<'_>)> = scene.decodes.iter().enumerate().collect();
    keep_best(settings, &mut decodes, |decode| decode.labels);
    match settings.judge {
        Judge::Together => together(settings, scene, (&known, &decodes), why),
        Judge::OneAfterTheOther => one_after_the_other(settings, scene, (&known, &decodes), why),
    }
}

/// Of each value of the required labels the first few.
fn keep_best<'a, T>(settings: &ChooseSettings, list: &mut Vec<(usize, &'a T)>, labels: impl Fn(&'a T) -> &'a [Label]) {
    let mut groups: Vec<(Vec<Option<&str>>, usize)> = Vec::new();
    list.retain(|(_, of)| {
        let group = topology::group(&settings.topology, labels(of));
        let at = groups.iter().position(|(known, _)| *known == group);
        let at = at.unwrap_or_else(|| {
            groups.push((group, 0));
            groups.len() - 1
        });
        groups[at].1 += 1;
        groups[at].1 <= settings.keep.max(1)
    });
}

type Sides<'s, 'a> = (&'s [(usize, &'s Prefiller<'a>)], &'s [(usize, &'s Decoder<'a>)]);

fn together(settings: &ChooseSettings, scene: &Scene<'_>, sides: Sides<'_, '_>, why: &mut Why) -> Option<Pairing> {
    let mut found: Vec<(f64, Pairing)> = Vec::new();
    for prefill in sides.0 {
        for decode in sides.1 {
            found.extend(weigh(settings, scene, (*prefill, *decode), why));
        }
    }
    pick(settings, scene, &found)
}

fn one_after_the_other(
    settings: &ChooseSettings,
    scene: &Scene<'_>,
    sides: Sides<'_, '_>,
    why: &mut Why,
) -> Option<Pairing> {
    sides.0.iter().find_map(|prefill| {
        let mut fits = sides.1.iter();
        fits.find_map(|decode| weigh(settings, scene, (*prefill, *decode), why))
            .map(|(_, pairing)| pairing)
    })
}

/// What a pair costs, and what it counts as among pairs; none if it cannot be one.
fn weigh(
    settings: &ChooseSettings,
    scene: &Scene<'_>,
    ((at, prefill), (to, decode)): ((usize, &Prefiller<'_>), (usize, &Decoder<'_>)),
    why: &mut Why,
) -> Option<(f64, Pairing)> {
    if prefill.rank.worker == decode.rank.worker {
        return None;
    }
    why.pairs += 1;
    if prefill.traits.fits(decode.traits, settings.agreement).is_err() {
        why.other_format += 1;
        return None;
    }
    let Fit::May(factor) = topology::fit(&settings.topology, prefill.labels, decode.labels) else {
        why.other_place += 1;
        return None;
    };
    let missing = match decode.traits.reads {
        Reads::Missing => scene.prompt.0.saturating_sub(decode.cached.0),
        Reads::All => scene.prompt.0,
    };
    let bytes = scene.bytes_per_token.saturating_mul(u64::from(missing));
    // What is under way on the busier end of the link goes before it.
    let ahead = prefill.leaving.max(decode.arriving);
    let transfer = rate(prefill.traits.rate, decode.traits.rate).time_of(bytes.saturating_add(ahead));
    let first_token = Millis(prefill.first_token.0.max(decode.ready.0) + transfer.0 + decode.step.0);
    let for_others = (prefill.cost - prefill.first_token.0) + (decode.cost - decode.first_token.0);
    let cost = (first_token.0 + for_others).max(0.0);
    let pairing = Pairing {
        prefill: at,
        decode: to,
        cost,
        first_token,
        transfer,
        bytes,
    };
    Some((cost * factor, pairing))
}

/// The slower of two ends; one that is not known does not count.
fn rate(from: GigabytesPerSecond, to: GigabytesPerSecond) -> GigabytesPerSecond {
    match (from.0 > 0.0, to.0 > 0.0) {
        (true, true) => GigabytesPerSecond(from.0.min(to.0)),
        (true, false) => from,
        _ => to,
    }
}

/// One of those that are hardly worse than the least; or by temperature one with a chance that falls with its distance to it.
fn pick(settings: &ChooseSettings, scene: &Scene<'_>, found: &[(f64, Pairing)]) -> Option<Pairing> {
    let (least, best) = found.iter().min_by(|one, other| one.0.total_cmp(&other.0))?;
    let most = found.iter().map(|(cost, _)| *cost).fold(0.0, f64::max);
    let spread = (most - least) * scene.temperature;
    if spread > 0.0 && spread.is_finite() {
        let weight = |cost: f64| (-(cost - least) / spread).exp();
        let total: f64 = found.iter().map(|(cost, _)| weight(*cost)).sum();
        let mut left = scene.draw.share(0) * total;
        for (cost, pairing) in found {
            left -= weight(*cost);
            if left < 0.0 {
                return Some(*pairing);
            }
        }
        return found.last().map(|(_, pairing)| *pairing);
    }
    let within = least + best.first_token.0 * settings.error;
    let mut near = found.iter().filter(|(cost, _)| *cost <= within);
    let count = near.clone().count() as u128;
    let at = (u128::from(scene.draw.number(0)) * count) >> 64;
    near.nth(at as usize).map(|(_, pairing)| *pairing)
}
