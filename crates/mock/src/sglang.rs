//! What does only SGLang answer? Its own way of generating, and what it says of itself.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use homing_domain::{DpRank, Role};
use homing_engine::Running;
use homing_transport::zmq::Endpoint;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::app::{App, Envelope};
use crate::ask::{Extras, OneOrMany, Prompts, Wishes, parse};
use crate::completions::{broken, event, events};
use crate::control::version_of;
use crate::kv::Terms;
use crate::problem::{Problem, json_answer};
use crate::speech::Speech;
use crate::wire::or_default;

/// The length of answers that do not say theirs.
const DEFAULT_LENGTH: u32 = 128;

#[derive(Deserialize)]
struct GenerateBody {
    text: Option<Prompts>,
    input_ids: Option<Prompts>,
    #[serde(default)]
    sampling_params: Sampling,
    #[serde(default)]
    stream: bool,
    lora_path: Option<String>,
    cache_salt: Option<String>,
    #[serde(flatten)]
    terms: Terms,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Sampling {
    max_new_tokens: Option<i64>,
    stop: Option<OneOrMany>,
    stop_token_ids: Option<Vec<u32>>,
    #[serde(deserialize_with = "or_default")]
    ignore_eos: bool,
    n: Option<i64>,
    #[serde(rename = "sampling_seed")]
    seed: Option<i64>,
}

/// `/generate`.
pub(crate) async fn generate(app: &Arc<App>, envelope: Envelope, body: &[u8]) -> Result<Response, Problem> {
    let body: GenerateBody = parse(body)?;
    let input = body.text.or(body.input_ids);
    let input = input.ok_or_else(|| Problem::bad("either text or input_ids is needed"))?;
    let several = matches!(input, Prompts::Texts(_) | Prompts::Lists(_));
    let sampling = body.sampling_params;
    let wishes = Wishes {
        model: body.lora_path,
        max_tokens: sampling.max_new_tokens,
        stop: sampling.stop,
        stop_token_ids: sampling.stop_token_ids,
        ignore_eos: sampling.ignore_eos,
        n: sampling.n,
        seed: sampling.seed,
        stream: body.stream,
        cache_salt: body.cache_salt,
        terms: body.terms,
        ..Wishes::default()
    };
    let extras = Extras {
        default_length: Some(DEFAULT_LENGTH),
        rank: envelope.rank,
        ..Extras::default()
    };
    let ask = wishes.ask(app, input.tokens(&app.settings.codec)?, extras)?;
    let several = several || ask.n > 1;
    let mut speech = Speech::begin(app, ask).await?;
    if speech.ask.stream {
        return Ok(stream(speech, envelope.id));
    }
    speech.whole().await?;
    let parts: Vec<Value> = (0..speech.speakers.len())
        .map(|part| said(&speech, &envelope.id, part))
        .collect();
    let answer = match parts.as_slice() {
        [one] if !several => one.clone(),
        _ => json!(parts),
    };
    Ok(json_answer(StatusCode::OK, &answer))
}

/// All of an answer so far: SGLang repeats it with every piece.
fn said(speech: &Speech, id: &str, part: usize) -> Value {
    let speaker = &speech.speakers[part];
    let prompt = speech.ask.prompts.get(part / speech.ask.n).map_or(0, Vec::len);
    let generated = speaker.tokens.len();
    let finish = speaker.end.as_ref().map(|end| match end.reason {
        "length" => json!({"type": "length", "length": generated}),
        _ => json!({"type": "stop", "matched": end.by}),
    });
    json!({
        "text": speaker.text,
        "output_ids": speaker.tokens,
        "index": part,
        "meta_info": {
            "id": id, "finish_reason": finish, "prompt_tokens": prompt, "completion_tokens": generated,
            "cached_tokens": speaker.cached, "weight_version": "default",
        },
    })
}

fn stream(speech: Speech, id: String) -> Response {
    let state = Some((speech, id));
    events(futures_util::stream::unfold(state, |state| async move {
        let (mut speech, id) = state?;
        match speech.next().await {
            Err(_) => Some((Err(broken().await), None)),
            Ok(None) => Some((Ok(Bytes::from_static(b"data: [DONE]\n\n")), None)),
            Ok(Some((part, _))) => {
                let piece = event(&said(&speech, &id, part));
                Some((Ok(piece), Some((speech, id))))
            }
        }
    }))
}

/// `/server_info`: how it was started, and where it tells of its cache.
pub(crate) async fn server_info(State(app): State<Arc<App>>) -> Response {
    let engine = &app.settings.engine;
    let first = app.core.feeds().first();
    let port = |endpoint: Option<Endpoint>| match endpoint {
        Some(Endpoint::Tcp { port, .. }) => Some(port),
        _ => None,
    };
    let host = first
        .and_then(crate::feed::Feed::events)
        .map(|endpoint| match endpoint {
            Endpoint::Tcp { host, .. } => host.to_string(),
            Endpoint::Ipc(path) => path.display().to_string(),
        });
    let kv_events = json!({
        "publisher": if host.is_some() { "zmq" } else { "null" },
        "endpoint_host": host,
        "endpoint_port_base": first.and_then(|feed| port(feed.events())),
        "topic": app.settings.mock.events.topic,
        "block_size": engine.block_size.get(),
        "dp_size": engine.ranks,
        "replay_endpoint_port_base": first.and_then(|feed| port(feed.replay())),
    });
    let info = json!({
        "version": version_of(app.dialect()),
        "model_path": app.settings.model.as_str(),
        "served_model_name": app.settings.model.as_str(),
        "page_size": engine.block_size.get(),
        "dp_size": engine.ranks,
        "max_total_num_tokens": u64::from(engine.blocks.0) * u64::from(engine.block_size.get()),
        "max_running_requests": engine.max_running,
        "disable_radix_cache": !app.settings.mock.prefix_caching.is_on(),
        "enable_cache_report": app.settings.mock.usage_details.is_on(),
        "enable_lora": app.settings.mock.lora_updating.is_on(),
        "max_loras_per_batch": engine.adapters.slots,
        "max_loaded_loras": engine.adapters.slots,
        "context_length": engine.max_model_len.0,
        "kv_events": kv_events,
        "disaggregation_mode": match app.settings.mock.kv.role {
            _ if app.core.kv.is_none() => "null",
            Role::Prefill => "prefill",
            Role::Decode => "decode",
            Role::Both => "null",
        },
        "disaggregation_bootstrap_port": app.core.kv.as_ref().map(|kv| kv.at.port()),
        "disaggregation_transfer_backend": app.core.kv.as_ref().map(|_| "mock"),
        "disaggregation_decode_enable_radix_cache": app.settings.mock.kv.decode_radix_cache.is_on(),
    });
    json_answer(StatusCode::OK, &info)
}

/// `/get_load`: how busy each rank is.
pub(crate) async fn load(State(app): State<Arc<App>>) -> Response {
    let size = app.settings.engine.block_size.get();
    let load = |rank: u16| {
        app.core.look(DpRank(rank), |load, _, _| {
            json!({
                "dp_rank": rank,
                "num_reqs": load.running + load.waiting,
                "num_waiting_reqs": load.waiting,
                "num_tokens": u64::from(load.blocks.active) * u64::from(size) + load.waiting_tokens,
            })
        })
    };
    let loads: Vec<Value> = (0..app.settings.engine.ranks).filter_map(load).collect();
    json_answer(StatusCode::OK, &json!(loads))
}

/// `/v1/loads`: how busy each rank is, as SGLang says it now. Sections that can be asked for besides the first are not given.
pub(crate) async fn loads(State(app): State<Arc<App>>) -> Response {
    let engine = &app.settings.engine;
    let size = u64::from(engine.block_size.get());
    let load = |rank: u16| {
        app.core.look(DpRank(rank), |load, _, _| {
            let used = u64::from(load.blocks.active) * size;
            json!({
                "timestamp": crate::core::unix_seconds(),
                "dp_rank": rank,
                "num_running_reqs": load.running,
                "num_waiting_reqs": load.waiting,
                "num_waiting_uncached_tokens": load.waiting_tokens,
                "num_used_tokens": used,
                "num_total_tokens": used + load.waiting_tokens,
                "max_total_num_tokens": u64::from(engine.blocks.0) * size,
                "max_running_requests": engine.max_running,
                "token_usage": load.blocks.usage(),
            })
        })
    };
    let loads: Vec<Value> = (0..engine.ranks).filter_map(load).collect();
    json_answer(
        StatusCode::OK,
        &json!({"version": version_of(app.dialect()), "loads": loads}),
    )
}

/// `/model_info`.
pub(crate) async fn model_info(State(app): State<Arc<App>>) -> Response {
    let model = app.settings.model.as_str();
    json_answer(
        StatusCode::OK,
        &json!({"model_path": model, "tokenizer_path": model, "is_generation": true}),
    )
}

/// `/flush_cache`.
pub(crate) async fn flush(State(app): State<Arc<App>>) -> Response {
    match app.core.clear(Running::Keep) {
        Ok(()) => "Cache flushed.\nPlease check backend logs for more details.\n".into_response(),
        Err(busy) => (StatusCode::BAD_REQUEST, format!("Flush cache failed: {busy}\n")).into_response(),
    }
}
