//! What do clients see? Users who ask one thing after the other on connections that stay open, and note when each piece came.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::Failure;
use super::prompts::Job;
use super::upstream::{DIGITS, MARK, Pace, find};

/// How long all of a load may take.
const PATIENCE: Duration = Duration::from_mins(10);

/// What users saw.
#[derive(Debug, Default)]
pub struct Seen {
    /// Nanoseconds from each request to the first piece of its answer.
    pub first: Vec<u64>,
    /// Nanoseconds from a worker to its client, of each further piece.
    pub pieces: Vec<u64>,
    /// Answers.
    pub requests: usize,
    /// Times that something was read with a piece in it: as many as pieces, unless some came together.
    pub reads: usize,
}

/// Users: each asks these things one after the other.
#[derive(Debug)]
pub struct Load {
    /// What each user asks.
    pub users: Vec<Vec<Job>>,
    /// Users begin one after the other within this time, so that they do not go in step.
    pub within: Duration,
    /// Pieces of each answer.
    pub pieces: usize,
    /// Streams that have begun and not ended.
    pub open: Arc<AtomicUsize>,
}

impl Load {
    /// Users who begin within this time.
    pub fn new(users: Vec<Vec<Job>>, within: Duration, pieces: usize) -> Self {
        Self {
            users,
            within,
            pieces,
            open: Arc::default(),
        }
    }

    /// Sends all of it, user by user to the next of these addresses.
    pub async fn send(self, addresses: &[SocketAddr], pace: &Arc<Pace>) -> Result<Seen, Failure> {
        let mut running = JoinSet::new();
        let count = self.users.len().max(1) as u32;
        for (number, jobs) in self.users.into_iter().enumerate() {
            let user = User {
                address: addresses[number % addresses.len()],
                pace: pace.clone(),
                open: self.open.clone(),
                pieces: self.pieces,
            };
            let wait = self.within * number as u32 / count;
            running.spawn(async move {
                tokio::time::sleep(wait).await;
                user.ask(jobs).await
            });
        }
        let all = async {
            let mut seen = Seen::default();
            while let Some(ended) = running.join_next().await {
                let one = ended??;
                seen.first.extend(one.first);
                seen.pieces.extend(one.pieces);
                seen.requests += one.requests;
                seen.reads += one.reads;
            }
            Ok(seen)
        };
        tokio::time::timeout(PATIENCE, all).await?
    }
}

struct User {
    address: SocketAddr,
    pace: Arc<Pace>,
    open: Arc<AtomicUsize>,
    pieces: usize,
}

impl User {
    async fn ask(self, jobs: Vec<Job>) -> Result<Seen, Failure> {
        let mut seen = Seen::default();
        let mut stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        for job in jobs {
            self.stream(&mut stream, &job, &mut seen).await?;
            seen.requests += 1;
        }
        Ok(seen)
    }

    async fn stream(&self, stream: &mut TcpStream, job: &Job, seen: &mut Seen) -> Result<(), Failure> {
        let sent = self.pace.now();
        stream.write_all(&job.bytes).await?;
        let mut answer = Answer::default();
        let mut pieces = 0;
        while !answer.ended {
            if stream.read_buf(&mut answer.raw).await? == 0 {
                let said = String::from_utf8_lossy(&answer.raw);
                return Err(format!("{} hung up after {pieces} pieces: {said}", self.address).into());
            }
            let now = self.pace.now();
            answer.take()?;
            let before = pieces;
            while let Some(left) = answer.next()? {
                pieces += 1;
                if pieces == 1 {
                    seen.first.push(now - sent);
                    self.open.fetch_add(1, Relaxed);
                } else {
                    seen.pieces.push(now.saturating_sub(left));
                }
            }
            seen.reads += usize::from(pieces > before);
        }
        self.open.fetch_sub(1, Relaxed);
        if pieces != self.pieces || find(&answer.text, b"data: [DONE]").is_none() {
            let said = String::from_utf8_lossy(&answer.text);
            return Err(format!("{}: {pieces} of {} pieces came: {said}", self.address, self.pieces).into());
        }
        Ok(())
    }
}

/// An answer as it comes.
#[derive(Debug, Default)]
struct Answer {
    /// What came and was not taken apart.
    raw: Vec<u8>,
    /// What it says, from the last piece on.
    text: Vec<u8>,
    begun: bool,
    /// Bytes of the chunk at hand that are still to come, with its end.
    left: usize,
    ended: bool,
}

impl Answer {
    /// Takes what came out of its chunks: a proxy may cut them anew, in the middle of a piece.
    fn take(&mut self) -> Result<(), Failure> {
        let mut at = 0;
        if !self.begun {
            let Some(end) = find(&self.raw, b"\r\n\r\n") else {
                return Ok(());
            };
            if !self.raw.starts_with(b"HTTP/1.1 200") {
                return Err(String::from_utf8_lossy(&self.raw).into());
            }
            (self.begun, at) = (true, end + 4);
        }
        loop {
            let rest = &self.raw[at..];
            if self.left > 2 {
                let take = rest.len().min(self.left - 2);
                self.text.extend_from_slice(&rest[..take]);
                (self.left, at) = (self.left - take, at + take);
                if take == rest.len() {
                    break;
                }
            } else if self.left > 0 {
                let take = rest.len().min(self.left);
                (self.left, at) = (self.left - take, at + take);
                if take == 0 {
                    break;
                }
            } else {
                let Some(line) = find(rest, b"\r\n") else { break };
                let size = usize::from_str_radix(std::str::from_utf8(&rest[..line])?.trim(), 16)?;
                if size == 0 {
                    if rest.len() < line + 4 {
                        break;
                    }
                    self.ended = true;
                    at += line + 4;
                    break;
                }
                (self.left, at) = (size + 2, at + line + 2);
            }
        }
        self.raw.drain(..at);
        Ok(())
    }

    /// When the next piece was sent, if there is one more.
    fn next(&mut self) -> Result<Option<u64>, Failure> {
        let Some(place) = find(&self.text, MARK) else {
            return Ok(None);
        };
        let start = place + MARK.len();
        if self.text.len() < start + DIGITS {
            return Ok(None);
        }
        let sent = std::str::from_utf8(&self.text[start..start + DIGITS])?.parse()?;
        self.text.drain(..start + DIGITS);
        Ok(Some(sent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_the_same_however_it_is_cut() {
        let time = format!("{:0DIGITS$}", 42);
        let (one, other) = time.split_at(7);
        let says = [
            "HTTP/1.1 200 OK\r\nx: y\r\n\r\n".to_owned(),
            format!("b\r\n at {one}\r\n"),
            format!("{:x}\r\n{other}\"\n\r\n", other.len() + 2),
            format!("{:x}\r\n at {time}\r\nc\r\ndata: [DONE]\r\n0\r\n\r\n", 4 + DIGITS),
        ];
        let bytes = says.concat().into_bytes();
        for cut in 0..bytes.len() {
            let (mut answer, mut sent) = (Answer::default(), Vec::new());
            for part in [&bytes[..cut], &bytes[cut..]] {
                assert!(!answer.ended);
                answer.raw.extend_from_slice(part);
                answer.take().unwrap();
                while let Some(time) = answer.next().unwrap() {
                    sent.push(time);
                }
            }
            assert!(answer.ended && answer.raw.is_empty(), "{cut}");
            assert_eq!(sent, [42, 42]);
            assert_eq!(answer.text, b"data: [DONE]");
        }
    }
}
