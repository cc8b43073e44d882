//! Do watchers tell what happens to a worker?

use homing_platform::HttpClient;
use std::sync::Arc;
use std::time::{Duration, Instant};

use homing_discovery::{Health, HealthConfig, News, Notice, Ping, ProbeConfig, State, WatchConfig, Watchers};
use homing_domain::WorkerId;
use homing_telemetry::{Asked, Metrics};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use crate::mock::{Mock, soon, until};

fn config() -> WatchConfig {
    WatchConfig {
        origin: Instant::now(),
        probe: ProbeConfig {
            timeout: Duration::from_secs(20),
        },
        probe_interval: Duration::from_mins(10),
        ping_interval: Duration::from_millis(20),
        ping_timeout: Duration::from_secs(20),
        load_interval: Duration::from_millis(20),
        load_timeout: Duration::from_secs(20),
        at_once: 8,
    }
}

struct Heard {
    watchers: Watchers,
    notices: mpsc::Receiver<Notice>,
    metrics: Arc<Metrics>,
}

fn watchers(config: WatchConfig) -> Heard {
    let (to, notices) = mpsc::channel(16);
    let metrics = Arc::new(Metrics::default());
    Heard {
        watchers: Watchers::new(config, to, &metrics),
        notices,
        metrics,
    }
}

impl Heard {
    /// The first notice from which `take` takes something.
    async fn first<T>(&mut self, what: &str, mut take: impl FnMut(&Notice) -> Option<T>) -> T {
        soon(what, async {
            loop {
                let notice = self.notices.recv().await.expect("watchers go on");
                if let Some(taken) = take(&notice) {
                    return taken;
                }
            }
        })
        .await
    }

    fn polls(&self, outcome: Asked) -> u64 {
        self.metrics.discovery.asked_polls.of(outcome).get()
    }
}

#[tokio::test]
async fn it_tells_what_a_worker_is_how_it_is_and_how_busy_each_rank_is() {
    for dialect in ["vllm", "sglang"] {
        // So slow that a request is still there when it is looked for.
        let mock = Mock::start(&[
            ("mock.dialect", dialect),
            ("mock.dp-size", "2"),
            ("mock.speedup", "0.001"),
            ("block-size", "16"),
        ])
        .await;
        let mut heard = watchers(config());
        let _watcher = heard.watchers.watch(WorkerId(7), &mock.url());
        let facts = heard.first("facts", |notice| match &notice.news {
            News::Facts(facts) => Some(facts.clone()),
            _ => None,
        });
        assert_eq!(facts.await.ranks, Some(2));
        heard
            .first("an answered ping", |notice| {
                assert_eq!(notice.worker, WorkerId(7));
                matches!(notice.news, News::Ping(Ping::Answered)).then_some(())
            })
            .await;
        let url = format!("{}/v1/completions", mock.url());
        let request = tokio::spawn(async move {
            let body = json!({"model": "tiny", "prompt": "x".repeat(160), "max_tokens": 500});
            let request = HttpClient::default().post(url).header("x-data-parallel-rank", "1");
            let _ = request.json(&body).send().await;
        });
        let busy = heard.first("a busy rank", |notice| match &notice.news {
            News::Load(loads) => {
                assert_eq!(loads.len(), 2, "{dialect}");
                assert!(loads.iter().all(|load| load.report.at == notice.at));
                let is_busy = loads[1].report.running + loads[1].report.waiting > 0 && loads[1].report.used_blocks > 0;
                is_busy.then(|| loads.clone())
            }
            _ => None,
        });
        let loads = busy.await;
        assert_eq!((loads[0].report.running, loads[0].report.waiting), (0, 0), "{dialect}");
        assert!(loads[1].report.used_blocks >= 10, "{dialect}: {loads:?}");
        assert!(loads[1].usage.is_some_and(|usage| usage > 0.0), "{dialect}");
        assert!(heard.polls(Asked::Answered) > 0);
        assert_eq!(heard.polls(Asked::Failed), 0);
        request.abort();
        mock.stop().await;
    }
}

#[tokio::test]
async fn a_worker_that_is_not_there_yet_is_known_when_it_comes() {
    let held = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = held.local_addr().unwrap();
    drop(held);
    let url = homing_config::HttpUrl::parse(&format!("http://{address}")).unwrap();
    let mut heard = watchers(config());
    let _watcher = heard.watchers.watch(WorkerId(0), &url);
    let why = heard.first("a reason", |notice| match &notice.news {
        News::NoFacts(why) => Some(why.clone()),
        _ => None,
    });
    assert!(why.await.contains("cannot be reached"));
    let port = address.port().to_string();
    let mock = Mock::start(&[("mock.port", &port)]).await;
    let facts = heard.first("facts", |notice| match &notice.news {
        News::Facts(facts) => Some(facts.clone()),
        _ => None,
    });
    assert_eq!(facts.await.base_models().next().unwrap().name, "tiny");
    mock.stop().await;
}

#[tokio::test]
async fn who_comes_back_as_another_is_asked_anew_what_it_is() {
    let mock = Mock::start(&[("model", "first")]).await;
    let port = mock.places[0].address.port().to_string();
    let mut heard = watchers(config());
    let _watcher = heard.watchers.watch(WorkerId(0), &mock.url());
    let model = |notice: &Notice| match &notice.news {
        News::Facts(facts) => facts.base_models().next().map(|model| model.name.clone()),
        _ => None,
    };
    assert_eq!(heard.first("facts", model).await, "first");
    mock.stop().await;
    let gone = |notice: &Notice| matches!(notice.news, News::Ping(Ping::Failed)).then_some(());
    heard.first("a failed ping", gone).await;
    let mock = Mock::start(&[("model", "second"), ("mock.port", &port)]).await;
    assert_eq!(heard.first("other facts", model).await, "second");
    mock.stop().await;
}

#[tokio::test]
async fn health_follows_what_watchers_tell() {
    let mock = Mock::start(&[]).await;
    let mut heard = watchers(WatchConfig {
        ping_timeout: Duration::from_secs(20),
        ..config()
    });
    let _watcher = heard.watchers.watch(WorkerId(0), &mock.url());
    let mut health = Health::new(
        HealthConfig {
            failures: 3,
            failure_rate: 0.5,
            window: Duration::from_secs(30),
            least_requests: 10,
            backoff: Duration::from_secs(1),
            backoff_most: Duration::from_mins(1),
            trials: 2,
            trial_limit: Duration::from_secs(10),
        },
        1,
    );
    let mut follow = |notice: &Notice, wanted: fn(State) -> bool| {
        if let News::Ping(ping) = notice.news {
            health.ping(notice.at, ping);
        }
        wanted(health.state()).then_some(())
    };
    heard
        .first("a ping", |notice| {
            matches!(notice.news, News::Ping(_)).then(|| follow(notice, |state| state == State::Up).unwrap())
        })
        .await;
    mock.faults(json!({"refuse": true})).await;
    heard
        .first("its end", |notice| {
            follow(notice, |state| matches!(state, State::Down { .. }))
        })
        .await;
    // Whatever is asked of it is refused, so that the way back is a new mock at the same place.
    let port = mock.places[0].address.port().to_string();
    mock.stop().await;
    let mock = Mock::start(&[("mock.port", &port)]).await;
    heard
        .first("its return", |notice| follow(notice, |state| state == State::Up))
        .await;
    mock.stop().await;
}

#[tokio::test]
async fn slow_answers_are_counted_and_do_not_pile_up() {
    // Takes every connection and answers what it is on the first only.
    let mock = Mock::start(&[]).await;
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent_url = homing_config::HttpUrl::parse(&format!("http://{}", silent.local_addr().unwrap())).unwrap();
    let mut heard = watchers(WatchConfig {
        ping_timeout: Duration::from_millis(30),
        ..config()
    });
    let _silent = heard.watchers.watch(WorkerId(0), &silent_url);
    let timed_out = |notice: &Notice| matches!(notice.news, News::Ping(Ping::TimedOut)).then_some(());
    for _ in 0..3 {
        heard.first("a ping without answer", timed_out).await;
    }
    assert!(heard.metrics.discovery.asked_pings.of(Asked::TimedOut).get() >= 3);
    assert_eq!(
        heard.polls(Asked::Answered),
        0,
        "of a worker that says nothing no load is asked"
    );
    // Others are not held up by it.
    let _other = heard.watchers.watch(WorkerId(1), &mock.url());
    heard
        .first("the load of another", |notice| {
            (notice.worker == WorkerId(1) && matches!(notice.news, News::Load(_))).then_some(())
        })
        .await;
    mock.stop().await;
}

#[tokio::test]
async fn beyond_the_bound_polls_are_left_out_and_counted() {
    let mock = Mock::start(&[]).await;
    let heard = watchers(WatchConfig { at_once: 0, ..config() });
    let _watcher = heard.watchers.watch(WorkerId(0), &mock.url());
    let mut notices = heard.notices;
    let drained = tokio::spawn(async move {
        while let Some(notice) = notices.recv().await {
            assert!(!matches!(notice.news, News::Load(_)));
        }
    });
    let skipped = || heard.metrics.discovery.asked_polls.of(Asked::Skipped).get();
    until("polls that are left out", || skipped() >= 3).await;
    drained.abort();
    mock.stop().await;
}

#[tokio::test]
async fn a_watcher_that_is_dropped_asks_no_more() {
    let mock = Mock::start(&[]).await;
    let mut heard = watchers(config());
    let watcher = heard.watchers.watch(WorkerId(0), &mock.url());
    heard
        .first("a ping", |notice| matches!(notice.news, News::Ping(_)).then_some(()))
        .await;
    drop(watcher);
    // The channel closes when the last of those who tell is gone.
    drop(heard.watchers);
    soon("the end", async { while heard.notices.recv().await.is_some() {} }).await;
    mock.stop().await;
}
