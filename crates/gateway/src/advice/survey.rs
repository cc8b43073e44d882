//! How are all ranks, and what do they hold of this prompt? Nothing is decided, and nothing is booked.

use std::sync::Arc;

use axum::http::HeaderMap;
use bytes::Bytes;
use homing_domain::{RequestId, Tier, Tokens};
use homing_router::Question;
use serde_json::{Value, json};

use super::asked::Asked;
use super::{Advice, Said, who};
use crate::case;
use crate::lane::Lane;
use crate::refusal::Refuse;
use crate::tokens::From;

impl Advice {
    /// What each rank has to do, or would have to with this prompt.
    pub(super) async fn loads(&self, headers: HeaderMap, body: Bytes) -> Said {
        let (lanes, prompt) = self.lanes(headers, body).await?;
        let mut ranks = Vec::new();
        for (lane, question) in lanes {
            let (keys, tokens) = question
                .as_ref()
                .map_or((&[][..], Tokens(0)), |question| (&question.keys[..], question.prompt));
            for (rank, potential) in lane.router.potential_loads(lane.now(), keys, tokens) {
                let Ok(worker) = self.worker(rank) else { continue };
                ranks.push(json!({
                    "worker": who(&worker, rank),
                    "prefill_tokens": potential.prefill_tokens,
                    "decode_blocks": potential.blocks,
                    // A prompt that is none is no request more.
                    "requests": potential.requests - u32::from(question.is_none()),
                    "backlog_ms": finite(potential.backlog.0),
                }));
            }
        }
        Ok(json!({ "prompt_tokens": prompt, "ranks": ranks }))
    }

    /// What each rank holds of this prompt.
    pub(super) async fn overlap(&self, headers: HeaderMap, body: Bytes) -> Said {
        let (lanes, prompt) = self.lanes(headers, body).await?;
        let Some(prompt) = prompt else {
            return Err(Refuse::wrong(400, "one of `tokens`, `messages` and `prompt` is needed"));
        };
        let mut ranks = Vec::new();
        for (lane, question) in lanes {
            let keys = question.map(|question| question.keys).unwrap_or_default();
            let table = self.gateway.table.load_full();
            let here = table.workers.values().filter(|worker| Arc::ptr_eq(&worker.lane, &lane));
            for (worker, rank) in here.flat_map(|worker| worker.ranks().map(move |rank| (worker, rank))) {
                let Some(depths) = lane.router.overlap(&keys, rank) else {
                    continue;
                };
                let size = lane.subject.block_size.get();
                let tiers: serde_json::Map<String, Value> = Tier::ALL
                    .iter()
                    .map(|tier| (tier_name(*tier).to_owned(), json!(depths.tiers[tier.index()])))
                    .collect();
                ranks.push(json!({
                    "worker": who(worker, rank),
                    "block_size": size,
                    "prompt_blocks": keys.len(),
                    "cached_tokens": u64::from(depths.anywhere()) * u64::from(size),
                    "blocks_up_to_tier": tiers,
                    "booked_blocks": depths.booked,
                }));
            }
        }
        Ok(json!({ "prompt_tokens": prompt, "ranks": ranks }))
    }

    /// The routers that a question is for, with what each of them is asked, and the tokens of the prompt, if there is one.
    async fn lanes(
        &self,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<(Vec<(Arc<Lane>, Option<Question>)>, Option<u32>), Refuse> {
        let id = RequestId::new(format!("{:032x}", fastrand::u128(..)).as_str());
        let body = if body.trim_ascii().is_empty() {
            Bytes::from_static(b"{}")
        } else {
            body
        };
        let mut asked = Asked::read_any(id, self.for_workers(headers), body)?;
        asked.isolate(&self.gateway)?;
        let table = self.gateway.table.load_full();
        if !asked.has_prompt() {
            let lanes = match &asked.ask.model {
                Some(_) => case::served(&table, &asked.ask)?.1.lanes.clone(),
                None => table.lanes().into_iter().cloned().collect(),
            };
            return Ok((lanes.into_iter().map(|lane| (lane, None)).collect(), None));
        }
        let (case, known) = self.case(&asked, &table).await?;
        if let (From::Nobody, Some(why)) = (known.from, &known.why) {
            return Err(Refuse::wrong(
                422,
                format!("the tokens of this prompt are not known: {why}"),
            ));
        }
        let lanes = case.served.lanes.iter();
        let lanes = lanes.map(|lane| Ok((lane.clone(), Some(case.asked_of(lane, &known)?))));
        Ok((lanes.collect::<Result<_, Refuse>>()?, Some(known.count)))
    }
}

const fn tier_name(tier: Tier) -> &'static str {
    match tier {
        Tier::Device => "device",
        Tier::Host => "host",
        Tier::Disk => "disk",
        Tier::External => "external",
    }
}

/// JSON has no word for what is not finite.
fn finite(value: f64) -> Option<f64> {
    value.is_finite().then_some(value)
}
