//! What is a knob, and which values does it take?

use std::fmt;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use homing_domain::HashSeed;

use crate::choices::Switch;
use crate::networks::Networks;
use crate::quantity;
use crate::secret::{self, Secret};
use crate::words;

/// How no file is written.
const NO_FILE: &str = "none";

/// One thing an operator can set. Declared in [`crate::table`] and nowhere else.
#[derive(Debug)]
pub struct Knob {
    /// Its key in the file, with dots between sections: `index.max-ranks`. The other names are derived from it.
    pub path: &'static str,
    /// What it does, in a sentence or two.
    pub doc: &'static str,
    /// Its default, as an operator would write it.
    pub default: &'static str,
    /// Which values it takes.
    pub kind: Kind,
}

/// Which values a knob takes.
#[derive(Debug)]
pub enum Kind {
    /// A whole number of something.
    Count(Unit, RangeInclusive<u64>),
    /// A length of time. The range is in milliseconds.
    Time(RangeInclusive<u64>),
    /// A number of bytes.
    Size(RangeInclusive<u64>),
    /// A share of something.
    Ratio(RangeInclusive<f64>),
    /// One of a few words.
    Choice(&'static [Choice]),
    /// A name that someone else gave: of a model.
    Name,
    /// An IP address with a port, to listen on.
    Address,
    /// An IP address with a port, or this word instead of one.
    AddressOr(&'static str),
    /// The path of a file, or `none`.
    File,
    /// A list of IP networks, or `none`.
    Networks,
    /// `public`, or a secret of up to 32 hexadecimal digits.
    Seed,
    /// A secret, the file of one, or `none`.
    Secret,
}

/// What a count counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Tokens.
    Tokens,
    /// Batches of events.
    Batches,
    /// Blocks.
    Blocks,
    /// Ranks.
    Ranks,
    /// Repairs.
    Repairs,
    /// Removals.
    Removals,
    /// Threads.
    Threads,
    /// Tries.
    Tries,
    /// Workers.
    Workers,
    /// Nothing: a mere number.
    Number,
}

/// One of the words that a [`Kind::Choice`] takes.
#[derive(Debug)]
pub struct Choice {
    /// The word.
    pub name: &'static str,
    /// What choosing it means.
    pub doc: &'static str,
}

/// What a knob was set to: of the right kind and in range.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Of a [`Kind::Count`].
    Count(u64),
    /// Of a [`Kind::Time`].
    Time(Duration),
    /// Of a [`Kind::Size`].
    Size(u64),
    /// Of a [`Kind::Ratio`].
    Ratio(f64),
    /// Of a [`Kind::Choice`]: the place of the word in its list.
    Choice(usize),
    /// Of a [`Kind::Name`].
    Name(String),
    /// Of a [`Kind::Address`].
    Address(SocketAddr),
    /// Of a [`Kind::AddressOr`]; `None` for its word.
    AddressOr(Option<SocketAddr>),
    /// Of a [`Kind::File`].
    File(Option<PathBuf>),
    /// Of a [`Kind::Networks`].
    Networks(Networks),
    /// Of a [`Kind::Seed`].
    Seed(HashSeed),
    /// Of a [`Kind::Secret`].
    Secret(Secret),
}

/// Why a text is not a value of a knob.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It is not written as such values are.
    Malformed,
    /// It is, but lies outside of the range.
    OutOfRange,
}

impl Knob {
    /// Its flag, without the dashes before it: `index-max-ranks`.
    pub fn flag(&self) -> String {
        self.path.replace('.', "-")
    }

    /// Its variable: `HOMING_INDEX_MAX_RANKS`.
    pub fn variable(&self) -> String {
        format!("HOMING_{}", self.path.replace(['.', '-'], "_").to_uppercase())
    }

    /// The section of the file it is in; empty for those before the first section.
    pub fn section(&self) -> &'static str {
        self.path.split_once('.').map_or("", |(section, _)| section)
    }

    /// Its key within its section.
    pub fn key(&self) -> &'static str {
        self.path.split_once('.').map_or(self.path, |(_, key)| key)
    }

    /// Whether its value must not be shown.
    pub fn is_secret(&self) -> bool {
        matches!(self.kind, Kind::Seed | Kind::Secret)
    }

    /// Whether it is one that is on or off, and turned on by its flag alone.
    pub fn is_switch(&self) -> bool {
        match self.kind {
            Kind::Choice(choices) => {
                let words = choices.iter().map(|choice| choice.name);
                words.eq(Switch::CHOICES.iter().map(|choice| choice.name))
            }
            _ => false,
        }
    }

    /// What `text` says about this knob.
    pub fn parse(&self, text: &str) -> Result<Value, Refusal> {
        let text = text.trim();
        match &self.kind {
            Kind::Count(_, range) => within(range, quantity::count(text)).map(Value::Count),
            Kind::Time(range) => {
                within(range, quantity::millis(text)).map(|millis| Value::Time(Duration::from_millis(millis)))
            }
            Kind::Size(range) => within(range, quantity::size(text)).map(Value::Size),
            Kind::Ratio(range) => within(range, quantity::ratio(text)).map(Value::Ratio),
            Kind::Choice(choices) => {
                let place = choices.iter().position(|choice| choice.name == text);
                place.map(Value::Choice).ok_or(Refusal::Malformed)
            }
            Kind::Name => words::is_word(text)
                .then(|| Value::Name(text.to_owned()))
                .ok_or(Refusal::Malformed),
            Kind::Address => text.parse().map(Value::Address).map_err(|_| Refusal::Malformed),
            Kind::AddressOr(word) if text == *word => Ok(Value::AddressOr(None)),
            Kind::AddressOr(_) => {
                let address = text.parse().map_err(|_| Refusal::Malformed);
                address.map(|address| Value::AddressOr(Some(address)))
            }
            Kind::File => match text {
                "" => Err(Refusal::Malformed),
                NO_FILE => Ok(Value::File(None)),
                path => Ok(Value::File(Some(PathBuf::from(path)))),
            },
            Kind::Networks => text.parse().map(Value::Networks).map_err(|_| Refusal::Malformed),
            Kind::Seed => quantity::seed(text).map(Value::Seed).ok_or(Refusal::Malformed),
            Kind::Secret => Secret::parse(text).map(Value::Secret).ok_or(Refusal::Malformed),
        }
    }

    /// The value as an operator would write it; a secret is not written.
    pub fn show(&self, value: &Value) -> String {
        match (value, &self.kind) {
            (Value::Choice(place), Kind::Choice(choices)) => choices[*place].name.to_owned(),
            (Value::Seed(seed), _) if *seed == HashSeed::PUBLIC => "public".to_owned(),
            (Value::Seed(_), _) => "(secret)".to_owned(),
            (Value::Secret(secret), _) => secret.show(),
            (Value::Count(count), _) => quantity::show_count(*count),
            (Value::Time(time), _) => quantity::show_millis(time.as_millis() as u64),
            (Value::Size(bytes), _) => quantity::show_size(*bytes),
            (Value::Name(name), _) => name.clone(),
            (Value::Address(address) | Value::AddressOr(Some(address)), _) => address.to_string(),
            (Value::AddressOr(None), Kind::AddressOr(word)) => (*word).to_owned(),
            (Value::File(path), _) => path
                .as_ref()
                .map_or_else(|| NO_FILE.to_owned(), |path| path.display().to_string()),
            (Value::Networks(networks), _) => networks.to_string(),
            (Value::Ratio(ratio), _) => ratio.to_string(),
            (Value::Choice(place), _) => unreachable!("choice {place} of `{}`, which has none", self.path),
            (Value::AddressOr(None), _) => unreachable!("no address for `{}`, which has no word for that", self.path),
        }
    }
}

fn within<N: PartialOrd>(range: &RangeInclusive<N>, number: Option<N>) -> Result<N, Refusal> {
    let number = number.ok_or(Refusal::Malformed)?;
    if range.contains(&number) {
        Ok(number)
    } else {
        Err(Refusal::OutOfRange)
    }
}

impl fmt::Display for Kind {
    /// The range, as help and errors say it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(unit, range) => {
                let (low, high) = (quantity::show_count(*range.start()), quantity::show_count(*range.end()));
                write!(f, "{low} to {high}{}", unit.suffix())
            }
            Self::Time(range) => {
                let (low, high) = (
                    quantity::show_millis(*range.start()),
                    quantity::show_millis(*range.end()),
                );
                write!(f, "{low} to {high}")
            }
            Self::Size(range) => {
                let (low, high) = (quantity::show_size(*range.start()), quantity::show_size(*range.end()));
                write!(f, "{low} to {high}")
            }
            Self::Ratio(range) => write!(f, "{} to {}", range.start(), range.end()),
            Self::Choice(choices) => {
                let names: Vec<&str> = choices.iter().map(|choice| choice.name).collect();
                f.write_str(&names.join(" | "))
            }
            Self::Name => f.write_str(words::EXPECTED),
            Self::Address => f.write_str("an IP address with a port"),
            Self::AddressOr(word) => write!(f, "an IP address with a port, or `{word}`"),
            Self::File => f.write_str("a path, or `none` (a file of that name is `./none`)"),
            Self::Networks => f.write_str("IP networks such as 10.0.0.0/8, separated by commas, or `none`"),
            Self::Seed => f.write_str("`public` or 1 to 32 hexadecimal digits"),
            Self::Secret => write!(
                f,
                "`none`, `file:PATH`, or {} to {} visible characters",
                secret::SHORTEST,
                secret::LONGEST
            ),
        }
    }
}

impl Unit {
    fn suffix(self) -> &'static str {
        match self {
            Self::Tokens => " tokens",
            Self::Batches => " batches",
            Self::Blocks => " blocks",
            Self::Ranks => " ranks",
            Self::Repairs => " repairs",
            Self::Removals => " removals",
            Self::Threads => " threads",
            Self::Tries => " tries",
            Self::Workers => " workers",
            Self::Number => "",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RANKS: Knob = Knob {
        path: "index.max-ranks",
        doc: "",
        default: "4",
        kind: Kind::Count(Unit::Ranks, 2..=9),
    };

    #[test]
    fn every_name_comes_from_the_path() {
        assert_eq!(RANKS.flag(), "index-max-ranks");
        assert_eq!(RANKS.variable(), "HOMING_INDEX_MAX_RANKS");
        assert_eq!((RANKS.section(), RANKS.key()), ("index", "max-ranks"));
    }

    #[test]
    fn a_range_includes_both_ends() {
        assert_eq!(RANKS.parse("2"), Ok(Value::Count(2)));
        assert_eq!(RANKS.parse(" 9 "), Ok(Value::Count(9)));
        assert_eq!(RANKS.parse("1"), Err(Refusal::OutOfRange));
        assert_eq!(RANKS.parse("10"), Err(Refusal::OutOfRange));
        assert_eq!(RANKS.parse("nine"), Err(Refusal::Malformed));
    }

    #[test]
    fn an_address_is_an_ip_address_with_a_port() {
        let listen = Knob {
            kind: Kind::Address,
            ..RANKS
        };
        for good in ["127.0.0.1:7500", "0.0.0.0:0", "[::1]:65535", "[::]:7500"] {
            let value = listen.parse(good).unwrap();
            assert_eq!(listen.show(&value), good);
        }
        for bad in [
            "",
            "7500",
            ":7500",
            "127.0.0.1",
            "localhost:7500",
            "::1:7500",
            "127.0.0.1:65536",
        ] {
            assert_eq!(listen.parse(bad), Err(Refusal::Malformed), "{bad:?}");
        }
    }

    #[test]
    fn a_size_is_bytes_in_a_range() {
        let size = Knob {
            kind: Kind::Size(1024..=1 << 30),
            ..RANKS
        };
        assert_eq!(size.parse("1Ki"), Ok(Value::Size(1024)));
        assert_eq!(size.parse("1023"), Err(Refusal::OutOfRange));
        assert_eq!(size.parse("much"), Err(Refusal::Malformed));
        assert_eq!(size.kind.to_string(), "1KiB to 1GiB");
    }

    #[test]
    fn a_server_is_an_address_or_the_systems() {
        let server = Knob {
            kind: Kind::AddressOr("system"),
            ..RANKS
        };
        for good in ["system", "10.0.0.2:53", "[::1]:5353"] {
            assert_eq!(server.show(&server.parse(good).unwrap()), good);
        }
        for bad in ["", "none", "10.0.0.2", "dns.local:53"] {
            assert_eq!(server.parse(bad), Err(Refusal::Malformed), "{bad:?}");
        }
    }

    #[test]
    fn a_file_is_a_path_or_none() {
        let file = Knob {
            kind: Kind::File,
            ..RANKS
        };
        assert_eq!(file.parse("none"), Ok(Value::File(None)));
        assert_eq!(file.parse("a/b c"), Ok(Value::File(Some("a/b c".into()))));
        assert_eq!(file.parse("./none"), Ok(Value::File(Some("./none".into()))));
        assert_eq!(file.parse(""), Err(Refusal::Malformed));
        for text in ["none", "./none", "x"] {
            assert_eq!(file.show(&file.parse(text).unwrap()), text);
        }
    }

    #[test]
    fn a_secret_is_not_shown() {
        let seed = Knob {
            kind: Kind::Seed,
            ..RANKS
        };
        let value = seed.parse("c0ffee").unwrap();
        assert_eq!(seed.show(&value), "(secret)");
        assert!(!format!("{value:?}").contains("c0ffee"));
        assert_eq!(seed.show(&seed.parse("public").unwrap()), "public");
    }
}
