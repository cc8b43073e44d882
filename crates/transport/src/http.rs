//! How many connections may an HTTP service have at once? Beyond its bound, who connects waits to be accepted.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::serve::Listener;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Looks at what comes over a connection, and may end it. Each connection has its own.
pub trait Gate: Clone + Send + Sync + Unpin + 'static {
    /// Whether the connection goes on after these bytes.
    fn admits(&mut self, bytes: &[u8]) -> bool;
}

/// Lets everything through.
#[derive(Clone, Copy, Debug, Default)]
pub struct Open;

impl Gate for Open {
    fn admits(&mut self, _bytes: &[u8]) -> bool {
        true
    }
}

/// Accepts so many connections and no more.
#[derive(Debug)]
pub struct Bounded<G = Open> {
    listener: TcpListener,
    room: Arc<Semaphore>,
    gate: G,
}

/// A connection that counts.
#[derive(Debug)]
pub struct Counted<G = Open> {
    stream: TcpStream,
    gate: G,
    /// Given back when the connection is dropped.
    _permit: Option<OwnedSemaphorePermit>,
}

impl Bounded {
    /// Accepts `connections` at once.
    pub fn new(listener: TcpListener, connections: usize) -> Self {
        Self::with_gate(listener, connections, Open)
    }
}

impl<G: Gate> Bounded<G> {
    /// Accepts `connections` at once, each with a gate like this one.
    pub fn with_gate(listener: TcpListener, connections: usize, gate: G) -> Self {
        Self {
            listener,
            room: Arc::new(Semaphore::new(connections)),
            gate,
        }
    }
}

impl<G: Gate> Listener for Bounded<G> {
    type Io = Counted<G>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Counted<G>, SocketAddr) {
        let permit = self.room.clone().acquire_owned().await.ok();
        let (stream, address) = Listener::accept(&mut self.listener).await;
        // Answers are small and are waited for. If that cannot be set, they come a little later.
        drop(stream.set_nodelay(true));
        let counted = Counted {
            stream,
            gate: self.gate.clone(),
            _permit: permit,
        };
        (counted, address)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

impl<G: Gate> AsyncRead for Counted<G> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        let bytes = &buffer.filled()[before..];
        if !bytes.is_empty() && !self.gate.admits(bytes) {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        read
    }
}

impl<G: Gate> AsyncWrite for Counted<G> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::{Future, poll_fn};
    use std::pin::pin;

    #[tokio::test]
    async fn one_more_waits_until_another_is_gone() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let mut bounded = Bounded::new(listener, 1);
        let _clients = [
            TcpStream::connect(address).await.expect("the system accepts"),
            TcpStream::connect(address).await.expect("the system accepts"),
        ];
        let (first, _) = bounded.accept().await;
        let mut second = pin!(bounded.accept());
        let waits = poll_fn(|cx| Poll::Ready(second.as_mut().poll(cx).is_pending())).await;
        assert!(waits);
        drop(first);
        second.await;
    }
}
