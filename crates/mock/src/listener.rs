//! How do connections come in? Up to a bound, and not at all while they are to be refused.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::serve::Listener;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::core::Core;

/// Connections at once. Beyond that, who connects waits to be accepted.
const CONNECTIONS: usize = 16_384;
/// What the paths begin with that are answered while everything else is refused.
const ADMIN: &[u8] = b"/mock/";
/// What requests begin with.
const METHODS: [&str; 7] = ["GET ", "POST ", "HEAD ", "PUT ", "DELETE ", "OPTIONS ", "PATCH "];

/// Accepts so many and no more.
#[derive(Debug)]
pub(crate) struct Bounded {
    pub(crate) listener: TcpListener,
    pub(crate) core: Arc<Core>,
    room: Arc<Semaphore>,
}

/// A connection that counts.
#[derive(Debug)]
pub(crate) struct Counted {
    stream: TcpStream,
    core: Arc<Core>,
    /// Whether the last request that began was to the admin endpoint.
    admin: bool,
    _permit: Option<OwnedSemaphorePermit>,
}

impl Bounded {
    pub(crate) fn new(listener: TcpListener, core: Arc<Core>) -> Self {
        Self {
            listener,
            core,
            room: Arc::new(Semaphore::new(CONNECTIONS)),
        }
    }
}

impl Listener for Bounded {
    type Io = Counted;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Counted, SocketAddr) {
        let permit = self.room.clone().acquire_owned().await.ok();
        let (stream, address) = Listener::accept(&mut self.listener).await;
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "a connection may be slow");
        }
        let counted = Counted {
            stream,
            core: self.core.clone(),
            admin: false,
            _permit: permit,
        };
        (counted, address)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

impl AsyncRead for Counted {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        let bytes = &buffer.filled()[before..];
        if bytes.is_empty() {
            return read;
        }
        self.admin = is_admin(bytes).unwrap_or(self.admin);
        if self.core.faults.now().refuse && !self.admin {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        read
    }
}

/// Whether these bytes begin a request to the admin endpoint; `None` if they begin no request but go on with one.
fn is_admin(bytes: &[u8]) -> Option<bool> {
    let method = METHODS.iter().find(|method| bytes.starts_with(method.as_bytes()))?;
    Some(bytes[method.len()..].starts_with(ADMIN))
}

impl AsyncWrite for Counted {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, buffers)
    }
}

#[cfg(test)]
mod tests {
    use super::is_admin;

    #[test]
    fn a_request_to_the_admin_endpoint_is_known_by_its_first_bytes() {
        assert_eq!(is_admin(b"POST /v1/completions HTTP/1.1\r\nhost: x"), Some(false));
        assert_eq!(is_admin(b"POST /mock/faults HTTP/1"), Some(true));
        assert_eq!(is_admin(b".1\r\nreferer: GET /mock/"), None);
        assert_eq!(is_admin(b"GET "), Some(false));
    }
}
