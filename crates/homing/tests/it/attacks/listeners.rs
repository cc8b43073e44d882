//! Connections that keep operators from health and metrics.

use super::harness::{Connection, FakeEngine, Process, get, wait_until};

const TOKEN: &str = "token-of-the-operators";

fn serve(engine: &FakeEngine) -> Process {
    let gateway = Process::serve(&[&engine.url()], &["--admin-token", TOKEN]);
    gateway.wait_ready();
    gateway
}

fn authorized(gateway: &Process, path: &str) -> u16 {
    let token = format!("Bearer {TOKEN}");
    get(&gateway.operators(), path, &[("authorization", &token)]).status
}

#[test]
fn idle_connections_do_not_keep_operators_from_asking() {
    let engine = FakeEngine::start("tiny");
    let gateway = serve(&engine);
    let idle: Vec<Connection> = (0..300).map(|_| Connection::open(&gateway.operators())).collect();
    for _ in 0..3 {
        assert_eq!(get(&gateway.operators(), "/health", &[]).status, 200);
        assert_eq!(authorized(&gateway, "/metrics"), 200);
        assert_eq!(authorized(&gateway, "/admin/fleet"), 200);
    }
    drop(idle);
}

#[test]
fn half_sent_heads_do_not_keep_operators_from_asking() {
    let engine = FakeEngine::start("tiny");
    let gateway = serve(&engine);
    let half: Vec<Connection> = (0..300)
        .map(|_| {
            let mut connection = Connection::open(&gateway.operators());
            // One that was closed for another cannot be written to any more.
            connection.send("GET /health HTTP/1.1\r\nhost:").ok();
            connection
        })
        .collect();
    assert_eq!(get(&gateway.operators(), "/health", &[]).status, 200);
    assert_eq!(authorized(&gateway, "/metrics"), 200);
    drop(half);
}

#[test]
fn busy_connections_of_one_address_leave_room_for_health() {
    let engine = FakeEngine::start("tiny");
    let gateway = serve(&engine);
    // Requests whose bodies do not come: none of these connections is idle.
    let head = format!(
        "PUT /admin/workers/x HTTP/1.1\r\nhost: test\r\nauthorization: Bearer {TOKEN}\r\ncontent-length: 9000\r\n\r\n"
    );
    let begin = || {
        let mut connection = Connection::open(&gateway.operators());
        connection.send(&head).unwrap();
        connection
    };
    let mut busy: Vec<Connection> = (0..32).map(|_| begin()).collect();
    wait_until("the limit of one address is reached", || {
        let is_reached = authorized(&gateway, "/admin/fleet") == 503;
        if !is_reached {
            // One over which nothing had come yet made room for the question.
            busy.push(begin());
        }
        is_reached
    });
    for _ in 0..20 {
        assert_eq!(get(&gateway.operators(), "/health", &[]).status, 200);
        assert_eq!(authorized(&gateway, "/metrics"), 200);
    }
    // Neither do connections above the limit over which nothing comes take it.
    let idle: Vec<Connection> = (0..50).map(|_| Connection::open(&gateway.operators())).collect();
    assert_eq!(get(&gateway.operators(), "/health", &[]).status, 200);
    drop((busy, idle));
    wait_until("there is room again", || authorized(&gateway, "/admin/fleet") == 200);
}
