//! Between two who talk over TCP: passes on, refuses, or cuts lists off.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

pub struct Proxy {
    pub address: SocketAddr,
    rule: tokio::sync::watch::Sender<Rule>,
}

#[derive(Clone, Copy, PartialEq)]
enum Rule {
    Refuse,
    CutListsAfter(usize),
}

impl Proxy {
    pub async fn start(to: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (rule, ruled) = tokio::sync::watch::channel(Rule::CutListsAfter(usize::MAX));
        tokio::spawn(async move {
            loop {
                let (connection, _) = listener.accept().await.unwrap();
                tokio::spawn(Self::pass(connection, to, ruled.clone()));
            }
        });
        Self { address, rule }
    }

    pub fn refuse(&self) {
        self.rule.send_replace(Rule::Refuse);
    }

    pub fn accept(&self) {
        self.cut_lists_after(usize::MAX);
    }

    pub fn cut_lists_after(&self, bytes: usize) {
        self.rule.send_replace(Rule::CutListsAfter(bytes));
    }

    /// One connection, in both directions, until either ends, or all are refused.
    async fn pass(mut client: TcpStream, to: SocketAddr, mut ruled: tokio::sync::watch::Receiver<Rule>) {
        let mut server = TcpStream::connect(to).await.unwrap();
        let (mut asked, mut answered) = (vec![0; 64 << 10], vec![0; 64 << 10]);
        let (mut is_list, mut passed) = (false, 0);
        loop {
            let Rule::CutListsAfter(limit) = *ruled.borrow_and_update() else {
                return;
            };
            tokio::select! {
                _ = ruled.changed() => {}
                length = client.read(&mut asked) => {
                    let length = length.unwrap_or(0);
                    is_list = asked[..length].windows(5).any(|word| word == b"/list");
                    passed = 0;
                    if length == 0 || server.write_all(&asked[..length]).await.is_err() {
                        return;
                    }
                }
                length = server.read(&mut answered) => {
                    let length = length.unwrap_or(0);
                    passed += length;
                    if length == 0 || (is_list && passed > limit) || client.write_all(&answered[..length]).await.is_err() {
                        return;
                    }
                }
            }
        }
    }
}
