//! What carries a connection: TCP or a Unix socket?

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::time::timeout;

use super::config::{AddressFilter, Exposure};
use super::endpoint::{Endpoint, Host};
use super::error::{ConnectionError, SetupError};
use super::ipc::IpcListener;

/// Behind the heartbeats of ZMTP, for the time in which we do not read and send none: the system asks after so long ...
const KEEPALIVE_AFTER: Duration = Duration::from_secs(15);
/// ... and again after so long, three times.
const KEEPALIVE_EVERY: Duration = Duration::from_secs(5);
const KEEPALIVE_TRIES: u32 = 3;

/// A connection before ZMTP.
#[derive(Debug)]
pub(crate) enum Stream {
    Tcp(TcpStream),
    Ipc(UnixStream),
}

/// Connects to what the filter lets through, if there is one. A name is looked up each time, and all of its addresses are tried.
pub(crate) async fn dial(
    endpoint: Endpoint,
    patience: Duration,
    filter: Option<AddressFilter>,
) -> Result<Stream, ConnectionError> {
    let dialled = timeout(patience, async {
        match (&endpoint, filter) {
            (Endpoint::Ipc(path), None) => UnixStream::connect(path)
                .await
                .map(Stream::Ipc)
                .map_err(ConnectionError::Dial),
            (Endpoint::Ipc(path), Some(_)) => Err(ConnectionError::NotAllowed(format!(
                "{} is a local socket, which only an operator may name",
                path.display()
            ))),
            (Endpoint::Tcp { host, port }, filter) => {
                let addresses = look_up(host, *port).await.map_err(ConnectionError::Dial)?;
                for address in &addresses {
                    filter.as_ref().map_or(Ok(()), |filter| filter.check(*address))?;
                }
                let stream = TcpStream::connect(&addresses[..]).await;
                stream.and_then(over_tcp).map_err(ConnectionError::Dial)
            }
        }
    });
    dialled.await.unwrap_or(Err(ConnectionError::DialTimeout(patience)))
}

async fn look_up(host: &Host, port: u16) -> io::Result<Vec<SocketAddr>> {
    match host {
        Host::Address(address) => Ok(vec![SocketAddr::new(*address, port)]),
        Host::Name(name) => Ok(tokio::net::lookup_host((name.as_str(), port)).await?.collect()),
        Host::Any => Err(io::ErrorKind::AddrNotAvailable.into()),
    }
}

fn over_tcp(stream: TcpStream) -> io::Result<Stream> {
    stream.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE_AFTER)
        .with_interval(KEEPALIVE_EVERY)
        .with_retries(KEEPALIVE_TRIES);
    SockRef::from(&stream).set_tcp_keepalive(&keepalive)?;
    Ok(Stream::Tcp(stream))
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_read(context, into),
            Self::Ipc(stream) => Pin::new(stream).poll_read(context, into),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write(context, from),
            Self::Ipc(stream) => Pin::new(stream).poll_write(context, from),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Neither kind of stream keeps anything back.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Ipc(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}

/// Where connections arrive.
#[derive(Debug)]
pub(crate) enum Listener {
    Tcp(TcpListener),
    Ipc(IpcListener),
}

impl Listener {
    /// Binds, to addresses that the exposure allows.
    pub(crate) async fn bind(endpoint: &Endpoint, exposure: Exposure) -> Result<Self, SetupError> {
        let failed = |error| SetupError::Bind {
            endpoint: endpoint.clone(),
            error,
        };
        match endpoint {
            Endpoint::Ipc(path) => Ok(Self::Ipc(IpcListener::bind(path).await.map_err(failed)?)),
            Endpoint::Tcp { host, port } => {
                let addresses = own_addresses(host, *port, exposure).await.map_err(failed)?;
                let local = addresses.iter().all(|address| address.ip().is_loopback());
                if exposure == Exposure::Loopback && !local {
                    return Err(SetupError::NotLoopback(endpoint.clone()));
                }
                let listener = TcpListener::bind(&addresses[..]).await.map_err(failed)?;
                Ok(Self::Tcp(listener))
            }
        }
    }

    /// Where it is, with the port that the system chose if it was left to it.
    pub(crate) fn endpoint(&self) -> io::Result<Endpoint> {
        match self {
            Self::Ipc(ipc) => Ok(Endpoint::Ipc(ipc.file.path.clone())),
            Self::Tcp(listener) => {
                let address = listener.local_addr()?;
                Ok(Endpoint::Tcp {
                    host: Host::Address(address.ip()),
                    port: address.port(),
                })
            }
        }
    }

    /// Waits for a connection; with it comes a name for whoever is at its other end.
    pub(crate) fn poll_accept(&self, context: &mut Context<'_>) -> Poll<io::Result<(Stream, String)>> {
        match self {
            Self::Tcp(listener) => listener
                .poll_accept(context)
                .map(|accepted| accepted.and_then(|(stream, from)| Ok((over_tcp(stream)?, from.to_string())))),
            Self::Ipc(ipc) => ipc
                .listener
                .poll_accept(context)
                .map_ok(|(stream, _)| (Stream::Ipc(stream), ipc.file.path.display().to_string())),
        }
    }
}

async fn own_addresses(host: &Host, port: u16, exposure: Exposure) -> io::Result<Vec<SocketAddr>> {
    match (host, exposure) {
        (Host::Address(address), _) => Ok(vec![SocketAddr::new(*address, port)]),
        (Host::Name(name), _) => Ok(tokio::net::lookup_host((name.as_str(), port)).await?.collect()),
        (Host::Any, Exposure::Loopback) => Ok(vec![SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)]),
        (Host::Any, Exposure::Network) => Ok(vec![SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port)]),
    }
}
