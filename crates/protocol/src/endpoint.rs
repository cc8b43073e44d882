//! What is asked for? Endpoints by method and path, and whose protocol they belong to.
//!
//! **Invariant:** the list is one of what is allowed. What administers an engine (loads adapters, resets caches, puts it to
//! sleep, changes weights) is not on it, nor is anything that we do not know.
//!
//! It does not answer for what a gateway answers itself, such as the list of models or its own health.

use std::borrow::Cow;

use thiserror::Error;

/// Whose error format holds, and how a stream is told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    /// `{"error": {...}}`, and streams that end with `[DONE]`.
    OpenAi,
    /// `{"type": "error", ...}`, and streams of named events.
    Anthropic,
}

/// What can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// Continues a conversation.
    ChatCompletions,
    /// Continues a text or tokens.
    Completions,
    /// Vectors for texts.
    Embeddings,
    /// Continues a conversation, in OpenAI's newer words.
    Responses,
    /// Continues a conversation, in Anthropic's words.
    Messages,
    /// How many tokens a conversation in Anthropic's words has.
    CountTokens,
    /// Text to tokens.
    Tokenize,
    /// Tokens to text.
    Detokenize,
    /// Goes through, by load and model only.
    Other(Other),
}

/// Endpoints of which we read the model and nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Other {
    /// Orders documents.
    Rerank,
    /// Compares texts.
    Score,
    /// Puts texts into classes.
    Classify,
    /// What a model made of a text, before anything is made of that.
    Pooling,
    /// Text to sound.
    Speech,
    /// Sound to text. The body is a form.
    Transcription,
    /// Sound to English text. The body is a form.
    Translation,
    /// Text to pictures.
    ImageGeneration,
    /// Pictures to pictures. The body is a form.
    ImageEdit,
}

/// How a body is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// A JSON object.
    Json,
    /// A form with files, in which we do not look.
    Multipart,
}

/// Why a request is not for us.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NotServed {
    /// The path is not on the list.
    #[error("there is nothing at {0}")]
    Path(String),
    /// The path is, the method is not.
    #[error("{path} is asked with POST, not with {method}")]
    Method {
        /// What was asked for.
        path: String,
        /// How.
        method: String,
    },
}

impl NotServed {
    /// The status that says so.
    pub const fn status(&self) -> u16 {
        match self {
            Self::Path(_) => 404,
            Self::Method { .. } => 405,
        }
    }
}

/// The longest part of a path that an error repeats, in characters.
const LONGEST_SHOWN: usize = 128;

impl Endpoint {
    /// What a method and a path ask for. The path has no query.
    pub fn of(method: &str, path: &str) -> Result<Self, NotServed> {
        let shown = || path.chars().take(LONGEST_SHOWN).collect::<String>();
        let found = Self::at(path).ok_or_else(|| NotServed::Path(shown()))?;
        if method == "POST" {
            return Ok(found);
        }
        Err(NotServed::Method {
            path: shown(),
            method: method.chars().take(LONGEST_SHOWN).collect(),
        })
    }

    /// The target that an engine knows, of one that a client sent: without a slash at the end of its path.
    pub fn target(target: &str) -> Cow<'_, str> {
        let (path, query) = target.split_at(target.find('?').unwrap_or(target.len()));
        match path.strip_suffix('/') {
            Some(path) => Cow::Owned(format!("{path}{query}")),
            None => Cow::Borrowed(target),
        }
    }

    fn at(path: &str) -> Option<Self> {
        let path = path.strip_suffix('/').unwrap_or(path);
        Some(match path {
            "/v1/chat/completions" => Self::ChatCompletions,
            "/v1/completions" => Self::Completions,
            "/v1/embeddings" => Self::Embeddings,
            "/v1/responses" => Self::Responses,
            "/v1/messages" => Self::Messages,
            "/v1/messages/count_tokens" => Self::CountTokens,
            "/tokenize" | "/v1/tokenize" => Self::Tokenize,
            "/detokenize" | "/v1/detokenize" => Self::Detokenize,
            "/rerank" | "/v1/rerank" | "/v2/rerank" => Self::Other(Other::Rerank),
            "/score" | "/v1/score" => Self::Other(Other::Score),
            "/classify" | "/v1/classify" => Self::Other(Other::Classify),
            "/pooling" | "/v1/pooling" => Self::Other(Other::Pooling),
            "/v1/audio/speech" => Self::Other(Other::Speech),
            "/v1/audio/transcriptions" => Self::Other(Other::Transcription),
            "/v1/audio/translations" => Self::Other(Other::Translation),
            "/v1/images/generations" => Self::Other(Other::ImageGeneration),
            "/v1/images/edits" => Self::Other(Other::ImageEdit),
            _ => return None,
        })
    }

    /// Where engines have it.
    pub const fn path(self) -> &'static str {
        match self {
            Self::ChatCompletions => "/v1/chat/completions",
            Self::Completions => "/v1/completions",
            Self::Embeddings => "/v1/embeddings",
            Self::Responses => "/v1/responses",
            Self::Messages => "/v1/messages",
            Self::CountTokens => "/v1/messages/count_tokens",
            Self::Tokenize => "/tokenize",
            Self::Detokenize => "/detokenize",
            Self::Other(Other::Rerank) => "/v1/rerank",
            Self::Other(Other::Score) => "/v1/score",
            Self::Other(Other::Classify) => "/classify",
            Self::Other(Other::Pooling) => "/pooling",
            Self::Other(Other::Speech) => "/v1/audio/speech",
            Self::Other(Other::Transcription) => "/v1/audio/transcriptions",
            Self::Other(Other::Translation) => "/v1/audio/translations",
            Self::Other(Other::ImageGeneration) => "/v1/images/generations",
            Self::Other(Other::ImageEdit) => "/v1/images/edits",
        }
    }

    /// Whose protocol it is.
    pub const fn family(self) -> Family {
        match self {
            Self::Messages | Self::CountTokens => Family::Anthropic,
            _ => Family::OpenAi,
        }
    }

    /// How its body is written.
    pub const fn form(self) -> Form {
        match self {
            Self::Other(Other::Transcription | Other::Translation | Other::ImageEdit) => Form::Multipart,
            _ => Form::Json,
        }
    }

    /// Whether it generates tokens, one after the other.
    pub const fn generates(self) -> bool {
        matches!(
            self,
            Self::ChatCompletions | Self::Completions | Self::Responses | Self::Messages
        )
    }

    /// Its name, of a closed list: for logs and labels.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ChatCompletions => "chat",
            Self::Completions => "completions",
            Self::Embeddings => "embeddings",
            Self::Responses => "responses",
            Self::Messages => "messages",
            Self::CountTokens => "count_tokens",
            Self::Tokenize => "tokenize",
            Self::Detokenize => "detokenize",
            Self::Other(other) => other.name(),
        }
    }
}

impl Other {
    /// Its name, of a closed list.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rerank => "rerank",
            Self::Score => "score",
            Self::Classify => "classify",
            Self::Pooling => "pooling",
            Self::Speech => "speech",
            Self::Transcription => "transcription",
            Self::Translation => "translation",
            Self::ImageGeneration => "image_generation",
            Self::ImageEdit => "image_edit",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_found_with_and_without_a_version() {
        for (path, endpoint) in [
            ("/v1/chat/completions", Endpoint::ChatCompletions),
            ("/v1/completions/", Endpoint::Completions),
            ("/v1/messages", Endpoint::Messages),
            ("/v1/messages/count_tokens", Endpoint::CountTokens),
            ("/tokenize", Endpoint::Tokenize),
            ("/v1/tokenize", Endpoint::Tokenize),
            ("/v2/rerank", Endpoint::Other(Other::Rerank)),
            ("/v1/audio/transcriptions", Endpoint::Other(Other::Transcription)),
        ] {
            assert_eq!(Endpoint::of("POST", path), Ok(endpoint), "{path}");
            assert_eq!(Endpoint::of("POST", endpoint.path()), Ok(endpoint), "{path}");
        }
    }

    #[test]
    fn a_target_has_no_slash_at_the_end_of_its_path() {
        for (sent, forwarded) in [
            ("/v1/completions", "/v1/completions"),
            ("/v1/completions/", "/v1/completions"),
            ("/v1/completions/?a=b/", "/v1/completions?a=b/"),
            ("/v2/rerank?a", "/v2/rerank?a"),
        ] {
            assert_eq!(Endpoint::target(sent), forwarded);
        }
    }

    #[test]
    fn what_administers_an_engine_is_not_found() {
        // Every route of vLLM 0.32 and SGLang 0.5.23 that changes the engine or tells of its inside.
        let all = "v1/load_lora_adapter v1/unload_lora_adapter load_lora_adapter unload_lora_adapter \
            load_lora_adapter_from_tensors reset_prefix_cache reset_mm_cache reset_encoder_cache flush_cache sleep wake_up \
            is_sleeping release_kv_cache_memory release_memory_occupation resume_memory_occupation start_profile \
            stop_profile update_weights update_weights_from_disk update_weights_from_tensor update_weight_version \
            init_weight_transfer_engine start_weight_update finish_weight_update collective_rpc pause resume abort_requests \
            abort_request pause_generation continue_generation scale_elastic_ep fault_tolerance/apply server_info \
            get_server_info set_internal_state freeze_gc configure_logging slow_down open_session close_session \
            hicache/storage-backend dumper/x metrics mock/faults mock/restart inference/v1/generate invocations generate";
        for path in all.split_whitespace() {
            let path = format!("/{path}");
            assert_eq!(Endpoint::of("POST", &path), Err(NotServed::Path(path.clone())));
        }
        for path in [
            "",
            "/",
            "//v1/completions",
            "/v1//completions",
            "/V1/completions",
            "/v1/completions/../sleep",
        ] {
            assert!(Endpoint::of("POST", path).is_err(), "{path}");
        }
    }

    #[test]
    fn a_wrong_method_is_named() {
        let refused = Endpoint::of("GET", "/v1/completions").unwrap_err();
        assert_eq!(refused.status(), 405);
        assert_eq!(refused.to_string(), "/v1/completions is asked with POST, not with GET");
    }

    #[test]
    fn errors_do_not_grow_with_what_was_asked() {
        let long = "/x".repeat(10_000);
        assert!(Endpoint::of("POST", &long).unwrap_err().to_string().len() < 200);
    }
}
