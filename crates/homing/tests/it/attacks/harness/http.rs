//! HTTP/1.1 byte for byte over a blocking socket, without a library that corrects what a test sends.

use std::io::{self, Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use serde_json::Value;

use super::DEADLINE;

/// A head with its body, of a request or an answer.
#[derive(Clone, Debug, Default)]
pub struct Message {
    pub first_line: String,
    pub headers: Vec<(String, String)>,
    /// Without chunk sizes.
    pub body: Vec<u8>,
    /// As it came.
    pub raw: Vec<u8>,
}

impl Message {
    /// The value of the first header of that name.
    pub fn header(&self, name: &str) -> Option<&str> {
        let same = |(other, _): &&(String, String)| other.eq_ignore_ascii_case(name);
        self.headers.iter().find(same).map(|(_, value)| value.as_str())
    }
}

/// An answer.
#[derive(Clone, Debug)]
pub struct Response {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Response {
    pub fn header(&self, name: &str) -> Option<&str> {
        let same = |(other, _): &&(String, String)| other.eq_ignore_ascii_case(name);
        self.headers.iter().find(same).map(|(_, value)| value.as_str())
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    /// The message of an error in the format of OpenAI or Anthropic; `None` if the body is none.
    pub fn error_message(&self) -> Option<String> {
        let body: Value = serde_json::from_slice(&self.body).ok()?;
        Some(body["error"]["message"].as_str()?.to_owned())
    }
}

/// A connection and what was read too much from it.
#[derive(Debug)]
pub struct Connection {
    pub stream: TcpStream,
    buffer: Vec<u8>,
}

impl Connection {
    pub fn open(address: &str) -> Self {
        Self::try_open(address).unwrap_or_else(|error| panic!("cannot connect to {address}: {error}"))
    }

    pub fn try_open(address: &str) -> io::Result<Self> {
        let address = address.to_socket_addrs()?.next().ok_or(io::ErrorKind::NotFound)?;
        Ok(Self::of(TcpStream::connect_timeout(&address, DEADLINE)?))
    }

    pub fn of(stream: TcpStream) -> Self {
        stream.set_nodelay(true).expect("sockets have options");
        let connection = Self {
            stream,
            buffer: Vec::new(),
        };
        connection.set_deadline(DEADLINE);
        connection
    }

    /// How long one read or write may take.
    pub fn set_deadline(&self, deadline: Duration) {
        self.stream
            .set_read_timeout(Some(deadline))
            .expect("sockets have options");
        self.stream
            .set_write_timeout(Some(deadline))
            .expect("sockets have options");
    }

    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.stream.write_all(bytes.as_ref())
    }

    /// The next answer, those that announce another one left out.
    pub fn read_response(&mut self) -> io::Result<Response> {
        loop {
            let message = self.read_message(Kind::Response)?;
            let status = message
                .first_line
                .split(' ')
                .nth(1)
                .and_then(|status| status.parse().ok());
            let status = status.ok_or_else(|| strange(format!("no status in {:?}", message.first_line)))?;
            if status >= 200 {
                return Ok(Response {
                    status,
                    headers: message.headers,
                    body: message.body,
                });
            }
        }
    }

    /// The next request; `None` if the connection ends before it.
    pub fn read_request(&mut self) -> io::Result<Option<Message>> {
        if self.buffer.is_empty() && self.fill()? == 0 {
            return Ok(None);
        }
        self.read_message(Kind::Request).map(Some)
    }

    /// Everything until the other side closes.
    pub fn read_to_end(&mut self) -> io::Result<Vec<u8>> {
        while self.fill()? > 0 {}
        Ok(std::mem::take(&mut self.buffer))
    }

    /// Whether the other side closes the connection, and sends nothing more before that.
    pub fn is_closed_by_peer(&mut self) -> bool {
        match self.read_to_end() {
            Ok(rest) => rest.is_empty(),
            Err(error) => error.kind() == io::ErrorKind::ConnectionReset,
        }
    }

    fn fill(&mut self) -> io::Result<usize> {
        let mut piece = [0; 16 << 10];
        let size = self.stream.read(&mut piece)?;
        self.buffer.extend_from_slice(&piece[..size]);
        Ok(size)
    }

    /// Reads until there are so many bytes.
    fn fill_to(&mut self, size: usize) -> io::Result<()> {
        while self.buffer.len() < size {
            if self.fill()? == 0 {
                let seen = String::from_utf8_lossy(&self.buffer).into_owned();
                return Err(io::Error::new(
                    io::ErrorKind::UnexpectedEof,
                    format!("closed after {seen:?}"),
                ));
            }
        }
        Ok(())
    }

    /// Reads to the end of `end`, beginning at `from`; returns the position behind it.
    fn fill_until(&mut self, from: usize, end: &[u8]) -> io::Result<usize> {
        let mut looked = from;
        loop {
            let found = self.buffer[looked..]
                .windows(end.len())
                .position(|window| window == end);
            if let Some(found) = found {
                return Ok(looked + found + end.len());
            }
            looked = from.max((self.buffer.len() + 1).saturating_sub(end.len()));
            self.fill_to(self.buffer.len() + 1)?;
        }
    }

    fn read_message(&mut self, kind: Kind) -> io::Result<Message> {
        let head_end = self.fill_until(0, b"\r\n\r\n")?;
        let head = String::from_utf8_lossy(&self.buffer[..head_end]).into_owned();
        let mut lines = head.trim_end().split("\r\n");
        let mut message = Message {
            first_line: lines.next().unwrap_or_default().to_owned(),
            ..Message::default()
        };
        message.headers = lines
            .map(|line| line.split_once(':').unwrap_or((line, "")))
            .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
            .collect();
        let status = message.first_line.split(' ').nth(1).unwrap_or_default();
        let is_bodyless = kind == Kind::Response && (status.starts_with('1') || status == "204" || status == "304");
        let is_chunked = message
            .header("transfer-encoding")
            .is_some_and(|encoding| encoding.to_ascii_lowercase().contains("chunked"));
        let length: Option<usize> = message.header("content-length").and_then(|length| length.parse().ok());
        let end = match (length, kind) {
            _ if is_bodyless => head_end,
            _ if is_chunked => self.read_chunks(head_end, &mut message.body)?,
            (Some(length), _) => {
                self.fill_to(head_end + length)?;
                message.body = self.buffer[head_end..head_end + length].to_vec();
                head_end + length
            }
            (None, Kind::Request) => head_end,
            (None, Kind::Response) => {
                while self.fill()? > 0 {}
                message.body = self.buffer[head_end..].to_vec();
                self.buffer.len()
            }
        };
        message.raw = self.buffer.drain(..end).collect();
        Ok(message)
    }

    /// Reads chunks that begin at `at` into `body`; returns the position behind them.
    fn read_chunks(&mut self, mut at: usize, body: &mut Vec<u8>) -> io::Result<usize> {
        loop {
            let line_end = self.fill_until(at, b"\r\n")?;
            let line = String::from_utf8_lossy(&self.buffer[at..line_end]).into_owned();
            let size = line.trim().split(';').next().unwrap_or_default();
            let size = usize::from_str_radix(size, 16).map_err(|_| strange(format!("{line:?} is no chunk size")))?;
            if size == 0 {
                // Trailers, until an empty line.
                at = line_end;
                loop {
                    let line_end = self.fill_until(at, b"\r\n")?;
                    if line_end == at + 2 {
                        return Ok(line_end);
                    }
                    at = line_end;
                }
            }
            self.fill_to(line_end + size + 2)?;
            body.extend_from_slice(&self.buffer[line_end..line_end + size]);
            at = line_end + size + 2;
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Request,
    Response,
}

fn strange(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// Sends these bytes over a new connection; returns the first answer.
pub fn try_exchange(address: &str, bytes: impl AsRef<[u8]>) -> io::Result<Response> {
    let mut connection = Connection::try_open(address)?;
    // An answer can come, and the connection end, before all was taken.
    let sent = connection.send(bytes);
    connection.read_response().or_else(|error| sent.and(Err(error)))
}

/// The same, where an answer must come.
pub fn exchange(address: &str, bytes: impl AsRef<[u8]>) -> Response {
    try_exchange(address, bytes).unwrap_or_else(|error| panic!("{address} does not answer: {error}"))
}

/// A request with its length, after which the connection ends.
pub fn request(method: &str, target: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut bytes = format!("{method} {target} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n");
    for (name, value) in headers {
        bytes += &format!("{name}: {value}\r\n");
    }
    if method != "GET" {
        bytes += &format!("content-length: {}\r\n", body.len());
    }
    [bytes.as_bytes(), b"\r\n", body].concat()
}

pub fn get(address: &str, target: &str, headers: &[(&str, &str)]) -> Response {
    exchange(address, request("GET", target, headers, b""))
}

pub fn post_json(address: &str, target: &str, headers: &[(&str, &str)], body: &Value) -> Response {
    let headers = [headers, &[("content-type", "application/json")]].concat();
    exchange(address, request("POST", target, &headers, body.to_string().as_bytes()))
}
