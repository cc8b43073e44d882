//! `homing index` and `homing agent` have the limits of the gateway: heads, connections, tokens.

use std::time::Duration;

use super::harness::{Connection, Process, exchange, get, wait_until};

const TOKEN: &str = "token-of-the-tests";
/// Nothing listens there.
const WORKER: &str = "http://127.0.0.1:1,model=tiny,events=tcp://127.0.0.1:1";
const SERVICES: [&str; 2] = ["index", "agent"];

fn start(service: &str, variables: &[(&str, &str)]) -> Process {
    let process = Process::start_with(&[service, "--listen", "127.0.0.1:0", "--worker", WORKER], variables);
    process.address();
    process
}

#[test]
fn heads_that_can_be_read_in_two_ways_are_refused() {
    for service in SERVICES {
        let process = start(service, &[]);
        for head in [
            "GET /health HTTP/1.1\nhost: test\n\n",
            "GET /health HTTP/1.1\nhost: test\r\n\r\n",
            "GET /health HTTP/1.1\r\nhost: test\r\nx: a\r\n b\r\n\r\n",
            "POST /health HTTP/1.1\r\nhost: test\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        ] {
            let mut connection = Connection::open(&process.address());
            connection.send(head).unwrap();
            // A head without an end is cut by time.
            connection.set_deadline(Duration::from_secs(30));
            let status = connection.read_response().map(|response| response.status);
            assert!(matches!(status, Ok(400 | 408)), "{service} {head:?}: {status:?}");
        }
        let long = format!(
            "GET /health HTTP/1.1\r\nhost: test\r\nx: {}\r\n\r\n",
            "a".repeat(70_000)
        );
        assert_eq!(exchange(&process.address(), long).status, 431, "{service}");
        let many = format!("GET /health HTTP/1.1\r\nhost: test\r\n{}\r\n", "a: b\r\n".repeat(101));
        assert_eq!(exchange(&process.address(), many).status, 431, "{service}");
        assert_eq!(get(&process.address(), "/health", &[]).status, 200, "{service}");
    }
}

#[test]
fn half_open_heads_do_not_stay() {
    for service in SERVICES {
        let process = start(service, &[("HOMING_SERVE_HEADER_TIMEOUT", "500ms")]);
        let mut half: Vec<Connection> = (0..200)
            .map(|_| {
                let mut connection = Connection::open(&process.address());
                connection.send("GET /health HTTP/1.1\r\nhost:").unwrap();
                connection.set_deadline(Duration::from_secs(20));
                connection
            })
            .collect();
        for connection in &mut half {
            let rest = connection.read_to_end();
            let rest = rest.unwrap_or_else(|error| panic!("{service}: a half-open head stays: {error}"));
            assert!(rest.is_empty() || rest.starts_with(b"HTTP/1.1 408"), "{service}");
        }
    }
}

#[test]
fn one_address_has_a_limited_number_of_connections() {
    for service in SERVICES {
        let name = format!("HOMING_{}_MAX_CONNECTIONS_PER_CLIENT", service.to_uppercase());
        let process = start(service, &[(&name, "20")]);
        let mut connections: Vec<Connection> = (0..100).map(|_| Connection::open(&process.address())).collect();
        for connection in &connections {
            connection.stream.set_nonblocking(true).unwrap();
        }
        let mut closed = 0;
        wait_until(&format!("{service} closes idle connections above the limit"), || {
            connections.retain_mut(|connection| {
                let is_open = connection
                    .read_to_end()
                    .is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock);
                closed += usize::from(!is_open);
                is_open
            });
            closed >= 80
        });
        assert_eq!(get(&process.address(), "/health", &[]).status, 200, "{service}");
    }
}

#[test]
fn a_token_is_asked_for_where_one_is_set() {
    for service in SERVICES {
        let name = format!("HOMING_{}_TOKEN", service.to_uppercase());
        let process = start(service, &[(&name, TOKEN)]);
        let address = process.address();
        for (path, sent, status) in [
            ("/v1/ranks", None, 401),
            ("/v1/ranks", Some("Bearer another-token-of-tests"), 401),
            ("/v1/ranks", Some("Basic token-of-the-tests"), 401),
            ("/v1/ranks", Some("Bearer token-of-the-tests"), 200),
            ("/metrics", None, 401),
            ("/v1/nothing", None, 401),
            ("/health", None, 200),
        ] {
            let headers: Vec<(&str, &str)> = sent.map(|sent| ("authorization", sent)).into_iter().collect();
            let response = get(&address, path, &headers);
            assert_eq!(
                response.status,
                status,
                "{service} {path} {sent:?}: {}",
                response.text()
            );
        }
        let health = get(&address, "/health", &[]).json();
        assert_eq!(
            health,
            serde_json::json!({ "status": "ok" }),
            "{service}: no detail without a token"
        );
    }
}
