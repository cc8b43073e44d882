//! Who is connected to a socket of ours? Accepts, up to a limit, and gives each peer a task.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::stream::{Listener, Stream};

/// When the system gives us no connection, it will not a moment later either: it is out of files, most likely.
const PAUSE_AFTER_REFUSAL: Duration = Duration::from_millis(100);

/// Accepts peers for as long as it is polled; those who are one too many are hung up on. Dropped, it ends all conversations.
pub(crate) async fn accept<F>(listener: Listener, most: usize, serve: impl Fn(Stream) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let room = Arc::new(Semaphore::new(most));
    let mut talks = JoinSet::new();
    loop {
        let accepted = std::future::poll_fn(|context| listener.poll_accept(context)).await;
        // Those that ended are of no interest, only in the way.
        while talks.try_join_next().is_some() {}
        match accepted {
            Err(_) => sleep(PAUSE_AFTER_REFUSAL).await,
            Ok((stream, _)) => {
                if let Ok(permit) = room.clone().try_acquire_owned() {
                    let talk = serve(stream);
                    talks.spawn(async move {
                        talk.await;
                        drop(permit);
                    });
                }
            }
        }
    }
}
