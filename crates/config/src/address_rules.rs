//! Which addresses a worker that registered itself may have: its own, and those of its events.
//!
//! A registration makes the gateway connect to an address that the registering process chose, so neither the gateway itself nor what
//! only this machine can reach may be named by it.
//!
//! **Invariant:** an address is judged as the number that is connected to. Names are resolved by the caller, and each of their addresses
//! is judged.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use crate::networks::{Network, Networks};

/// Which addresses are allowed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddressRules {
    /// Only these are allowed; all, if the list is empty.
    pub allow: Networks,
    /// These are not.
    pub deny: Networks,
    /// Where the gateway itself listens.
    pub own_listeners: Vec<SocketAddr>,
}

/// Whether addresses of the loopback interface may be named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoopbackUse {
    /// They may: the registering process is on this machine.
    Allowed,
    /// Only those that [`AddressRules::allow`] lists.
    Listed,
}

/// Why an address is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressDenied {
    /// It is in a network that is denied.
    #[error("{address} is in {network}, which `discovery.register-deny` lists")]
    Network {
        /// The address.
        address: IpAddr,
        /// The network.
        network: Network,
    },
    /// It is in no network that is allowed.
    #[error("{address} is in no network that `discovery.register-allow` lists")]
    NotAllowed {
        /// The address.
        address: IpAddr,
    },
    /// Only processes of this machine may name it.
    #[error(
        "{address} is this machine's loopback address, which only a process of this machine may register, unless \
         `discovery.register-allow` lists it"
    )]
    Loopback {
        /// The address.
        address: IpAddr,
    },
    /// The gateway itself listens there.
    #[error("{address} is an address of this gateway")]
    OwnListener {
        /// The address.
        address: SocketAddr,
    },
}

impl AddressRules {
    /// Whether a worker may be at this address.
    pub fn check(&self, address: SocketAddr, loopback: LoopbackUse) -> Result<(), AddressDenied> {
        let ip = address.ip().to_canonical();
        let address = SocketAddr::new(ip, address.port());
        self.check_ip(ip, loopback)?;
        if self.own_listeners.iter().any(|own| is_served_by(*own, address)) {
            return Err(AddressDenied::OwnListener { address });
        }
        Ok(())
    }

    /// The same where the port is not known.
    pub fn check_ip(&self, address: IpAddr, loopback: LoopbackUse) -> Result<(), AddressDenied> {
        let address = address.to_canonical();
        if let Some(&network) = self.deny.find(address) {
            return Err(AddressDenied::Network { address, network });
        }
        if address.is_loopback() {
            let is_allowed = loopback == LoopbackUse::Allowed || self.allow.contains(address);
            return if is_allowed {
                Ok(())
            } else {
                Err(AddressDenied::Loopback { address })
            };
        }
        if !self.allow.is_empty() && !self.allow.contains(address) {
            return Err(AddressDenied::NotAllowed { address });
        }
        Ok(())
    }
}

/// Whether a connection to `address` arrives at a listener bound to `own`.
fn is_served_by(own: SocketAddr, address: SocketAddr) -> bool {
    let (bound, ip) = (own.ip().to_canonical(), address.ip());
    let meets = bound == ip || ((bound.is_unspecified() || ip.is_unspecified()) && is_of_this_machine(ip));
    own.port() == address.port() && meets
}

/// Whether an address is one of this machine: then the system would also send from it. Nothing is sent.
fn is_of_this_machine(ip: IpAddr) -> bool {
    if ip.is_loopback() || ip.is_unspecified() {
        return true;
    }
    let from: IpAddr = match ip {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let source = UdpSocket::bind((from, 0)).and_then(|socket| {
        // Any port but 0.
        socket.connect((ip, 9))?;
        socket.local_addr()
    });
    source.is_ok_and(|source| source.ip() == ip)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    fn rules(allow: &str, own: &[&str]) -> AddressRules {
        AddressRules {
            allow: allow.parse().unwrap(),
            own_listeners: own.iter().map(|own| own.parse().unwrap()).collect(),
            deny: Config::default().discovery.register_deny,
        }
    }

    #[test]
    fn addresses_that_only_this_machine_reaches_are_denied_by_default() {
        let rules = rules("none", &["127.0.0.1:8080"]);
        for (address, from_here, from_elsewhere) in [
            ("10.0.0.1:8000", true, true),
            ("[fd00::1]:8000", true, true),
            ("127.0.0.1:8000", true, false),
            ("[::1]:8000", true, false),
            ("[::ffff:127.0.0.1]:8000", true, false),
            ("127.0.0.1:8080", false, false),
            ("169.254.169.254:80", false, false),
            ("[::ffff:169.254.169.254]:80", false, false),
            ("[fe80::1]:8000", false, false),
            ("224.0.0.1:8000", false, false),
            ("[ff02::1]:8000", false, false),
            ("0.0.0.0:8000", false, false),
            ("[::]:8000", false, false),
            ("255.255.255.255:8000", false, false),
        ] {
            let parsed: SocketAddr = address.parse().unwrap();
            let is_allowed = |loopback| rules.check(parsed, loopback).is_ok();
            let found = (is_allowed(LoopbackUse::Allowed), is_allowed(LoopbackUse::Listed));
            assert_eq!(found, (from_here, from_elsewhere), "{address}");
        }
    }

    #[test]
    fn a_list_of_allowed_networks_excludes_all_others() {
        let rules = rules("10.1.0.0/16,127.0.0.0/8", &[]);
        for (address, expected) in [
            ("10.1.2.3:1", true),
            ("10.2.0.1:1", false),
            ("127.0.0.1:1", true),
            ("[::1]:1", false),
            ("169.254.0.1:1", false),
        ] {
            let found = rules.check(address.parse().unwrap(), LoopbackUse::Listed).is_ok();
            assert_eq!(found, expected, "{address}");
        }
    }

    #[test]
    fn a_listener_on_all_interfaces_is_found_at_each_address_of_this_machine() {
        for own in ["0.0.0.0:8080", "[::]:8080"] {
            let rules = rules("none", &[own]);
            let check = |address: &str| rules.check(address.parse().unwrap(), LoopbackUse::Allowed);
            assert!(matches!(
                check("127.0.0.1:8080"),
                Err(AddressDenied::OwnListener { .. })
            ));
            assert_eq!(check("127.0.0.1:8081"), Ok(()));
            // An address for documentation is no machine's.
            assert_eq!(check("192.0.2.1:8080"), Ok(()));
        }
    }
}
