//! Does what was typed become what is true, and is what is wrong said well?

use expect_test::{Expect, expect};
use homing_config::{Config, FileText, Inputs, KNOBS, Kind, KnobId, Resolved, Source, resolve};
use homing_domain::{Blocks, HashSeed};
use proptest::prelude::*;

#[derive(Default)]
struct Typed<'a> {
    flags: &'a [(KnobId, &'a str)],
    variables: &'a [(KnobId, &'a str)],
    file: &'a str,
}

impl Typed<'_> {
    fn inputs(&self) -> Inputs {
        let own = |given: &[(KnobId, &str)]| given.iter().map(|&(id, text)| (id, text.to_owned())).collect();
        Inputs {
            flags: own(self.flags),
            variables: own(self.variables),
            file: Some(FileText {
                name: "homing.toml".to_owned(),
                text: self.file.to_owned(),
            }),
            ..Inputs::default()
        }
    }

    fn accepted(&self) -> Resolved {
        resolve(&self.inputs()).unwrap_or_else(|rejected| panic!("{rejected}"))
    }
}

fn rejected(typed: &Typed<'_>, expected: &Expect) {
    let rejected = resolve(&typed.inputs()).expect_err("something is wrong with it");
    expected.assert_eq(&rejected.to_string());
}

#[test]
fn nothing_typed_is_the_defaults() {
    let resolved = Typed::default().accepted();
    assert_eq!(resolved.config, Config::default());
    assert!(
        resolved
            .settings
            .iter()
            .all(|setting| setting.source == Source::Default)
    );
    assert_eq!(resolved.settings.len(), KNOBS.len());
}

#[test]
fn a_flag_wins_over_a_variable_over_the_file_over_the_default() {
    let (flag, variable) = (&[(KnobId::MaxRanks, "40")], &[(KnobId::MaxRanks, "30")]);
    let file = "[index]\nmax-ranks = 20";
    let of = |typed: Typed<'_>| {
        let resolved = typed.accepted();
        let source = resolved.settings[KnobId::MaxRanks as usize].source.to_string();
        (resolved.config.index.max_ranks, source)
    };
    let all = Typed {
        flags: flag,
        variables: variable,
        file,
    };
    assert_eq!(of(all), (40, "from flag --index-max-ranks".to_owned()));
    let two = Typed {
        variables: variable,
        file,
        ..Typed::default()
    };
    assert_eq!(of(two), (30, "from variable HOMING_INDEX_MAX_RANKS".to_owned()));
    let one = Typed {
        file,
        ..Typed::default()
    };
    assert_eq!(of(one), (20, "from file homing.toml".to_owned()));
    assert_eq!(of(Typed::default()), (1024, "the default".to_owned()));
}

#[test]
fn an_empty_variable_is_unset() {
    let typed = Typed {
        variables: &[(KnobId::BlockSize, "")],
        ..Typed::default()
    };
    assert_eq!(typed.accepted().config, Config::default());
}

#[test]
fn the_file_takes_numbers_and_texts_with_units() {
    let file = r#"
        block-size = 64
        [hash]
        seed = "c0ffee"
        [index]
        capacity-blocks = "64Ki"
        heat-window = "2m"
        [approximate]
        ttl = 1.5
        prune-target-ratio = 0.5
    "#;
    let config = Typed {
        file,
        ..Typed::default()
    }
    .accepted()
    .config;
    assert_eq!(config.block_size.get(), 64);
    assert_eq!(config.hash_seed, HashSeed::new(0x00c0_ffee));
    assert_eq!(config.index.capacity, Blocks(65_536));
    assert_eq!(config.index.heat_window.as_secs(), 120);
    assert_eq!(config.approximate.ttl.as_millis(), 1_500);
    assert!((config.approximate.prune_target_ratio - 0.5).abs() < f64::EPSILON);
}

#[test]
fn the_file_takes_addresses_sizes_and_names() {
    let file = r#"
        model = "Qwen/Qwen3-8B"
        [index]
        listen = "[::1]:7501"
        [events]
        max-message-bytes = "1MiB"
        [agent]
        listen = "0.0.0.0:0"
    "#;
    let config = Typed {
        file,
        ..Typed::default()
    }
    .accepted()
    .config;
    assert_eq!(config.model.as_str(), "Qwen/Qwen3-8B");
    assert_eq!(config.indexer.listen.to_string(), "[::1]:7501");
    assert_eq!(config.agent.listen.to_string(), "0.0.0.0:0");
    assert_eq!(config.events.max_message_bytes, 1 << 20);
    rejected(
        &Typed {
            file: "model = \"a b\"\n[agent]\nlisten = \"localhost:1\"\n[events]\nmax-message-bytes = \"2GiB\"",
            ..Typed::default()
        },
        &expect![[r#"
            `agent.listen` = "localhost:1", from file homing.toml: must be an IP address with a port
            `events.max-message-bytes` = "2GiB", from file homing.toml: out of range, must be 64KiB to 1GiB
            `model` = "a b", from file homing.toml: must be 1 to 256 characters, none a space or a comma"#]],
    );
}

#[test]
fn what_is_wrong_is_said_with_name_value_range_and_place() {
    rejected(
        &Typed {
            flags: &[(KnobId::MaxRanks, "16385")],
            variables: &[(KnobId::Copies, "both"), (KnobId::ApproximateTtl, "soon")],
            file: "block-size = 0\n[approximate]\nprune-target-ratio = 1.5",
        },
        &expect![[r#"
            `approximate.prune-target-ratio` = "1.5", from file homing.toml: out of range, must be 0.1 to 1
            `block-size` = "0", from file homing.toml: out of range, must be 1 to 1024 tokens
            `index.copies` = "both", from variable HOMING_INDEX_COPIES: must be counted | set
            `approximate.ttl` = "soon", from variable HOMING_APPROXIMATE_TTL: must be 1s to 24h
            `index.max-ranks` = "16385", from flag --index-max-ranks: out of range, must be 1 to 16384 ranks"#]],
    );
}

#[test]
fn a_value_that_loses_is_still_checked() {
    rejected(
        &Typed {
            flags: &[(KnobId::BlockSize, "32")],
            file: "block-size = -1",
            ..Typed::default()
        },
        &expect![[r#"`block-size` = "-1", from file homing.toml: must be 1 to 1024 tokens"#]],
    );
}

#[test]
fn fields_that_do_not_go_together_are_both_named() {
    rejected(
        &Typed {
            flags: &[(KnobId::DemoWorkers, "16")],
            variables: &[(KnobId::MaxRanks, "4")],
            file: "[index]\ncapacity-blocks = \"128Ki\"\ncache-view = \"approximate\"",
        },
        &expect![[r#"
            `approximate.max-blocks` = 2^20, the default: must not exceed `index.capacity-blocks` = 2^17, from file homing.toml (when `index.cache-view` is `approximate`)
            `demo.workers` = 16, from flag --demo-workers: must be less than `index.max-ranks` = 4, from variable HOMING_INDEX_MAX_RANKS"#]],
    );
}

#[test]
fn a_rule_about_what_is_not_used_does_not_apply() {
    let file = "[index]\ncapacity-blocks = \"128Ki\"";
    Typed {
        file,
        ..Typed::default()
    }
    .accepted();
}

#[test]
fn unknown_keys_are_wrong_and_the_nearest_is_suggested() {
    rejected(
        &Typed {
            file: "blocksize = 16\nmax-ranks = 3\ncolour = \"red\"\n[index]\ncapasity-blocks = 1\n[indices]\nmax-rank = 1",
            ..Typed::default()
        },
        &expect![[r#"
            homing.toml: there is no knob `blocksize`; did you mean `block-size`?
            homing.toml: there is no knob `colour`
            homing.toml: there is no knob `index.capasity-blocks`; did you mean `index.capacity-blocks`?
            homing.toml: there is no knob `indices`
            homing.toml: there is no knob `max-ranks`; did you mean `index.max-ranks`?"#]],
    );
}

#[test]
fn a_file_that_is_not_toml_is_located() {
    rejected(
        &Typed {
            file: "block-size = 16\n[index\n",
            ..Typed::default()
        },
        &expect![[r#"homing.toml:2: not TOML: unclosed table, expected `]`"#]],
    );
}

#[test]
fn a_value_of_the_wrong_shape_is_refused() {
    rejected(
        &Typed {
            file: "block-size = [16]\nindex = 3\n[hash.seed]\nsecret = 1",
            ..Typed::default()
        },
        &expect![[r#"
            `block-size` = (not shown), from file homing.toml: must be 1 to 1024 tokens
            `hash.seed` = (not shown), from file homing.toml: must be `public` or 1 to 32 hexadecimal digits
            homing.toml: there is no knob `index`"#]],
    );
}

#[test]
fn a_secret_is_never_shown() {
    let secret = "5ec4e7";
    let typed = Typed {
        variables: &[(KnobId::HashSeed, secret)],
        ..Typed::default()
    };
    let resolved = typed.accepted();
    assert!(!format!("{resolved:?}").contains(secret));
    assert_eq!(resolved.settings[KnobId::HashSeed as usize].shown(), "(secret)");

    let nearly = format!("{secret}-not-hex");
    let unclosed = format!("[hash]\nseed = \"{secret}");
    let bare = format!("[hash]\nseed = {secret}");
    let twice = format!("[hash]\nseed = \"{secret}\"\nseed = \"{secret}\"");
    let as_key = format!("[hash]\nseed = [\"{secret}\"]");
    for (variable, file) in [
        (nearly.as_str(), ""),
        ("", unclosed.as_str()),
        ("", bare.as_str()),
        ("", twice.as_str()),
        ("", as_key.as_str()),
    ] {
        let typed = Typed {
            variables: &[(KnobId::HashSeed, variable)],
            file,
            ..Typed::default()
        };
        let rejected = resolve(&typed.inputs()).unwrap_err();
        assert!(!rejected.to_string().contains(secret), "{rejected}");
        assert!(!format!("{rejected:?}").contains(secret), "{rejected:?}");
    }
}

proptest! {
    /// Whatever stands in flags and variables, either everything is in range or everything that is not is reported.
    #[test]
    fn every_accepted_value_is_in_its_range(
        typed in prop::collection::vec((0..KNOBS.len(), 0..2_usize, "(0|1|2|9|64Ki|2\\^30|1h|5ms|0\\.5|set|events|none|public|ff|x|1MiB|127\\.0\\.0\\.1:80|\\[::1\\]:0)"), 0..12),
    ) {
        let mut inputs = Inputs::default();
        for (place, layer, text) in typed {
            let id = KnobId::ALL[place];
            match layer {
                0 => inputs.flags.push((id, text)),
                _ => inputs.variables.push((id, text)),
            }
        }
        match resolve(&inputs) {
            Ok(resolved) => for setting in resolved.settings {
                let (knob, shown) = (setting.knob(), setting.shown());
                if !matches!(knob.kind, Kind::Seed) {
                    prop_assert_eq!(knob.parse(&shown), Ok(setting.value), "{} = {}", knob.path, shown);
                }
            },
            Err(rejected) => prop_assert!(!rejected.problems.is_empty()),
        }
    }

    #[test]
    fn no_file_makes_it_panic(text in "(\\[|\\]|=|\\.|\"|\n| |index|hash|seed|block-size|max-ranks|1|\\PC){0,30}") {
        let file = Some(FileText { name: "f".to_owned(), text });
        let _ = resolve(&Inputs { file, ..Inputs::default() });
    }
}
