//! How does a test listen and ask with a real libzmq?

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use super::python::python;

/// A process with `tests/listener.py`, whose commands are described there. It is killed when this is dropped.
///
/// Its methods panic when something goes wrong, as tests do.
#[derive(Debug)]
pub struct Listener {
    process: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Listener {
    /// Starts one without sockets.
    pub fn start() -> Self {
        let mut process = python()
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/listener.py"))
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

    /// Gives a command and waits for the answer to it.
    pub fn tell(&mut self, command: &str) -> String {
        self.say(command);
        self.hear()
    }

    /// Gives a command.
    pub fn say(&mut self, command: &str) {
        writeln!(self.commands, "{command}").expect("the listener runs");
    }

    /// Waits for the answer to a command.
    pub fn hear(&mut self) -> String {
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("the listener answers in text");
        match line.strip_prefix("ok ") {
            Some(answer) => answer.trim_end().to_owned(),
            None => panic!("the listener said {line:?}"),
        }
    }

    /// The messages that an answer lists, in frames.
    pub fn messages(answer: &str) -> Vec<Vec<Vec<u8>>> {
        let byte = |pair: &[u8]| {
            let pair = str::from_utf8(pair).expect("hexadecimal digits");
            u8::from_str_radix(pair, 16).expect("hexadecimal digits")
        };
        let frame = |text: &str| text.as_bytes().chunks(2).map(byte).collect();
        let message = |text: &str| text.split('+').map(frame).collect();
        answer.split_whitespace().map(message).collect()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // It may be gone; that is as well.
        self.process.kill().ok();
        self.process.wait().ok();
    }
}
