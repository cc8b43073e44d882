//! How does the engine make its prompts? What it was started with, as far as that changes tokens.

use std::fmt;
use std::sync::Arc;

use serde_json::{Map, Value};

/// Bytes of text and tokens that the cache of segments keeps, unless said otherwise.
pub const CACHE_BYTES: usize = 256 << 20;

/// Whose way of making prompts is followed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dialect {
    /// vLLM's OpenAI server.
    #[default]
    Vllm,
    /// SGLang's.
    Sglang,
}

/// Which form the contents of messages have when a template sees them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ContentFormat {
    /// What the template seems to want, as the engine finds out.
    #[default]
    Detected,
    /// One text.
    Text,
    /// A list of parts.
    Parts,
}

/// What happens to a template that comes with a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RequestTemplates {
    /// The engine refuses the request.
    #[default]
    Refused,
    /// The engine was told to trust it. Names of templates in the folder are followed; a template itself is not rendered here,
    /// as a client could use memory up with it.
    Trusted,
}

/// Whether a template sees tools that may not be called (`tool_choice` is `none`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IdleTools {
    /// It does.
    #[default]
    Shown,
    /// It does not.
    Hidden,
}

/// Where the template comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TemplateSource {
    /// From the model's folder.
    #[default]
    Folder,
    /// The engine was started with this one.
    Given(String),
}

/// What time it is where the engine runs: seconds since 1970-01-01 00:00 by the clock on its wall.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> i64 + Send + Sync>);

impl Clock {
    /// A clock that asks this function, once for each prompt at most.
    pub fn new(now: impl Fn() -> i64 + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    /// A clock that stands still.
    pub fn fixed(seconds: i64) -> Self {
        Self::new(move || seconds)
    }

    /// What it shows.
    pub fn now(&self) -> i64 {
        (self.0)()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Clock")
    }
}

/// How the engine was started, as far as it changes tokens.
#[derive(Clone, Debug)]
pub struct PromptOptions {
    /// Whose way is followed.
    pub dialect: Dialect,
    /// Where the chat template comes from.
    pub template: TemplateSource,
    /// Arguments that every template gets unless a request says otherwise.
    pub template_defaults: Map<String, Value>,
    /// The form of contents.
    pub content_format: ContentFormat,
    /// Templates that come with requests.
    pub request_templates: RequestTemplates,
    /// Tools that may not be called.
    pub idle_tools: IdleTools,
    /// Tokens that a prompt and its answer may have together; 0 if unknown. Only a request that wants its prompt
    /// truncated to what fits (`-1`) needs it.
    pub context: u32,
    /// Bytes that the cache of segments may take; 0 for none.
    pub cache_bytes: usize,
    /// Where templates get the date from.
    pub clock: Clock,
}

impl PromptOptions {
    /// An engine of this kind without flags that change tokens.
    pub fn new(dialect: Dialect, clock: Clock) -> Self {
        Self {
            dialect,
            template: TemplateSource::Folder,
            template_defaults: Map::new(),
            content_format: ContentFormat::Detected,
            request_templates: RequestTemplates::Refused,
            idle_tools: IdleTools::Shown,
            context: 0,
            cache_bytes: CACHE_BYTES,
            clock,
        }
    }
}
