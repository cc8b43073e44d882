//! How do the reasons of a choice read as JSON? Written by hand: core types derive no serialisation, and there are only names of
//! our own and numbers in it.

use std::fmt::Write;

use crate::choose::Why;

pub(crate) fn why(why: &Why) -> String {
    let mut out = String::with_capacity(256);
    // Writing to a string cannot fail.
    let _ = write!(out, "{{\"because\":\"{}\",\"pair\":", why.because.name());
    match why.pair {
        Some(pair) => {
            let _ = write!(
                out,
                "{{\"cost\":{},\"first_token_ms\":{},\"transfer_ms\":{},\"bytes\":{}}}",
                number(pair.cost),
                number(pair.first_token.0),
                number(pair.transfer.0),
                pair.bytes
            );
        }
        None => out.push_str("null"),
    }
    out.push_str(",\"one_worker\":");
    match why.whole {
        Some((cost, first_token)) => {
            let _ = write!(
                out,
                "{{\"cost\":{},\"first_token_ms\":{}}}",
                number(cost),
                number(first_token.0)
            );
        }
        None => out.push_str("null"),
    }
    let _ = write!(
        out,
        ",\"pairs\":{},\"other_format\":{},\"other_place\":{}}}",
        why.pairs, why.other_format, why.other_place
    );
    out
}

/// JSON has no word for what is not finite.
fn number(value: f64) -> String {
    if value.is_finite() {
        format!("{value:.4}")
    } else {
        "null".to_owned()
    }
}
