//! Signed ids of stored responses. An id says which tenant owns the response, which worker stores it, and how the engine calls it.
//!
//! It reads `resp_` and then, as base64url without padding:
//!
//! | bytes | content |
//! |---|---|
//! | 1 | version of this format: 1 |
//! | 16 | owner: the first half of SHA-256 of the tenant's name; zeros where there are no API keys |
//! | 8 | worker: the first bytes of SHA-256 of its address |
//! | 1 to 256 | the engine's id |
//! | 16 | signature: the first half of HMAC-SHA256 over all bytes before |
//!
//! Names are digests because ids travel to the users of a tenant, who need not learn addresses. The engine's id is readable, and bound by
//! the signature.
//!
//! **Invariant:** only the exact text that was signed is accepted, and only for its owner.
//!
//! **Invariant:** the time of a comparison does not depend on where two signatures differ.
//!
//! Cost: about a microsecond to sign or to verify. No IO and no memory of ids.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::{digest, hmac};
use subtle::ConstantTimeEq as _;

/// How every id begins. Engines and clients expect it.
const PREFIX: &str = "resp_";
const VERSION: u8 = 1;
const OWNER_BYTES: usize = 16;
const WORKER_BYTES: usize = 8;
const SIGNATURE_BYTES: usize = 16;
/// Bytes before the engine's id.
const HEAD_BYTES: usize = 1 + OWNER_BYTES + WORKER_BYTES;
/// The longest engine id that is signed.
const MAX_ENGINE_ID_BYTES: usize = 256;
/// The longest id.
const MAX_ID_BYTES: usize = PREFIX.len() + (HEAD_BYTES + MAX_ENGINE_ID_BYTES + SIGNATURE_BYTES).div_ceil(3) * 4;

/// Bytes of a signing key.
pub(crate) const KEY_BYTES: usize = 32;
/// Keys at once: more than two are of use only while several rotations overlap.
const MAX_KEYS: usize = 8;

/// The owner of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner([u8; OWNER_BYTES]);

impl Owner {
    /// The owner of all responses where clients have no API keys.
    pub(crate) const ANONYMOUS: Self = Self([0; OWNER_BYTES]);

    /// A tenant, by its name.
    pub(crate) fn tenant(name: &str) -> Self {
        Self(digest_of(name))
    }
}

/// A worker, as ids name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WorkerTag([u8; WORKER_BYTES]);

impl WorkerTag {
    /// The worker at this address.
    pub(crate) fn of(address: &str) -> Self {
        Self(digest_of(address))
    }
}

/// A response that a worker stores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredResponse {
    pub(crate) worker: WorkerTag,
    pub(crate) engine_id: String,
}

/// Why an id is not accepted. Clients are not told which it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InvalidId {
    /// Its form is not that of an id.
    Malformed,
    /// No key of ours signed it.
    Forged,
    /// It belongs to another owner.
    Foreign,
}

/// Why a text holds no keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadKeys {
    /// There is none.
    #[error("it has no key: write one, for example with `openssl rand -base64 {KEY_BYTES}`")]
    None,
    /// A line is no key.
    #[error("line {0} is not base64 of exactly {KEY_BYTES} bytes, as `openssl rand -base64 {KEY_BYTES}` prints them")]
    Line(usize),
    /// There are too many.
    #[error("it has more than {MAX_KEYS} keys: remove those that are no longer in use")]
    TooMany,
}

/// The keys that sign and verify ids.
#[derive(Debug)]
pub(crate) struct ResponseIdKeys {
    /// The first signs, all verify.
    keys: Vec<hmac::Key>,
}

impl ResponseIdKeys {
    /// One key.
    pub(crate) fn one(key: &[u8; KEY_BYTES]) -> Self {
        Self {
            keys: vec![hmac::Key::new(hmac::HMAC_SHA256, key)],
        }
    }

    /// Reads keys as they stand in a file: one a line, in base64. Empty lines and lines that begin with `#` are skipped.
    pub(crate) fn parse(text: &str) -> Result<Self, BadKeys> {
        let mut keys = Vec::new();
        for (line, number) in text.lines().map(str::trim).zip(1..) {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let key = STANDARD.decode(line).ok().filter(|key| key.len() == KEY_BYTES);
            let key = key.ok_or(BadKeys::Line(number))?;
            keys.push(hmac::Key::new(hmac::HMAC_SHA256, &key));
        }
        match keys.len() {
            0 => Err(BadKeys::None),
            1..=MAX_KEYS => Ok(Self { keys }),
            _ => Err(BadKeys::TooMany),
        }
    }

    /// A key as a line of a file.
    pub(crate) fn write(key: &[u8; KEY_BYTES]) -> String {
        STANDARD.encode(key) + "\n"
    }

    /// The id that the owner's clients see. `None` where an id cannot hold the engine's: it is not fit for a path, or too long.
    pub(crate) fn sign(&self, owner: Owner, worker: WorkerTag, engine_id: &str) -> Option<String> {
        let key = self.keys.first()?;
        if !is_engine_id(engine_id) {
            return None;
        }
        let mut bytes = Vec::with_capacity(HEAD_BYTES + engine_id.len() + SIGNATURE_BYTES);
        bytes.push(VERSION);
        bytes.extend_from_slice(&owner.0);
        bytes.extend_from_slice(&worker.0);
        bytes.extend_from_slice(engine_id.as_bytes());
        let signature = signature(key, &bytes);
        bytes.extend_from_slice(&signature);
        Some(PREFIX.to_owned() + &URL_SAFE_NO_PAD.encode(bytes))
    }

    /// Reads an id that a client of this owner sent.
    pub(crate) fn verify(&self, owner: Owner, id: &str) -> Result<StoredResponse, InvalidId> {
        let text = id.strip_prefix(PREFIX).filter(|_| id.len() <= MAX_ID_BYTES);
        // The decoder refuses every text but the one that the encoder makes.
        let bytes = text.and_then(|text| URL_SAFE_NO_PAD.decode(text).ok());
        let bytes = bytes.filter(|bytes| bytes.len() > HEAD_BYTES + SIGNATURE_BYTES && bytes[0] == VERSION);
        let bytes = bytes.ok_or(InvalidId::Malformed)?;
        let (signed, given) = bytes.split_at(bytes.len() - SIGNATURE_BYTES);
        let is_ours = |key: &hmac::Key| bool::from(signature(key, signed).as_slice().ct_eq(given));
        if !self.keys.iter().any(is_ours) {
            return Err(InvalidId::Forged);
        }
        let (head, engine_id) = signed.split_at(HEAD_BYTES);
        let (head_owner, worker) = head[1..].split_at(OWNER_BYTES);
        if head_owner != owner.0 {
            return Err(InvalidId::Foreign);
        }
        let engine_id = str::from_utf8(engine_id).map_err(|_| InvalidId::Malformed)?;
        let worker = WorkerTag(worker.try_into().map_err(|_| InvalidId::Malformed)?);
        Ok(StoredResponse {
            worker,
            engine_id: engine_id.to_owned(),
        })
    }
}

fn signature(key: &hmac::Key, bytes: &[u8]) -> [u8; SIGNATURE_BYTES] {
    first_bytes(hmac::sign(key, bytes).as_ref())
}

fn digest_of<const N: usize>(text: &str) -> [u8; N] {
    first_bytes(digest::digest(&digest::SHA256, text.as_bytes()).as_ref())
}

/// The first bytes of a digest, which has at least as many.
fn first_bytes<const N: usize>(digest: &[u8]) -> [u8; N] {
    let mut first = [0; N];
    first.copy_from_slice(&digest[..N]);
    first
}

/// Whether an engine's id can stand in a path as it is, and is no step to another folder.
fn is_engine_id(id: &str) -> bool {
    let is_fit = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:".contains(&byte);
    id.len() <= MAX_ENGINE_ID_BYTES
        && id.bytes().all(is_fit)
        && id.starts_with(|first: char| first.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENGINE_ID: &str = "resp_0123456789abcdef0123456789abcdef";
    /// Made without this code: `python3 -c` with hashlib, hmac and base64.
    const GOLDEN: [(&str, &str, &str); 3] = [
        (
            "acme",
            ENGINE_ID,
            "resp_AYIrM62HwUigogpbp81evKo6jJsUMi-xm3Jlc3BfMDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWYbb7LXx9b5qMrfbBehJx0r",
        ),
        (
            "",
            ENGINE_ID,
            "resp_AQAAAAAAAAAAAAAAAAAAAAA6jJsUMi-xm3Jlc3BfMDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWboxEyKY6-ypCvyXfc7HYCe",
        ),
        (
            "tenant-with-a-longer-name",
            "chatcmpl-1",
            "resp_AQJQYHlsrvMpoTCGb_ahPLk6jJsUMi-xm2NoYXRjbXBsLTGhxJZ_g56OMvCHHwH4b0IE",
        ),
    ];

    fn keys(seed: u8) -> ResponseIdKeys {
        ResponseIdKeys::one(&std::array::from_fn(|place| seed + place as u8))
    }

    fn worker() -> WorkerTag {
        WorkerTag::of("http://10.0.0.1:8000")
    }

    #[test]
    fn an_id_is_read_back_by_its_owner_only() {
        let (keys, acme, other) = (keys(1), Owner::tenant("acme"), Owner::tenant("other"));
        for owner in [acme, other, Owner::ANONYMOUS] {
            let id = keys.sign(owner, worker(), ENGINE_ID).unwrap();
            for reader in [acme, other, Owner::ANONYMOUS] {
                let expected = if reader == owner {
                    Ok(StoredResponse {
                        worker: worker(),
                        engine_id: ENGINE_ID.to_owned(),
                    })
                } else {
                    Err(InvalidId::Foreign)
                };
                assert_eq!(keys.verify(reader, &id), expected);
            }
        }
    }

    #[test]
    fn the_format_of_version_1_does_not_change() {
        for (tenant, engine_id, golden) in GOLDEN {
            let owner = if tenant.is_empty() {
                Owner::ANONYMOUS
            } else {
                Owner::tenant(tenant)
            };
            assert_eq!(keys(1).sign(owner, worker(), engine_id).as_deref(), Some(golden));
            assert_eq!(keys(1).verify(owner, golden).unwrap().engine_id, engine_id);
        }
    }

    #[test]
    fn every_changed_character_and_every_truncation_is_refused() {
        let owner = Owner::tenant("acme");
        for engine_id in ["r", "re", "res", ENGINE_ID] {
            let id = keys(1).sign(owner, worker(), engine_id).unwrap();
            for place in 0..id.len() {
                for byte in (0x20..0x7f).filter(|byte| *byte != id.as_bytes()[place]) {
                    let mut changed = id.clone().into_bytes();
                    changed[place] = byte;
                    let changed = String::from_utf8(changed).unwrap();
                    assert!(keys(1).verify(owner, &changed).is_err(), "{changed}");
                }
                assert!(keys(1).verify(owner, &id[..place]).is_err(), "{place}");
                assert!(keys(1).verify(owner, &id[place + 1..]).is_err(), "{place}");
            }
            for more in ["A", "AAAA", "=", " ", "\n"] {
                assert!(keys(1).verify(owner, &format!("{id}{more}")).is_err(), "{more:?}");
            }
        }
    }

    #[test]
    fn every_flipped_bit_of_the_bytes_is_refused() {
        let owner = Owner::ANONYMOUS;
        let id = keys(1).sign(owner, worker(), ENGINE_ID).unwrap();
        let bytes = URL_SAFE_NO_PAD.decode(&id[PREFIX.len()..]).unwrap();
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let flipped = PREFIX.to_owned() + &URL_SAFE_NO_PAD.encode(flipped);
            let expected = if bit < 8 {
                InvalidId::Malformed
            } else {
                InvalidId::Forged
            };
            assert_eq!(keys(1).verify(owner, &flipped), Err(expected), "bit {bit}");
        }
    }

    #[test]
    fn the_first_key_signs_and_all_verify() {
        let line = |seed: u8| ResponseIdKeys::write(&std::array::from_fn(|place| seed + place as u8));
        let sign = |keys: &ResponseIdKeys| keys.sign(Owner::ANONYMOUS, worker(), ENGINE_ID).unwrap();
        let both = ResponseIdKeys::parse(&format!("# new\n{}\n  {}", line(2), line(1))).unwrap();
        assert_eq!(sign(&both), sign(&keys(2)));
        assert!(both.verify(Owner::ANONYMOUS, &sign(&keys(1))).is_ok());
        let new = ResponseIdKeys::parse(&line(2)).unwrap();
        assert_eq!(new.verify(Owner::ANONYMOUS, &sign(&keys(1))), Err(InvalidId::Forged));
    }

    #[test]
    fn a_file_without_good_keys_is_refused() {
        let good = ResponseIdKeys::write(&[7; KEY_BYTES]);
        for (text, why) in [
            ("", BadKeys::None),
            ("# only a comment\n\n", BadKeys::None),
            ("short", BadKeys::Line(1)),
            (&format!("{good}{}", "ab".repeat(KEY_BYTES)), BadKeys::Line(2)),
            (&good.repeat(MAX_KEYS + 1), BadKeys::TooMany),
        ] {
            assert_eq!(ResponseIdKeys::parse(text).err(), Some(why), "{text}");
        }
        assert!(ResponseIdKeys::parse(&good.repeat(MAX_KEYS)).is_ok());
    }

    #[test]
    fn engine_ids_that_do_not_fit_into_a_path_are_not_signed() {
        let longest = "x".repeat(MAX_ENGINE_ID_BYTES);
        for (engine_id, is_signed) in [
            (ENGINE_ID, true),
            ("chatcmpl-1.a~b:c", true),
            (&longest, true),
            (&format!("{longest}x"), false),
            ("", false),
            ("..", false),
            ("../sleep", false),
            ("a/b", false),
            ("a?b", false),
            ("a%2fb", false),
            ("a b", false),
            ("a\r\nb", false),
            ("é", false),
        ] {
            let id = keys(1).sign(Owner::ANONYMOUS, worker(), engine_id);
            assert_eq!(id.is_some(), is_signed, "{engine_id:?}");
            if let Some(id) = id {
                assert!(id.len() <= MAX_ID_BYTES && keys(1).verify(Owner::ANONYMOUS, &id).is_ok());
            }
        }
    }
}
