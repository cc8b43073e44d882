//! Who may see and order what on the listener of operators?

use homing_platform::Method;
use homing_telemetry::Asker;
use serde_json::json;

use crate::harness::{Engine, Gateway, REGISTER_TOKEN};
use crate::security::pki::written;
use crate::security::raw::{connect, status};
use crate::security::renewal::RegistrationToken;

const TOKEN: &str = "the-token-of-operators";

async fn asked(gateway: &Gateway, method: Method, path: &str, token: &str) -> u16 {
    let mut request = gateway
        .client
        .request(method.clone(), format!("{}{path}", gateway.admin));
    if !token.is_empty() {
        request = request.bearer_auth(token);
    }
    if method == Method::PUT {
        request = request.json(&json!({ "url": "http://127.0.0.1:9", "model": "tiny" }));
    }
    request.send().await.unwrap().status().as_u16()
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_and_workers_must_know_their_tokens() {
    let gateway = Gateway::start(&[], &[("serve.admin-token", TOKEN)]).await;
    let worker = "/admin/workers/w";
    for (method, path, token, expected) in [
        (Method::GET, "/live", "", 200),
        (Method::GET, "/ready", "", 503),
        (Method::GET, "/metrics", "", 401),
        (Method::GET, "/metrics", REGISTER_TOKEN, 401),
        (Method::GET, "/metrics", "the-token-of-operatorz", 401),
        (Method::GET, "/metrics", TOKEN, 200),
        (Method::GET, "/admin/fleet", "", 401),
        (Method::GET, "/admin/decisions", "", 401),
        (Method::GET, "/admin/workers", REGISTER_TOKEN, 401),
        (Method::POST, "/admin/drain?worker=0", "", 401),
        (Method::POST, "/admin/drain?worker=0", TOKEN, 404),
        (Method::PUT, worker, "", 401),
        (Method::PUT, worker, "some-other-token-here", 401),
        (Method::DELETE, worker, "", 401),
        (Method::PUT, worker, REGISTER_TOKEN, 201),
        (Method::GET, worker, TOKEN, 200),
        (Method::DELETE, worker, REGISTER_TOKEN, 200),
        (Method::PUT, worker, TOKEN, 201),
    ] {
        let found = asked(&gateway, method.clone(), path, token).await;
        assert_eq!(found, expected, "{method} {path} {token}");
    }
    let counted = |asker| gateway.metrics.gateway.unauthorized_requests.of(asker).get();
    assert_eq!((counted(Asker::Operator), counted(Asker::Worker)), (7, 3));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_tokens_nobody_registers_a_worker_and_no_page_gives_orders() {
    let engines = [Engine::start(&[])];
    let gateway = Gateway::before(&engines, &[("serve.register-token", "none")]).await;
    assert_eq!(asked(&gateway, Method::PUT, "/admin/workers/w", "").await, 403);
    assert_eq!(
        asked(&gateway, Method::PUT, "/admin/workers/w", REGISTER_TOKEN).await,
        403
    );
    assert_eq!(gateway.metrics.discovery.held_leases.get(), 0);
    let url = engines[0].url();
    let order = async |headers: &[(&str, &str)]| {
        let mut request = gateway
            .client
            .post(format!("{}/admin/drain?worker={url}", gateway.admin));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.send().await.unwrap().status().as_u16()
    };
    assert_eq!(order(&[("origin", "https://evil.example")]).await, 403);
    assert_eq!(order(&[("host", "evil.example")]).await, 403);
    assert_eq!(gateway.admin("/admin/fleet").await["workers"][0]["draining"], false);
    assert_eq!(order(&[]).await, 200);
    assert_eq!(gateway.admin("/admin/fleet").await["workers"][0]["draining"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_are_read_again_and_hostile_bytes_are_refused_here_as_well() {
    let path = written("admin-token", &format!("{TOKEN}\n"));
    let mut registration = RegistrationToken::new("operators-registration-token");
    let settings = [
        ("serve.admin-token", format!("file:{path}")),
        ("serve.register-token", registration.setting()),
        ("discovery.file-interval", "20ms".to_owned()),
    ];
    let settings = settings.each_ref().map(|(name, value)| (*name, value.as_str()));
    let gateway = Gateway::start(&[], &settings).await;
    assert_eq!(asked(&gateway, Method::GET, "/metrics", TOKEN).await, 200);
    written("admin-token", "another-token-of-operators\n");
    gateway_until(&gateway, "another-token-of-operators").await;
    assert_eq!(asked(&gateway, Method::GET, "/metrics", TOKEN).await, 401);
    // A file that holds none leaves the door as it is.
    written("admin-token", "\n");
    registration.wait_until_files_were_read(&gateway).await;
    assert_eq!(asked(&gateway, Method::GET, "/metrics", "").await, 401);
    assert_eq!(
        asked(&gateway, Method::GET, "/metrics", "another-token-of-operators").await,
        200
    );
    let answer = crate::security::raw::exchange(
        &gateway.admin,
        b"POST /admin/drain?worker=0 HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    )
    .await;
    assert_eq!(status(&answer), 400, "{answer}");
    drop(connect(&gateway.admin).await);
}

async fn gateway_until(gateway: &Gateway, token: &str) {
    let until = std::time::Instant::now() + crate::harness::GUARD;
    while asked(gateway, Method::GET, "/metrics", token).await != 200 {
        assert!(std::time::Instant::now() < until, "the new token is not known");
        tokio::time::sleep(crate::harness::POLL).await;
    }
}
