//! Where do two legs find each other?
//!
//! SGLang's workers meet: both legs are told the prefill worker's host and port and the number of a *room*. The room also says
//! which data-parallel part of the prefill worker serves: the remainder of the number by the number of parts.

use std::sync::Arc;

use homing_domain::DpRank;

/// Where a prefill worker can be met.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Endpoint {
    /// Its host, as decode workers reach it.
    pub host: Arc<str>,
    /// The port.
    pub port: u16,
    /// Data-parallel parts of the worker.
    pub dp_size: u16,
}

/// One meeting of two legs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Meeting {
    /// The prefill worker's host.
    pub host: Arc<str>,
    /// The port.
    pub port: u16,
    /// The room, from 0 to below 2^63.
    pub room: u64,
}

impl Endpoint {
    /// A meeting at this endpoint for a data-parallel part, in a room made from a random number.
    pub fn meeting(&self, entropy: u64, dp: DpRank) -> Meeting {
        Meeting {
            host: self.host.clone(),
            port: self.port,
            room: room_for(entropy, dp, self.dp_size),
        }
    }
}

/// A room below 2^63 whose remainder by `dp_size` is the part that shall serve. A part that does not exist is taken by remainder, and a
/// worker of no parts for one of one.
pub const fn room_for(entropy: u64, dp: DpRank, dp_size: u16) -> u64 {
    const MOST: u64 = 1 << 63;
    let size = if dp_size == 0 { 1 } else { dp_size as u64 };
    let part = dp.0 as u64 % size;
    // As many whole rounds as fit below the limit, so that the part can be added to any of them.
    let rounds = MOST / size;
    (entropy % rounds) * size + part
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_room_leads_to_its_part_and_is_no_negative_number(entropy: u64, dp: u16, size: u16) {
            let room = room_for(entropy, DpRank(dp), size);
            prop_assert!(room < 1 << 63);
            if size > 0 {
                prop_assert_eq!(room % u64::from(size), u64::from(dp % size));
            }
        }
    }

    #[test]
    fn different_numbers_give_different_rooms() {
        let rooms: std::collections::BTreeSet<u64> =
            (0..1_000).map(|entropy| room_for(entropy, DpRank(1), 4)).collect();
        assert_eq!(rooms.len(), 1_000);
        assert_eq!(room_for(u64::MAX, DpRank(0), 1), (1 << 63) - 1);
    }
}
