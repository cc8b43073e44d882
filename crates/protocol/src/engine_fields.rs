//! Fields of request bodies that belong to engines and to routers: a client must not set them.
//!
//! They name hosts to connect to, blocks of other requests, ranks and places in the engine's queue. A router sets them for a reason; a
//! client that sets them reaches past the router.
//!
//! **Invariant:** a field is found wherever an engine could read it: at the top of a body, and in the objects that engines and client
//! libraries merge into a request ([`CONTAINERS`]), also where these are lists, as in batches.
//!
//! **Invariant:** removing fields changes no other field, and no spaces around one.
//!
//! Cost: one comparison with each row of the table for each field at the top. Containers are read again; few requests have one.

use std::borrow::Cow;
use std::collections::BTreeMap;

use bytes::Bytes;

use crate::json::{Fields, Kind, Limits, entries, items, kind, text};
use crate::splice::Splice;

/// What is done with a field of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldRule {
    /// Refused or removed, as the settings say.
    Internal,
    /// Read as a pin for our own router and removed.
    RankPin,
    /// Removed: the order of requests is decided by our own queue.
    Priority,
    /// Removed: engines get our own id of the request, which is unique among tenants.
    RequestId,
}

/// Where a field counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldPlace {
    /// At the top and in containers.
    Anywhere,
    /// In containers only.
    Nested,
    /// In the container of this name only.
    In(&'static str),
}

/// A field that belongs to engines or routers.
#[derive(Debug, PartialEq, Eq)]
pub struct EngineField {
    /// Its name. One that ends with `*` stands for all names that begin so.
    pub name: &'static str,
    /// Where it counts.
    pub place: FieldPlace,
    /// What is done with it.
    pub rule: FieldRule,
    /// Engines and routers that read it.
    pub read_by: &'static str,
    /// What it does there.
    pub effect: &'static str,
}

const fn row(
    name: &'static str,
    place: FieldPlace,
    rule: FieldRule,
    read_by: &'static str,
    effect: &'static str,
) -> EngineField {
    EngineField {
        name,
        place,
        rule,
        read_by,
        effect,
    }
}

/// All of them.
#[rustfmt::skip]
pub const ENGINE_FIELDS: &[EngineField] = {
    use FieldPlace::{Anywhere, In, Nested};
    use FieldRule::{Internal, Priority, RankPin, RequestId};
    &[
        row("kv_transfer_params", Anywhere, Internal, "vLLM", "stages KV, or fetches it from a host and port"),
        row("ec_transfer_params", Anywhere, Internal, "vLLM", "fetches encoder outputs from another engine"),
        row("kv_cache_report_mode", Anywhere, Internal, "vLLM", "makes the engine report cached blocks again"),
        row("bootstrap_*", Anywhere, Internal, "SGLang", "host, port, room and key of a prefill worker to connect to"),
        row("disagg*", Anywhere, Internal, "SGLang, TensorRT-LLM", "rank and state of the prefill worker"),
        row("decode_token_reservation_id", Anywhere, Internal, "SGLang", "room that was reserved for another request"),
        row("decode_tp_size", Anywhere, Internal, "SGLang", "layout of the decode worker"),
        row("pd_prefill_admission_ack", Anywhere, Internal, "SGLang", "answers for a prefill worker"),
        row("data_parallel_rank_*", Anywhere, Internal, "SGLang", "ranks of both workers of a pair"),
        row("data_parallel_rank", Anywhere, RankPin, "vLLM, SGLang", "data-parallel rank"),
        row("routed_dp_rank", Anywhere, RankPin, "SGLang", "data-parallel rank"),
        row("priority", Anywhere, Priority, "vLLM, SGLang, Dynamo", "place in the engine's queue"),
        row("strict_priority", Anywhere, Priority, "Dynamo", "place in the router's queue"),
        row("request_id", Anywhere, RequestId, "vLLM", "id of the request, and of a stored response"),
        row("rid", Anywhere, RequestId, "SGLang", "id of the request"),
        row("cache_salt", Nested, Internal, "Dynamo", "cache of another tenant"),
        row("extra_key", Nested, Internal, "SGLang", "cache of another tenant"),
        row("backend_instance_id", In("nvext"), Internal, "Dynamo", "worker"),
        row("prefill_worker_id", In("nvext"), Internal, "Dynamo", "worker"),
        row("decode_worker_id", In("nvext"), Internal, "Dynamo", "worker"),
        row("dp_rank", In("nvext"), Internal, "Dynamo", "data-parallel rank"),
        row("prefill_dp_rank", In("nvext"), Internal, "Dynamo", "data-parallel rank"),
        row("router", In("nvext"), Internal, "Dynamo", "weights of the router"),
        row("routing_constraints", In("nvext"), Internal, "Dynamo", "workers"),
        row("metadata_upload", In("nvext"), Internal, "Dynamo", "a URL to which data of the request is sent"),
    ]
};

/// Objects whose fields engines or client libraries take as fields of the request.
pub const CONTAINERS: [&str; 7] = [
    "agent_hints",
    "custom_params",
    "extra_args",
    "extra_body",
    "nvext",
    "sampling_params",
    "vllm_xargs",
];

/// Whether a name that begins with this byte can be one of the table or of a container: few fields of ordinary requests can.
const FIRST_BYTES: [bool; 256] = {
    let mut firsts = [false; 256];
    let mut at = 0;
    while at < ENGINE_FIELDS.len() {
        firsts[ENGINE_FIELDS[at].name.as_bytes()[0] as usize] = true;
        at += 1;
    }
    at = 0;
    while at < CONTAINERS.len() {
        firsts[CONTAINERS[at].as_bytes()[0] as usize] = true;
        at += 1;
    }
    firsts
};

/// How deep containers may lie in each other. A deeper one counts as a field of the engine as a whole.
const MAX_NESTED: usize = 2;

static TOO_DEEP: EngineField = row(
    "*",
    FieldPlace::Nested,
    FieldRule::Internal,
    "none",
    "containers of engine fields in each other",
);

/// Fields that are removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    /// All of the table.
    All,
    /// Those that name a rank at the top.
    RankPins,
}

/// A field of the table in a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundField {
    /// Where it is, with dots: `vllm_xargs.kv_transfer_params`.
    pub path: String,
    /// The row of the table.
    pub field: &'static EngineField,
    /// Whether it is `null` wherever it stands, and so says nothing.
    pub is_null: bool,
}

impl FoundField {
    /// Whether a client that sets it is refused, where fields are refused.
    pub fn is_refusable(&self) -> bool {
        let is_nested_pin = self.field.rule == FieldRule::RankPin && self.path.contains('.');
        !self.is_null && (self.field.rule == FieldRule::Internal || is_nested_pin)
    }
}

impl EngineField {
    fn matches(&self, name: &[u8], container: Option<&str>) -> bool {
        let is_here = match self.place {
            FieldPlace::Anywhere => true,
            FieldPlace::Nested => container.is_some(),
            FieldPlace::In(only) => container == Some(only),
        };
        is_here
            && match self.name.as_bytes() {
                [beginning @ .., b'*'] => name.starts_with(beginning),
                whole => name == whole,
            }
    }
}

/// The row for a name, inside the container of that name if there is one.
pub(crate) fn row_of(name: &[u8], container: Option<&str>) -> Option<&'static EngineField> {
    ENGINE_FIELDS.iter().find(|row| row.matches(name, container))
}

pub(crate) fn container_of(name: &[u8]) -> Option<&'static str> {
    CONTAINERS.into_iter().find(|known| known.as_bytes() == name)
}

/// Where fields are: in a container, and how many containers deep.
#[derive(Clone, Copy)]
struct Inside {
    container: Option<&'static str>,
    depth: usize,
}

impl Inside {
    const TOP: Self = Self {
        container: None,
        depth: 0,
    };

    const fn next(self, container: &'static str) -> Self {
        Self {
            container: Some(container),
            depth: self.depth + 1,
        }
    }
}

/// The fields of the table that a body has, by their paths.
pub fn find(body: &[u8], fields: &Fields) -> Vec<FoundField> {
    let mut search = Search::default();
    for field in fields.iter() {
        search.look_at(field.key.of(body), field.value.of(body), "", Inside::TOP);
    }
    search.found.into_values().collect()
}

/// The fields of the table in the value of a container.
pub(crate) fn find_in_container(container: &'static str, value: &[u8]) -> Vec<FoundField> {
    let mut search = Search::default();
    search.look_into(value, container, Inside::TOP.next(container));
    search.found.into_values().collect()
}

/// Fields of the table that were found, by their paths.
#[derive(Default)]
struct Search {
    found: BTreeMap<String, FoundField>,
}

impl Search {
    fn look_at(&mut self, key: &[u8], value: &[u8], above: &str, inside: Inside) {
        let name = name_of(key);
        let is_candidate = name.first().is_some_and(|first| FIRST_BYTES[usize::from(*first)]);
        if !is_candidate {
            return;
        }
        let row = row_of(&name, inside.container);
        let container = container_of(&name).filter(|_| is_nested(value));
        let (row, container) = match (row, container) {
            (None, None) => return,
            (None, Some(_)) if inside.depth >= MAX_NESTED => (Some(&TOO_DEEP), None),
            other => other,
        };
        let name = String::from_utf8_lossy(&name);
        let path = if above.is_empty() {
            name.into_owned()
        } else {
            format!("{above}.{name}")
        };
        if let Some(field) = row {
            let is_null = value == b"null";
            let known = self.found.entry(path.clone());
            known.or_insert(FoundField { path, field, is_null }).is_null &= is_null;
        } else if let Some(container) = container {
            self.look_into(value, &path, inside.next(container));
        }
    }

    fn look_into(&mut self, value: &[u8], path: &str, inside: Inside) {
        for object in objects_of(value) {
            for (key, value) in entries(object).into_iter().flatten() {
                self.look_at(key, value, path, inside);
            }
        }
    }
}

fn is_nested(value: &[u8]) -> bool {
    matches!(kind(value), Some(Kind::Object | Kind::Array))
}

/// An object, or the objects of a list.
fn objects_of(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    let is_object = |value: &&[u8]| kind(value) == Some(Kind::Object);
    let one = Some(value).filter(is_object);
    one.into_iter()
        .chain(items(value).into_iter().flatten().filter(move |value| is_object(value)))
}

fn name_of(key: &[u8]) -> Cow<'_, [u8]> {
    let inner = key.get(1..key.len().saturating_sub(1)).unwrap_or_default();
    if !inner.contains(&b'\\') {
        return Cow::Borrowed(inner);
    }
    match text(key) {
        Some(name) => Cow::Owned(name.into_owned().into_bytes()),
        None => Cow::Borrowed(inner),
    }
}

/// The body without these fields. Where it has none, the same bytes are shared.
pub fn remove(body: &Bytes, fields: &Fields, removal: Removal) -> Bytes {
    let mut splice = Splice::new(body, fields);
    for field in fields.iter() {
        let (key, value) = (field.key.of(body), field.value.of(body));
        remove_one(key, value, &mut splice, Inside::TOP, removal);
    }
    if splice.is_empty() {
        return body.clone();
    }
    splice.finish()
}

fn remove_one(key: &[u8], value: &[u8], splice: &mut Splice<'_>, inside: Inside, removal: Removal) {
    let name = name_of(key);
    let row = row_of(&name, inside.container);
    let is_removed = match removal {
        Removal::All => row.is_some(),
        Removal::RankPins => row.is_some_and(|row| row.rule == FieldRule::RankPin),
    };
    let container = container_of(&name).filter(|_| removal == Removal::All && is_nested(value));
    let name = String::from_utf8_lossy(&name);
    if is_removed || (container.is_some() && inside.depth >= MAX_NESTED) {
        splice.remove(&name);
    } else if let Some(new) = container.and_then(|container| without(value, inside.next(container))) {
        splice.set(&name, new);
    }
}

/// The value of a container without fields of the table; `None` if it has none.
fn without(value: &[u8], inside: Inside) -> Option<Vec<u8>> {
    if kind(value) == Some(Kind::Object) {
        return object_without(value, inside);
    }
    let all: Vec<(&[u8], Option<Vec<u8>>)> = items(value)?.map(|item| (item, object_without(item, inside))).collect();
    if all.iter().all(|(_, new)| new.is_none()) {
        return None;
    }
    let mut list = vec![b'['];
    for (place, (old, new)) in all.iter().enumerate() {
        if place > 0 {
            list.push(b',');
        }
        list.extend_from_slice(new.as_deref().unwrap_or(old));
    }
    list.push(b']');
    Some(list)
}

fn object_without(value: &[u8], inside: Inside) -> Option<Vec<u8>> {
    if kind(value) != Some(Kind::Object) {
        return None;
    }
    // One with more fields than a body may have is not looked through.
    let Ok(fields) = Fields::read(value, Limits::default()) else {
        return Some(b"{}".to_vec());
    };
    let mut splice = Splice::new(value, &fields);
    for field in fields.iter() {
        let (key, value) = (field.key.of(value), field.value.of(value));
        remove_one(key, value, &mut splice, inside, Removal::All);
    }
    (!splice.is_empty()).then(|| splice.finish().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(body: &str) -> (Bytes, Fields) {
        let body = Bytes::copy_from_slice(body.as_bytes());
        let fields = Fields::read(&body, Limits::default()).unwrap();
        (body, fields)
    }

    fn found(body: &str) -> Vec<String> {
        let (body, fields) = read(body);
        find(&body, &fields).into_iter().map(|found| found.path).collect()
    }

    fn removed(body: &str) -> String {
        let (body, fields) = read(body);
        let new = remove(&body, &fields, Removal::All);
        if new == body {
            assert_eq!(new.as_ptr(), body.as_ptr(), "shared");
        }
        String::from_utf8(new.to_vec()).unwrap()
    }

    #[test]
    fn fields_are_found_and_removed_wherever_engines_read_them() {
        for (body, paths, rest) in [
            (
                r#"{"prompt":"a","max_tokens":1}"#,
                &[][..],
                r#"{"prompt":"a","max_tokens":1}"#,
            ),
            (
                r#"{"kv_transfer_params":{"remote_host":"10.0.0.1"}, "prompt" : "a"}"#,
                &["kv_transfer_params"],
                r#"{"prompt" : "a"}"#,
            ),
            (
                r#"{"a":1,"kv_transfer\u005fparams":{},"b":2,"kv_transfer_params":null}"#,
                &["kv_transfer_params"],
                r#"{"a":1,"b":2}"#,
            ),
            (
                r#"{"bootstrap_host":["h"],"bootstrap_room":[1,2],"bootstrap_port":[null],"bootstrap_pair_key":"k","bootstrap":1}"#,
                &[
                    "bootstrap_host",
                    "bootstrap_pair_key",
                    "bootstrap_port",
                    "bootstrap_room",
                ],
                r#"{"bootstrap":1}"#,
            ),
            (
                r#"{"disagg_prefill_dp_rank":1,"disaggregated_params":{},"data_parallel_rank":0,"routed_dp_rank":1,"data_parallel_rank_decode":2}"#,
                &[
                    "data_parallel_rank",
                    "data_parallel_rank_decode",
                    "disagg_prefill_dp_rank",
                    "disaggregated_params",
                    "routed_dp_rank",
                ],
                "{}",
            ),
            (
                r#"{"vllm_xargs":{"x":1,"kv_transfer_params":{}},"priority":-5,"request_id":"resp_1","rid":"r"}"#,
                &["priority", "request_id", "rid", "vllm_xargs.kv_transfer_params"],
                r#"{"vllm_xargs":{"x":1}}"#,
            ),
            (
                r#"{"sampling_params":[{"n":1},{"extra_args":{"kv_transfer_params":1,"y":2}}],"cache_salt":"s"}"#,
                &["sampling_params.extra_args.kv_transfer_params"],
                r#"{"sampling_params":[{"n":1},{"extra_args":{"y":2}}],"cache_salt":"s"}"#,
            ),
            (
                r#"{"nvext":{"dp_rank":1,"cache_salt":"b","greed_sampling":true,"agent_hints":{"osl":3,"strict_priority":9}},"dp_rank":1}"#,
                &["nvext.agent_hints.strict_priority", "nvext.cache_salt", "nvext.dp_rank"],
                r#"{"nvext":{"greed_sampling":true,"agent_hints":{"osl":3}},"dp_rank":1}"#,
            ),
            (
                r#"{"extra_body":{"nvext":{"extra_args":{"a":1}},"custom_params":3}}"#,
                &["extra_body.nvext.extra_args"],
                r#"{"extra_body":{"nvext":{},"custom_params":3}}"#,
            ),
            (
                r#"{"messages":[{"kv_transfer_params":1}],"tools":[{"parameters":{"priority":1}}],"metadata":{"rid":"x"}}"#,
                &[],
                r#"{"messages":[{"kv_transfer_params":1}],"tools":[{"parameters":{"priority":1}}],"metadata":{"rid":"x"}}"#,
            ),
        ] {
            assert_eq!(found(body), paths, "{body}");
            assert_eq!(removed(body), rest, "{body}");
            assert_eq!(found(rest), [""; 0], "{rest}");
        }
    }

    #[test]
    fn only_fields_that_say_something_are_refused() {
        let (body, fields) = read(
            r#"{"kv_transfer_params":null,"priority":1,"data_parallel_rank":1,"extra_body":{"data_parallel_rank":1,"rid":"x"},"bootstrap_room":3}"#,
        );
        let refused: Vec<String> = find(&body, &fields)
            .into_iter()
            .filter(FoundField::is_refusable)
            .map(|found| found.path)
            .collect();
        assert_eq!(refused, ["bootstrap_room", "extra_body.data_parallel_rank"]);
    }

    #[test]
    fn rank_pins_are_removed_alone() {
        let (body, fields) = read(r#"{"kv_transfer_params":{},"data_parallel_rank":1,"vllm_xargs":{"priority":1}}"#);
        let new = remove(&body, &fields, Removal::RankPins);
        assert_eq!(new, r#"{"kv_transfer_params":{},"vllm_xargs":{"priority":1}}"#);
    }

    #[test]
    fn every_row_says_what_it_is() {
        for row in ENGINE_FIELDS {
            assert!(!row.effect.is_empty() && !row.read_by.is_empty(), "{}", row.name);
            let name = row.name.replace('*', "x");
            let inside = match row.place {
                FieldPlace::Anywhere => None,
                FieldPlace::Nested => Some("extra_body"),
                FieldPlace::In(container) => Some(container),
            };
            assert_eq!(row_of(name.as_bytes(), inside), Some(row));
        }
    }

    fn object() -> impl Strategy<Value = serde_json::Value> {
        let names: Vec<String> = CONTAINERS
            .into_iter()
            .map(str::to_owned)
            .chain(ENGINE_FIELDS.iter().map(|row| row.name.replace('*', "x")))
            .chain(["prompt", "a", "messages"].map(str::to_owned))
            .collect();
        let of = move |value: BoxedStrategy<serde_json::Value>| {
            let entries = prop::collection::btree_map(prop::sample::select(names.clone()), value, 0..6);
            entries.prop_map(|entries| serde_json::Value::Object(entries.into_iter().collect()))
        };
        let leaf = prop_oneof![
            Just(serde_json::json!(null)),
            Just(serde_json::json!(1)),
            Just(serde_json::json!("x"))
        ];
        let inner = of.clone();
        let value = leaf.prop_recursive(5, 40, 6, move |value| {
            let list = prop::collection::vec(value.clone(), 0..4).prop_map(serde_json::Value::from);
            prop_oneof![list, inner(value)]
        });
        of(value.boxed())
    }

    proptest! {
        #[test]
        fn nothing_is_found_in_what_is_left(object in object()) {
            let (body, fields) = read(&object.to_string());
            let left = remove(&body, &fields, Removal::All);
            let fields = Fields::read(&left, Limits::default()).unwrap();
            prop_assert_eq!(find(&left, &fields), vec![]);
            prop_assert!(serde_json::from_slice::<serde_json::Value>(&left).is_ok());
        }
    }
}
