//! Where is a socket?

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::str::FromStr;

/// The longest path of an ipc socket that the system takes: `sun_path` with its final zero has 108 bytes on Linux.
const IPC_PATH_BYTES: usize = 107;

/// Where a socket is: `tcp://host:port`, `tcp://[::1]:port`, `tcp://*:port` or `ipc:///path`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// A TCP port.
    Tcp {
        /// Of whom.
        host: Host,
        /// Which; 0 stands for any when it is bound.
        port: u16,
    },
    /// A Unix socket with this path.
    Ipc(PathBuf),
}

/// Of whom a port is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Host {
    /// An address.
    Address(IpAddr),
    /// A name, looked up whenever it is connected to.
    Name(String),
    /// `*`: all IPv4 addresses of this machine, or the loopback one, as [`Exposure`](super::Exposure) says. It can only be
    /// bound.
    Any,
}

/// What is wrong with the text of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// There is no `tcp://` or `ipc://`, or another.
    #[error("`{0}` is no endpoint: write tcp://host:port or ipc:///path")]
    Scheme(String),
    /// There is no `:port`, or not a number up to 65,535.
    #[error("`{0}` has no port between 0 and 65535 at its end")]
    Port(String),
    /// There is nothing before the port, or not a host name.
    #[error("`{0}` has no host name or address; an IPv6 address is written in brackets, as in tcp://[::1]:5557")]
    Host(String),
    /// The path is missing, too long for the system, or an abstract name.
    #[error("`{0}` has no path that a socket can have: up to {IPC_PATH_BYTES} bytes; names with @ are not supported")]
    Path(String),
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        if let Some(rest) = text.strip_prefix("tcp://") {
            return parse_tcp(text, rest);
        }
        let path = text
            .strip_prefix("ipc://")
            .ok_or_else(|| EndpointError::Scheme(text.to_owned()))?;
        let possible =
            !path.is_empty() && path.len() <= IPC_PATH_BYTES && !path.starts_with('@') && !path.contains('\0');
        if !possible {
            return Err(EndpointError::Path(text.to_owned()));
        }
        Ok(Self::Ipc(PathBuf::from(path)))
    }
}

fn parse_tcp(text: &str, rest: &str) -> Result<Endpoint, EndpointError> {
    let (host, port) = rest
        .rsplit_once(':')
        .ok_or_else(|| EndpointError::Port(text.to_owned()))?;
    let digits = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    let port = match port.parse() {
        Ok(port) if digits => port,
        _ => return Err(EndpointError::Port(text.to_owned())),
    };
    let host = parse_host(host).ok_or_else(|| EndpointError::Host(text.to_owned()))?;
    Ok(Endpoint::Tcp { host, port })
}

fn parse_host(host: &str) -> Option<Host> {
    if host == "*" {
        return Some(Host::Any);
    }
    if let Some(inner) = host.strip_prefix('[') {
        let address: Ipv6Addr = inner.strip_suffix(']')?.parse().ok()?;
        return Some(Host::Address(address.into()));
    }
    if let Ok(address) = host.parse::<Ipv4Addr>() {
        return Some(Host::Address(address.into()));
    }
    // Names of containers have underscores. All digits and dots would be a mistyped address.
    let letters = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    let name = !host.is_empty() && host.len() <= 253 && host.bytes().all(letters);
    let address = host.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    (name && !address).then(|| Host::Name(host.to_owned()))
}

impl fmt::Display for Endpoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } => write!(formatter, "tcp://{host}:{port}"),
            Self::Ipc(path) => write!(formatter, "ipc://{}", path.display()),
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(IpAddr::V4(address)) => write!(formatter, "{address}"),
            Self::Address(IpAddr::V6(address)) => write!(formatter, "[{address}]"),
            Self::Name(name) => formatter.write_str(name),
            Self::Any => formatter.write_str("*"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};
    use proptest::prelude::*;

    fn check(inputs: &[&str], expected: &Expect) {
        let said: Vec<String> = inputs
            .iter()
            .map(|text| match text.parse::<Endpoint>() {
                Ok(endpoint) => format!("{text} -> {endpoint:?}"),
                Err(error) => format!("{text} -> {error}"),
            })
            .collect();
        expected.assert_eq(&said.join("\n"));
    }

    #[test]
    fn endpoints_as_operators_write_them() {
        check(
            &[
                "tcp://127.0.0.1:5557",
                "tcp://vllm-0.vllm.default.svc:5557",
                "tcp://[::1]:5557",
                "tcp://*:0",
                "ipc:///run/vllm/events",
                "ipc://relative",
            ],
            &expect![[r#"
                tcp://127.0.0.1:5557 -> Tcp { host: Address(127.0.0.1), port: 5557 }
                tcp://vllm-0.vllm.default.svc:5557 -> Tcp { host: Name("vllm-0.vllm.default.svc"), port: 5557 }
                tcp://[::1]:5557 -> Tcp { host: Address(::1), port: 5557 }
                tcp://*:0 -> Tcp { host: Any, port: 0 }
                ipc:///run/vllm/events -> Ipc("/run/vllm/events")
                ipc://relative -> Ipc("relative")"#]],
        );
    }

    #[test]
    fn what_is_wrong_is_said_in_words() {
        check(
            &[
                "127.0.0.1:5557",
                "http://engine:80",
                "tcp://engine",
                "tcp://engine:",
                "tcp://engine:65536",
                "tcp://engine:+1",
                "tcp://:5557",
                "tcp://::1:5557",
                "tcp://[::1:5557",
                "tcp://300.1.1.1:5557",
                "tcp://a b:5557",
                "ipc://",
                "ipc://@abstract",
            ],
            &expect![[r#"
                127.0.0.1:5557 -> `127.0.0.1:5557` is no endpoint: write tcp://host:port or ipc:///path
                http://engine:80 -> `http://engine:80` is no endpoint: write tcp://host:port or ipc:///path
                tcp://engine -> `tcp://engine` has no port between 0 and 65535 at its end
                tcp://engine: -> `tcp://engine:` has no port between 0 and 65535 at its end
                tcp://engine:65536 -> `tcp://engine:65536` has no port between 0 and 65535 at its end
                tcp://engine:+1 -> `tcp://engine:+1` has no port between 0 and 65535 at its end
                tcp://:5557 -> `tcp://:5557` has no host name or address; an IPv6 address is written in brackets, as in tcp://[::1]:5557
                tcp://::1:5557 -> `tcp://::1:5557` has no host name or address; an IPv6 address is written in brackets, as in tcp://[::1]:5557
                tcp://[::1:5557 -> `tcp://[::1:5557` has no host name or address; an IPv6 address is written in brackets, as in tcp://[::1]:5557
                tcp://300.1.1.1:5557 -> `tcp://300.1.1.1:5557` has no host name or address; an IPv6 address is written in brackets, as in tcp://[::1]:5557
                tcp://a b:5557 -> `tcp://a b:5557` has no host name or address; an IPv6 address is written in brackets, as in tcp://[::1]:5557
                ipc:// -> `ipc://` has no path that a socket can have: up to 107 bytes; names with @ are not supported
                ipc://@abstract -> `ipc://@abstract` has no path that a socket can have: up to 107 bytes; names with @ are not supported"#]],
        );
    }

    proptest! {
        #[test]
        fn what_is_parsed_is_written_the_same_way(text in "(tcp://[0-9a-z.:*\\[\\]_-]{0,12}:[0-9]{0,6}|ipc://.{0,20}|.{0,20})") {
            if let Ok(endpoint) = text.parse::<Endpoint>() {
                prop_assert_eq!(endpoint.to_string().parse::<Endpoint>(), Ok(endpoint));
            }
        }
    }
}
