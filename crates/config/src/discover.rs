//! Where are workers to be looked for that nobody named one by one?
//!
//! A place to look is written in the same way everywhere: as a flag given again for each (`--discover`), in a variable that takes
//! several, separated by white space (`HOMING_DISCOVER`), and as a list of texts in the file (`discover = [..]`).
//!
//! ```text
//! dns:vllm.default.svc:8000,model=qwen,events=tcp://{host}:5557
//! dns-srv:_http._tcp.vllm.default.svc,role=decode
//! ```
//!
//! What follows the name are the keys of a worker, `url` excepted, which hold for every worker found there; `{host}` in them
//! stands for its address.
//!
//! **Invariant:** what was accepted makes a worker of every address, so that nothing is found to be wrong later than at the start.
//!
//! Nothing is resolved here.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::error::Shown;
use crate::worker::{AddressScope, WorkerDefaults, WorkerProblem, WorkerSpec};
use crate::{Config, HttpUrl};

/// The flag that names a place to look.
pub const FLAG: &str = "discover";
/// The variable that names places to look.
pub const VARIABLE: &str = "HOMING_DISCOVER";
/// The key of the file that lists them.
pub const FILE_KEY: &str = "discover";
/// How one is written.
pub const SYNTAX: &str = "dns:HOST:PORT[,KEY=VALUE]...";
/// How many can be named.
pub const MAX_PLACES: usize = 64;
/// What stands for the address of a worker.
pub const HOST: &str = "{host}";

/// A place to look for workers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Discover {
    lookup: Lookup,
    /// What holds for every worker found, as it was written, without the comma before it.
    options: String,
}

/// What is looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// The addresses of a name: A and AAAA records. All workers have the same port.
    Addresses {
        /// The name.
        host: String,
        /// The port.
        port: u16,
    },
    /// A service: SRV records, which have ports of their own.
    Services {
        /// The name.
        name: String,
    },
}

/// What is wrong with a place to look.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DiscoverProblem {
    /// It is of no kind that there is.
    #[error("must be dns:HOST:PORT or dns-srv:NAME, then perhaps ,KEY=VALUE")]
    Kind,
    /// There is no name, or it has characters that no name has.
    #[error("must name a host, in letters, digits, `.`, `-` and `_`")]
    Name,
    /// There is no port, or it is none.
    #[error("must have a port from 1 to 65535")]
    Port,
    /// The addresses are what is looked for.
    #[error("`url` is what is found there, and cannot be given")]
    Url,
    /// A key of the workers is wrong.
    #[error("{0}")]
    Worker(WorkerProblem),
}

impl Discover {
    /// Reads a place to look, or says everything that is wrong with it.
    pub fn parse(text: &str) -> Result<Self, Vec<DiscoverProblem>> {
        let (place, options) = text.trim().split_once(',').unwrap_or((text.trim(), ""));
        let lookup = Lookup::parse(place.trim()).map_err(|problem| vec![problem])?;
        let keys = options.split(',').filter_map(|part| part.split_once('='));
        if keys.into_iter().any(|(key, _)| key.trim() == "url") {
            return Err(vec![DiscoverProblem::Url]);
        }
        let found = Self {
            lookup,
            options: options.trim().to_owned(),
        };
        // Both kinds of addresses, because brackets stand around one of them.
        let defaults = Config::default().worker_defaults();
        let samples = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
        for address in samples {
            let tried = found.worker(address, 1, &defaults);
            tried.map_err(|problems| -> Vec<_> { problems.into_iter().map(DiscoverProblem::Worker).collect() })?;
        }
        Ok(found)
    }

    /// What is looked up.
    pub fn lookup(&self) -> &Lookup {
        &self.lookup
    }

    /// The worker at an address. One that is to be known by events while no source of them is named is known by what is routed to
    /// it, until it says where they are.
    pub fn worker(
        &self,
        address: IpAddr,
        port: u16,
        defaults: &WorkerDefaults,
    ) -> Result<WorkerSpec, Vec<WorkerProblem>> {
        let host = match address {
            IpAddr::V4(address) => address.to_string(),
            IpAddr::V6(address) => format!("[{address}]"),
        };
        let options = self.options.replace(HOST, &host);
        let separator = if options.is_empty() { "" } else { "," };
        let text = format!("http://{host}:{port}{separator}{options}");
        WorkerSpec::parse(&text, &defaults.scoped(AddressScope::Remote))
    }
}

impl Lookup {
    fn parse(text: &str) -> Result<Self, DiscoverProblem> {
        if let Some(name) = text.strip_prefix("dns-srv:") {
            return Ok(Self::Services { name: name_of(name)? });
        }
        let place = text.strip_prefix("dns:").ok_or(DiscoverProblem::Kind)?;
        let (host, port) = place.rsplit_once(':').ok_or(DiscoverProblem::Port)?;
        let port = port.parse().ok().filter(|port| *port != 0);
        Ok(Self::Addresses {
            host: name_of(host)?,
            port: port.ok_or(DiscoverProblem::Port)?,
        })
    }
}

/// A name as it is asked for. Those of addresses pass the same check.
fn name_of(text: &str) -> Result<String, DiscoverProblem> {
    let name = text.trim_end_matches('.');
    match HttpUrl::parse(&format!("http://{name}")) {
        Ok(url) if url.host().eq_ignore_ascii_case(name) && name.len() <= 253 => Ok(name.to_ascii_lowercase()),
        _ => Err(DiscoverProblem::Name),
    }
}

/// What may be shown of a text that could not be read: no password stands before the first comma, unless something is very wrong.
pub(crate) fn shown(text: &str) -> Shown {
    if text.contains(['@', '?']) {
        return Shown::Hidden;
    }
    Shown::Text(text.split(',').next().unwrap_or_default().trim().to_owned())
}

impl fmt::Display for Lookup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Addresses { host, port } => write!(f, "dns:{host}:{port}"),
            Self::Services { name } => write!(f, "dns-srv:{name}"),
        }
    }
}

impl fmt::Display for Discover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.lookup)?;
        if self.options.is_empty() {
            Ok(())
        } else {
            write!(f, ",{}", self.options)
        }
    }
}
