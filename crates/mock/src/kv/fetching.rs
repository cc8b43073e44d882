//! How is KV fetched from where it is?

use std::io;
use std::sync::Arc;
use std::time::Duration;

use homing_engine::RequestNo;
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::Kv;
use super::ledger::{Job, Ledger};
use super::plan::{Source, What};
use super::talk::{Ask, Reply, hear, say};
use crate::core::Core;

/// How long it may take to say that something is not needed.
const PATIENCE: Duration = Duration::from_secs(10);

/// What came.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fetched {
    pub(crate) request: RequestNo,
    /// How many tokens the other side had in its cache.
    pub(crate) cached: u32,
    pub(crate) bytes: u64,
    pub(crate) took: Duration,
}

/// Does what the engine's driver is to start.
pub(crate) async fn run(core: Arc<Core>, job: Job) {
    let Some(kv) = &core.kv else { return };
    match job {
        Job::Decline(source) => {
            // If it does not get there, the lease will end.
            let _ = tokio::time::timeout(PATIENCE, decline(source)).await;
        }
        Job::Fetch {
            source,
            fingerprint,
            reserved,
        } => {
            let began = Instant::now();
            let fetched = fetch(kv, &source, fingerprint, Ledger::missing(&reserved));
            match tokio::time::timeout(kv.settings.wait, fetched).await {
                Ok(Ok((cached, bytes))) => core.received(Fetched {
                    request: reserved.request,
                    cached,
                    bytes,
                    took: began.elapsed(),
                }),
                failed => {
                    tracing::debug!("KV from {}:{} did not come: {failed:?}", source.host, source.port);
                    core.missed(reserved.request);
                }
            }
        }
    }
}

/// Returns how many tokens the other side had in its cache, and how many bytes came.
async fn fetch(kv: &Kv, source: &Source, fingerprint: u64, missing: u32) -> io::Result<(u32, u64)> {
    let mut stream = TcpStream::connect((source.host.as_str(), source.port)).await?;
    let ask = match source.what.clone() {
        What::Staged { engine, request } => Ask::Fetch {
            engine,
            request,
            missing,
            fingerprint,
        },
        What::Room(room) => Ask::Meet {
            room,
            missing,
            fingerprint,
        },
    };
    say(&mut stream, &ask).await?;
    match hear(&mut stream).await? {
        Reply::Coming => (),
        Reply::Gone { why } => return Err(io::Error::other(why)),
        Reply::Sent { .. } | Reply::Released => return Err(io::ErrorKind::InvalidData.into()),
    }
    let (reply, ()) = tokio::join!(hear(&mut stream), kv.link.carry(kv.bytes(missing)));
    let Reply::Sent {
        bytes,
        fingerprint: sent,
        cached,
    } = reply?
    else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    if sent != fingerprint {
        return Err(io::Error::other("it is of another prompt"));
    }
    say(&mut stream, &Ask::Done).await?;
    // Whether the other side has heard it is its business.
    let _: io::Result<Reply> = hear(&mut stream).await;
    Ok((cached, bytes))
}

async fn decline(source: Source) -> io::Result<()> {
    let What::Staged { engine, request } = source.what else {
        return Ok(());
    };
    let mut stream = TcpStream::connect((source.host.as_str(), source.port)).await?;
    say(&mut stream, &Ask::Decline { engine, request }).await?;
    hear::<Reply>(&mut stream).await.map(drop)
}
