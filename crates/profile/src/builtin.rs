//! Which profiles come with Homing?

use crate::error::ProfileError;
use crate::profile::Profile;

/// Names and texts, measured on one H200 (bf16, random weights: time depends on shapes only).
const FILES: [(&str, &str); 2] = [
    ("h200-llama-3.1-8b", include_str!("../profiles/h200-llama-3.1-8b.json")),
    ("h200-qwen3-32b", include_str!("../profiles/h200-qwen3-32b.json")),
];

/// Their names.
pub fn names() -> impl Iterator<Item = &'static str> {
    FILES.iter().map(|(name, _)| *name)
}

/// The text of one.
pub fn text(name: &str) -> Option<&'static str> {
    let found = FILES.iter().find(|(known, _)| *known == name);
    found.map(|(_, text)| *text)
}

/// One of them, read anew.
pub fn load(name: &str) -> Result<Profile, ProfileError> {
    let unknown = || ProfileError::UnknownName {
        name: name.to_owned(),
        known: names().collect::<Vec<_>>().join(", "),
    };
    Profile::from_json(text(name).ok_or_else(unknown)?)
}
