//! Who talks to the demo? Each of them asks, reads the answer as it comes, thinks, and asks again.
//!
//! **Invariant:** everybody has one question open at most, so that a slow answer is followed by a late question.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;

use super::board::Board;
use super::client::Endpoint;
use super::traffic::Traffic;

/// All who talk. When this is dropped they are gone, in the middle of whatever they hear.
#[derive(Debug)]
pub struct Users {
    talking: JoinSet<()>,
    hush: watch::Sender<bool>,
}

/// One of them.
struct User {
    number: u32,
    traffic: Arc<Traffic>,
    endpoint: Endpoint,
    board: Arc<Board>,
    hushed: watch::Receiver<bool>,
}

impl Users {
    /// They begin to talk.
    pub fn start(count: u32, traffic: &Arc<Traffic>, endpoint: &Endpoint, board: &Arc<Board>) -> Self {
        let (hush, hushed) = watch::channel(false);
        let mut talking = JoinSet::new();
        for number in 0..count {
            let user = User {
                number,
                traffic: traffic.clone(),
                endpoint: endpoint.clone(),
                board: board.clone(),
                hushed: hushed.clone(),
            };
            talking.spawn(user.talk());
        }
        Self { talking, hush }
    }

    /// They ask nothing any more, but hear the answers out.
    pub fn hush(&self) {
        self.hush.send_replace(true);
    }

    /// Whether all have heard their answers; waits a while for it.
    pub async fn are_quiet(&mut self, patience: Duration) -> bool {
        let quiet = async { while self.talking.join_next().await.is_some() {} };
        tokio::time::timeout(patience, quiet).await.is_ok()
    }
}

impl User {
    async fn talk(mut self) {
        for conversation in 0.. {
            if !self.converse(conversation).await {
                return;
            }
        }
    }

    /// Whether there will be another conversation.
    async fn converse(&mut self, number: u32) -> bool {
        let mut conversation = self.traffic.conversation(self.number, number);
        while let Some(turn) = conversation.next() {
            tokio::select! {
                () = tokio::time::sleep(turn.thought) => {}
                // An error means that nobody is interested any more.
                _ = self.hushed.wait_for(|hushed| *hushed) => return false,
            }
            let mut open = self.board.open();
            match self.endpoint.ask(&turn.asked, &mut open).await {
                Ok(heard) => {
                    conversation.answered(&heard.text);
                    open.ends(&turn.asked, &heard);
                }
                Err(error) => {
                    open.fails(&error);
                    // Without an answer there is nothing to go on from.
                    return true;
                }
            }
        }
        true
    }
}
