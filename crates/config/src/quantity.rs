//! How are numbers with units written?
//!
//! - counts: `4096`, `1_000_000`, `64Ki`, `16Mi`, `1Gi` (powers of 1024), `10k`, `5M`, `1G` (powers of 1000), `2^26`;
//! - sizes: counts of bytes, to which a `B` may be added: `64MiB`, `64Mi`, `4096`;
//! - times: `500ms`, `120s`, `2m`, `1h`; a plain number is seconds, and `1.5s` is allowed;
//! - ratios: `0.8` or `80%`;
//! - seeds: `public` or hexadecimal digits.
//!
//! **Invariant:** what `show_*` writes is read back as the same number.

use homing_domain::HashSeed;

const COUNT_SUFFIXES: [(&str, u64); 6] = [
    ("Ki", 1 << 10),
    ("Mi", 1 << 20),
    ("Gi", 1 << 30),
    ("k", 1_000),
    ("M", 1_000_000),
    ("G", 1_000_000_000),
];

// `ms` before `m` and `s`: the first that fits is taken.
const TIME_SUFFIXES: [(&str, u32); 4] = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000)];

/// A whole number, or `None` if `text` is not written as one or does not fit.
pub fn count(text: &str) -> Option<u64> {
    if let Some((base, exponent)) = text.split_once('^') {
        return digits(base)?.checked_pow(u32::try_from(digits(exponent)?).ok()?);
    }
    for (suffix, factor) in COUNT_SUFFIXES {
        if let Some(number) = text.strip_suffix(suffix) {
            return digits(number)?.checked_mul(factor);
        }
    }
    digits(text)
}

/// A number of bytes.
pub fn size(text: &str) -> Option<u64> {
    count(text.strip_suffix('B').unwrap_or(text))
}

/// A time in milliseconds; fractions of one are not kept.
pub fn millis(text: &str) -> Option<u64> {
    for (suffix, factor) in TIME_SUFFIXES {
        if let Some(number) = text.strip_suffix(suffix) {
            return scaled(number.trim_end(), factor);
        }
    }
    scaled(text, 1_000)
}

/// A share.
pub fn ratio(text: &str) -> Option<f64> {
    match text.strip_suffix('%') {
        Some(percent) => decimal(percent).map(|percent| percent / 100.0),
        None => decimal(text),
    }
}

/// A seed: `public`, or 1 to 32 hexadecimal digits.
pub fn seed(text: &str) -> Option<HashSeed> {
    if text == "public" {
        return Some(HashSeed::PUBLIC);
    }
    let hexadecimal = !text.is_empty() && text.len() <= 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    hexadecimal
        .then(|| u128::from_str_radix(text, 16).ok())
        .flatten()
        .map(HashSeed::new)
}

/// A count as one would write it: large powers of two as such, all others in digits.
pub fn show_count(count: u64) -> String {
    if count.is_power_of_two() && count >= 1 << 16 {
        format!("2^{}", count.trailing_zeros())
    } else {
        count.to_string()
    }
}

/// A size as one would write it: in the largest unit of which it is a whole number.
pub fn show_size(bytes: u64) -> String {
    for (unit, shift) in [("GiB", 30), ("MiB", 20), ("KiB", 10)] {
        if bytes > 0 && bytes.trailing_zeros() >= shift {
            return format!("{}{unit}", bytes >> shift);
        }
    }
    bytes.to_string()
}

/// A time as one would write it: in whole hours or seconds where it is some.
pub fn show_millis(millis: u64) -> String {
    const HOUR: u64 = 3_600_000;
    if millis >= HOUR && millis.is_multiple_of(HOUR) {
        format!("{}h", millis / HOUR)
    } else if millis.is_multiple_of(1_000) {
        format!("{}s", millis / 1_000)
    } else {
        format!("{millis}ms")
    }
}

fn digits(text: &str) -> Option<u64> {
    // `parse` alone would accept a sign.
    if !text.starts_with(|first: char| first.is_ascii_digit()) {
        return None;
    }
    text.replace('_', "").parse().ok()
}

fn decimal(text: &str) -> Option<f64> {
    // `parse` alone would accept `inf`, `nan`, exponents and signs.
    let plain = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    plain.then(|| text.parse().ok()).flatten()
}

fn scaled(text: &str, factor: u32) -> Option<u64> {
    if let Some(whole) = digits(text) {
        return whole.checked_mul(u64::from(factor));
    }
    // Saturates far above every range.
    decimal(text).map(|number| (number * f64::from(factor)) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn counts() {
        let written = [
            ("0", Some(0)),
            ("1_000_000", Some(1_000_000)),
            ("64Ki", Some(65_536)),
            ("16Mi", Some(16 << 20)),
            ("1Gi", Some(1 << 30)),
            ("10k", Some(10_000)),
            ("5M", Some(5_000_000)),
            ("1G", Some(1_000_000_000)),
            ("2^26", Some(1 << 26)),
            ("2^64", None),
            ("18446744073709551615Ki", None),
            ("", None),
            ("Ki", None),
            ("-1", None),
            ("+1", None),
            ("_1", None),
            ("1.5", None),
            ("0x10", None),
            ("64 Kb", None),
        ];
        for (text, expected) in written {
            assert_eq!(count(text), expected, "{text:?}");
        }
    }

    #[test]
    fn sizes() {
        let written = [
            ("64MiB", Some(64 << 20)),
            ("64Mi", Some(64 << 20)),
            ("1GB", Some(1_000_000_000)),
            ("12B", Some(12)),
            ("2^20", Some(1 << 20)),
            ("B", None),
            ("MiB", None),
            ("64MiBB", None),
            ("64 MiB", None),
            ("1.5MiB", None),
        ];
        for (text, expected) in written {
            assert_eq!(size(text), expected, "{text:?}");
        }
        assert_eq!(show_size(3 << 20), "3MiB");
        assert_eq!(show_size(1536 << 20), "1536MiB");
        assert_eq!(show_size(1000), "1000");
        assert_eq!(show_size(0), "0");
    }

    #[test]
    fn times() {
        let written = [
            ("500ms", Some(500)),
            ("120s", Some(120_000)),
            ("120", Some(120_000)),
            ("1.5s", Some(1_500)),
            ("0.5", Some(500)),
            ("2m", Some(120_000)),
            ("1h", Some(3_600_000)),
            ("2 m", Some(120_000)),
            ("", None),
            ("s", None),
            ("-1s", None),
            ("inf", None),
            ("1d", None),
            ("1.2.3s", None),
        ];
        for (text, expected) in written {
            assert_eq!(millis(text), expected, "{text:?}");
        }
    }

    #[test]
    fn ratios() {
        let written = [
            ("0.8", Some(0.8)),
            ("80%", Some(0.8)),
            ("1", Some(1.0)),
            (".", None),
            ("nan", None),
            ("-0.1", None),
            ("1e3", None),
        ];
        for (text, expected) in written {
            assert_eq!(ratio(text), expected, "{text:?}");
        }
    }

    #[test]
    fn seeds() {
        assert_eq!(seed("public"), Some(HashSeed::PUBLIC));
        assert_eq!(seed("00ff"), Some(HashSeed::new(255)));
        assert_eq!(seed(&"f".repeat(32)), Some(HashSeed::new(u128::MAX)));
        for bad in ["", "secret", "+1", "0x1", " 1", &"f".repeat(33)] {
            assert_eq!(seed(bad), None, "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_shown_reads_back(number: u64, shift in 0_u32..64) {
            for number in [number, number >> shift, 1 << shift] {
                prop_assert_eq!(count(&show_count(number)), Some(number));
                prop_assert_eq!(size(&show_size(number)), Some(number));
                prop_assert_eq!(millis(&show_millis(number)), Some(number));
            }
        }

        #[test]
        fn no_text_makes_it_panic(text in "\\PC{0,12}") {
            let _ = (count(&text), size(&text), millis(&text), ratio(&text), seed(&text));
        }
    }
}
