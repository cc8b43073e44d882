//! How is KV given to those who come for it?

use std::io;
use std::sync::Arc;
use std::time::Duration;

use homing_config::HandoverFault;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use super::Kv;
use super::ledger::Kept;
use super::talk::{Ask, Reply, hear, say};
use crate::core::Core;

/// Who may be here at once; more wait.
const MOST_VISITORS: usize = 4_096;
/// How long a visitor may take to say something.
const PATIENCE: Duration = Duration::from_secs(10);

/// Answers for as long as it is polled.
pub(crate) async fn serve(core: Arc<Core>, listener: TcpListener) {
    let visitors = Arc::new(Semaphore::new(MOST_VISITORS));
    loop {
        let Ok(one) = Arc::clone(&visitors).acquire_owned().await else {
            return;
        };
        match listener.accept().await {
            Ok((stream, _)) => {
                let core = Arc::clone(&core);
                tokio::spawn(async move {
                    // Whoever breaks off is told nothing; what stays for it stays until its lease ends.
                    let _ = visit(&core, stream).await;
                    drop(one);
                });
            }
            // Out of files, most likely: some time, and it may be better.
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

async fn visit(core: &Core, mut stream: TcpStream) -> io::Result<()> {
    let Some(kv) = &core.kv else { return Ok(()) };
    if core.faults.now().refuse {
        return Ok(());
    }
    let ask: Ask = tokio::time::timeout(PATIENCE, hear(&mut stream)).await??;
    if core.faults.now().handover.0 == HandoverFault::Hang {
        tokio::select! {
            () = core.faults.moving() => (),
            () = left(&stream) => return Ok(()),
        }
    }
    match ask {
        Ask::Fetch {
            engine,
            request,
            missing,
            fingerprint,
        } => {
            let kept = core.kept(&engine, &request);
            let Some(kept) = kept.filter(|kept| kept.fingerprint == fingerprint) else {
                let why = "no such KV is kept here, or no longer".to_owned();
                return say(&mut stream, &Reply::Gone { why }).await;
            };
            give(core, kv, &mut stream, &kept, missing).await
        }
        Ask::Decline { engine, request } => {
            if core.kept(&engine, &request).is_some() {
                core.release(&request);
            }
            say(&mut stream, &Reply::Released).await
        }
        Ask::Meet {
            room,
            missing,
            fingerprint,
        } => meet(core, kv, &mut stream, (room, missing, fingerprint)).await,
        Ask::Done => Ok(()),
    }
}

/// Two who meet: what the one computes goes to the other, and stays no longer if that fails.
async fn meet(core: &Core, kv: &Kv, stream: &mut TcpStream, ask: (u64, u32, u64)) -> io::Result<()> {
    let (room, missing, fingerprint) = ask;
    let side = tokio::select! {
        side = kv.rooms.decode(room, kv.settings.wait) => side,
        // It says nothing now: this is its end.
        () = left(stream) => return Err(io::ErrorKind::ConnectionAborted.into()),
    };
    let side = match side {
        Ok(side) => side,
        Err(error) => return say(stream, &Reply::Gone { why: error.to_string() }).await,
    };
    let told = tokio::select! {
        told = side.told => told,
        () = left(stream) => return Err(io::ErrorKind::ConnectionAborted.into()),
    };
    let Some(kept) = told.ok().filter(|kept| kept.fingerprint == fingerprint) else {
        let why = "it was not computed, or something else was".to_owned();
        return say(stream, &Reply::Gone { why }).await;
    };
    let given = give(core, kv, stream, &kept, missing).await;
    core.release(&kept.name);
    if given.is_ok() {
        // Whoever asked for it may have gone.
        let _ = side.sent.send(());
    }
    given
}

/// Sends what is kept, and gives it back when the other side has it.
async fn give(core: &Core, kv: &Kv, stream: &mut TcpStream, kept: &Kept, missing: u32) -> io::Result<()> {
    say(stream, &Reply::Coming).await?;
    let bytes = kv.bytes(missing.min(kept.tokens));
    tokio::select! {
        () = kv.link.carry(bytes) => (),
        () = left(stream) => return Err(io::ErrorKind::ConnectionAborted.into()),
    }
    let sent = Reply::Sent {
        bytes: bytes as u64,
        fingerprint: kept.fingerprint,
        cached: kept.cached,
    };
    say(stream, &sent).await?;
    match tokio::time::timeout(PATIENCE, hear(stream)).await?? {
        Ask::Done => {
            core.release(&kept.name);
            say(stream, &Reply::Released).await
        }
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// Waits until the visitor has gone, or says what it was not asked for.
async fn left(stream: &TcpStream) {
    // Whatever comes of it, it is over.
    let _ = stream.peek(&mut [0]).await;
}
