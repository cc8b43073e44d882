//! What can be said about a worker? This is the one place that says so.
//!
//! Like [`crate::table`], but for each worker anew. Flag, variable and file take the same keys; help, errors and the
//! reference page come from here.

use std::fmt;
use std::ops::RangeInclusive;

use crate::choices::{COPIES_CHOICES, CacheView, DIALECT_CHOICES, ROLE_CHOICES};
use crate::knob::{Choice, Kind, Unit};
use crate::words;

/// A key of a worker, as the reference page tells it.
#[derive(Debug)]
pub struct KeyFacts {
    /// Its name.
    pub name: &'static str,
    /// What it says.
    pub doc: &'static str,
    /// What holds if it is not given, in words.
    pub default: &'static str,
    /// What it takes.
    pub form: Form,
}

/// What a key takes.
#[derive(Debug)]
pub enum Form {
    /// The address of something that speaks HTTP.
    Http,
    /// A socket of events to connect to or to bind, or an address to poll.
    Events,
    /// A socket to connect to.
    Socket,
    /// One of a few words.
    Choice(&'static [Choice]),
    /// A word that someone else made up.
    Word,
    /// A number.
    Count(Unit, RangeInclusive<u64>),
    /// A key and a value of the operator's own.
    Label,
}

macro_rules! keys {
    ($( $(#[doc = $doc:literal])+ $id:ident = $name:literal, $default:literal, $form:expr; )+) => {
        /// Names a key of a worker.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum WorkerKey {
            $( $(#[doc = $doc])+ $id, )+
        }

        impl WorkerKey {
            /// All of them, in the order of the reference page.
            pub const ALL: &'static [Self] = &[$( Self::$id ),+];
        }

        static FACTS: &[KeyFacts] = &[$( KeyFacts {
            name: $name,
            doc: concat!($($doc),+).trim_ascii(),
            default: $default,
            form: $form,
        } ),+];
    };
}

keys! {
    /// Where the engine takes requests. Stands first and without its name where a worker is one text.
    Url = "url", "must be given", Form::Http;

    /// The agent that lists and watches the engine's cache.
    Agent = "agent", "none", Form::Http;

    /// Where the engine publishes events; `bind:` before it if the engine's publisher connects to us. For TensorRT-LLM it
    /// is the address that is polled.
    Events = "events", "none; for TensorRT-LLM `kv_cache_events` below `url`", Form::Events;

    /// Where the engine sends events again that were lost.
    Replay = "replay", "none", Form::Socket;

    /// Which part of a request it serves.
    Role = "role", "`both`", Form::Choice(ROLE_CHOICES);

    /// The model that it serves, as clients call it.
    Model = "model", "the setting `model`", Form::Word;

    /// How many tokens make a block of the index that it is in.
    BlockSize = "block-size", "the setting `block-size`", Form::Count(Unit::Tokens, 1..=1024);

    /// Something of your own to choose workers by. May be given again with another key; in the file it is the table
    /// `labels`.
    Label = "label", "none", Form::Label;

    /// How its engine writes events.
    Dialect = "dialect", "`vllm`", Form::Choice(DIALECT_CHOICES);

    /// How many data-parallel ranks it has. Rank n has the ports of `events` and `replay` plus n, as engines do it.
    Ranks = "ranks", "`1`", Form::Count(Unit::Ranks, 1..=1024);

    /// Only messages whose topic begins like this are events.
    Topic = "topic", "all", Form::Word;

    /// Where knowledge of its cache comes from. `agent` and `events` are used only if it is `events`.
    CacheView = "cache-view", "the setting `index.cache-view`", Form::Choice(CacheView::CHOICES);

    /// How it is understood that it announces a block again.
    Copies = "copies", "the setting `index.copies`", Form::Choice(COPIES_CHOICES);
}

impl WorkerKey {
    /// What there is to know about it.
    pub fn facts(self) -> &'static KeyFacts {
        &FACTS[self as usize]
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        self.facts().name
    }

    /// The key of this name.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|key| key.name() == name)
    }

    /// Whether its value may be any word, signs that stand in passwords and queries included.
    pub(crate) fn takes_any_word(self) -> bool {
        matches!(self.facts().form, Form::Word | Form::Label)
    }
}

impl fmt::Display for WorkerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Http => f.write_str("http://HOST[:PORT][/PATH]"),
            Self::Events => f.write_str("[bind:]tcp://HOST:PORT or [bind:]ipc://PATH"),
            Self::Socket => f.write_str("tcp://HOST:PORT or ipc://PATH"),
            Self::Choice(choices) => Kind::Choice(choices).fmt(f),
            Self::Word => f.write_str(words::EXPECTED),
            Self::Count(unit, range) => Kind::Count(*unit, range.clone()).fmt(f),
            Self::Label => f.write_str("KEY=VALUE"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_distinct_and_docs_are_sentences() {
        for &key in WorkerKey::ALL {
            assert_eq!(WorkerKey::of_name(key.name()), Some(key));
            let doc = key.facts().doc;
            assert!(doc.ends_with('.') && !doc.contains(['\n', '|']), "{key}: {doc}");
        }
        assert_eq!(WorkerKey::of_name("labels"), None);
    }
}
