//! How is a stream of server-sent events read? Line by line; only those that carry data matter to us.

use anyhow::{Context as _, bail, ensure};
use serde_json::Value;

/// The longest line of a stream.
const MAX_LINE: usize = 16 << 20;

/// What a line of a stream says.
#[derive(Debug, PartialEq)]
pub enum Said {
    /// An object.
    Piece(Value),
    /// That it was all.
    Done,
}

/// The lines of a stream whose pieces may begin and end anywhere.
#[derive(Debug, Default)]
pub struct Lines {
    line: Vec<u8>,
}

impl Lines {
    /// Takes a piece of the stream and tells what whole lines say. An error that the stream tells is one.
    pub fn push(&mut self, piece: &[u8], mut tell: impl FnMut(Said)) -> anyhow::Result<()> {
        for part in piece.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(part);
            ensure!(
                self.line.len() <= MAX_LINE,
                "a line of the stream is longer than {MAX_LINE} bytes"
            );
            if part.ends_with(b"\n") {
                if let Some(said) = read(&self.line)? {
                    tell(said);
                }
                self.line.clear();
            }
        }
        Ok(())
    }
}

fn read(line: &[u8]) -> anyhow::Result<Option<Said>> {
    let Some(data) = line.strip_prefix(b"data:").map(<[u8]>::trim_ascii) else {
        return Ok(None);
    };
    if data == b"[DONE]" {
        return Ok(Some(Said::Done));
    }
    let piece: Value = serde_json::from_slice(data).context("the stream has a line that is no JSON")?;
    if let Some(error) = piece.get("error").filter(|error| !error.is_null()) {
        bail!("the endpoint says {error}");
    }
    Ok(Some(Said::Piece(piece)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn said(pieces: &[&str]) -> anyhow::Result<Vec<Said>> {
        let (mut lines, mut all) = (Lines::default(), Vec::new());
        for piece in pieces {
            lines.push(piece.as_bytes(), |said| all.push(said))?;
        }
        Ok(all)
    }

    #[test]
    fn lines_are_whole_wherever_pieces_end() {
        let stream = ": a comment\n\ndata: {\"a\":1}\r\n\r\ndata:{\"a\":2}\n\ndata: [DONE]\n\n";
        let whole = [Said::Piece(json!({"a": 1})), Said::Piece(json!({"a": 2})), Said::Done];
        assert_eq!(said(&[stream]).unwrap(), whole);
        for cut in 0..stream.len() {
            let (before, after) = stream.split_at(cut);
            assert_eq!(said(&[before, after]).unwrap(), whole, "cut at {cut}");
        }
    }

    #[test]
    fn what_is_no_stream_is_an_error() {
        for (line, words) in [
            ("data: {\"error\":{\"message\":\"full\"}}\n", "full"),
            ("data: {nothing\n", "no JSON"),
        ] {
            let error = format!("{:#}", said(&[line]).expect_err(line));
            assert!(error.contains(words), "{error}");
        }
    }
}
