//! The file of tokens with which workers register themselves, and what each token allows.
//!
//! ```toml
//! [[token]]
//! sha256 = "5e88...42d8"           # of the token: printf %s "$TOKEN" | sha256sum
//! name = "team-a"                  # whose registrations they are; not a secret
//! workers = ["team-a-*"]           # names that it may register
//! roles = ["prefill", "decode"]    # roles that its workers may have; all, if it is missing
//! networks = ["10.1.0.0/16"]       # addresses that its workers may have; all that the settings allow, if it is missing
//! ```
//!
//! Two tokens of one name are one owner: that is how a token is replaced while workers run.
//!
//! **Invariant:** no text of an error repeats what stands in the file.

use std::path::Path;

use homing_domain::Role;
use toml::{Table, Value as Toml};

use crate::choices::{self, ROLE_CHOICES, ROLES};
use crate::error::Rejected;
use crate::file::declares_empty;
use crate::keys::{Digest, unhex};
use crate::networks::Networks;
use crate::{load, words};

/// The most tokens of a file.
pub const MAX_TOKENS: usize = 4096;
/// The owner of what operators register.
pub const OPERATOR: &str = "operator";
/// The owner of what is registered with `serve.register-token`.
pub const COMMON: &str = "serve.register-token";
/// The most name patterns of a token.
const MAX_PATTERNS: usize = 64;

/// What a token allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegisterToken {
    /// SHA-256 of the token.
    pub digest: Digest,
    /// Whose registrations they are.
    pub name: String,
    /// Names of workers that it may register.
    pub workers: Vec<NamePattern>,
    /// Roles that its workers may have; `None` for all.
    pub roles: Option<Vec<Role>>,
    /// Addresses that its workers may have; all that the settings allow if the list is empty.
    pub networks: Networks,
}

/// A pattern for names, in which `*` stands for any text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamePattern(String);

/// What is wrong with a file of register tokens.
#[derive(Debug, thiserror::Error)]
pub enum RegisterTokensProblem {
    /// It cannot be read.
    #[error("the file of register tokens cannot be read: {0}")]
    Unreadable(#[from] Rejected),
    /// It is not TOML.
    #[error("the file of register tokens is not TOML, in line {line}")]
    NotToml {
        /// The line, counted from 1.
        line: usize,
    },
    /// It has something other than tokens.
    #[error("the file of register tokens may have up to {MAX_TOKENS} tables [[token]] and nothing else")]
    Unknown,
    /// A field is missing, unknown or malformed.
    #[error("token {number} of the file of register tokens: {expected}")]
    Field {
        /// Which token, counted from 1.
        number: usize,
        /// What is allowed.
        expected: &'static str,
    },
    /// Two tables have the same digest.
    #[error("token {number} of the file of register tokens was there before")]
    Twice {
        /// The second, counted from 1.
        number: usize,
    },
}

impl NamePattern {
    /// Reads a pattern.
    pub fn new(text: &str) -> Option<Self> {
        words::is_word(text).then(|| Self(text.to_owned()))
    }

    /// The pattern that every name matches.
    pub fn any() -> Self {
        Self("*".to_owned())
    }

    /// Whether a name fits. Takes time proportional to the product of both lengths at most.
    pub fn matches(&self, name: &str) -> bool {
        let (pattern, name) = (self.0.as_bytes(), name.as_bytes());
        let (mut at, mut seen) = (0, 0);
        // Behind the last `*`, and what of the name it has taken so far.
        let mut star: Option<(usize, usize)> = None;
        while seen < name.len() {
            match pattern.get(at) {
                Some(b'*') => {
                    at += 1;
                    star = Some((at, seen));
                }
                Some(byte) if *byte == name[seen] => {
                    at += 1;
                    seen += 1;
                }
                _ => match &mut star {
                    Some((behind, taken)) => {
                        *taken += 1;
                        (at, seen) = (*behind, *taken);
                    }
                    None => return false,
                },
            }
        }
        pattern[at..].iter().all(|byte| *byte == b'*')
    }
}

impl RegisterToken {
    /// A token of this name that allows every name, role and address.
    pub fn unrestricted(name: &str, digest: Digest) -> Self {
        Self {
            digest,
            name: name.to_owned(),
            workers: vec![NamePattern::any()],
            roles: None,
            networks: Networks::default(),
        }
    }

    /// Whether it may register a worker of this name.
    pub fn allows_name(&self, name: &str) -> bool {
        self.workers.iter().any(|pattern| pattern.matches(name))
    }

    /// Whether its workers may have this role.
    pub fn allows_role(&self, role: Role) -> bool {
        self.roles.as_ref().is_none_or(|roles| roles.contains(&role))
    }
}

/// Reads a file of register tokens.
pub fn read(path: &Path) -> Result<Vec<RegisterToken>, RegisterTokensProblem> {
    parse(&load::read_bounded(path)?.text)
}

/// Reads what stands in a file of register tokens.
pub fn parse(text: &str) -> Result<Vec<RegisterToken>, RegisterTokensProblem> {
    let table: Table = text.parse().map_err(|error: toml::de::Error| {
        let at = error.span().map_or(0, |span| span.start);
        let line = text.bytes().take(at).filter(|&byte| byte == b'\n').count() + 1;
        RegisterTokensProblem::NotToml { line }
    })?;
    if table.keys().any(|name| name != "token") {
        return Err(RegisterTokensProblem::Unknown);
    }
    let tables = match table.get("token") {
        None => return Ok(Vec::new()),
        Some(Toml::Array(tables)) if tables.len() <= MAX_TOKENS => tables,
        Some(_) => return Err(RegisterTokensProblem::Unknown),
    };
    let mut tokens: Vec<RegisterToken> = Vec::new();
    for (table, number) in tables.iter().zip(1..) {
        let table = table.as_table().ok_or(RegisterTokensProblem::Unknown)?;
        let token = read_token(table).map_err(|expected| RegisterTokensProblem::Field { number, expected })?;
        if tokens.iter().any(|other| other.digest == token.digest) {
            return Err(RegisterTokensProblem::Twice { number });
        }
        tokens.push(token);
    }
    Ok(tokens)
}

/// Whether a file of register tokens says in so many words that there are to be none: `token = []`.
pub fn declares_no_tokens(text: &str) -> bool {
    declares_empty(text, "token")
}

fn read_token(table: &Table) -> Result<RegisterToken, &'static str> {
    const FIELDS: [&str; 5] = ["sha256", "name", "workers", "roles", "networks"];
    const DIGEST: &str = "`sha256` must be the 64 hexadecimal digits of a SHA-256";
    const NAME: &str =
        "`name` must be 1 to 256 characters, none a space or a comma, and not `operator` or `serve.register-token`";
    const WORKERS: &str = "`workers` must be a list of up to 64 names of workers, in which `*` stands for any text";
    const ROLE: &str = "`roles` must be a list of `both`, `prefill` and `decode`";
    const NETWORKS: &str = "`networks` must be a list of networks such as \"10.1.0.0/16\"";
    if table.keys().any(|key| !FIELDS.contains(&key.as_str())) {
        return Err("it may have `sha256`, `name`, `workers`, `roles` and `networks` only");
    }
    let digest = table.get("sha256").and_then(Toml::as_str).and_then(unhex);
    let name = table
        .get("name")
        .and_then(Toml::as_str)
        .filter(|name| words::is_word(name) && ![OPERATOR, COMMON].contains(name));
    let patterns = list(table, "workers", WORKERS)?.ok_or(WORKERS)?;
    let patterns: Option<Vec<NamePattern>> = patterns.into_iter().map(NamePattern::new).collect();
    let patterns = patterns.filter(|patterns| (1..=MAX_PATTERNS).contains(&patterns.len()));
    let roles = match list(table, "roles", ROLE)? {
        None => None,
        Some(names) => {
            let roles = names.into_iter().map(|name| choices::named(ROLES, ROLE_CHOICES, name));
            let roles: Option<Vec<Role>> = roles.collect();
            Some(roles.filter(|roles| !roles.is_empty()).ok_or(ROLE)?)
        }
    };
    let networks = match list(table, "networks", NETWORKS)? {
        None => Networks::default(),
        // Without any it would be as if it were missing.
        Some(texts) if texts.is_empty() => return Err(NETWORKS),
        Some(texts) => Networks::collect(texts.into_iter()).map_err(|_| NETWORKS)?,
    };
    Ok(RegisterToken {
        digest: digest.ok_or(DIGEST)?,
        name: name.ok_or(NAME)?.to_owned(),
        workers: patterns.ok_or(WORKERS)?,
        roles,
        networks,
    })
}

fn list<'a>(table: &'a Table, key: &str, expected: &'static str) -> Result<Option<Vec<&'a str>>, &'static str> {
    let Some(value) = table.get(key) else { return Ok(None) };
    let texts = value.as_array().map(|texts| texts.iter().map(Toml::as_str));
    texts.and_then(Iterator::collect).map(Some).ok_or(expected)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_file_is_read() {
        let digest = "ab".repeat(32);
        let text = format!(
            "[[token]]\nsha256 = \"{digest}\"\nname = \"team-a\"\nworkers = [\"a-*\", \"x\"]\nroles = [\"decode\"]\n\
             networks = [\"10.1.0.0/16\"]\n"
        );
        let token = parse(&text).unwrap().remove(0);
        assert_eq!((token.digest, token.name.as_str()), ([0xab; 32], "team-a"));
        for (name, expected) in [
            ("a-1", true),
            ("a-", true),
            ("x", true),
            ("b-1", false),
            ("xx", false),
            ("a", false),
        ] {
            assert_eq!(token.allows_name(name), expected, "{name}");
        }
        assert!(token.allows_role(Role::Decode) && !token.allows_role(Role::Both));
        assert!(token.networks.contains([10, 1, 2, 3].into()));
        assert_eq!(parse("").unwrap(), []);
    }

    #[test]
    fn what_is_wrong_is_named_without_what_stands_there() {
        let digest = "ab".repeat(32);
        let good = format!("[[token]]\nsha256 = \"{digest}\"\nname = \"a\"\nworkers = [\"*\"]\n");
        assert!(parse(&good).is_ok());
        for (text, expected) in [
            ("SECRET".to_owned(), "not TOML, in line 1"),
            ("[[key]]\nx = 1".to_owned(), "[[token]] and nothing else"),
            ("[[token]]\nname = \"a\"".to_owned(), "`workers` must be"),
            (good.replace(&digest, "SECRET"), "`sha256` must be"),
            (good.replace("\"a\"", "\"a SECRET\""), "`name` must be"),
            (good.replace("\"a\"", "\"operator\""), "`name` must be"),
            (good.replace("[\"*\"]", "[]"), "`workers` must be"),
            (good.replace("[\"*\"]", "\"*\""), "`workers` must be"),
            (format!("{good}roles = [\"SECRET\"]"), "`roles` must be"),
            (format!("{good}networks = [\"SECRET\"]"), "`networks` must be"),
            (format!("{good}networks = []"), "`networks` must be"),
            (format!("{good}SECRET = 1"), "only"),
            (
                format!("{good}{good}"),
                "token 2 of the file of register tokens was there before",
            ),
        ] {
            let said = parse(&text).expect_err(&text).to_string();
            assert!(said.contains(expected), "{said}");
            assert!(!said.contains("SECRET") && !said.contains(&digest), "{said}");
        }
    }

    proptest! {
        /// Against the plainest model: a `*` takes nothing, or one byte more.
        #[test]
        fn patterns_match_as_their_definition_says(pattern in "[ab*]{1,8}", name in "[ab]{0,8}") {
            fn model(pattern: &[u8], name: &[u8]) -> bool {
                match (pattern.split_first(), name.split_first()) {
                    (None, None) => true,
                    (Some((b'*', rest)), Some((_, others))) => model(rest, name) || model(pattern, others),
                    (Some((b'*', rest)), None) => model(rest, name),
                    (Some((byte, rest)), Some((first, others))) => byte == first && model(rest, others),
                    (None, Some(_)) | (Some(_), None) => false,
                }
            }
            let expected = model(pattern.as_bytes(), name.as_bytes());
            prop_assert_eq!(NamePattern::new(&pattern).unwrap().matches(&name), expected);
        }
    }
}
