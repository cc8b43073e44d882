//! Memory for the bodies of all requests: one budget, shared fairly between clients.
//!
//! **Rule:** a client may hold at most as many bytes as are still free. One client alone gets half of the budget, two get a third
//! each, and a new client always finds room.
//!
//! **Invariant:** what is reserved is at least what the bodies take. While a buffer grows, the old and the new one both count.
//!
//! **Invariant:** a reservation ends when the last user of its body drops it, on every path.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use homing_telemetry::{BodyRefusal, Metrics};

use crate::memory;

/// The part of the memory that bodies may take, unless a budget is given.
const SHARE_OF_MEMORY: u64 = 4;
/// The budget where the size of the memory is not known.
const UNKNOWN_MEMORY_BUDGET: u64 = 1 << 30;
/// The first buffer of a body whose length is not known.
const FIRST_BUFFER: usize = 16 << 10;

/// Whose share of the budget a body counts against.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum BodyOwner {
    /// A client without a key, by its address: see [`crate::door::client_of`].
    Address(IpAddr),
    /// All clients of a tenant.
    Tenant(Arc<str>),
}

/// Why no memory is reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BudgetExceeded {
    /// The bodies of all clients take all of it.
    Total,
    /// The client holds as much as is still free.
    ClientShare,
}

impl BudgetExceeded {
    /// How it is counted.
    pub fn label(self) -> BodyRefusal {
        match self {
            Self::Total => BodyRefusal::Budget,
            Self::ClientShare => BodyRefusal::ClientShare,
        }
    }

    /// What the client is told.
    pub fn message(self) -> &'static str {
        match self {
            Self::Total => "the requests that are held take all the memory for request bodies: try again later",
            Self::ClientShare => {
                "your requests that are held take your share of the memory for request bodies: try again when one has ended"
            }
        }
    }
}

/// The budget.
#[derive(Debug)]
pub struct BodyBudget {
    capacity_bytes: u64,
    /// Held for as long as numbers are changed.
    held: Mutex<Held>,
    metrics: Arc<Metrics>,
}

#[derive(Debug, Default)]
struct Held {
    total_bytes: u64,
    by_owner: HashMap<BodyOwner, u64>,
}

impl BodyBudget {
    /// A budget of so many bytes; `None`: a quarter of the memory of the machine or of the control group.
    pub fn new(bytes: Option<u64>, metrics: &Arc<Metrics>) -> Arc<Self> {
        let capacity_bytes = bytes.unwrap_or_else(|| {
            let memory_bytes = memory::limit_bytes();
            memory_bytes.map_or(UNKNOWN_MEMORY_BUDGET, |bytes| bytes / SHARE_OF_MEMORY)
        });
        metrics.http.body_budget_bytes.set(capacity_bytes);
        Arc::new(Self {
            capacity_bytes,
            held: Mutex::default(),
            metrics: metrics.clone(),
        })
    }

    /// All of it.
    pub fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes
    }

    /// Counts bytes that exist already, for as long as they are used.
    pub fn hold(self: &Arc<Self>, owner: BodyOwner, bytes: Bytes) -> Result<Bytes, BudgetExceeded> {
        let mut reservation = BodyReservation::new(self, owner);
        reservation.grow(bytes.len() as u64, 0)?;
        Ok(Bytes::from_owner(HeldBytes {
            bytes,
            _reservation: reservation,
        }))
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Memory that is reserved for one body.
#[derive(Debug)]
struct BodyReservation {
    budget: Arc<BodyBudget>,
    owner: BodyOwner,
    bytes: u64,
}

impl BodyReservation {
    fn new(budget: &Arc<BodyBudget>, owner: BodyOwner) -> Self {
        Self {
            budget: budget.clone(),
            owner,
            bytes: 0,
        }
    }

    /// Reserves `more` bytes, of which `freed_soon` take the place of others that are freed at once afterwards.
    fn grow(&mut self, more: u64, freed_soon: u64) -> Result<(), BudgetExceeded> {
        let capacity = self.budget.capacity_bytes;
        let mut held = self.budget.lock();
        let total = held.total_bytes.saturating_add(more);
        if total > capacity {
            return Err(BudgetExceeded::Total);
        }
        let of_owner = held.by_owner.get(&self.owner).copied().unwrap_or(0) + more;
        let (stays_of_owner, stays) = (of_owner - freed_soon, total - freed_soon);
        if stays_of_owner > capacity - stays {
            return Err(BudgetExceeded::ClientShare);
        }
        held.total_bytes = total;
        match held.by_owner.get_mut(&self.owner) {
            Some(bytes) => *bytes = of_owner,
            None => {
                held.by_owner.insert(self.owner.clone(), of_owner);
            }
        }
        self.bytes += more;
        self.budget.metrics.http.held_body_bytes.set(total);
        Ok(())
    }

    fn shrink(&mut self, less: u64) {
        if less == 0 {
            return;
        }
        let mut held = self.budget.lock();
        held.total_bytes -= less;
        if let Some(of_owner) = held.by_owner.get_mut(&self.owner) {
            *of_owner -= less;
            if *of_owner == 0 {
                held.by_owner.remove(&self.owner);
            }
        }
        self.bytes -= less;
        self.budget.metrics.http.held_body_bytes.set(held.total_bytes);
    }
}

impl Drop for BodyReservation {
    fn drop(&mut self) {
        self.shrink(self.bytes);
    }
}

/// Bytes that count for as long as they are used.
struct HeldBytes {
    bytes: Bytes,
    _reservation: BodyReservation,
}

impl AsRef<[u8]> for HeldBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// A body that comes in pieces, in one buffer that doubles.
#[derive(Debug)]
pub(crate) struct BodyBuffer {
    bytes: Vec<u8>,
    /// The length of the whole body, if it is known.
    declared: Option<usize>,
    reservation: BodyReservation,
}

impl BodyBuffer {
    pub(crate) fn new(budget: &Arc<BodyBudget>, owner: BodyOwner, declared: Option<usize>) -> Self {
        Self {
            bytes: Vec::new(),
            declared,
            reservation: BodyReservation::new(budget, owner),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn push(&mut self, piece: &[u8]) -> Result<(), BudgetExceeded> {
        let needed = self.bytes.len() + piece.len();
        if needed > self.bytes.capacity() {
            self.grow(needed)?;
        }
        self.bytes.extend_from_slice(piece);
        Ok(())
    }

    /// A larger buffer, for `needed` bytes at least.
    fn grow(&mut self, needed: usize) -> Result<(), BudgetExceeded> {
        let old = self.bytes.capacity();
        let doubled = old.saturating_mul(2).max(FIRST_BUFFER);
        // What a client declares is no reason to reserve it before it comes.
        let capacity = self
            .declared
            .map_or(doubled, |declared| doubled.min(declared))
            .max(needed);
        self.reservation.grow(capacity as u64, old as u64)?;
        let mut larger = Vec::with_capacity(capacity);
        larger.extend_from_slice(&self.bytes);
        self.bytes = larger;
        self.reservation.shrink(old as u64);
        Ok(())
    }

    /// The body. It counts until the last copy is dropped.
    pub(crate) fn into_bytes(self) -> Bytes {
        if self.bytes.is_empty() {
            return Bytes::new();
        }
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for BodyBuffer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(bytes: u64) -> Arc<BodyBudget> {
        BodyBudget::new(Some(bytes), &Arc::default())
    }

    fn client(number: u8) -> BodyOwner {
        BodyOwner::Address([10, 0, 0, number].into())
    }

    fn held(budget: &BodyBudget) -> u64 {
        let held = budget.lock();
        assert_eq!(held.total_bytes, held.by_owner.values().sum::<u64>());
        assert_eq!(held.total_bytes, budget.metrics.http.held_body_bytes.get());
        held.total_bytes
    }

    /// Takes pieces of 10 bytes until it is refused: how many bytes it has then.
    fn take_all(reservation: &mut BodyReservation) -> (u64, BudgetExceeded) {
        loop {
            if let Err(exceeded) = reservation.grow(10, 0) {
                return (reservation.bytes, exceeded);
            }
        }
    }

    #[test]
    fn one_client_gets_half_and_a_new_one_half_of_the_rest() {
        let budget = budget(1000);
        let mut first = BodyReservation::new(&budget, client(1));
        assert_eq!(take_all(&mut first), (500, BudgetExceeded::ClientShare));
        let mut again = BodyReservation::new(&budget, client(1));
        assert_eq!(again.grow(1, 0), Err(BudgetExceeded::ClientShare));
        let mut second = BodyReservation::new(&budget, client(2));
        assert_eq!(take_all(&mut second), (250, BudgetExceeded::ClientShare));
        drop(first);
        assert_eq!(take_all(&mut second), (500, BudgetExceeded::ClientShare));
        drop((again, second));
        assert_eq!(held(&budget), 0);
        assert!(budget.lock().by_owner.is_empty());
    }

    #[test]
    fn two_clients_that_take_turns_get_a_third_each() {
        let budget = budget(3000);
        let mut both = [1, 2].map(|number| BodyReservation::new(&budget, client(number)));
        while both.iter_mut().filter_map(|one| one.grow(10, 0).ok()).count() > 0 {}
        let bytes = both.each_ref().map(|one| one.bytes);
        assert!(bytes.iter().all(|bytes| (990..=1010).contains(bytes)), "{bytes:?}");
    }

    #[test]
    fn what_does_not_fit_at_all_exceeds_the_total() {
        let budget = budget(1000);
        let mut reservation = BodyReservation::new(&budget, client(1));
        assert_eq!(reservation.grow(1001, 0), Err(BudgetExceeded::Total));
        assert_eq!(reservation.grow(u64::MAX, 0), Err(BudgetExceeded::Total));
        assert_eq!(held(&budget), 0);
    }

    #[test]
    fn many_small_pieces_take_one_buffer_which_at_most_doubles() {
        let budget = budget(1 << 30);
        let mut buffer = BodyBuffer::new(&budget, client(1), None);
        for _ in 0..=(1 << 20) {
            buffer.push(b"x").unwrap();
        }
        assert_eq!(held(&budget), 2 << 20);
        assert_eq!(buffer.bytes.capacity(), 2 << 20);
        let bytes = buffer.into_bytes();
        assert_eq!(bytes.len(), (1 << 20) + 1);
        let part = bytes.slice(5..6);
        drop(bytes);
        assert_eq!(held(&budget), 2 << 20, "a part keeps the whole");
        drop(part);
        assert_eq!(held(&budget), 0);
    }

    #[test]
    fn a_declared_length_is_reserved_as_it_comes_and_never_exceeded() {
        let budget = budget(1 << 30);
        let declared = 100_000;
        let mut buffer = BodyBuffer::new(&budget, client(1), Some(declared));
        buffer.push(b"x").unwrap();
        assert_eq!(held(&budget), FIRST_BUFFER as u64);
        for _ in 1..declared {
            buffer.push(b"x").unwrap();
        }
        assert_eq!(held(&budget), declared as u64);
    }

    #[test]
    fn both_buffers_count_while_one_takes_the_place_of_the_other() {
        // 32 KiB fit into the share of one client, but not beside the 16 KiB that are copied.
        let budget = budget((48 << 10) - 1);
        let mut buffer = BodyBuffer::new(&budget, client(1), None);
        buffer.push(&[0; 16 << 10]).unwrap();
        assert_eq!(buffer.push(b"x"), Err(BudgetExceeded::Total));
        drop(buffer);
        assert_eq!(held(&budget), 0);
    }

    #[test]
    fn what_is_held_ends_with_its_last_copy() {
        let budget = budget(100);
        let bytes = budget.hold(client(1), Bytes::from_static(b"0123456789")).unwrap();
        let copy = bytes.clone();
        drop(bytes);
        assert_eq!(held(&budget), 10);
        drop(copy);
        assert_eq!(held(&budget), 0);
    }
}
