//! What do methods of Python's strings return?
//!
//! Those that templates call on contents are done here, with Python's idea of whitespace and of arguments; the rest is left
//! to `minijinja-contrib`, which is close enough.

use minijinja::value::{Kwargs, Value, ValueKind, from_args};
use minijinja::{Error, ErrorKind, State};

/// Calls a method of a value as Python would.
pub(super) fn call(state: &mut State<'_, '_>, value: &Value, method: &str, args: &[Value]) -> Result<Value, Error> {
    if let (ValueKind::String, Some(text)) = (value.kind(), value.as_str())
        && let Some(answer) = of_text(text, method, args)?
    {
        return Ok(answer);
    }
    if method == "index" && matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable) {
        return position(value, args);
    }
    minijinja_contrib::pycompat::unknown_method_callback(state, value, method, args)
}

fn of_text(text: &str, method: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    Ok(Some(match method {
        "strip" => strip(text, args, Sides::Both)?,
        "lstrip" => strip(text, args, Sides::Left)?,
        "rstrip" => strip(text, args, Sides::Right)?,
        "split" => split(text, args, Sides::Left)?,
        "rsplit" => split(text, args, Sides::Right)?,
        "splitlines" => {
            let (keep,): (Option<bool>,) = from_args(args)?;
            lines(text, keep.unwrap_or(false))
                .into_iter()
                .map(Value::from)
                .collect()
        }
        "partition" => {
            let (mark,): (&str,) = from_args(args)?;
            let parts = text.split_once(mark).map(|(before, after)| [before, mark, after]);
            tuple(parts.unwrap_or([text, "", ""]))
        }
        "rpartition" => {
            let (mark,): (&str,) = from_args(args)?;
            let parts = text.rsplit_once(mark).map(|(before, after)| [before, mark, after]);
            tuple(parts.unwrap_or(["", "", text]))
        }
        "removeprefix" => {
            let (prefix,): (&str,) = from_args(args)?;
            Value::from(text.strip_prefix(prefix).unwrap_or(text))
        }
        "removesuffix" => {
            let (suffix,): (&str,) = from_args(args)?;
            Value::from(text.strip_suffix(suffix).unwrap_or(text))
        }
        "capitalize" => Value::from(capitalize(text)),
        "title" => Value::from(title(text)),
        "isspace" => Value::from(!text.is_empty() && text.chars().all(is_space)),
        _ => return Ok(None),
    }))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Sides {
    Left,
    Right,
    Both,
}

/// Whether Python takes a character for whitespace: four separators of ASCII more than Unicode.
pub(crate) fn is_space(letter: char) -> bool {
    letter.is_whitespace() || matches!(letter, '\u{1c}'..='\u{1f}')
}

fn strip(text: &str, args: &[Value], sides: Sides) -> Result<Value, Error> {
    let (wanted,): (Option<&str>,) = from_args(args)?;
    let drop = |letter: char| wanted.map_or_else(|| is_space(letter), |wanted| wanted.contains(letter));
    Ok(Value::from(match sides {
        Sides::Left => text.trim_start_matches(drop),
        Sides::Right => text.trim_end_matches(drop),
        Sides::Both => text.trim_matches(drop),
    }))
}

fn split(text: &str, args: &[Value], from: Sides) -> Result<Value, Error> {
    let (mark, most, kwargs): (Option<&str>, Option<i64>, Kwargs) = from_args(args)?;
    let mark = mark.or(kwargs.get::<Option<&str>>("sep")?);
    let most = most.or(kwargs.get::<Option<i64>>("maxsplit")?).unwrap_or(-1);
    kwargs.assert_all_used()?;
    let parts = usize::try_from(most).map_or(usize::MAX, |most| most.saturating_add(1));
    let mut pieces: Vec<&str> = match (mark, from) {
        (Some(""), _) => return Err(Error::new(ErrorKind::InvalidOperation, "empty separator")),
        (Some(mark), Sides::Right) => text.rsplitn(parts, mark).collect(),
        (Some(mark), _) => text.splitn(parts, mark).collect(),
        (None, Sides::Right) => words_from_right(text, parts),
        (None, _) => words(text, parts),
    };
    if from == Sides::Right {
        pieces.reverse();
    }
    Ok(pieces.into_iter().map(Value::from).collect())
}

/// At most `parts` pieces between whitespace; the last has all the rest.
fn words(text: &str, parts: usize) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = text.trim_start_matches(is_space);
    while !rest.is_empty() {
        let end = if found.len() + 1 == parts {
            None
        } else {
            rest.find(is_space)
        };
        let Some(end) = end else {
            found.push(if found.len() + 1 == parts {
                rest
            } else {
                rest.trim_end_matches(is_space)
            });
            break;
        };
        found.push(&rest[..end]);
        rest = rest[end..].trim_start_matches(is_space);
    }
    found
}

/// The same from the right, the last piece first.
fn words_from_right(text: &str, parts: usize) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = text.trim_end_matches(is_space);
    while !rest.is_empty() {
        let last = rest.char_indices().rev().find(|(_, letter)| is_space(*letter));
        let last = if found.len() + 1 == parts { None } else { last };
        let Some((at, letter)) = last else {
            found.push(rest);
            break;
        };
        found.push(&rest[at + letter.len_utf8()..]);
        rest = rest[..at].trim_end_matches(is_space);
    }
    found
}

fn lines(text: &str, keep: bool) -> Vec<&str> {
    let mut found = Vec::new();
    let mut begin = 0;
    let mut letters = text.char_indices().peekable();
    while let Some((at, letter)) = letters.next() {
        if !matches!(
            letter,
            '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{1c}'..='\u{1e}' | '\u{85}' | '\u{2028}' | '\u{2029}'
        ) {
            continue;
        }
        let mut next = at + letter.len_utf8();
        if letter == '\r' && letters.peek().is_some_and(|(_, letter)| *letter == '\n') {
            letters.next();
            next += 1;
        }
        found.push(&text[begin..if keep { next } else { at }]);
        begin = next;
    }
    if begin < text.len() {
        found.push(&text[begin..]);
    }
    found
}

fn capitalize(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().into_iter().flat_map(char::to_uppercase);
    first.collect::<String>() + &letters.as_str().to_lowercase()
}

/// Letters after anything that is none become capitals, all others small.
fn title(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut inside = false;
    for letter in text.chars() {
        if inside {
            out.extend(letter.to_lowercase());
        } else {
            out.extend(letter.to_uppercase());
        }
        inside = letter.is_alphabetic();
    }
    out
}

fn tuple(parts: [&str; 3]) -> Value {
    Value::from(minijinja::value::Tuple::from(parts.map(Value::from)))
}

fn position(value: &Value, args: &[Value]) -> Result<Value, Error> {
    let (wanted,): (&Value,) = from_args(args)?;
    let found = value.try_iter()?.position(|item| item == *wanted);
    found
        .map(Value::from)
        .ok_or_else(|| Error::new(ErrorKind::InvalidOperation, "the value is not in the list"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_split_as_python_does() {
        assert_eq!(words("  a b\t c  ", usize::MAX), ["a", "b", "c"]);
        assert_eq!(words("  a b  c  ", 2), ["a", "b  c  "]);
        assert_eq!(words("  a b  ", 1), ["a b  "]);
        assert_eq!(words(" \u{1f} ", usize::MAX), Vec::<&str>::new());
        assert_eq!(words_from_right(" a b  c ", 2), ["c", " a b"]);
        assert_eq!(words_from_right(" a b ", usize::MAX), ["b", "a"]);
    }

    #[test]
    fn lines_are_split_as_python_does() {
        assert_eq!(lines("a\r\nb\u{2028}c\n", false), ["a", "b", "c"]);
        assert_eq!(lines("a\r\nb\n\n", true), ["a\r\n", "b\n", "\n"]);
        assert_eq!(lines("", false), Vec::<&str>::new());
    }

    #[test]
    fn capitals_are_where_python_has_them() {
        assert_eq!(capitalize("hELLO wORLD"), "Hello world");
        assert_eq!(title("they're bill's 3rd"), "They'Re Bill'S 3Rd");
    }
}
