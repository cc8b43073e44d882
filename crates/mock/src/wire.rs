//! How do fields of requests come that may be left out or be null?

use serde::{Deserialize, Deserializer};

/// Left out or null: the default.
pub(crate) fn or_default<'a, D: Deserializer<'a>, T: Deserialize<'a> + Default>(from: D) -> Result<T, D::Error> {
    Option::<T>::deserialize(from).map(Option::unwrap_or_default)
}

/// Null: yes.
pub(crate) fn or_yes<'a, D: Deserializer<'a>>(from: D) -> Result<bool, D::Error> {
    Option::<bool>::deserialize(from).map(|given| given.unwrap_or(true))
}

/// Left out: yes.
pub(crate) fn yes() -> bool {
    true
}
