//! An agent over TLS with a token, and routers that ask it.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use homing_agent::Agent;
use homing_config::{Config, Secret, SecretText};
use homing_feed::State;
use homing_keeper::{Fleet, Hooks};
use homing_telemetry::Metrics;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tokio::sync::oneshot;

use crate::support::{BLOCK_SIZE, Engine, EngineSpec, Start, settings, until};

const TOKEN: &str = "a-token-of-the-tests";

/// The files of a certificate for `127.0.0.1`, of its key, and of the certificate that vouches for it.
struct Files {
    directory: PathBuf,
    cert: PathBuf,
    key: PathBuf,
    ca: PathBuf,
}

impl Files {
    fn write(name: &str) -> Self {
        let directory = std::env::temp_dir().join(format!("homing-agent-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let ca_key = KeyPair::generate().unwrap();
        let mut ca_params = CertificateParams::new(Vec::<String>::new()).unwrap();
        ca_params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca = ca_params.self_signed(&ca_key).unwrap().pem();
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        let cert = params.signed_by(&key, &Issuer::new(ca_params, ca_key)).unwrap().pem();
        let file = |name: &str, text: String| {
            let path = directory.join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        Self {
            cert: file("cert.pem", cert),
            key: file("key.pem", key.serialize_pem()),
            ca: file("ca.pem", ca),
            directory,
        }
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.directory).ok();
    }
}

fn secret(text: &str) -> Secret {
    Secret::Given(SecretText::new(text).unwrap())
}

/// The settings of a router that asks this agent about an engine.
fn router(engine: &Engine, agent: &str, files: &Files, token: &str) -> Config {
    let mut config = settings(&[format!("{},agent={agent},block-size={BLOCK_SIZE}", engine.url())]);
    config.agent.ca = Some(files.ca.clone());
    config.agent.http.token = secret(token);
    config
}

async fn follow(config: &Config) -> (Fleet, Arc<Metrics>) {
    let metrics = Arc::default();
    let fleet = Fleet::start(config, &metrics, |_| Hooks::default()).await.unwrap();
    (fleet, metrics)
}

async fn view(fleet: &Fleet) -> homing_keeper::ViewedRank {
    let (_, keeper) = fleet.keepers().next().unwrap();
    keeper.view().await.unwrap().ranks.remove(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_router_follows_an_agent_over_tls_with_the_token_and_not_without() {
    let files = Files::write("secure");
    let mut engine = Engine::start(EngineSpec::new(Start::At(1)));
    engine.store(3);
    let mut config = settings(&[engine.worker()]);
    config.agent.http.cert = Some(files.cert.clone());
    config.agent.http.key = Some(files.key.clone());
    config.agent.http.token = secret(TOKEN);
    let metrics: Arc<Metrics> = Arc::default();
    let agent = Agent::start(&config, metrics.clone()).await.unwrap();
    let url = agent.url().unwrap();
    assert!(url.starts_with("https://127.0.0.1:"), "{url}");
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = tokio::spawn(agent.serve(async move { drop(stopped.await) }));

    let (fleet, _) = follow(&router(&engine, &url, &files, TOKEN)).await;
    until("the view is live and has all blocks", || async {
        let viewed = view(&fleet).await;
        viewed.status.state == State::Live && viewed.stats.blocks == 3
    })
    .await;

    let (refused, _) = follow(&router(&engine, &url, &files, "another-token-of-tests")).await;
    until("the refusal is told", || async {
        view(&refused)
            .await
            .trouble
            .is_some_and(|trouble| trouble.contains("401"))
    })
    .await;
    assert!(metrics.http.unauthorized_requests.get() > 0);

    // What answers without the certificate that is vouched for is no agent.
    let others = Files::write("others");
    let (untrusting, _) = follow(&router(&engine, &url, &others, TOKEN)).await;
    until("the failure is told", || async {
        view(&untrusting)
            .await
            .trouble
            .is_some_and(|trouble| trouble.contains("cannot be reached"))
    })
    .await;
    assert!(matches!(view(&untrusting).await.stats.blocks, 0));

    // It ends although routers watch.
    stop.send(()).unwrap();
    tokio::time::timeout(Duration::from_secs(30), serving)
        .await
        .unwrap()
        .unwrap();
}

#[tokio::test]
async fn a_certificate_that_cannot_be_used_is_named_with_its_settings() {
    let files = Files::write("unfit");
    let mut config = settings(&["http://127.0.0.1:1,events=tcp://127.0.0.1:1".to_owned()]);
    config.agent.http.cert = Some(files.key.clone());
    config.agent.http.key = Some(files.key.clone());
    let error = Agent::start(&config, Arc::default()).await.unwrap_err().to_string();
    assert!(error.contains("agent.tls-cert") && error.contains("key.pem"), "{error}");
}
