//! How a test knows that the gateway has read its files again, also when what it read changes nothing.

use crate::harness::{GUARD, Gateway, POLL};
use crate::security::pki::written;

/// The registration token of a gateway, in a file.
pub struct RegistrationToken {
    file: &'static str,
    token: String,
    changes: u32,
}

impl RegistrationToken {
    pub fn new(file: &'static str) -> Self {
        let mut token = Self {
            file,
            token: String::new(),
            changes: 0,
        };
        token.change();
        token
    }

    /// The value of `serve.register-token`.
    pub fn setting(&self) -> String {
        format!("file:{}", written(self.file, &self.token))
    }

    /// Waits until the gateway has read all of its files that were written before this call.
    ///
    /// It reads all files in one pass after another. A pass that finds the first change may have read another file too early.
    /// The second change is found by a later pass, so that one whole pass lies behind this call.
    pub async fn wait_until_files_were_read(&mut self, gateway: &Gateway) {
        for _ in 0..2 {
            self.change();
            let until = std::time::Instant::now() + GUARD;
            while !self.is_accepted(gateway).await {
                assert!(
                    std::time::Instant::now() < until,
                    "the registration token was not read again"
                );
                tokio::time::sleep(POLL).await;
            }
        }
    }

    fn change(&mut self) {
        self.changes += 1;
        self.token = format!("registration-token-{}", self.changes);
        written(self.file, &self.token);
    }

    /// Whether the gateway knows the token: it answers 401 to others, and something else about a worker that does not exist.
    async fn is_accepted(&self, gateway: &Gateway) -> bool {
        let request = gateway.client.delete(format!("{}/admin/workers/absent", gateway.admin));
        let response = request.bearer_auth(&self.token).send().await.expect("it answers");
        response.status() != 401
    }
}
