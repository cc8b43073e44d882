//! What did the operator ask for?
//!
//! The only crate that reads files, flags and the environment. Every knob is declared once, in [`table`]: its name, what
//! it means, its default, unit and range. Flags and their help, variables, file keys, range checks, error texts and the
//! reference page all come from there.
//!
//! What was typed becomes what is true exactly once: [`resolve()`] turns [`Inputs`] into a [`Config`] of domain types, or
//! into the list of everything that is wrong with them. Below this crate no `Option` means "use the default".
//!
//! **Invariant:** a flag wins over a variable, a variable over the file, the file over the default.
//!
//! **Invariant:** a secret is never shown, neither in an error nor in a listing nor by `Debug`.
//!
//! - [`table`]: the knobs, and [`knob`]: what a knob is;
//! - [`quantity`]: how numbers with units are written, [`choices`]: which words stand for a choice, [`words`]: which
//!   names can be passed on;
//! - [`mod@worker`]: the workers, which are written in the same way everywhere;
//! - [`mod@discover`]: where else workers are looked for; [`address_rules`] and [`networks`]: which addresses registered workers may have;
//! - [`mod@config`]: the typed result ([`mod@mock`] and [`mod@discovery`] have parts of it), and [`checks`]: what must hold between its fields;
//! - [`mod@resolve`]: layers to result, pure; [`file`](mod@file) and [`flags`]: two of the layers; [`mod@load`]: reads the
//!   real ones;
//! - [`secret`]: what is only for some to know; [`keys`]: the file of API keys; [`register_tokens`]: that of workers' tokens; [`security`]: who may ask `homing serve`, and how;
//! - [`mod@reference`]: the page `docs/reference/config.md`.

pub mod adapters;
pub mod address_rules;
pub mod checks;
pub mod choices;
pub mod config;
pub mod disagg;
pub mod discover;
pub mod discovery;
pub mod error;
pub mod file;
pub mod flags;
pub mod keys;
pub mod knob;
pub mod load;
pub mod mock;
pub mod networks;
pub mod quantity;
pub mod reference;
pub mod register_tokens;
pub mod resolve;
pub mod secret;
pub mod security;
pub mod serve;
pub mod settle;
pub mod table;
mod values;
pub mod words;
pub mod worker;

pub use adapters::AdapterLimits;
pub use address_rules::{AddressDenied, AddressRules, LoopbackUse};
pub use choices::{
    AdapterMethod, AdapterMode, CacheIsolation, CacheView, CheckWorkers, DisaggWhen, EngineFields, EventFormat,
    HandoverFault, KvConnector, KvLoadFailure, LogFormat, LogLevel, MockDialect, Switch, role_name,
};
pub use config::{Agent, Approximate, Config, Demo, Events, FeedLimits, IndexLimits, Indexer, Log, Traces};
pub use disagg::{BadTopology, Disagg, TopologyRule};
pub use discover::{Discover, DiscoverProblem, Lookup};
pub use discovery::{Discovery, HealthLimits, Polling, Probing, StallLimits};
pub use error::{Problem, Rejected};
pub use knob::{Choice, Kind, Knob, Unit, Value};
pub use load::{Colour, MAX_FILE_BYTES, Reader, colour, length_of, load, read_bounded, read_text, read_versioned};
pub use mock::{Mock, MockEvents, MockFaults, MockKv, MockTier};
pub use resolve::{FileText, Inputs, Resolved, Setting, Source, resolve};
pub use secret::{Secret, SecretText};
pub use security::{HttpServer, Security};
pub use serve::Serve;
pub use settle::{FileVersion, SETTLE_TIME, Settling};
pub use table::{KNOBS, KnobId};
pub use worker::{
    AddressScope, Endpoint, EventSource, EventsEndpoint, EventsMode, HttpUrl, Scheme, ViewBy, WithoutSource,
    WorkerDefaults, WorkerLabel, WorkerSpec,
};
