//! Does `homing index` know what the mock has cached? The comparison that `e2e/` makes with real engines.

use homing_platform::HttpClient;
use std::sync::Arc;
use std::time::Instant;

use homing_agent::Agent;
use homing_config::{Inputs, KnobId, Resolved, resolve};
use homing_domain::Sequence;
use homing_indexer::Service;
use homing_telemetry::Metrics;
use homing_transport::testing::Listener;
use homing_transport::zmq::{Endpoint, ReplayConfig, replay};
use homing_wire::envelope::{Replayed, replay_request, replayed};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::mock::{GUARD, Mock, POLL};

const BLOCK: usize = 16;

/// `homing index` in this process, listening to a mock.
struct Index {
    url: String,
    client: HttpClient,
    running: JoinHandle<()>,
}

impl Drop for Index {
    fn drop(&mut self) {
        self.running.abort();
    }
}

/// The mock as a worker, listened to directly or through an agent.
fn worker(mock: &Mock, dialect: &str, agent: Option<&str>) -> String {
    let place = &mock.places[0];
    let (events, asked) = &place.ranks[0];
    let mut worker = format!(
        "http://{},model=tiny,block-size={BLOCK},dialect={dialect}",
        place.address
    );
    let told = |endpoint: &Option<String>| endpoint.clone().expect("as it was set up");
    let source = agent.map_or_else(
        || format!(",events={},replay={}", told(events), told(asked)),
        |url| format!(",agent={url}"),
    );
    worker.push_str(&source);
    worker
}

fn settings(worker: String) -> Resolved {
    let quick = [
        ("index.listen", "127.0.0.1:0"),
        ("agent.listen", "127.0.0.1:0"),
        ("feed.verify-within", "2s"),
        ("agent.heartbeat", "100ms"),
        ("feed.backoff-base", "5ms"),
        ("feed.repair-timeout", "1s"),
    ];
    let inputs = Inputs {
        flags: quick
            .iter()
            .map(|(path, text)| (KnobId::of_path(path).expect("as it was set up"), (*text).to_owned()))
            .collect(),
        worker_flags: vec![worker],
        ..Inputs::default()
    };
    resolve(&inputs).unwrap_or_else(|rejected| panic!("{rejected}"))
}

impl Index {
    async fn of(mock: &Mock, dialect: &str) -> Self {
        Self::listening(worker(mock, dialect, None)).await
    }

    async fn listening(worker: String) -> Self {
        let service = Service::start(&settings(worker), Arc::new(Metrics::default())).await;
        let service = service.unwrap_or_else(|error| panic!("{error}"));
        let url = format!("http://{}", service.address());
        let running = tokio::spawn(async move {
            service.run(std::future::pending()).await;
        });
        Self {
            url,
            client: HttpClient::default(),
            running,
        }
    }

    async fn ranks(&self) -> Value {
        let response = self
            .client
            .get(format!("{}/v1/ranks", self.url))
            .send()
            .await
            .expect("as it was set up");
        response.json().await.expect("as it was set up")
    }

    /// Waits until the view of a rank is live and as far as the mock's newest batch.
    async fn reach(&self, mock: &Mock) {
        let newest = newest(mock).await;
        let until = Instant::now() + GUARD;
        loop {
            let rank = self.ranks().await["ranks"][0].clone();
            if rank["state"] == "live" && rank["cursor"].as_u64() == newest {
                return;
            }
            assert!(Instant::now() < until, "waited for {newest:?}: {rank}");
            tokio::time::sleep(POLL).await;
        }
    }

    /// Leading blocks on the device.
    async fn overlap(&self, prompt: &Prompt) -> u64 {
        let mut question = json!({"model": "tiny", "tokens": prompt.tokens});
        if let Some(salt) = &prompt.salt {
            question["salt"] = json!(salt);
        }
        if let Some(adapter) = &prompt.adapter {
            question["adapter"] = json!(adapter);
        }
        let request = self
            .client
            .post(format!("{}/v1/overlap", self.url))
            .body(question.to_string());
        let answer: Value = request
            .send()
            .await
            .expect("as it was set up")
            .json()
            .await
            .expect("as it was set up");
        answer["ranks"][0]["blocks"]["device"]
            .as_u64()
            .unwrap_or_else(|| panic!("{answer}"))
    }
}

/// The number of the newest batch, as the replay socket tells it.
async fn newest(mock: &Mock) -> Option<u64> {
    let endpoint: Endpoint = mock.places[0].ranks[0]
        .1
        .as_ref()
        .expect("as it was set up")
        .parse()
        .expect("as it was set up");
    let [delimiter, from] = replay_request(Sequence(0));
    let mut replay = replay(&endpoint, &[&delimiter, &from], ReplayConfig::default())
        .await
        .expect("as it was set up");
    let mut newest = None;
    loop {
        let message = replay.next().await.expect("as it was set up");
        let frames: Vec<&[u8]> = message.frames().collect();
        match replayed(&frames[1..]).expect("as it was set up") {
            Replayed::End => return newest,
            Replayed::Batch(batch) => newest = Some(batch.sequence.0),
        }
    }
}

#[derive(Clone, Debug)]
struct Prompt {
    tokens: Vec<u32>,
    salt: Option<String>,
    adapter: Option<String>,
}

/// Prompts with common beginnings, by a seed.
struct Prompts(u64);

impl Prompts {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }

    fn next(&mut self, adapters: bool) -> Prompt {
        let family = self.below(6) as u32;
        let length = 1 + self.below(400) as usize;
        let shared = self.below(length as u64 + 1) as usize;
        let twist = self.below(3) as u32;
        let token = |place: usize| {
            let own = if place < shared { 0 } else { 1 + twist };
            1_000 + family * 10_000 + own * 1_000 + place as u32
        };
        let salt = self.below(4) == 0;
        let adapter = adapters && self.below(4) == 0;
        Prompt {
            tokens: (0..length).map(token).collect(),
            salt: salt.then(|| "tenant".to_owned()),
            adapter: adapter.then(|| "poet".to_owned()),
        }
    }
}

/// Asks the index, then the mock, and compares. Gives how many tokens were cached in all.
async fn compare(mock: &Mock, index: &Index, prompts: &mut Prompts, count: usize, adapters: bool) -> u64 {
    let mut total = 0;
    for number in 0..count {
        let prompt = prompts.next(adapters);
        index.reach(mock).await;
        let held = index.overlap(&prompt).await as usize;
        let expected = held.min((prompt.tokens.len() - 1) / BLOCK) * BLOCK;
        let ask = json!({
            "model": prompt.adapter.as_deref().unwrap_or("tiny"), "prompt": prompt.tokens, "max_tokens": 20,
            "cache_salt": prompt.salt,
        });
        let answer = mock.ok("/v1/completions", &ask).await;
        let cached = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
            .as_u64()
            .expect("as it was set up");
        assert_eq!(cached, expected as u64, "prompt {number}: {prompt:?}");
        total += cached;
    }
    total
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_index_knows_what_the_mock_has_cached() {
    // So small a cache that prompts push each other out.
    let mock = Mock::telling(&[("mock.blocks", "120"), ("mock.speedup", "10000")]).await;
    mock.ok("/v1/load_lora_adapter", &json!({"lora_name": "poet", "lora_path": "x"}))
        .await;
    let first = json!({"prompt": (0..40).collect::<Vec<u32>>(), "max_tokens": 2});
    mock.ok("/v1/completions", &first).await;
    let index = Index::of(&mock, "vllm").await;
    let mut prompts = Prompts(7);
    assert!(compare(&mock, &index, &mut prompts, 80, true).await > 1_000);
    // A reset is told with the next step only, as vLLM does it.
    assert_eq!(mock.ok("/reset_prefix_cache", &Value::Null).await["success"], true);
    mock.ok("/v1/completions", &first).await;
    assert!(compare(&mock, &index, &mut prompts, 30, true).await > 100);
    // Another life at the same addresses.
    mock.ok("/mock/restart", &Value::Null).await;
    mock.ok("/v1/completions", &first).await;
    assert!(compare(&mock, &index, &mut prompts, 30, true).await > 100);
    // Lost and repeated batches are asked for again.
    mock.ok("/mock/faults", &json!({"drop_every": 5, "repeat_every": 3}))
        .await;
    assert!(compare(&mock, &index, &mut prompts, 20, true).await > 100);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_index_knows_what_a_mock_of_sglang_has_cached() {
    let more = [
        ("mock.dialect", "sglang"),
        ("mock.blocks", "120"),
        ("mock.speedup", "10000"),
    ];
    let mock = Mock::telling(&more).await;
    let first = json!({"prompt": (0..40).collect::<Vec<u32>>(), "max_tokens": 2});
    mock.ok("/v1/completions", &first).await;
    let index = Index::of(&mock, "sglang").await;
    let mut prompts = Prompts(11);
    assert!(compare(&mock, &index, &mut prompts, 40, false).await > 500);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_index_knows_it_through_an_agent_too() {
    let mock = Mock::telling(&[("mock.blocks", "120"), ("mock.speedup", "10000")]).await;
    let first = json!({"prompt": (0..40).collect::<Vec<u32>>(), "max_tokens": 2});
    mock.ok("/v1/completions", &first).await;
    let config = settings(worker(&mock, "vllm", None)).config;
    let agent = Agent::start(&config, Arc::new(Metrics::default())).await;
    let agent = agent.unwrap_or_else(|error| panic!("{error}"));
    let url = format!("http://{}", agent.address().expect("it listens"));
    let serving = tokio::spawn(agent.serve(std::future::pending()));
    let index = Index::listening(worker(&mock, "vllm", Some(&url))).await;
    let mut prompts = Prompts(13);
    assert!(compare(&mock, &index, &mut prompts, 40, false).await > 500);
    assert_eq!(mock.ok("/reset_prefix_cache", &Value::Null).await["success"], true);
    mock.ok("/v1/completions", &first).await;
    assert!(compare(&mock, &index, &mut prompts, 20, false).await > 100);
    // What is lost on the way to the agent, it asks for again.
    mock.ok("/mock/faults", &json!({"drop_every": 5, "repeat_every": 3}))
        .await;
    assert!(compare(&mock, &index, &mut prompts, 20, false).await > 100);
    mock.ok("/mock/faults", &json!({"drop_every": 0, "repeat_every": 0}))
        .await;
    mock.ok("/mock/restart", &Value::Null).await;
    mock.ok("/v1/completions", &first).await;
    assert!(compare(&mock, &index, &mut prompts, 20, false).await > 100);
    assert!(!serving.is_finished());
    serving.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_real_libzmq_hears_and_replays_the_same_bytes() {
    for (format, frames) in [("map", 4), ("array", 3)] {
        let mock = Mock::telling(&[("mock.event-format", format)]).await;
        let (events, asked) = mock.places[0].ranks[0].clone();
        let mut listener = Listener::start();
        listener.tell(&format!("subscribe {} kv-events", events.expect("as it was set up")));
        listener.tell(&format!("dealer {}", asked.expect("as it was set up")));
        listener.say("receive 1");
        let hearing = tokio::task::spawn_blocking(move || {
            let heard = listener.hear();
            let asked = listener.tell("ask +0000000000000000");
            (heard, asked)
        });
        // Until the subscription is there, what is published is lost: it is said until it is heard.
        let mut number = 0_u32;
        while !hearing.is_finished() {
            number += 1;
            let prompt: Vec<u32> = (0..32).map(|place| number * 100 + place).collect();
            mock.ok("/v1/completions", &json!({"prompt": prompt, "max_tokens": 1}))
                .await;
        }
        let (heard, asked) = hearing.await.expect("as it was set up");
        let heard = Listener::messages(&heard).remove(0);
        assert_eq!((heard.len(), heard[0].as_slice()), (3, &b"kv-events"[..]));
        let replayed = Listener::messages(&asked);
        let same = replayed
            .iter()
            .find(|message| message[message.len() - 2] == heard[1])
            .expect("it is kept");
        assert_eq!(same.len(), frames, "{format}");
        assert_eq!(same.last(), heard.last());
    }
}

#[tokio::test]
async fn each_rank_of_each_worker_has_sockets_of_its_own() {
    let mock = Mock::telling(&[("mock.workers", "2"), ("mock.dp-size", "3")]).await;
    let mut all: Vec<String> = mock
        .places
        .iter()
        .flat_map(|place| place.ranks.clone())
        .flat_map(|(events, replay)| [events.expect("as it was set up"), replay.expect("as it was set up")])
        .collect();
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 12);
    let sources = mock.get_json("/kv_event_sources").await;
    assert_eq!(sources["2"]["endpoint"], json!(mock.places[0].ranks[2].0));
    assert_eq!(sources["2"]["enable_kv_cache_events"], true);
}
