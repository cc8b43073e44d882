//! Who is at the other end? With certificates that are good, and one of each kind that is not.

use homing_platform::HttpClient;
use std::net::SocketAddr;
use std::sync::Arc;

use homing_telemetry::TurnedAway;
use homing_tls::{Identity, Io};
use homing_transport::testing::python;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};

use crate::harness::{Engine, GUARD, Gateway};
use crate::security::pki::{Ca, Holds, written};
use crate::security::raw::{all, connect, until};
use crate::security::renewal::RegistrationToken;

fn asked() -> Value {
    json!({ "model": "tiny", "prompt": "x", "max_tokens": 2, "temperature": 0 })
}

/// Why a client does not get an answer; `None` if it does.
async fn trouble(client: &HttpClient, url: &str) -> Option<String> {
    match client.post(format!("{url}/v1/completions")).json(&asked()).send().await {
        Ok(answer) => {
            assert_eq!(answer.status(), 200);
            None
        }
        Err(error) => Some(format!("{error:?}")),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_are_spoken_to_within_tls_and_believe_good_certificates_only() {
    let ca = Ca::new();
    let engines = [Engine::start(&[])];
    let good = ca.leaf("127.0.0.1", Holds::Now);
    for (name, leaf, believed) in [
        ("good", good, None),
        ("expired", ca.leaf("127.0.0.1", Holds::NoMore), Some("Expired")),
        (
            "other-name",
            ca.leaf("elsewhere.example", Holds::Now),
            Some("NotValidForName"),
        ),
        (
            "other-ca",
            Ca::new().leaf("127.0.0.1", Holds::Now),
            Some("UnknownIssuer"),
        ),
    ] {
        let (cert, key) = leaf.files(name);
        let settings = [
            ("serve.tls-cert", cert.as_str()),
            ("serve.tls-key", key.as_str()),
            ("serve.admin-tls", "off"),
        ];
        let gateway = Gateway::before(&engines, &settings).await;
        assert!(gateway.url.starts_with("https://"), "{}", gateway.url);
        let found = trouble(&ca.client(), &gateway.url).await;
        match believed {
            None => assert_eq!(found, None, "{name}"),
            Some(why) => {
                let found = found.unwrap_or_else(|| panic!("{name} was believed"));
                assert!(found.contains(why), "{name}: {found}");
                until("it to be counted", || {
                    gateway
                        .metrics
                        .gateway
                        .refused_connections
                        .of(TurnedAway::Handshake)
                        .get()
                        > 0
                })
                .await;
            }
        }
        // Who speaks without TLS gets nothing of HTTP.
        let plain = gateway.url.replace("https://", "http://");
        let answer = crate::security::raw::exchange(&plain, b"GET /live HTTP/1.1\r\nhost: x\r\n\r\n").await;
        assert!(!answer.contains("HTTP/1.1"), "{answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn http_one_is_all_that_is_offered_and_a_handshake_has_its_time() {
    let ca = Ca::new();
    let (cert, key) = ca.leaf("127.0.0.1", Holds::Now).files("offered");
    let engines = [Engine::start(&[])];
    let settings = [
        ("serve.tls-cert", cert.as_str()),
        ("serve.tls-key", key.as_str()),
        ("serve.admin-tls", "off"),
        ("serve.handshake-timeout", "4s"),
    ];
    let gateway = Gateway::before(&engines, &settings).await;
    let address: SocketAddr = gateway.url.trim_start_matches("https://").parse().unwrap();
    let offered = async |protocols: &[&[u8]]| {
        let mut roots = rustls::RootCertStore::empty();
        let certs = rustls_pem(&ca.pem);
        roots.add_parsable_certificates(certs);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = protocols.iter().map(|one| one.to_vec()).collect();
        let stream = TcpStream::connect(address).await.unwrap();
        let name = rustls::pki_types::ServerName::from(address.ip());
        let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
        let stream = connector.connect(name, stream).await;
        stream.map(|stream| stream.get_ref().1.alpn_protocol().map(<[u8]>::to_vec))
    };
    assert_eq!(
        offered(&[b"h2", b"http/1.1"]).await.unwrap().as_deref(),
        Some(&b"http/1.1"[..])
    );
    assert_eq!(offered(&[]).await.unwrap(), None);
    assert!(offered(&[b"h2"]).await.is_err());
    let late = || {
        gateway
            .metrics
            .gateway
            .refused_connections
            .of(TurnedAway::Handshake)
            .get()
    };
    // The one that spoke nothing of ours is counted a moment after it was told.
    until("it to be counted", || late() > 0).await;
    let before = late();
    // One that begins no handshake, and one that does not go on with it.
    for bytes in [&b""[..], b"\x16\x03\x01\x02\x00\x01"] {
        let mut stream = connect(&address.to_string()).await;
        tokio::io::AsyncWriteExt::write_all(&mut stream, bytes).await.unwrap();
        assert_eq!(all(&mut stream).await, "");
    }
    until("both to be counted", || late() >= before + 2).await;
}

fn rustls_pem(text: &str) -> Vec<rustls::pki_types::CertificateDer<'static>> {
    use rustls::pki_types::pem::PemObject as _;
    let certs = rustls::pki_types::CertificateDer::pem_slice_iter(text.as_bytes());
    certs.map(Result::unwrap).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_is_renewed_and_no_stream_ends() {
    let (old, new) = (Ca::new(), Ca::new());
    let (cert, key) = old.leaf("127.0.0.1", Holds::Now).files("renewed");
    let engines = [Engine::start(&[("mock.speedup", "1")])];
    let mut token = RegistrationToken::new("tls-registration-token");
    let token_setting = token.setting();
    let settings = [
        ("serve.tls-cert", cert.as_str()),
        ("serve.tls-key", key.as_str()),
        ("serve.admin-tls", "off"),
        ("serve.register-token", &token_setting),
        ("discovery.file-interval", "20ms"),
    ];
    let gateway = Gateway::before(&engines, &settings).await;
    let mut body = asked();
    (body["max_tokens"], body["stream"]) = (json!(5_000), json!(true));
    let request = old.client().post(format!("{}/v1/completions", gateway.url)).json(&body);
    let mut stream = request.send().await.unwrap();
    let mut text = String::from_utf8(stream.chunk().await.unwrap().unwrap().to_vec()).unwrap();
    // A certificate whose key is another's changes nothing.
    written("renewed-cert.pem", &new.leaf("127.0.0.1", Holds::Now).cert);
    token.wait_until_files_were_read(&gateway).await;
    assert_eq!(trouble(&old.client(), &gateway.url).await, None);
    new.leaf("127.0.0.1", Holds::Now).files("renewed");
    let until = std::time::Instant::now() + GUARD;
    while trouble(&new.client(), &gateway.url).await.is_some() {
        assert!(std::time::Instant::now() < until, "the new certificate is not used");
    }
    assert!(trouble(&old.client(), &gateway.url).await.is_some());
    engines[0].hurry().await;
    while let Some(piece) = stream.chunk().await.unwrap() {
        text.push_str(std::str::from_utf8(&piece).unwrap());
    }
    assert!(crate::harness::events(&text).len() >= 5_000);
}

/// An engine behind TLS: what comes is passed on to it.
async fn behind_tls(engine: &Engine, identity: Identity) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, engine) = (listener.local_addr().unwrap(), engine.place.address);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let identity = identity.clone();
            tokio::spawn(async move {
                let Ok(mut io) = identity.accept(stream, GUARD).await else {
                    return;
                };
                assert!(matches!(io, Io::Tls(_)));
                let mut inner = TcpStream::connect(engine).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut io, &mut inner).await;
            });
        }
    });
    address
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_with_tls_are_believed_if_somebody_vouches_for_them() {
    let ca = Ca::new();
    let trusted = ca.file("workers");
    let engine = Engine::start(&[]);
    for (name, leaf, believed) in [
        ("worker-good", ca.leaf("127.0.0.1", Holds::Now), None),
        ("worker-expired", ca.leaf("127.0.0.1", Holds::NoMore), Some("expired")),
        (
            "worker-other-name",
            ca.leaf("elsewhere.example", Holds::Now),
            Some("not valid for name"),
        ),
        (
            "worker-other-ca",
            Ca::new().leaf("127.0.0.1", Holds::Now),
            Some("UnknownIssuer"),
        ),
    ] {
        let (cert, key) = leaf.files(name);
        let identity = Identity::read(cert.as_ref(), key.as_ref()).unwrap();
        let address = behind_tls(&engine, identity).await;
        let spec = format!("https://{address},model=tiny,cache-view=none");
        let gateway = Gateway::start(&[spec], &[("serve.worker-ca", &trusted)]).await;
        match believed {
            None => {
                gateway.wait_workers(1).await;
                for _ in 0..3 {
                    let answer = gateway.send("/v1/completions", &asked()).await;
                    assert_eq!(answer.status(), 200);
                    assert_eq!(
                        answer.headers()["x-homing-served-by"],
                        format!("https://{address}").as_str()
                    );
                    answer.bytes().await.unwrap();
                }
                let events = gateway.stream("/v1/completions", &asked()).await;
                assert!(events.len() >= 2);
            }
            Some(why) => {
                let asked_for = || {
                    let probes = &gateway.metrics.discovery.asked_probes;
                    probes.of(homing_telemetry::Asked::Failed).get()
                };
                until("it to be asked", || asked_for() > 1).await;
                assert_eq!(
                    gateway.send("/v1/completions", &asked()).await.status(),
                    503,
                    "{name}: {why}"
                );
                assert_eq!(gateway.metrics.gateway.known_workers.get(), 0, "{name}: {why}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_real_client_speaks_tls_with_a_key_and_operators_do_as_well() {
    let ca = Ca::new();
    let trusted = ca.file("client");
    let (cert, key) = ca.leaf("127.0.0.1", Holds::Now).files("client");
    let acme = homing_config::keys::fresh("acme", 0, homing_config::keys::Quota::default()).unwrap();
    let keys = written("client-keys.toml", &acme.spec.to_toml());
    let engines = [Engine::start(&[])];
    let settings = [
        ("serve.tls-cert", cert.as_str()),
        ("serve.tls-key", key.as_str()),
        ("serve.keys", keys.as_str()),
        ("serve.admin-token", "the-token-of-operators"),
    ];
    let gateway = Gateway::start(&[engines[0].spec("")], &settings).await;
    assert!(gateway.admin.starts_with("https://"));
    let operator = ca.client();
    let ready = async || {
        let fleet = operator.get(format!("{}/admin/fleet", gateway.admin));
        let answer = fleet.bearer_auth("the-token-of-operators").send().await.unwrap();
        assert_eq!(answer.status(), 200);
        answer.json::<Value>().await.unwrap()["ready"] == true
    };
    let until = std::time::Instant::now() + GUARD;
    while !ready().await {
        assert!(std::time::Instant::now() < until, "no worker takes requests");
    }
    let url = gateway.url.clone();
    let ran = tokio::task::spawn_blocking(move || {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tls_client.py");
        let mut python = python();
        python.arg(script).args([&url, &acme.key]).env("SSL_CERT_FILE", trusted);
        python.output().expect("the interpreter starts")
    });
    let output = ran.await.unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("all is well"), "{said}");
}
