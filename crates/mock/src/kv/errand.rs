//! What is to be done for a request besides answering it?

use std::sync::Arc;

use homing_config::HandoverFault;
use homing_engine::Handover;
use tokio::sync::oneshot;

use super::ledger::Kept;
use super::plan::{Plan, Source};
use super::{Kv, fingerprint};
use crate::ask::Ask;
use crate::core::Core;
use crate::problem::Problem;

/// What is to be done for a request of the engine.
#[derive(Debug, Default)]
pub(crate) enum Errand {
    /// Nothing.
    #[default]
    None,
    /// Its blocks stay under this name.
    Stage {
        name: Arc<str>,
        fingerprint: u64,
        /// Who waits for them, if it is known.
        told: Option<oneshot::Sender<Kept>>,
    },
    /// Its KV is to be fetched.
    Fetch { source: Source, fingerprint: u64 },
}

/// What whoever answers a request is to know of its errand.
#[derive(Debug, Default)]
pub(crate) struct Begun {
    /// For the engine.
    pub(crate) errand: Errand,
    /// The name under which its blocks stay.
    pub(crate) name: Option<Arc<str>>,
    /// It is over only when this has come: the other side has its KV.
    pub(crate) sent: Option<oneshot::Receiver<()>>,
}

/// Begins what a request wants done, of which there is one: those that ask for several answers hand nothing over. For one that is
/// to meet another this is over when they have met.
pub(crate) async fn begin(core: &Core, ask: &mut Ask) -> Result<Begun, Problem> {
    let (Some(kv), [request], [prompt]) = (&core.kv, ask.requests.as_mut_slice(), ask.prompts.as_slice()) else {
        return Ok(Begun::default());
    };
    let fingerprint = fingerprint(prompt);
    match std::mem::take(&mut ask.plan) {
        Plan::Alone => Ok(Begun::default()),
        Plan::Fetch(source) => {
            request.handover = Handover::Take;
            let errand = Errand::Fetch { source, fingerprint };
            Ok(Begun {
                errand,
                ..Begun::default()
            })
        }
        Plan::Stage => {
            request.handover = kv.stage();
            die(core, HandoverFault::DieBefore).await?;
            Ok(staged(kv, fingerprint, None, None))
        }
        Plan::Prefill { room, rank } => {
            request.handover = kv.stage();
            request.placement = homing_engine::Placement::On(rank);
            // Whatever the caller wants of the answer is the other side's business.
            request.max_tokens = homing_domain::Tokens(1);
            request.ending = homing_engine::Ending::AtLength;
            request.stop.clear();
            ask.stops.clear();
            let met = kv.rooms.prefill(room, kv.settings.wait).await;
            let met = met.map_err(|error| Problem::Handover(error.to_string()))?;
            die(core, HandoverFault::DieBefore).await?;
            Ok(staged(kv, fingerprint, Some(met.told), Some(met.sent)))
        }
    }
}

fn staged(
    kv: &Kv,
    fingerprint: u64,
    told: Option<oneshot::Sender<Kept>>,
    sent: Option<oneshot::Receiver<()>>,
) -> Begun {
    let name: Arc<str> = format!("{:x}-{:x}", kv.mark, fastrand::u64(..)).into();
    Begun {
        errand: Errand::Stage {
            name: Arc::clone(&name),
            fingerprint,
            told,
        },
        name: Some(name),
        sent,
    }
}

/// Begins a new life if this fault is asked for. Whoever asked something loses its connection.
pub(crate) async fn die(core: &Core, when: HandoverFault) -> Result<(), Problem> {
    if core.faults.now().handover.0 != when {
        return Ok(());
    }
    if let Err(error) = core.restart().await {
        tracing::warn!("the sockets of events did not come back: {error}");
    }
    Err(Problem::Cut)
}

/// What goes wrong once something is staged.
pub(crate) async fn after_staging(core: &Core, name: &str) -> Result<(), Problem> {
    match core.faults.now().handover.0 {
        HandoverFault::DieAfter => die(core, HandoverFault::DieAfter).await,
        HandoverFault::Lose => Err(Problem::Cut),
        HandoverFault::Lapse => {
            core.lapse(name);
            Ok(())
        }
        HandoverFault::None | HandoverFault::DieBefore | HandoverFault::Hang => Ok(()),
    }
}
