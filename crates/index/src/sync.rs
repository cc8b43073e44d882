//! Which atomics are these? The standard ones, or those of the schedule explorer when tests are built for it
//! (`RUSTFLAGS="--cfg shuttle"`), or those of the model of weak memory (`--cfg loom`). Nothing else in this crate names
//! an atomic type or a lock.

#[cfg(not(any(shuttle, loom)))]
pub(crate) use std::sync::{
    Mutex,
    atomic::{AtomicU64, Ordering, fence},
};

#[cfg(loom)]
pub(crate) use loom::sync::{
    Mutex,
    atomic::{AtomicU64, Ordering, fence},
};

#[cfg(shuttle)]
pub(crate) use shuttle::sync::{
    Mutex,
    atomic::{AtomicU64, Ordering, fence},
};

use std::sync::Arc;

/// A value that one writer replaces as a whole and that readers hold on to without waiting.
#[cfg(not(shuttle))]
#[derive(Debug)]
pub(crate) struct Published<T>(arc_swap::ArcSwap<T>);

#[cfg(not(shuttle))]
impl<T> Published<T> {
    pub(crate) fn new(value: Arc<T>) -> Self {
        Self(arc_swap::ArcSwap::new(value))
    }

    pub(crate) fn load(&self) -> arc_swap::Guard<Arc<T>> {
        self.0.load()
    }

    pub(crate) fn store(&self, value: Arc<T>) {
        self.0.store(value);
    }
}

/// The same under the schedule explorer, which does not know `arc-swap`.
#[cfg(shuttle)]
#[derive(Debug)]
pub(crate) struct Published<T>(Mutex<Arc<T>>);

#[cfg(shuttle)]
impl<T> Published<T> {
    pub(crate) fn new(value: Arc<T>) -> Self {
        Self(Mutex::new(value))
    }

    pub(crate) fn load(&self) -> Arc<T> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    pub(crate) fn store(&self, value: Arc<T>) {
        *self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = value;
    }
}
