//! What does a line of Azure's CSV say? When a request came, and how long it and its answer were; nothing of prefixes.
//!
//! The first line names the columns; their order does not matter, and further ones are not looked at. Cells may be quoted.

use homing_profile::Time;

use super::json::own;
use super::{Place, Row, tokens};
use crate::content::Prompt;
use crate::error::Problem;
use crate::request::Request;

/// The most columns that are looked at.
const MAX_COLUMNS: usize = 64;
const DATE: &str = "a time such as 2023-11-16 18:15:46.680590";
const COUNT: &str = "a whole number";

#[derive(Default)]
pub(super) struct Parser {
    columns: Option<Columns>,
}

#[derive(Clone, Copy)]
struct Columns {
    all: usize,
    time: usize,
    input: usize,
    output: usize,
}

/// Whether a line names the columns that are needed.
pub(super) fn is_header(line: &[u8]) -> bool {
    named_columns(line).is_ok()
}

impl Parser {
    /// The request of a line; none for the line that names the columns.
    pub(super) fn row(&mut self, line: &[u8], number: u64) -> Result<Option<Row>, Problem> {
        let Some(columns) = self.columns else {
            self.columns = Some(named_columns(line)?);
            return Ok(None);
        };
        let cells = cells(line)?;
        if cells.len() != columns.all {
            return Err(Problem::Columns {
                found: cells.len(),
                expected: columns.all,
            });
        }
        let time = &cells[columns.time];
        let at = moment(time).ok_or_else(|| Problem::value("TIMESTAMP", time, DATE))?;
        let count = |field, cell: &str| {
            let count: Result<u64, _> = cell.parse();
            tokens(field, count.map_err(|_| Problem::value(field, cell, COUNT))?)
        };
        let input = count("ContextTokens", &cells[columns.input])?;
        if input.0 == 0 {
            return Err(Problem::value("ContextTokens", "0", "at least one token"));
        }
        let output = count("GeneratedTokens", &cells[columns.output])?;
        let request = Request::at(Time::ZERO, Prompt::fresh(own(number, input)), output);
        Ok(Some(Row {
            at: Some(at),
            place: Place::Free,
            request,
        }))
    }
}

fn named_columns(line: &[u8]) -> Result<Columns, Problem> {
    let names = cells(line)?;
    let find = |wanted: &'static str| {
        let place = names.iter().position(|name| name.eq_ignore_ascii_case(wanted));
        place.ok_or(Problem::Missing(wanted))
    };
    Ok(Columns {
        all: names.len(),
        time: find("TIMESTAMP")?,
        input: find("ContextTokens")?,
        output: find("GeneratedTokens")?,
    })
}

/// The cells of a line. In quotes, commas are no ends and two quotes are one.
fn cells(line: &[u8]) -> Result<Vec<String>, Problem> {
    let text = String::from_utf8_lossy(line);
    let (mut cells, mut cell, mut quoted) = (Vec::new(), String::new(), false);
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '"' if quoted && characters.peek() == Some(&'"') => {
                characters.next();
                cell.push('"');
            }
            '"' => quoted = !quoted,
            ',' if !quoted => {
                cells.push(std::mem::take(&mut cell).trim().to_owned());
                if cells.len() >= MAX_COLUMNS {
                    return Err(Problem::Columns {
                        found: cells.len() + 1,
                        expected: MAX_COLUMNS,
                    });
                }
            }
            other => cell.push(other),
        }
    }
    if quoted {
        return Err(Problem::Quote);
    }
    cells.push(cell.trim().to_owned());
    Ok(cells)
}

/// Nanoseconds since 1970 of `YYYY-MM-DD hh:mm:ss[.fraction][zone]`, with `T` or a space between, and `Z` or `+hh:mm` as zone.
fn moment(text: &str) -> Option<u64> {
    let (date, clock) = text.split_once([' ', 'T'])?;
    let mut date = date.splitn(3, '-');
    let (year, month, day) = (
        digits(date.next()?, 4)?,
        digits(date.next()?, 2)?,
        digits(date.next()?, 2)?,
    );
    let zone_at = clock.find(['+', '-', 'Z']).unwrap_or(clock.len());
    let (clock, zone) = clock.split_at(zone_at);
    let mut clock = clock.splitn(3, ':');
    let (hour, minute) = (digits(clock.next()?, 2)?, digits(clock.next()?, 2)?);
    let seconds = clock.next()?;
    let (second, fraction) = seconds.split_once('.').unwrap_or((seconds, ""));
    let second = digits(second, 2)?;
    let right = (1970..=2400).contains(&year)
        && (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && hour < 24
        && minute < 60
        && second <= 60;
    if !right || fraction.len() > 9 {
        return None;
    }
    let nanos = if fraction.is_empty() {
        0
    } else {
        digits(fraction, fraction.len())? * 10_i64.pow(9 - fraction.len() as u32)
    };
    let seconds = ((days(year, month, day) * 24 + hour) * 60 + minute) * 60 + second - offset(zone)?;
    u64::try_from(seconds)
        .ok()?
        .checked_mul(1_000_000_000)?
        .checked_add(nanos.cast_unsigned())
}

/// A number of exactly so many digits.
fn digits(text: &str, count: usize) -> Option<i64> {
    let right = text.len() == count && text.bytes().all(|byte| byte.is_ascii_digit());
    right.then(|| text.parse().ok())?
}

/// Days from 1970 to a date. Years are taken to begin in March, so that a leap day is the last of its year.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month > 2 { year } else { year - 1 };
    let month = if month > 2 { month - 3 } else { month + 9 };
    let leaps = year / 4 - year / 100 + year / 400;
    // 719,468 days lie between March of the year 0 and 1970.
    year * 365 + leaps + (month * 153 + 2) / 5 + day - 1 - 719_468
}

/// Seconds that a zone is ahead.
fn offset(zone: &str) -> Option<i64> {
    let (sign, rest) = match zone.split_at_checked(1) {
        None => return Some(0),
        Some(("Z", rest)) => return rest.is_empty().then_some(0),
        Some(("+", rest)) => (1, rest),
        Some((_, rest)) => (-1, rest),
    };
    let (hours, minutes) = rest.split_once(':').unwrap_or((rest, "00"));
    Some(sign * (digits(hours, 2)? * 60 + digits(minutes, 2)?) * 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_they_are_written() {
        for (text, expected) in [
            ("1970-01-01 00:00:00", Some(0)),
            ("2023-11-16 18:15:46.6805900", Some(1_700_158_546_680_590_000)),
            ("2024-05-10 00:00:00.009930+00:00", Some(1_715_299_200_009_930_000)),
            ("2024-05-10T02:00:00+02:00", Some(1_715_299_200_000_000_000)),
            ("2024-05-09T22:30:00-01:30", Some(1_715_299_200_000_000_000)),
            ("2024-03-01 00:00:00Z", Some(1_709_251_200_000_000_000)),
            ("2024-02-29 00:00:00", Some(1_709_164_800_000_000_000)),
            ("2024-13-01 00:00:00", None),
            ("2024-05-10", None),
            ("2024-05-10 1:00:00", None),
            ("2024-05-10 01:00", None),
            ("2024-05-10 01:00:00.1234567891", None),
            ("2024-05-10 01:00:00.", Some(1_715_302_800_000_000_000)),
            ("2024-05-10 01:00:00+", None),
            ("2024-05-10 01:00:00Zulu", None),
            ("yesterday", None),
            ("", None),
        ] {
            assert_eq!(moment(text), expected, "{text}");
        }
    }

    #[test]
    fn cells_may_be_quoted() {
        let read = |line: &str| cells(line.as_bytes());
        assert_eq!(read("a, b ,c").unwrap(), ["a", "b", "c"]);
        assert_eq!(read(r#""a,b","say ""x""",,"#).unwrap(), ["a,b", "say \"x\"", "", ""]);
        assert_eq!(read("\"a"), Err(Problem::Quote));
    }
}
