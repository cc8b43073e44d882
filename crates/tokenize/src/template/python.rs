//! How does Python write this value? As text, as source, as JSON.
//!
//! Templates are written for Python, and what they print becomes tokens: `True` and `true` are different prompts. Lists and
//! objects nest at most [`DEEPEST`] times, as deep as a body of JSON can be.

use std::fmt::Write;

use minijinja::value::{Value, ValueKind};
use minijinja::{Error, ErrorKind};

/// How deep values may nest.
pub(super) const DEEPEST: usize = 256;

/// How `json.dumps` is asked to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct JsonStyle {
    /// What stands for one level of indentation; nothing for all in one line.
    pub indent: Option<String>,
    /// What stands between items.
    pub item: String,
    /// What stands between a key and its value.
    pub key: String,
    /// Whether keys are sorted.
    pub sorted: bool,
    /// Whether all but ASCII is escaped.
    pub ascii: bool,
}

/// `str(value)`.
pub(super) fn text(value: &Value) -> Result<String, Error> {
    let mut out = String::new();
    write_text(&mut out, value)?;
    Ok(out)
}

/// `str(value)`, appended.
pub(super) fn write_text(out: &mut String, value: &Value) -> Result<(), Error> {
    match value.kind() {
        ValueKind::Undefined => {}
        ValueKind::String => out.push_str(value.as_str().unwrap_or_default()),
        _ => source(out, value, 0)?,
    }
    Ok(())
}

/// `repr(value)`, appended.
fn source(out: &mut String, value: &Value, depth: usize) -> Result<(), Error> {
    if depth > DEEPEST {
        return Err(too_deep());
    }
    match value.kind() {
        ValueKind::Undefined => out.push_str("Undefined"),
        ValueKind::None => out.push_str("None"),
        ValueKind::Bool => out.push_str(if value.is_true() { "True" } else { "False" }),
        ValueKind::Number => number(out, value, "nan", "inf"),
        ValueKind::String => quoted(out, value.as_str().unwrap_or_default()),
        ValueKind::Seq | ValueKind::Iterable => {
            let (open, close) = if value.is_tuple() { ('(', ')') } else { ('[', ']') };
            out.push(open);
            let mut count = 0;
            for item in value.try_iter()? {
                out.push_str(if count > 0 { ", " } else { "" });
                source(out, &item, depth + 1)?;
                count += 1;
            }
            if count == 1 && value.is_tuple() {
                out.push(',');
            }
            out.push(close);
        }
        ValueKind::Map => {
            out.push('{');
            for (index, key) in value.try_iter()?.enumerate() {
                out.push_str(if index > 0 { ", " } else { "" });
                source(out, &key, depth + 1)?;
                out.push_str(": ");
                source(out, &value.get_item(&key)?, depth + 1)?;
            }
            out.push('}');
        }
        _ => write_display(out, value),
    }
    Ok(())
}

fn write_display(out: &mut String, value: &Value) {
    // Writing to a string cannot fail.
    let _ = write!(out, "{value}");
}

fn number(out: &mut String, value: &Value, nan: &str, infinity: &str) {
    if value.is_integer() {
        return write_display(out, value);
    }
    match f64::try_from(value.clone()) {
        Ok(float) if float.is_nan() => out.push_str(nan),
        Ok(float) if float.is_infinite() => {
            out.push_str(if float < 0.0 { "-" } else { "" });
            out.push_str(infinity);
        }
        Ok(float) => out.push_str(&finite(float)),
        Err(_) => write_display(out, value),
    }
}

/// `repr` of a finite float: the shortest digits that mean it, with an exponent below 1e-4 and from 1e16 on.
fn finite(float: f64) -> String {
    let scientific = format!("{float:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if !(-4..16).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{mantissa}e{sign}{:02}", exponent.abs());
    }
    let plain = format!("{float}");
    if plain.contains('.') { plain } else { plain + ".0" }
}

/// A string as Python's source has it: in single quotes unless only those are in it.
fn quoted(out: &mut String, text: &str) {
    let quote = if text.contains('\'') && !text.contains('"') {
        '"'
    } else {
        '\''
    };
    out.push(quote);
    for letter in text.chars() {
        match letter {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            letter if letter == quote => {
                out.push('\\');
                out.push(quote);
            }
            letter if printable(letter) => out.push(letter),
            letter => {
                let code = u32::from(letter);
                let _ = match code {
                    0..=0xff => write!(out, "\\x{code:02x}"),
                    0x100..=0xffff => write!(out, "\\u{code:04x}"),
                    _ => write!(out, "\\U{code:08x}"),
                };
            }
        }
    }
    out.push(quote);
}

/// Whether Python writes a character as it is. Characters that only shape others and those for private use are not.
fn printable(letter: char) -> bool {
    let code = u32::from(letter);
    let hidden = letter.is_control()
        || (letter.is_whitespace() && letter != ' ')
        || matches!(code, 0xad | 0x600..=0x605 | 0x61c | 0x6dd | 0x70f | 0x180e | 0x200b..=0x200f)
        || matches!(code, 0x202a..=0x202e | 0x2060..=0x206f | 0xfeff | 0xfff9..=0xfffb)
        || matches!(code, 0xe000..=0xf8ff | 0xe0001..=0xe007f | 0xf0000..);
    !hidden
}

/// `json.dumps(value)`.
pub(super) fn json(value: &Value, style: &JsonStyle) -> Result<String, Error> {
    let mut out = String::new();
    dump(&mut out, value, style, 0)?;
    Ok(out)
}

fn dump(out: &mut String, value: &Value, style: &JsonStyle, depth: usize) -> Result<(), Error> {
    if depth > DEEPEST {
        return Err(too_deep());
    }
    match value.kind() {
        ValueKind::None => out.push_str("null"),
        ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
        ValueKind::Number => number(out, value, "NaN", "Infinity"),
        ValueKind::String => json_text(out, value.as_str().unwrap_or_default(), style.ascii),
        ValueKind::Seq | ValueKind::Iterable => {
            let items = value.try_iter()?;
            enclosed(out, ('[', ']'), style, depth, items, |out, item| {
                dump(out, &item, style, depth + 1)
            })?;
        }
        ValueKind::Map => {
            let mut keys: Vec<(String, Value)> = Vec::new();
            for key in value.try_iter()? {
                keys.push((json_key(&key)?, key));
            }
            if style.sorted {
                keys.sort_by(|one, other| one.0.cmp(&other.0));
            }
            enclosed(out, ('{', '}'), style, depth, keys, |out, (name, key)| {
                json_text(out, &name, style.ascii);
                out.push_str(&style.key);
                dump(out, &value.get_item(&key)?, style, depth + 1)
            })?;
        }
        kind => {
            return Err(Error::new(
                ErrorKind::InvalidOperation,
                format!("a value of kind {kind} is not JSON serializable"),
            ));
        }
    }
    Ok(())
}

/// Items between brackets, on lines of their own if there is an indentation.
fn enclosed<T>(
    out: &mut String,
    brackets: (char, char),
    style: &JsonStyle,
    depth: usize,
    items: impl IntoIterator<Item = T>,
    mut write: impl FnMut(&mut String, T) -> Result<(), Error>,
) -> Result<(), Error> {
    out.push(brackets.0);
    let mut some = false;
    for item in items {
        if some {
            out.push_str(&style.item);
        }
        line(out, style, depth + 1);
        write(out, item)?;
        some = true;
    }
    if some {
        line(out, style, depth);
    }
    out.push(brackets.1);
    Ok(())
}

fn line(out: &mut String, style: &JsonStyle, depth: usize) {
    if let Some(indent) = &style.indent {
        out.push('\n');
        for _ in 0..depth {
            out.push_str(indent);
        }
    }
}

fn json_key(key: &Value) -> Result<String, Error> {
    match key.kind() {
        ValueKind::String => Ok(key.as_str().unwrap_or_default().to_owned()),
        ValueKind::None => Ok("null".to_owned()),
        ValueKind::Bool => Ok(if key.is_true() { "true" } else { "false" }.to_owned()),
        ValueKind::Number => {
            let mut out = String::new();
            number(&mut out, key, "NaN", "Infinity");
            Ok(out)
        }
        kind => Err(Error::new(
            ErrorKind::InvalidOperation,
            format!("keys of JSON are no values of kind {kind}"),
        )),
    }
}

fn json_text(out: &mut String, text: &str, ascii: bool) {
    out.push('"');
    let mut plain = 0;
    for (at, letter) in text.char_indices() {
        let escape = match letter {
            '"' => "\\\"",
            '\\' => "\\\\",
            '\n' => "\\n",
            '\r' => "\\r",
            '\t' => "\\t",
            '\u{8}' => "\\b",
            '\u{c}' => "\\f",
            '\0'..='\u{1f}' => "",
            _ if ascii && !letter.is_ascii() => "",
            _ => continue,
        };
        out.push_str(&text[plain..at]);
        plain = at + letter.len_utf8();
        if escape.is_empty() {
            for unit in letter.encode_utf16(&mut [0; 2]) {
                let _ = write!(out, "\\u{unit:04x}");
            }
        } else {
            out.push_str(escape);
        }
    }
    out.push_str(&text[plain..]);
    out.push('"');
}

fn too_deep() -> Error {
    Error::new(
        ErrorKind::InvalidOperation,
        format!("the value nests more than {DEEPEST} times"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain() -> JsonStyle {
        JsonStyle {
            indent: None,
            item: ", ".to_owned(),
            key: ": ".to_owned(),
            sorted: false,
            ascii: false,
        }
    }

    #[test]
    fn floats_are_written_as_python_does() {
        for (float, expected) in [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.0, "1.0"),
            (0.1, "0.1"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.5e300, "1.5e+300"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (1.25e-10, "1.25e-10"),
            (123_456.789, "123456.789"),
        ] {
            assert_eq!(finite(float), expected);
        }
    }

    #[test]
    fn values_are_written_as_python_does() {
        let value = Value::from_pairs([
            (
                "a",
                Value::from(vec![Value::from(1), Value::from(true), Value::from(())]),
            ),
            ("b'", Value::from("it's \"x\"\n\u{7f}\u{200b}é")),
        ]);
        assert_eq!(
            text(&value).unwrap(),
            "{'a': [1, True, None], \"b'\": 'it\\'s \"x\"\\n\\x7f\\u200bé'}"
        );
        assert_eq!(text(&Value::from("as it is\n")).unwrap(), "as it is\n");
        assert_eq!(text(&Value::UNDEFINED).unwrap(), "");
    }

    #[test]
    fn json_is_written_as_python_does() {
        let value = Value::from_pairs([
            ("z", Value::from("<é\u{1}\u{7f}\"\\/>😀")),
            ("a", Value::from(vec![Value::from(1.0), Value::from(())])),
            ("e", Value::from(Vec::<Value>::new())),
        ]);
        assert_eq!(
            json(&value, &plain()).unwrap(),
            "{\"z\": \"<é\\u0001\u{7f}\\\"\\\\/>😀\", \"a\": [1.0, null], \"e\": []}"
        );
        let style = JsonStyle {
            indent: Some("  ".to_owned()),
            item: ",".to_owned(),
            sorted: true,
            ascii: true,
            ..plain()
        };
        assert_eq!(
            json(&value, &style).unwrap(),
            "{\n  \"a\": [\n    1.0,\n    null\n  ],\n  \"e\": [],\n  \"z\": \"<\\u00e9\\u0001\u{7f}\\\"\\\\/>\\ud83d\\ude00\"\n}"
        );
        assert!(json(&Value::UNDEFINED, &plain()).is_err());
    }
}
