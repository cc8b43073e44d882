//! What goes wrong on purpose? Read with every request and batch, written by the admin endpoint.

use std::sync::{Mutex, MutexGuard, PoisonError};

use homing_config::{HandoverFault, MockFaults, Switch};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tokio::sync::watch;

/// All faults. As the admin endpoint reads and writes them; what is left out stays as it is.
#[expect(clippy::struct_excessive_bools, reason = "faults are independent of each other")]
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Faults {
    /// Connections are closed without an answer.
    pub refuse: bool,
    /// Requests for answers get status 500.
    pub fail: bool,
    /// The engine core stops, as in a hang: running streams get no more tokens, requests for answers are taken and nothing comes
    /// back, counters stand still. `/health` and `/metrics` are answered.
    pub stall: bool,
    /// Connections are cut after so many tokens of an answer; 0: never.
    pub cut_after: u32,
    /// One of so many batches of events is not published; 0: none.
    pub drop_every: u32,
    /// One of so many batches of events is published twice; 0: none.
    pub repeat_every: u32,
    /// Steps take so many times as long.
    pub slowdown: f64,
    /// Adapters cannot be loaded.
    pub reject_adapters: bool,
    /// What goes wrong with KV that is handed over.
    pub handover: Handover,
}

/// What goes wrong with KV that is handed over, written as its word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handover(pub HandoverFault);

impl Serialize for Handover {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.0.name())
    }
}

impl<'de> Deserialize<'de> for Handover {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let word = String::deserialize(from)?;
        let found = HandoverFault::ALL.iter().find(|fault| fault.name() == word);
        found
            .map(|fault| Self(*fault))
            .ok_or_else(|| serde::de::Error::custom(format!("`{word}` is no such fault")))
    }
}

/// What is to be changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Change {
    refuse: Option<bool>,
    fail: Option<bool>,
    stall: Option<bool>,
    cut_after: Option<u32>,
    drop_every: Option<u32>,
    repeat_every: Option<u32>,
    slowdown: Option<f64>,
    reject_adapters: Option<bool>,
    handover: Option<Handover>,
}

/// The faults of one engine.
#[derive(Debug)]
pub(crate) struct FaultBox(watch::Sender<Faults>);

/// Batches that were told so far, for faults that happen to one of so many.
#[derive(Debug, Default)]
pub(crate) struct Counted(Mutex<u64>);

/// What happens to a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Sent,
    Lost,
    Repeated,
}

impl Faults {
    pub(crate) fn new(faults: &MockFaults) -> Self {
        let on = Switch::is_on;
        Self {
            refuse: on(faults.refuse),
            fail: on(faults.fail),
            stall: on(faults.stall),
            cut_after: faults.cut_after,
            drop_every: faults.drop_every,
            repeat_every: faults.repeat_every,
            slowdown: faults.slowdown,
            reject_adapters: on(faults.reject_adapters),
            handover: Handover(faults.handover),
        }
    }

    fn apply(&mut self, change: &Change) {
        fn set<T: Copy>(to: &mut T, from: Option<T>) {
            *to = from.unwrap_or(*to);
        }
        set(&mut self.refuse, change.refuse);
        set(&mut self.fail, change.fail);
        set(&mut self.stall, change.stall);
        set(&mut self.cut_after, change.cut_after);
        set(&mut self.drop_every, change.drop_every);
        set(&mut self.repeat_every, change.repeat_every);
        // As the engine has it: others are not taken.
        set(
            &mut self.slowdown,
            change.slowdown.filter(|factor| factor.is_finite() && *factor > 0.0),
        );
        set(&mut self.reject_adapters, change.reject_adapters);
        set(&mut self.handover, change.handover);
    }
}

impl FaultBox {
    pub(crate) fn new(faults: Faults) -> Self {
        Self(watch::Sender::new(faults))
    }

    pub(crate) fn now(&self) -> Faults {
        *self.0.borrow()
    }

    pub(crate) fn change(&self, change: &Change) -> Faults {
        self.0.send_modify(|faults| faults.apply(change));
        self.now()
    }

    /// Waits until KV that is fetched does not hang.
    pub(crate) async fn moving(&self) {
        let mut changes = self.0.subscribe();
        let _ = changes
            .wait_for(|faults| faults.handover.0 != HandoverFault::Hang)
            .await;
    }

    /// Waits until nothing stalls.
    pub(crate) async fn flowing(&self) {
        let mut changes = self.0.subscribe();
        // The sender is ours: it does not go away meanwhile.
        let _ = changes.wait_for(|faults| !faults.stall).await;
    }
}

impl Counted {
    /// What happens to the next batch.
    pub(crate) fn next(&self, faults: &Faults) -> Fate {
        let mut count = locked(&self.0);
        *count += 1;
        let due = |every: u32| every > 0 && count.is_multiple_of(u64::from(every));
        if due(faults.drop_every) {
            Fate::Lost
        } else if due(faults.repeat_every) {
            Fate::Repeated
        } else {
            Fate::Sent
        }
    }
}

/// What is behind these locks is never left half changed.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn none() -> Faults {
        Faults::new(&homing_config::Config::default().mock.faults)
    }

    #[test]
    fn what_is_not_named_stays() {
        let faults = FaultBox::new(none());
        let change: Change = serde_json::from_str(r#"{"fail": true, "slowdown": -1}"#).unwrap();
        assert_eq!(faults.change(&change), Faults { fail: true, ..none() });
        let change: Change = serde_json::from_str(r#"{"cut_after": 3}"#).unwrap();
        assert_eq!(
            faults.change(&change),
            Faults {
                fail: true,
                cut_after: 3,
                ..none()
            }
        );
        assert!(serde_json::from_str::<Change>(r#"{"fial": true}"#).is_err());
    }

    #[test]
    fn one_of_so_many_batches_is_lost_and_another_repeated() {
        use Fate::{Lost, Repeated, Sent};
        let counted = Counted::default();
        let faults = Faults {
            drop_every: 3,
            repeat_every: 2,
            ..none()
        };
        let fates: Vec<Fate> = (0..6).map(|_| counted.next(&faults)).collect();
        assert_eq!(fates, [Sent, Repeated, Lost, Repeated, Sent, Lost]);
    }
}
