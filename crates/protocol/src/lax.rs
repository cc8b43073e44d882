//! How do engines take a value? As pydantic does: numbers may be written as texts, and `1` is true.

use crate::json::{Kind, kind, text};

/// Whether it means yes.
pub(crate) fn is_true(value: &[u8]) -> bool {
    match value {
        b"true" | b"1" | b"1.0" => true,
        _ => text(value).is_some_and(|text| {
            let text = text.to_ascii_lowercase();
            matches!(text.as_str(), "true" | "1" | "yes" | "on" | "t" | "y")
        }),
    }
}

/// Whether it means no.
pub(crate) fn is_false(value: &[u8]) -> bool {
    match value {
        b"false" | b"0" | b"0.0" => true,
        _ => text(value).is_some_and(|text| {
            let text = text.to_ascii_lowercase();
            matches!(text.as_str(), "false" | "0" | "no" | "off" | "f" | "n")
        }),
    }
}

/// The number that it is.
pub(crate) fn number(value: &[u8]) -> Option<f64> {
    let number = match kind(value)? {
        Kind::Number => std::str::from_utf8(value).ok()?.parse().ok()?,
        Kind::String => text(value)?.trim().parse().ok()?,
        _ => return None,
    };
    Some(number).filter(|number: &f64| number.is_finite())
}

/// The whole number that it is.
pub(crate) fn integer(value: &[u8]) -> Option<i64> {
    if let Ok(whole) = std::str::from_utf8(value).unwrap_or_default().parse() {
        return Some(whole);
    }
    let number = number(value)?;
    (number.fract() == 0.0 && number.abs() < 9e15).then_some(number as i64)
}

/// The number of things that it is; more than fit are as many as fit.
pub(crate) fn count(value: &[u8]) -> Option<u32> {
    let whole = integer(value).filter(|whole| *whole >= 0)?;
    Some(u32::try_from(whole).unwrap_or(u32::MAX))
}

/// Whether it says something: it is not null, false, nor empty.
pub(crate) fn is_given(value: &[u8]) -> bool {
    match kind(value) {
        None | Some(Kind::Null) => false,
        Some(Kind::Bool) => value == b"true",
        Some(Kind::Number) => true,
        Some(Kind::String) => value.len() > 2,
        Some(Kind::Array | Kind::Object) => !value[1..value.len().saturating_sub(1)].trim_ascii().is_empty(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_taken_as_pydantic_takes_them() {
        assert!(
            ["true", "1", "\"yes\"", "\"True\""]
                .iter()
                .all(|value| is_true(value.as_bytes()))
        );
        assert!(
            ["false", "0", "null", "2", "\"maybe\"", "[]"]
                .iter()
                .all(|value| !is_true(value.as_bytes()))
        );
        assert!(["false", "0", "\"off\""].iter().all(|value| is_false(value.as_bytes())));
        assert_eq!(
            (integer(b"5"), integer(b"5.0"), integer(b"\"5\""), integer(b"5.5")),
            (Some(5), Some(5), Some(5), None)
        );
        assert_eq!(
            (count(b"-1"), count(b"99999999999"), count(b"7")),
            (None, Some(u32::MAX), Some(7))
        );
        assert_eq!(
            (number(b"1e999"), number(b"0.5"), number(b"[]")),
            (None, Some(0.5), None)
        );
        assert!(
            ["null", "false", "[ ]", "{}", "\"\""]
                .iter()
                .all(|value| !is_given(value.as_bytes()))
        );
        assert!(
            ["0", "true", "[0]", "{\"a\":1}", "\"x\""]
                .iter()
                .all(|value| is_given(value.as_bytes()))
        );
    }
}
