//! Adapters of both dialects.

use serde_json::json;

use crate::mock::Mock;

#[tokio::test]
async fn sglang_says_what_it_has() {
    let mock = Mock::start(&[
        ("mock.dialect", "sglang"),
        ("mock.max-loras", "3"),
        ("mock.lora-fetch", "1ms"),
    ])
    .await;
    let poet = json!({"lora_name": "poet", "lora_path": "/adapters/poet"});
    let answer = mock.ok("/load_lora_adapter", &poet).await;
    assert_eq!(answer["loaded_adapters"]["poet"], "/adapters/poet");
    let models = mock.get_json("/v1/models").await;
    assert_eq!(models["data"][1]["root"], "/adapters/poet");
    assert_eq!(mock.get_json("/server_info").await["max_loaded_loras"], 3);
    let ask = json!({"model": "poet", "prompt": [1, 2, 3], "max_tokens": 2});
    mock.ok("/v1/completions", &ask).await;
    let labels = "{dp_rank=\"0\",model_name=\"tiny\"}";
    assert!((mock.metric(&format!("sglang:lora_pool_slots_used{labels}")).await - 1.0).abs() < 1e-9);
    assert!((mock.metric(&format!("sglang:lora_pool_slots_total{labels}")).await - 3.0).abs() < 1e-9);
    let answer = mock.ok("/unload_lora_adapter", &json!({"lora_name": "poet"})).await;
    assert_eq!(answer["loaded_adapters"], json!({}));
    assert!(mock.post("/load_lora_adapter", &json!({"lora_name": "poet"})).await.0 >= 400);
    mock.ok("/mock/faults", &json!({"reject_adapters": true})).await;
    assert_eq!(mock.post("/load_lora_adapter", &poet).await.0, 500);
}
