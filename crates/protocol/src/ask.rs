//! What does a body ask? What routing must know of it, and where the rest lies.
//!
//! A field that means nothing to us is not looked at, and one that has another form than we know is the engine's to refuse: it
//! knows better, and says so in its own words. Only what we cannot do without is refused here: a body that is no JSON object, and
//! a model that is no text.
//!
//! **Invariant:** of a key that comes twice the last one counts, as in the engines.
//!
//! Cost: one pass over the body, a second one over messages in which the words for media occur. Prompts are not copied.

use thiserror::Error;

use crate::endpoint::Endpoint;
pub use crate::feature::{Feature, Features};
use crate::json::{self, Fields, Kind, Limits, NotJson, Span, items, kind, text};
use crate::keys;

/// Whether the answer comes at once or in pieces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Delivery {
    /// In one piece.
    #[default]
    Whole,
    /// As a stream of events.
    Streamed,
}

/// Which usage a client wants in a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UsageAsked {
    /// None.
    #[default]
    No,
    /// One at the end.
    AtEnd,
    /// One with every piece, and one at the end.
    Always,
}

/// What the prompt is, and where it lies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Prompt {
    /// There is none.
    #[default]
    None,
    /// A text: [`json::text`] reads it.
    Text(Span),
    /// Token ids: [`json::ids`] reads them.
    Tokens(Span),
    /// Several texts.
    Texts {
        /// The list.
        span: Span,
        /// How many.
        count: usize,
    },
    /// Several lists of token ids.
    TokenLists {
        /// The list of lists.
        span: Span,
        /// How many.
        count: usize,
    },
    /// A conversation: messages, or the items that a response is made from.
    Messages(Span),
    /// Something that we do not know.
    Other(Span),
}

/// The most tokens of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MaxOutput {
    /// Not said: the engine's default holds.
    #[default]
    Unsaid,
    /// As many as there is room for.
    Open,
    /// So many.
    Tokens(u32),
}

/// What a body asks.
#[derive(Clone, Debug)]
pub struct Ask {
    /// Where it was sent.
    pub endpoint: Endpoint,
    /// The model, or an adapter by its name.
    pub model: Option<String>,
    /// SGLang's `lora_path`: an adapter besides the model.
    pub adapter: Option<String>,
    /// How the answer comes.
    pub delivery: Delivery,
    /// The usage that the client wants to see.
    pub usage: UsageAsked,
    /// Answers to each prompt.
    pub n: u32,
    /// Answers computed for each prompt, at least `n`.
    pub best_of: u32,
    /// The most tokens of an answer.
    pub max_output: MaxOutput,
    /// The field that said so.
    pub max_output_field: Option<&'static str>,
    /// The least.
    pub min_output: u32,
    /// The prompt.
    pub prompt: Prompt,
    /// What is special.
    pub features: Features,
    /// Texts that end the answer.
    pub stops: Vec<String>,
    /// What keeps its cache apart.
    pub cache_salt: Option<String>,
    /// SGLang's `extra_key`, which keeps its cache apart too.
    pub extra_key: Option<String>,
    /// The cache salt that engines get instead of what the client sent.
    pub engine_salt: Option<String>,
    /// The engine's priority: in vLLM lower goes first.
    pub priority: Option<i64>,
    /// OpenAI's `user`, or Anthropic's `metadata.user_id`.
    pub user: Option<String>,
    /// OpenAI's `prompt_cache_key`.
    pub prompt_cache_key: Option<String>,
    /// The engines' own `session_id`.
    pub session_id: Option<String>,
    /// OpenAI's `previous_response_id`.
    pub previous_response: Option<String>,
    /// A rank that the body names.
    pub dp_rank: Option<u32>,
    /// The `homing` object.
    pub homing: Option<Span>,
    /// All fields at the top.
    pub fields: Fields,
}

/// Why a body cannot be understood.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BadBody {
    /// Too long.
    #[error("the body has {bytes} bytes, but may have {limit}")]
    TooLong {
        /// What it has.
        bytes: usize,
        /// What it may have.
        limit: usize,
    },
    /// No JSON.
    #[error("the body is not a valid JSON object: {0}")]
    NotJson(#[from] NotJson),
    /// A field has another form than it must have.
    #[error("`{field}` must be {must}")]
    Field {
        /// Which.
        field: &'static str,
        /// What it must be.
        must: &'static str,
    },
}

impl BadBody {
    /// The status that says so.
    pub const fn status(&self) -> u16 {
        match self {
            Self::TooLong { .. } => 413,
            Self::NotJson(_) | Self::Field { .. } => 400,
        }
    }

    /// The field that is wrong.
    pub const fn param(&self) -> Option<&'static str> {
        match self {
            Self::Field { field, .. } => Some(field),
            Self::TooLong { .. } | Self::NotJson(_) => None,
        }
    }
}

impl Ask {
    /// Reads a body, which is JSON.
    pub fn read(endpoint: Endpoint, body: &[u8], limits: Limits) -> Result<Self, BadBody> {
        if body.len() > limits.bytes {
            return Err(BadBody::TooLong {
                bytes: body.len(),
                limit: limits.bytes,
            });
        }
        let fields = Fields::read(body, limits)?;
        let mut ask = Self::nothing(endpoint);
        keys::read(&mut ask, &fields, body)?;
        ask.best_of = ask.best_of.max(ask.n);
        ask.fields = fields;
        Ok(ask)
    }

    /// A request of which nothing is known but where it was sent: its body is a form, or was not read.
    pub fn nothing(endpoint: Endpoint) -> Self {
        Self {
            endpoint,
            model: None,
            adapter: None,
            delivery: Delivery::Whole,
            usage: UsageAsked::No,
            n: 1,
            best_of: 1,
            max_output: MaxOutput::Unsaid,
            max_output_field: None,
            min_output: 0,
            prompt: Prompt::None,
            features: Features::default(),
            stops: Vec::new(),
            cache_salt: None,
            extra_key: None,
            engine_salt: None,
            priority: None,
            user: None,
            prompt_cache_key: None,
            session_id: None,
            previous_response: None,
            dp_rank: None,
            homing: None,
            fields: Fields::default(),
        }
    }

    /// Whether it has this feature.
    pub const fn has(&self, feature: Feature) -> bool {
        self.features.has(feature)
    }

    /// The cache salt that the engine sees.
    pub fn salt(&self) -> Option<&str> {
        self.engine_salt.as_deref().or(self.cache_salt.as_deref())
    }

    /// The bytes of a field of the body that was read.
    pub fn field<'b>(&self, body: &'b [u8], key: &str) -> Option<&'b [u8]> {
        self.fields.get(body, key).map(|span| span.of(body))
    }

    /// The tokens of the prompt, where it is given as such.
    pub fn prompt_tokens(&self, body: &[u8]) -> Option<Vec<u32>> {
        match self.prompt {
            Prompt::Tokens(span) => json::ids(span.of(body)),
            _ => None,
        }
    }
}

impl Prompt {
    /// What a value is that can be one or several texts or lists of tokens.
    pub(crate) fn of_value(value: &[u8], span: Span) -> Self {
        match kind(value) {
            Some(Kind::Null) | None => Self::None,
            Some(Kind::String) => Self::Text(span),
            Some(Kind::Array) => {
                let Some(mut all) = items(value) else {
                    return Self::Other(span);
                };
                match all.next().and_then(kind) {
                    Some(Kind::Number) => Self::Tokens(span),
                    Some(Kind::String) => Self::Texts {
                        span,
                        count: all.count() + 1,
                    },
                    Some(Kind::Array) => Self::TokenLists {
                        span,
                        count: all.count() + 1,
                    },
                    Some(Kind::Object) => Self::Messages(span),
                    _ => Self::Other(span),
                }
            }
            Some(_) => Self::Other(span),
        }
    }
}

/// A text that a field is; nothing where it is empty or none.
pub(crate) fn word(value: &[u8]) -> Option<String> {
    text(value)
        .filter(|text| !text.is_empty())
        .map(std::borrow::Cow::into_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(endpoint: Endpoint, body: &str) -> Ask {
        Ask::read(endpoint, body.as_bytes(), Limits::default()).unwrap()
    }

    fn features(endpoint: Endpoint, fields: &str) -> String {
        let ask = read(endpoint, &format!("{{{fields}}}"));
        let names: Vec<&str> = ask.features.iter().map(Feature::name).collect();
        names.join(" ")
    }

    #[test]
    fn what_routing_needs_is_read() {
        let body = r#"{"model":"m","messages":[{"role":"user","content":"hi"}],"stream":true,"stream_options":{"include_usage":true},
            "n":2,"max_tokens":5,"max_completion_tokens":7,"min_tokens":2,"stop":["a","b"],"cache_salt":"s","priority":-3,"user":"u",
            "prompt_cache_key":"k","session_id":"i","homing":{"session":"x"},"unknown":{"deep":[1]}}"#;
        let ask = read(Endpoint::ChatCompletions, body);
        assert_eq!(ask.model.as_deref(), Some("m"));
        assert_eq!((ask.delivery, ask.usage), (Delivery::Streamed, UsageAsked::AtEnd));
        assert_eq!((ask.n, ask.best_of), (2, 2));
        assert_eq!(
            (ask.max_output, ask.max_output_field),
            (MaxOutput::Tokens(7), Some("max_completion_tokens"))
        );
        assert_eq!(ask.min_output, 2);
        assert_eq!(ask.stops, ["a", "b"]);
        assert_eq!(
            (ask.cache_salt.as_deref(), ask.priority, ask.user.as_deref()),
            (Some("s"), Some(-3), Some("u"))
        );
        assert_eq!(
            (ask.prompt_cache_key.as_deref(), ask.session_id.as_deref()),
            (Some("k"), Some("i"))
        );
        assert_eq!(ask.homing.unwrap().of(body.as_bytes()), br#"{"session":"x"}"#);
        let Prompt::Messages(span) = ask.prompt else {
            panic!("{:?}", ask.prompt)
        };
        assert_eq!(span.of(body.as_bytes()), br#"[{"role":"user","content":"hi"}]"#);
        assert_eq!(ask.field(body.as_bytes(), "unknown"), Some(&br#"{"deep":[1]}"#[..]));
    }

    #[test]
    fn prompts_have_four_forms_and_more() {
        let prompt = |value: &str| read(Endpoint::Completions, &format!("{{\"prompt\":{value}}}")).prompt;
        assert!(matches!(prompt("\"text\""), Prompt::Text(_)));
        assert!(matches!(prompt("[1,2]"), Prompt::Tokens(_)));
        assert!(matches!(prompt("[\"a\",\"b\"]"), Prompt::Texts { count: 2, .. }));
        assert!(matches!(prompt("[[1],[2],[3]]"), Prompt::TokenLists { count: 3, .. }));
        assert!(matches!(prompt("[]"), Prompt::Other(_)));
        assert_eq!(prompt("null"), Prompt::None);
        let body = r#"{"prompt":[5, 6]}"#;
        let ask = read(Endpoint::Completions, body);
        assert_eq!(ask.prompt_tokens(body.as_bytes()), Some(vec![5, 6]));
        assert!(matches!(
            read(Endpoint::Responses, r#"{"input":"a"}"#).prompt,
            Prompt::Text(_)
        ));
        assert!(matches!(
            read(Endpoint::Responses, r#"{"input":[{"role":"user"}]}"#).prompt,
            Prompt::Messages(_)
        ));
        assert!(matches!(
            read(Endpoint::Detokenize, r#"{"tokens":[1]}"#).prompt,
            Prompt::Tokens(_)
        ));
    }

    #[test]
    fn features_are_named() {
        let chat = Endpoint::ChatCompletions;
        for (endpoint, fields, named) in [
            (chat, r#""tools":[{}],"tool_choice":"auto""#, "tools"),
            (
                chat,
                r#""tools":[],"logprobs":false,"top_logprobs":0,"stop":[],"stop_token_ids":[]"#,
                "",
            ),
            (chat, r#""logprobs":true"#, "logprobs"),
            (Endpoint::Completions, r#""logprobs":0"#, "logprobs"),
            (
                Endpoint::Completions,
                r#""logprobs":null,"echo":true,"suffix":"x""#,
                "echo suffix",
            ),
            (chat, r#""response_format":{"type":"text"}"#, ""),
            (chat, r#""response_format":{"type":"json_object"}"#, "grammar"),
            (chat, r#""guided_json":{"type":"object"}"#, "grammar"),
            (
                Endpoint::Responses,
                r#""text":{"format":{"type":"json_schema"}}"#,
                "grammar",
            ),
            (
                chat,
                r#""frequency_penalty":0,"presence_penalty":0.0,"repetition_penalty":1"#,
                "",
            ),
            (chat, r#""repetition_penalty":1.1"#, "penalties"),
            (chat, r#""temperature":0,"seed":0"#, "greedy seed"),
            (chat, r#""temperature":0.0"#, "greedy"),
            (chat, r#""temperature":0.7"#, ""),
            (chat, r#""reasoning_effort":"low""#, "reasoning"),
            (chat, r#""include_reasoning":true,"reasoning_effort":"none""#, ""),
            (Endpoint::Messages, r#""thinking":{"type":"disabled"}"#, ""),
            (
                Endpoint::Messages,
                r#""thinking":{"type":"enabled","budget_tokens":5}"#,
                "reasoning",
            ),
            (
                chat,
                r#""continue_final_message":true,"add_generation_prompt":false"#,
                "continue_final_message no_generation_prompt",
            ),
            (
                Endpoint::Responses,
                r#""previous_response_id":"r","store":true,"background":true"#,
                "previous_response store background",
            ),
            (
                chat,
                r#""kv_transfer_params":{"a":1},"return_token_ids":true"#,
                "kv_transfer token_ids",
            ),
            (chat, r#""messages":[{"content":[{"type":"image_url"}]}]"#, "images"),
            (Endpoint::Messages, r#""stop_sequences":["x"]"#, "stop_texts"),
            (chat, r#""stop_regex":"x","bad_words":["y"]"#, "extension"),
        ] {
            assert_eq!(features(endpoint, fields), named, "{fields}");
        }
    }

    #[test]
    fn limits_are_those_of_the_endpoint() {
        let max = |endpoint, fields: &str| read(endpoint, &format!("{{{fields}}}")).max_output;
        assert_eq!(
            max(Endpoint::Completions, r#""max_completion_tokens":5"#),
            MaxOutput::Unsaid
        );
        assert_eq!(
            max(
                Endpoint::ChatCompletions,
                r#""max_completion_tokens":null,"max_tokens":3"#
            ),
            MaxOutput::Tokens(3)
        );
        assert_eq!(
            max(Endpoint::ChatCompletions, r#""max_tokens":3,"max_completion_tokens":4"#),
            MaxOutput::Tokens(4)
        );
        assert_eq!(max(Endpoint::ChatCompletions, r#""max_tokens":null"#), MaxOutput::Open);
        assert_eq!(
            max(Endpoint::Responses, r#""max_output_tokens":9,"max_tokens":1"#),
            MaxOutput::Tokens(9)
        );
    }

    #[test]
    fn the_last_of_two_keys_counts_whatever_they_set() {
        let ask = read(
            Endpoint::ChatCompletions,
            r#"{"model":"a","stream":true,"tools":[1],"stop":"x","model":"b","strea\u006d":false,"tools":null,"stop":[]}"#,
        );
        assert_eq!(ask.model.as_deref(), Some("b"));
        assert_eq!(ask.delivery, Delivery::Whole);
        assert!(ask.stops.is_empty());
        assert_eq!(ask.features, Features::default());
    }

    #[test]
    fn what_cannot_be_understood_is_refused() {
        let refused = |body: &str, limits| Ask::read(Endpoint::ChatCompletions, body.as_bytes(), limits).unwrap_err();
        let error = refused(r#"{"model":5}"#, Limits::default());
        assert_eq!(
            (error.to_string().as_str(), error.status(), error.param()),
            ("`model` must be a text", 400, Some("model"))
        );
        let error = refused(r#"{"model":"x"#, Limits::default());
        assert_eq!(
            error.to_string(),
            "the body is not a valid JSON object: the text ends in the middle at byte 11"
        );
        let error = refused(
            "{\"a\":1}",
            Limits {
                bytes: 3,
                ..Limits::default()
            },
        );
        assert_eq!(
            (error.to_string().as_str(), error.status()),
            ("the body has 7 bytes, but may have 3", 413)
        );
    }

    #[test]
    fn a_user_is_found_where_each_protocol_has_it() {
        assert_eq!(
            read(Endpoint::Messages, r#"{"metadata":{"user_id":"u"}}"#)
                .user
                .as_deref(),
            Some("u")
        );
        assert_eq!(
            read(Endpoint::ChatCompletions, r#"{"metadata":{"user_id":"m"},"user":"u"}"#)
                .user
                .as_deref(),
            Some("m")
        );
        assert_eq!(
            read(Endpoint::ChatCompletions, r#"{"metadata":{},"user":"u"}"#)
                .user
                .as_deref(),
            Some("u")
        );
    }
}
