//! How is a date written? What templates ask for with `strftime_now`.
//!
//! It knows the directives of C in the English of the C locale; others are left as they stand.

use std::fmt::Write;

const SECONDS_A_DAY: i64 = 86_400;
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = [
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
];

/// A moment, in parts.
struct Moment {
    year: i64,
    month: usize,
    day: i64,
    /// Days since the first of January.
    day_of_year: i64,
    weekday: usize,
    hour: i64,
    minute: i64,
    second: i64,
}

/// `datetime.strftime`, for seconds since 1970 by the clock on the wall.
pub(super) fn strftime(seconds: i64, format: &str) -> String {
    let moment = Moment::at(seconds);
    let mut out = String::with_capacity(format.len() + 16);
    let mut letters = format.chars();
    while let Some(letter) = letters.next() {
        if letter != '%' {
            out.push(letter);
            continue;
        }
        match letters.next() {
            // Without leading zeros, as glibc has it.
            Some('-') => {
                let written = letters.next().map_or_else(String::new, |which| moment.part(which));
                let trimmed = written.trim_start_matches(['0', ' ']);
                out.push_str(if trimmed.is_empty() && !written.is_empty() {
                    "0"
                } else {
                    trimmed
                });
            }
            Some(which) => out.push_str(&moment.part(which)),
            None => out.push('%'),
        }
    }
    out
}

impl Moment {
    fn at(seconds: i64) -> Self {
        let days = seconds.div_euclid(SECONDS_A_DAY);
        let rest = seconds.rem_euclid(SECONDS_A_DAY);
        // Years begin in March here, so that the leap day is the last of its year.
        let shifted = days.saturating_add(719_468);
        let era = shifted.div_euclid(146_097);
        let of_era = shifted.rem_euclid(146_097);
        let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let from_march = (5 * of_year + 2) / 153;
        let day = of_year - (153 * from_march + 2) / 5 + 1;
        let month = if from_march < 10 {
            from_march + 2
        } else {
            from_march - 10
        };
        let year = year_of_era + era * 400 + i64::from(month < 2);
        let leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
        let day_of_year = if from_march < 10 {
            of_year + 59 + i64::from(leap)
        } else {
            of_year - 306
        };
        Self {
            year,
            month: usize::try_from(month).unwrap_or(0).min(11),
            day,
            day_of_year,
            weekday: usize::try_from((days + 4).rem_euclid(7)).unwrap_or(0),
            hour: rest / 3_600,
            minute: rest / 60 % 60,
            second: rest % 60,
        }
    }

    fn part(&self, which: char) -> String {
        let month = self.month + 1;
        let twelve = (self.hour + 11) % 12 + 1;
        match which {
            'Y' => self.year.to_string(),
            'y' => format!("{:02}", self.year.rem_euclid(100)),
            'C' => format!("{:02}", self.year.div_euclid(100)),
            'm' => format!("{month:02}"),
            'B' => MONTHS[self.month].to_owned(),
            'b' | 'h' => MONTHS[self.month][..3].to_owned(),
            'd' => format!("{:02}", self.day),
            'e' => format!("{:2}", self.day),
            'j' => format!("{:03}", self.day_of_year + 1),
            'A' => DAYS[self.weekday].to_owned(),
            'a' => DAYS[self.weekday][..3].to_owned(),
            'w' => self.weekday.to_string(),
            'u' => (if self.weekday == 0 { 7 } else { self.weekday }).to_string(),
            'H' => format!("{:02}", self.hour),
            'I' => format!("{twelve:02}"),
            'M' => format!("{:02}", self.minute),
            'S' => format!("{:02}", self.second),
            'f' => "000000".to_owned(),
            'p' => (if self.hour < 12 { "AM" } else { "PM" }).to_owned(),
            'F' => format!("{}-{month:02}-{:02}", self.year, self.day),
            'T' | 'X' => format!("{:02}:{:02}:{:02}", self.hour, self.minute, self.second),
            'R' => format!("{:02}:{:02}", self.hour, self.minute),
            'D' | 'x' => format!("{month:02}/{:02}/{:02}", self.day, self.year.rem_euclid(100)),
            'c' => self.all(),
            // A clock on the wall knows no zone, and Python then writes nothing.
            'z' | 'Z' => String::new(),
            'n' => "\n".to_owned(),
            't' => "\t".to_owned(),
            '%' => "%".to_owned(),
            other => format!("%{other}"),
        }
    }

    fn all(&self) -> String {
        let mut out = String::new();
        for which in ['a', 'b', 'e', 'T', 'Y'] {
            let space = if out.is_empty() { "" } else { " " };
            let _ = write!(out, "{space}{}", self.part(which));
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_written_as_c_does() {
        for (seconds, format, expected) in [
            (0, "%Y-%m-%d %H:%M:%S %j %a", "1970-01-01 00:00:00 001 Thu"),
            (951_782_400, "%d %b %Y, %A, %j", "29 Feb 2000, Tuesday, 060"),
            (1_709_251_199, "%d %B %Y %I:%M %p", "29 February 2024 11:59 PM"),
            (1_735_603_200, "%F %j %w %u", "2024-12-31 366 2 2"),
            (
                1_609_459_199,
                "%c %D %T %y %%",
                "Thu Dec 31 23:59:59 2020 12/31/20 23:59:59 20 %",
            ),
            (1_720_000_000, "%-d.%-m. %e %-H %q%", "3.7.  3 9 %q%"),
            (-1, "%F %T", "1969-12-31 23:59:59"),
        ] {
            assert_eq!(strftime(seconds, format), expected, "{format}");
        }
    }
}
