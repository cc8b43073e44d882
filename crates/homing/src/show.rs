//! How are numbers and bars written so that a person enjoys reading them?

use homing_config::Colour;

/// How to write: with colours and block characters for a terminal, in plain ASCII for everyone else.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    colour: Colour,
}

impl Style {
    /// The style for an output with or without colours.
    pub fn of(colour: Colour) -> Self {
        Self { colour }
    }

    /// A heading.
    pub fn bold(self, text: &str) -> String {
        self.painted("1", text)
    }

    /// Something good.
    pub fn green(self, text: &str) -> String {
        self.painted("32", text)
    }

    /// Something bad.
    pub fn red(self, text: &str) -> String {
        self.painted("31", text)
    }

    /// Something less important.
    pub fn dim(self, text: &str) -> String {
        self.painted("2", text)
    }

    /// A bar of `width` characters, of which `share` (0 to 1) are filled.
    pub fn bar(self, share: f64, width: usize) -> String {
        let filled = ((share.clamp(0.0, 1.0) * width as f64).round() as usize).min(width);
        let (full, empty) = match self.colour {
            Colour::On => ("█", "░"),
            Colour::Off => ("#", "."),
        };
        format!(
            "{}{}",
            self.painted("36", &full.repeat(filled)),
            self.dim(&empty.repeat(width - filled))
        )
    }

    fn painted(self, code: &str, text: &str) -> String {
        match self.colour {
            Colour::On if !text.is_empty() => format!("\x1b[{code}m{text}\x1b[0m"),
            _ => text.to_owned(),
        }
    }
}

/// The text in lines of at most so many characters, escape sequences not counted. Words are kept whole.
pub fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut filled = 0;
    for word in text.split(' ') {
        let size = visible(word);
        if filled > 0 && filled + 1 + size > width {
            lines.push(String::new());
            filled = 0;
        }
        if let Some(line) = lines.last_mut() {
            if filled > 0 {
                line.push(' ');
                filled += 1;
            }
            line.push_str(word);
        }
        filled += size;
    }
    lines
}

/// Characters that take a place: all but those of escape sequences, which end with a letter.
fn visible(word: &str) -> usize {
    let mut escaped = false;
    let takes_a_place = |letter: &char| {
        let counts = !escaped && *letter != '\x1b';
        escaped = *letter == '\x1b' || escaped && !letter.is_ascii_alphabetic();
        counts
    };
    word.chars().filter(takes_a_place).count()
}

/// A whole number with commas.
pub fn commas(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A share in percent.
pub fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// A time in milliseconds, in three digits or so.
pub fn millis(millis: f64) -> String {
    match millis {
        time if time >= 1e4 => format!("{:.1} s", time / 1e3),
        time if time >= 1e3 => format!("{:.2} s", time / 1e3),
        time if time >= 10.0 => format!("{time:.0} ms"),
        time => format!("{time:.1} ms"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        assert_eq!(commas(0), "0");
        assert_eq!(commas(999), "999");
        assert_eq!(commas(1_000), "1,000");
        assert_eq!(commas(1_234_567), "1,234,567");
        assert_eq!(percent(0.914), "91.4 %");
        let times = [0.25, 41.3, 1_234.0, 65_432.0].map(millis);
        assert_eq!(times, ["0.2 ms", "41 ms", "1.23 s", "65.4 s"]);
    }

    #[test]
    fn lines_are_no_longer_than_asked_and_colours_take_no_place() {
        assert_eq!(wrapped("one two three", 7), ["one two", "three"]);
        assert_eq!(wrapped("a-long-word b", 4), ["a-long-word", "b"]);
        assert_eq!(wrapped("", 4), [""]);
        let coloured = Style::of(Colour::On).green("two or");
        assert_eq!(
            wrapped(&format!("one {coloured} three"), 10),
            [&format!("one {coloured}"), "three"]
        );
    }

    #[test]
    fn a_bar_is_as_wide_as_asked() {
        let plain = Style::of(Colour::Off);
        assert_eq!(plain.bar(0.5, 4), "##..");
        assert_eq!(plain.bar(-1.0, 3), "...");
        assert_eq!(plain.bar(2.0, 3), "###");
        assert!(Style::of(Colour::On).bar(0.5, 4).contains('█'));
    }
}
