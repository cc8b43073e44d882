//! What is said of KV that is handed over? To those who ask for it, and to tests.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use homing_config::role_name;
use homing_domain::{DpRank, Role};
use homing_engine::Staged;
use serde_json::{Value, json};

use crate::app::App;
use crate::control::version_of;
use crate::core::{Core, unix_seconds};
use crate::problem::json_answer;

impl Core {
    /// What goes from the answer of the one into the question to the other, as vLLM's NIXL connector has it.
    pub(crate) fn transfer_params(&self, name: &str, staged: &Staged) -> Value {
        let Some(kv) = &self.kv else { return Value::Null };
        let left = self.clock.seconds(self.clock.now(), staged.until);
        // Which places the blocks are in means nothing to anyone here.
        let blocks: Vec<u32> = (0..staged.blocks.0).collect();
        json!({
            "do_remote_prefill": true,
            "do_remote_decode": false,
            "remote_block_ids": [blocks],
            "remote_engine_id": self.engine_id(),
            "remote_request_id": name,
            "remote_host": kv.at.ip().to_string(),
            "remote_port": kv.at.port(),
            "tp_size": 1,
            "remote_num_tokens": staged.tokens.0,
            "remote_blocks_expiry_time": unix_seconds() + left,
            "transfer_mode": "read",
        })
    }
}

/// `/mock/kv`: what stays for others, and what is on its way here, rank by rank.
pub(crate) async fn page(State(app): State<Arc<App>>) -> Response {
    let settings = &app.settings.mock.kv;
    let rank = |rank: u16| {
        app.core.look(DpRank(rank), |load, _, _| {
            json!({
                "rank": rank,
                "staged": load.staged, "staged_blocks": load.staged_blocks,
                "incoming": load.incoming, "incoming_blocks": load.incoming_blocks,
                "active_blocks": load.blocks.active,
            })
        })
    };
    let ranks: Vec<Value> = (0..app.settings.engine.ranks).filter_map(rank).collect();
    let sum = |field: &str| ranks.iter().filter_map(|rank| rank[field].as_u64()).sum::<u64>();
    let counts = app.core.kv_counts();
    let answer = json!({
        "role": role_name(settings.role),
        "connector": settings.connector.name(),
        "engine_id": app.core.engine_id(),
        "address": app.core.kv.as_ref().map(|kv| kv.at.to_string()),
        "waiting": app.core.kv.as_ref().map_or(0, super::Kv::waiting),
        "staged_blocks": sum("staged_blocks"),
        "incoming_blocks": sum("incoming_blocks"),
        "ranks": ranks,
        "since_start": {
            "staged": counts.staged, "released": counts.released, "lapsed": counts.lapsed,
            "received": counts.received, "failed": counts.failed,
        },
    });
    json_answer(StatusCode::OK, &answer)
}

/// `/server_info` of vLLM, which it has with `VLLM_SERVER_DEV_MODE=1`: as much of its configuration as a router can use.
pub(crate) async fn vllm_info(State(app): State<Arc<App>>) -> Response {
    let settings = &app.settings.mock.kv;
    let kv = app.core.kv.as_ref().map(|_| {
        json!({
            "kv_connector": "NixlConnector",
            "engine_id": app.core.engine_id(),
            "kv_role": match settings.role {
                Role::Prefill => "kv_producer",
                Role::Decode => "kv_consumer",
                Role::Both => "kv_both",
            },
            "kv_load_failure_policy": settings.load_failure.name(),
        })
    });
    let info = json!({
        "vllm_config": {
            "kv_transfer_config": kv,
            "cache_config": {"block_size": app.settings.engine.block_size.get()},
        },
        "vllm_version": version_of(app.dialect()),
    });
    json_answer(StatusCode::OK, &info)
}
