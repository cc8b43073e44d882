//! How is a hint's value read, from a header's text or from JSON?

use std::collections::BTreeMap;
use std::time::Duration;

use thiserror::Error;

use crate::hints::{LONGEST, MOST, Switch};
use crate::json::{Kind, entries, items, kind, text};
use crate::lax::{self, is_false, is_true};

/// A value as it was given.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Given<'a> {
    Header(&'a str),
    Json(&'a [u8]),
}

/// What a value should have been.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("must be {must}, not {was}")]
pub(crate) struct Wrong {
    must: String,
    was: String,
}

/// The longest deadline that makes sense: a day.
const LONGEST_DEADLINE: Duration = Duration::from_hours(24);

impl Given<'_> {
    /// A text.
    fn text(&self) -> Option<String> {
        match self {
            Self::Header(text) => Some((*text).to_owned()),
            Self::Json(value) => text(value).map(std::borrow::Cow::into_owned),
        }
    }

    /// A name that is not too long.
    pub(crate) fn name(&self) -> Result<String, Wrong> {
        let name = self.text().filter(|name| is_name(name));
        name.ok_or_else(|| self.wrong(format!("a name of 1 to {LONGEST} bytes")))
    }

    /// A list of names: in a header, or as a text, with commas.
    pub(crate) fn names(&self) -> Result<Vec<String>, Wrong> {
        let split = |text: &str| -> Vec<String> {
            let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
            parts.map(str::to_owned).collect()
        };
        let names = match self {
            Self::Header(text) => Some(split(text)),
            Self::Json(value) if kind(value) == Some(Kind::Array) => items(value)
                .into_iter()
                .flatten()
                .map(|item| text(item).map(std::borrow::Cow::into_owned))
                .collect(),
            Self::Json(value) => text(value).map(|text| split(&text)),
        };
        let right = |names: &Vec<String>| (1..=MOST).contains(&names.len()) && names.iter().all(|name| is_name(name));
        names
            .filter(right)
            .ok_or_else(|| self.wrong("a list of names".to_owned()))
    }

    /// Keys and their values.
    pub(crate) fn labels(&self) -> Result<BTreeMap<String, String>, Wrong> {
        let labels: Option<BTreeMap<String, String>> = match self {
            Self::Json(value) if kind(value) == Some(Kind::Object) => entries(value)
                .into_iter()
                .flatten()
                .map(|(key, value)| Some((text(key)?.into_owned(), text(value)?.into_owned())))
                .collect(),
            _ => self.names()?.iter().map(|label| pair(label)).collect(),
        };
        let right = |labels: &BTreeMap<String, String>| {
            labels.len() <= MOST && labels.iter().all(|(key, value)| is_name(key) && is_name(value))
        };
        labels
            .filter(right)
            .ok_or_else(|| self.wrong("a list such as zone=a,gpu=h200".to_owned()))
    }

    /// A whole number that fits.
    pub(crate) fn integer<T: TryFrom<i64>>(&self) -> Result<T, Wrong> {
        let number: Option<i64> = match self {
            Self::Header(text) => text.parse().ok(),
            Self::Json(value) => lax::integer(value),
        };
        let number = number.and_then(|number| T::try_from(number).ok());
        number.ok_or_else(|| self.wrong("a whole number".to_owned()))
    }

    /// A number that is not below 0.
    pub(crate) fn number(&self) -> Result<f64, Wrong> {
        let number = match self {
            Self::Header(text) => text.parse().ok(),
            Self::Json(value) => lax::number(value),
        };
        let number = number.filter(|number: &f64| number.is_finite() && *number >= 0.0);
        number.ok_or_else(|| self.wrong("a number from 0 on".to_owned()))
    }

    /// Yes or no.
    pub(crate) fn switch(&self) -> Result<Switch, Wrong> {
        let quoted = match self {
            Self::Header(text) => format!("\"{text}\"").into_bytes(),
            Self::Json(value) => value.to_vec(),
        };
        match (is_true(&quoted), is_false(&quoted)) {
            (true, _) => Ok(Switch::On),
            (_, true) => Ok(Switch::Off),
            _ => Err(self.wrong("on or off".to_owned())),
        }
    }

    /// A time: with a unit, or a number of seconds.
    pub(crate) fn duration(&self) -> Result<Duration, Wrong> {
        let written = match self {
            Self::Json(value) if kind(value) == Some(Kind::Number) => {
                std::str::from_utf8(value).ok().map(str::to_owned)
            }
            _ => self.text(),
        };
        let time = written
            .as_deref()
            .and_then(seconds)
            .filter(|time| *time <= LONGEST_DEADLINE);
        time.ok_or_else(|| self.wrong("a time such as 500ms or 2s".to_owned()))
    }

    fn wrong(&self, must: String) -> Wrong {
        let was: String = match self {
            Self::Header(text) => text.chars().take(64).collect(),
            Self::Json(value) => String::from_utf8_lossy(value).chars().take(64).collect(),
        };
        Wrong { must, was }
    }
}

fn is_name(name: &str) -> bool {
    (1..=LONGEST).contains(&name.len()) && !name.chars().any(char::is_control)
}

fn pair(label: &str) -> Option<(String, String)> {
    let (key, value) = label.split_once('=')?;
    Some((key.trim().to_owned(), value.trim().to_owned()))
}

fn seconds(text: &str) -> Option<Duration> {
    // `ms` before `m` and `s`: the first that fits is taken.
    let units = [("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3_600.0)];
    let found = units
        .iter()
        .find_map(|(unit, seconds)| Some((text.strip_suffix(unit)?, *seconds)));
    let (number, unit) = found.unwrap_or((text, 1.0));
    let number: f64 = number.trim().parse().ok()?;
    Duration::try_from_secs_f64(number * unit).ok()
}
