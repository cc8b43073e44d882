//! Ranges of IP addresses, in CIDR notation: `10.0.0.0/8`, `fd00::/8`, `192.0.2.7`.
//!
//! An IPv4 address within IPv6 (`::ffff:10.0.0.1`) is the IPv4 address, so that no second spelling avoids a list.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// The most ranges of one list.
pub const MAX_NETWORKS: usize = 256;
/// How an empty list is written.
const NONE: &str = "none";

/// A range of IP addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    prefix_bits: u8,
}

/// A list of ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Networks(Vec<Network>);

/// The text is not a range of addresses, or not a list of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be up to {MAX_NETWORKS} networks such as 10.0.0.0/8 or fd00::/8, separated by commas, or `none`")]
pub struct NotNetworks;

impl Network {
    /// Whether an address is in the range.
    pub fn contains(&self, address: IpAddr) -> bool {
        let bits = |address: IpAddr| match address {
            IpAddr::V4(address) => u128::from(address.to_bits()) << 96,
            IpAddr::V6(address) => address.to_bits(),
        };
        let address = address.to_canonical();
        let same_family = address.is_ipv4() == self.address.is_ipv4();
        let mask = match self.prefix_bits {
            0 => 0,
            prefix => u128::MAX << (128 - u32::from(prefix)),
        };
        same_family && (bits(address) ^ bits(self.address)) & mask == 0
    }
}

impl FromStr for Network {
    type Err = NotNetworks;

    fn from_str(text: &str) -> Result<Self, NotNetworks> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| NotNetworks)?;
        // A range of IPv4 addresses within IPv6 would never contain anything.
        if address != address.to_canonical() {
            return Err(NotNetworks);
        }
        let most = if address.is_ipv4() { 32 } else { 128 };
        let prefix_bits = match prefix {
            None => most,
            Some(prefix) => prefix.parse().ok().filter(|bits| *bits <= most).ok_or(NotNetworks)?,
        };
        Ok(Self { address, prefix_bits })
    }
}

impl Networks {
    /// The first range that has this address.
    pub fn find(&self, address: IpAddr) -> Option<&Network> {
        self.0.iter().find(|network| network.contains(address))
    }

    /// Whether one of the ranges has this address.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.find(address).is_some()
    }

    /// Whether there is no range.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// These ranges, if they are not too many.
    pub fn collect<'a>(texts: impl Iterator<Item = &'a str>) -> Result<Self, NotNetworks> {
        let networks: Vec<Network> = texts.take(MAX_NETWORKS + 1).map(str::parse).collect::<Result<_, _>>()?;
        if networks.len() > MAX_NETWORKS {
            return Err(NotNetworks);
        }
        Ok(Self(networks))
    }
}

impl FromStr for Networks {
    type Err = NotNetworks;

    fn from_str(text: &str) -> Result<Self, NotNetworks> {
        match text.trim() {
            NONE => Ok(Self::default()),
            text => Self::collect(text.split(',').map(str::trim)),
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix_bits)
    }
}

impl fmt::Display for Networks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str(NONE);
        }
        let networks: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&networks.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_network_contains_its_addresses_in_every_spelling() {
        for (network, address, expected) in [
            ("10.0.0.0/8", "10.255.0.1", true),
            ("10.0.0.0/8", "11.0.0.1", false),
            ("169.254.0.0/16", "::ffff:169.254.169.254", true),
            ("169.254.0.0/16", "fe80::1", false),
            ("fe80::/10", "febf::1", true),
            ("fe80::/10", "fec0::1", false),
            ("192.0.2.7", "192.0.2.7", true),
            ("192.0.2.7", "192.0.2.8", false),
            ("0.0.0.0/0", "8.8.8.8", true),
            ("0.0.0.0/0", "::1", false),
            ("::/0", "::1", true),
        ] {
            let network: Network = network.parse().unwrap();
            assert_eq!(
                network.contains(address.parse().unwrap()),
                expected,
                "{network} {address}"
            );
        }
    }

    #[test]
    fn a_list_is_read_and_shown() {
        let networks: Networks = "10.0.0.0/8, fd00::/8".parse().unwrap();
        assert_eq!(networks.to_string(), "10.0.0.0/8,fd00::/8");
        assert_eq!("none".parse::<Networks>().unwrap().to_string(), "none");
        for bad in [
            "",
            "10.0.0.0/33",
            "10.0.0/8",
            "::/129",
            "localhost",
            "10.0.0.0/8,",
            "::ffff:10.0.0.0/104",
        ] {
            assert_eq!(bad.parse::<Networks>(), Err(NotNetworks), "{bad:?}");
        }
        assert!(
            "10.0.0.1,"
                .repeat(MAX_NETWORKS + 1)
                .trim_end_matches(',')
                .parse::<Networks>()
                .is_err()
        );
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "([0-9a-f:./, ]|\\PC){0,24}", address: u128) {
            if let Ok(networks) = text.parse::<Networks>() {
                let _ = networks.contains(IpAddr::V6(address.into()));
                prop_assert_eq!(networks.to_string().parse(), Ok(networks));
            }
        }
    }
}
