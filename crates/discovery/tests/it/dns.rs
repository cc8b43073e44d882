//! Are workers found behind names? A real name server is asked: dnsmasq, whose path is in `HOMING_TEST_DNSMASQ`.

use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use homing_config::Discover;
use homing_discovery::{Dns, DnsConfig, Roster, RosterConfig};
use homing_telemetry::{Metrics, SourceKind};
use tokio::sync::mpsc;

use crate::mock::{GUARD, Mock, defaults, until};
use crate::roster::next;

/// A name server; killed when it is dropped.
struct Server {
    process: Child,
    address: SocketAddr,
    hosts: PathBuf,
    services: Vec<String>,
}

impl Server {
    fn start(hosts: &str, services: &[&str]) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let file = std::env::temp_dir().join(format!("homing-hosts-{}-{number}", std::process::id()));
        fs::write(&file, hosts).expect("there is room for files, ports and processes");
        let services: Vec<String> = services
            .iter()
            .map(|&service| format!("--srv-host={service}"))
            .collect();
        // Somebody else may take a port between our look at it and the server's.
        let (address, process) = loop {
            let address = free();
            let mut process = spawn(address, &file, &services);
            if listens(address, &mut process) {
                break (address, process);
            }
        };
        Self {
            process,
            address,
            hosts: file,
            services,
        }
    }

    /// Says something else from now on.
    fn change(&self, hosts: &str) {
        fs::write(&self.hosts, hosts).expect("there is room for files, ports and processes");
        let sent = Command::new("kill")
            .args(["-HUP", &self.process.id().to_string()])
            .status();
        assert!(sent.expect("there is room for files, ports and processes").success());
    }

    fn stop(&mut self) {
        self.process
            .kill()
            .expect("there is room for files, ports and processes");
        self.process
            .wait()
            .expect("there is room for files, ports and processes");
    }

    fn start_again(&mut self, hosts: &str) {
        fs::write(&self.hosts, hosts).expect("there is room for files, ports and processes");
        self.process = spawn(self.address, &self.hosts, &self.services);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_file(&self.hosts);
    }
}

/// A port that nobody has, for datagrams and for connections, below those that the system gives away.
fn free() -> SocketAddr {
    loop {
        let address = SocketAddr::from(([127, 0, 0, 1], 15_000 + fastrand::u16(..15_000)));
        if UdpSocket::bind(address).is_ok() && TcpListener::bind(address).is_ok() {
            return address;
        }
    }
}

/// Waits until a server has its port; false if it ended instead.
fn listens(address: SocketAddr, process: &mut Child) -> bool {
    let until = Instant::now() + GUARD;
    while process.try_wait().expect("it is our own").is_none() {
        assert!(Instant::now() < until, "{address} is not open");
        if TcpStream::connect(address).is_ok() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    false
}

fn spawn(address: SocketAddr, hosts: &std::path::Path, services: &[String]) -> Child {
    let binary = std::env::var_os("HOMING_TEST_DNSMASQ").unwrap_or_else(|| "/usr/sbin/dnsmasq".into());
    let started = Command::new(&binary)
        .args([
            "--keep-in-foreground",
            "--no-daemon",
            "--conf-file=/dev/null",
            "--no-resolv",
            "--no-hosts",
        ])
        .args([
            "--bind-interfaces",
            "--listen-address=127.0.0.1",
            "--local-ttl=1",
            "--local=/test/",
            "--user=",
            "--pid-file=",
        ])
        .arg(format!("--port={}", address.port()))
        .arg(format!("--addn-hosts={}", hosts.display()))
        .args(services)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    started.unwrap_or_else(|error| panic!("{}: {error}; ./test installs dnsmasq", binary.display()))
}

struct Found {
    roster: Roster,
    changes: mpsc::Receiver<homing_discovery::Change>,
    metrics: Arc<Metrics>,
}

fn find(server: &Server, place: &str) -> Found {
    find_within(server, place, Duration::from_millis(50))
}

/// Looks again after `most` at the latest, and after a second if it believes the server: so long its answers are valid.
fn find_within(server: &Server, place: &str, most: Duration) -> Found {
    let config = DnsConfig {
        server: Some(server.address),
        least: Duration::from_millis(20),
        most,
        timeout: Duration::from_millis(200),
    };
    let place = Discover::parse(place).unwrap_or_else(|problems| panic!("{problems:?}"));
    let source = Dns::new(&place, defaults(), config);
    let metrics = Arc::new(Metrics::default());
    let roster = RosterConfig {
        linger: Duration::from_millis(200),
        flap_window: Duration::ZERO,
        flap_wait: Duration::ZERO,
    };
    let (roster, changes) = Roster::start(vec![Box::new(source)], roster, &metrics);
    Found {
        roster,
        changes,
        metrics,
    }
}

impl Found {
    fn urls(&self) -> Vec<String> {
        let standing = self.roster.standing();
        let mut urls: Vec<String> = standing
            .workers
            .iter()
            .map(|worker| worker.spec.url.to_string())
            .collect();
        urls.sort();
        urls
    }

    fn trouble(&self) -> String {
        self.roster.standing().sources[0].trouble.clone().unwrap_or_default()
    }
}

#[tokio::test]
async fn addresses_come_and_go_and_a_server_that_is_down_takes_nobody_away() {
    let mut server = Server::start("127.0.0.2 vllm.test\n127.0.0.3 vllm.test\n", &[]);
    let mut found = find(&server, "dns:vllm.test:8000,events=tcp://{host}:5557,role=decode");
    next(&mut found.changes).await;
    next(&mut found.changes).await;
    assert_eq!(found.urls(), ["http://127.0.0.2:8000", "http://127.0.0.3:8000"]);
    let worker = found.roster.standing().workers[0].clone();
    assert_eq!(worker.origin.to_string(), "dns:vllm.test:8000");
    assert!(
        worker
            .spec
            .to_string()
            .contains(&format!("events=tcp://{}:5557", worker.spec.url.host()))
    );

    server.change("127.0.0.3 vllm.test\n127.0.0.4 vllm.test\n");
    let first = next(&mut found.changes).await;
    assert!(
        first.ends_with("http://127.0.0.4:8000"),
        "{first}: it comes before the other is given up"
    );
    let second = next(&mut found.changes).await;
    assert!(second.starts_with('-'), "{second}");
    assert_eq!(found.urls(), ["http://127.0.0.3:8000", "http://127.0.0.4:8000"]);

    server.stop();
    until("the failure", || !found.trouble().is_empty()).await;
    let failures = || found.metrics.discovery.source_failures.of(SourceKind::Dns).get();
    let seen = failures();
    until("more failures", || failures() >= seen + 2).await;
    assert_eq!(found.urls().len(), 2);

    server.start_again("127.0.0.4 vllm.test\n127.0.0.5 vllm.test\n");
    until("the others", || {
        found.urls() == ["http://127.0.0.4:8000", "http://127.0.0.5:8000"]
    })
    .await;
    until("an end of the trouble", || found.trouble().is_empty()).await;
}

#[tokio::test]
async fn an_answer_that_names_nobody_takes_nobody_away() {
    let server = Server::start("127.0.0.2 vllm.test\n", &[]);
    let mut found = find(&server, "dns:vllm.test:8000");
    next(&mut found.changes).await;
    server.change("127.0.0.9 other.test\n");
    until("the answer", || found.trouble().contains("has no addresses")).await;
    assert_eq!(found.urls(), ["http://127.0.0.2:8000"]);
    server.change("127.0.0.7 vllm.test\n");
    until("another", || found.urls() == ["http://127.0.0.7:8000"]).await;
}

#[tokio::test]
async fn an_address_of_either_kind_is_a_worker_and_both_kinds_are_one() {
    let server = Server::start("::1 six.test\n::1 both.test\n127.0.0.2 both.test\n", &[]);
    let mut six = find(&server, "dns:six.test:8000,events=tcp://{host}:5557");
    next(&mut six.changes).await;
    let worker = six.roster.standing().workers[0].spec.to_string();
    assert!(
        worker.starts_with("http://[::1]:8000,events=tcp://[::1]:5557"),
        "{worker}"
    );
    let mut both = find(&server, "dns:both.test:8000");
    next(&mut both.changes).await;
    assert_eq!(both.urls(), ["http://127.0.0.2:8000"]);
}

#[tokio::test]
async fn an_answer_holds_as_long_as_the_server_says() {
    let server = Server::start("127.0.0.2 vllm.test\n", &[]);
    // A look that fails on a busy machine is made again only after the longest time.
    let mut found = find_within(&server, "dns:vllm.test:8000", Duration::from_secs(20));
    assert_eq!(next(&mut found.changes).await, "+0 http://127.0.0.2:8000");
    server.change("127.0.0.2 vllm.test\n127.0.0.3 vllm.test\n");
    assert_eq!(next(&mut found.changes).await, "+1 http://127.0.0.3:8000");
}

#[tokio::test]
async fn services_have_ports_of_their_own() {
    let server = Server::start(
        "127.0.0.2 a.test\n127.0.0.3 b.test\n",
        &[
            "_http._tcp.vllm.test,a.test,8001",
            "_http._tcp.vllm.test,b.test,8002",
            "_http._tcp.vllm.test,gone.test,8003",
        ],
    );
    let mut found = find(&server, "dns-srv:_http._tcp.vllm.test,model=qwen");
    next(&mut found.changes).await;
    next(&mut found.changes).await;
    assert_eq!(found.urls(), ["http://127.0.0.2:8001", "http://127.0.0.3:8002"]);
}

#[tokio::test]
async fn a_name_leads_to_a_worker_that_answers() {
    let mock = Mock::start(&[]).await;
    let server = Server::start("127.0.0.1 mock.test\n", &[]);
    let place = format!("dns:mock.test:{}", mock.places[0].address.port());
    let mut found = find(&server, &place);
    next(&mut found.changes).await;
    let url = found.roster.standing().workers[0].spec.url.clone();
    let probe = homing_discovery::Probe::new(homing_discovery::ProbeConfig {
        timeout: Duration::from_secs(20),
    });
    assert!(probe.ask(&url).await.is_ok());
    mock.stop().await;
}
