//! What do the few lines of a metrics page say that matter?
//!
//! A page is scanned line by line as it arrives; only lines with a wanted name are looked into. Nothing is allocated for a line,
//! except for one that arrives in two pieces.
//!
//! **Invariant:** arbitrary bytes are taken, and a line longer than [`MAX_LINE`] is left out.

/// The longest line that is looked into.
pub const MAX_LINE: usize = 16 << 10;

/// Puts pieces together to lines.
#[derive(Debug, Default)]
pub struct Lines {
    /// The beginning of a line of which the rest is to come.
    rest: Vec<u8>,
    /// Whether that line is too long already.
    is_over: bool,
}

/// A line of a metrics page: `name{labels} value`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample<'a> {
    /// Its name.
    pub name: &'a [u8],
    /// What stands in the braces.
    labels: &'a [u8],
    /// Its value.
    pub value: f64,
}

impl Lines {
    /// Takes a piece of a page, and gives every line that ends in it to `line`.
    pub fn take(&mut self, piece: &[u8], mut line: impl FnMut(&[u8])) {
        let mut piece = piece;
        while let Some(end) = memchr::memchr(b'\n', piece) {
            let (head, tail) = piece.split_at(end);
            if self.rest.is_empty() && !self.is_over {
                line(head);
            } else {
                self.keep(head);
                if !self.is_over {
                    line(&self.rest);
                }
                self.rest.clear();
                self.is_over = false;
            }
            piece = &tail[1..];
        }
        self.keep(piece);
    }

    /// Gives the last line to `line`, if no line break followed it.
    pub fn end(&mut self, mut line: impl FnMut(&[u8])) {
        if !self.rest.is_empty() && !self.is_over {
            line(&self.rest);
        }
        self.rest.clear();
        self.is_over = false;
    }

    fn keep(&mut self, bytes: &[u8]) {
        if self.is_over || self.rest.len() + bytes.len() > MAX_LINE {
            self.is_over = true;
            self.rest.clear();
            return;
        }
        self.rest.extend_from_slice(bytes);
    }
}

impl<'a> Sample<'a> {
    /// The sample of a line whose name is one of `names`; `None` for all other lines.
    pub fn of(line: &'a [u8], names: &[&str]) -> Option<Self> {
        let end = line.iter().position(|byte| matches!(byte, b'{' | b' '))?;
        let (name, rest) = line.split_at(end);
        if !names.iter().any(|wanted| wanted.as_bytes() == name) {
            return None;
        }
        let (labels, value) = match rest.strip_prefix(b"{") {
            None => (&rest[..0], rest),
            Some(rest) => {
                let end = end_of_labels(rest)?;
                (&rest[..end], &rest[end + 1..])
            }
        };
        // A time may follow the value.
        let value = std::str::from_utf8(value).ok()?.split_ascii_whitespace().next()?;
        let value = value.parse().ok()?;
        Some(Self { name, labels, value })
    }

    /// The value of a label, as it stands there.
    pub fn label(&self, key: &str) -> Option<&'a str> {
        let mut rest = self.labels;
        loop {
            let end = rest.iter().position(|byte| *byte == b'=')?;
            let (name, value) = (rest[..end].trim_ascii(), rest[end + 1..].strip_prefix(b"\"")?);
            let close = end_of_quote(value)?;
            if name == key.as_bytes() {
                return std::str::from_utf8(&value[..close]).ok();
            }
            rest = &value[close + 1..];
            rest = rest.strip_prefix(b",").unwrap_or(rest);
        }
    }

    /// The value of a label that is a number.
    pub fn number<N: std::str::FromStr>(&self, key: &str) -> Option<N> {
        self.label(key)?.parse().ok()
    }
}

/// Where the closing brace is. Those within quotes are none.
fn end_of_labels(bytes: &[u8]) -> Option<usize> {
    let mut place = 0;
    loop {
        match bytes.get(place)? {
            b'}' => return Some(place),
            b'"' => place += 2 + end_of_quote(&bytes[place + 1..])?,
            _ => place += 1,
        }
    }
}

/// Where the closing quote is. One after a backslash is none.
fn end_of_quote(bytes: &[u8]) -> Option<usize> {
    let mut place = 0;
    loop {
        match bytes.get(place)? {
            b'"' => return Some(place),
            b'\\' => place += 2,
            _ => place += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NAMES: &[&str] = &["vllm:running", "up"];

    fn lines(pieces: &[&[u8]]) -> Vec<String> {
        let mut lines = Lines::default();
        let mut seen = Vec::new();
        let mut see = |line: &[u8]| seen.push(String::from_utf8_lossy(line).into_owned());
        for piece in pieces {
            lines.take(piece, &mut see);
        }
        lines.end(&mut see);
        seen
    }

    #[test]
    fn lines_come_out_whole_however_they_are_cut() {
        let page = b"one\ntwo\n\nfour";
        let whole = lines(&[page]);
        assert_eq!(whole, ["one", "two", "", "four"]);
        for cut in 0..=page.len() {
            assert_eq!(lines(&[&page[..cut], &page[cut..]]), whole, "cut at {cut}");
        }
        let bytes: Vec<&[u8]> = page.chunks(1).collect();
        assert_eq!(lines(&bytes), whole);
    }

    #[test]
    fn a_line_that_is_too_long_is_left_out_and_the_next_is_not() {
        let long = vec![b'x'; MAX_LINE];
        assert_eq!(lines(&[b"a\n", &long, b"y", b"z\nb\n"]), ["a", "b"]);
        assert_eq!(lines(&[&long, b"\nb"]).len(), 2, "just long enough");
    }

    #[test]
    fn a_sample_is_taken_apart() {
        let line = br#"vllm:running{engine="1",model_name="a,engine=\"7\"}",x="} "} 2.5 1700000000"#;
        let sample = Sample::of(line, NAMES).unwrap();
        assert!((sample.value - 2.5).abs() < 1e-9);
        assert_eq!(sample.number::<u16>("engine"), Some(1));
        assert_eq!(sample.label("x"), Some("} "));
        assert_eq!(sample.label("model"), None);
        let plain = Sample::of(b"up 1e3", NAMES).unwrap();
        assert!((plain.value - 1000.0).abs() < 1e-9);
        assert_eq!(plain.label("engine"), None);
    }

    #[test]
    fn other_lines_are_none() {
        for line in [
            "# HELP vllm:running Requests.",
            "vllm:running_total{} 1",
            "vllm:running",
            "vllm:running{ 1",
            "vllm:running{a=\"} 1",
            "vllm:running{} x",
            "",
        ] {
            assert_eq!(Sample::of(line.as_bytes(), NAMES), None, "{line:?}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(line in prop::collection::vec(any::<u8>(), 0..200), labels in "[a\"\\\\=,{} ]{0,30}") {
            let _ = Sample::of(&line, NAMES).and_then(|sample| sample.label("a"));
            let line = format!("up{{{labels}}} 1");
            let _ = Sample::of(line.as_bytes(), NAMES).and_then(|sample| sample.label("a"));
            let _ = lines(&line.as_bytes().chunks(3).collect::<Vec<_>>());
        }
    }
}
