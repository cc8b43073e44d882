//! One worker or two, and which two? From numbers alone.

use homing_disagg::choose::{Because, Named};
use homing_disagg::{
    Alone, ChooseSettings, Decoder, Enforce, Judge, PairChoice, Prefiller, Reads, Refused, Scene, Topology, Traits,
    Way, Whether, Whole, choose,
};
use homing_domain::{ModelName, RankId, Tokens};
use homing_profile::{GigabytesPerSecond, Millis};
use homing_scheduler::{Draw, Label};
use proptest::prelude::*;

/// A fleet as numbers: times of prefill workers, waits and steps of decode workers, times of whole ones.
#[derive(Clone, Debug, Default)]
struct Fleet {
    prefills: Vec<(f64, Vec<Label>, u64)>,
    decodes: Vec<(f64, f64, Vec<Label>, u32)>,
    wholes: Vec<(f64, u32)>,
    rate: f64,
    reads: Reads,
    alone: Option<Alone>,
    temperature: f64,
    draw: u64,
}

const PROMPT: Tokens = Tokens(10_000);

impl Fleet {
    fn choose(&self, settings: &ChooseSettings) -> Result<PairChoice, Refused> {
        let mut traits = Traits::by_result();
        traits.rate = GigabytesPerSecond(self.rate);
        traits.reads = self.reads;
        let rank = |first: u32, at: usize| RankId::new(first + at as u32, 0);
        let prefills = self
            .prefills
            .iter()
            .enumerate()
            .map(|(at, (time, labels, leaving))| Prefiller {
                rank: rank(0, at),
                cost: *time,
                first_token: Millis(*time),
                queued: 0,
                staged: (0, u64::MAX),
                has_room: true,
                leaving: *leaving,
                traits: &traits,
                labels,
            });
        let decodes = self
            .decodes
            .iter()
            .enumerate()
            .map(|(at, (wait, step, labels, cached))| Decoder {
                rank: rank(1_000, at),
                cost: wait + 10.0 * step,
                first_token: Millis(*wait),
                ready: Millis(*wait),
                step: Millis(*step),
                cached: Tokens(*cached),
                arriving: 0,
                traits: &traits,
                labels,
            });
        let wholes = self.wholes.iter().enumerate().map(|(at, (time, decoding))| Whole {
            rank: rank(2_000, at),
            cost: *time,
            first_token: Millis(*time),
            stalls: Millis(*time),
            uncached: PROMPT,
            decoding: *decoding,
        });
        let (prefills, decodes, wholes): (Vec<_>, Vec<_>, Vec<_>) =
            (prefills.collect(), decodes.collect(), wholes.collect());
        let model = ModelName::from("m");
        let scene = Scene {
            model: &model,
            prompt: PROMPT,
            bytes_per_token: 100_000,
            prefills: &prefills,
            decodes: &decodes,
            wholes: &wholes,
            alone: self.alone.unwrap_or(Alone::Allowed),
            named: Named::NoPrefill,
            temperature: self.temperature,
            draw: Draw(self.draw),
        };
        choose(settings, &scene)
    }

    fn pair(&self, settings: &ChooseSettings) -> (usize, usize) {
        match self.choose(settings).expect("there is somebody").way {
            Way::Pair(pairing) => (pairing.prefill, pairing.decode),
            Way::Whole(at) => panic!("one worker, {at}"),
        }
    }
}

fn exact() -> ChooseSettings {
    ChooseSettings {
        whether: Whether::Always,
        error: 0.0,
        ..ChooseSettings::default()
    }
}

fn rack(value: &str) -> Vec<Label> {
    vec![Label::new("rack", value)]
}

#[test]
fn together_is_better_than_one_after_the_other_where_links_matter() {
    // The first prefill worker is quicker by little, and its link is taken.
    let fleet = Fleet {
        prefills: vec![(100.0, Vec::new(), 2_000_000_000), (110.0, Vec::new(), 0)],
        decodes: vec![(0.0, 5.0, Vec::new(), 0)],
        rate: 10.0,
        ..Fleet::default()
    };
    assert_eq!(fleet.pair(&exact()), (1, 0));
    let one_by_one = ChooseSettings {
        judge: Judge::OneAfterTheOther,
        ..exact()
    };
    assert_eq!(fleet.pair(&one_by_one), (0, 0));
}

#[test]
fn a_decode_worker_that_is_free_when_the_prompt_is_done_is_as_good_as_one_that_is_free_now() {
    let fleet = Fleet {
        prefills: vec![(500.0, Vec::new(), 0)],
        decodes: vec![(0.0, 6.0, Vec::new(), 0), (400.0, 5.0, Vec::new(), 0)],
        ..Fleet::default()
    };
    assert_eq!(fleet.pair(&exact()), (0, 1), "it is quicker afterwards");
}

#[test]
fn overlap_on_the_decode_worker_counts_only_where_missing_blocks_travel() {
    let mut fleet = Fleet {
        prefills: vec![(100.0, Vec::new(), 0)],
        decodes: vec![(0.0, 5.0, Vec::new(), 0), (0.0, 6.0, Vec::new(), 9_000)],
        rate: 10.0,
        reads: Reads::All,
        ..Fleet::default()
    };
    assert_eq!(fleet.pair(&exact()), (0, 0));
    fleet.reads = Reads::Missing;
    assert_eq!(fleet.pair(&exact()), (0, 1));
}

#[test]
fn two_have_to_be_better_by_more_than_predictions_are_off() {
    let settings = ChooseSettings {
        whether: Whether::Predicted {
            stall: 0.0,
            margin: 0.1,
        },
        ..exact()
    };
    let fleet = |whole: f64| Fleet {
        prefills: vec![(95.0, Vec::new(), 0)],
        decodes: vec![(0.0, 0.0, Vec::new(), 0)],
        wholes: vec![(whole, 0)],
        ..Fleet::default()
    };
    let because = |whole: f64| fleet(whole).choose(&settings).unwrap().why.because;
    assert_eq!(
        (because(100.0), because(110.0)),
        (Because::WholeCostsLess, Because::PairCostsLess)
    );
}

#[test]
fn those_who_generate_weigh_against_computing_a_prompt_among_them() {
    let settings = ChooseSettings {
        whether: Whether::Predicted {
            stall: 0.1,
            margin: 0.0,
        },
        ..exact()
    };
    let mut fleet = Fleet {
        prefills: vec![(120.0, Vec::new(), 0)],
        decodes: vec![(0.0, 0.0, Vec::new(), 0)],
        wholes: vec![(100.0, 1)],
        ..Fleet::default()
    };
    assert_eq!(fleet.choose(&settings).unwrap().why.because, Because::WholeCostsLess);
    fleet.wholes = vec![(100.0, 3)];
    assert_eq!(fleet.choose(&settings).unwrap().why.because, Because::PairCostsLess);
    fleet.wholes = vec![(100.0, 3), (105.0, 0)];
    assert_eq!(
        fleet.choose(&settings).unwrap().way,
        Way::Whole(1),
        "the one where nobody waits"
    );
}

#[test]
fn after_enough_failures_one_worker_serves_and_two_where_there_is_none() {
    let mut fleet = Fleet {
        prefills: vec![(1.0, Vec::new(), 0)],
        decodes: vec![(0.0, 0.0, Vec::new(), 0)],
        wholes: vec![(1_000.0, 0)],
        alone: Some(Alone::Only),
        ..Fleet::default()
    };
    let because = |fleet: &Fleet| fleet.choose(&ChooseSettings::default()).unwrap().why.because;
    assert_eq!(because(&fleet), Because::PrefillsFailed);
    fleet.wholes.clear();
    assert_eq!(because(&fleet), Because::NobodyAlone);
}

#[test]
fn whoever_shares_a_required_label_is_found_among_many_who_do_not() {
    let settings = ChooseSettings {
        topology: vec![Topology {
            label: "rack".into(),
            enforce: Enforce::Required,
        }],
        keep: 2,
        ..exact()
    };
    let mut fleet = Fleet {
        prefills: vec![(1.0, rack("a"), 0), (500.0, rack("b"), 0)],
        ..Fleet::default()
    };
    let elsewhere = (0..50).map(|at| (0.0, f64::from(at), rack("c"), 0));
    fleet.decodes = elsewhere.chain([(0.0, 900.0, rack("b"), 0)]).collect();
    assert_eq!(fleet.pair(&settings), (1, 50));
}

#[test]
fn a_preferred_label_decides_between_those_who_are_nearly_as_good() {
    let settings = ChooseSettings {
        topology: vec![Topology {
            label: "rack".into(),
            enforce: Enforce::Preferred(0.5),
        }],
        ..exact()
    };
    let fleet = |near: f64| Fleet {
        prefills: vec![(100.0, rack("a"), 0)],
        decodes: vec![(0.0, 1.0, rack("b"), 0), (0.0, near, rack("a"), 0)],
        ..Fleet::default()
    };
    assert_eq!(fleet(3.0).pair(&settings), (0, 1));
    assert_eq!(fleet(30.0).pair(&settings), (0, 0));
}

#[test]
fn a_temperature_spreads_the_choice() {
    let mut fleet = Fleet {
        prefills: (0..4).map(|at| (100.0 + 10.0 * f64::from(at), Vec::new(), 0)).collect(),
        decodes: (0..4).map(|at| (0.0, f64::from(at), Vec::new(), 0)).collect(),
        ..Fleet::default()
    };
    let chosen = |fleet: &mut Fleet, temperature| {
        fleet.temperature = temperature;
        let each = (0..200).map(|draw| {
            fleet.draw = draw;
            fleet.pair(&exact())
        });
        each.collect::<std::collections::BTreeSet<_>>().len()
    };
    assert_eq!(chosen(&mut fleet, 0.0), 1);
    assert!(chosen(&mut fleet, 1.0) > 8);
}

proptest! {
    /// Of all pairs the one of least cost, as half a page says it.
    #[test]
    fn the_best_pair_is_the_best_of_all(
        prefills in prop::collection::vec((0.0..1e3_f64, 0..3_u8, 0..10_000_000_u64), 1..8),
        decodes in prop::collection::vec((0.0..1e3_f64, 0.0..50.0_f64, 0..3_u8, 0..10_000_u32), 1..8),
        rate in 0.0..50.0_f64,
    ) {
        let racks = ["a", "b", "c"];
        let fleet = Fleet {
            prefills: prefills.iter().map(|(time, of, leaving)| (*time, rack(racks[usize::from(*of)]), *leaving)).collect(),
            decodes: decodes.iter().map(|(wait, step, of, cached)| (*wait, *step, rack(racks[usize::from(*of)]), *cached)).collect(),
            rate,
            reads: Reads::Missing,
            ..Fleet::default()
        };
        let settings = ChooseSettings {
            topology: vec![Topology { label: "rack".into(), enforce: Enforce::Required }],
            ..exact()
        };
        let mut least: Option<f64> = None;
        for (time, from, leaving) in &prefills {
            for (wait, step, to, cached) in &decodes {
                if from != to {
                    continue;
                }
                let bytes = u64::from(10_000 - cached) * 100_000 + leaving;
                let transfer = if rate > 0.0 { bytes as f64 / (rate * 1e6) } else { 0.0 };
                let cost = time.max(*wait) + transfer + step + 10.0 * step;
                least = Some(least.map_or(cost, |least| least.min(cost)));
            }
        }
        match (fleet.choose(&settings), least) {
            (Ok(choice), Some(least)) => {
                let Way::Pair(pairing) = choice.way else { panic!("there is nobody for all of it") };
                prop_assert!((pairing.cost - least).abs() < 1e-6, "{} is not {}", pairing.cost, least);
            }
            (Err(Refused::NoPair { .. }), None) => (),
            (chosen, least) => prop_assert!(false, "{:?} and {:?}", chosen, least),
        }
    }
}
