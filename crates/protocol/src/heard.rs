//! What does an event or a whole answer say?
//!
//! Most events bring a word or two. To see that, the few keys that matter are searched for; JSON is read only where one of them
//! says something: at the end, and where words are asked for.
//!
//! **Invariant:** an event that cannot be understood says nothing; it is no error of ours, and passes.
//!
//! Cost: well under a microsecond for an ordinary event.
//!
//! It does not tell answers of one request apart: of several choices the first that an event names is heard.

use crate::endpoint::Endpoint;
use crate::json::{Kind, entry, ids, items, kind, leading, leading_numbers, text};
use crate::keyed::{Key, Places};
use crate::lax::integer;
use crate::sse::Event;

/// How much is listened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attention {
    /// Whether there is content, how it ended, usage, errors.
    Facts,
    /// Also every word and token: what a migration needs.
    Words,
}

/// Tokens as the engine counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Of the prompt, cached ones included.
    pub prompt: u64,
    /// Of the answer.
    pub completion: u64,
    /// Of the prompt, from the cache. `None` where the engine does not tell.
    pub cached: Option<u64>,
    /// Of the answer, for reasoning. `None` where the engine does not tell.
    pub reasoning: Option<u64>,
}

/// What an event or an answer said.
#[expect(
    clippy::struct_excessive_bools,
    reason = "an event can be each of these, or several at once"
)]
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Heard {
    /// Whether it brings a part of the answer: text, reasoning, a tool's arguments.
    pub content: bool,
    /// Whether that is reasoning.
    pub reasoning: bool,
    /// Whether it is a call of a tool.
    pub tool: bool,
    /// Whether the stream is complete with it.
    pub done: bool,
    /// Why the answer ended, in the engine's word; see [`Self::is_given_up`].
    pub finish: Option<String>,
    /// What was used so far.
    pub usage: Option<Usage>,
    /// An error instead of an answer.
    pub error: Option<EngineError>,
    /// Every word, with [`Attention::Words`] for chats and completions.
    pub words: Option<Box<Words>>,
}

/// What an engine says of an answer that it gave up: it was told to stop, or shuts down.
const GIVEN_UP: &str = "abort";

impl Heard {
    /// Whether the engine gave the answer up. It looks like an end, but the answer can go on elsewhere.
    pub fn is_given_up(&self) -> bool {
        self.finish.as_deref() == Some(GIVEN_UP)
    }
}

/// What is said, word by word.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Words {
    /// What the answer is called; with the first event that tells it.
    pub head: Option<Head>,
    /// The new text.
    pub text: String,
    /// The new tokens, where they are told.
    pub tokens: Option<Vec<u32>>,
    /// The tokens of the prompt, where they are told.
    pub prompt_tokens: Option<Vec<u32>>,
}

/// What all events of an answer have in common.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// The answer's id.
    pub id: String,
    /// When it was made.
    pub created: i64,
    /// The model as the engine names it.
    pub model: String,
}

/// An error that an engine tells in a body or in a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EngineError {
    /// Its words.
    pub message: String,
    /// Its type.
    pub kind: Option<String>,
    /// Its code, where it is a number: a status.
    pub code: Option<u16>,
}

/// Listens to the answer to one request.
#[derive(Clone, Debug)]
pub struct Ear {
    endpoint: Endpoint,
    attention: Attention,
    /// Events that brought content.
    chunks: u64,
    /// The head was told.
    introduced: bool,
    /// What was used so far: Anthropic tells it in parts.
    usage: Usage,
}

impl Ear {
    /// Listens to an answer of this endpoint.
    pub fn new(endpoint: Endpoint, attention: Attention) -> Self {
        Self {
            endpoint,
            attention,
            chunks: 0,
            introduced: false,
            usage: Usage::default(),
        }
    }

    /// What an event says.
    pub fn event(&mut self, event: &Event) -> Heard {
        let Some((data, places)) = event.read() else {
            return Heard::default();
        };
        if event.is_done() {
            return Heard {
                done: true,
                ..Heard::default()
            };
        }
        let heard = match self.endpoint {
            Endpoint::Messages => self.message(event, &data, &places),
            Endpoint::Responses => self.response(event, &data),
            _ => self.chunk(&data, &places),
        };
        self.chunks += u64::from(heard.content);
        heard
    }

    /// What an answer in one piece says.
    pub fn whole(&mut self, body: &[u8]) -> Heard {
        let body = body.trim_ascii();
        if kind(body) != Some(Kind::Object) {
            return Heard::default();
        }
        let first = entry(body, "choices").and_then(|choices| items(choices)?.next());
        let finish = match self.endpoint {
            Endpoint::Messages => entry(body, "stop_reason"),
            Endpoint::Responses => entry(body, "status"),
            _ => first.and_then(|choice| entry(choice, "finish_reason")),
        };
        let usage = entry(body, "usage").filter(|usage| kind(usage) == Some(Kind::Object));
        let heard = Heard {
            done: true,
            finish: finish.and_then(word),
            usage: usage.map(|usage| self.used(usage)),
            error: error_of(body),
            content: self.endpoint.generates() && finish.is_some(),
            ..Heard::default()
        };
        self.chunks += u64::from(heard.content);
        heard
    }

    /// Events that brought content so far: about as many as tokens.
    pub fn chunks(&self) -> u64 {
        self.chunks
    }

    /// A piece of a completion or a chat.
    fn chunk(&mut self, data: &[u8], places: &Places) -> Heard {
        let chat = self.endpoint == Endpoint::ChatCompletions;
        let value = |key| places.from(data, key).and_then(leading);
        let mut heard = Heard::default();
        if chat {
            heard.reasoning = places.says(data, Key::ReasoningContent) || places.says(data, Key::Reasoning);
            let calls = places.from(data, Key::ToolCalls);
            heard.tool = calls.is_some_and(|calls| calls.starts_with(b"[") && !is_empty_list(calls));
        }
        let text_key = if chat { Key::Content } else { Key::Text };
        heard.content = heard.reasoning || heard.tool || places.says(data, text_key);
        if places.opens(data, Key::FinishReason, b'"') {
            heard.finish = value(Key::FinishReason).and_then(word);
        }
        if places.opens(data, Key::Usage, b'{') {
            heard.usage = value(Key::Usage).map(|usage| self.used(usage));
        }
        if !heard.content && places.at(Key::Choices).is_none() {
            heard.error = error_of(data);
        }
        if self.attention == Attention::Words {
            heard.words = Some(Box::new(self.words(data, places, text_key)));
        }
        heard
    }

    fn words(&mut self, data: &[u8], places: &Places, text_key: Key) -> Words {
        let tokens = |key| {
            let list = places.from(data, key)?;
            leading_numbers(list).or_else(|| leading(list)).and_then(ids)
        };
        let mut words = Words::default();
        if !self.introduced {
            words.head = head(data);
            self.introduced = words.head.is_some();
        }
        if places.opens(data, Key::PromptTokenIds, b'[') {
            words.prompt_tokens = tokens(Key::PromptTokenIds);
        }
        if places.says(data, text_key)
            && let Some(said) = places.from(data, text_key).and_then(leading).and_then(text)
        {
            words.text = said.into_owned();
        }
        if places.opens(data, Key::TokenIds, b'[') {
            words.tokens = tokens(Key::TokenIds);
        }
        words
    }

    /// An event in Anthropic's words.
    fn message(&mut self, event: &Event, data: &[u8], places: &Places) -> Heard {
        let mut heard = Heard::default();
        match name_of(event, data).as_ref() {
            b"content_block_delta" => {
                let delta = places.from(data, Key::Delta).and_then(leading).unwrap_or_default();
                match entry(delta, "type").unwrap_or_default() {
                    b"\"text_delta\"" => heard.content = entry(delta, "text").is_some_and(|text| text.len() > 2),
                    b"\"thinking_delta\"" => (heard.content, heard.reasoning) = (true, true),
                    b"\"input_json_delta\"" => (heard.content, heard.tool) = (true, true),
                    _ => {}
                }
            }
            b"content_block_start" => {
                let block = entry(data, "content_block").and_then(|block| entry(block, "type"));
                heard.tool = block.is_some_and(|kind| kind.ends_with(b"tool_use\""));
                heard.content = heard.tool;
                heard.reasoning = block.is_some_and(|kind| kind.ends_with(b"thinking\""));
            }
            b"message_start" => {
                let usage = entry(data, "message").and_then(|message| entry(message, "usage"));
                heard.usage = usage.map(|usage| self.used(usage));
            }
            b"message_delta" => {
                let reason = entry(data, "delta").and_then(|delta| entry(delta, "stop_reason"));
                heard.finish = reason.and_then(word);
                heard.usage = entry(data, "usage").map(|usage| self.used(usage));
            }
            b"message_stop" => heard.done = true,
            b"error" => heard.error = Some(error_of(data).unwrap_or_default()),
            _ => {}
        }
        heard
    }

    /// An event of a response.
    fn response(&mut self, event: &Event, data: &[u8]) -> Heard {
        let mut heard = Heard::default();
        let name = name_of(event, data);
        if let Some(what) = name.strip_suffix(b".delta") {
            heard.content = true;
            heard.reasoning = what.starts_with(b"response.reasoning");
            heard.tool = what.ends_with(b"_arguments") || what.ends_with(b"_input") || what.ends_with(b"_code");
            return heard;
        }
        match name.as_ref() {
            b"response.completed" | b"response.incomplete" | b"response.failed" | b"response.cancelled" => {
                let response = entry(data, "response").unwrap_or_default();
                heard.done = true;
                heard.finish = entry(response, "status").and_then(word);
                let usage = entry(response, "usage").filter(|usage| kind(usage) == Some(Kind::Object));
                heard.usage = usage.map(|usage| self.used(usage));
                heard.error = error_of(response);
            }
            b"error" => heard.error = Some(error_of(data).unwrap_or_default()),
            _ => {}
        }
        heard
    }

    /// Takes what an object tells of the usage, and says what is known now.
    fn used(&mut self, usage: &[u8]) -> Usage {
        let number = |object: &[u8], key: &str| entry(object, key).and_then(unsigned);
        let within = |outer: &str, key: &str| entry(usage, outer).and_then(|inner| number(inner, key));
        if let Some(prompt) = number(usage, "prompt_tokens") {
            self.usage.prompt = prompt;
        } else if let Some(input) = number(usage, "input_tokens") {
            // In Anthropic's words the cached part of the prompt is counted beside the rest.
            let beside = ["cache_read_input_tokens", "cache_creation_input_tokens"];
            let beside: u64 = beside.iter().filter_map(|key| number(usage, key)).sum();
            self.usage.prompt = input + beside;
        }
        let completion = number(usage, "completion_tokens").or_else(|| number(usage, "output_tokens"));
        self.usage.completion = completion.unwrap_or(self.usage.completion);
        let cached = within("prompt_tokens_details", "cached_tokens")
            .or_else(|| within("input_tokens_details", "cached_tokens"))
            .or_else(|| number(usage, "cache_read_input_tokens"));
        self.usage.cached = cached.or(self.usage.cached);
        let reasoning = within("completion_tokens_details", "reasoning_tokens")
            .or_else(|| within("output_tokens_details", "reasoning_tokens"))
            .or_else(|| number(usage, "reasoning_tokens"));
        self.usage.reasoning = reasoning.or(self.usage.reasoning);
        self.usage
    }
}

/// What an event is called: by its name, or by the type that its data tell.
fn name_of<'a>(event: &'a Event, data: &'a [u8]) -> std::borrow::Cow<'a, [u8]> {
    if let Some(name) = event.name().filter(|name| !name.is_empty()) {
        return name.into();
    }
    let told = entry(data, "type").and_then(text);
    told.map(|name| name.into_owned().into_bytes())
        .unwrap_or_default()
        .into()
}

fn head(data: &[u8]) -> Option<Head> {
    Some(Head {
        id: entry(data, "id").and_then(word)?,
        created: entry(data, "created").and_then(integer).unwrap_or_default(),
        model: entry(data, "model").and_then(word).unwrap_or_default(),
    })
}

/// The error that an object tells, in any of the forms that engines have.
fn error_of(object: &[u8]) -> Option<EngineError> {
    let told = entry(object, "error").filter(|error| !matches!(kind(error), None | Some(Kind::Null)));
    let flat = entry(object, "object")
        .and_then(text)
        .is_some_and(|what| what == "error");
    let error = match told {
        Some(error) => error,
        None if flat || entry(object, "type").is_some_and(|kind| kind == b"\"error\"") => object,
        None => return None,
    };
    if let Some(message) = text(error) {
        return Some(EngineError {
            message: message.into_owned(),
            ..EngineError::default()
        });
    }
    Some(EngineError {
        message: entry(error, "message").and_then(word).unwrap_or_default(),
        kind: entry(error, "type").and_then(word),
        code: entry(error, "code")
            .and_then(integer)
            .and_then(|code| u16::try_from(code).ok()),
    })
}

fn is_empty_list(value: &[u8]) -> bool {
    value.get(1..).unwrap_or_default().trim_ascii_start().starts_with(b"]")
}

fn word(value: &[u8]) -> Option<String> {
    text(value).map(std::borrow::Cow::into_owned)
}

fn unsigned(value: &[u8]) -> Option<u64> {
    integer(value).and_then(|number| u64::try_from(number).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hear(endpoint: Endpoint, events: &[&str]) -> (Vec<Heard>, u64) {
        let mut ear = Ear::new(endpoint, Attention::Facts);
        let heard = events
            .iter()
            .map(|raw| ear.event(&Event::new(raw.as_bytes().to_vec())))
            .collect();
        (heard, ear.chunks())
    }

    #[test]
    fn a_chat_is_heard() {
        let (heard, chunks) = hear(
            Endpoint::ChatCompletions,
            &[
                "data: {\"id\":\"c\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"finish_reason\":null}]}\n\n",
                "data: {\"id\":\"c\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hi \\\"usage\\\": {\"},\"finish_reason\":null}]}\n\n",
                "data: {\"id\":\"c\",\"choices\":[{\"index\":0,\"delta\":{\"reasoning_content\":\"hm\"},\"finish_reason\":null}]}\n\n",
                "data: {\"id\":\"c\",\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0}]},\"finish_reason\":null}]}\n\n",
                "data: {\"id\":\"c\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"\"},\"finish_reason\":\"length\"}]}\n\n",
                "data: {\"id\":\"c\",\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":2,\"total_tokens\":11,\
                 \"prompt_tokens_details\":{\"cached_tokens\":4}}}\n\n",
                "data: [DONE]\n\n",
                ": ping\n\n",
            ],
        );
        let content: Vec<bool> = heard.iter().map(|heard| heard.content).collect();
        assert_eq!(content, [false, true, true, true, false, false, false, false]);
        assert_eq!(chunks, 3);
        assert!(heard[2].reasoning && heard[3].tool && !heard[1].reasoning);
        assert_eq!(heard[4].finish.as_deref(), Some("length"));
        assert!(!heard[4].is_given_up());
        let usage = Usage {
            prompt: 9,
            completion: 2,
            cached: Some(4),
            reasoning: None,
        };
        assert_eq!(heard[5].usage, Some(usage));
        assert!(heard[6].done && heard[7] == Heard::default());
        assert!(heard.iter().all(|heard| heard.error.is_none()));
        assert!(heard[..5].iter().all(|heard| heard.usage.is_none()));
    }

    #[test]
    fn usage_is_read_as_each_engine_tells_it() {
        for (endpoint, body, usage) in [
            (
                Endpoint::Completions,
                r#"{"usage":{"prompt_tokens":3,"completion_tokens":1,"prompt_tokens_details":null}}"#,
                (3, 1, None, None),
            ),
            (
                Endpoint::ChatCompletions,
                r#"{"usage":{"prompt_tokens":3,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":null}}}"#,
                (3, 1, None, None),
            ),
            (
                Endpoint::ChatCompletions,
                r#"{"usage":{"prompt_tokens":3,"completion_tokens":5,"completion_tokens_details":{"reasoning_tokens":2}}}"#,
                (3, 5, None, Some(2)),
            ),
            (
                Endpoint::Messages,
                r#"{"usage":{"input_tokens":1,"output_tokens":2,"cache_read_input_tokens":16,"cache_creation_input_tokens":4}}"#,
                (21, 2, Some(16), None),
            ),
            (
                Endpoint::Responses,
                r#"{"usage":{"input_tokens":8,"input_tokens_details":{"cached_tokens":0},"output_tokens":2,"output_tokens_details":{"reasoning_tokens":1}}}"#,
                (8, 2, Some(0), Some(1)),
            ),
            (
                Endpoint::Embeddings,
                r#"{"data":[[0.5]],"usage":{"prompt_tokens":7,"total_tokens":7}}"#,
                (7, 0, None, None),
            ),
        ] {
            let heard = Ear::new(endpoint, Attention::Facts).whole(body.as_bytes());
            let (prompt, completion, cached, reasoning) = usage;
            assert_eq!(
                heard.usage,
                Some(Usage {
                    prompt,
                    completion,
                    cached,
                    reasoning
                }),
                "{body}"
            );
        }
        assert_eq!(
            Ear::new(Endpoint::Completions, Attention::Facts)
                .whole(br#"{"usage":null}"#)
                .usage,
            None
        );
        assert_eq!(
            Ear::new(Endpoint::Completions, Attention::Facts).whole(b"no json"),
            Heard::default()
        );
    }

    #[test]
    fn messages_are_heard() {
        let (heard, chunks) = hear(
            Endpoint::Messages,
            &[
                "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"m\",\"usage\":{\"input_tokens\":9,\"output_tokens\":0}}}\n\n",
                "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n",
                "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"x\"}}\n\n",
                "data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"thinking_delta\",\"thinking\":\"x\"}}\n\n",
                "event: ping\ndata: {\"type\":\"ping\"}\n\n",
                "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":5}}\n\n",
                "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
                "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"busy\"}}\n\n",
            ],
        );
        assert_eq!(chunks, 2);
        assert!(heard[2].content && heard[3].reasoning && !heard[1].content);
        assert_eq!(heard[5].finish.as_deref(), Some("end_turn"));
        assert_eq!(
            heard[5].usage,
            Some(Usage {
                prompt: 9,
                completion: 5,
                ..Usage::default()
            })
        );
        assert!(heard[6].done);
        let error = heard[7].error.as_ref().unwrap();
        assert_eq!(
            (error.message.as_str(), error.kind.as_deref()),
            ("busy", Some("overloaded_error"))
        );
    }

    #[test]
    fn responses_are_heard() {
        let (heard, chunks) = hear(
            Endpoint::Responses,
            &[
                "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"id\":\"resp_1\",\"usage\":null}}\n\n",
                "event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"delta\":\"x\"}\n\n",
                "data: {\"type\":\"response.function_call_arguments.delta\",\"delta\":\"{\"}\n\n",
                "event: response.completed\ndata: {\"response\":{\"status\":\"incomplete\",\"error\":null,\"usage\":{\"input_tokens\":4,\"output_tokens\":1,\
                 \"input_tokens_details\":{\"cached_tokens\":2}}}}\n\n",
            ],
        );
        assert_eq!(chunks, 2);
        assert!(heard[2].tool && heard[3].done && heard[3].error.is_none());
        assert_eq!(heard[3].finish.as_deref(), Some("incomplete"));
        assert_eq!(heard[3].usage.unwrap().cached, Some(2));
    }

    #[test]
    fn errors_are_heard_in_every_form() {
        for (event, message, code) in [
            (
                "data: {\"error\": {\"message\": \"gone\", \"type\": \"InternalServerError\", \"param\": null, \"code\": 500}}\n\n",
                "gone",
                Some(500),
            ),
            (
                "data: {\"object\":\"error\",\"message\":\"bad\",\"type\":\"BadRequestError\",\"param\":null,\"code\":400}\n\n",
                "bad",
                Some(400),
            ),
            ("data: {\"error\":\"plain\"}\n\n", "plain", None),
        ] {
            let (heard, _) = hear(Endpoint::ChatCompletions, &[event]);
            let error = heard[0].error.as_ref().unwrap();
            assert_eq!((error.message.as_str(), error.code), (message, code));
        }
    }

    #[test]
    fn words_are_heard_where_they_are_asked_for() {
        let mut ear = Ear::new(Endpoint::Completions, Attention::Words);
        let first = ear.event(&Event::new(
            &b"data: {\"id\":\"c\",\"created\":5,\"model\":\"m\",\"choices\":[{\"text\":\"a\\n\\u00e9\",\"token_ids\":[1,2],\"prompt_token_ids\":[7]}]}\n\n"[..],
        ));
        let words = first.words.unwrap();
        assert_eq!(
            words.head,
            Some(Head {
                id: "c".into(),
                created: 5,
                model: "m".into()
            })
        );
        assert_eq!(
            (words.text.as_str(), words.tokens, words.prompt_tokens),
            ("a\né", Some(vec![1, 2]), Some(vec![7]))
        );
        let second = ear.event(&Event::new(
            &b"data: {\"id\":\"c\",\"choices\":[{\"text\":\"\",\"token_ids\":null}]}\n\n"[..],
        ));
        assert_eq!(*second.words.unwrap(), Words::default());
    }
}
