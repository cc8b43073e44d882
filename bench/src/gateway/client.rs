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
        // What was not looked at, and how many pieces came.
        let (mut buffer, mut at, mut pieces) = (Vec::with_capacity(4 << 10), 0, 0);
        let mut done = false;
        loop {
            if stream.read_buf(&mut buffer).await? == 0 {
                let said = String::from_utf8_lossy(&buffer);
                return Err(format!("{} hung up after {pieces} pieces: {said}", self.address).into());
            }
            let now = self.pace.now();
            while let Some(place) = find(&buffer[at..], MARK) {
                let start = at + place + MARK.len();
                if buffer.len() < start + DIGITS {
                    break;
                }
                let digits = std::str::from_utf8(&buffer[start..start + DIGITS])?;
                let left: u64 = digits.parse()?;
                at = start + DIGITS;
                pieces += 1;
                if pieces == 1 {
                    seen.first.push(now - sent);
                    self.open.fetch_add(1, Relaxed);
                } else {
                    seen.pieces.push(now.saturating_sub(left));
                }
            }
            done |= find(&buffer[at..], b"data: [DONE]").is_some();
            if done && buffer.ends_with(b"0\r\n\r\n") {
                break;
            }
            if pieces == 0 && !buffer.starts_with(b"HTTP/1.1 200") && buffer.len() > 12 {
                // What is wrong is in the body, which comes with the head or soon after it.
                let rest = tokio::time::timeout(Duration::from_millis(200), stream.read_buf(&mut buffer));
                let _ = rest.await;
                return Err(format!("{}: {}", self.address, String::from_utf8_lossy(&buffer)).into());
            }
            // A mark, its time and the end may each be cut.
            let keep = buffer.len().saturating_sub(64).max(at);
            if pieces > 0 && keep > 4 << 10 {
                buffer.drain(..keep.min(buffer.len()));
                at = 0;
            }
        }
        self.open.fetch_sub(1, Relaxed);
        if pieces != self.pieces {
            return Err(format!("{}: {pieces} of {} pieces came", self.address, self.pieces).into());
        }
        Ok(())
    }
}
