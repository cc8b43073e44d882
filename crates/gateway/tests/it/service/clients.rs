//! Do the real `openai` and `anthropic` clients understand it?

use homing_transport::testing::python;

use crate::harness::{Engine, Gateway};

#[tokio::test(flavor = "multi_thread")]
async fn real_clients_understand_it() {
    let engines = [Engine::start(&[]), Engine::start(&[])];
    let gateway = Gateway::before(&engines, &[]).await;
    let url = gateway.url.clone();
    let ran = tokio::task::spawn_blocking(move || {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients.py");
        python().arg(script).arg(url).output().expect("the interpreter starts")
    });
    let output = ran.await.unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("all is well"), "{said}");
}
