//! What is only for some to know, and where does it stand?
//!
//! A secret is written as itself or as the file that holds it: `file:/run/secrets/token`. Flags of a process can be read by other
//! users of its machine, so a variable or a file is the better place.
//!
//! **Invariant:** neither `Debug` nor any other text of these types shows a secret.
//!
//! **Invariant:** how long a comparison takes does not depend on where two secrets differ.

use std::fmt;
use std::path::{Path, PathBuf};

use ring::digest;
use subtle::ConstantTimeEq as _;

use crate::error::{Problem, Rejected};
use crate::load;
use crate::resolve::FileText;

/// The least length, in bytes: what is shorter can be guessed.
pub const SHORTEST: usize = 16;
/// The greatest.
pub const LONGEST: usize = 4096;
/// How none is written.
const NONE: &str = "none";
/// What stands before the path of a file.
const FILE: &str = "file:";

/// Where a secret stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Secret {
    /// There is none.
    None,
    /// It was given as it is.
    Given(SecretText),
    /// It is what stands in this file.
    File(PathBuf),
}

/// A secret. It cannot be shown by accident.
#[derive(Clone)]
pub struct SecretText(String);

impl SecretText {
    /// A text that may be a secret: [`SHORTEST`] to [`LONGEST`] visible characters.
    pub fn new(text: &str) -> Option<Self> {
        let visible = text.bytes().all(|byte| byte.is_ascii_graphic());
        (visible && (SHORTEST..=LONGEST).contains(&text.len())).then(|| Self(text.to_owned()))
    }

    /// The secret itself, for who must send it.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Whether somebody knows it.
    pub fn is(&self, said: &[u8]) -> bool {
        // Digests have one length, so that not even that of the secret is told.
        let (ours, theirs) = (digest_of(self.0.as_bytes()), digest_of(said));
        ours.ct_eq(&theirs).into()
    }
}

impl PartialEq for SecretText {
    fn eq(&self, other: &Self) -> bool {
        self.is(other.0.as_bytes())
    }
}

impl Eq for SecretText {}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

impl Secret {
    /// Whether there is one.
    pub fn is_some(&self) -> bool {
        *self != Self::None
    }

    /// The file that holds it, if one does.
    pub fn file(&self) -> Option<&Path> {
        match self {
            Self::File(path) => Some(path),
            Self::None | Self::Given(_) => None,
        }
    }

    /// The secret, read from its file if it stands in one. White space around it is not part of it.
    pub fn read(&self) -> Result<Option<SecretText>, Rejected> {
        let path = match self {
            Self::None => return Ok(None),
            Self::Given(text) => return Ok(Some(text.clone())),
            Self::File(path) => path,
        };
        secret_in(&load::read_bounded(path)?).map(Some)
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        match text.strip_prefix(FILE) {
            Some("") => None,
            Some(path) => Some(Self::File(PathBuf::from(path))),
            None if text == NONE => Some(Self::None),
            None => SecretText::new(text).map(Self::Given),
        }
    }

    pub(crate) fn show(&self) -> String {
        match self {
            Self::None => NONE.to_owned(),
            Self::Given(_) => "(secret)".to_owned(),
            Self::File(path) => format!("{FILE}{}", path.display()),
        }
    }
}

/// The secret that stands in a file. White space around it is not part of it.
pub fn secret_in(file: &FileText) -> Result<SecretText, Rejected> {
    SecretText::new(file.text.trim()).ok_or_else(|| Rejected {
        problems: vec![Problem::NoSecret {
            file: PathBuf::from(&file.name),
        }],
    })
}

/// SHA-256 of a text.
pub(crate) fn digest_of(text: &[u8]) -> [u8; 32] {
    let mut out = [0; 32];
    out.copy_from_slice(digest::digest(&digest::SHA256, text).as_ref());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_known_or_not_and_never_shown() {
        let secret = SecretText::new("correct-horse-battery").expect("it is long enough");
        assert!(secret.is(b"correct-horse-battery"));
        for other in [&b""[..], b"correct-horse-batterz", b"correct-horse-battery "] {
            assert!(!secret.is(other));
        }
        assert_eq!(format!("{:?}", Secret::Given(secret)), "Given((secret))");
    }

    #[test]
    fn what_can_be_guessed_or_not_be_sent_is_no_secret() {
        for bad in [
            "",
            "short",
            "with a space in its middle",
            "with\r\na-line-break-inside",
            "fünfzehn-Zeichen!",
        ] {
            assert!(SecretText::new(bad).is_none(), "{bad:?}");
        }
        assert_eq!(Secret::parse("none"), Some(Secret::None));
        assert_eq!(Secret::parse("file:/x"), Some(Secret::File("/x".into())));
        assert_eq!(Secret::parse("file:"), None);
        assert_eq!(Secret::parse("short"), None);
    }
}
