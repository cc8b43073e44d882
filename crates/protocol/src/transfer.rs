//! What is asked of two workers that serve one request, and what does the first tell the second?
//!
//! *By result* (vLLM): the prefill leg is the client's request for one token, not streamed, with word that its KV will be fetched. Its answer
//! names the KV, and the decode leg is the client's request with that name. *In a meeting* (SGLang): both legs are the client's request with
//! the place and the room where they meet.
//!
//! **Invariant:** the decode leg is what the client sent but for what names the KV: its limits, its stream and all else are its own.
//!
//! **Invariant:** what the prefill leg says of its KV reaches the decode leg byte for byte.

use bytes::Bytes;

use crate::ask::{Ask, Feature, Prompt};
use crate::endpoint::Endpoint;
use crate::heard::{Attention, Ear, Usage};
use crate::json::{Fields, Kind, Limits, entry, items, kind, quoted};
use crate::splice::Splice;

/// What the prefill leg is told: its KV will be fetched by somebody whom it does not know yet.
const STAGE: &str = r#"{"do_remote_decode":true,"do_remote_prefill":false,"remote_engine_id":null,"remote_block_ids":null,"remote_host":null,"remote_port":null}"#;
/// Fields that say something about streams or lengths, and mean nothing for one token.
const NOT_FOR_ONE: [&str; 3] = ["stream_options", "min_tokens", "max_completion_tokens"];
/// Seconds since 1970 are more than this; what engines count from their own start is less.
const SINCE_1970: f64 = 1e9;

/// Why one worker has to serve all of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhyWhole {
    /// Engines hand KV over for chats and completions only.
    Endpoint,
    /// There are several prompts, or several answers to one.
    Several,
    /// It ends with its first token, which whoever computes the prompt generates.
    OneToken,
    /// It uses something of the prompt that the second worker would not see, or hands KV over itself.
    Feature(Feature),
}

impl WhyWhole {
    /// As people read it.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Endpoint => "requests of this kind are served by one worker",
            Self::Several => "there are several prompts or answers",
            Self::OneToken => "it ends with its first token",
            Self::Feature(_) => "it uses something that only one worker can serve",
        }
    }
}

/// Whether two workers can serve a request; if not, why.
pub fn divisible(ask: &Ask) -> Result<(), WhyWhole> {
    if !matches!(ask.endpoint, Endpoint::ChatCompletions | Endpoint::Completions) {
        return Err(WhyWhole::Endpoint);
    }
    if ask.n > 1 || ask.best_of > 1 || matches!(ask.prompt, Prompt::Texts { .. } | Prompt::TokenLists { .. }) {
        return Err(WhyWhole::Several);
    }
    for feature in [
        Feature::PromptLogprobs,
        Feature::Echo,
        Feature::BeamSearch,
        Feature::KvTransfer,
        Feature::PromptEmbeds,
    ] {
        if ask.has(feature) {
            return Err(WhyWhole::Feature(feature));
        }
    }
    if ask.max_output == crate::ask::MaxOutput::Tokens(1) {
        return Err(WhyWhole::OneToken);
    }
    Ok(())
}

/// The prefill leg, made of what would be sent to one worker, of a request that is handed over by result.
pub fn prefill(sent: &Bytes) -> Bytes {
    one_token(sent, STAGE.as_bytes())
}

/// The decode leg: what would be sent to one worker, with what the prefill leg told of its KV.
pub fn decode(sent: &Bytes, told: &[u8]) -> Bytes {
    changed(sent, |splice, _| {
        splice.set("kv_transfer_params", told);
    })
}

/// A leg that fetches KV, which nobody waits for, so that it is let go.
pub fn fetch(sent: &Bytes, told: &[u8]) -> Bytes {
    one_token(sent, told)
}

fn one_token(sent: &Bytes, params: &[u8]) -> Bytes {
    changed(sent, |splice, fields| {
        for field in NOT_FOR_ONE {
            splice.remove(field);
        }
        splice.set("stream", "false");
        splice.set("max_tokens", "1");
        if fields.get(sent, "max_completion_tokens").is_some() {
            splice.set("max_completion_tokens", "1");
        }
        splice.set("kv_transfer_params", params);
    })
}

/// Which leg of a meeting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meets {
    /// That whose answer nobody sees: it comes in one piece.
    Prefill,
    /// That which answers the client.
    Decode,
}

/// A leg of a request whose workers meet.
pub fn meeting(sent: &Bytes, leg: Meets, (host, port, room): (&str, u16, u64)) -> Bytes {
    changed(sent, |splice, _| {
        if leg == Meets::Prefill {
            splice.remove("stream_options");
            splice.set("stream", "false");
        }
        splice.set("bootstrap_host", quoted(host));
        splice.set("bootstrap_port", port.to_string());
        splice.set("bootstrap_room", room.to_string());
    })
}

/// A body that was read before.
fn changed(sent: &Bytes, change: impl FnOnce(&mut Splice<'_>, &Fields)) -> Bytes {
    let limits = Limits {
        bytes: sent.len().max(1),
        ..Limits::default()
    };
    // What was made of a body that was understood is one.
    let Ok(fields) = Fields::read(sent, limits) else {
        return sent.clone();
    };
    let mut splice = Splice::new(sent, &fields);
    change(&mut splice, &fields);
    splice.finish()
}

/// What a prefill leg answered.
#[derive(Clone, Debug, PartialEq)]
pub struct Handed {
    /// What the decode leg is to be told; none if no KV was staged.
    pub told: Option<Bytes>,
    /// How many of the engine's blocks are staged.
    pub blocks: u32,
    /// When they are dropped, in seconds since 1970, where the engine says it so that others can understand it.
    pub expires: Option<f64>,
    /// The answer ended with its first token by itself.
    pub ended: bool,
    /// What it took.
    pub usage: Option<Usage>,
}

/// Reads what a prefill leg answered. `None` if it is no answer.
pub fn handed(endpoint: Endpoint, answer: &Bytes) -> Option<Handed> {
    let heard = Ear::new(endpoint, Attention::Facts).whole(answer);
    let reason = heard.finish?;
    let told = entry(answer, "kv_transfer_params").filter(|told| kind(told) == Some(Kind::Object));
    let blocks = told.and_then(|told| entry(told, "remote_block_ids")).map_or(0, count);
    let expires = told.and_then(|told| number(entry(told, "remote_blocks_expiry_time")?));
    Some(Handed {
        told: told.map(|told| answer.slice_ref(told)),
        blocks,
        expires: expires.filter(|at| *at > SINCE_1970),
        ended: reason != "length",
        usage: heard.usage,
    })
}

/// Block ids in a list, or in lists of several groups: those of the longest.
fn count(list: &[u8]) -> u32 {
    let Some(listed) = items(list) else { return 0 };
    let (mut flat, mut longest) = (0, 0);
    for item in listed {
        match items(item) {
            Some(group) => longest = longest.max(group.count()),
            None => flat += 1,
        }
    }
    u32::try_from(flat.max(longest)).unwrap_or(u32::MAX)
}

fn number(value: &[u8]) -> Option<f64> {
    std::str::from_utf8(value).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(endpoint: Endpoint, body: &str) -> (Ask, Bytes) {
        let body = Bytes::copy_from_slice(body.as_bytes());
        (Ask::read(endpoint, &body, Limits::default()).unwrap(), body)
    }

    #[test]
    fn the_first_leg_is_for_one_token_and_says_that_its_kv_is_fetched() {
        let body = Bytes::from_static(
            br#"{"messages":[{"role":"user","content":"a"}],"stream":true,"stream_options":{"include_usage":true},"max_completion_tokens":9,"min_tokens":4,"top_k":3}"#,
        );
        let sent: serde_json::Value = serde_json::from_slice(&prefill(&body)).unwrap();
        assert_eq!(
            (&sent["max_tokens"], &sent["stream"], &sent["top_k"]),
            (&1.into(), &false.into(), &3.into())
        );
        assert_eq!(sent["max_completion_tokens"], 1);
        assert_eq!(sent["kv_transfer_params"]["do_remote_decode"], true);
        for gone in ["stream_options", "min_tokens"] {
            assert!(sent.get(gone).is_none(), "{gone}");
        }
    }

    #[test]
    fn the_second_leg_is_what_the_client_sent_and_what_the_first_was_told() {
        let sent = Bytes::from_static(br#"{"prompt": "a", "max_tokens": 7, "stream": true}"#);
        let told = br#"{"remote_engine_id":"e" , "remote_block_ids":[1,2]}"#;
        assert_eq!(
            decode(&sent, told),
            r#"{"prompt": "a", "max_tokens": 7, "stream": true,"kv_transfer_params":{"remote_engine_id":"e" , "remote_block_ids":[1,2]}}"#
        );
        let fetched: serde_json::Value = serde_json::from_slice(&fetch(&sent, told)).unwrap();
        assert_eq!(
            (
                &fetched["max_tokens"],
                &fetched["kv_transfer_params"]["remote_engine_id"]
            ),
            (&1.into(), &"e".into())
        );
    }

    #[test]
    fn both_legs_of_a_meeting_know_where_it_is() {
        let sent = Bytes::from_static(br#"{"prompt":"a","bootstrap_room":3}"#);
        assert_eq!(
            meeting(&sent, Meets::Decode, ("10.0.0.1", 8998, 41)),
            r#"{"prompt":"a","bootstrap_room":41,"bootstrap_host":"10.0.0.1","bootstrap_port":8998}"#
        );
    }

    #[test]
    fn what_the_first_leg_answered_is_passed_on_as_it_is() {
        let answer = Bytes::from_static(
            br#"{"choices":[{"text":"x","finish_reason":"length"}],"usage":{"prompt_tokens":40,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":32}},"kv_transfer_params":{"remote_block_ids":[[1,2,3],[4]],"remote_blocks_expiry_time":12.5,"x": 1}}"#,
        );
        let read = handed(Endpoint::Completions, &answer).unwrap();
        assert_eq!(
            read.told.as_deref(),
            Some(&br#"{"remote_block_ids":[[1,2,3],[4]],"remote_blocks_expiry_time":12.5,"x": 1}"#[..])
        );
        assert_eq!(
            (read.blocks, read.expires, read.ended),
            (3, None, false),
            "12.5 is an engine's own clock"
        );
        assert_eq!(read.usage.and_then(|usage| usage.cached), Some(32));
        let stopped = Bytes::from_static(br#"{"choices":[{"finish_reason":"stop"}],"kv_transfer_params":null}"#);
        let read = handed(Endpoint::Completions, &stopped).unwrap();
        assert_eq!((read.told, read.ended), (None, true));
        assert_eq!(handed(Endpoint::Completions, &Bytes::from_static(b"{}")), None);
        assert_eq!(handed(Endpoint::Completions, &Bytes::from_static(b"[1")), None);
    }

    #[test]
    fn not_everything_can_be_divided() {
        let whether = |endpoint, body| divisible(&ask(endpoint, body).0);
        let chat = Endpoint::ChatCompletions;
        assert_eq!(whether(chat, r#"{"messages":[]}"#), Ok(()));
        assert_eq!(whether(chat, r#"{"messages":[],"n":2}"#), Err(WhyWhole::Several));
        assert_eq!(
            whether(chat, r#"{"messages":[],"max_tokens":1}"#),
            Err(WhyWhole::OneToken)
        );
        assert_eq!(
            whether(Endpoint::Embeddings, r#"{"input":"a"}"#),
            Err(WhyWhole::Endpoint)
        );
        assert_eq!(
            whether(Endpoint::Completions, r#"{"prompt":["a","b"]}"#),
            Err(WhyWhole::Several)
        );
        assert_eq!(
            whether(Endpoint::Completions, r#"{"prompt":"a","echo":true}"#),
            Err(WhyWhole::Feature(Feature::Echo))
        );
    }
}
