//! What is said on the side channel? A line of JSON at a time.

use std::io;

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// The longest line, in bytes.
const LONGEST_LINE: usize = 64 << 10;

/// What the side that wants KV says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Ask {
    /// What was staged under this name.
    Fetch {
        engine: String,
        request: String,
        missing: u32,
        fingerprint: u64,
    },
    /// It is not needed.
    Decline { engine: String, request: String },
    /// What is computed for this room.
    Meet { room: u64, missing: u32, fingerprint: u64 },
    /// It has come.
    Done,
}

/// What the side that has KV says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Reply {
    /// It is on its way now.
    Coming,
    /// All of it was sent. So many tokens of the prompt were in the cache when it was computed.
    Sent { bytes: u64, fingerprint: u64, cached: u32 },
    /// It is not there.
    Gone { why: String },
    /// Its blocks are free.
    Released,
}

pub(super) async fn say<T: Serialize>(stream: &mut TcpStream, message: &T) -> io::Result<()> {
    let mut line = serde_json::to_vec(message).map_err(io::Error::other)?;
    line.push(b'\n');
    stream.write_all(&line).await
}

/// The next line. Nothing is sent before it was asked for, so nothing is read beyond it.
pub(super) async fn hear<T: DeserializeOwned>(stream: &mut TcpStream) -> io::Result<T> {
    let mut line = Vec::new();
    loop {
        let byte = stream.read_u8().await?;
        if byte == b'\n' {
            return serde_json::from_slice(&line).map_err(io::Error::other);
        }
        if line.len() >= LONGEST_LINE {
            return Err(io::Error::other("the line is too long"));
        }
        line.push(byte);
    }
}
