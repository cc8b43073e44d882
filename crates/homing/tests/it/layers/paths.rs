//! Which paths does a Rust source name, outside of comments, texts and tests?
//!
//! No parser: a scanner that blanks what is not code, cuts out items under `#[cfg(test)]` and the like, splits the rest
//! into words, unfolds `use` trees and follows the names they bring in. It errs towards naming too much.

use std::collections::BTreeMap;

/// The paths, each with `std` for `core` and `alloc`; macros end in `!`.
pub fn named_paths(source: &str) -> Vec<String> {
    let code = without_test_items(source, &blanked(source));
    let words = words(&code);
    let mut imported = BTreeMap::new();
    let mut paths = Vec::new();
    let mut rest = words.as_slice();
    let mut inline: Vec<Vec<&str>> = Vec::new();
    while let [first, after @ ..] = rest {
        rest = after;
        if first == "use" {
            rest = use_tree(rest, &mut Vec::new(), &mut imported, &mut paths);
        } else if is_name(first) {
            let mut path = vec![first.as_str()];
            while let [colons, name, after @ ..] = rest
                && colons == "::"
                && is_name(name)
            {
                path.push(name);
                rest = after;
            }
            inline.push(path);
            if rest.first().is_some_and(|word| word == "!") {
                paths.push(format!("{first}!"));
            }
        }
    }
    for path in inline.iter().filter(|path| path.len() > 1) {
        paths.push(resolved(path, &imported));
    }
    paths.sort();
    paths.dedup();
    paths
}

fn resolved(path: &[&str], imported: &BTreeMap<String, String>) -> String {
    match imported.get(path[0]) {
        Some(full) => format!("{full}::{}", path[1..].join("::")),
        None => normal(&path.join("::")),
    }
}

fn normal(path: &str) -> String {
    match path.split_once("::") {
        Some(("core" | "alloc", rest)) => format!("std::{rest}"),
        _ => path.to_owned(),
    }
}

/// Reads one `use` tree below `prefix`; returns what comes after it.
fn use_tree<'w>(
    mut words: &'w [String],
    prefix: &mut Vec<String>,
    imported: &mut BTreeMap<String, String>,
    paths: &mut Vec<String>,
) -> &'w [String] {
    let depth = prefix.len();
    while let [word, after @ ..] = words {
        words = after;
        match word.as_str() {
            "::" => {}
            "{" => {
                while !matches!(words.first().map(String::as_str), None | Some("}")) {
                    words = use_tree(words, prefix, imported, paths);
                    if words.first().is_some_and(|word| word == ",") {
                        words = &words[1..];
                    }
                }
                prefix.truncate(depth);
                return words.get(1..).unwrap_or_default();
            }
            "as" => {
                let alias = words.first().cloned().unwrap_or_default();
                imported.insert(alias, normal(&prefix.join("::")));
                paths.push(normal(&prefix.join("::")));
                prefix.truncate(depth);
                return words.get(1..).unwrap_or_default();
            }
            name => {
                if name != "self" {
                    prefix.push(name.to_owned());
                }
                if !matches!(words.first().map(String::as_str), Some("::" | "as")) {
                    let full = normal(&prefix.join("::"));
                    if let Some(last) = prefix.last() {
                        imported.insert(last.clone(), full.clone());
                    }
                    paths.push(full);
                    prefix.truncate(depth);
                    return words;
                }
            }
        }
    }
    words
}

fn is_name(word: &str) -> bool {
    word.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

fn words(code: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut chars = code.chars().peekable();
    while let Some(c) = chars.next() {
        if c.is_alphanumeric() || c == '_' {
            let mut word = c.to_string();
            while let Some(&next) = chars.peek().filter(|c| c.is_alphanumeric() || **c == '_') {
                word.push(next);
                chars.next();
            }
            words.push(word);
        } else if c == ':' && chars.peek() == Some(&':') {
            chars.next();
            words.push("::".to_owned());
        } else if !c.is_whitespace() {
            words.push(c.to_string());
        }
    }
    words
}

/// The source with comments and the insides of texts replaced by spaces, byte for byte.
fn blanked(source: &str) -> String {
    let bytes = source.as_bytes();
    let mut out = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = at + skipped(&bytes[at..], at.checked_sub(1).map(|before| bytes[before]));
        if end > at {
            out[at..end].fill(b' ');
            at = end;
        } else {
            at += 1;
        }
    }
    String::from_utf8(
        out.into_iter()
            .map(|byte| if byte.is_ascii() { byte } else { b'_' })
            .collect(),
    )
    .expect("ASCII")
}

/// How many bytes at the beginning are a comment or a literal.
fn skipped(bytes: &[u8], before: Option<u8>) -> usize {
    let in_word = before.is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    match bytes {
        [b'/', b'/', ..] => bytes.iter().position(|&byte| byte == b'\n').unwrap_or(bytes.len()),
        [b'/', b'*', ..] => block_comment(bytes),
        [b'r', b'"' | b'#', ..] if !in_word => raw_string(bytes, 1),
        [b'b', b'r', b'"' | b'#', ..] if !in_word => raw_string(bytes, 2),
        [b'"', ..] => quoted(bytes, b'"'),
        // A lifetime has no closing quote after its first character.
        [b'\'', b'\\', ..] => quoted(bytes, b'\''),
        [b'\'', _, b'\'', ..] => 3,
        _ => 0,
    }
}

fn block_comment(bytes: &[u8]) -> usize {
    let (mut depth, mut at) = (0_u32, 0);
    while at < bytes.len() {
        match &bytes[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

fn raw_string(bytes: &[u8], start: usize) -> usize {
    let hashes = bytes[start..].iter().take_while(|&&byte| byte == b'#').count();
    if bytes.get(start + hashes) != Some(&b'"') {
        return 0; // a raw identifier
    }
    let close = [&b"\""[..], &b"#".repeat(hashes)].concat();
    let body = start + hashes + 1;
    let found = bytes[body..].windows(close.len()).position(|window| window == close);
    found.map_or(bytes.len(), |place| body + place + close.len())
}

fn quoted(bytes: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while at < bytes.len() && bytes[at] != quote {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(bytes.len())
}

/// Cuts out each item under an attribute that keeps it from production.
fn without_test_items(source: &str, code: &str) -> String {
    let mut kept = String::new();
    let mut at = 0;
    while let Some(found) = code[at..].find("#[cfg(") {
        let start = at + found;
        let attribute_end = start + code[start..].find(']').map_or(code.len() - start, |end| end + 1);
        kept.push_str(&code[at..start]);
        // The source, because the feature's name is a text.
        at = if is_test_condition(&source[start..attribute_end]) {
            attribute_end + item_length(&code[attribute_end..])
        } else {
            attribute_end
        };
    }
    kept.push_str(&code[at..]);
    kept
}

fn is_test_condition(attribute: &str) -> bool {
    let positive = [
        "cfg(test",
        "any(test",
        "all(test",
        ", test",
        "\"testing\"",
        "(loom",
        "(shuttle",
        "(fuzzing",
    ];
    positive.iter().any(|condition| attribute.contains(condition)) && !attribute.contains("not(")
}

/// An item ends with its outermost closing brace, or with a semicolon outside of brackets.
fn item_length(code: &str) -> usize {
    let mut depth = 0_i32;
    for (at, byte) in code.bytes().enumerate() {
        match byte {
            b'{' | b'(' | b'[' => depth += 1,
            b'}' | b')' | b']' => {
                depth -= 1;
                if depth == 0 && byte == b'}' {
                    return at + 1;
                }
            }
            b';' if depth == 0 => return at + 1,
            _ => {}
        }
    }
    code.len()
}
