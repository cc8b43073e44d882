//! Is every settled answer the state at one instant, however readers and the writer take turns?
//!
//! A *scene* is a small history: what is there at first, and events that are applied while readers look up. It is played
//! under many schedules; each atomic access is a point where another thread may go on. The oracle tells in advance what
//! is true after each event, and a settled answer must be one of the truths between the call's beginning and its end,
//! as a whole. Answers that did not settle are only counted.
//!
//! A failure prints a schedule; `shuttle::replay` repeats it.
#![expect(clippy::unwrap_used, reason = "a test may fail anywhere, helpers included")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use homing_domain::{
    BlockKey, ClearScope, ContentHash, HashSeed, KeyHasher, Label, RankId, Removed, Stored, StoredBlock, Tier,
};
use homing_index::testing::Oracle;
use homing_index::{Answer, Bug, Copies, Index, IndexConfig, Reader, Slot};
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};

/// Schedules in a batch: a quarter of them random, the rest with one or two changes of turn at random places.
const BATCH: usize = 400;
/// Batches per scene.
const BATCHES: u64 = 15;
/// Lookups per reader at most; it stops when the writer is done.
const LOOKUPS: usize = 16;

/// One event. A path is written as letters, one for each block; what is before the bar is there already.
#[derive(Clone, Debug)]
enum Act {
    Add(u32),
    Store(u32, &'static str),
    StoreTo(u32, Tier, &'static str),
    /// Blocks with a parent that the rank does not know.
    StoreAfterUnknown(u32, &'static str),
    Remove(u32, &'static str),
    RemoveFrom(u32, Tier, &'static str),
    Clear(u32),
    ClearTier(u32, Tier),
    Drop(u32),
    /// A draft for the rank, filled with a path.
    Draft(u32, &'static str),
    Publish(u32),
    /// So much housekeeping.
    Maintain(u32),
    /// All housekeeping.
    Settle,
}
use Act::{
    Add, Clear, ClearTier, Draft, Drop, Maintain, Publish, Remove, RemoveFrom, Settle, Store, StoreAfterUnknown,
    StoreTo,
};

#[derive(Clone, Debug)]
struct Scene {
    /// Slots taken by others, so that sets take other forms.
    fillers: u32,
    max_ranks: usize,
    before: Vec<Act>,
    meanwhile: Vec<Act>,
    queries: Vec<&'static str>,
    memory: Memory,
}

/// Who makes chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Memory {
    ByWriter,
    /// A thread of its own, so often at most.
    Beside(usize),
}

impl Scene {
    fn new(before: &[Act], meanwhile: &[Act], queries: &[&'static str]) -> Self {
        Self {
            fillers: 0,
            max_ranks: 400,
            before: before.to_vec(),
            meanwhile: meanwhile.to_vec(),
            queries: queries.to_vec(),
            memory: Memory::ByWriter,
        }
    }
}

fn hasher() -> KeyHasher {
    KeyHasher::new(HashSeed::PUBLIC)
}

fn keys(path: &str) -> Vec<BlockKey> {
    let mut key = hasher().root();
    let follow = |letter: char| {
        key = hasher().child(key, content(letter));
        key
    };
    path.chars().map(follow).collect()
}

fn content(letter: char) -> ContentHash {
    ContentHash(u64::from(letter).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// All ranks call a block alike: by its key, which is as good a name as any.
fn label(path: &str) -> Label {
    Label::new(keys(path).last().map_or(0, |key| key.0))
}

/// "ab|cd" is the blocks c and d after a and b.
fn stored(path: &str) -> Stored {
    let (parent, rest) = path.split_once('|').unwrap_or(("", path));
    let mut so_far = parent.to_owned();
    let block = |letter: char| {
        so_far.push(letter);
        StoredBlock {
            label: label(&so_far),
            content: content(letter),
        }
    };
    let blocks = rest.chars().map(block).collect();
    Stored::plain((!parent.is_empty()).then(|| label(parent)), blocks)
}

fn stored_by(act: &Act) -> Stored {
    match act {
        StoreTo(_, tier, path) => Stored {
            tier: *tier,
            ..stored(path)
        },
        StoreAfterUnknown(_, path) => Stored {
            parent: Some(Label::new(4711)),
            ..stored(path)
        },
        Store(_, path) | Draft(_, path) => stored(path),
        _ => unreachable!("{act:?} stores nothing"),
    }
}

fn removed_by(act: &Act) -> Removed {
    let (tier, path) = match act {
        Remove(_, path) => (Tier::Device, path),
        RemoveFrom(_, tier, path) => (*tier, path),
        _ => unreachable!("{act:?} removes nothing"),
    };
    let labels = stored(path).blocks.iter().map(|block| block.label).collect();
    Removed {
        tier,
        ..Removed::plain(labels)
    }
}

fn rank_id(rank: u32) -> RankId {
    RankId::new(rank, 0)
}

/// For each rank how deep it reaches on each choice of tiers.
type Depths = BTreeMap<RankId, [u32; Tier::COUNT]>;

/// What is right after each number of events, for each query.
#[derive(Debug)]
struct Truths(Vec<Vec<Depths>>);

impl Truths {
    fn of(scene: &Scene) -> Self {
        let mut oracle = Oracle::new(hasher(), 100);
        let mut drafts = BTreeMap::new();
        for act in &scene.before {
            tell(&mut oracle, act, &mut drafts);
        }
        let look = |oracle: &Oracle| scene.queries.iter().map(|query| oracle.lookup(&keys(query))).collect();
        let mut truths = vec![look(&oracle)];
        for act in &scene.meanwhile {
            tell(&mut oracle, act, &mut drafts);
            truths.push(look(&oracle));
        }
        Self(truths)
    }
}

fn tell(oracle: &mut Oracle, act: &Act, drafts: &mut BTreeMap<u32, Stored>) {
    match act {
        Add(rank) => oracle.add_rank(rank_id(*rank), Copies::Counted),
        Store(rank, _) | StoreTo(rank, _, _) | StoreAfterUnknown(rank, _) => {
            oracle.store(rank_id(*rank), &stored_by(act));
        }
        Remove(rank, _) | RemoveFrom(rank, _, _) => {
            oracle.remove(rank_id(*rank), &removed_by(act));
        }
        Clear(rank) => oracle.clear(rank_id(*rank), ClearScope::AllTiers),
        ClearTier(rank, tier) => oracle.clear(rank_id(*rank), ClearScope::Only(*tier)),
        Drop(rank) => oracle.drop_rank(rank_id(*rank)),
        Draft(rank, _) => {
            drafts.insert(*rank, stored_by(act));
        }
        Publish(rank) => {
            oracle.add_rank(rank_id(*rank), Copies::Counted);
            oracle.store(rank_id(*rank), &drafts[rank]);
        }
        Maintain(_) | Settle => {}
    }
}

/// The writer's side of a scene.
struct Writer {
    index: Index,
    slots: BTreeMap<u32, Slot>,
    drafts: BTreeMap<u32, Slot>,
}

impl Writer {
    fn new(scene: &Scene, bug: Option<Bug>) -> Self {
        let config = IndexConfig {
            max_ranks: scene.max_ranks,
            bug,
            ..IndexConfig::new(hasher())
        };
        let mut index = Index::new(config);
        for filler in 0..scene.fillers {
            index.add_rank(RankId::new(1000 + filler, 0), Copies::Counted).unwrap();
        }
        Self {
            index,
            slots: BTreeMap::new(),
            drafts: BTreeMap::new(),
        }
    }

    fn play(&mut self, act: &Act) {
        let slot = |rank: &u32| self.slots[rank];
        match act {
            Add(rank) => {
                self.slots
                    .insert(*rank, self.index.add_rank(rank_id(*rank), Copies::Counted).unwrap());
            }
            Store(rank, _) | StoreTo(rank, _, _) | StoreAfterUnknown(rank, _) => {
                self.index.store(slot(rank), &stored_by(act)).unwrap();
            }
            Remove(rank, _) | RemoveFrom(rank, _, _) => {
                self.index.remove(slot(rank), &removed_by(act)).unwrap();
            }
            Clear(rank) => {
                self.slots
                    .insert(*rank, self.index.clear(slot(rank), ClearScope::AllTiers).unwrap());
            }
            ClearTier(rank, tier) => {
                self.index.clear(slot(rank), ClearScope::Only(*tier)).unwrap();
            }
            Drop(rank) => self.index.drop_rank(slot(rank)).unwrap(),
            Draft(rank, _) => {
                let draft = self.index.draft(rank_id(*rank), Copies::Counted).unwrap();
                self.index.store(draft, &stored_by(act)).unwrap();
                self.drafts.insert(*rank, draft);
            }
            Publish(rank) => {
                let draft = self.drafts[rank];
                self.index.publish(draft).unwrap();
                self.slots.insert(*rank, draft);
            }
            Maintain(work) => {
                self.index.maintain(*work);
            }
            Settle => while self.index.maintain(8).is_pending() {},
        }
    }
}

/// How far the writer is. These atomics are not the explorer's: to touch them is no point to change turns.
#[derive(Debug, Default)]
struct Progress {
    begun: AtomicUsize,
    done: AtomicUsize,
}

/// What came of all schedules of a scene.
#[derive(Debug, Default)]
struct Tally {
    settled: AtomicUsize,
    unsettled: AtomicUsize,
    /// Answers of a lookup during which at least one event began or ended.
    overlapping: AtomicUsize,
    /// Chunks made beside the writer.
    made: AtomicUsize,
    wrong: Mutex<Option<String>>,
    /// After how many events an answer was right.
    moments: Mutex<BTreeSet<usize>>,
}

/// What to do about a wrong answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wrong {
    Panics,
    IsNoted,
}

fn look(scene: &Scene, truths: &Truths, reader: &Reader, progress: &Progress, tally: &Tally, wrong: Wrong) {
    let mut answer = Answer::default();
    for round in 0..LOOKUPS {
        let query = round % scene.queries.len();
        let from = progress.done.load(Ordering::Relaxed);
        reader.lookup(&keys(scene.queries[query]), &mut answer);
        let to = progress.begun.load(Ordering::Relaxed);
        let possible: Vec<&Depths> = (from..=to).map(|moment| &truths.0[moment][query]).collect();
        let found = depths(&answer);
        if !answer.is_settled() {
            tally.unsettled.fetch_add(1, Ordering::Relaxed);
        } else if let Some(after) = possible.iter().position(|truth| **truth == found) {
            tally.settled.fetch_add(1, Ordering::Relaxed);
            tally.overlapping.fetch_add(usize::from(from != to), Ordering::Relaxed);
            tally.moments.lock().unwrap().insert(from + after);
        } else {
            let what = format!(
                "{found:?} for {:?} after {from} to {to} of {:?}, where only {possible:?} were ever true",
                scene.queries[query], scene.meanwhile
            );
            assert_eq!(wrong, Wrong::IsNoted, "{what}");
            *tally.wrong.lock().unwrap() = Some(what);
            return;
        }
        if from == scene.meanwhile.len() {
            return;
        }
    }
}

fn depths(answer: &Answer) -> Depths {
    let ranks = answer.ranks().filter(|(rank, _)| rank.worker.0 < 1000);
    ranks
        .map(|(rank, slot)| (rank, Tier::ALL.map(|tier| answer.depth(slot, tier).0)))
        .collect()
}

/// Plays a scene once, under whichever schedule.
fn play(scene: &Arc<Scene>, truths: &Arc<Truths>, tally: &Arc<Tally>, readers: usize, bug: Option<Bug>) {
    let mut writer = Writer::new(scene, bug);
    // While a handle is there the writer asks for its chunks, also for those of the beginning.
    let spares = (scene.memory != Memory::ByWriter).then(|| writer.index.spares());
    scene.before.iter().for_each(|act| writer.play(act));
    let progress = Arc::new(Progress::default());
    let wrong = if bug.is_some() { Wrong::IsNoted } else { Wrong::Panics };
    let threads: Vec<_> = (0..readers)
        .map(|_| {
            let (scene, truths, tally) = (scene.clone(), truths.clone(), tally.clone());
            let (reader, progress) = (writer.index.reader(), progress.clone());
            shuttle::thread::spawn(move || look(&scene, &truths, &reader, &progress, &tally, wrong))
        })
        .collect();
    let maker = spares.map(|spares| {
        let Memory::Beside(chunks) = scene.memory else {
            unreachable!("only then is there a handle")
        };
        shuttle::thread::spawn(move || (0..chunks).filter(|_| spares.make()).count())
    });
    for (number, act) in scene.meanwhile.iter().enumerate() {
        progress.begun.store(number + 1, Ordering::Relaxed);
        writer.play(act);
        progress.done.store(number + 1, Ordering::Relaxed);
    }
    for thread in threads {
        thread.join().unwrap();
    }
    if let Some(maker) = maker {
        tally.made.fetch_add(maker.join().unwrap(), Ordering::Relaxed);
    }
    if bug.is_none() {
        writer.index.verify().unwrap();
    }
}

/// Plays a scene under so many batches of schedules, or until one shows something wrong.
fn explore(scene: &Scene, batches: u64, bug: Option<Bug>) -> Arc<Tally> {
    let (scene, truths, tally) = (
        Arc::new(scene.clone()),
        Arc::new(Truths::of(scene)),
        Arc::new(Tally::default()),
    );
    for seed in 0..batches {
        explore_batch(&scene, &truths, &tally, seed, bug);
        if tally.wrong.lock().unwrap().is_some() {
            break;
        }
    }
    tally
}

fn explore_batch(scene: &Arc<Scene>, truths: &Arc<Truths>, tally: &Arc<Tally>, seed: u64, bug: Option<Bug>) {
    let schedulers: [(Box<dyn Scheduler + Send>, usize); 3] = [
        (Box::new(RandomScheduler::new_from_seed(seed, BATCH / 4)), 1),
        (Box::new(PctScheduler::new_from_seed(seed, 2, BATCH / 2)), 1),
        (Box::new(PctScheduler::new_from_seed(seed, 3, BATCH / 4)), 2),
    ];
    for (scheduler, readers) in schedulers {
        let mut config = shuttle::Config::new();
        config.stack_size = 1 << 18;
        let (scene, truths, tally) = (scene.clone(), truths.clone(), tally.clone());
        shuttle::Runner::new(scheduler, config).run(move || {
            play(&scene, &truths, &tally, readers, bug);
        });
    }
}

fn check(name: &str, scene: &Scene) {
    let tally = explore(scene, BATCHES, None);
    let count = |counter: &AtomicUsize| counter.load(Ordering::Relaxed);
    let (settled, unsettled) = (count(&tally.settled), count(&tally.unsettled));
    let moments = tally.moments.lock().unwrap().len();
    println!(
        "{name}: {settled} answers settled, {} of them with an event under way, in {moments} different moments; \
         {unsettled} did not settle",
        count(&tally.overlapping)
    );
    assert!(
        unsettled < settled && count(&tally.overlapping) > 0,
        "the schedules show nothing"
    );
    if scene.memory != Memory::ByWriter {
        assert!(count(&tally.made) > 0, "no chunk was wanted");
    }
}

macro_rules! scenes {
    ($($(#[doc = $doc:literal])* fn $name:ident() -> Scene $body:block)*) => {
        mod scenes {
            use super::*;
            $($(#[doc = $doc])* pub(super) fn $name() -> Scene $body)*
            pub(super) const ALL: &[(&str, fn() -> Scene)] = &[$((stringify!($name), $name)),*];
        }
        $(#[test] fn $name() { check(stringify!($name), &scenes::$name()); })*
    };
}

scenes! {
    /// Those who held all of a run hold a leading part when another rank lets it grow.
    fn a_run_grows_under_those_who_held_all_of_it() -> Scene {
        Scene::new(
            &[Add(1), Add(2), Store(1, "abc"), Store(2, "abc")],
            &[Store(2, "abc|d"), Store(2, "abcd|e"), Store(1, "abc|de"), Store(1, "abcde|fgh")],
            &["abcdefgh"],
        )
    }

    /// A run moves to a larger extent, and back to a smaller one.
    fn a_run_moves_to_another_extent() -> Scene {
        Scene::new(
            &[Add(1), Add(2), Store(1, "ab")],
            &[Store(1, "ab|cde"), Store(2, "abcx"), Store(1, "abcde|fghijk"), Remove(1, "ab|cdefghijk")],
            &["abcdefghijk", "abcx", "abz"],
        )
    }

    /// One store and one removal over three runs: all of it or nothing.
    fn a_store_over_several_runs_appears_and_disappears_at_once() -> Scene {
        Scene::new(
            &[Add(1), Add(2), Add(3), Store(1, "abc"), Store(2, "abx"), Store(1, "abc|def"), Store(2, "abx|yz"),
              Store(3, "abxyp"), Store(2, "abxyp")],
            &[Store(1, "abxypq"), Remove(1, "|abxypq"), Store(1, "abxyp"), Remove(1, "abx|yp"), Remove(2, "a|bxyp")],
            &["abxypq", "abcdef"],
        )
    }

    /// New runs behind known ones, in one event that is longer than a run may be.
    fn a_store_makes_several_new_runs() -> Scene {
        Scene::new(
            &[Add(1), Add(2), Store(1, "abcd"), Store(2, "abcd")],
            &[Store(2, "ab|opqrstuvwxyzOPQR"), Remove(2, "ab|opqrstuvwxyzOPQR"), Store(1, "abopqrstuvwxyzOP")],
            &["abopqrstuvwxyzOPQR"],
        )
    }

    /// A run is cut shorter, given up, and its record used again for another run with another first key.
    fn a_record_is_used_again() -> Scene {
        Scene::new(
            &[Add(1), Add(2), Store(1, "abc"), Store(1, "abx")],
            &[Remove(1, "ab|x"), Store(2, "mno"), Remove(2, "mno"), Store(1, "ab|xy"), Remove(1, "|abc"),
              Store(2, "abxy"), Remove(2, "|abxy"), Store(2, "pq")],
            &["abxy", "mno", "abc", "pq"],
        )
    }

    /// Queries depart in mid-run, and find what follows there by its key.
    fn children_come_and_go_in_mid_run() -> Scene {
        Scene::new(
            &[Add(1), Add(2), Store(1, "abcdef"), Store(2, "abcdef")],
            &[Store(1, "abc|xy"), Store(2, "abcd|pq"), Store(2, "abc|xy"), Remove(1, "abc|xy"), Remove(2, "abc|xy")],
            &["abcxy", "abcdpq", "abcdef"],
        )
    }

    /// A run and the only one that follows it become one.
    fn a_run_becomes_one_with_its_only_child() -> Scene {
        Scene::new(
            &[Add(1), Add(2), Store(1, "abcd"), Store(2, "abxy"), Store(1, "abxy")],
            &[Remove(1, "ab|cd"), Settle, Store(2, "abxy|z"), Settle, Store(1, "ab|cd"), Remove(2, "ab|xyz"), Settle],
            &["abxyz", "abcd"],
        )
    }

    /// Holes in mid-run and in mid-path, and what lies behind them.
    fn holes_open_and_close() -> Scene {
        Scene::new(
            &[Add(1), Add(2), Store(1, "abcd"), Store(2, "abx"), Store(1, "abcd|efg"), Store(1, "abx")],
            &[Remove(1, "a|b"), Store(1, "a|b"), Remove(1, "|a"), Store(2, "abcdefg"), Store(1, "a")],
            &["abcdefg", "abx"],
        )
    }

    /// Copies on lower tiers, in more than one run.
    fn lower_tiers_are_of_one_instant() -> Scene {
        Scene::new(
            &[Add(1), Add(2), Store(1, "abcd"), StoreTo(2, Tier::Host, "abcd"), Store(1, "abx"), Store(2, "pq")],
            &[Store(1, "abcd|ef"), StoreTo(2, Tier::Host, "abcd|ef"), Store(2, "abcdef"),
              RemoveFrom(2, Tier::Host, "abcdef"), ClearTier(2, Tier::Device)],
            &["abcdef", "abx"],
        )
    }

    /// A child comes while a lookup walks the same path once for each tier.
    fn a_child_comes_between_the_walks_for_two_tiers() -> Scene {
        Scene::new(
            &[Add(1), Add(2), Store(1, "abc"), StoreTo(2, Tier::Host, "abc"), Store(1, "abx"), Store(1, "aby")],
            &[Store(1, "ab|pq"), Remove(1, "ab|pq")],
            &["abpq"],
        )
    }

    /// What waited for its parent joins with it, as one event.
    fn orphans_join() -> Scene {
        Scene::new(
            &[Add(1), Add(2), Store(2, "abcx"), Store(1, "abc|de"), Store(1, "ab|c"), Store(1, "abcde|f")],
            &[Store(1, "ab"), Remove(1, "|a"), Store(1, "a")],
            &["abcdef", "abcx"],
        )
    }

    /// The parent's name is unknown, but the first block's is not: it goes to the device, and what follows with it.
    fn a_store_without_a_known_parent_appears_at_once() -> Scene {
        Scene::new(
            &[Add(1), Add(2), Store(2, "abx"), Store(1, "a"), StoreTo(1, Tier::Host, "a|bc")],
            &[StoreAfterUnknown(1, "a|bcd"), Remove(1, "a|bcd"), StoreAfterUnknown(1, "a|bcde")],
            &["abcde"],
        )
    }

    /// The table of first keys splits a segment, and joins it again when most runs are gone.
    fn the_table_splits_and_joins() -> Scene {
        let many = ["b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p", "q", "r", "s", "t", "u",
            "v", "w", "x", "y", "z"];
        let mut before = vec![Add(1), Add(2)];
        before.extend(many.map(|path| Store(1, path)));
        let mut meanwhile = vec![Store(2, "AB"), Store(2, "AC"), Store(1, "ADE"), Store(2, "F"), Store(1, "GH")];
        meanwhile.extend(many[..20].iter().map(|path| Remove(1, path)));
        meanwhile.push(Settle);
        Scene::new(&before, &meanwhile, &["ADE", "zA", "F", "GH", "AC"])
    }

    /// The event that splits a segment also covers a run that is there already, and has a sweep to go on with.
    fn the_table_splits_while_a_slot_is_swept() -> Scene {
        // Eleven runs fill a segment; the next one splits it, whatever its key.
        let mut before = vec![Add(1), Add(2), Add(3), Store(2, "AB"), Store(2, "AC"), Store(3, "AB")];
        before.extend(["b", "c", "d", "e", "f", "g", "h", "i", "j"].map(|path| Store(2, path)));
        // Both places where the record of G belongs are taken, so that it is found by the table only.
        Scene::new(&before, &[Clear(3), Store(1, "AGH"), Remove(1, "|AGH")], &["AGH"])
    }

    /// Chunks of the heap are opened, emptied, dropped, and their numbers used again.
    fn the_heap_is_compacted() -> Scene {
        let long = ["abcdefghijkl", "bcdefghijkla", "cdefghijklab", "defghijklabc", "efghijklabcd", "fghijklabcde",
            "ghijklabcdef", "hijklabcdefg", "ijklabcdefgh", "jklabcdefghi", "klabcdefghij", "labcdefghijk",
            "mbcdefghijkl", "nbcdefghijkl", "obcdefghijkl", "pbcdefghijkl", "qbcdefghijkl", "rbcdefghijkl",
            "sbcdefghijkl", "tbcdefghijkl", "ubcdefghijkl", "vbcdefghijkl"];
        let mut before = vec![Add(1), Add(2)];
        before.extend(long[..20].iter().map(|path| Store(1, path)));
        before.push(Store(2, "abcdefx"));
        let mut meanwhile = vec![Store(2, "mbcdefghijkl")];
        meanwhile.extend(long[1..12].iter().map(|path| Remove(1, path)));
        meanwhile.extend(long[13..18].iter().map(|path| Remove(1, path)));
        meanwhile.extend([Settle, Store(2, long[20]), Store(2, long[21]), Store(1, "abcdefx"), Settle]);
        Scene::new(&before, &meanwhile, &["abcdefx", "mbcdefghijkx", "abcdefghijkl", "ubcdefghijx"])
    }

    /// Runs get lower numbers when most are gone, and the numbers that they had are used again.
    fn runs_are_renumbered() -> Scene {
        let many = ["b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p", "q", "r", "s", "t", "u",
            "v", "w", "x", "y", "z", "B", "C", "D", "E", "F"];
        let mut before = vec![Add(1), Add(2), Store(1, "abc")];
        before.extend(many.map(|path| Store(1, path)));
        // These two are in the second chunk of records.
        before.extend([Store(1, "abx"), Store(2, "abxy"), Store(2, "G")]);
        before.extend(many[..8].iter().map(|path| Remove(1, path)));
        let mut meanwhile = vec![Maintain(8), Maintain(8)];
        meanwhile.extend(["H", "I", "J", "K", "L", "M", "N", "O"].map(|path| Store(2, path)));
        Scene::new(&before, &meanwhile, &["abxy", "abc", "G"])
    }

    /// The highest chunk of records is emptied, dropped, and opened again; then all runs are swept.
    fn a_chunk_of_records_is_opened_again() -> Scene {
        let many = ["b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p", "q", "r", "s", "t", "u",
            "v", "w", "x", "y", "z", "B", "C", "D", "E", "F"];
        let mut before = vec![Add(1), Add(2), Store(1, "abc")];
        before.extend(many.map(|path| Store(1, path)));
        before.extend([Store(2, "G"), Store(2, "H"), Store(1, "abx"), Store(2, "abxy")]);
        before.extend(many[..8].iter().map(|path| Remove(1, path)));
        let mut meanwhile = vec![Settle];
        meanwhile.extend(["I", "J", "K", "L", "M", "N", "O"].map(|path| Store(2, path)));
        meanwhile.extend([Clear(1), Settle, Store(1, "abx")]);
        Scene::new(&before, &meanwhile, &["abxy", "O"])
    }

    /// The same chunks of the heap, made by a thread beside the writer: in time, too late, or while one is taken.
    fn chunks_are_made_beside_the_writer() -> Scene {
        Scene { memory: Memory::Beside(6), ..the_heap_is_compacted() }
    }

    /// And those of records, and of tables.
    fn chunks_of_records_are_made_beside_the_writer() -> Scene {
        Scene { memory: Memory::Beside(6), ..a_chunk_of_records_is_opened_again() }
    }

    /// A rank is emptied and filled again; its old slot is swept while the new one is in use.
    fn a_rank_is_cleared() -> Scene {
        Scene::new(
            &[Add(1), Add(2), Store(1, "abc"), Store(2, "abx"), Store(2, "abcde"), Store(1, "abcde")],
            &[Clear(1), Store(1, "ab"), Settle, Clear(1), Store(1, "abx"), Clear(2), Settle, Store(2, "abcd")],
            &["abcde", "abx"],
        )
    }

    /// The same with no slot to spare: the sweep comes first.
    fn a_rank_is_cleared_when_slots_are_scarce() -> Scene {
        let scene = Scene::new(
            // The run of x is swept before that of ab: its key gives it a lower number.
            &[Add(1), Store(1, "q"), Store(1, "abc"), Remove(1, "q"), Store(1, "abx"), Store(1, "cdefghijklab"),
              Store(1, "defghijklabc"), Store(1, "efghijklabcd"), Store(1, "fghijklabcde")],
            &[Clear(1), Store(1, "abx"), Clear(1), Store(1, "ab")],
            &["abx"],
        );
        Scene { max_ranks: 1, ..scene }
    }

    /// A rank's content is replaced as a whole.
    fn a_draft_takes_the_place_of_a_rank() -> Scene {
        Scene::new(
            &[Add(1), Add(2), Store(1, "abc"), Store(2, "abxy"), Store(1, "abxy")],
            &[Draft(1, "abcdef"), Publish(1), Settle, Draft(1, "abx"), Store(1, "abxy"), Publish(1), Settle],
            &["abcdef", "abxy"],
        )
    }

    /// A rank leaves, and another takes its slot after it was swept.
    fn a_slot_is_used_again() -> Scene {
        Scene::new(
            &[Add(1), Add(2), Store(1, "abcd"), Store(2, "abcd"), Store(2, "abxy")],
            &[Drop(2), Settle, Add(3), Store(3, "ab"), Drop(1), Add(2), Settle, Add(1), Store(1, "abx")],
            &["abcd", "abxy"],
        )
    }

    /// Slots with high numbers: sets of a few ids.
    fn sets_of_ids() -> Scene {
        let scene = Scene::new(
            &[Add(1), Add(2), Add(3), Store(1, "abcd"), Store(2, "abcd"), Store(1, "abxy")],
            &[Store(3, "abcd"), Remove(2, "ab|cd"), Store(3, "abxy"), Remove(1, "|abcd"), Store(2, "abxyz")],
            &["abcd", "abxyz"],
        );
        Scene { fillers: 64, ..scene }
    }

    /// Slots with high numbers: sets of words by pointer, changed in place and moved.
    fn sets_of_words() -> Scene {
        let mut before: Vec<Act> = (1..=7).map(Add).collect();
        before.extend((1..=6).map(|rank| Store(rank, "abcd")));
        before.extend((1..=6).map(|rank| Store(rank, "abxy")));
        let scene = Scene::new(
            &before,
            &[Store(7, "abcd"), Remove(1, "ab|cd"), Remove(2, "ab|cd"), Store(7, "abxy"), Remove(3, "abc|d"),
              Remove(4, "|abcd"), Store(2, "ab|cd"), Clear(5), Settle],
            &["abcd", "abxy"],
        );
        Scene { fillers: 64, ..scene }
    }
}

#[test]
fn every_planted_bug_is_found() {
    let finds = |bug: Bug| {
        scenes::ALL.iter().find(|(_, scene)| {
            explore(&scene(), BATCHES / 3, Some(bug))
                .wrong
                .lock()
                .unwrap()
                .is_some()
        })
    };
    for bug in Bug::CONCURRENT {
        let found = finds(bug);
        println!("{bug:?}: found by {:?}", found.map(|(name, _)| name));
        assert!(found.is_some(), "{bug:?} was not found");
    }
}
