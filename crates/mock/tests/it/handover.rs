//! Prompts that are computed in one place and answered in another: both protocols, and what breaks them.

use homing_platform::HttpClientError;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::mock::{GUARD, Mock, POLL};

const LONG: usize = 400;

/// A text of so many tokens.
fn text(tokens: usize) -> String {
    "handover ".chars().cycle().take(tokens).collect()
}

fn ask(tokens: usize) -> Value {
    json!({"prompt": text(tokens), "max_tokens": 24})
}

fn prefill_leg(of: &Value) -> Value {
    let mut leg = of.clone();
    leg["max_tokens"] = json!(1);
    leg["kv_transfer_params"] = json!({
        "do_remote_decode": true, "do_remote_prefill": false, "remote_engine_id": null, "remote_block_ids": null,
        "remote_host": null, "remote_port": null,
    });
    leg
}

fn decode_leg(of: &Value, params: &Value) -> Value {
    let mut leg = of.clone();
    leg["kv_transfer_params"] = params.clone();
    leg
}

async fn nixl(more: &[(&str, &str)]) -> Mock {
    Mock::start(&[&[("mock.kv-connector", "nixl")], more].concat()).await
}

async fn sglang(role: &str, more: &[(&str, &str)]) -> Mock {
    let base = [
        ("mock.dialect", "sglang"),
        ("mock.kv-connector", "sglang"),
        ("mock.role", role),
    ];
    Mock::start(&[&base, more].concat()).await
}

async fn blocks(mock: &Mock, field: &str) -> u64 {
    mock.get_json("/mock/kv").await[field].as_u64().expect("a number")
}

async fn wait_blocks(mock: &Mock, field: &str, is: impl Fn(u64) -> bool) {
    let until = Instant::now() + GUARD;
    loop {
        let now = blocks(mock, field).await;
        if is(now) {
            return;
        }
        assert!(Instant::now() < until, "{field} is {now}");
        tokio::time::sleep(POLL).await;
    }
}

/// Nothing stays, and nothing is on its way.
async fn nothing_left(mock: &Mock) {
    wait_blocks(mock, "staged_blocks", |blocks| blocks == 0).await;
    wait_blocks(mock, "incoming_blocks", |blocks| blocks == 0).await;
}

/// A request that is under way; it can be broken off.
fn begin(mock: &Mock, path: &str, body: &Value) -> JoinHandle<Result<(u16, Value), HttpClientError>> {
    let request = mock.client.post(format!("{}{path}", mock.url())).json(body);
    tokio::spawn(async move {
        let response = request.send().await?;
        let status = response.status().as_u16();
        Ok((status, response.json().await?))
    })
}

async fn staged(mock: &Mock, of: &Value) -> Value {
    let answer = mock.ok("/v1/completions", &prefill_leg(of)).await;
    answer["kv_transfer_params"].clone()
}

#[tokio::test]
async fn the_text_is_that_of_one_worker_alone() {
    let (prefill, decode, alone) = (nixl(&[]).await, nixl(&[]).await, Mock::start(&[]).await);
    let chat = json!({"messages": [{"role": "user", "content": text(LONG)}], "max_tokens": 24});
    for (path, ask) in [("/v1/completions", ask(LONG)), ("/v1/chat/completions", chat)] {
        let expected = alone.ok(path, &ask).await;
        let prompt = expected["usage"]["prompt_tokens"].as_u64().unwrap();
        let first = prefill.ok(path, &prefill_leg(&ask)).await;
        let params = &first["kv_transfer_params"];
        assert_eq!(params["do_remote_prefill"], true, "{first}");
        assert_eq!(params["remote_num_tokens"], json!(prompt));
        assert_eq!(params["remote_port"], json!(prefill.places[0].kv.unwrap().port()));
        assert_eq!(blocks(&prefill, "staged_blocks").await, prompt.div_ceil(16));
        let whole = decode.ok(path, &decode_leg(&ask, params)).await;
        assert_eq!(whole["choices"][0]["text"], expected["choices"][0]["text"]);
        assert_eq!(
            whole["choices"][0]["message"]["content"],
            expected["choices"][0]["message"]["content"]
        );
        let cached = &whole["usage"]["prompt_tokens_details"]["cached_tokens"];
        assert_eq!(cached, &json!(prompt - 1), "all but the token that is computed anew");
        assert_eq!(whole["kv_transfer_params"], Value::Null);
        nothing_left(&prefill).await;
        nothing_left(&decode).await;
    }
    assert_eq!(decode.metric("vllm:nixl_num_failed_transfers_total").await as u64, 0);
    assert!(decode.metric("vllm:external_prefix_cache_hits_total").await > 400.0);
    assert!(decode.metric("vllm:nixl_xfer_time_seconds_count").await > 1.5);
}

#[tokio::test]
async fn both_legs_can_be_streams() {
    let (prefill, decode, alone) = (nixl(&[]).await, nixl(&[]).await, Mock::start(&[]).await);
    let ask = ask(LONG);
    let said = |pieces: &[Value]| -> String {
        let texts = pieces.iter().filter_map(|piece| piece["choices"][0]["text"].as_str());
        texts.collect()
    };
    let expected = said(&alone.stream("/v1/completions", &ask).await);
    let pieces = prefill.stream("/v1/completions", &prefill_leg(&ask)).await;
    let params = &pieces.last().unwrap()["kv_transfer_params"];
    let pieces = decode.stream("/v1/completions", &decode_leg(&ask, params)).await;
    assert_eq!(said(&pieces), expected);
    nothing_left(&prefill).await;
    nothing_left(&decode).await;
}

#[tokio::test]
async fn what_is_not_fetched_in_time_is_freed_and_then_it_is_missing() {
    let prefill = nixl(&[("mock.kv-lease", "50ms")]).await;
    let (fails, recomputes) = (nixl(&[]).await, nixl(&[("mock.kv-load-failure", "recompute")]).await);
    let alone = Mock::start(&[]).await;
    let ask = ask(LONG);
    let params = staged(&prefill, &ask).await;
    nothing_left(&prefill).await;
    assert_eq!(prefill.get_json("/mock/kv").await["since_start"]["lapsed"], 1);
    assert!(prefill.metric("vllm:nixl_num_kv_expired_reqs_total").await > 0.5);
    let leg = decode_leg(&ask, &params);
    let (status, answer) = fails.post("/v1/completions", &leg).await;
    assert_eq!(status, 500, "{answer}");
    let streamed = fails.stream("/v1/completions", &leg).await;
    assert_eq!(streamed.last().unwrap()["error"]["code"], 500);
    let (whole, expected) = (
        recomputes.ok("/v1/completions", &leg).await,
        alone.ok("/v1/completions", &ask).await,
    );
    assert_eq!(whole["choices"][0]["text"], expected["choices"][0]["text"]);
    nothing_left(&fails).await;
    nothing_left(&recomputes).await;
}

#[tokio::test]
async fn kv_of_another_prompt_is_not_taken() {
    let (prefill, decode) = (nixl(&[]).await, nixl(&[]).await);
    let params = staged(&prefill, &ask(LONG)).await;
    let leg = decode_leg(&json!({"prompt": text(LONG + 1), "max_tokens": 4}), &params);
    assert_eq!(decode.post("/v1/completions", &leg).await.0, 500);
    nothing_left(&decode).await;
    assert!(blocks(&prefill, "staged_blocks").await > 0, "it stays for whom it is");
}

#[tokio::test]
async fn a_prefill_worker_that_dies_after_its_answer_is_noticed() {
    let (prefill, decode) = (nixl(&[]).await, nixl(&[]).await);
    let params = staged(&prefill, &ask(LONG)).await;
    prefill.kill();
    let (status, _) = decode.post("/v1/completions", &decode_leg(&ask(LONG), &params)).await;
    assert_eq!(status, 500);
    nothing_left(&decode).await;
}

/// As slow as it takes for a test to do something meanwhile.
const SLOW: [(&str, &str); 2] = [("mock.kv-link-gbps", "0.001"), ("mock.speedup", "1")];

#[tokio::test]
async fn a_prefill_worker_that_dies_while_its_kv_is_on_its_way_is_noticed() {
    let (prefill, decode) = (nixl(&SLOW).await, nixl(&[]).await);
    let params = staged(&prefill, &ask(LONG)).await;
    let answer = begin(&decode, "/v1/completions", &decode_leg(&ask(LONG), &params));
    wait_blocks(&decode, "incoming_blocks", |blocks| blocks > 0).await;
    prefill.kill();
    assert_eq!(answer.await.unwrap().unwrap().0, 500);
    nothing_left(&decode).await;
}

#[tokio::test]
async fn a_new_life_knows_nothing_of_what_was_staged() {
    let (prefill, decode) = (nixl(&[]).await, nixl(&[]).await);
    let params = staged(&prefill, &ask(LONG)).await;
    prefill.ok("/mock/restart", &Value::Null).await;
    assert_eq!(blocks(&prefill, "staged_blocks").await, 0);
    let leg = decode_leg(&ask(LONG), &params);
    assert_eq!(decode.post("/v1/completions", &leg).await.0, 500);
}

/// Once KV is on its way it comes, and is given back on both sides.
#[tokio::test]
async fn a_client_that_leaves_while_kv_is_on_its_way_leaks_nothing() {
    let (prefill, decode) = (nixl(&[("mock.fault-handover", "hang")]).await, nixl(&[]).await);
    let params = staged(&prefill, &ask(LONG)).await;
    let answer = begin(&decode, "/v1/completions", &decode_leg(&ask(LONG), &params));
    wait_blocks(&decode, "incoming_blocks", |blocks| blocks > 0).await;
    answer.abort();
    decode
        .wait_metric(
            "vllm:request_success_total{engine=\"0\",model_name=\"tiny\",finished_reason=\"abort\"",
            |aborted| aborted > 0.5,
        )
        .await;
    assert!(
        blocks(&decode, "incoming_blocks").await > 0,
        "someone may be writing there"
    );
    prefill.ok("/mock/faults", &json!({"handover": "none"})).await;
    nothing_left(&prefill).await;
    nothing_left(&decode).await;
    assert_eq!(prefill.get_json("/mock/kv").await["since_start"]["released"], 1);
}

/// As vLLM does it: what was never begun is declined.
#[tokio::test]
async fn a_client_that_leaves_before_its_turn_leaks_nothing() {
    let prefill = nixl(&[]).await;
    let decode = nixl(&[("mock.max-running", "1"), ("mock.speedup", "1")]).await;
    let endless = begin(
        &decode,
        "/v1/completions",
        &json!({"prompt": "x", "max_tokens": 50_000}),
    );
    decode
        .wait_metric("vllm:num_requests_running", |running| running > 0.5)
        .await;
    let params = staged(&prefill, &ask(LONG)).await;
    let answer = begin(&decode, "/v1/completions", &decode_leg(&ask(LONG), &params));
    decode
        .wait_metric("vllm:num_requests_waiting", |waiting| waiting > 0.5)
        .await;
    answer.abort();
    nothing_left(&prefill).await;
    endless.abort();
}

#[tokio::test]
async fn every_fault_of_a_handover_happens() {
    let (prefill, decode) = (
        nixl(&[("mock.kv-lease", "200ms")]).await,
        nixl(&[("mock.kv-wait", "300ms")]).await,
    );
    let leg = prefill_leg(&ask(LONG));
    let set = async |word: &str| {
        prefill.ok("/mock/faults", &json!({"handover": word})).await;
    };
    for (word, staged) in [("die-before", 0), ("die-after", 0), ("lose", 1)] {
        set(word).await;
        let answer = prefill.send("/v1/completions", &leg).await;
        let broken = match answer {
            Ok(response) => response.text().await.is_err(),
            Err(_) => true,
        };
        assert!(broken, "{word}");
        let counted = &prefill.get_json("/mock/kv").await["since_start"]["staged"];
        assert_eq!(counted, &json!(staged), "{word}");
    }
    nothing_left(&prefill).await;
    set("lapse").await;
    let params = staged(&prefill, &ask(LONG)).await;
    nothing_left(&prefill).await;
    assert_eq!(
        decode.post("/v1/completions", &decode_leg(&ask(LONG), &params)).await.0,
        500
    );
    set("hang").await;
    let params = staged(&prefill, &ask(LONG)).await;
    assert_eq!(
        decode.post("/v1/completions", &decode_leg(&ask(LONG), &params)).await.0,
        500
    );
    nothing_left(&prefill).await;
    nothing_left(&decode).await;
    assert_eq!(prefill.post("/mock/faults", &json!({"handover": "other"})).await.0, 400);
}

#[tokio::test]
async fn without_a_connector_vllm_computes_everything_itself() {
    let (prefill, alone) = (nixl(&[]).await, Mock::start(&[]).await);
    let params = staged(&prefill, &ask(LONG)).await;
    let answer = alone.ok("/v1/completions", &decode_leg(&ask(LONG), &params)).await;
    assert_eq!(answer["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
    let answer = alone.ok("/v1/completions", &prefill_leg(&ask(LONG))).await;
    assert_eq!(answer["kv_transfer_params"], Value::Null);
    let info = alone.get_json("/server_info").await;
    assert_eq!(info["vllm_config"]["kv_transfer_config"], Value::Null);
    let decode = nixl(&[("mock.role", "decode")]).await;
    let info = decode.get_json("/server_info").await;
    assert_eq!(info["vllm_config"]["kv_transfer_config"]["kv_role"], "kv_consumer");
    // One that ends at once leaves nothing behind.
    let mut stops = prefill_leg(&ask(LONG));
    let first = json!({"prompt": text(LONG), "max_tokens": 1, "return_token_ids": true});
    stops["stop_token_ids"] = alone.ok("/v1/completions", &first).await["choices"][0]["token_ids"].clone();
    let answer = decode.ok("/v1/completions", &stops).await;
    assert_eq!(answer["choices"][0]["finish_reason"], "stop");
    assert_eq!(
        (&answer["kv_transfer_params"], blocks(&decode, "staged_blocks").await),
        (&Value::Null, 0)
    );
}

fn meeting(of: &Value, prefill: &Mock, room: u64) -> Value {
    let at = prefill.places[0].kv.expect("it hands KV over");
    let mut leg = of.clone();
    leg["bootstrap_host"] = json!(at.ip().to_string());
    leg["bootstrap_port"] = json!(at.port());
    leg["bootstrap_room"] = json!(room);
    leg
}

#[tokio::test]
async fn two_meet_whoever_comes_first() {
    let (prefill, decode) = (sglang("prefill", &[]).await, sglang("decode", &[]).await);
    let alone = Mock::start(&[("mock.dialect", "sglang")]).await;
    let ask = json!({"text": text(LONG), "sampling_params": {"max_new_tokens": 24}});
    let expected = alone.ok("/generate", &ask).await;
    for (room, decode_first) in [(1, true), (2, false)] {
        let leg = meeting(&ask, &prefill, room);
        let (first, second) = if decode_first {
            (&decode, &prefill)
        } else {
            (&prefill, &decode)
        };
        let one = begin(first, "/generate", &leg);
        wait_blocks(&prefill, "waiting", |waiting| waiting == 1).await;
        let other = begin(second, "/generate", &leg);
        let answers = [one.await.unwrap().unwrap(), other.await.unwrap().unwrap()];
        assert_eq!([answers[0].0, answers[1].0], [200, 200], "{answers:?}");
        let of_decode = &answers[usize::from(!decode_first)].1;
        assert_eq!(of_decode["text"], expected["text"]);
        // What was cached where the prompt was computed.
        let cached = if decode_first { 0 } else { LONG / 16 * 16 - 16 };
        assert_eq!(of_decode["meta_info"]["cached_tokens"], json!(cached));
        let of_prefill = &answers[usize::from(decode_first)].1;
        assert_eq!(of_prefill["meta_info"]["completion_tokens"], 1);
        nothing_left(&prefill).await;
        nothing_left(&decode).await;
        assert_eq!(blocks(&prefill, "waiting").await, 0);
    }
    let chat = json!({"messages": [{"role": "user", "content": text(LONG)}], "max_tokens": 24});
    let leg = meeting(&chat, &prefill, 3);
    let both = (
        begin(&prefill, "/v1/chat/completions", &leg),
        begin(&decode, "/v1/chat/completions", &leg),
    );
    both.0.await.unwrap().unwrap();
    let expected = alone.ok("/v1/chat/completions", &chat).await;
    let answer = both.1.await.unwrap().unwrap().1;
    assert_eq!(answer["choices"][0]["message"], expected["choices"][0]["message"]);
}

#[tokio::test]
async fn a_room_without_the_other_side_fails_in_time() {
    let quick = [("mock.kv-wait", "100ms")];
    let (prefill, decode) = (sglang("prefill", &quick).await, sglang("decode", &quick).await);
    let leg = meeting(&json!({"text": text(LONG)}), &prefill, 1);
    assert_eq!(prefill.post("/generate", &leg).await.0, 500);
    assert_eq!(decode.post("/generate", &leg).await.0, 500);
    assert_eq!(blocks(&prefill, "waiting").await, 0);
    nothing_left(&prefill).await;
    nothing_left(&decode).await;
    assert_eq!(prefill.post("/generate", &json!({"text": "x"})).await.0, 400);
    assert_eq!(decode.post("/generate", &json!({"text": "x"})).await.0, 400);
    let info = (
        prefill.get_json("/server_info").await,
        decode.get_json("/server_info").await,
    );
    assert_eq!(info.0["disaggregation_mode"], "prefill");
    assert_eq!(
        info.0["disaggregation_bootstrap_port"],
        json!(prefill.places[0].kv.unwrap().port())
    );
    assert_eq!(info.1["disaggregation_mode"], "decode");
}

#[tokio::test]
async fn a_room_belongs_to_a_rank() {
    let (prefill, decode) = (
        sglang("prefill", &[("mock.dp-size", "2")]).await,
        sglang("decode", &[]).await,
    );
    let mut leg = meeting(&json!({"text": text(LONG)}), &prefill, 3);
    leg["routed_dp_rank"] = json!(0);
    assert_eq!(prefill.post("/generate", &leg).await.0, 400);
    leg["routed_dp_rank"] = json!(1);
    let other = begin(
        &decode,
        "/generate",
        &meeting(&json!({"text": text(LONG)}), &prefill, 3),
    );
    assert_eq!(prefill.post("/generate", &leg).await.0, 200);
    assert_eq!(other.await.unwrap().unwrap().0, 200);
}

#[tokio::test]
async fn whoever_breaks_off_ends_both() {
    let (prefill, decode) = (sglang("prefill", &SLOW).await, sglang("decode", &[]).await);
    let body = json!({"text": text(LONG), "sampling_params": {"max_new_tokens": 4}});
    // The decode side is killed while KV is on its way.
    let leg = meeting(&body, &prefill, 1);
    let legs = (begin(&prefill, "/generate", &leg), begin(&decode, "/generate", &leg));
    wait_blocks(&prefill, "staged_blocks", |blocks| blocks > 0).await;
    decode.kill();
    assert!(legs.1.await.unwrap().is_err());
    assert_eq!(legs.0.await.unwrap().unwrap().0, 500);
    nothing_left(&prefill).await;
    // The prefill side is killed while KV is on its way.
    let decode = sglang("decode", &[]).await;
    let leg = meeting(&body, &prefill, 2);
    let legs = (begin(&prefill, "/generate", &leg), begin(&decode, "/generate", &leg));
    wait_blocks(&decode, "incoming_blocks", |blocks| blocks > 0).await;
    prefill.kill();
    assert_eq!(legs.1.await.unwrap().unwrap().0, 500);
    assert!(legs.0.await.unwrap().is_err());
    nothing_left(&decode).await;
}

#[tokio::test]
async fn a_prefill_leg_that_is_cancelled_ends_the_decode_leg() {
    let (prefill, decode) = (
        sglang("prefill", &[("mock.speedup", "0.001")]).await,
        sglang("decode", &[]).await,
    );
    let leg = meeting(&json!({"text": text(4_000)}), &prefill, 1);
    let legs = (begin(&prefill, "/generate", &leg), begin(&decode, "/generate", &leg));
    prefill
        .wait_metric("sglang:num_running_reqs", |running| running > 0.5)
        .await;
    legs.0.abort();
    assert_eq!(legs.1.await.unwrap().unwrap().0, 500);
    nothing_left(&prefill).await;
    nothing_left(&decode).await;
    tokio::time::timeout(Duration::from_secs(30), prefill.stop())
        .await
        .expect("it stops");
}
