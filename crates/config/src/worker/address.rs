//! Where does a worker, an agent or a stream of events listen?
//!
//! Addresses are taken apart, checked and put into one form, so that two spellings of one place are found to be one.
//! Nothing is resolved or connected to.
//!
//! **Invariant:** an address holds no user name, password or query: those could be secrets, and addresses are shown.

use std::fmt;
use std::net::Ipv6Addr;

use homing_domain::DpRank;

/// The longest address, in bytes.
pub const LONGEST: usize = 1024;
/// The longest path of a local socket, in bytes: what the system's addresses have room for.
pub const LONGEST_IPC_PATH: usize = 107;

/// What is wrong with an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressFault {
    /// It is of no scheme that HTTP has.
    #[error("must begin with http:// or https://")]
    NotHttp,
    /// It is of no scheme that sockets of events have.
    #[error("must begin with tcp:// or ipc://")]
    NotSocket,
    /// The host is empty or has characters that no host has.
    #[error("must name a host or an IP address (an IPv6 address in brackets)")]
    Host,
    /// There is no port, or it is none.
    #[error("must have a port from 1 to 65535")]
    Port,
    /// Something stands where user name and password would.
    #[error("must hold no user name and no password")]
    Credentials,
    /// There is a query or a fragment.
    #[error("must have no query and no fragment")]
    Query,
    /// The path cannot be one, or is not allowed here.
    #[error("has a path that cannot be used")]
    Path,
    /// It is longer than [`LONGEST`].
    #[error("is longer than {LONGEST} characters")]
    TooLong,
    /// All interfaces at once can only be bound.
    #[error(
        "can be bound but not connected to: name the engine's host, or write `bind:` before it if the engine connects"
    )]
    Wildcard,
}

/// The address of something that speaks HTTP.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HttpUrl {
    scheme: Scheme,
    host: String,
    port: u16,
    /// Empty, or begins with a slash and does not end with one.
    path: String,
}

/// How HTTP is carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scheme {
    /// In the clear.
    Http,
    /// Within TLS.
    Https,
}

/// The address of a socket of events.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Endpoint {
    /// TCP.
    Tcp {
        /// A name or an address, in lower case and without brackets; `*` for all interfaces.
        host: String,
        /// Never 0.
        port: u16,
    },
    /// A local socket.
    Ipc {
        /// Its path.
        path: String,
    },
}

/// Who of the two opens the port, and who comes to it?
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EventsMode {
    /// The engine listens and we connect.
    Connect,
    /// We listen and the engine connects.
    Bind,
}

/// Where the events of a worker's first rank are to be had.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventsEndpoint {
    /// Who listens.
    pub mode: EventsMode,
    /// Where.
    pub endpoint: Endpoint,
}

impl HttpUrl {
    /// Reads an address. A slash at its end means nothing.
    pub fn parse(text: &str) -> Result<Self, AddressFault> {
        check_length(text)?;
        let (scheme, rest) = match text.split_once("://") {
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => (Scheme::Http, rest),
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("https") => (Scheme::Https, rest),
            _ => return Err(AddressFault::NotHttp),
        };
        if rest.contains(['?', '#']) {
            return Err(AddressFault::Query);
        }
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let (host, port) = host_and_port(authority)?;
        let path = path.trim_end_matches('/');
        if !path.bytes().all(|byte| byte.is_ascii_graphic() && byte != b',') {
            return Err(AddressFault::Path);
        }
        Ok(Self {
            scheme,
            host,
            port: port.unwrap_or(scheme.port()),
            path: path.to_owned(),
        })
    }

    /// How it is spoken to.
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// Its host, in lower case and without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its path: empty, or with a slash at its beginning and none at its end.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The address of `path`, which begins with a slash, below this one.
    #[must_use]
    pub fn join(&self, path: &str) -> Self {
        Self {
            path: format!("{}{}", self.path, path.trim_end_matches('/')),
            ..self.clone()
        }
    }
}

impl Scheme {
    const fn port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }
}

impl Endpoint {
    /// Reads the address of a socket to connect to.
    pub fn parse(text: &str) -> Result<Self, AddressFault> {
        let endpoint = Self::parse_any(text)?;
        if endpoint.is_wildcard() {
            Err(AddressFault::Wildcard)
        } else {
            Ok(endpoint)
        }
    }

    /// That of the rank `dp` if this is that of rank 0: engines count ports up. `None` where there is no such port.
    #[must_use]
    pub fn of_rank(&self, dp: DpRank) -> Option<Self> {
        match self {
            Self::Tcp { host, port } => Some(Self::Tcp {
                host: host.clone(),
                port: port.checked_add(dp.0)?,
            }),
            Self::Ipc { .. } => (dp.0 == 0).then(|| self.clone()),
        }
    }

    /// Whether it stands for all interfaces.
    pub fn is_wildcard(&self) -> bool {
        matches!(self, Self::Tcp { host, .. } if host == "*" || host == "0.0.0.0" || host == "::")
    }

    fn parse_any(text: &str) -> Result<Self, AddressFault> {
        check_length(text)?;
        if let Some(path) = text.strip_prefix("ipc://") {
            let plain = path.bytes().all(|byte| byte.is_ascii_graphic() && byte != b',');
            return if path.is_empty() || path.len() > LONGEST_IPC_PATH || !plain {
                Err(AddressFault::Path)
            } else {
                Ok(Self::Ipc { path: path.to_owned() })
            };
        }
        let authority = text.strip_prefix("tcp://").ok_or(AddressFault::NotSocket)?;
        if authority.contains('/') {
            return Err(AddressFault::Path);
        }
        let (host, port) = match authority.strip_prefix("*:") {
            Some(port) => ("*".to_owned(), Some(port_of(port)?)),
            None => host_and_port(authority)?,
        };
        let port = port.ok_or(AddressFault::Port)?;
        Ok(Self::Tcp { host, port })
    }
}

impl EventsEndpoint {
    /// Reads the address of a socket of events; `bind:` before it makes us the one who listens. A port alone is bound to
    /// the loopback interface: `bind:tcp://:5557`.
    pub fn parse(text: &str) -> Result<Self, AddressFault> {
        let Some(text) = text.strip_prefix("bind:") else {
            return Ok(Self {
                mode: EventsMode::Connect,
                endpoint: Endpoint::parse(text)?,
            });
        };
        let endpoint = match text.strip_prefix("tcp://:") {
            Some(port) => Endpoint::Tcp {
                host: "127.0.0.1".to_owned(),
                port: port_of(port)?,
            },
            None => Endpoint::parse_any(text)?,
        };
        Ok(Self {
            mode: EventsMode::Bind,
            endpoint,
        })
    }

    /// That of the rank `dp` if this is that of rank 0.
    #[must_use]
    pub fn of_rank(&self, dp: DpRank) -> Option<Self> {
        Some(Self {
            mode: self.mode,
            endpoint: self.endpoint.of_rank(dp)?,
        })
    }
}

fn check_length(text: &str) -> Result<(), AddressFault> {
    if text.len() > LONGEST {
        Err(AddressFault::TooLong)
    } else {
        Ok(())
    }
}

fn host_and_port(authority: &str) -> Result<(String, Option<u16>), AddressFault> {
    if authority.contains('@') {
        return Err(AddressFault::Credentials);
    }
    if let Some(rest) = authority.strip_prefix('[') {
        let (address, port) = rest.split_once(']').ok_or(AddressFault::Host)?;
        let address: Ipv6Addr = address.parse().map_err(|_| AddressFault::Host)?;
        let port = match port {
            "" => None,
            _ => Some(port_of(port.strip_prefix(':').ok_or(AddressFault::Port)?)?),
        };
        return Ok((address.to_string(), port));
    }
    let (host, port) = match authority.split_once(':') {
        Some((host, port)) => (host, Some(port_of(port)?)),
        None => (authority, None),
    };
    let letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    if host.is_empty() || !host.bytes().all(letter) {
        return Err(AddressFault::Host);
    }
    Ok((host.to_ascii_lowercase(), port))
}

fn port_of(text: &str) -> Result<u16, AddressFault> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let port: u16 = digits.then(|| text.parse().ok()).flatten().ok_or(AddressFault::Port)?;
    if port == 0 { Err(AddressFault::Port) } else { Ok(port) }
}

/// A host as it stands in an address.
struct Bracketed<'a>(&'a str);

impl fmt::Display for Bracketed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.contains(':') {
            write!(f, "[{}]", self.0)
        } else {
            f.write_str(self.0)
        }
    }
}

impl fmt::Display for HttpUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.scheme {
            Scheme::Http => "http",
            Scheme::Https => "https",
        };
        write!(f, "{scheme}://{}", Bracketed(&self.host))?;
        if self.port != self.scheme.port() {
            write!(f, ":{}", self.port)?;
        }
        f.write_str(&self.path)
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } => write!(f, "tcp://{}:{port}", Bracketed(host)),
            Self::Ipc { path } => write!(f, "ipc://{path}"),
        }
    }
}

impl fmt::Display for EventsEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.mode {
            EventsMode::Connect => write!(f, "{}", self.endpoint),
            EventsMode::Bind => write!(f, "bind:{}", self.endpoint),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn one_place_has_one_form() {
        for (text, form) in [
            ("http://10.0.0.1:8000", "http://10.0.0.1:8000"),
            ("HTTP://Engine-A.svc:80/", "http://engine-a.svc"),
            ("https://a:443/v1/", "https://a/v1"),
            ("http://[0:0::1]:8000", "http://[::1]:8000"),
        ] {
            let url = HttpUrl::parse(text).unwrap_or_else(|fault| panic!("{text}: {fault}"));
            assert_eq!(url.to_string(), form);
        }
        let url = HttpUrl::parse("http://a:8000/x").unwrap();
        assert_eq!(url.join("/kv").to_string(), "http://a:8000/x/kv");
        assert_eq!((url.host(), url.port(), url.scheme()), ("a", 8000, Scheme::Http));
    }

    #[test]
    fn what_is_no_url_is_refused_with_a_reason() {
        use AddressFault::{Credentials, Host, NotHttp, Path, Port, Query, TooLong};
        for (text, fault) in [
            ("", NotHttp),
            ("a:8000", NotHttp),
            ("tcp://a:8000", NotHttp),
            ("http://", Host),
            ("http://:80", Host),
            ("http://a b", Host),
            ("http://::1:80", Port),
            ("http://[::1", Host),
            ("http://[::1]80", Port),
            ("http://a:0", Port),
            ("http://a:65536", Port),
            ("http://a:+1", Port),
            ("http://a:", Port),
            ("http://me:secret@a", Credentials),
            ("http://a/?key=1", Query),
            ("http://a/é", Path),
        ] {
            assert_eq!(HttpUrl::parse(text), Err(fault), "{text}");
        }
        assert_eq!(HttpUrl::parse(&"h".repeat(LONGEST + 1)), Err(TooLong));
    }

    #[test]
    fn events_are_connected_to_or_bound() {
        use AddressFault::{Credentials, Host, NotSocket, Path, Port, Wildcard};
        for (text, form) in [
            ("tcp://Engine:5557", "tcp://engine:5557"),
            ("ipc:///tmp/events", "ipc:///tmp/events"),
            ("bind:tcp://*:5557", "bind:tcp://*:5557"),
            ("bind:tcp://:5557", "bind:tcp://127.0.0.1:5557"),
            ("bind:tcp://[::1]:5557", "bind:tcp://[::1]:5557"),
            ("bind:ipc://x", "bind:ipc://x"),
        ] {
            let endpoint = EventsEndpoint::parse(text).unwrap_or_else(|fault| panic!("{text}: {fault}"));
            assert_eq!(endpoint.to_string(), form);
        }
        for (text, fault) in [
            ("tcp://*:5557", Wildcard),
            ("tcp://0.0.0.0:5557", Wildcard),
            ("tcp://[::]:5557", Wildcard),
            ("tcp://:5557", Host),
            ("tcp://a", Port),
            ("tcp://a:1/x", Path),
            ("tcp://*", Host),
            ("tcp://u@a:1", Credentials),
            ("ipc://", Path),
            ("http://a:1", NotSocket),
            ("bind:bind:tcp://a:1", NotSocket),
            ("bind:tcp://:0", Port),
        ] {
            assert_eq!(EventsEndpoint::parse(text), Err(fault), "{text}");
        }
    }

    #[test]
    fn ranks_count_ports_up() {
        let endpoint = EventsEndpoint::parse("bind:tcp://a:65534").unwrap();
        assert_eq!(endpoint.of_rank(DpRank(0)), Some(endpoint.clone()));
        assert_eq!(endpoint.of_rank(DpRank(1)).unwrap().to_string(), "bind:tcp://a:65535");
        assert_eq!(endpoint.of_rank(DpRank(2)), None);
        let local = Endpoint::parse("ipc://x").unwrap();
        assert_eq!(local.of_rank(DpRank(0)), Some(local.clone()));
        assert_eq!(local.of_rank(DpRank(1)), None);
    }

    proptest! {
        #[test]
        fn what_is_read_reads_back(text in "(bind:|)(http|https|tcp|ipc)://(\\*|:|\\[|\\]|@|/|\\?|a|B|1|::|0|\\.|5557|\\PC){0,8}") {
            if let Ok(url) = HttpUrl::parse(&text) {
                prop_assert_eq!(HttpUrl::parse(&url.to_string()), Ok(url));
            }
            if let Ok(endpoint) = EventsEndpoint::parse(&text) {
                prop_assert_eq!(EventsEndpoint::parse(&endpoint.to_string()), Ok(endpoint));
            }
        }
    }
}
