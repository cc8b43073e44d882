//! What was each knob set to, as the type that its field wants?
//!
//! **Invariant:** values have come out of [`crate::Knob::parse`] of their knobs, which has checked kind and range. So asking for another kind
//! is a mistake of the code, which every start would show.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use homing_domain::HashSeed;

use crate::choices::Switch;
use crate::knob::Value;
use crate::networks::Networks;
use crate::secret::Secret;
use crate::table::KnobId;

/// How nothing is written where a name could stand.
pub(crate) const NONE: &str = "none";

/// What all knobs were set to.
pub(crate) struct Values<'a> {
    of: &'a dyn Fn(KnobId) -> Value,
}

/// A method for each kind of value.
macro_rules! kinds {
    ($($(#[doc = $doc:literal])+ $name:ident: $kind:ident -> $type:ty;)*) => {
        $($(#[doc = $doc])+
        pub(crate) fn $name(&self, id: KnobId) -> $type {
            match (self.of)(id) {
                Value::$kind(value) => value,
                other => unreachable!(concat!("{:?} is {:?}, not a ", stringify!($name)), id, other),
            }
        })*
    };
}

impl<'a> Values<'a> {
    /// Those that `of` gives.
    pub(crate) fn new(of: &'a dyn Fn(KnobId) -> Value) -> Self {
        Self { of }
    }

    kinds! {
        /// A number.
        count: Count -> u64;
        /// A length of time.
        time: Time -> Duration;
        /// A number of bytes.
        size: Size -> u64;
        /// A share.
        ratio: Ratio -> f64;
        /// A name.
        name: Name -> String;
        /// An address.
        address: Address -> SocketAddr;
        /// An address, if there is one.
        address_or: AddressOr -> Option<SocketAddr>;
        /// A file, if there is one.
        file: File -> Option<PathBuf>;
        /// IP networks.
        networks: Networks -> Networks;
        /// The seed of the block hash.
        seed: Seed -> HashSeed;
        /// A secret.
        secret: Secret -> Secret;
        /// The place of a word among those that there are.
        place: Choice -> usize;
    }

    /// A number whose range ends below 2^32.
    pub(crate) fn small(&self, id: KnobId) -> u32 {
        u32::try_from(self.count(id)).expect("ranges of 32-bit knobs end below 2^32")
    }

    /// A number whose range ends below 2^16.
    pub(crate) fn tiny(&self, id: KnobId) -> u16 {
        u16::try_from(self.count(id)).expect("ranges of 16-bit knobs end below 2^16")
    }

    /// What a word means. `all` has a meaning for each, in their order.
    pub(crate) fn choice<T: Copy>(&self, all: &[T], id: KnobId) -> T {
        all[self.place(id)]
    }

    /// On or off.
    pub(crate) fn switch(&self, id: KnobId) -> Switch {
        self.choice(Switch::ALL, id)
    }

    /// A name, unless it is the word for none.
    pub(crate) fn name_unless(&self, word: &str, id: KnobId) -> Option<String> {
        Some(self.name(id)).filter(|name| name != word)
    }
}
