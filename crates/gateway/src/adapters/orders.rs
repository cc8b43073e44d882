//! What operators order: an adapter is to be served, or not any more. The steward carries it out, because it owns who serves what.

use std::sync::Arc;

use homing_adapters::{BadName, Pinned};
use homing_domain::AdapterName;
use tokio::sync::oneshot;

use super::catalogue::most;
use super::{Entries, LONGEST_SOURCE};
use crate::steward::Steward;

/// An adapter that an operator told us of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Registered {
    /// The model that it adapts.
    pub(crate) model: Arc<str>,
    /// From where engines load it: a path, or an address that they understand.
    pub(crate) source: Arc<str>,
    pub(crate) pinned: Pinned,
}

/// Why an order is not carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum OrderProblem {
    #[error(transparent)]
    Name(#[from] BadName),
    #[error("`path` or `uri` is needed: from where engines load the adapter, in at most {LONGEST_SOURCE} bytes")]
    Source,
    #[error("`{0}` is the name of a model")]
    IsModel(String),
    #[error("`model` is needed, because there is more than one model, or none yet: {0}")]
    WhichModel(String),
    #[error("there are {0} adapters already, which is the limit")]
    Full(usize),
    #[error("there is no adapter `{0}`; there are {1}")]
    Unknown(String, String),
    #[error("adapters are not managed here: start with --adapters manage")]
    NotManaged,
    #[error("nothing is changed, because the catalogue cannot hold it (`adapters.catalogue`): {0}")]
    Unwritten(String),
    #[error("the gateway ends")]
    Ending,
}

/// What an operator orders.
#[derive(Debug)]
pub(crate) enum Order {
    /// Serve an adapter.
    Register {
        name: AdapterName,
        /// `None`: the only one there is.
        model: Option<String>,
        source: Arc<str>,
        pinned: Pinned,
        reply: oneshot::Sender<Result<(), OrderProblem>>,
    },
    /// Serve it no more.
    Unregister {
        name: AdapterName,
        reply: oneshot::Sender<Result<(), OrderProblem>>,
    },
}

impl Steward {
    /// Does what an operator ordered.
    pub(crate) async fn order(&mut self, order: Order) {
        // Whoever ordered it may not wait for an answer any more.
        match order {
            Order::Register {
                name,
                model,
                source,
                pinned,
                reply,
            } => {
                let done = self.register(&name, model, source, pinned).await;
                drop(reply.send(done));
            }
            Order::Unregister { name, reply } => {
                let done = self.unregister(&name).await;
                drop(reply.send(done));
            }
        }
    }

    async fn register(
        &mut self,
        name: &AdapterName,
        model: Option<String>,
        source: Arc<str>,
        pinned: Pinned,
    ) -> Result<(), OrderProblem> {
        let models = self.models();
        if models.iter().any(|model| model == name.as_str()) {
            return Err(OrderProblem::IsModel(name.to_string()));
        }
        let model = match (model, models.as_slice()) {
            (Some(model), _) => model,
            (None, [one]) => one.clone(),
            (None, _) => return Err(OrderProblem::WhichModel(models.join(", "))),
        };
        if self.registered.len() >= most() && !self.registered.contains_key(name) {
            return Err(OrderProblem::Full(most()));
        }
        let registered = Registered {
            model: model.as_str().into(),
            source,
            pinned,
        };
        let mut entries = self.registered.clone();
        entries.insert(name.clone(), registered.clone());
        self.keep(entries).await?;
        tracing::info!(adapter = %name, model, source = %registered.source, "an adapter is to be served");
        self.withdrawn.remove(name);
        for lane in self.lanes_of(&model) {
            lane.adapter_registered(name, &registered);
        }
        self.publish();
        Ok(())
    }

    async fn unregister(&mut self, name: &AdapterName) -> Result<(), OrderProblem> {
        let mut entries = self.registered.clone();
        let mut known = entries.remove(name).is_some();
        if known {
            self.keep(entries).await?;
        }
        for lane in self.all_lanes() {
            known |= lane.adapter_unregistered(name);
        }
        if !known {
            let names: Vec<String> = self.registered.keys().map(ToString::to_string).collect();
            return Err(OrderProblem::Unknown(name.to_string(), names.join(", ")));
        }
        tracing::info!(adapter = %name, "an adapter is not to be served any more");
        self.withdrawn.insert(name.clone());
        self.publish();
        Ok(())
    }

    /// These are what operators told of from now on, also after a restart if there is a catalogue.
    async fn keep(&mut self, entries: Entries) -> Result<(), OrderProblem> {
        let Some(catalogue) = self.catalogue.clone() else {
            self.registered = entries;
            return Ok(());
        };
        let write = move || catalogue.write(&entries).map(|()| entries);
        match tokio::task::spawn_blocking(write).await {
            Ok(Ok(entries)) => {
                self.registered = entries;
                Ok(())
            }
            Ok(Err(why)) => Err(OrderProblem::Unwritten(why.to_string())),
            Err(_) => Err(OrderProblem::Ending),
        }
    }
}
