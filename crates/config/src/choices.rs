//! Which words stand for a choice?

use homing_domain::Role;
use homing_index::Copies;
use homing_wire::Dialect;

use crate::knob::Choice;

macro_rules! choice {
    ($(#[$meta:meta])* $name:ident { $( $(#[doc = $doc:literal])+ $variant:ident = $word:literal, )+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name {
            $( $(#[doc = $doc])+ $variant, )+
        }

        impl $name {
            /// All of them.
            pub const ALL: &'static [Self] = &[$( Self::$variant ),+];
            /// Their words, in the same order.
            pub const CHOICES: &'static [Choice] = &[$( Choice {
                name: $word,
                doc: concat!($($doc),+).trim_ascii(),
            } ),+];

            /// Its word.
            pub const fn name(self) -> &'static str {
                match self {
                    $( Self::$variant => $word, )+
                }
            }
        }
    };
}

choice!(
    /// Where knowledge of the engines' caches comes from.
    CacheView {
        /// Engines report what they store and remove, and the index is exact.
        Events = "events",
        /// Engines report nothing; what was routed to a rank is taken to be there for a while.
        Approximate = "approximate",
        /// Nothing is known and nothing is kept.
        None = "none",
    }
);

choice!(
    /// How much is logged.
    LogLevel {
        /// What failed and needs a person.
        Error = "error",
        /// What is wrong and may need a person.
        Warn = "warn",
        /// What happens now and then.
        Info = "info",
        /// What happens all the time.
        Debug = "debug",
        /// Everything.
        Trace = "trace",
    }
);

choice!(
    /// How a line of the log is written.
    LogFormat {
        /// For people.
        Text = "text",
        /// As a JSON object.
        Json = "json",
    }
);

choice!(
    /// Whether something is so.
    Switch {
        /// No.
        Off = "off",
        /// Yes.
        On = "on",
    }
);

impl Switch {
    /// Whether it is on.
    pub const fn is_on(self) -> bool {
        matches!(self, Self::On)
    }
}

choice!(
    /// What is done with fields of clients that belong to engines, such as `kv_transfer_params`.
    EngineFields {
        /// `refuse` with API keys, `strip` without.
        Auto = "auto",
        /// A request that has one is refused with 400, which names the field.
        Refuse = "refuse",
        /// They are removed from requests.
        Strip = "strip",
        /// They reach engines, and clients see them in answers. For clients that are as trusted as the router.
        Allow = "allow",
    }
);

choice!(
    /// Whose cached prefixes a request with an API key can use.
    CacheIsolation {
        /// Those of all tenants. With a `cache_salt`, those of its own tenant with the same salt.
        Salt = "salt",
        /// Those of its own tenant only: each tenant has a salt of its own.
        Tenant = "tenant",
    }
);

choice!(
    /// When two workers serve a request.
    DisaggWhen {
        /// When that is predicted to be faster, for the request and for those it meets.
        Predicted = "predicted",
        /// When so many tokens are to be computed.
        Rules = "rules",
        /// Whenever there are two.
        Always = "always",
    }
);

choice!(
    /// What `homing serve` does to find out whether a worker is set up well.
    CheckWorkers {
        /// Nothing.
        None = "none",
        /// It asks a few questions when a worker comes. Nothing is computed there.
        Quiet = "quiet",
        /// It also sends a prompt of a few blocks twice to each rank, and looks whether events tell of it.
        Prompts = "prompts",
    }
);

choice!(
    /// What `homing serve` does with LoRA adapters.
    AdapterMode {
        /// It shows where they are. Any worker of the model is sent any of them, and loads what it lacks by itself.
        Observe = "observe",
        /// It sends requests to workers that have them.
        Route = "route",
        /// It also loads and unloads them, so that they are where they are wanted.
        Manage = "manage",
    }
);

choice!(
    /// How adapters are given to workers.
    AdapterMethod {
        /// By names: each has a home to which it returns.
        Rendezvous = "rendezvous",
        /// So that the least is moved.
        MinCost = "min-cost",
    }
);

choice!(
    /// Which engine `homing mock` pretends to be.
    MockDialect {
        /// vLLM.
        Vllm = "vllm",
        /// SGLang.
        Sglang = "sglang",
    }
);

choice!(
    /// How engines of `homing mock` hand KV over to each other.
    KvConnector {
        /// Not at all.
        None = "none",
        /// As vLLM with its NIXL connector does: what the answer of one says goes into the question to the other.
        Nixl = "nixl",
        /// As SGLang does: both are asked at once and meet.
        Sglang = "sglang",
    }
);

choice!(
    /// What an engine of `homing mock` does with a request whose KV does not come.
    KvLoadFailure {
        /// It fails.
        Fail = "fail",
        /// Its prompt is computed where it is.
        Recompute = "recompute",
    }
);

choice!(
    /// What goes wrong on purpose with KV that is to be handed over.
    HandoverFault {
        /// Nothing.
        None = "none",
        /// The engine begins a new life when it is asked to stage something.
        DieBefore = "die-before",
        /// It begins a new life when it has staged something and has not said so.
        DieAfter = "die-after",
        /// What was staged stays, and the answer that says so is lost.
        Lose = "lose",
        /// Whoever fetches something waits for ever.
        Hang = "hang",
        /// What was staged is gone at once.
        Lapse = "lapse",
    }
);

choice!(
    /// How `homing mock` writes events.
    EventFormat {
        /// As maps, like vLLM from 0.24 on and SGLang 0.5.23.
        Map = "map",
        /// As lists, like vLLM up to 0.22 and SGLang up to 0.5.18.
        Array = "array",
    }
);

/// How an engine can write, in the order of [`DIALECT_CHOICES`].
pub(crate) const DIALECTS: &[Dialect] = &Dialect::ALL;

/// The words for [`Dialect`], which belongs to the decoders.
pub(crate) const DIALECT_CHOICES: &[Choice] = &[
    Choice {
        name: "vllm",
        doc: "As vLLM does.",
    },
    Choice {
        name: "sglang",
        doc: "As SGLang does.",
    },
    Choice {
        name: "trtllm",
        doc: "As TensorRT-LLM does, which is asked for its events.",
    },
];

/// How a repeated announcement can be understood, in the order of [`COPIES_CHOICES`].
pub(crate) const COPIES: &[Copies] = &[Copies::Counted, Copies::Set];

/// The words for [`Copies`], which belongs to the index.
pub(crate) const COPIES_CHOICES: &[Choice] = &[
    Choice {
        name: "counted",
        doc: "The engine holds one more copy, and will remove each.",
    },
    Choice {
        name: "set",
        doc: "The engine repeats itself; one removal removes the block.",
    },
];

/// What a worker can be for, in the order of [`ROLE_CHOICES`].
pub(crate) const ROLES: &[Role] = &[Role::Prefill, Role::Decode, Role::Both];

/// The words for [`Role`], which belongs to the domain.
pub(crate) const ROLE_CHOICES: &[Choice] = &[
    Choice {
        name: "prefill",
        doc: "It computes prompts and hands their KV over.",
    },
    Choice {
        name: "decode",
        doc: "It takes KV over and generates.",
    },
    Choice {
        name: "both",
        doc: "It does whole requests.",
    },
];

/// The word for a role.
pub fn role_name(role: Role) -> &'static str {
    name_of(ROLES, ROLE_CHOICES, role)
}

/// The one of `all` whose word among `choices` is `text`.
pub(crate) fn named<T: Copy>(all: &[T], choices: &[Choice], text: &str) -> Option<T> {
    let place = choices.iter().position(|choice| choice.name == text)?;
    all.get(place).copied()
}

/// The word among `choices` of this one of `all`.
pub(crate) fn name_of<T: Copy + PartialEq>(all: &[T], choices: &[Choice], value: T) -> &'static str {
    let place = all.iter().position(|one| *one == value);
    place.map_or("", |place| choices[place].name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_has_its_word_and_back() {
        fn check<T: Copy + PartialEq + std::fmt::Debug>(all: &[T], choices: &[Choice]) {
            assert_eq!(all.len(), choices.len());
            for &value in all {
                let name = name_of(all, choices, value);
                assert_eq!(named(all, choices, name), Some(value));
                assert_eq!(name, format!("{value:?}").to_lowercase());
            }
            assert_eq!(named(all, choices, "else"), None);
        }
        check(CacheView::ALL, CacheView::CHOICES);
        check(LogLevel::ALL, LogLevel::CHOICES);
        check(Switch::ALL, Switch::CHOICES);
        check(MockDialect::ALL, MockDialect::CHOICES);
        check(EventFormat::ALL, EventFormat::CHOICES);
        check(KvConnector::ALL, KvConnector::CHOICES);
        check(KvLoadFailure::ALL, KvLoadFailure::CHOICES);
        check(DIALECTS, DIALECT_CHOICES);
        check(COPIES, COPIES_CHOICES);
        check(ROLES, ROLE_CHOICES);
        for view in CacheView::ALL {
            assert_eq!(view.name(), name_of(CacheView::ALL, CacheView::CHOICES, *view));
        }
    }
}
