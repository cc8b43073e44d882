//! Fields of engines in forms with files (`multipart/form-data`): found, and removed as whole parts.
//!
//! **Invariant:** a form whose parts or names could be read in two ways is an error, so that a field cannot hide in one.
//!
//! Cost: one search for the boundary over the body, heads of parts only.

use bytes::Bytes;
use memchr::memmem;
use thiserror::Error;

use crate::engine_fields::{FoundField, container_of, find_in_container, row_of};
use crate::json::Span;

/// Parts of a form.
const MAX_PARTS: usize = 1_024;
/// The head of a part, in bytes.
const MAX_PART_HEAD: usize = 16 << 10;

/// Why a form cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the form cannot be read: {0}")]
pub struct BadForm(&'static str);

/// A part that is a field of the engine, or has one in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnginePart {
    /// The field.
    pub found: FoundField,
    /// The part with the boundary before it.
    span: Span,
}

struct Part<'a> {
    name: String,
    value: &'a [u8],
    span: Span,
}

/// The parts of a form that engines take for fields of the table.
pub fn find(content_type: Option<&[u8]>, body: &[u8]) -> Result<Vec<EnginePart>, BadForm> {
    let boundary = content_type.and_then(boundary_of);
    let boundary = boundary.ok_or(BadForm("it has no `multipart/form-data` boundary"))?;
    let mut found = Vec::new();
    for part in parts(body, &boundary)? {
        found.extend(
            fields_of(&part)
                .into_iter()
                .map(|found| EnginePart { found, span: part.span }),
        );
    }
    Ok(found)
}

/// The form without these parts.
pub fn remove(body: &Bytes, parts: &[EnginePart]) -> Bytes {
    if parts.is_empty() {
        return body.clone();
    }
    let mut left = Vec::with_capacity(body.len());
    let mut at = 0;
    for part in parts {
        left.extend_from_slice(body.get(at..part.span.start).unwrap_or_default());
        at = at.max(part.span.end);
    }
    left.extend_from_slice(body.get(at..).unwrap_or_default());
    left.into()
}

fn fields_of(part: &Part<'_>) -> Vec<FoundField> {
    // Client libraries write fields of objects with brackets: `vllm_xargs[kv_transfer_params]`.
    let (outer, inner) = part.name.split_once('[').unwrap_or((&part.name, ""));
    let inner = inner.split([']', '[']).next().unwrap_or_default();
    let container = container_of(outer.as_bytes());
    let row = match container {
        Some(container) if !inner.is_empty() => row_of(inner.as_bytes(), Some(container)),
        _ => row_of(outer.as_bytes(), None),
    };
    match (row, container) {
        (Some(field), _) => vec![FoundField {
            path: part.name.clone(),
            field,
            is_null: matches!(part.value.trim_ascii(), b"" | b"null"),
        }],
        (None, Some(container)) => find_in_container(container, part.value.trim_ascii()),
        (None, None) => Vec::new(),
    }
}

fn boundary_of(content_type: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(content_type).ok()?;
    let (kind, parameters) = text.split_once(';')?;
    if !kind.trim().eq_ignore_ascii_case("multipart/form-data") {
        return None;
    }
    let mut boundaries = parameters_of(parameters)?
        .into_iter()
        .filter(|(name, _)| name == "boundary");
    let (_, boundary) = boundaries.next()?;
    let is_one = boundaries.next().is_none() && (1..=70).contains(&boundary.len());
    is_one.then(|| boundary.into_bytes())
}

fn parts<'a>(body: &'a [u8], boundary: &[u8]) -> Result<Vec<Part<'a>>, BadForm> {
    let line = [b"\r\n--", boundary].concat();
    let finder = memmem::Finder::new(&line);
    // The first line has nothing before it.
    if !body.starts_with(&line[2..]) {
        return Err(BadForm("it does not begin with its boundary"));
    }
    let mut parts = Vec::new();
    let (mut start, mut at) = (0, line.len() - 2);
    loop {
        let rest = &body[at..];
        if rest.starts_with(b"--") {
            return Ok(parts);
        }
        let Some(part) = rest.strip_prefix(b"\r\n") else {
            return Err(BadForm("a boundary is followed by something else than a line's end"));
        };
        let head_end = memmem::find(&part[..part.len().min(MAX_PART_HEAD)], b"\r\n\r\n");
        let head_end = head_end.ok_or(BadForm("the head of a part has no end, or is too long"))?;
        let value_at = at + 2 + head_end + 4;
        // An empty value ends where its head does.
        let end = finder
            .find(&body[value_at - 2..])
            .ok_or(BadForm("its last boundary is missing"))?;
        let end = value_at - 2 + end;
        if parts.len() >= MAX_PARTS {
            return Err(BadForm("it has more than 1024 parts"));
        }
        parts.push(Part {
            name: name_of(&part[..head_end])?,
            value: body.get(value_at..end).unwrap_or_default(),
            span: Span { start, end: end + 2 },
        });
        start = end + 2;
        at = end + line.len();
    }
}

/// The name of the part with this head.
fn name_of(head: &[u8]) -> Result<String, BadForm> {
    const UNCLEAR: BadForm = BadForm("the name of a part is missing or can be read in two ways");
    let head = std::str::from_utf8(head).map_err(|_| UNCLEAR)?;
    let mut dispositions = head.split("\r\n").filter_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.trim().eq_ignore_ascii_case("content-disposition").then_some(value)
    });
    let (Some(disposition), None) = (dispositions.next(), dispositions.next()) else {
        return Err(UNCLEAR);
    };
    let (kind, parameters) = disposition.split_once(';').ok_or(UNCLEAR)?;
    if !kind.trim().eq_ignore_ascii_case("form-data") {
        return Err(UNCLEAR);
    }
    let parameters = parameters_of(parameters).ok_or(UNCLEAR)?;
    let mut names = parameters
        .into_iter()
        .filter(|(name, _)| name == "name" || name.starts_with("name*"));
    match (names.next(), names.next()) {
        (Some((name, value)), None) if name == "name" && !value.contains('\\') => Ok(value),
        _ => Err(UNCLEAR),
    }
}

/// Parameters with their names in small letters. `None` where they are not written as such.
fn parameters_of(text: &str) -> Option<Vec<(String, String)>> {
    let mut all = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let (name, after) = rest.split_once('=')?;
        let name = name.trim().to_ascii_lowercase();
        let (value, after) = match after.strip_prefix('"') {
            Some(quoted) => {
                let end = quoted_end(quoted)?;
                (&quoted[..end], &quoted[end + 1..])
            }
            None => after.split_at(after.find(';').unwrap_or(after.len())),
        };
        all.push((name, value.trim().to_owned()));
        let after = after.trim_start();
        rest = match after.strip_prefix(';') {
            Some(more) => more.trim_start(),
            None if after.is_empty() => after,
            None => return None,
        };
    }
    Some(all)
}

/// Where a quoted text ends.
fn quoted_end(text: &str) -> Option<usize> {
    let mut bytes = text.bytes().enumerate();
    while let Some((at, byte)) = bytes.next() {
        match byte {
            b'"' => return Some(at),
            b'\\' => drop(bytes.next()),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: &[u8] = b"multipart/form-data; boundary=\"x\"";

    fn form(parts: &[(&str, &str)]) -> Bytes {
        let part = |(disposition, value): &(&str, &str)| {
            format!("--x\r\nContent-Disposition: form-data; {disposition}\r\n\r\n{value}\r\n")
        };
        let parts: Vec<String> = parts.iter().map(part).collect();
        (parts.concat() + "--x--\r\n").into()
    }

    fn paths(body: &Bytes) -> Vec<String> {
        find(Some(KIND), body)
            .unwrap()
            .into_iter()
            .map(|part| part.found.path)
            .collect()
    }

    #[test]
    fn parts_are_found_and_removed() {
        let all = [
            ("name=\"kv_transfer_params\"", "{}"),
            ("name=\"file\"; filename=\"a; name=priority.wav\"", "\u{1}--x"),
            ("name=model", "whisper"),
            ("name=\"vllm_xargs\"", "{\"kv_transfer_params\":{}}"),
            ("name=\"vllm_xargs[bootstrap_room]\"", "1"),
            ("name=\"empty\"", ""),
            ("name=\"priority\"", "-3"),
        ];
        let body = form(&all);
        assert_eq!(
            paths(&body),
            [
                "kv_transfer_params",
                "vllm_xargs.kv_transfer_params",
                "vllm_xargs[bootstrap_room]",
                "priority"
            ]
        );
        let left = remove(&body, &find(Some(KIND), &body).unwrap());
        assert_eq!(left, form(&[all[1], all[2], all[5]]));
        assert_eq!(paths(&left), [""; 0]);
    }

    #[test]
    fn a_form_that_can_be_read_in_two_ways_is_an_error() {
        for disposition in [
            "name*=utf-8''priority",
            "name=\"a\"; name=\"priority\"",
            "name=\"prio\\rity\"",
            "filename=\"a\"",
            "name=\"a\" x",
        ] {
            assert!(find(Some(KIND), &form(&[(disposition, "1")])).is_err(), "{disposition}");
        }
        let good = form(&[("name=a", "1")]);
        assert!(find(Some(KIND), &good).is_ok());
        for kind in [
            None,
            Some(&b"multipart/form-data"[..]),
            Some(b"multipart/form-data; boundary=y"),
        ] {
            assert!(find(kind, &good).is_err());
        }
        for body in [&good[..10], b"", b"--x\r\nname\r\n\r\n1\r\n--x--"] {
            assert!(find(Some(KIND), body).is_err());
        }
    }
}
