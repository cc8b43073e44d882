//! Counts the connections of one listener, and decides what becomes of a new one at a limit.
//!
//! **Invariant:** a connection counts from its acceptance to its end, its handshake included, so that no limit is passed by never
//! finishing one.
//!
//! Some listeners make room at a limit: an idle connection, over which no request is being answered, is closed for a new one. If none
//! is idle, a few more are accepted that may only ask for health and metrics. So neither idle nor busy connections make a listener
//! look dead.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use homing_telemetry::TurnedAway;

use crate::guard::Watch;

/// What a connection may be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Everything.
    Full,
    /// One request for health or metrics: it was accepted above a limit.
    HealthOnly,
}

/// What is done with a new connection at a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenFull {
    /// It is refused.
    Refuse,
    /// An idle connection is closed for it. If none is idle, so many are accepted beyond the limit, for health and metrics only.
    MakeRoom {
        /// How many.
        reserved: usize,
    },
}

/// How many connections a listener takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionLimits {
    pub(crate) total: usize,
    pub(crate) per_client: u32,
    pub(crate) when_full: WhenFull,
}

/// The connections that are open.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    /// In the order of their acceptance.
    open: BTreeMap<u64, Connection>,
    by_client: HashMap<IpAddr, u32>,
    /// Those of `open` that may only ask for health.
    reserved: usize,
    next_id: u64,
}

#[derive(Debug)]
struct Connection {
    client: IpAddr,
    access: Access,
    watch: Arc<Watch>,
}

/// A new connection was accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Accepted {
    pub(crate) id: u64,
    pub(crate) access: Access,
    /// Whether an idle connection was closed for it.
    pub(crate) displaced: Displaced,
}

/// Whether an idle connection was closed for a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Displaced {
    No,
    One,
}

impl Connections {
    /// Accepts a connection, or says which limit is reached.
    pub(crate) fn accept(
        &mut self,
        client: IpAddr,
        watch: &Arc<Watch>,
        limits: &ConnectionLimits,
    ) -> Result<Accepted, TurnedAway> {
        let full = self.open.len() - self.reserved >= limits.total;
        let client_full = self.by_client.get(&client).copied().unwrap_or(0) >= limits.per_client;
        let reached = match (full, client_full) {
            (false, false) => return Ok(self.add(client, watch, Access::Full, Displaced::No)),
            (_, true) => TurnedAway::Client,
            (true, false) => TurnedAway::Total,
        };
        let WhenFull::MakeRoom { reserved } = limits.when_full else {
            return Err(reached);
        };
        // One of this client is one of all as well.
        let makes_room = |other: &Connection| other.access == Access::Full && (!client_full || other.client == client);
        if self.close_idle(makes_room) {
            return Ok(self.add(client, watch, Access::Full, Displaced::One));
        }
        if self.reserved < reserved {
            return Ok(self.add(client, watch, Access::HealthOnly, Displaced::No));
        }
        if self.close_idle(|other| other.access == Access::HealthOnly) {
            return Ok(self.add(client, watch, Access::HealthOnly, Displaced::One));
        }
        Err(reached)
    }

    /// Forgets a connection. Does nothing for one that was displaced.
    pub(crate) fn remove(&mut self, id: u64) {
        let Some(connection) = self.open.remove(&id) else {
            return;
        };
        if connection.access == Access::HealthOnly {
            self.reserved -= 1;
            return;
        }
        if let Some(count) = self.by_client.get_mut(&connection.client) {
            *count -= 1;
            if *count == 0 {
                self.by_client.remove(&connection.client);
            }
        }
    }

    fn add(&mut self, client: IpAddr, watch: &Arc<Watch>, access: Access, displaced: Displaced) -> Accepted {
        match access {
            Access::Full => *self.by_client.entry(client).or_default() += 1,
            Access::HealthOnly => self.reserved += 1,
        }
        let id = self.next_id;
        self.next_id += 1;
        let connection = Connection {
            client,
            access,
            watch: watch.clone(),
        };
        self.open.insert(id, connection);
        Accepted { id, access, displaced }
    }

    /// Ends the oldest idle connection of a kind. Whether there was one.
    fn close_idle(&mut self, is_candidate: impl Fn(&Connection) -> bool) -> bool {
        let oldest = self
            .open
            .iter()
            .find(|(_, connection)| is_candidate(connection) && connection.watch.is_idle())
            .map(|(id, connection)| (*id, connection.watch.clone()));
        let Some((id, watch)) = oldest else {
            return false;
        };
        self.remove(id);
        watch.displace();
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::task::{Context, Waker};

    const LIMITS: ConnectionLimits = ConnectionLimits {
        total: 4,
        per_client: 2,
        when_full: WhenFull::MakeRoom { reserved: 1 },
    };

    fn client(number: u8) -> IpAddr {
        [10, 0, 0, number].into()
    }

    fn is_displaced(watch: &Watch) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        pin!(watch.displaced()).poll(&mut context).is_ready()
    }

    fn watch() -> Arc<Watch> {
        Watch::new(&Arc::default())
    }

    #[test]
    fn a_new_connection_displaces_the_oldest_idle_one_of_its_client() {
        let mut connections = Connections::default();
        let (other, first, second) = (watch(), watch(), watch());
        first.begin_request();
        for (number, watch) in [(1, &other), (2, &first), (2, &second)] {
            let accepted = connections.accept(client(number), watch, &LIMITS).unwrap();
            assert_eq!((accepted.access, accepted.displaced), (Access::Full, Displaced::No));
        }
        let accepted = connections.accept(client(2), &watch(), &LIMITS).unwrap();
        assert_eq!((accepted.access, accepted.displaced), (Access::Full, Displaced::One));
        assert!(is_displaced(&second) && !is_displaced(&first) && !is_displaced(&other));
    }

    #[test]
    fn at_the_total_limit_any_idle_connection_makes_room() {
        let mut connections = Connections::default();
        let watches: Vec<_> = (0..4).map(|_| watch()).collect();
        for (number, watch) in (1..).zip(&watches) {
            connections.accept(client(number), watch, &LIMITS).unwrap();
        }
        let accepted = connections.accept(client(9), &watch(), &LIMITS).unwrap();
        assert_eq!((accepted.access, accepted.displaced), (Access::Full, Displaced::One));
        assert!(is_displaced(&watches[0]));
        assert_eq!(connections.open.len(), 4);
    }

    #[test]
    fn while_all_are_busy_only_the_reserve_is_left() {
        let mut connections = Connections::default();
        let mut ids = Vec::new();
        for number in 1..=4 {
            let watch = watch();
            watch.begin_request();
            ids.push(connections.accept(client(number), &watch, &LIMITS).unwrap().id);
        }
        let (reserved, next) = (watch(), watch());
        let accepted = connections.accept(client(9), &reserved, &LIMITS).unwrap();
        assert_eq!(accepted.access, Access::HealthOnly);
        let accepted = connections.accept(client(9), &next, &LIMITS).unwrap();
        assert_eq!(
            (accepted.access, accepted.displaced),
            (Access::HealthOnly, Displaced::One)
        );
        assert!(is_displaced(&reserved));
        next.begin_request();
        assert_eq!(connections.accept(client(9), &watch(), &LIMITS), Err(TurnedAway::Total));
        connections.remove(ids[0]);
        let accepted = connections.accept(client(9), &watch(), &LIMITS).unwrap();
        assert_eq!(accepted.access, Access::Full);
    }

    #[test]
    fn a_listener_that_makes_no_room_refuses() {
        let limits = ConnectionLimits {
            when_full: WhenFull::Refuse,
            ..LIMITS
        };
        let mut connections = Connections::default();
        let first = watch();
        let id = connections.accept(client(1), &first, &limits).unwrap().id;
        connections.accept(client(1), &watch(), &limits).unwrap();
        let refused = connections.accept(client(1), &watch(), &limits);
        assert_eq!(refused, Err(TurnedAway::Client));
        assert!(!is_displaced(&first));
        connections.remove(id);
        connections.remove(id);
        connections.accept(client(1), &watch(), &limits).unwrap();
        assert_eq!(connections.by_client[&client(1)], 2);
    }
}
