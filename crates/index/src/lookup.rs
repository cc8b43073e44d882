//! Which ranks hold this prefix? The reader's side: no lock, no waiting, no writes to shared memory.
//!
//! A query is a chain of keys. Equal keys mean equal prefixes, so one comparison with the last key of a run tells
//! whether the whole run matches; only where it does not is the point of departure searched inside. At each run the set
//! of ranks that are still in is met with those that hold the run.
//!
//! **Invariant:** an answer that is settled is the state at one instant during the call. Each visited run was found
//! unchanged at the end, and so was the epoch of the published view; so everything read was true at the moment when the
//! last of it was read.
//!
//! Cost: one dependent memory access per run on the path (its record; two where it is found by the table only), and one
//! more where the query departs in mid-run.

use std::sync::Arc;

use homing_domain::{BlockKey, KeyHasher, Prompt, Tier};

use crate::answer::Answer;
use crate::blocks::key_word;
use crate::chunk::{prefetch, prefetch_early};
use crate::heap::Directory;
use crate::record::{Fields, HAS_CHILDREN, HAS_LOWER, Record, RunId, UNUSED};
use crate::samples::STRIDE;
use crate::scout::{self, Scout};
use crate::sets::SlotSet;
use crate::slots::View;
use crate::sync::{AtomicU64, Ordering, Published, fence};

/// How often a lookup begins anew because the index changed under it.
const ATTEMPTS: usize = 3;
/// How often it looks again at a record that is being written.
const GLANCES: usize = 64;

/// Keys of a query that are asked for before they are needed.
const NEAR: usize = 128;
const KEYS_PER_LINE: usize = 8;
/// So few stored keys are all compared.
const FEW: usize = 2 * STRIDE;

/// What the writer and the readers share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) view: Published<View>,
    /// Raised by two after each change of the view. Odd while runs change that must be seen together.
    pub(crate) epoch: AtomicU64,
    pub(crate) unsettled: AtomicU64,
}

/// Answers lookups on any thread. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Reader {
    pub(crate) shared: Arc<Shared>,
}

/// The index changed under a walk.
struct Moved;

impl Reader {
    /// Fills `answer` with how many leading blocks of `keys` each rank holds.
    pub fn lookup(&self, keys: &[BlockKey], answer: &mut Answer) {
        for _ in 0..ATTEMPTS {
            if self.attempt(keys, answer).is_ok() {
                answer.settle(true);
                return;
            }
        }
        answer.settle(false);
        self.shared.unsettled.fetch_add(1, Ordering::Relaxed);
    }

    /// Makes `keys` those of a prompt that is about to be looked up here, whatever was there. Its tokens may come from far and are asked for
    /// ahead, and what the lookup will need is asked for while the rest is hashed.
    pub fn keys_of(&self, hasher: &KeyHasher, prompt: &Prompt<'_>, keys: &mut Vec<BlockKey>) {
        let guard = self.shared.view.load();
        let mut scout = Scout::new(&guard);
        hasher.keys_in_pieces(prompt, keys, scout::PIECE, prefetch_early, |keys| scout.go_on(keys));
    }

    /// How many lookups did not settle, since the index was made.
    pub fn unsettled(&self) -> u64 {
        self.shared.unsettled.load(Ordering::Relaxed)
    }

    fn even_epoch(&self) -> Result<u64, Moved> {
        for _ in 0..GLANCES {
            let epoch = self.shared.epoch.load(Ordering::Acquire);
            if epoch.is_multiple_of(2) {
                return Ok(epoch);
            }
            pause();
        }
        Err(Moved)
    }

    fn attempt(&self, keys: &[BlockKey], answer: &mut Answer) -> Result<(), Moved> {
        let epoch = self.even_epoch()?;
        let guard = self.shared.view.load();
        let view: &View = &guard;
        answer.begin(&view.live);
        let lower = walk(view, keys, Tier::Device, answer)?;
        let device = (0, answer.level_count());
        answer.set_span(Tier::Device, device);
        for tier in [Tier::Host, Tier::Disk, Tier::External] {
            let start = answer.level_count();
            if lower {
                walk(view, keys, tier, answer)?;
                answer.set_span(tier, (start, answer.level_count()));
            } else {
                answer.set_span(tier, device);
            }
        }
        let unchanged =
            |(run, version): &(u32, u64)| view.records.get(*run).is_some_and(|record| record.is_still(*version));
        if !answer.scratch.visited.iter().all(unchanged) {
            return Err(Moved);
        }
        fence(Ordering::Acquire);
        if self.shared.epoch.load(Ordering::Relaxed) != epoch {
            return Err(Moved);
        }
        Ok(())
    }
}

/// Follows the path of `keys` for blocks on tiers up to `deepest`. Says whether coverage for lower tiers differed
/// anywhere on the way.
fn walk(view: &View, keys: &[BlockKey], deepest: Tier, answer: &mut Answer) -> Result<bool, Moved> {
    answer.scratch.alive.clear();
    answer.scratch.alive.extend_from_slice(&view.live.words);
    // These keys will be compared soon, and may come from far: they are asked for now.
    keys.last()
        .into_iter()
        .chain(keys.iter().take(NEAR).step_by(KEYS_PER_LINE))
        .for_each(prefetch);
    let mut lower = false;
    let mut pos = 0;
    let mut child = 0;
    while let Some(key) = keys.get(pos) {
        let Some(found) = find_run(view, key.0, child, answer)? else {
            answer.scratch.absent = Some(pos);
            break;
        };
        // An earlier walk of this attempt found nothing here: the two did not see one state.
        if answer.scratch.absent == Some(pos) {
            return Err(Moved);
        }
        let fields = &found.fields;
        fields.full.prefetch(&view.heap);
        let departure = fields.shape.departure as usize;
        child = Record::usual_child(found.version);
        if departure > 0 && pos + departure < keys.len() {
            // The path probably leaves here as others did.
            ask_for_run(view, &keys[pos + departure..], child);
        }
        lower |= fields.shape.flags & HAS_LOWER != 0;
        let matched = matched_blocks(view, &found, &keys[pos..])?;
        meet_run(&view.heap, fields, deepest, (pos as u32, matched as u32), answer)?;
        pos += matched;
        child = if matched == departure { child } else { 0 };
        if fields.shape.flags & HAS_CHILDREN == 0 || answer.scratch.alive.iter().all(|word| *word == 0) {
            break;
        }
    }
    answer.emit(pos as u32, |scratch| &scratch.alive);
    Ok(lower)
}

/// Asks for the run that these keys, or the first of them, probably go on with: its record, where a parent says (`child`, if
/// not 0) or where it should be. Where many follow one, what follows is probably the last of the path: then samples of where
/// the keys leave it are asked for, too, and the keys to be compared with those.
#[inline]
pub(crate) fn ask_for_run(view: &View, keys: &[BlockKey], child: RunId) {
    let ask = |run: RunId| view.records.get(run).into_iter().for_each(Record::prefetch);
    if child != 0 {
        ask(child);
        return;
    }
    let key = keys[0].0;
    view.first_keys.prefetch(key);
    view.records.homes(key).for_each(ask);
    if let Some(samples) = view.records.homes(key).next().and_then(|run| view.records.samples(run)) {
        samples.prefetch(keys);
    }
}

/// A run that a walk came to.
pub(crate) struct Found {
    run: RunId,
    pub(crate) version: u64,
    pub(crate) fields: Fields,
}

/// The run that is probably the one with this key, if it is.
#[inline]
pub(crate) fn guessed(view: &View, key: u64, run: RunId) -> Option<Found> {
    let record = view.records.get(run)?;
    let version = record.version();
    let fields = record.fields();
    let is_it = version % 2 == 0 && version != UNUSED && fields.first == key;
    is_it.then_some(Found { run, version, fields })
}

/// The run whose first block has this key, if it is where a parent says. If not, the table will say where it is: it is asked
/// together with the places where the run should be.
#[inline]
fn near_run(view: &View, key: u64, child: RunId) -> Option<Found> {
    if child != 0
        && let Some(found) = guessed(view, key, child)
    {
        return Some(found);
    }
    view.first_keys.prefetch(key);
    if let Some(likely) = view.records.likely(key) {
        return guessed(view, key, likely);
    }
    let homes = view.records.homes(key);
    homes.filter_map(|run| view.records.get(run)).for_each(Record::prefetch);
    None
}

/// The run whose first block has this key, with its fields; noted as visited.
fn find_run(view: &View, key: u64, child: RunId, answer: &mut Answer) -> Result<Option<Found>, Moved> {
    let found = match near_run(view, key, child) {
        Some(found) => Some(found),
        None => look_up_run(view, key)?,
    };
    answer
        .scratch
        .visited
        .extend(found.iter().map(|found| (found.run, found.version)));
    Ok(found)
}

/// The same, by the table.
fn look_up_run(view: &View, key: u64) -> Result<Option<Found>, Moved> {
    let mut others_before = 0;
    for _ in 0..GLANCES {
        let mut found = None;
        let mut strange = false;
        let mut others = 0;
        view.first_keys.find(key, |run| match view.records.get(run as u32) {
            // A record of a newer view, or one that was given up: look again.
            None => {
                strange = true;
                false
            }
            Some(record) => {
                let version = record.version();
                if version % 2 == 1 || version == UNUSED {
                    strange = true;
                    return false;
                }
                let fields = record.fields();
                if fields.first != key {
                    others += run;
                    return false;
                }
                let run = run as RunId;
                found = Some(Found { run, version, fields });
                true
            }
        });
        match found {
            Some(_) => return Ok(found),
            None if strange => pause(),
            // Runs with other keys: if they are still there they only look alike. If not, the one that is looked for
            // may have been renumbered, and its record used again.
            None if others != others_before => others_before = others,
            None => return Ok(None),
        }
    }
    Err(Moved)
}

#[cfg(not(shuttle))]
fn pause() {
    std::hint::spin_loop();
}

#[cfg(shuttle)]
fn pause() {
    shuttle::thread::yield_now();
}

/// How many blocks of the run the query goes along with. The first is known to match.
fn matched_blocks(view: &View, found: &Found, keys: &[BlockKey]) -> Result<usize, Moved> {
    let fields = &found.fields;
    let len = fields.shape.len as usize;
    let reach = len.min(keys.len());
    let words = view.heap.words(fields.blocks).ok_or(Moved)?;
    let side = Side {
        stored: words.get(..key_word(reach)).ok_or(Moved)?,
        keys: &keys[..reach],
    };
    // Where others left, this one may leave too. If it does, the line with the last key is not needed.
    let usual = fields.shape.departure as usize;
    if (1..reach).contains(&usual) && side.same(usual - 1) && !side.same(usual) {
        return Ok(usual);
    }
    if keys.get(len.wrapping_sub(1)).is_some_and(|key| key.0 == fields.last) {
        return Ok(len);
    }
    if reach <= FEW {
        return Ok(side.count(1, reach));
    }
    let samples = view.records.samples(found.run).ok_or(Moved)?;
    let (low, high) = samples.window(side.keys);
    let matched = side.count(low, high);
    // What samples say is not always so.
    let is_so = (low == 0 || side.same(low - 1)) && (high == reach || !side.same(high));
    Ok(if is_so { matched } else { side.search() })
}

/// Stored keys and the keys of a query, side by side. All that match come first.
struct Side<'a> {
    stored: &'a [AtomicU64],
    keys: &'a [BlockKey],
}

impl Side<'_> {
    #[inline]
    fn same(&self, offset: usize) -> bool {
        self.stored[key_word(offset)].load(Ordering::Relaxed) == self.keys[offset].0
    }

    /// How many match if all before `low` do and none from `high` on.
    #[inline]
    fn count(&self, low: usize, high: usize) -> usize {
        let lines = (low.saturating_sub(1)..high)
            .step_by(KEYS_PER_LINE)
            .chain(high.checked_sub(1));
        for offset in lines {
            prefetch(&self.stored[key_word(offset)]);
            prefetch(&self.keys[offset]);
        }
        low + (low..high).map(|offset| usize::from(self.same(offset))).sum::<usize>()
    }

    /// How many match, at least the first. Sixteen places are compared at once, because their loads do not wait for each
    /// other as those of a bisection do.
    #[cold]
    fn search(&self) -> usize {
        let (mut low, mut high) = (1, self.keys.len());
        while high - low > STRIDE {
            let step = (high - low).div_ceil(16).max(STRIDE);
            let probes = (low..high).skip(step - 1).step_by(step);
            low += step * probes.map(|offset| usize::from(self.same(offset))).sum::<usize>();
            high = high.min(low + step - 1);
        }
        self.count(low, high)
    }
}

/// Lets those go on who hold all of the matched blocks, and notes how far the others came.
fn meet_run(
    heap: &Directory,
    fields: &Fields,
    deepest: Tier,
    (pos, matched): (u32, u32),
    answer: &mut Answer,
) -> Result<(), Moved> {
    let mut coverage = Coverage::of(heap, fields, deepest)?;
    let scratch = &mut answer.scratch;
    zero(&mut scratch.stay);
    coverage
        .full
        .meet(&scratch.alive, &mut scratch.stay, heap)
        .ok_or(Moved)?;
    while let Some((cut, set)) = coverage.next_level() {
        let scratch = &mut answer.scratch;
        if u32::from(cut) >= matched {
            set.meet(&scratch.alive, &mut scratch.stay, heap).ok_or(Moved)?;
            continue;
        }
        zero(&mut scratch.part);
        set.meet(&scratch.alive, &mut scratch.part, heap).ok_or(Moved)?;
        // They come no further: what is left in the end holds nothing of this run.
        for (alive, part) in scratch.alive.iter_mut().zip(&scratch.part) {
            *alive &= !part;
        }
        answer.emit(pos + u32::from(cut), |scratch| &scratch.part);
    }
    if pos > 0 {
        let scratch = &mut answer.scratch;
        for (alive, stay) in scratch.alive.iter_mut().zip(&scratch.stay) {
            *alive &= !stay;
        }
        answer.emit(pos, |scratch| &scratch.alive);
    }
    std::mem::swap(&mut answer.scratch.alive, &mut answer.scratch.stay);
    Ok(())
}

/// Most sets are a word or a few: a loop is faster than the call that a fill becomes.
#[inline]
fn zero(words: &mut [u64]) {
    for word in words {
        *word = std::hint::black_box(0);
    }
}

/// A run's coverage for one tier, read level by level.
struct Coverage<'a> {
    full: SlotSet,
    inline: [(u16, SlotSet); 2],
    taken: usize,
    /// Pairs of a cut-off and a set.
    rest: &'a [AtomicU64],
}

impl<'a> Coverage<'a> {
    fn of(heap: &'a Directory, fields: &Fields, deepest: Tier) -> Result<Self, Moved> {
        let [a, b] = fields.levels;
        let inline = [(fields.shape.cuts[0], a), (fields.shape.cuts[1], b)];
        if fields.extra == 0 {
            return Ok(Self {
                full: fields.full,
                inline,
                taken: 0,
                rest: &[],
            });
        }
        let words = heap.words(fields.extra).ok_or(Moved)?;
        let (pairs, mut after) = split_pairs(words.get(1..).ok_or(Moved)?)?;
        if deepest == Tier::Device || fields.shape.flags & HAS_LOWER == 0 {
            return Ok(Self {
                full: fields.full,
                inline,
                taken: 0,
                rest: pairs,
            });
        }
        for tier in [Tier::Host, Tier::Disk, Tier::External] {
            let (full, rest) = after.split_first().ok_or(Moved)?;
            let (pairs, next) = split_pairs(rest)?;
            if tier == deepest {
                let full = SlotSet(full.load(Ordering::Relaxed));
                return Ok(Self {
                    full,
                    inline,
                    taken: 2,
                    rest: pairs,
                });
            }
            after = next;
        }
        Err(Moved)
    }

    fn next_level(&mut self) -> Option<(u16, SlotSet)> {
        while let Some(level) = self.inline.get(self.taken) {
            self.taken += 1;
            if !level.1.is_empty() {
                return Some(*level);
            }
        }
        match self.rest {
            [cut, set, rest @ ..] => {
                self.rest = rest;
                Some((cut.load(Ordering::Relaxed) as u16, SlotSet(set.load(Ordering::Relaxed))))
            }
            _ => None,
        }
    }
}

/// Words that begin with a number of pairs, split behind them.
fn split_pairs(words: &[AtomicU64]) -> Result<(&[AtomicU64], &[AtomicU64]), Moved> {
    let (count, rest) = words.split_first().ok_or(Moved)?;
    let count = count.load(Ordering::Relaxed) as usize;
    // A torn count must not be multiplied beyond what there is.
    if count > rest.len() / 2 {
        return Err(Moved);
    }
    Ok(rest.split_at(2 * count))
}
