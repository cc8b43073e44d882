//! Are the profiles that come with Homing right about what was measured, and is what they assume elsewhere?

use std::fmt::Write as _;

use homing_domain::Tokens;
use homing_profile::fit::{DENSE_POWER, DecodeForm, LM_HEAD_POWER, PrefillForm, Roofline};
use homing_profile::{DecodeBatch, Millis, Profile, Timing, builtin};
use serde_json::Value;

fn table(name: &str, table: &str) -> Vec<Value> {
    let text = builtin::text(name).expect("it is shipped");
    let file: Value = serde_json::from_str(text).expect("it is JSON");
    file[table].as_array().expect("it is a table").clone()
}

fn number(point: &Value, field: &str) -> f64 {
    point[field].as_f64().expect("it is a number")
}

/// Points whose places are odd or even. In a grid, places alternate as the fields of a chessboard do, so that every row
/// and every column is in both halves.
fn half<P: Clone>(points: &[(usize, P)], which: usize) -> Vec<P> {
    let of_half = points.iter().filter(|(place, _)| place % 2 == which);
    of_half.map(|(_, point)| point.clone()).collect()
}

fn chessboard(points: &[Value], row: &str, column: &str, ms: &str) -> Vec<(usize, (f64, f64, f64))> {
    let mut place = (0, 0);
    let mut last = f64::NAN;
    let mut placed = Vec::new();
    for point in points {
        let at = number(point, row);
        if placed.is_empty() || at.total_cmp(&last).is_eq() {
            place.1 += 1;
        } else {
            place = (place.0 + 1, 1);
        }
        last = at;
        placed.push((place.0 + place.1, (at, number(point, column), number(point, ms))));
    }
    placed
}

fn line(points: &[Value], size: &str, ms: &str) -> Vec<(usize, (f64, f64))> {
    let point = |(place, point): (usize, &Value)| (place, (number(point, size), number(point, ms)));
    points.iter().enumerate().map(point).collect()
}

#[test]
fn forms_made_from_half_of_the_points_are_within_15_percent_on_the_other_half() {
    let mut report = String::new();
    for name in builtin::names() {
        let dense = line(&table(name, "dense"), "tokens", "ms");
        let lm_head = line(&table(name, "lm_head"), "sequences", "ms_total");
        let prefill = chessboard(&table(name, "prefill_attention"), "new_tokens", "cached_tokens", "ms");
        let decode = chessboard(&table(name, "decode_attention"), "sequences", "context", "ms");
        for which in [0, 1] {
            let mut compare = |part: &str, errors: Vec<f64>| {
                assert!(errors.len() >= 3, "{part} has only {} points to compare", errors.len());
                let worst = errors.into_iter().map(f64::abs).fold(0.0, f64::max);
                writeln!(report, "{name} {part}: {worst:.3}").expect("a text takes it");
                assert!(worst < 0.15, "{report}");
            };
            for (part, points, power) in [("dense", &dense, DENSE_POWER), ("LM head", &lm_head, LM_HEAD_POWER)] {
                let form = Roofline::fit(&half(points, which), power);
                let error = |&(size, ms): &(f64, f64)| form.at(size) / ms - 1.0;
                compare(part, half(points, 1 - which).iter().map(error).collect());
            }
            let form = PrefillForm::fit(&half(&prefill, which));
            let error = |&(new, cached, ms): &(f64, f64, f64)| form.at(new, cached) / ms - 1.0;
            compare("prefill", half(&prefill, 1 - which).iter().map(error).collect());
            let form = DecodeForm::fit(&half(&decode, which));
            let error = |&(sequences, context, ms): &(f64, f64, f64)| form.at(sequences, context) / ms - 1.0;
            compare("decode", half(&decode, 1 - which).iter().map(error).collect());
        }
    }
}

#[test]
fn composed_steps_are_reproduced_within_10_percent() {
    for name in builtin::names() {
        let profile = builtin::load(name).expect("it is right");
        assert_eq!(profile.checks().len(), 4);
        for check in profile.checks() {
            let ratio = profile.layer(&check.step()).0 / check.measured_per_layer.0;
            assert!((ratio - 1.0).abs() < 0.1, "{name}: {check:?} is off by {ratio}");
        }
    }
}

#[test]
fn kv_bytes_and_orders_of_magnitude() {
    let timing = |name| Timing::measured(builtin::load(name).expect("it is right"));
    let (small, large) = (timing("h200-llama-3.1-8b"), timing("h200-qwen3-32b"));
    assert_eq!(small.kv_bytes_per_token(), 131_072);
    assert_eq!(large.kv_bytes_per_token(), 262_144);
    for timing in [&small, &large] {
        let cached = timing.prefill(Tokens(512), Tokens(7_680));
        let whole = timing.prefill(Tokens(8_192), Tokens(0));
        assert!(cached.0 * 5.0 < whole.0, "{cached} for the rest, {whole} for all of it");
    }
    assert!(large.prefill(Tokens(4_096), Tokens(0)) > small.prefill(Tokens(4_096), Tokens(0)));
    let batch = DecodeBatch::even(32, Tokens(2_048));
    let joined = small.decode_increase(batch, Tokens(2_048));
    assert!(joined > Millis::ZERO && joined.0 < 0.2, "{joined}");
}

/// What is outside a table meets what is inside, and grows on.
#[test]
fn there_is_no_jump_at_the_edge_of_a_table() {
    for name in builtin::names() {
        let timing = Timing::measured(builtin::load(name).expect("it is right"));
        let pairs = [
            (
                timing.prefill(Tokens(16_384), Tokens(0)),
                timing.prefill(Tokens(16_385), Tokens(0)),
            ),
            (
                timing.prefill(Tokens(16), Tokens(98_304)),
                timing.prefill(Tokens(16), Tokens(98_400)),
            ),
            (
                timing.decode(DecodeBatch::even(256, Tokens(1_000))),
                timing.decode(DecodeBatch::even(257, Tokens(1_000))),
            ),
            (
                timing.decode(DecodeBatch::even(4, Tokens(131_072))),
                timing.decode(DecodeBatch::even(4, Tokens(131_200))),
            ),
        ];
        for (inside, outside) in pairs {
            let growth = outside.0 / inside.0;
            assert!((1.0..1.01).contains(&growth), "{name}: {inside} becomes {outside}");
        }
        let far = timing.prefill(Tokens(1_000_000), Tokens(0)).0 / timing.prefill(Tokens(16_384), Tokens(0)).0;
        assert!(far > 61.0, "61 times the tokens take {far} times as long");
    }
}

#[test]
fn an_unknown_name_is_answered_with_the_known_ones() {
    let error = builtin::load("h100").expect_err("it is not shipped").to_string();
    assert_eq!(
        error,
        "there is no profile named \"h100\"; there are h200-llama-3.1-8b, h200-qwen3-32b"
    );
}

fn refused(change: impl FnOnce(&mut Value)) -> String {
    let mut file: Value = serde_json::from_str(builtin::text("h200-qwen3-32b").expect("it is shipped")).expect("JSON");
    change(&mut file);
    Profile::from_json(&file.to_string())
        .expect_err("it was made wrong")
        .to_string()
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    let zero = serde_json::json!(0);
    for (pointer, value, said) in [
        (
            "/dense/3/ms",
            serde_json::json!(-1),
            "dense[3].ms is -1, but must be above 0 and at most 1,000,000 ms",
        ),
        (
            "/dense/3/tokens",
            zero.clone(),
            "dense[3].tokens is 0, but must be a whole number from 1 to 2^30",
        ),
        (
            "/dense/3/tokens",
            serde_json::json!(4),
            "dense[3] does not come after the point before it: points must increase in tokens",
        ),
        (
            "/prefill_attention/1/cached_tokens",
            zero.clone(),
            "prefill_attention[1] does not come after the point before it: points must increase in new_tokens, then cached_tokens",
        ),
        (
            "/decode_attention/0/context",
            zero.clone(),
            "decode_attention[0].context is 0",
        ),
        ("/lm_head/2/ms_total", zero.clone(), "lm_head[2].ms_total is 0"),
        (
            "/lm_head",
            serde_json::json!([]),
            "lm_head has 0 points, but at least 2 are needed",
        ),
        (
            "/shape/layers",
            serde_json::json!(20_000),
            "shape.layers is 20000, but must be a whole number from 1 to 10,000",
        ),
        (
            "/host_to_device_gb_per_s",
            zero.clone(),
            "host_to_device_gb_per_s is 0, but must be above 0",
        ),
        (
            "/dtype",
            serde_json::json!("int3"),
            "dtype \"int3\" is not one of bf16, fp16, fp32, fp8",
        ),
        (
            "/dense/0/tokens",
            serde_json::json!("one"),
            "invalid type: string \"one\", expected u64",
        ),
    ] {
        let error = refused(|file| *file.pointer_mut(pointer).expect("it is there") = value);
        assert!(error.contains(said), "{pointer}: {error}");
    }
    let error = refused(|file| drop(file.as_object_mut().expect("an object").remove("dense")));
    assert!(error.contains("missing field `dense`"), "{error}");
    let error = refused(|file| file["densee"] = zero);
    assert!(error.contains("unknown field `densee`"), "{error}");
    let error = Profile::from_json("{").expect_err("no JSON").to_string();
    assert!(error.starts_with("the profile cannot be read: EOF"), "{error}");
}

proptest::proptest! {
    #[test]
    fn a_time_is_finite_and_not_negative(new in 0_u32.., cached in 0_u32.., sequences in 0_u32.., context in 0_u64..) {
        let timing = Timing::measured(builtin::load("h200-llama-3.1-8b").expect("it is right"));
        for time in [
            timing.prefill(Tokens(new), Tokens(cached)),
            timing.decode(DecodeBatch { sequences, context }),
            timing.decode_increase(DecodeBatch { sequences, context }, Tokens(cached)),
        ] {
            proptest::prop_assert!(time.0.is_finite() && time.0 >= 0.0, "{}", time);
        }
    }
}
