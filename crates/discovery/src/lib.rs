//! Who exists, what is it, is it well, and how busy is it?
//!
//! - [`source`]: who can tell of workers; [`Static`], [`Dns`], [`FileSource`] and [`Registrations`] do;
//! - [`Roster`]: all that they tell as one stream of [`Change`]s, with a number for every worker (`ledger` decides, without a clock);
//! - [`mod@probe`]: what a worker says it is; [`mod@load`]: how busy it says it is; [`Watchers`] ask again and again;
//! - [`mod@health`]: may requests be sent there? A state machine for one worker, without a clock;
//! - [`mod@stall`]: does its engine make progress? A state machine for one rank, without a clock; [`mod@progress`] asks a worker for it;
//! - [`Registrant`]: the other side of [`Registrations`], for a worker that tells of itself.
//!
//! **Invariant:** a source that fails takes nobody away: what it told last holds, and that it failed is said.
//!
//! **Invariant:** a number is given to one worker and never again in one process. A worker that left and comes back has another.
//!
//! **Invariant:** an engine is asked no question while the one before it of the same kind is open, and no answer is read beyond a
//! limit.
//!
//! What is done with all of this, whom requests go to and when a worker that is not well is left out, is the gateway's matter.

mod activity;
mod addresses;
mod ask;
pub mod dns;
pub mod file;
pub mod health;
pub mod leases;
mod ledger;
mod lines;
pub mod load;
pub mod probe;
pub mod progress;
pub mod register;
mod registrar;
pub mod registrations;
pub mod roster;
pub mod source;
pub mod stall;
pub mod watch;

pub use addresses::AddressProblem;
pub use ask::{Outward, ScopedClients};
pub use dns::{Dns, DnsConfig};
pub use file::FileSource;
pub use health::{Admission, FoundBy, Health, HealthConfig, Outcome, Pass, Ping, Room, State, Turn};
pub use load::RankLoad;
pub use probe::{EngineProof, Facts, Filled, Model, NotReached, Probe, ProbeConfig, Unlearnt};
pub use progress::{Generated, ProgressProbe};
pub use register::{Registrant, RegistrantConfig};
pub use registrar::{Registrar, RegistrarKind};
pub use registrations::{Registrations, RegistrationsConfig};
pub use roster::{Change, Refused, Roster, RosterConfig, SourceStanding, Standing, Worker};
pub use source::{Absence, Origin, Source, SourceKind, Static, Tell, Told};
pub use stall::{
    Calibration, EjectionRoom, Examination, ExpectedWork, ObservedSteps, StallChange, StallConfig, StallDetector,
    StallSignal, StallState, StepMixing, WaitingId, WorkEstimator,
};
pub use watch::{News, Notice, WatchConfig, Watcher, Watchers};
