//! How do the workers of `homing mock` tell a gateway that they are there?

use std::net::{IpAddr, SocketAddr};

use anyhow::{Context as _, anyhow};
use homing_config::{Config, Endpoint, HttpUrl, Scheme, WorkerSpec, role_name};
use homing_discovery::{Registrant, RegistrantConfig};
use homing_domain::{DpRank, Role};
use homing_mock::Place;
use homing_tls::Trust;
use tokio::net::UdpSocket;

/// Those who tell of a worker each, as long as they are not told to end.
pub struct Registered(Vec<Registrant>);

/// Begins to tell of all workers, if a gateway was named.
pub async fn start(config: &Config, places: &[Place]) -> anyhow::Result<Registered> {
    let Some(gateway) = &config.mock.register else {
        return Ok(Registered(Vec::new()));
    };
    let gateway = HttpUrl::parse(gateway).map_err(|fault| anyhow!("`mock.register` = {gateway}: {fault}"))?;
    let token = config.mock.register_token.read().context("`mock.register-token`")?;
    let trust = match gateway.scheme() {
        Scheme::Https => Some(Trust::read(config.serve.security.outward.ca.as_deref())?),
        Scheme::Http => None,
    };
    let mut registrants = Vec::new();
    for place in places {
        let ip = seen_from(&gateway, place.address).await?;
        let address = SocketAddr::new(ip, place.address.port());
        let registrant = RegistrantConfig {
            gateway: gateway.clone(),
            name: format!("mock-{address}"),
            worker: worker(config, address, place)?,
            lease: config.discovery.lease,
            token: token.clone(),
            trust: trust.clone(),
        };
        registrants.push(Registrant::start(registrant));
    }
    Ok(Registered(registrants))
}

impl Registered {
    /// Takes all of them back.
    pub async fn end(self) {
        let ending: Vec<_> = self.0.into_iter().map(|one| tokio::spawn(one.end())).collect();
        for one in ending {
            // It does not panic; if it did, the lease would run out.
            let _ = one.await;
        }
    }
}

/// The address that the gateway sees: where a worker listens on all, the one from which the gateway is reached.
async fn seen_from(gateway: &HttpUrl, address: SocketAddr) -> anyhow::Result<IpAddr> {
    if !address.ip().is_unspecified() {
        return Ok(address.ip());
    }
    // Nothing is sent: connecting a socket of this kind only asks the system for its way there.
    let found = async {
        let socket = UdpSocket::bind(SocketAddr::new(address.ip(), 0)).await?;
        socket.connect((gateway.host(), gateway.port())).await?;
        socket.local_addr()
    };
    let found = found.await;
    let found = found.with_context(|| format!("cannot find the address from which {gateway} is reached"))?;
    Ok(found.ip())
}

/// What a gateway is to know of a worker.
pub fn worker(config: &Config, address: SocketAddr, place: &Place) -> anyhow::Result<WorkerSpec> {
    let mock = &config.mock;
    let mut text = format!(
        "http://{address},model={},block-size={},dialect={},ranks={}",
        config.model,
        config.block_size.get(),
        mock.dialect.name(),
        mock.dp_size,
    );
    if mock.kv.role != Role::Both {
        text = format!("{text},role={}", role_name(mock.kv.role));
    }
    let is_bound = !mock.events.connects.is_on();
    if let Some(sources) = is_bound.then(|| sources(address.ip(), place)).flatten() {
        text = format!("{text}{sources},topic={}", mock.events.topic);
    }
    let worker = WorkerSpec::parse(&text, &config.worker_defaults().learning());
    worker.map_err(|problems| anyhow!("{text} cannot be registered: {}", problems[0]))
}

/// Where its events are, as a worker is written. `None` where there are none, and where the ports of its ranks are not one after
/// the other: those cannot be written.
fn sources(ip: IpAddr, place: &Place) -> Option<String> {
    let endpoint = |text: &String| near(ip, text);
    let events: Vec<Option<Endpoint>> = place
        .ranks
        .iter()
        .map(|(events, _)| events.as_ref().and_then(endpoint))
        .collect();
    let replays: Vec<Option<Endpoint>> = place
        .ranks
        .iter()
        .map(|(_, replay)| replay.as_ref().and_then(endpoint))
        .collect();
    let in_order = |endpoints: &[Option<Endpoint>]| -> Option<String> {
        let first = endpoints.first()?.clone()?;
        let mut numbered = endpoints.iter().zip(0..);
        let is_so = numbered.all(|(endpoint, dp)| endpoint.is_some() && *endpoint == first.of_rank(DpRank(dp)));
        is_so.then(|| first.to_string())
    };
    let events = in_order(&events)?;
    let replay = in_order(&replays).map(|replay| format!(",replay={replay}"));
    Some(format!(",events={events}{}", replay.unwrap_or_default()))
}

/// An endpoint as others connect to it.
fn near(ip: IpAddr, text: &str) -> Option<Endpoint> {
    let port = |all: &str| text.strip_prefix("tcp://")?.strip_prefix(all)?.strip_prefix(':');
    let port = ["*", "0.0.0.0", "[::]"].into_iter().find_map(port);
    let text = port.map_or_else(|| text.to_owned(), |port| format!("tcp://{}", with_port(ip, port)));
    // A gateway takes no local socket from a registration.
    Endpoint::parse(&text)
        .ok()
        .filter(|endpoint| matches!(endpoint, Endpoint::Tcp { .. }))
}

fn with_port(ip: IpAddr, port: &str) -> String {
    match ip {
        IpAddr::V4(ip) => format!("{ip}:{port}"),
        IpAddr::V6(ip) => format!("[{ip}]:{port}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(ranks: &[(&str, &str)]) -> Option<String> {
        let some = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        let place = Place {
            address: ([0, 0, 0, 0], 8000).into(),
            ranks: ranks
                .iter()
                .map(|(events, replay)| (some(events), some(replay)))
                .collect(),
            kv: None,
        };
        sources([10, 0, 0, 1].into(), &place)
    }

    #[test]
    fn events_are_written_as_others_reach_them() {
        let one = written(&[("tcp://*:5557", "tcp://0.0.0.0:5567")]);
        assert_eq!(
            one.as_deref(),
            Some(",events=tcp://10.0.0.1:5557,replay=tcp://10.0.0.1:5567")
        );
        let two = written(&[("tcp://127.0.0.1:5557", ""), ("tcp://127.0.0.1:5558", "")]);
        assert_eq!(two.as_deref(), Some(",events=tcp://127.0.0.1:5557"));
        assert_eq!(written(&[("tcp://*:5557", ""), ("tcp://*:5559", "")]), None);
        assert_eq!(written(&[("", "tcp://*:1")]), None);
    }
}
