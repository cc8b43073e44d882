//! How does a test make an engine publish, drop, restart and hang?

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use super::python::python;
use crate::zmq::Endpoint;

/// A process with `tests/publisher.py`, whose commands are described there. It is killed when this is dropped.
///
/// Its methods panic when something goes wrong, as tests do.
#[derive(Debug)]
pub struct Publisher {
    process: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Publisher {
    /// Starts one without sockets.
    pub fn start() -> Self {
        let mut process = python()
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/publisher.py"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the interpreter starts");
        let commands = process.stdin.take().expect("its input is ours");
        let answers = BufReader::new(process.stdout.take().expect("its output is ours"));
        Self {
            process,
            commands,
            answers,
        }
    }

    /// Starts one that binds a PUB to any port of the loopback address, and says where.
    pub fn bound() -> (Self, Endpoint) {
        let mut publisher = Self::start();
        let endpoint = publisher.endpoint("bind tcp://127.0.0.1:0");
        (publisher, endpoint)
    }

    /// Gives a command and waits for the answer to it.
    pub fn tell(&mut self, command: &str) -> String {
        self.say(command);
        self.hear()
    }

    /// Gives a command whose answer is an endpoint.
    pub fn endpoint(&mut self, command: &str) -> Endpoint {
        self.tell(command).parse().expect("it is an endpoint")
    }

    /// Gives a command.
    pub fn say(&mut self, command: &str) {
        writeln!(self.commands, "{command}").expect("the publisher runs");
    }

    /// Waits for the answer to a command.
    pub fn hear(&mut self) -> String {
        let mut line = String::new();
        self.answers
            .read_line(&mut line)
            .expect("the publisher answers in text");
        match line.trim_end().strip_prefix("ok ") {
            Some(answer) => answer.to_owned(),
            None => panic!("the publisher said {line:?}"),
        }
    }

    /// Stops the process in its tracks: its sockets stay open and nobody is behind them.
    pub fn freeze(&self) {
        self.signal("STOP");
    }

    /// Lets it go on.
    pub fn thaw(&self) {
        self.signal("CONT");
    }

    /// Ends the process as a crash does.
    pub fn kill(self) {
        drop(self);
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("kill")
            .args([format!("-{name}"), self.process.id().to_string()])
            .status()
            .expect("there is a command to send signals");
        assert!(sent.success(), "{name} was not sent");
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        // It may be frozen or gone; both are as well.
        self.process.kill().ok();
        self.process.wait().ok();
    }
}
