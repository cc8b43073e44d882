//! What traffic arrives?
//!
//! Every trace, whatever its format, and every generator is a stream of [`Request`]s ([`Traffic`]). Nothing here does IO: readers take
//! anything that is read line by line.
//!
//! - [`request`]: what arrives ([`Request`], [`Arrival`]); start here;
//! - [`content`]: prompts without texts ([`Prompt`], [`Segment`]), and how they become tokens ([`Spelling`]);
//! - [`conversation`]: the whole prompt of a request that extends an answer ([`Conversations`]);
//! - [`mod@format`]: readers ([`Reader`], [`Format`]) and our own log ([`LogRecord`]);
//! - [`generate`]: traffic from a seed ([`Workload`]);
//! - [`transform`]: faster, shorter, longer, denser ([`Traffic`], [`superpose`], [`repeat`]);
//! - [`analyse`]: what caches and schedules could make of a trace;
//! - [`agenda`]: what a driver asks: which request is due next ([`Agenda`])?
//!
//! **Invariant:** a trace is ordered by the earliest time at which its requests can arrive, and stays so under every transform.
//!
//! **Invariant:** the same file, seed and options give the same requests and the same tokens on every machine.
//!
//! **Invariant:** no input makes a reader panic or hold more than its options allow.
//!
//! Cost: a request takes 160 bytes and 16 for each segment; tokens exist only while somebody spells them. A line of twenty blocks is
//! read in a few microseconds.
//!
//! It does not know engines, routers or real texts. How a driver uses it:
//!
//! ```
//! use homing_profile::Millis;
//! use homing_trace::analyse::Summary;
//! use homing_trace::{Agenda, Answer, Conversations, ReadOptions, Reader, Request, Shift, Spelling, superpose};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let file = r#"{"timestamp": 0, "input_length": 700, "output_length": 2, "hash_ids": [1, 2]}
//!               {"timestamp": 900, "input_length": 512, "output_length": 2, "hash_ids": [1]}"#;
//! let options = ReadOptions::new("file.jsonl");
//! let block = options.block;
//! let trace: Vec<Request> = Reader::open(file.as_bytes(), options)?.collect::<Result<_, _>>()?;
//! let open = || Ok(trace.iter().cloned().map(Ok));
//!
//! // A load of 85% on 16 workers that compute ten tokens in a millisecond.
//! let work = |new: u32| Millis(f64::from(new) / 10.0);
//! let summary = Summary::of(open()?, block, |request| work(request.new_tokens().0))?;
//! let copies = (16.0 * 0.85 * summary.span.millis() / summary.work.0).round() as u32;
//! let shift = Shift::Around(summary.span.since(homing_profile::Time::ZERO));
//! let traffic = superpose(copies, shift, open)?;
//!
//! let mut agenda = Agenda::new(traffic, 10_000);
//! let mut open_sessions = Conversations::new(10_000);
//! let mut tokens = Vec::new();
//! let mut sent = 0;
//! while let Some((at, request)) = agenda.pop()? {
//!     let text = open_sessions.text(&request)?;
//!     tokens.clear();
//!     text.tokens_into(&Spelling::default(), &mut tokens);
//!     // Here an engine computes; then:
//!     if let Some(session) = request.session {
//!         open_sessions.answered(session, text, Answer::Said(&[1, 2]));
//!         agenda.ended(session, at + Millis(20.0));
//!     }
//!     sent += 1;
//! }
//! assert_eq!(sent, 2 * copies);
//! # Ok(())
//! # }
//! ```

#![cfg_attr(
    not(test),
    forbid(clippy::disallowed_methods, clippy::disallowed_types, clippy::disallowed_macros)
)]

pub mod agenda;
pub mod analyse;
pub mod content;
pub mod conversation;
pub mod error;
pub mod format;
pub mod generate;
mod lines;
mod recent;
pub mod request;
pub mod rng;
pub mod transform;

pub use agenda::{Agenda, AgendaError};
pub use content::{ContentId, CopyNo, Origin, Part, Prompt, Segment, Spelling, Start, Text};
pub use conversation::{Answer, Conversations, UnknownSession};
pub use error::{Problem, TraceError};
pub use format::log::LogRecord;
pub use format::{Format, LogSessions, ReadOptions, Reader};
pub use generate::{Arrivals, Workload};
pub use request::{Arrival, Client, Request, SessionId};
pub use rng::Rng;
pub use transform::{Factor, Shift, Traffic, Window, merge, repeat, superpose};
