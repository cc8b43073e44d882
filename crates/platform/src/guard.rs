//! What comes over a client's connection before the HTTP library sees it?
//!
//! Heads are checked ([`crate::head`]) and timed, bodies are counted and passed on. A head that is refused is taken away, and the
//! library is given one in its place that nobody else can send, so that the refusal is said in its turn, after the answers
//! to what came before it, and ends the connection.
//!
//! **Invariant:** the library sees whole heads only, which passed, and as much of a body as the head said.
//!
//! **Invariant:** of a head that has not passed at most the limit and one read are kept.
//!
//! A body in chunks is checked while it passes ([`ChunkScanner`]), and its request is the last of its connection: what follows it is not
//! read.
//!
//! Cost: a head that comes in one piece is looked at where it lies. A connection has one timer, which is set anew about once in the
//! time that it may be idle.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use crate::ChunkScanner;
use homing_config::security::DoorLimits;
use homing_telemetry::{Metrics, TurnedAway};
use http_body::{Body, Frame, SizeHint};
use hyper::{HeaderMap, Method, header};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use tokio::time::{Instant, Sleep};

use crate::head::{self, Fault, Framing};

/// What is read at once of a head that did not come in one piece.
const PIECE: usize = 4096;
/// What the library is given in place of a head that was refused.
const INSTEAD: &[u8] = b"HOMING-REFUSED / HTTP/1.1\r\nhost: refused\r\nconnection: close\r\n\r\n";
/// Its method.
const REFUSED: &str = "HOMING-REFUSED";
/// What is read and thrown away of who goes on sending after its answer: closing at once would take the answer from it.
const LEFT_OVER: usize = 1 << 20;
/// And for how long.
const LINGER: Duration = Duration::from_secs(1);

/// What a connection and the requests over it know of each other.
#[derive(Debug)]
pub struct Watch {
    metrics: Arc<Metrics>,
    began: Instant,
    /// Requests that are being answered.
    busy: AtomicU32,
    /// When the last of them ended, in milliseconds since it began.
    ended: AtomicU64,
    refused: OnceLock<Fault>,
    /// Notified once, when another connection takes the place of this one.
    displaced: Notify,
}

impl Watch {
    /// For a connection that begins now.
    pub fn new(metrics: &Arc<Metrics>) -> Arc<Self> {
        Arc::new(Self {
            metrics: metrics.clone(),
            began: Instant::now(),
            busy: AtomicU32::new(0),
            ended: AtomicU64::new(0),
            refused: OnceLock::new(),
            displaced: Notify::new(),
        })
    }

    /// What is wrong with a request, if it stands for one that was refused.
    pub fn fault(&self, method: &Method) -> Option<Fault> {
        self.refused.get().copied().filter(|_| method.as_str() == REFUSED)
    }

    /// Whether no request is being answered.
    pub fn is_idle(&self) -> bool {
        self.busy.load(Relaxed) == 0
    }

    /// Ends the connection, because another one takes its place.
    pub(crate) fn displace(&self) {
        self.displaced.notify_one();
    }

    /// Waits until the connection is to end, because another one takes its place.
    pub async fn displaced(&self) {
        self.displaced.notified().await;
    }

    /// A head has passed: its request is being answered from now on.
    pub(crate) fn begin_request(&self) {
        self.busy.fetch_add(1, Relaxed);
    }

    /// Until when it may be idle; `None` while it is not.
    fn idle_until(&self, idle: Duration) -> Option<Instant> {
        let ended = self.began + Duration::from_millis(self.ended.load(Relaxed));
        self.is_idle().then(|| ended + idle)
    }
}

/// Whether a connection ends with the answer to this request, because nobody counted where its body ends.
pub fn is_last(headers: &HeaderMap) -> bool {
    headers.contains_key(header::TRANSFER_ENCODING)
}

/// Says, when it is dropped, that a request was answered.
#[derive(Debug)]
struct Ticket(Arc<Watch>);

impl Drop for Ticket {
    fn drop(&mut self) {
        let passed = u64::try_from(self.0.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.0.ended.store(passed, Relaxed);
        // One that was refused was not counted.
        let _ = self.0.busy.fetch_update(Relaxed, Relaxed, |busy| busy.checked_sub(1));
    }
}

/// The body of an answer, with whose end its request is over.
#[derive(Debug)]
pub struct Ticketed<B> {
    body: B,
    _ticket: Ticket,
}

impl<B> Ticketed<B> {
    /// The request is over when this body is dropped.
    pub fn new(body: B, watch: Arc<Watch>) -> Self {
        Self {
            body,
            _ticket: Ticket(watch),
        }
    }
}

impl<B: Body + Unpin> Body for Ticketed<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[derive(Debug)]
enum Phase {
    /// A head is to come.
    Head,
    /// So much of what is kept is a head that passed.
    Give(usize, Framing),
    /// So much of a body is to come.
    Body(u64),
    /// Everything belongs to the last request.
    Rest,
    /// Its chunks cannot be read, which is to be said.
    BadChunk(&'static str),
    /// What stands in for a head that was refused is given.
    Instead,
    /// Nothing more is read, and that is not said.
    Mute,
    /// Nothing more is read.
    Over,
}

/// A client's connection.
#[derive(Debug)]
pub struct Guard<S> {
    stream: S,
    watch: Arc<Watch>,
    limits: DoorLimits,
    phase: Phase,
    /// What came and was not passed on.
    kept: Vec<u8>,
    /// How much of it was passed on.
    given: usize,
    /// How much of it is known to hold no end of a head.
    looked: usize,
    /// What is known of the chunks of the last request.
    chunks: ChunkScanner,
    /// When the head that is to come must be there; `None` while nothing of it came after the first.
    due: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
    /// What was thrown away after the last answer, and until when that goes on.
    left: usize,
    linger: Option<Pin<Box<Sleep>>>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Guard<S> {
    /// The time for the first head begins now.
    pub fn new(stream: S, watch: Arc<Watch>, limits: DoorLimits) -> Self {
        Self {
            stream,
            due: Some(Instant::now() + limits.header_time),
            watch,
            limits,
            phase: Phase::Head,
            kept: Vec::new(),
            given: 0,
            looked: 0,
            chunks: ChunkScanner::default(),
            timer: None,
            left: 0,
            linger: None,
        }
    }

    /// Passes on what is kept, up to its byte `until`. Whether all of that was passed on.
    fn give(&mut self, until: usize, out: &mut ReadBuf<'_>) -> bool {
        let size = (until - self.given).min(out.remaining());
        out.put_slice(&self.kept[self.given..self.given + size]);
        self.given += size;
        if self.given < until {
            return false;
        }
        self.kept.drain(..until);
        (self.given, self.looked) = (0, 0);
        true
    }

    fn refuse(&mut self, fault: Fault) {
        self.watch.metrics.gateway.refused_connections.of(fault.label()).add(1);
        // It is set once, because nothing is read after it.
        let _ = self.watch.refused.set(fault);
        self.kept = INSTEAD.to_vec();
        self.given = 0;
        self.phase = Phase::Instead;
    }

    /// A head is whole: whether it passes.
    fn passes(&self, head: &[u8]) -> Result<Framing, Fault> {
        if head.len() as u64 > self.limits.header_bytes {
            return Err(Fault::Long);
        }
        let framing = head::check(head, self.limits.headers as usize)?;
        self.watch.begin_request();
        Ok(framing)
    }

    fn after(framing: Framing) -> Phase {
        match framing {
            Framing::Length(0) => Phase::Head,
            Framing::Length(length) => Phase::Body(length),
            Framing::Chunked => Phase::Rest,
        }
    }

    /// Looks at what is kept of a head. Whether there is something to do with it.
    fn look(&mut self) -> bool {
        let Some(end) = head::end(&self.kept, self.looked) else {
            self.looked = self.kept.len();
            if self.kept.len() as u64 > self.limits.header_bytes {
                self.refuse(Fault::Long);
                return true;
            }
            return false;
        };
        match self.passes(&self.kept[..end]) {
            Ok(framing) => {
                self.due = None;
                self.phase = Phase::Give(end, framing);
            }
            Err(fault) => self.refuse(fault),
        }
        true
    }

    /// Reads of a head that is to come. What comes goes where it is wanted if it is a whole head with no more than its body.
    fn head(&mut self, cx: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if !self.kept.is_empty() {
            let mut piece = [0; PIECE];
            let mut piece = ReadBuf::new(&mut piece);
            ready!(self.fetch(cx, &mut piece))?;
            self.kept.extend_from_slice(piece.filled());
            return Poll::Ready(Ok(()));
        }
        let before = out.filled().len();
        ready!(self.fetch(cx, out))?;
        let came = &out.filled()[before..];
        if came.is_empty() {
            return Poll::Ready(Ok(()));
        }
        if let Some(end) = head::end(came, 0) {
            let beyond = (came.len() - end) as u64;
            match self.passes(&came[..end]) {
                Ok(Framing::Length(length)) if beyond <= length => {
                    self.phase = Self::after(Framing::Length(length - beyond));
                    self.due = None;
                }
                Ok(Framing::Chunked) => {
                    self.phase = Phase::Rest;
                    self.due = None;
                    self.check_chunks(before + end, out);
                }
                Ok(framing) => {
                    self.kept.extend_from_slice(came);
                    self.due = None;
                    self.phase = Phase::Give(end, framing);
                    out.set_filled(before);
                }
                Err(fault) => {
                    out.set_filled(before);
                    self.refuse(fault);
                }
            }
        } else {
            self.kept.extend_from_slice(came);
            out.set_filled(before);
            self.due.get_or_insert(Instant::now() + self.limits.header_time);
        }
        Poll::Ready(Ok(()))
    }

    /// Reads of the body of the last request, which comes in chunks.
    fn rest(&mut self, cx: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let begin = out.filled().len();
        if self.kept.is_empty() {
            ready!(Pin::new(&mut self.stream).poll_read(cx, out))?;
        } else {
            let all = self.kept.len();
            self.give(all, out);
        }
        self.check_chunks(begin, out);
        Poll::Ready(Ok(()))
    }

    /// Checks the chunks that begin or go on at `begin` of what is read. Nothing of a read that is wrong is passed on.
    fn check_chunks(&mut self, begin: usize, out: &mut ReadBuf<'_>) {
        if let Err(why) = self.chunks.scan(&out.filled()[begin..]) {
            out.set_filled(begin);
            self.kept.clear();
            self.given = 0;
            let turned = &self.watch.metrics.gateway.refused_connections;
            turned.of(TurnedAway::Malformed).add(1);
            self.phase = Phase::BadChunk(why);
        }
    }

    /// Reads, unless time is over.
    fn fetch(&mut self, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        match Pin::new(&mut self.stream).poll_read(cx, into) {
            Poll::Ready(Ok(())) => {
                if into.filled().len() == before {
                    self.phase = Phase::Over;
                }
                Poll::Ready(Ok(()))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => {
                ready!(self.time(cx));
                Poll::Ready(Ok(()))
            }
        }
    }

    /// Ready when time is over, and then the phase is another.
    fn time(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let now = Instant::now();
            let due = match self.due {
                Some(due) => due,
                // While a request is answered, nobody has to send another.
                None => self
                    .watch
                    .idle_until(self.limits.idle)
                    .unwrap_or(now + self.limits.idle),
            };
            if now >= due {
                if self.kept.is_empty() {
                    // Nothing was asked, so there is nothing to answer.
                    if self.due.is_some() {
                        let turned = &self.watch.metrics.gateway.refused_connections;
                        turned.of(TurnedAway::HeaderTime).add(1);
                    }
                    self.phase = Phase::Over;
                } else {
                    self.refuse(Fault::Slow);
                }
                return Poll::Ready(());
            }
            let timer = self
                .timer
                .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(due)));
            // One that is early is set anew when it fires.
            if timer.deadline() > due {
                timer.as_mut().reset(due);
            }
            ready!(timer.as_mut().poll(cx));
            timer.as_mut().reset(due);
        }
    }

    /// Reads of a body of which so many bytes are to come.
    fn body(&mut self, left: u64, cx: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = out.filled().len();
        if !self.kept.is_empty() {
            let most = usize::try_from(left).unwrap_or(usize::MAX).min(self.kept.len());
            let size = most.min(out.remaining());
            out.put_slice(&self.kept[..size]);
            self.kept.drain(..size);
        } else if left >= out.remaining() as u64 {
            ready!(Pin::new(&mut self.stream).poll_read(cx, out))?;
        } else {
            let most = usize::try_from(left).unwrap_or(usize::MAX);
            let mut part = ReadBuf::new(out.initialize_unfilled_to(most));
            ready!(Pin::new(&mut self.stream).poll_read(cx, &mut part))?;
            let size = part.filled().len();
            out.advance(size);
        }
        let came = (out.filled().len() - before) as u64;
        if came == 0 {
            self.phase = Phase::Over;
        } else {
            self.phase = Self::after(Framing::Length(left - came));
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Guard<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = out.filled().len();
        if out.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        loop {
            if out.filled().len() > before {
                return Poll::Ready(Ok(()));
            }
            match this.phase {
                Phase::Head => {
                    // What was read too much of the last body is looked at first.
                    if !this.kept.is_empty() {
                        this.due.get_or_insert(Instant::now() + this.limits.header_time);
                    }
                    if this.kept.is_empty() || !this.look() {
                        ready!(this.head(cx, out))?;
                    }
                }
                Phase::Give(until, framing) => {
                    if this.give(until, out) {
                        this.phase = Self::after(framing);
                    }
                }
                Phase::Body(left) => ready!(this.body(left, cx, out))?,
                Phase::Rest => {
                    ready!(this.rest(cx, out))?;
                    if matches!(this.phase, Phase::Rest) {
                        return Poll::Ready(Ok(()));
                    }
                }
                Phase::BadChunk(why) => {
                    this.phase = Phase::Mute;
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, why)));
                }
                Phase::Instead => {
                    let all = this.kept.len();
                    if this.give(all, out) {
                        this.phase = Phase::Mute;
                    }
                }
                // The connection ends with its answer, and until then nothing is to wake it.
                Phase::Mute => return Poll::Pending,
                Phase::Over => return Poll::Ready(Ok(())),
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Guard<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.linger.is_none() {
            ready!(Pin::new(&mut this.stream).poll_shutdown(cx))?;
            if matches!(this.phase, Phase::Head | Phase::Over) {
                return Poll::Ready(Ok(()));
            }
        }
        let timer = this.linger.get_or_insert_with(|| Box::pin(tokio::time::sleep(LINGER)));
        if timer.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Ok(()));
        }
        let mut piece = [0; PIECE];
        while this.left < LEFT_OVER {
            let mut piece = ReadBuf::new(&mut piece);
            ready!(Pin::new(&mut this.stream).poll_read(cx, &mut piece))?;
            if piece.filled().is_empty() {
                break;
            }
            this.left += piece.filled().len();
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};

    const LIMITS: DoorLimits = DoorLimits {
        per_client: 1,
        header_bytes: 200,
        headers: 8,
        header_time: Duration::from_secs(10),
        idle: Duration::from_secs(100),
        handshake: Duration::from_secs(1),
    };

    fn guarded() -> (Guard<DuplexStream>, DuplexStream, Arc<Watch>) {
        let (ours, theirs) = duplex(1 << 16);
        let watch = Watch::new(&Arc::default());
        (Guard::new(ours, watch.clone(), LIMITS), theirs, watch)
    }

    /// What the library sees of `bytes` that come in pieces of `piece` and are read with room for `room`.
    async fn seen(bytes: &[u8], piece: usize, room: usize) -> Vec<u8> {
        let (mut guard, mut theirs, _watch) = guarded();
        let bytes = bytes.to_vec();
        let sending = tokio::spawn(async move {
            for piece in bytes.chunks(piece) {
                theirs.write_all(piece).await.unwrap();
                tokio::task::yield_now().await;
            }
            theirs
        });
        let (mut all, mut part) = (Vec::new(), vec![0; room]);
        // Nothing comes after a refusal, and an end after all else.
        while let Ok(Ok(read @ 1..)) = tokio::time::timeout(Duration::from_secs(1), guard.read(&mut part)).await {
            all.extend_from_slice(&part[..read]);
        }
        drop(sending.await);
        all
    }

    #[tokio::test(start_paused = true)]
    async fn good_requests_come_through_as_they_were_however_they_are_cut() {
        let requests = b"\r\nPOST /a HTTP/1.1\r\ncontent-length: 5\r\n\r\nhelloGET /b HTTP/1.1\r\nhost: x\r\n\r\n\
            POST /c HTTP/1.1\r\ncontent-length: 12\r\n\r\nGET / HTTP/1POST /d HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n\
            3\r\nabc\r\n0\r\n\r\n";
        for piece in [1, 2, 3, 7, 19, 40, 64, 1000] {
            for room in [1, 5, 33, 4096] {
                let seen = seen(requests, piece, room).await;
                assert_eq!(
                    String::from_utf8_lossy(&seen),
                    String::from_utf8_lossy(requests),
                    "{piece} {room}"
                );
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_refused_is_replaced_and_nothing_follows_it() {
        let good = "POST /a HTTP/1.1\r\ncontent-length: 5\r\n\r\nhello";
        let long = format!("GET / HTTP/1.1\r\nx: {}\r\n\r\n", "a".repeat(300));
        for bad in [
            "GET / HTTP/1.1\r\nx : 1\r\n\r\n",
            "GET / HTTP/1.1\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n",
            "GET / HTTP/1.1\nhost: x\r\n\r\n",
            &long,
        ] {
            let sent = format!("{good}{bad}{good}");
            let expected = [good.as_bytes(), INSTEAD].concat();
            for piece in [1, 10, 1000] {
                let seen = seen(sent.as_bytes(), piece, 64).await;
                assert_eq!(
                    String::from_utf8_lossy(&seen),
                    String::from_utf8_lossy(&expected),
                    "{bad:?} {piece}"
                );
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_head_has_its_time_and_so_has_idleness() {
        let head = b"GET / HTTP/1.1\r\n\r\n";
        let mut part = [0; 256];
        // Nothing at all.
        let (mut guard, _theirs, watch) = guarded();
        let began = Instant::now();
        assert_eq!(guard.read(&mut part).await.unwrap(), 0);
        assert_eq!(began.elapsed().as_secs(), LIMITS.header_time.as_secs());
        assert_eq!(
            watch
                .metrics
                .gateway
                .refused_connections
                .of(TurnedAway::HeaderTime)
                .get(),
            1
        );
        // Half a head.
        let (mut guard, mut theirs, watch) = guarded();
        theirs.write_all(&head[..9]).await.unwrap();
        let read = guard.read(&mut part).await.unwrap();
        assert_eq!(&part[..read], INSTEAD);
        assert_eq!(watch.refused.get(), Some(&Fault::Slow));
        // A request that takes long, and then idleness.
        let (mut guard, mut theirs, watch) = guarded();
        theirs.write_all(head).await.unwrap();
        assert_eq!(guard.read(&mut part).await.unwrap(), head.len());
        let answered = Ticket(watch.clone());
        let took = LIMITS.idle * 3;
        let began = Instant::now();
        tokio::spawn(async move {
            tokio::time::sleep(took).await;
            drop(answered);
        });
        assert_eq!(guard.read(&mut part).await.unwrap(), 0);
        let passed = began.elapsed();
        assert!(
            passed >= took + LIMITS.idle && passed < took + LIMITS.idle * 2,
            "{passed:?}"
        );
    }
}
