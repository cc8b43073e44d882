//! What only SGLang has.

use serde_json::json;

use crate::mock::Mock;

#[tokio::test]
async fn it_generates_and_says_what_was_cached() {
    let mock = Mock::start(&[("mock.dialect", "sglang")]).await;
    let ids: Vec<u32> = (0..64).collect();
    let ask = json!({"input_ids": ids, "sampling_params": {"max_new_tokens": 5}});
    let first = mock.ok("/generate", &ask).await;
    assert_eq!(first["output_ids"].as_array().unwrap().len(), 5);
    assert_eq!(first["meta_info"]["cached_tokens"], 0);
    assert_eq!(
        first["meta_info"]["finish_reason"],
        json!({"type": "length", "length": 5})
    );
    let second = mock.ok("/generate", &ask).await;
    assert_eq!(second["meta_info"]["cached_tokens"], 48);
    let pieces = mock.stream("/generate", &ask).await;
    assert_eq!(pieces.len(), 5);
    assert_eq!(pieces[4]["text"], first["text"]);
    mock.wait_metric("sglang:num_running_reqs", |running| running < 1.0)
        .await;
    assert!(mock.get("/flush_cache").await.starts_with("Cache flushed"));
    let third = mock.ok("/generate", &ask).await;
    assert_eq!(third["meta_info"]["cached_tokens"], 0);
}

#[tokio::test]
async fn it_says_where_its_events_are_and_how_busy_it_is() {
    let mock = Mock::telling(&[("mock.dialect", "sglang"), ("mock.dp-size", "2")]).await;
    let info = mock.get_json("/server_info").await;
    let events = &info["kv_events"];
    assert_eq!(events["dp_size"], 2);
    let first = mock.places[0].ranks[0].0.clone().unwrap();
    assert!(
        first.ends_with(&events["endpoint_port_base"].to_string()),
        "{first} {events}"
    );
    let load = mock.get_json("/get_load").await;
    assert_eq!((load.as_array().unwrap().len(), &load[1]["dp_rank"]), (2, &json!(1)));
    let loads = mock.get_json("/v1/loads?include=core").await;
    assert_eq!(
        (&loads["loads"][1]["dp_rank"], &loads["loads"][1]["num_running_reqs"]),
        (&json!(1), &json!(0))
    );
    let (status, error) = mock.post("/v1/completions", &json!({"prompt": ""})).await;
    assert_eq!((status, &error["object"]), (400, &json!("error")));
    assert!(mock.get("/metrics").await.contains("sglang:token_usage{"));
}
