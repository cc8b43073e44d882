//! Which bytes does ZMTP 3 put on a connection?
//!
//! Sans IO: [`Decoder`] takes bytes in pieces of any size and gives messages and commands; the functions of `encode`
//! append bytes. What is done in which order is the affair of the connection.
//!
//! **Invariant:** no bytes make it panic, and what it keeps is at most what the limits allow and at most what it was
//! given: a length is believed when the bytes are there.
//!
//! **Invariant:** how the bytes are cut into pieces makes no difference.
//!
//! Cost: each byte of a message is copied once.

mod command;
mod decode;
mod encode;
mod greeting;

pub use command::Command;
pub use decode::{Decoder, Incoming};
pub(crate) use encode::{message, ping, pong, ready, subscribe};
pub(crate) use greeting::OURS as GREETING;
pub use greeting::{GREETING_BYTES, Greeting, PeerVersion};

/// The longest command that is read. The longest that libzmq sends is a READY with an identity of 255 bytes.
pub const COMMAND_BYTES: u32 = 8 << 10;
/// The longest topic that can be subscribed to.
pub const TOPIC_BYTES: usize = 1 << 10;
/// The longest request that can be sent to a replay socket, all frames together.
pub const REQUEST_BYTES: usize = 1 << 10;

/// Set in a frame's flags: the next frame belongs to the same message.
const MORE: u8 = 1;
/// Set in a frame's flags: the length has eight bytes and not one.
const LONG: u8 = 2;
/// Set in a frame's flags: this is a command and not part of a message.
const COMMAND: u8 = 4;
