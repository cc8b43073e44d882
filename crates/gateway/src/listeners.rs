//! Where does the gateway listen, and for whom?
//!
//! There are three listeners: of clients, of operators, and of proxies that only ask. Clients are carried by the shards; the other two are
//! run here.
//!
//! **Invariant:** nobody on another machine can ask or order anything unless a key or a token is asked for, or the operator said so.

use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::sync::Arc;

use homing_config::{Config, Switch};
use homing_telemetry::Metrics;
use tokio::task::JoinHandle;

use crate::advice::{self, Advice};
use crate::error::StartError;
use crate::gateway::Gateway;
use crate::operators::Operators;
use crate::pool::Pool;
use crate::renew::Renewal;
use homing_platform::WhenFull;
use homing_platform::door::Door;

/// Connections that wait to be accepted.
const BACKLOG: i32 = 4096;

/// Whether nobody can ask or order anything from elsewhere unless the operator said so.
pub(crate) fn guarded(config: &Config) -> Result<(), StartError> {
    let (serve, security) = (&config.serve, &config.serve.security);
    if !serve.listen.ip().is_loopback() && security.keys.is_none() && !security.open.is_on() {
        return Err(StartError::Open { address: serve.listen });
    }
    if !serve.admin.ip().is_loopback() && !security.admin_token.is_some() {
        return Err(StartError::AdminOpen { address: serve.admin });
    }
    let route = serve.route.filter(|route| !route.ip().is_loopback());
    if let (Some(address), false) = (route, security.admin_token.is_some()) {
        return Err(StartError::RouteOpen { address });
    }
    Ok(())
}

/// What proxies are answered by.
#[derive(Debug)]
pub(crate) struct Advising {
    pub(crate) address: SocketAddr,
    pub(crate) tasks: [JoinHandle<()>; 2],
}

impl Advising {
    /// Answers proxies at `route`, which was bound.
    pub(crate) fn start(
        gateway: &Arc<Gateway>,
        operators: &Operators,
        door: Arc<Door>,
        route: (StdListener, SocketAddr),
    ) -> Self {
        let (listener, address) = route;
        let times = &gateway.config.load().serve.times;
        let pool = Arc::new(Pool::new(times.idle, times.connect));
        let advice = Arc::new(Advice::new(gateway.clone(), pool));
        let proxies = Operators {
            door,
            routes: advice::routes(advice.clone()),
            ..operators.clone()
        };
        Self {
            address,
            tasks: [tokio::spawn(proxies.run(listener)), tokio::spawn(advice.sweep())],
        }
    }
}

/// The doors of all listeners.
pub(crate) struct Doors {
    /// Whether TLS is spoken to clients, and to operators.
    pub(crate) with_tls: (Switch, Switch),
    pub(crate) clients: Arc<Door>,
    pub(crate) operators: Arc<Door>,
    pub(crate) proxies: Arc<Door>,
}

impl Doors {
    pub(crate) fn new(config: &Config, renewal: &Renewal, metrics: &Arc<Metrics>) -> Self {
        let (serve, security) = (&config.serve, &config.serve.security);
        let identity = renewal.identity();
        let of_operators = identity.clone().filter(|_| security.tls.admin.is_on());
        let switch = |is: bool| if is { Switch::On } else { Switch::Off };
        Self {
            with_tls: (switch(identity.is_some()), switch(of_operators.is_some())),
            clients: Door::new(
                serve.max_connections as usize,
                WhenFull::Refuse,
                security.door.clone(),
                identity,
                metrics,
            ),
            operators: Door::new(
                security.admin.connections as usize,
                WhenFull::MakeRoom {
                    reserved: security.admin.reserved as usize,
                },
                security.admin.door.clone(),
                of_operators.clone(),
                metrics,
            ),
            proxies: Door::new(
                serve.max_connections as usize,
                WhenFull::Refuse,
                security.door.clone(),
                of_operators,
                metrics,
            ),
        }
    }
}

/// Binds an address that the setting `knob` names.
pub(crate) fn listen(address: SocketAddr, knob: &'static str) -> Result<(StdListener, SocketAddr), StartError> {
    let failed = |error| StartError::Listen { address, knob, error };
    let domain = if address.is_ipv4() {
        socket2::Domain::IPV4
    } else {
        socket2::Domain::IPV6
    };
    let bind = || -> io::Result<StdListener> {
        let socket = socket2::Socket::new(domain, socket2::Type::STREAM, None)?;
        socket.set_reuse_address(true)?;
        socket.set_nonblocking(true)?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        Ok(socket.into())
    };
    let listener = bind().map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    Ok((listener, bound))
}

/// How a listener is spoken to.
pub(crate) fn scheme(tls: Switch) -> &'static str {
    if tls.is_on() { "https" } else { "http" }
}
