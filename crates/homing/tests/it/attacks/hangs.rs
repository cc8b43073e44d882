//! Workers that hang: the whole process stops, or the engine core stops while the API server still answers; and workers that are gone.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::harness::{Connection, Process, Response, get, post_json, request, wait_until};

/// How long a request may wait for a worker that hangs. Without a detector it waits for minutes.
const PATIENCE: Duration = Duration::from_secs(25);

/// Two engines and a gateway that deals requests out in turn.
struct Fleet {
    engines: Vec<Process>,
    gateway: Process,
}

impl Fleet {
    fn start(more: &[&str]) -> Self {
        let engines: Vec<Process> = (0..2).map(|_| Process::mock(&[])).collect();
        let urls: Vec<String> = engines
            .iter()
            .map(|engine| format!("http://{}", engine.address()))
            .collect();
        let workers: Vec<&str> = urls.iter().map(String::as_str).collect();
        let gateway = Process::serve(&workers, &[&["--policy", "round-robin"], more].concat());
        gateway.wait_ready();
        let fleet = Self { engines, gateway };
        wait_until("both workers take requests", || fleet.workers().len() == 2);
        for number in 0..8 {
            assert_eq!(fleet.ask(number, true).expect("it is answered").status, 200);
        }
        fleet
    }

    fn url(&self, engine: usize) -> String {
        format!("http://{}", self.engines[engine].address())
    }

    fn workers(&self) -> Vec<Value> {
        let fleet = get(&self.gateway.operators(), "/admin/fleet", &[]).json();
        fleet["workers"].as_array().cloned().unwrap_or_default()
    }

    fn health(&self, engine: usize) -> String {
        let url = self.url(engine);
        let workers = self.workers();
        let worker = workers
            .iter()
            .find(|worker| worker["url"] == *url)
            .expect("it is known");
        worker["health"].as_str().unwrap_or_default().to_owned()
    }

    /// Sends a request; nothing if it is not answered in time.
    fn ask(&self, number: u32, stream: bool) -> Option<Response> {
        let prompt: Vec<u32> = (0..64).map(|place| 100 + number * 64 + place).collect();
        let body = json!({
            "model": "tiny", "prompt": prompt, "max_tokens": 4, "temperature": 0, "stream": stream
        });
        self.send(&body, &[])
    }

    fn send(&self, body: &Value, headers: &[(&str, &str)]) -> Option<Response> {
        let mut connection = Connection::open(&self.gateway.address());
        connection.set_deadline(PATIENCE);
        let all = [&[("content-type", "application/json")], headers].concat();
        connection
            .send(request("POST", "/v1/completions", &all, body.to_string().as_bytes()))
            .expect("it is sent");
        connection.read_response().ok()
    }

    /// Workers that requests were sent to since so many decisions.
    fn tried_by(&self, newest: usize) -> BTreeSet<String> {
        let path = format!("/admin/decisions?limit={newest}");
        let told = get(&self.gateway.operators(), &path, &[]).json();
        let decisions = told["decisions"].as_array().cloned().unwrap_or_default();
        let tries = decisions
            .iter()
            .flat_map(|decision| decision["tries"].as_array().cloned().unwrap_or_default());
        tries
            .map(|this| this["worker"].as_str().unwrap_or_default().to_owned())
            .collect()
    }

    fn check_hang(&self, hangs: usize) {
        let answers: Vec<Option<u16>> = std::thread::scope(|scope| {
            let asked = (0..12).map(|number| scope.spawn(move || self.ask(100 + number, number % 2 == 0)));
            let asked: Vec<_> = asked.collect();
            asked
                .into_iter()
                .map(|asked| Some(asked.join().unwrap()?.status))
                .collect()
        });
        assert_eq!(
            answers,
            vec![Some(200); 12],
            "requests that waited are answered elsewhere"
        );
        for number in 0..20 {
            let answer = self.ask(200 + number, number % 2 == 0).expect("it is answered");
            assert_eq!(answer.status, 200, "{}", answer.text());
        }
        let tried = self.tried_by(20);
        assert!(!tried.contains(&self.url(hangs)), "it gets no new request: {tried:?}");
        let health = self.health(hangs);
        assert!(["stalled", "down"].contains(&health.as_str()), "{health}");
    }

    fn check_recovery(&self, hung: usize) {
        wait_until("it is taken back", || self.health(hung) == "up");
        wait_until("it gets requests again", || {
            let answer = self.ask(300, true).expect("it is answered");
            assert_eq!(answer.status, 200, "{}", answer.text());
            self.tried_by(1).contains(&self.url(hung))
        });
    }
}

#[test]
fn a_stopped_process_gets_no_new_request_and_what_waits_there_is_answered_elsewhere() {
    let fleet = Fleet::start(&[]);
    fleet.engines[0].signal("-STOP");
    fleet.check_hang(0);
    fleet.engines[0].signal("-CONT");
    fleet.check_recovery(0);
}

#[test]
fn an_engine_core_that_stops_behind_an_api_server_that_answers_is_found() {
    let fleet = Fleet::start(&[]);
    let engine = fleet.engines[1].address();
    let set = |stall: bool| {
        let told = post_json(&engine, "/mock/faults", &[], &json!({ "stall": stall }));
        assert_eq!(told.status, 200);
    };
    set(true);
    assert_eq!(get(&engine, "/health", &[]).status, 200);
    fleet.check_hang(1);
    set(false);
    fleet.check_recovery(1);
}

#[test]
fn a_request_pinned_to_a_worker_that_is_down_is_told_so_while_it_is_tried_again() {
    // Only requests find that it is gone, and it is tried again after a moment.
    let mut fleet = Fleet::start(&[
        "--health-interval",
        "1h",
        "--health-backoff",
        "100ms",
        "--health-backoff-most",
        "100ms",
    ]);
    let name = fleet.url(0);
    fleet.engines[0].kill();
    let body = json!({ "model": "tiny", "prompt": [1, 2, 3], "max_tokens": 1 });
    let ask = |fleet: &Fleet| {
        fleet
            .send(&body, &[("x-homing-worker", &name)])
            .expect("it is answered")
    };
    wait_until("it is known to be down", || {
        ask(&fleet);
        fleet.health(0) == "down"
    });
    let until = Instant::now() + Duration::from_secs(2);
    while Instant::now() < until {
        let answer = ask(&fleet);
        let told = answer.error_message().unwrap_or_default();
        assert_eq!(answer.status, 503, "{told}");
        assert!(told.contains("is down") && told.contains(&name), "{told}");
    }
}
