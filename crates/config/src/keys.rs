//! Which API keys are there, whose are they, and what may they do?
//!
//! A file of TOML with a table for each key, of which only a digest is kept, and for tenants that are limited as a whole:
//!
//! ```toml
//! [[key]]
//! sha256 = "5e88...42d8"
//! tenant = "acme"
//! name = "nightly"                 # what records call it; not a secret
//! priority = 0                     # of its requests; clients can ask for less, not for more
//! pin = false                      # whether its requests may name workers and data-parallel ranks
//! requests-per-minute = 600
//! tokens-per-minute = 200000
//!
//! [[tenant]]
//! name = "acme"
//! requests-per-minute = 1200       # of all of its keys together
//! ```
//!
//! Keys are 256 random bits ([`fresh`]), so that a plain SHA-256 of one cannot be turned back: there is nothing to guess that a slow
//! digest would make slower, and a fast one costs each request nothing.
//!
//! **Invariant:** no text of an error repeats what stands in the file.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use ring::rand::{SecureRandom as _, SystemRandom};
use toml::{Table, Value as Toml};

use crate::choices::Switch;
use crate::error::Rejected;
use crate::file::declares_empty;
use crate::load;
use crate::secret::digest_of;
use crate::words;

/// The most keys.
pub const MAX_KEYS: usize = 65_536;
/// The most tenants with limits of their own.
pub const MAX_TENANTS: usize = 65_536;
/// How a key begins, so that one can be recognised where it should not be.
pub const PREFIX: &str = "homing-sk-";

/// What a key is found by.
pub type Digest = [u8; 32];

/// What may be used in a minute; `None` is not limited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    /// Requests.
    pub requests: Option<u64>,
    /// Tokens, of prompts and answers.
    pub tokens: Option<u64>,
}

/// One key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeySpec {
    /// SHA-256 of the key.
    pub digest: Digest,
    /// Whose it is.
    pub tenant: String,
    /// What it is called; not a secret.
    pub name: Option<String>,
    /// The priority of its requests, and the highest that they can ask for.
    pub priority: i32,
    /// Whether its requests may name workers and data-parallel ranks.
    pub pin: Switch,
    /// What it may use.
    pub quota: Quota,
}

/// What a tenant may use with all of its keys together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantSpec {
    /// Its name.
    pub name: String,
    /// What it may use.
    pub quota: Quota,
}

/// All of a file of keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Keys {
    /// The keys, no two of them the same.
    pub keys: Vec<KeySpec>,
    /// Tenants with limits of their own, no two of one name.
    pub tenants: Vec<TenantSpec>,
}

/// What is wrong with a file of keys.
#[derive(Debug, thiserror::Error)]
pub enum KeysProblem {
    /// It cannot be read.
    #[error("the file of keys cannot be read: {0}")]
    Unreadable(#[from] Rejected),
    /// It is not TOML. What stands there is not repeated.
    #[error("the file of keys is not TOML, in line {line}")]
    NotToml {
        /// The line, counted from 1.
        line: usize,
    },
    /// Something stands there that is neither a key nor a tenant.
    #[error("the file of keys may have tables [[key]] and [[tenant]] only")]
    Unknown,
    /// A field is missing, unknown or not what it must be.
    #[error("{table} {number} of the file of keys: `{field}` must be {expected}")]
    Field {
        /// `key` or `tenant`.
        table: &'static str,
        /// Which of them, counted from 1.
        number: usize,
        /// Which field.
        field: &'static str,
        /// What is allowed.
        expected: &'static str,
    },
    /// A table has a field that there is not.
    #[error("{table} {number} of the file of keys has a field that there is not; there are {fields}")]
    UnknownField {
        /// `key` or `tenant`.
        table: &'static str,
        /// Which of them, counted from 1.
        number: usize,
        /// What there is.
        fields: &'static str,
    },
    /// Two tables are of one key or one tenant.
    #[error("{table} {number} of the file of keys was there before")]
    Twice {
        /// `key` or `tenant`.
        table: &'static str,
        /// The second, counted from 1.
        number: usize,
    },
    /// There are too many.
    #[error("the file of keys has more than {MAX_KEYS} keys or {MAX_TENANTS} tenants")]
    TooMany,
    /// The system gives no random bits.
    #[error("the system gives no random bits")]
    NoEntropy,
}

/// A key that was just made.
#[derive(Debug)]
pub struct Fresh {
    /// The key. It is not kept anywhere.
    pub key: String,
    /// What is kept of it.
    pub spec: KeySpec,
}

/// Makes a key of 256 random bits.
pub fn fresh(tenant: &str, priority: i32, quota: Quota) -> Result<Fresh, KeysProblem> {
    let fits = words::is_word(tenant);
    let wrong = field("key", 1, "tenant", words::EXPECTED);
    fits.then_some(()).ok_or(wrong)?;
    let mut bits = [0; 32];
    SystemRandom::new()
        .fill(&mut bits)
        .map_err(|_| KeysProblem::NoEntropy)?;
    let key = format!("{PREFIX}{}", hex(&bits));
    let digest = digest(key.as_bytes());
    let spec = KeySpec {
        digest,
        tenant: tenant.to_owned(),
        name: None,
        priority,
        pin: Switch::Off,
        quota,
    };
    Ok(Fresh { key, spec })
}

/// What a key is found by.
pub fn digest(key: &[u8]) -> Digest {
    digest_of(key)
}

/// Reads a file of keys.
pub fn read(path: &Path) -> Result<Keys, KeysProblem> {
    parse(&load::read_bounded(path)?.text)
}

/// Reads what stands in a file of keys.
pub fn parse(text: &str) -> Result<Keys, KeysProblem> {
    let table: Table = text.parse().map_err(|error: toml::de::Error| {
        let at = error.span().map_or(0, |span| span.start);
        let line = text.bytes().take(at).filter(|&byte| byte == b'\n').count() + 1;
        KeysProblem::NotToml { line }
    })?;
    let mut keys = Keys::default();
    for (name, value) in &table {
        let tables = value.as_array().ok_or(KeysProblem::Unknown)?;
        match name.as_str() {
            "key" if tables.len() <= MAX_KEYS => keys.keys = each(tables, key)?,
            "tenant" if tables.len() <= MAX_TENANTS => keys.tenants = each(tables, tenant)?,
            "key" | "tenant" => return Err(KeysProblem::TooMany),
            _ => return Err(KeysProblem::Unknown),
        }
    }
    once("key", keys.keys.iter().map(|key| key.digest))?;
    once("tenant", keys.tenants.iter().map(|tenant| &tenant.name))?;
    Ok(keys)
}

/// Whether a file of keys says in so many words that there are to be none: `key = []`.
pub fn declares_no_keys(text: &str) -> bool {
    declares_empty(text, "key")
}

fn each<T>(tables: &[Toml], read: fn(&Table, usize) -> Result<T, KeysProblem>) -> Result<Vec<T>, KeysProblem> {
    let numbered = tables.iter().zip(1..);
    let read = |(table, number): (&Toml, usize)| read(table.as_table().ok_or(KeysProblem::Unknown)?, number);
    numbered.map(read).collect()
}

fn once<T: Ord>(table: &'static str, all: impl Iterator<Item = T>) -> Result<(), KeysProblem> {
    let mut seen = BTreeSet::new();
    for (one, number) in all.zip(1..) {
        if !seen.insert(one) {
            return Err(KeysProblem::Twice { table, number });
        }
    }
    Ok(())
}

fn key(table: &Table, number: usize) -> Result<KeySpec, KeysProblem> {
    const FIELDS: &str = "`sha256`, `tenant`, `name`, `priority`, `pin`, `requests-per-minute` and `tokens-per-minute`";
    let row = Row {
        what: "key",
        number,
        table,
    };
    row.only(FIELDS)?;
    let digest = row.text("sha256", "the 64 hexadecimal digits of a SHA-256")?;
    let digest = digest.and_then(unhex);
    Ok(KeySpec {
        digest: digest.ok_or(field("key", number, "sha256", "the 64 hexadecimal digits of a SHA-256"))?,
        tenant: row
            .word("tenant")?
            .ok_or(field("key", number, "tenant", words::EXPECTED))?,
        name: row.word("name")?,
        priority: row.priority()?,
        pin: row.switch("pin")?,
        quota: row.quota()?,
    })
}

fn tenant(table: &Table, number: usize) -> Result<TenantSpec, KeysProblem> {
    let row = Row {
        what: "tenant",
        number,
        table,
    };
    row.only("`name`, `requests-per-minute` and `tokens-per-minute`")?;
    Ok(TenantSpec {
        name: row
            .word("name")?
            .ok_or(field("tenant", number, "name", words::EXPECTED))?,
        quota: row.quota()?,
    })
}

/// One table of the file.
struct Row<'a> {
    what: &'static str,
    number: usize,
    table: &'a Table,
}

impl Row<'_> {
    /// Whether every field is among those that `fields` names in backquotes.
    fn only(&self, fields: &'static str) -> Result<(), KeysProblem> {
        let known = |key: &String| fields.split('`').skip(1).step_by(2).any(|name| name == key);
        if self.table.keys().all(known) {
            return Ok(());
        }
        Err(KeysProblem::UnknownField {
            table: self.what,
            number: self.number,
            fields,
        })
    }

    fn text(&self, name: &'static str, expected: &'static str) -> Result<Option<&str>, KeysProblem> {
        let wrong = field(self.what, self.number, name, expected);
        match self.table.get(name) {
            None => Ok(None),
            Some(value) => value.as_str().map(Some).ok_or(wrong),
        }
    }

    fn word(&self, name: &'static str) -> Result<Option<String>, KeysProblem> {
        let text = self.text(name, words::EXPECTED)?;
        let wrong = field(self.what, self.number, name, words::EXPECTED);
        match text {
            Some(text) if !words::is_word(text) => Err(wrong),
            text => Ok(text.map(str::to_owned)),
        }
    }

    fn priority(&self) -> Result<i32, KeysProblem> {
        let wrong = field(self.what, self.number, "priority", "a whole number of 32 bits");
        match self.table.get("priority") {
            None => Ok(0),
            Some(value) => value
                .as_integer()
                .and_then(|number| i32::try_from(number).ok())
                .ok_or(wrong),
        }
    }

    fn switch(&self, name: &'static str) -> Result<Switch, KeysProblem> {
        let wrong = field(self.what, self.number, name, "true or false");
        match self.table.get(name).map(Toml::as_bool) {
            None | Some(Some(false)) => Ok(Switch::Off),
            Some(Some(true)) => Ok(Switch::On),
            Some(None) => Err(wrong),
        }
    }

    fn quota(&self) -> Result<Quota, KeysProblem> {
        Ok(Quota {
            requests: self.rate("requests-per-minute")?,
            tokens: self.rate("tokens-per-minute")?,
        })
    }

    fn rate(&self, name: &'static str) -> Result<Option<u64>, KeysProblem> {
        const MOST: u64 = 1 << 40;
        let wrong = field(self.what, self.number, name, "a whole number from 1 to 2^40");
        let Some(value) = self.table.get(name) else {
            return Ok(None);
        };
        let rate = value.as_integer().and_then(|number| u64::try_from(number).ok());
        rate.filter(|rate| (1..=MOST).contains(rate)).map(Some).ok_or(wrong)
    }
}

fn field(table: &'static str, number: usize, field: &'static str, expected: &'static str) -> KeysProblem {
    KeysProblem::Field {
        table,
        number,
        field,
        expected,
    }
}

impl KeySpec {
    /// The key as it stands in a file.
    pub fn to_toml(&self) -> String {
        let quoted = |text: &str| Toml::String(text.to_owned()).to_string();
        let mut lines = vec![
            "[[key]]".to_owned(),
            format!("sha256 = \"{}\"", hex(&self.digest)),
            format!("tenant = {}", quoted(&self.tenant)),
        ];
        lines.extend(self.name.as_ref().map(|name| format!("name = {}", quoted(name))));
        if self.priority != 0 {
            lines.push(format!("priority = {}", self.priority));
        }
        if self.pin.is_on() {
            lines.push("pin = true".to_owned());
        }
        for (name, rate) in [
            ("requests-per-minute", self.quota.requests),
            ("tokens-per-minute", self.quota.tokens),
        ] {
            lines.extend(rate.map(|rate| format!("{name} = {rate}")));
        }
        lines.push(String::new());
        lines.join("\n")
    }
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        // A string takes all that is written to it.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

pub(crate) fn unhex(text: &str) -> Option<Digest> {
    let digits = text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let mut out = [0; 32];
    for (place, byte) in out.iter_mut().enumerate() {
        let pair = digits.then(|| text.get(2 * place..2 * place + 2)).flatten()?;
        *byte = u8::from_str_radix(pair, 16).ok()?;
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fresh_key_reads_back_and_is_not_in_its_own_line() {
        let quota = Quota {
            requests: Some(60),
            tokens: None,
        };
        let mut made = fresh("acme \"x\"".replace(' ', "-").as_str(), -3, quota).unwrap();
        made.spec.pin = Switch::On;
        let line = made.spec.to_toml();
        assert!(!line.contains(&made.key[PREFIX.len()..]));
        let read = parse(&line).unwrap();
        assert_eq!(read.keys, [made.spec]);
        assert_eq!(digest(made.key.as_bytes()), read.keys[0].digest);
        assert_ne!(made.key, fresh("acme", 0, quota).unwrap().key);
    }

    #[test]
    fn what_is_wrong_is_said_without_what_stands_there() {
        let digest = "ab".repeat(32);
        let good = format!("[[key]]\nsha256 = \"{digest}\"\ntenant = \"acme\"\n");
        for (text, expected) in [
            ("homing-sk-SECRET".to_owned(), "not TOML, in line 1"),
            ("keys = 3".to_owned(), "[[key]] and [[tenant]] only"),
            ("[[keys]]\na = 1".to_owned(), "[[key]] and [[tenant]] only"),
            (
                "[[key]]\ntenant = \"a\"".to_owned(),
                "key 1 of the file of keys: `sha256` must be",
            ),
            (
                "[[key]]\nsha256 = \"homing-sk-SECRET\"\ntenant = \"a\"".to_owned(),
                "`sha256` must be the 64",
            ),
            (format!("[[key]]\nsha256 = \"{digest}\""), "`tenant` must be"),
            (format!("{good}key = \"SECRET\""), "has a field that there is not"),
            (format!("{good}priority = \"SECRET\""), "`priority` must be"),
            (format!("{good}pin = \"SECRET\""), "`pin` must be true or false"),
            (
                format!("{good}requests-per-minute = 0"),
                "`requests-per-minute` must be",
            ),
            (format!("{good}tokens-per-minute = -1"), "`tokens-per-minute` must be"),
            (format!("{good}{good}"), "key 2 of the file of keys was there before"),
            (
                "[[tenant]]\nname = \"a\"\n[[tenant]]\nname = \"a\"".to_owned(),
                "tenant 2 of",
            ),
            ("[[tenant]]\nname = \"a b\"".to_owned(), "`name` must be"),
        ] {
            let said = parse(&text).expect_err(&text).to_string();
            assert!(said.contains(expected), "{said}");
            assert!(!said.contains("SECRET") && !said.contains(&digest), "{said}");
        }
        assert_eq!(parse("").unwrap(), Keys::default());
        assert_eq!(parse(&good).unwrap().keys[0].tenant, "acme");
    }
}
