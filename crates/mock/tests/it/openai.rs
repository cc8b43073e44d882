//! Does the real `openai` client understand it?

use homing_transport::testing::python;

use crate::mock::Mock;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_openai_client_understands_it() {
    let mock = Mock::start(&[]).await;
    let url = format!("{}/v1", mock.url());
    let ran = tokio::task::spawn_blocking(move || {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/openai_client.py");
        python().arg(script).arg(url).output().expect("the interpreter starts")
    });
    let output = ran.await.unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("all is well"), "{said}");
    mock.stop().await;
}
