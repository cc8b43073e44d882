//! What do we add to a request, and what must be taken out of its answer again?
//!
//! Two things are added to streams, where the client did not ask for them itself: usage at the end, so that what was predicted
//! can be compared with what was cached, and token ids with every piece, so that the stream can be continued elsewhere. The
//! editor takes both out again.
//!
//! **Invariant:** an event that carries nothing that we asked for passes as it came.
//!
//! **Invariant:** what a client asked for itself is never taken out.
//!
//! Cost: a few searches for keys in each event; with token ids, one copy of it.
//!
//! It does not know engines. SGLang refuses token ids in streams of chats, so they must not be wanted of it there.

use bytes::Bytes;

use crate::ask::{Ask, Delivery, Feature, UsageAsked};
use crate::endpoint::Endpoint;
use crate::json::{Kind, Span, kind, leading, leading_numbers, quoted};
use crate::keyed::{Key, Places};
use crate::migrate::Continuation;
use crate::splice::Splice;
use crate::sse::Event;

/// What a gateway wants to know beyond what the client asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wanted {
    /// Nothing.
    Nothing,
    /// Usage at the end of streams.
    #[default]
    Usage,
    /// Usage, and token ids with every piece of streams that could be continued elsewhere.
    UsageAndTokens,
}

/// Whether something is added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Added {
    #[default]
    No,
    Yes,
}

/// What is changed in a body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The name of the model that the worker knows, where it is another one.
    pub model: Option<String>,
    /// The cache salt that the engine gets, where it is another one than the client's.
    salt: Option<String>,
    /// The engine's id of the response that the request continues, where the client knows it under another one.
    pub previous_response: Option<String>,
    usage: Added,
    tokens: Added,
}

impl Plan {
    /// What must be changed to learn what is wanted.
    pub fn new(ask: &Ask, wanted: Wanted) -> Self {
        let mut plan = Self {
            salt: ask.engine_salt.clone(),
            ..Self::default()
        };
        let pieces = matches!(ask.endpoint, Endpoint::ChatCompletions | Endpoint::Completions);
        // Anthropic's and OpenAI's newer streams tell their usage anyway.
        if wanted == Wanted::Nothing || !pieces || ask.delivery != Delivery::Streamed {
            return plan;
        }
        if ask.usage == UsageAsked::No {
            plan.usage = Added::Yes;
        }
        let told = ask.has(Feature::TokenIds);
        if wanted == Wanted::UsageAndTokens && !told && Continuation::possible(ask).is_ok() {
            plan.tokens = Added::Yes;
        }
        plan
    }

    /// The body to send: without `homing`, with what the plan adds. Unchanged, the same bytes are shared.
    pub fn body(&self, ask: &Ask, body: &Bytes) -> Bytes {
        let mut splice = Splice::new(body, &ask.fields);
        if ask.fields.get(body, "homing").is_some() {
            splice.remove("homing");
        }
        if let Some(model) = &self.model {
            splice.set("model", quoted(model));
        }
        if let Some(salt) = &self.salt {
            splice.set("cache_salt", quoted(salt));
            // It is part of the salt.
            if ask.fields.get(body, "extra_key").is_some() {
                splice.remove("extra_key");
            }
        }
        if let Some(id) = &self.previous_response {
            splice.set("previous_response_id", quoted(id));
        }
        // Engines store a response under this id if it is given: a client could overwrite and then read the response of another one.
        if ask.endpoint == Endpoint::Responses && ask.fields.get(body, "request_id").is_some() {
            splice.remove("request_id");
        }
        if self.usage == Added::Yes {
            splice.set_in("stream_options", "include_usage", "true");
            // Asked for without the other one it means nothing, and with it a usage with every piece.
            splice.remove_in("stream_options", "continuous_usage_stats");
        }
        if self.tokens == Added::Yes {
            splice.set("return_token_ids", "true");
        }
        if splice.is_empty() {
            return body.clone();
        }
        splice.finish()
    }

    /// What takes out again what was added.
    pub fn editor(&self) -> Editor {
        Editor {
            usage: self.usage,
            tokens: self.tokens,
        }
    }
}

/// What becomes of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Passed {
    /// It is passed as it came.
    Pass,
    /// This is passed instead.
    Replace(Bytes),
    /// Nothing is passed.
    Drop,
}

/// Takes out of a stream what was not asked for by the client.
#[derive(Clone, Debug)]
pub struct Editor {
    usage: Added,
    tokens: Added,
}

impl Editor {
    /// What becomes of an event.
    pub fn event(&self, event: &Event) -> Passed {
        if (self.usage, self.tokens) == (Added::No, Added::No) {
            return Passed::Pass;
        }
        let Some((data, places)) = event.read() else {
            return Passed::Pass;
        };
        if self.usage == Added::Yes && is_usage_only(&data, &places) {
            return Passed::Drop;
        }
        if self.tokens == Added::No {
            return Passed::Pass;
        }
        let mut lists = [Key::TokenIds, Key::PromptTokenIds].map(|key| list_of(key, &data, &places));
        if lists == [None, None] {
            return Passed::Pass;
        }
        if says_nothing(&data, &places) {
            return Passed::Drop;
        }
        lists.sort_unstable_by_key(|list| list.map(|list| list.start));
        Passed::Replace(event.with_nulls(lists.into_iter().flatten()))
    }
}

/// Whether an event has no choices, but usage.
fn is_usage_only(data: &[u8], places: &Places) -> bool {
    let choices = || places.from(data, Key::Choices).and_then(leading);
    places.opens(data, Key::Usage, b'{') && choices().is_some_and(is_empty)
}

/// Whether it is a piece of a chat that was sent for its tokens only.
fn says_nothing(data: &[u8], places: &Places) -> bool {
    let inner = places.from(data, Key::Delta).and_then(|delta| delta.strip_prefix(b"{"));
    let empty = inner.is_some_and(|inner| inner.trim_ascii_start().starts_with(b"}"));
    empty && !places.opens(data, Key::FinishReason, b'"') && !places.opens(data, Key::Usage, b'{')
}

/// Where a list of tokens is.
fn list_of(key: Key, data: &[u8], places: &Places) -> Option<Span> {
    let start = places.at(key)?;
    let value = data.get(start..)?;
    let list = leading_numbers(value).or_else(|| leading(value))?;
    (kind(list) == Some(Kind::Array)).then_some(Span {
        start,
        end: start + list.len(),
    })
}

fn is_empty(container: &[u8]) -> bool {
    let inner = container.get(1..container.len().saturating_sub(1));
    inner.is_some_and(|inner| inner.trim_ascii().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::Limits;

    fn plan(endpoint: Endpoint, body: &str, wanted: Wanted) -> (Plan, String) {
        let body = Bytes::copy_from_slice(body.as_bytes());
        let ask = Ask::read(endpoint, &body, Limits::default()).unwrap();
        let plan = Plan::new(&ask, wanted);
        let sent = plan.body(&ask, &body);
        if sent == body {
            assert_eq!(sent.as_ptr(), body.as_ptr(), "shared");
        }
        (plan, String::from_utf8(sent.to_vec()).unwrap())
    }

    #[test]
    fn usage_is_asked_for_in_streams_that_do_not() {
        let chat = Endpoint::ChatCompletions;
        for (endpoint, body, sent) in [
            (
                chat,
                r#"{"stream":true}"#,
                r#"{"stream":true,"stream_options":{"include_usage":true}}"#,
            ),
            (chat, r#"{"stream":false}"#, r#"{"stream":false}"#),
            (
                chat,
                r#"{"stream":true,"stream_options":{"include_usage":true}}"#,
                r#"{"stream":true,"stream_options":{"include_usage":true}}"#,
            ),
            (
                chat,
                r#"{"stream":true,"stream_options":{"include_usage":false,"continuous_usage_stats":true}}"#,
                r#"{"stream":true,"stream_options":{"include_usage":true}}"#,
            ),
            (Endpoint::Messages, r#"{"stream":true}"#, r#"{"stream":true}"#),
            (Endpoint::Responses, r#"{"stream":true}"#, r#"{"stream":true}"#),
            (chat, r#"{"homing":{"a":1},"x":1}"#, r#"{"x":1}"#),
        ] {
            assert_eq!(plan(endpoint, body, Wanted::Usage).1, sent);
        }
    }

    #[test]
    fn the_salt_of_the_engine_replaces_that_of_the_client() {
        for (body, sent) in [
            (r#"{"cache_salt": "b","x":1}"#, r#"{"cache_salt": "1:a:b","x":1}"#),
            (
                r#"{"x":1,"extra_key":"b","cache_salt":"y","cache_salt":null}"#,
                r#"{"x":1,"cache_salt":"1:a:b"}"#,
            ),
            (r#"{"x":1}"#, r#"{"x":1,"cache_salt":"1:a:b"}"#),
        ] {
            let body = Bytes::copy_from_slice(body.as_bytes());
            let mut ask = Ask::read(Endpoint::Completions, &body, Limits::default()).unwrap();
            ask.engine_salt = Some("1:a:b".to_owned());
            assert_eq!(Plan::new(&ask, Wanted::Nothing).body(&ask, &body), sent);
        }
    }

    #[test]
    fn the_engine_gets_its_own_id_of_a_response_and_chooses_the_next_one() {
        let body = Bytes::from_static(br#"{"request_id":"resp_b","previous_response_id":"resp_signed","input":"x"}"#);
        let ask = Ask::read(Endpoint::Responses, &body, Limits::default()).unwrap();
        let mut plan = Plan::new(&ask, Wanted::Usage);
        assert_eq!(
            plan.body(&ask, &body),
            r#"{"previous_response_id":"resp_signed","input":"x"}"#
        );
        plan.previous_response = Some("resp_a".to_owned());
        assert_eq!(
            plan.body(&ask, &body),
            r#"{"previous_response_id":"resp_a","input":"x"}"#
        );
        let (_, chat) = self::plan(Endpoint::ChatCompletions, r#"{"request_id":"a"}"#, Wanted::Usage);
        assert_eq!(chat, r#"{"request_id":"a"}"#);
    }

    #[test]
    fn tokens_are_asked_for_only_where_they_help() {
        let asked = |body: &str| {
            plan(Endpoint::Completions, body, Wanted::UsageAndTokens)
                .1
                .contains("return_token_ids\":true")
        };
        assert!(asked(r#"{"prompt":"a","stream":true}"#));
        assert!(!asked(r#"{"prompt":"a","stream":false}"#));
        assert!(!asked(r#"{"prompt":"a","stream":true,"n":2}"#));
        let (own, _) = plan(
            Endpoint::Completions,
            r#"{"prompt":"a","stream":true,"return_token_ids":true}"#,
            Wanted::UsageAndTokens,
        );
        let event = Event::new(&b"data: {\"choices\":[{\"text\":\"a\",\"token_ids\":[1]}]}\n\n"[..]);
        assert_eq!(own.editor().event(&event), Passed::Pass);
    }

    #[test]
    fn what_was_added_is_taken_out_and_nothing_else() {
        let (plan, _) = plan(
            Endpoint::ChatCompletions,
            r#"{"messages":[],"stream":true}"#,
            Wanted::UsageAndTokens,
        );
        let editor = plan.editor();
        let passed = |data: &str| editor.event(&Event::new(format!("data: {data}\n\n").into_bytes()));
        let replaced = |data: &str| Passed::Replace(format!("data: {data}\n\n").into());
        assert_eq!(passed(r#"{"choices":[],"usage":{"prompt_tokens":1}}"#), Passed::Drop);
        assert_eq!(
            passed(r#"{"choices": [ ], "usage": {"prompt_tokens":1}}"#),
            Passed::Drop
        );
        assert_eq!(passed(r#"{"choices":[],"usage":null}"#), Passed::Pass);
        assert_eq!(passed("[DONE]"), Passed::Pass);
        assert_eq!(
            passed(r#"{"choices":[{"delta":{"content":"\"token_ids\":[1]"},"token_ids":null}]}"#),
            Passed::Pass
        );
        assert_eq!(
            passed(r#"{"choices":[{"delta":{"content":"a"},"token_ids":[5, 6]}]}"#),
            replaced(r#"{"choices":[{"delta":{"content":"a"},"token_ids":null}]}"#)
        );
        assert_eq!(
            passed(r#"{"prompt_token_ids":[1,2],"choices":[{"delta":{"role":"assistant"},"token_ids":[]}],"x":1}"#),
            replaced(r#"{"prompt_token_ids":null,"choices":[{"delta":{"role":"assistant"},"token_ids":null}],"x":1}"#)
        );
        // A piece that there would not be without the tokens.
        assert_eq!(
            passed(r#"{"choices":[{"delta":{},"finish_reason":null,"token_ids":[5]}]}"#),
            Passed::Drop
        );
        assert_eq!(
            passed(r#"{"choices":[{"delta":{},"finish_reason":"stop","token_ids":[5]}]}"#),
            replaced(r#"{"choices":[{"delta":{},"finish_reason":"stop","token_ids":null}]}"#)
        );
        assert_eq!(editor.event(&Event::new(&b": comment\n\n"[..])), Passed::Pass);
    }
}
