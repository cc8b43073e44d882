//! Why can the gateway not start?

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use homing_config::Rejected;
use homing_config::keys::KeysProblem;
use homing_config::register_tokens::RegisterTokensProblem;
use homing_profile::ProfileError;
use homing_scheduler::policy::PolicyError;
use homing_tls::TlsError;
use thiserror::Error;

use crate::adapters::CatalogueError;
use crate::response_keys::ResponseKeyError;
use crate::steward::StewardError;
use crate::tokens::TokenizerError;

/// Why the gateway cannot start.
#[derive(Debug, Error)]
pub enum StartError {
    /// An address cannot be listened on.
    #[error("cannot listen on {address} (`{knob}`): {error}")]
    Listen {
        /// Which.
        address: SocketAddr,
        /// Who asked for it.
        knob: &'static str,
        /// Why.
        error: io::Error,
    },
    /// The policy is none.
    #[error("{0} (`serve.policy`)")]
    Policy(#[from] PolicyError),
    /// The rules of where KV may travel are none.
    #[error(transparent)]
    Topology(#[from] homing_config::BadTopology),
    /// The profile cannot be used.
    #[error("the profile cannot be used (`serve.profile`): {0}")]
    Profile(#[from] ProfileError),
    /// The file of the profile cannot be read.
    #[error("the profile cannot be read (`serve.profile`): {0}")]
    ProfileFile(String),
    /// The tokenizer cannot be used.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// The log cannot be written.
    #[error("cannot log to {path} (`serve.log`): {error}")]
    Log {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The adapters that were told of before cannot be had.
    #[error("the catalogue of adapters {path} cannot be used (`adapters.catalogue`): {problem}")]
    Catalogue {
        /// The file.
        path: PathBuf,
        /// Why.
        problem: CatalogueError,
    },
    /// The collector of traces is none.
    #[error("{endpoint} (`trace.endpoint`) {why}")]
    Collector {
        /// As it was written.
        endpoint: String,
        /// What is wrong with it.
        why: String,
    },
    /// Workers cannot be watched.
    #[error(transparent)]
    Steward(#[from] StewardError),
    /// Threads cannot be started.
    #[error("cannot start a thread: {0}")]
    Threads(#[from] io::Error),
    /// Anybody could ask from anywhere.
    #[error(
        "`serve.listen` is {address}, which other machines can reach, and nobody is asked for a key: name a file of keys with \
         `serve.keys` (`homing keys new --tenant NAME` makes a key), listen on 127.0.0.1, or say `--open` if something in front \
         asks for keys"
    )]
    Open {
        /// Where it would listen.
        address: SocketAddr,
    },
    /// Anybody could give orders from anywhere.
    #[error(
        "`serve.admin` is {address}, which other machines can reach, and operators are not asked for a token: set \
         `serve.admin-token` (`file:PATH`, or the variable HOMING_SERVE_ADMIN_TOKEN), or listen on 127.0.0.1"
    )]
    AdminOpen {
        /// Where it would listen.
        address: SocketAddr,
    },
    /// Anybody could book requests from anywhere.
    #[error(
        "`serve.route` is {address}, which other machines can reach, and proxies are not asked for a token: set \
         `serve.admin-token` (`file:PATH`, or the variable HOMING_SERVE_ADMIN_TOKEN), or listen on 127.0.0.1"
    )]
    RouteOpen {
        /// Where it would listen.
        address: SocketAddr,
    },
    /// The keys cannot be used.
    #[error("{0} (`serve.keys`)")]
    Keys(#[from] KeysProblem),
    /// The tokens of workers cannot be used.
    #[error("{0} (`serve.register-tokens`)")]
    RegisterTokens(#[from] RegisterTokensProblem),
    /// A secret cannot be read.
    #[error("{problem} (`{knob}`)")]
    Secret {
        /// Who asked for it.
        knob: &'static str,
        /// Why.
        problem: Rejected,
    },
    /// The keys of ids of responses cannot be used.
    #[error("{0} (`responses.key-file`, `serve.state-dir`)")]
    ResponseKeys(#[from] ResponseKeyError),
    /// Certificates cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
}
