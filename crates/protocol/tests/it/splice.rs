//! Does a body that was changed by splicing mean what the same changes of a parsed object mean, and is all else as it was?

use homing_protocol::json::{entries, is_key, text};
use homing_protocol::{Fields, Limits, Splice};
use proptest::prelude::*;
use serde_json::{Map, Value};

/// Keys that changes name, and how else they can be spelt.
const KEYS: [&str; 4] = ["a", "b", "model", "stream_options"];

#[derive(Clone, Debug)]
enum Op {
    Set(usize, Value),
    Remove(usize),
    SetIn(usize, usize, Value),
    RemoveIn(usize, usize),
    Append(usize, Value),
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        "[a-z\"\\\\é\n ]{0,5}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((key(), inner), 0..4).prop_map(|fields| {
                let fields = fields.into_iter().map(|(key, value)| (KEYS[key].to_owned(), value));
                Value::Object(fields.collect::<Map<_, _>>())
            }),
        ]
    })
}

fn key() -> impl Strategy<Value = usize> {
    0..KEYS.len()
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        (key(), value()).prop_map(|(key, value)| Op::Set(key, value)),
        key().prop_map(Op::Remove),
        (key(), key(), value()).prop_map(|(outer, key, value)| Op::SetIn(outer, key, value)),
        (key(), key()).prop_map(|(outer, key)| Op::RemoveIn(outer, key)),
        (key(), value()).prop_map(|(key, value)| Op::Append(key, value)),
    ]
}

fn space() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["", "", " ", "\n\t", "  \r\n"])
}

/// A key as it may be written: plain, or with its first letter escaped.
fn spelt(key: &str, escaped: bool) -> String {
    let plain = serde_json::to_string(key).expect("as it was made");
    match key.chars().next() {
        Some(letter) if escaped => plain.replacen(letter, &format!("\\u{:04X}", u32::from(letter)), 1),
        _ => plain,
    }
}

/// A body with spaces anywhere, keys that come twice, and keys that no change names.
fn body() -> impl Strategy<Value = String> {
    let name = prop_oneof![
        key().prop_map(|key| KEYS[key].to_owned()),
        prop::sample::select(vec!["x".to_owned(), "y\"z".to_owned(), String::new()]),
    ];
    let field = (name, any::<bool>(), value(), [space(), space(), space(), space()]);
    let fields = prop::collection::vec(field, 0..7);
    (fields, space(), space(), space(), any::<bool>()).prop_map(|(fields, before, within, after, pretty)| {
        let mut text = format!("{before}{{{within}");
        for (place, (key, escaped, value, spaces)) in fields.iter().enumerate() {
            if place > 0 {
                text.push(',');
            }
            let value = if pretty {
                serde_json::to_string_pretty(value).expect("as it was made")
            } else {
                value.to_string()
            };
            let [a, b, c, d] = spaces;
            text.extend([a, spelt(key, *escaped).as_str(), b, ":", c, &value, d]);
        }
        text + "}" + after
    })
}

/// The same changes of a parsed object.
fn model(body: &str, ops: &[Op]) -> Map<String, Value> {
    let mut object: Map<String, Value> = serde_json::from_str(body).expect("as it was made");
    for op in ops {
        match op.clone() {
            Op::Set(key, value) => {
                object.insert(KEYS[key].to_owned(), value);
            }
            Op::Remove(key) => {
                object.remove(KEYS[key]);
            }
            Op::SetIn(outer, key, value) => {
                let outer = object.entry(KEYS[outer]).or_insert(Value::Null);
                if !outer.is_object() {
                    *outer = Value::Object(Map::new());
                }
                outer[KEYS[key]] = value;
            }
            Op::RemoveIn(outer, key) => {
                if let Some(Value::Object(outer)) = object.get_mut(KEYS[outer]) {
                    outer.remove(KEYS[key]);
                }
            }
            Op::Append(key, value) => {
                let list = object.entry(KEYS[key]).or_insert(Value::Null);
                match list {
                    Value::Array(list) => list.push(value),
                    list => *list = Value::Array(vec![value]),
                }
            }
        }
    }
    object
}

fn touched(op: &Op) -> usize {
    match op {
        Op::Set(key, _) | Op::Remove(key) | Op::SetIn(key, ..) | Op::RemoveIn(key, _) | Op::Append(key, _) => *key,
    }
}

/// Fields that no change names, as they are written.
fn others(body: &str, ops: &[Op]) -> Vec<(String, String)> {
    let named = |key: &[u8]| ops.iter().any(|op| is_key(key, KEYS[touched(op)]));
    let object = body.trim().as_bytes();
    let all = entries(object).expect("as it was made").filter(|(key, _)| !named(key));
    let written = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("as it was made");
    all.map(|(key, value)| (written(key), written(value))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn splicing_means_what_editing_means(body in body(), ops in prop::collection::vec(op(), 0..5)) {
        let fields = Fields::read(body.as_bytes(), Limits::default()).expect("as it was made");
        let mut splice = Splice::new(body.as_bytes(), &fields);
        for op in &ops {
            match op {
                Op::Set(key, value) => splice.set(KEYS[*key], value.to_string()),
                Op::Remove(key) => splice.remove(KEYS[*key]),
                Op::SetIn(outer, key, value) => splice.set_in(KEYS[*outer], KEYS[*key], value.to_string()),
                Op::RemoveIn(outer, key) => splice.remove_in(KEYS[*outer], KEYS[*key]),
                Op::Append(key, value) => splice.append(KEYS[*key], value.to_string()),
            };
        }
        let new = String::from_utf8(splice.finish().to_vec()).expect("as it was made");
        let parsed: Map<String, Value> = serde_json::from_str(&new)
            .map_err(|error| TestCaseError::fail(format!("{error}: {new}")))?;
        prop_assert_eq!(&parsed, &model(&body, &ops), "{}", new);
        prop_assert_eq!(others(&new, &ops), others(&body, &ops));
        if ops.is_empty() {
            prop_assert_eq!(&new, &body);
        }
        // Spaces outside of the braces stay too.
        let (front, back) = (body.len() - body.trim_start().len(), body.len() - body.trim_end().len());
        prop_assert_eq!(&new[..front], &body[..front]);
        prop_assert_eq!(&new[new.len() - back..], &body[body.len() - back..]);
        // What is set is there once.
        for op in &ops {
            if let Op::Set(key, _) = op {
                let all = entries(new.trim().as_bytes()).expect("as it was made");
                prop_assert!(all.filter(|(written, _)| text(written).is_some_and(|name| name == KEYS[*key])).count() <= 1);
            }
        }
    }
}
