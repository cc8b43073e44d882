//! Which template is used for a request?

use crate::error::PromptError;
use crate::folder::Folder;
use crate::options::{ContentFormat, PromptOptions, TemplateSource};
use crate::prompt::ChatTemplate;
use crate::template::Template;

/// Kinds of models whose prompts no template makes, by the names in their `config.json`.
const WITHOUT_TEMPLATE: [&str; 7] = [
    "gpt_oss",
    "deepseek_v32",
    "deepseek_v4",
    "deepseek_v41",
    "inkling",
    "kimi_audio",
    "kimi_k3",
];

/// A template, or what is wrong with it.
type Compiled = Result<Template, String>;

/// The templates of a model.
#[derive(Debug, Default)]
pub(crate) struct Library {
    /// What the engine was started with; it wins.
    given: Option<Compiled>,
    /// For requests without tools, before the default.
    processor: Option<Compiled>,
    default: Option<Compiled>,
    tool_use: Option<Compiled>,
    others: Vec<(String, Compiled)>,
    /// Why no template counts.
    without: Option<&'static str>,
}

impl Library {
    /// The templates of a folder, or those that were given instead.
    pub fn new(folder: &Folder, options: &PromptOptions) -> Self {
        let compile = |source: &str| {
            let mut template = Template::compile(source)?;
            match options.content_format {
                ContentFormat::Detected => {}
                ContentFormat::Text => template.parts = false,
                ContentFormat::Parts => template.parts = true,
            }
            Ok(template)
        };
        let templates = &folder.templates;
        let without = if folder.mistral {
            Some("Mistral's own tokenizer")
        } else if WITHOUT_TEMPLATE.contains(&folder.kind.as_str()) {
            Some("a model whose chats are made without a template")
        } else {
            None
        };
        Self {
            given: match &options.template {
                TemplateSource::Folder => None,
                TemplateSource::Given(source) => Some(compile(source)),
            },
            processor: templates.processor.as_deref().map(compile),
            default: templates.default.as_deref().map(compile),
            tool_use: templates.tool_use.as_deref().map(compile),
            others: templates
                .others
                .iter()
                .map(|(name, source)| (name.clone(), compile(source)))
                .collect(),
            without,
        }
    }

    /// The template for a request that names one, or none.
    pub fn choose(&self, named: Option<&str>, tools: bool) -> Result<&Template, PromptError> {
        if let Some(what) = self.without {
            return Err(PromptError::NotMirrored(what));
        }
        let chosen = if let Some(name) = named {
            Some(
                self.named(name)
                    .ok_or(PromptError::NotMirrored("templates of requests"))?,
            )
        } else {
            let processor = self.processor.as_ref().filter(|_| !tools);
            let with_tools = self.tool_use.as_ref().filter(|_| tools);
            self.given
                .as_ref()
                .or(processor)
                .or(with_tools)
                .or(self.default.as_ref())
        };
        match chosen {
            None => Err(PromptError::NoTemplate),
            Some(Ok(template)) => Ok(template),
            Some(Err(why)) => Err(PromptError::Template(why.clone())),
        }
    }

    /// Whether what the system says later is put at the beginning, in bodies of `/v1/messages`.
    pub fn wants_system_first(&self) -> bool {
        [false, true]
            .into_iter()
            .any(|tools| self.choose(None, tools).is_ok_and(Template::wants_system_first))
    }

    /// What is known about the template of requests with or without tools.
    pub fn describe(&self, tools: bool) -> ChatTemplate {
        match self.choose(None, tools) {
            Ok(template) if template.parts => ChatTemplate::Known(ContentFormat::Parts),
            Ok(_) => ChatTemplate::Known(ContentFormat::Text),
            Err(error) => ChatTemplate::None(error.to_string()),
        }
    }

    fn named(&self, name: &str) -> Option<&Compiled> {
        match name {
            "default" => self.default.as_ref(),
            "tool_use" => self.tool_use.as_ref(),
            _ => self
                .others
                .iter()
                .find(|(other, _)| other == name)
                .map(|(_, template)| template),
        }
    }
}
