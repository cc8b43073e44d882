//! How does an answer come about? Requests are put into the engine, and what it says becomes text.

use std::sync::Arc;

use serde_json::Value;
use tokio::sync::oneshot;

use crate::app::App;
use crate::ask::Ask;
use crate::core::Answer;
use crate::kv;
use crate::problem::Problem;
use crate::speaker::{Delta, Speaker, Stops};
use crate::state::News;
use crate::tokenizer::Codec;

/// What is asked, being answered.
pub(crate) struct Speech {
    pub(crate) ask: Ask,
    pub(crate) codec: Codec,
    pub(crate) speakers: Vec<Speaker>,
    answer: Answer,
    block_size: usize,
    /// Cut after so many tokens; 0: never.
    cut_after: u32,
    heard: u32,
    /// The name under which its blocks stay, where they are to.
    name: Option<Arc<str>>,
    /// It is over only when this has come: the other side has its KV.
    sent: Option<oneshot::Receiver<()>>,
    /// What goes into the question to the engine that takes its KV over.
    pub(crate) transfer: Option<Value>,
}

impl Speech {
    /// Puts the requests in; one that is to meet another when they have met.
    pub(crate) async fn begin(app: &Arc<App>, mut ask: Ask) -> Result<Self, Problem> {
        let begun = kv::begin(&app.core, &mut ask).await?;
        let requests = std::mem::take(&mut ask.requests);
        let codec = app.settings.codec.clone();
        let speakers = vec![Speaker::new(&codec, ask.script.clone()); requests.len()];
        Ok(Self {
            answer: app.core.submit(requests, ask.n, begun.errand)?,
            ask,
            codec,
            speakers,
            block_size: app.settings.engine.block_size.get() as usize,
            cut_after: app.core.faults.now().cut_after,
            heard: 0,
            name: begun.name,
            sent: begun.sent,
            transfer: None,
        })
    }

    /// Waits for the next token, and says of whom it is. `None`: all was said.
    pub(crate) async fn next(&mut self) -> Result<Option<(usize, Delta)>, Problem> {
        loop {
            if self.speakers.iter().all(|speaker| speaker.end.is_some()) {
                if let Some(sent) = self.sent.take() {
                    let lost = |_| Problem::Handover("the KV was not taken over".to_owned());
                    sent.await.map_err(lost)?;
                }
                return Ok(None);
            }
            // Nobody is left to speak, and not all have ended: the engine is gone.
            let heard = self.answer.next().await.ok_or(Problem::Cut)?;
            let part = heard.part as usize;
            let stops = Stops {
                texts: &self.ask.stops,
                keep: self.ask.keep_stop,
            };
            let Some(speaker) = self.speakers.get_mut(part).filter(|speaker| speaker.end.is_none()) else {
                continue;
            };
            match heard.news {
                News::Lost | News::Computed => return Err(Problem::Cut),
                News::Missed => {
                    return Err(Problem::Handover("the KV could not be loaded".to_owned()));
                }
                News::Staged(staged) => {
                    let Some(name) = &self.name else { continue };
                    kv::after_staging(self.answer.core(), name).await?;
                    self.transfer = Some(self.answer.core().transfer_params(name, &staged));
                }
                News::Admitted { cached } => speaker.cached = cached,
                News::Token(token, finish) => {
                    self.heard += 1;
                    if self.cut_after > 0 && self.heard > self.cut_after {
                        return Err(Problem::Cut);
                    }
                    speaker.hear(token, finish, stops);
                    if speaker.end.is_some() {
                        self.answer.end(heard.part);
                    }
                    return Ok(Some((part, speaker.delta(stops))));
                }
            }
        }
    }

    /// Waits until everything is said.
    pub(crate) async fn whole(&mut self) -> Result<(), Problem> {
        while self.next().await?.is_some() {}
        Ok(())
    }

    pub(crate) fn prompt_tokens(&self) -> usize {
        self.ask.prompts.iter().map(Vec::len).sum()
    }

    pub(crate) fn generated(&self) -> usize {
        self.speakers.iter().map(|speaker| speaker.tokens.len()).sum()
    }

    pub(crate) fn cached(&self) -> u32 {
        // Of several answers to one prompt, the first counts: the others find what it left.
        self.speakers
            .iter()
            .step_by(self.ask.n)
            .map(|speaker| speaker.cached)
            .sum()
    }

    /// Tokens in whole blocks of the prompts that were not in the cache before.
    pub(crate) fn newly_cached(&self) -> usize {
        let whole = |prompt: &Vec<u32>| prompt.len() / self.block_size * self.block_size;
        let whole: usize = self.ask.prompts.iter().map(whole).sum();
        whole.saturating_sub(self.cached() as usize)
    }

    pub(crate) fn prompt_of(&self, part: usize) -> &[u32] {
        self.ask.prompts.get(part / self.ask.n).map_or(&[], Vec::as_slice)
    }
}
