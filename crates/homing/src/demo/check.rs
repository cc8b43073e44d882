//! Were the answers right? A sample, and all that went on elsewhere, are compared with what an engine says that nobody disturbs.
//!
//! The engines of the demo choose each token by the tokens before it, and by nothing else. What an engine without load, faults or
//! gateway answers to a question is therefore the answer.

use std::sync::Arc;

use anyhow::Context as _;
use homing_config::Config;
use tokio::task::JoinSet;

use super::board::{Kept, Way};
use super::client::Endpoint;
use super::engine::Engine;

/// Nobody looks at how long it takes.
const SPEEDUP: f64 = 100_000.0;
/// Questions at once.
const AT_ONCE: usize = 32;

/// What came of the comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compared {
    /// Answers that were compared.
    pub answers: u64,
    /// Those of them that went on elsewhere.
    pub moved: u64,
    /// Those that were not the same.
    pub wrong: u64,
}

/// Compares them.
pub async fn compare(config: &Config, kept: impl Iterator<Item = &Kept>) -> anyhow::Result<Compared> {
    let mut config = config.clone();
    config.mock.speedup = SPEEDUP;
    config.demo.drop_every = 0;
    let engine = Engine::start(&config).await?;
    let endpoint = Arc::new(Endpoint::new(&engine.url, config.model.as_str()));
    let mut compared = Compared::default();
    let mut asking: JoinSet<anyhow::Result<bool>> = JoinSet::new();
    let mut count = |equal: Result<anyhow::Result<bool>, tokio::task::JoinError>| -> anyhow::Result<()> {
        let equal = equal.context("an answer was not compared")??;
        compared.wrong += u64::from(!equal);
        Ok(())
    };
    let (mut answers, mut moved) = (0, 0);
    for Kept { asked, text, way } in kept {
        answers += 1;
        moved += u64::from(*way == Way::Moved);
        while asking.len() >= AT_ONCE {
            if let Some(equal) = asking.join_next().await {
                count(equal)?;
            }
        }
        let (endpoint, asked, text) = (endpoint.clone(), asked.clone(), text.clone());
        asking.spawn(async move { Ok(endpoint.whole(&asked).await? == text) });
    }
    while let Some(equal) = asking.join_next().await {
        count(equal)?;
    }
    Ok(Compared {
        answers,
        moved,
        ..compared
    })
}
