//! Sends requests over one HTTP/1.1 connection and reads their answers.
//!
//! The task that reads an answer reads the socket itself: a piece wakes one task, once, and goes through no queue. That is why it does not
//! use hyper's client, which has a task for each connection ([ADR 11](../../../docs/adr/0011-the-gateway.md)).
//!
//! **Invariant:** a connection carries another request only if all of the last answer was read, nothing came behind it, and neither side
//! said that it was the last.
//!
//! **Invariant:** what is kept of an answer that nobody takes is one read: nothing is read before what came was given out.
//!
//! Answers are read as strictly as requests: one that can be read in two ways is an error.
//!
//! Request bodies are sent as a whole. Upgrades and HEAD requests are not supported.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes, BytesMut};
use homing_tls::Io;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::http::response;
use hyper::{Request, Response, StatusCode, Version};
use thiserror::Error;
use tokio::io::{AsyncRead as _, AsyncWriteExt as _, ReadBuf};

use crate::chunks::{chunk_size, without_line_end};

/// The most that is read at once.
const READ: usize = 32 << 10;
/// The longest head of an answer.
const LONGEST_HEAD: usize = 64 << 10;
/// The most headers of one.
const MOST_HEADERS: usize = 128;
/// The longest line of a size or a trailer.
const LONGEST_LINE: usize = 8 << 10;
/// Bodies up to this are copied behind their head, to be sent at once.
const SHORT_BODY: usize = 64 << 10;

thread_local! {
    /// Where a thread reads to. What came is copied out, because thousands of streams that send little would else keep room for much each.
    static ROOM: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ].into());
}

/// Why there is no answer, or no more of it.
#[derive(Debug, Error)]
pub enum ConnectionError {
    /// Reading or writing failed.
    #[error("the connection broke: {0}")]
    Broken(#[from] io::Error),
    /// The server closed it.
    #[error("the connection was closed before the answer was complete")]
    Closed,
    /// The body is longer than is read.
    #[error("the answer has more than {0} bytes")]
    Long(usize),
    /// The answer is not HTTP/1.1 as it should be.
    #[error("what was answered is no HTTP: {0}")]
    Strange(&'static str),
}

/// A connection to a server.
#[derive(Debug)]
pub struct HttpConnection {
    stream: Io,
    /// What was read and not given out.
    read: BytesMut,
    rest: Rest,
    /// Whether another request may follow.
    keeps: bool,
    /// Whether it carried a request before.
    pub used: bool,
}

/// What is still to come of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rest {
    Nothing,
    /// So many bytes.
    Bytes(u64),
    /// Everything until the connection is closed.
    UntilClosed,
    /// The line with the size of a chunk.
    Size,
    /// So many bytes of a chunk.
    Chunk(u64),
    /// The line break behind a chunk.
    ChunkEnd,
    /// Lines behind the last chunk, until an empty one.
    Trailers,
}

impl HttpConnection {
    /// A connection that stands.
    pub fn new(stream: Io) -> Self {
        Self {
            stream,
            read: BytesMut::new(),
            rest: Rest::Nothing,
            keeps: true,
            used: false,
        }
    }

    /// Whether another request can be sent over it: it is not closed, and nothing was said that nobody asked for.
    pub fn is_free(&self) -> bool {
        self.keeps && self.rest == Rest::Nothing && self.read.is_empty() && self.stream.is_quiet()
    }

    /// Sends a request, and waits for the head of its answer. What comes behind it is given out by [`Self::piece`].
    pub async fn send(&mut self, request: Request<Bytes>) -> Result<response::Parts, ConnectionError> {
        // If it breaks off here, the connection is of no use.
        let kept = std::mem::replace(&mut self.keeps, false);
        let written = self.write(&request).await;
        let head = match (self.head().await, written) {
            (Ok(head), _) => head,
            (Err(_), Err(error)) => return Err(error.into()),
            (Err(error), Ok(())) => return Err(error),
        };
        self.rest = rest_of(&head)?;
        self.keeps = kept && self.rest != Rest::UntilClosed && stays_open(&head);
        self.used = true;
        Ok(head)
    }

    async fn write(&mut self, request: &Request<Bytes>) -> io::Result<()> {
        let body = request.body();
        let mut head = Vec::with_capacity(1024 + if body.len() <= SHORT_BODY { body.len() } else { 0 });
        head.extend_from_slice(request.method().as_str().as_bytes());
        head.push(b' ');
        let target = request.uri().path_and_query().map_or("/", |target| target.as_str());
        head.extend_from_slice(target.as_bytes());
        head.extend_from_slice(b" HTTP/1.1\r\n");
        for (name, value) in request.headers() {
            head.extend_from_slice(name.as_str().as_bytes());
            head.extend_from_slice(b": ");
            head.extend_from_slice(value.as_bytes());
            head.extend_from_slice(b"\r\n");
        }
        head.extend_from_slice(format!("content-length: {}\r\n\r\n", body.len()).as_bytes());
        if body.len() <= SHORT_BODY {
            head.extend_from_slice(body);
            self.stream.write_all(&head).await?;
        } else {
            self.stream.write_all(&head).await?;
            self.stream.write_all(body).await?;
        }
        self.stream.flush().await
    }

    async fn head(&mut self) -> Result<response::Parts, ConnectionError> {
        loop {
            if let Some((head, size)) = parsed(&self.read)? {
                self.read.advance(size);
                // 100 and its like announce another one.
                if !head.status.is_informational() {
                    return Ok(head);
                }
                continue;
            }
            if self.read.len() >= LONGEST_HEAD {
                return Err(ConnectionError::Strange("its head has no end"));
            }
            if poll_fn(|cx| self.fill(cx)).await? == 0 {
                return Err(ConnectionError::Closed);
            }
        }
    }

    /// The next piece of the answer; nothing after its end.
    pub async fn piece(&mut self) -> Option<Result<Bytes, ConnectionError>> {
        poll_fn(|cx| self.poll_piece(cx)).await
    }

    /// The same, to be polled.
    pub fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, ConnectionError>>> {
        loop {
            match self.take() {
                Ok(Taken::Piece(piece)) => return Poll::Ready(Some(Ok(piece))),
                Ok(Taken::End) => return Poll::Ready(None),
                Ok(Taken::NotYet) => {}
                Err(error) => return Poll::Ready(Some(Err(self.broken(error)))),
            }
            match ready!(self.fill(cx)) {
                Ok(0) if self.rest == Rest::UntilClosed => self.rest = Rest::Nothing,
                Ok(0) => return Poll::Ready(Some(Err(self.broken(ConnectionError::Closed)))),
                Ok(_) => {}
                Err(error) => return Poll::Ready(Some(Err(self.broken(error.into())))),
            }
        }
    }

    /// All that is left of the answer, which is not to be longer.
    pub async fn whole(&mut self, most: usize) -> Result<Bytes, ConnectionError> {
        let mut whole = BytesMut::new();
        while let Some(piece) = self.piece().await {
            whole.extend_from_slice(&piece?);
            if whole.len() > most {
                return Err(ConnectionError::Long(most));
            }
        }
        Ok(whole.freeze())
    }

    fn broken(&mut self, error: ConnectionError) -> ConnectionError {
        (self.keeps, self.rest) = (false, Rest::Nothing);
        error
    }

    /// Reads once.
    fn fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        ROOM.with_borrow_mut(|room| {
            let mut room = ReadBuf::new(room);
            ready!(Pin::new(&mut self.stream).poll_read(cx, &mut room))?;
            self.read.extend_from_slice(room.filled());
            Poll::Ready(Ok(room.filled().len()))
        })
    }

    /// Takes what is next of what was read.
    fn take(&mut self) -> Result<Taken, ConnectionError> {
        loop {
            match self.rest {
                Rest::Nothing => return Ok(Taken::End),
                _ if self.read.is_empty() => return Ok(Taken::NotYet),
                Rest::UntilClosed => return Ok(Taken::Piece(self.read.split().freeze())),
                Rest::Bytes(left) => {
                    let (piece, left) = self.part(left);
                    self.rest = if left == 0 { Rest::Nothing } else { Rest::Bytes(left) };
                    return Ok(Taken::Piece(piece));
                }
                Rest::Chunk(left) => {
                    let (piece, left) = self.part(left);
                    self.rest = if left == 0 { Rest::ChunkEnd } else { Rest::Chunk(left) };
                    return Ok(Taken::Piece(piece));
                }
                Rest::ChunkEnd | Rest::Size | Rest::Trailers => {
                    let Some(end) = self.line_end()? else {
                        return Ok(Taken::NotYet);
                    };
                    let line = without_line_end(&self.read[..=end]).map_err(ConnectionError::Strange)?;
                    self.rest = match self.rest {
                        Rest::ChunkEnd if line.is_empty() => Rest::Size,
                        Rest::ChunkEnd => return Err(ConnectionError::Strange("a chunk is longer than it says")),
                        Rest::Size => match chunk_size(line).map_err(ConnectionError::Strange)? {
                            0 => Rest::Trailers,
                            size => Rest::Chunk(size),
                        },
                        _ if line.is_empty() => Rest::Nothing,
                        _ => Rest::Trailers,
                    };
                    self.read.advance(end + 1);
                }
            }
        }
    }

    /// What is there of so many bytes, and how many are left.
    fn part(&mut self, left: u64) -> (Bytes, u64) {
        let here = usize::try_from(left).unwrap_or(usize::MAX).min(self.read.len());
        (self.read.split_to(here).freeze(), left - here as u64)
    }

    /// Where the next line ends, if all of it is there.
    fn line_end(&self) -> Result<Option<usize>, ConnectionError> {
        let end = memchr::memchr(b'\n', &self.read);
        if end.is_none() && self.read.len() > LONGEST_LINE {
            return Err(ConnectionError::Strange("a line has no end"));
        }
        Ok(end)
    }
}

/// What was taken of what was read.
enum Taken {
    Piece(Bytes),
    End,
    /// More must be read first.
    NotYet,
}

/// The head that a text begins with, and its length; nothing if it is not complete.
fn parsed(text: &[u8]) -> Result<Option<(response::Parts, usize)>, ConnectionError> {
    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut response = httparse::Response::new(&mut headers);
    let size = match response.parse(text) {
        Ok(httparse::Status::Complete(size)) => size,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(_) => return Err(ConnectionError::Strange("its head cannot be read")),
    };
    if memchr::memchr_iter(b'\n', &text[..size]).any(|at| !text[..at].ends_with(b"\r")) {
        return Err(ConnectionError::Strange(
            "a line of its head does not end with carriage return and line feed",
        ));
    }
    let (mut head, ()) = Response::new(()).into_parts();
    let status = response.code.and_then(|code| StatusCode::from_u16(code).ok());
    head.status = status.ok_or(ConnectionError::Strange("it has no status"))?;
    head.version = match response.version {
        Some(0) => Version::HTTP_10,
        _ => Version::HTTP_11,
    };
    head.headers = HeaderMap::with_capacity(response.headers.len());
    for one in &*response.headers {
        let name = HeaderName::from_bytes(one.name.as_bytes());
        let value = HeaderValue::from_bytes(one.value);
        let (Ok(name), Ok(value)) = (name, value) else {
            return Err(ConnectionError::Strange("it has a header that is none"));
        };
        head.headers.append(name, value);
    }
    Ok(Some((head, size)))
}

/// How the body of an answer is told from what comes behind it.
fn rest_of(head: &response::Parts) -> Result<Rest, ConnectionError> {
    let mut encodings = head.headers.get_all(header::TRANSFER_ENCODING).iter();
    let mut lengths = head.headers.get_all(header::CONTENT_LENGTH).iter();
    let rest = match (encodings.next(), lengths.next()) {
        (Some(_), Some(_)) => return Err(ConnectionError::Strange("it has both a length and a transfer encoding")),
        (Some(_), None) if head.version == Version::HTTP_10 => {
            return Err(ConnectionError::Strange(
                "it has a transfer encoding in HTTP/1.0, which has none",
            ));
        }
        (Some(encoding), None) if encoding.as_bytes().eq_ignore_ascii_case(b"chunked") => Rest::Size,
        (Some(_), None) => return Err(ConnectionError::Strange("its transfer encoding is not `chunked`")),
        (None, Some(length)) => {
            let text = length.to_str().unwrap_or_default();
            let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            match text.parse() {
                Ok(0) if digits => Rest::Nothing,
                Ok(length) if digits => Rest::Bytes(length),
                _ => return Err(ConnectionError::Strange("its length is no number")),
            }
        }
        (None, None) => Rest::UntilClosed,
    };
    if encodings.next().is_some() || lengths.next().is_some() {
        return Err(ConnectionError::Strange("it has two lengths or two transfer encodings"));
    }
    if head.status == StatusCode::NO_CONTENT || head.status == StatusCode::NOT_MODIFIED {
        return Ok(Rest::Nothing);
    }
    Ok(rest)
}

/// Whether the worker keeps the connection open after this answer.
fn stays_open(head: &response::Parts) -> bool {
    let says = |wanted: &str| {
        let lists = head.headers.get_all(header::CONNECTION).iter();
        let mut words = lists.flat_map(|list| list.to_str().unwrap_or_default().split(','));
        words.any(|word| word.trim().eq_ignore_ascii_case(wanted))
    };
    match head.version {
        Version::HTTP_10 => says("keep-alive"),
        _ => !says("close"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt as _;
    use tokio::net::{TcpListener, TcpStream};

    /// A connection to somebody who answers every request with these bytes, in two parts, and says nothing more.
    async fn answering(said: &'static [u8], cut: usize, closes: bool) -> HttpConnection {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.set_nodelay(true).unwrap();
            let mut asked = [0; 1024];
            while stream.read(&mut asked).await.is_ok_and(|size| size > 0) {
                stream.write_all(&said[..cut]).await.unwrap();
                tokio::task::yield_now().await;
                stream.write_all(&said[cut..]).await.unwrap();
                if closes {
                    return;
                }
            }
        });
        HttpConnection::new(Io::Plain(TcpStream::connect(address).await.unwrap()))
    }

    fn asked() -> Request<Bytes> {
        let mut request = Request::new(Bytes::from_static(b"{}"));
        *request.uri_mut() = "/v1/x?y".parse().unwrap();
        request
            .headers_mut()
            .insert(header::HOST, HeaderValue::from_static("h"));
        request
    }

    async fn body(line: &mut HttpConnection) -> Result<Vec<u8>, ConnectionError> {
        let mut all = Vec::new();
        while let Some(piece) = line.piece().await {
            all.extend_from_slice(&piece?);
        }
        Ok(all)
    }

    #[tokio::test]
    async fn an_answer_is_the_same_however_it_is_cut() {
        const CHUNKED: &[u8] =
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nx: y\r\n\r\n\
            5;a=b\r\nhello\r\n1\r\n \r\nA\r\n0123456789\r\n0\r\nt: u\r\n\r\n";
        const COUNTED: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 16\r\nx: y\r\n\r\nhello 0123456789";
        for said in [CHUNKED, COUNTED] {
            for cut in 0..said.len() {
                let mut line = answering(said, cut, false).await;
                for _ in 0..2 {
                    let head = line.send(asked()).await.unwrap();
                    assert_eq!(
                        (head.status, &head.headers["x"]),
                        (StatusCode::OK, &HeaderValue::from_static("y"))
                    );
                    assert_eq!(body(&mut line).await.unwrap(), b"hello 0123456789", "cut at {cut}");
                    assert!(line.is_free(), "cut at {cut}");
                }
            }
        }
    }

    #[tokio::test]
    async fn an_answer_without_a_length_ends_with_its_connection() {
        let mut line = answering(b"HTTP/1.1 200 OK\r\n\r\nhello", 20, true).await;
        line.send(asked()).await.unwrap();
        assert_eq!(body(&mut line).await.unwrap(), b"hello");
        assert!(!line.is_free());
    }

    #[tokio::test]
    async fn what_breaks_off_or_is_strange_is_an_error_and_ends_the_connection() {
        let wrong: [&[u8]; 7] = [
            b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhello",
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhel",
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello",
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nhello\r\n",
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n-1\r\nhello\r\n",
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5 \r\nhello\r\n0\r\n\r\n",
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\nhello\r\n0\r\n\r\n",
        ];
        for said in wrong {
            let mut line = answering(said, said.len(), true).await;
            line.send(asked()).await.unwrap();
            assert!(body(&mut line).await.is_err(), "{said:?}");
            assert!(!line.is_free());
        }
        for said in [
            &b""[..],
            b"HTTP/1.1 200",
            b"no HTTP\r\n\r\n",
            b"HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n",
            b"HTTP/1.1 200 OK\r\ncontent-length: +0\r\n\r\n",
            b"HTTP/1.1 200 OK\r\ncontent-length: 0, 0\r\n\r\n",
            b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\ncontent-length: 0\r\n\r\n",
            b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-length: 5\r\n\r\n0\r\n\r\n",
            b"HTTP/1.1 204 No Content\r\ntransfer-encoding: chunked\r\ncontent-length: 5\r\n\r\n",
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: identity\r\n\r\n",
            b"HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
            b"HTTP/1.1 200 OK\ncontent-length: 0\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nx: a\r\n folded\r\ncontent-length: 0\r\n\r\n",
            b"HTTP/1.1 200 OK\r\ncontent-length : 0\r\n\r\n",
        ] {
            let mut line = answering(said, said.len(), true).await;
            assert!(line.send(asked()).await.is_err(), "{said:?}");
            assert!(!line.is_free());
        }
    }

    #[tokio::test]
    async fn a_connection_that_is_closed_or_says_more_is_not_used_again() {
        for (said, closes) in [
            (
                &b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"[..],
                false,
            ),
            (b"HTTP/1.0 200 OK\r\ncontent-length: 0\r\n\r\n", false),
            (b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\nmore", false),
            (b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", true),
        ] {
            let mut line = answering(said, said.len(), closes).await;
            line.send(asked()).await.unwrap();
            assert!(body(&mut line).await.unwrap().is_empty());
            while line.is_free() {
                tokio::task::yield_now().await;
            }
        }
    }
}
