//! What is around the events? A batch is `[time, events, rank]`, or a map of the same.

use homing_domain::DpRank;

use crate::error::WireError;
use crate::msgpack::{Cursor, Fault, Value};

/// What a batch says beside its events.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Outer {
    pub(super) sent_ms: Option<u64>,
    pub(super) dp: Option<DpRank>,
}

/// Reads a batch. `event` reads one event each time; the only thing that can be wrong with one is that the bytes end.
pub(super) fn read<'a>(
    payload: &'a [u8],
    mut event: impl FnMut(&mut Cursor<'a>) -> Result<(), Fault>,
) -> Result<Outer, WireError> {
    let mut cursor = Cursor::new(payload);
    let read = outer(&mut cursor, &mut event).map_err(|(fault, what)| match fault {
        Fault::CutOff => WireError::CutOff { length: payload.len() },
        Fault::Type => WireError::Form { what, at: cursor.at() },
    })?;
    match cursor.left() {
        0 => Ok(read),
        bytes => Err(WireError::Trailing { bytes }),
    }
}

type Failure = (Fault, &'static str);

fn outer<'a>(
    cursor: &mut Cursor<'a>,
    event: &mut impl FnMut(&mut Cursor<'a>) -> Result<(), Fault>,
) -> Result<Outer, Failure> {
    const WHAT: &str = "a list of time and events, or a map with `events`, was expected";
    let mut outer = Outer::default();
    match cursor.read().map_err(|fault| (fault, WHAT))? {
        Value::Array(length) if length >= 2 => {
            outer.sent_ms = time(cursor)?;
            events(cursor, event)?;
            if length >= 3 {
                outer.dp = rank(cursor)?;
            }
            for _ in 3..length {
                pass_over(cursor)?;
            }
        }
        Value::Map(length) => {
            let mut any = false;
            for _ in 0..length {
                match cursor.read().map_err(|fault| (fault, "a key"))? {
                    Value::Text(b"ts") => outer.sent_ms = time(cursor)?,
                    Value::Text(b"events") if !any => {
                        events(cursor, event)?;
                        any = true;
                    }
                    Value::Text(b"data_parallel_rank" | b"attn_dp_rank" | b"dp_rank") => outer.dp = rank(cursor)?,
                    Value::Text(_) => pass_over(cursor)?,
                    _ => return Err((Fault::Type, "a key of the batch was expected")),
                }
            }
            if !any {
                return Err((Fault::Type, WHAT));
            }
        }
        _ => return Err((Fault::Type, WHAT)),
    }
    Ok(outer)
}

fn events<'a>(
    cursor: &mut Cursor<'a>,
    event: &mut impl FnMut(&mut Cursor<'a>) -> Result<(), Fault>,
) -> Result<(), Failure> {
    const WHAT: &str = "a list of events was expected";
    let Value::Array(length) = cursor.read().map_err(|fault| (fault, WHAT))? else {
        return Err((Fault::Type, WHAT));
    };
    for _ in 0..length {
        event(cursor).map_err(|fault| (fault, "an event was expected"))?;
    }
    Ok(())
}

fn time(cursor: &mut Cursor<'_>) -> Result<Option<u64>, Failure> {
    const WHAT: &str = "the time in seconds was expected";
    match cursor.read().map_err(|fault| (fault, WHAT))? {
        Value::Nil => Ok(None),
        // A time before 1970, or none at all, saturates or is left out; it is only ever used to measure lag.
        Value::Float(seconds) => Ok((seconds.is_finite() && seconds >= 0.0).then_some((seconds * 1e3) as u64)),
        Value::Unsigned(seconds) => Ok(seconds.checked_mul(1000)),
        _ => Err((Fault::Type, WHAT)),
    }
}

fn rank(cursor: &mut Cursor<'_>) -> Result<Option<DpRank>, Failure> {
    const WHAT: &str = "a data-parallel rank was expected";
    match cursor.read().map_err(|fault| (fault, WHAT))? {
        Value::Nil => Ok(None),
        Value::Unsigned(rank) => u16::try_from(rank)
            .map(|rank| Some(DpRank(rank)))
            .map_err(|_| (Fault::Type, WHAT)),
        _ => Err((Fault::Type, WHAT)),
    }
}

fn pass_over(cursor: &mut Cursor<'_>) -> Result<(), Failure> {
    cursor.skip().map_err(|fault| (fault, "a value was expected"))
}
