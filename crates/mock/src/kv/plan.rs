//! What does a request want done with its KV?

use homing_config::KvConnector;
use homing_domain::{DpRank, Role};
use serde::Deserialize;
use serde_json::Value;

use super::Kv;
use crate::problem::Problem;

/// SGLang's usual port to meet at.
const BOOTSTRAP_PORT: u16 = 8_998;

/// The fields of a request that say it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Terms {
    /// vLLM's: what is to be done, or what another engine answered.
    kv_transfer_params: Option<Value>,
    /// SGLang's: where the two meet.
    bootstrap_host: Option<Value>,
    bootstrap_port: Option<Value>,
    bootstrap_room: Option<Value>,
    /// SGLang's: which rank computes.
    routed_dp_rank: Option<u16>,
    data_parallel_rank: Option<u16>,
}

/// What is to be done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Plan {
    /// It is computed here and stays here.
    #[default]
    Alone,
    /// It is computed here, and stays for another engine.
    Stage,
    /// It is fetched.
    Fetch(Source),
    /// It is computed here for whoever comes into this room.
    Prefill { room: u64, rank: DpRank },
}

/// Where KV is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Source {
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) what: What,
}

/// Under which name it is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// vLLM: an engine's life, and a request of it.
    Staged { engine: String, request: String },
    /// SGLang.
    Room(u64),
}

impl Terms {
    /// The rank that a request of SGLang names in its body.
    pub(crate) fn rank(&self) -> Option<DpRank> {
        self.routed_dp_rank.or(self.data_parallel_rank).map(DpRank)
    }

    /// What is to be done, of a request for `rank` of a worker with so many.
    pub(crate) fn plan(&self, kv: Option<&Kv>, rank: Option<DpRank>, ranks: u16) -> Result<Plan, Problem> {
        let Some(kv) = kv else { return Ok(Plan::Alone) };
        match kv.settings.connector {
            KvConnector::None => Ok(Plan::Alone),
            KvConnector::Nixl => Ok(self.of_vllm()),
            KvConnector::Sglang => self.of_sglang(kv.settings.role, rank, ranks),
        }
    }

    /// vLLM goes by the fields, whatever it was started as, and does without where one is missing.
    fn of_vllm(&self) -> Plan {
        let Some(params) = &self.kv_transfer_params else {
            return Plan::Alone;
        };
        let is = |name: &str| params[name].as_bool() == Some(true);
        if is("do_remote_prefill") {
            let text = |name: &str| Some(params[name].as_str()?.to_owned());
            let source = || {
                Some(Source {
                    host: text("remote_host")?,
                    port: u16::try_from(params["remote_port"].as_u64()?).ok()?,
                    what: What::Staged {
                        engine: text("remote_engine_id")?,
                        request: text("remote_request_id")?,
                    },
                })
            };
            return source().map_or(Plan::Alone, Plan::Fetch);
        }
        if is("do_remote_decode") {
            Plan::Stage
        } else {
            Plan::Alone
        }
    }

    /// SGLang goes by what it was started as, and wants a room then.
    fn of_sglang(&self, role: Role, rank: Option<DpRank>, ranks: u16) -> Result<Plan, Problem> {
        if role == Role::Both {
            return Ok(Plan::Alone);
        }
        let room = self.bootstrap_room.as_ref().map(single).and_then(Value::as_u64);
        let room = room.ok_or_else(|| Problem::bad("Disaggregated request received without bootstrap room id"))?;
        if role == Role::Prefill {
            let own = DpRank((room % u64::from(ranks)) as u16);
            if let Some(other) = rank.filter(|rank| *rank != own) {
                return Err(Problem::bad(format!(
                    "bootstrap_room {room} belongs to rank {} and not to rank {}",
                    own.0, other.0
                )));
            }
            return Ok(Plan::Prefill { room, rank: own });
        }
        let host = self.bootstrap_host.as_ref().map(single).and_then(Value::as_str);
        let host = host.ok_or_else(|| Problem::bad("Disaggregated request received without bootstrap host"))?;
        let port = self.bootstrap_port.as_ref().map(single).and_then(Value::as_u64);
        let port = port.map_or(Ok(BOOTSTRAP_PORT), u16::try_from);
        Ok(Plan::Fetch(Source {
            host: host.to_owned(),
            port: port.map_err(|_| Problem::of("bootstrap_port", "bootstrap_port is no port"))?,
            what: What::Room(room),
        }))
    }
}

/// The first of a list, which a request for several answers has; or the value itself.
fn single(value: &Value) -> &Value {
    value.as_array().and_then(|all| all.first()).unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn terms(value: Value) -> Terms {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn vllm_does_without_where_a_field_is_missing() {
        let of = |params: Value| terms(json!({"kv_transfer_params": params})).of_vllm();
        assert_eq!(
            of(json!({"do_remote_decode": true, "do_remote_prefill": false})),
            Plan::Stage
        );
        assert_eq!(of(Value::Null), Plan::Alone);
        let mut all = json!({"do_remote_prefill": true, "remote_host": "h", "remote_port": 1, "remote_engine_id": "e",
                             "remote_request_id": "r"});
        assert!(matches!(of(all.clone()), Plan::Fetch(source) if source.port == 1));
        all["remote_port"] = json!(70_000);
        assert_eq!(of(all), Plan::Alone);
        assert_eq!(of(json!("x")), Plan::Alone);
    }

    #[test]
    fn a_room_belongs_to_a_rank() {
        let of = |value: Value, role, rank: Option<u16>| terms(value).of_sglang(role, rank.map(DpRank), 4);
        let room = json!({"bootstrap_room": 7});
        let plan = of(room.clone(), Role::Prefill, Some(3)).unwrap();
        assert_eq!(
            plan,
            Plan::Prefill {
                room: 7,
                rank: DpRank(3)
            }
        );
        assert!(of(room.clone(), Role::Prefill, Some(2)).is_err());
        assert!(of(room.clone(), Role::Decode, None).is_err());
        assert_eq!(of(room, Role::Both, None).unwrap(), Plan::Alone);
        assert!(of(json!({}), Role::Prefill, None).is_err());
        let listed = json!({"bootstrap_room": [7], "bootstrap_host": ["h"], "bootstrap_port": [null]});
        let Plan::Fetch(source) = of(listed, Role::Decode, None).unwrap() else {
            panic!("it is fetched")
        };
        assert_eq!((source.host.as_str(), source.port), ("h", BOOTSTRAP_PORT));
    }
}
