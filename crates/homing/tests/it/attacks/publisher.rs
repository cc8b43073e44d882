//! A publisher of KV events that says what a test wants: ZMTP and MessagePack by hand, because a library would refuse to send most of it.

use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use super::harness::DEADLINE;

/// The greeting of ZMTP 3.0 without authentication.
pub fn greeting() -> Vec<u8> {
    let mut greeting = vec![0; 64];
    greeting[0] = 0xff;
    greeting[9] = 0x7f;
    greeting[10] = 3;
    greeting[12..16].copy_from_slice(b"NULL");
    greeting
}

/// The command that ends the handshake, of a socket of this type.
pub fn ready(socket_type: &[u8]) -> Vec<u8> {
    let mut body = b"\x05READY\x0bSocket-Type".to_vec();
    body.extend((socket_type.len() as u32).to_be_bytes());
    body.extend(socket_type);
    frame(0x04, &body)
}

/// A frame with these flags: 1 for more to come, 4 for a command. That it is long is added.
pub fn frame(flags: u8, body: &[u8]) -> Vec<u8> {
    match u8::try_from(body.len()) {
        Ok(size) => [&[flags, size], body].concat(),
        Err(_) => [&[flags | 2][..], &(body.len() as u64).to_be_bytes(), body].concat(),
    }
}

/// A message of these frames.
pub fn message(frames: &[&[u8]]) -> Vec<u8> {
    let last = frames.len() - 1;
    let framed = frames.iter().enumerate();
    framed.flat_map(|(at, body)| frame(u8::from(at < last), body)).collect()
}

/// A batch as engines send it.
pub fn batch_message(number: u64, payload: &[u8]) -> Vec<u8> {
    message(&[b"kv-events", &number.to_be_bytes(), payload])
}

/// A socket to which the binary connects.
#[derive(Debug)]
pub struct Publisher(TcpListener);

impl Publisher {
    pub fn bind() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("there are ports");
        listener.set_nonblocking(true).expect("sockets have options");
        Self(listener)
    }

    pub fn endpoint(&self) -> String {
        format!("tcp://{}", self.0.local_addr().expect("it is bound"))
    }

    /// The next connection.
    pub fn accept(&self) -> io::Result<TcpStream> {
        let until = Instant::now() + DEADLINE;
        loop {
            match self.0.accept() {
                Ok((stream, _)) => {
                    stream.set_nonblocking(false)?;
                    stream.set_nodelay(true)?;
                    stream.set_read_timeout(Some(Duration::from_millis(10)))?;
                    stream.set_write_timeout(Some(DEADLINE))?;
                    return Ok(stream);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && Instant::now() < until => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// The next connection that gets through its handshake.
    pub fn subscriber(&self) -> io::Result<Subscriber> {
        let until = Instant::now() + DEADLINE;
        loop {
            match Subscriber::shake_hands(self.accept()?, &greeting(), &ready(b"PUB")) {
                Ok(subscriber) => return Ok(subscriber),
                // It may have been given up while it waited for us.
                Err(_) if Instant::now() < until => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// The binary at the other end of a connection.
#[derive(Debug)]
pub struct Subscriber {
    stream: TcpStream,
    /// What was read and not looked at.
    buffer: Vec<u8>,
}

impl Subscriber {
    /// Sends these in their turn, and waits for a subscription.
    pub fn shake_hands(stream: TcpStream, greeting: &[u8], ready: &[u8]) -> io::Result<Self> {
        let mut subscriber = Self {
            stream,
            buffer: Vec::new(),
        };
        subscriber.send(greeting)?;
        subscriber.wait(|buffer| buffer.len() >= 64)?;
        subscriber.buffer.drain(..64);
        subscriber.send(ready)?;
        let until = Instant::now() + DEADLINE;
        while !subscriber.answer()? {
            if Instant::now() > until {
                return Err(io::ErrorKind::TimedOut.into());
            }
            subscriber.read()?;
        }
        Ok(subscriber)
    }

    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Reads what is there, and answers pings. An error if the connection has ended.
    pub fn turn(&mut self) -> io::Result<()> {
        self.read()?;
        self.answer().map(|_| ())
    }

    /// Answers what was read. Whether a subscription was in it.
    fn answer(&mut self) -> io::Result<bool> {
        let mut subscribed = false;
        while let Some((flags, body)) = self.next_frame() {
            let is_command = flags & 4 != 0;
            if is_command && let Some(context) = body.strip_prefix(b"\x04PING") {
                let pong = [b"\x04PONG", context.get(2..).unwrap_or_default()].concat();
                self.send(&frame(4, &pong))?;
            }
            subscribed |= !is_command && body.first() == Some(&1) || is_command && body.starts_with(b"\x09SUBSCRIBE");
        }
        Ok(subscribed)
    }

    fn next_frame(&mut self) -> Option<(u8, Vec<u8>)> {
        let flags = *self.buffer.first()?;
        let (begin, size) = if flags & 2 == 0 {
            (2, usize::from(*self.buffer.get(1)?))
        } else {
            let size = self.buffer.get(1..9)?.try_into().ok()?;
            (9, usize::try_from(u64::from_be_bytes(size)).ok()?)
        };
        let body = self.buffer.get(begin..begin + size)?.to_vec();
        self.buffer.drain(..begin + size);
        Some((flags, body))
    }

    /// Reads once, for a moment.
    fn read(&mut self) -> io::Result<()> {
        let mut piece = [0; 4096];
        match self.stream.read(&mut piece) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(size) => {
                self.buffer.extend_from_slice(&piece[..size]);
                Ok(())
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn wait(&mut self, is_there: impl Fn(&[u8]) -> bool) -> io::Result<()> {
        let until = Instant::now() + DEADLINE;
        while !is_there(&self.buffer) {
            if Instant::now() > until {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.read()?;
        }
        Ok(())
    }
}

/// MessagePack, a value at a time.
pub mod pack {
    pub const NIL: &[u8] = b"\xc0";

    pub fn list(items: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = vec![0xdd];
        bytes.extend((items.len() as u32).to_be_bytes());
        bytes.extend(items.concat());
        bytes
    }

    /// Keys and values in turn.
    pub fn map(entries: &[(&str, Vec<u8>)]) -> Vec<u8> {
        let mut bytes = vec![0xdf];
        bytes.extend((entries.len() as u32).to_be_bytes());
        for (key, value) in entries {
            bytes.extend(text(key));
            bytes.extend(value);
        }
        bytes
    }

    pub fn text(text: &str) -> Vec<u8> {
        let mut bytes = vec![0xdb];
        bytes.extend((text.len() as u32).to_be_bytes());
        bytes.extend(text.as_bytes());
        bytes
    }

    pub fn number(number: u64) -> Vec<u8> {
        let mut bytes = vec![0xcf];
        bytes.extend(number.to_be_bytes());
        bytes
    }

    pub fn signed(number: i64) -> Vec<u8> {
        let mut bytes = vec![0xd3];
        bytes.extend(number.to_be_bytes());
        bytes
    }

    pub fn float(number: f64) -> Vec<u8> {
        let mut bytes = vec![0xcb];
        bytes.extend(number.to_be_bytes());
        bytes
    }

    pub fn numbers(numbers: impl IntoIterator<Item = u64>) -> Vec<u8> {
        list(&numbers.into_iter().map(number).collect::<Vec<_>>())
    }

    pub fn nil() -> Vec<u8> {
        NIL.to_vec()
    }

    /// A batch of these events.
    pub fn batch(events: &[Vec<u8>]) -> Vec<u8> {
        list(&[float(1.0), list(events), number(0)])
    }

    /// A stored event of one block, as vLLM writes it.
    pub fn stored(hash: u64, parent: Option<u64>, tokens: impl IntoIterator<Item = u64>) -> Vec<u8> {
        let tokens: Vec<u64> = tokens.into_iter().collect();
        list(&[
            text("BlockStored"),
            numbers([hash]),
            parent.map_or_else(nil, number),
            numbers(tokens.iter().copied()),
            number(tokens.len() as u64),
            nil(),
            text("GPU"),
        ])
    }
}
