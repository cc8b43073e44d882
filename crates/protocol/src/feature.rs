//! What is special about a request? A closed list, for decisions, names and labels.

/// What is special about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Feature {
    /// Tools are offered.
    Tools,
    /// Pictures.
    Images,
    /// Sound.
    Audio,
    /// Moving pictures.
    Video,
    /// Documents as files.
    Files,
    /// Log probabilities of the answer.
    Logprobs,
    /// Log probabilities of the prompt.
    PromptLogprobs,
    /// The answer's form is prescribed: a schema, an expression, a grammar.
    Grammar,
    /// Penalties that depend on what was said.
    Penalties,
    /// A bias or a choice of tokens that is the same for every token.
    LogitBias,
    /// Texts that end the answer.
    StopTexts,
    /// Tokens that end the answer.
    StopTokens,
    /// The text that ends the answer is part of it.
    KeepStop,
    /// The prompt comes back.
    Echo,
    /// Text that follows the answer.
    Suffix,
    /// A least number of tokens.
    MinTokens,
    /// The end of text does not end it.
    IgnoreEos,
    /// Reasoning is asked for, steered or hidden.
    Reasoning,
    /// The last message is to be continued.
    ContinueFinal,
    /// The prompt ends without the beginning of an answer.
    NoGenerationPrompt,
    /// The likeliest token is taken each time.
    Greedy,
    /// A seed is given.
    Seed,
    /// Several answers are followed side by side.
    BeamSearch,
    /// An earlier response is continued.
    PreviousResponse,
    /// The response is to be kept.
    Store,
    /// The response is computed in the background.
    Background,
    /// KV is to be transferred.
    KvTransfer,
    /// The prompt is cut to a length.
    TruncatePrompt,
    /// Token ids are asked for.
    TokenIds,
    /// A chat template of the client's own, or arguments for it.
    Template,
    /// Embeddings instead of a prompt.
    PromptEmbeds,
    /// Special tokens are shown as text.
    SpecialTokens,
    /// Something of the engine's own that depends on what it did before, or shows its inside.
    Extension,
}

impl Feature {
    /// All of them.
    pub const ALL: [Self; 33] = [
        Self::Tools,
        Self::Images,
        Self::Audio,
        Self::Video,
        Self::Files,
        Self::Logprobs,
        Self::PromptLogprobs,
        Self::Grammar,
        Self::Penalties,
        Self::LogitBias,
        Self::StopTexts,
        Self::StopTokens,
        Self::KeepStop,
        Self::Echo,
        Self::Suffix,
        Self::MinTokens,
        Self::IgnoreEos,
        Self::Reasoning,
        Self::ContinueFinal,
        Self::NoGenerationPrompt,
        Self::Greedy,
        Self::Seed,
        Self::BeamSearch,
        Self::PreviousResponse,
        Self::Store,
        Self::Background,
        Self::KvTransfer,
        Self::TruncatePrompt,
        Self::TokenIds,
        Self::Template,
        Self::PromptEmbeds,
        Self::SpecialTokens,
        Self::Extension,
    ];

    /// Its name: for logs, labels and reasons.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Images => "images",
            Self::Audio => "audio",
            Self::Video => "video",
            Self::Files => "files",
            Self::Logprobs => "logprobs",
            Self::PromptLogprobs => "prompt_logprobs",
            Self::Grammar => "grammar",
            Self::Penalties => "penalties",
            Self::LogitBias => "logit_bias",
            Self::StopTexts => "stop_texts",
            Self::StopTokens => "stop_tokens",
            Self::KeepStop => "keep_stop",
            Self::Echo => "echo",
            Self::Suffix => "suffix",
            Self::MinTokens => "min_tokens",
            Self::IgnoreEos => "ignore_eos",
            Self::Reasoning => "reasoning",
            Self::ContinueFinal => "continue_final_message",
            Self::NoGenerationPrompt => "no_generation_prompt",
            Self::Greedy => "greedy",
            Self::Seed => "seed",
            Self::BeamSearch => "beam_search",
            Self::PreviousResponse => "previous_response",
            Self::Store => "store",
            Self::Background => "background",
            Self::KvTransfer => "kv_transfer",
            Self::TruncatePrompt => "truncate_prompt",
            Self::TokenIds => "token_ids",
            Self::Template => "template",
            Self::PromptEmbeds => "prompt_embeds",
            Self::SpecialTokens => "special_tokens",
            Self::Extension => "extension",
        }
    }
}

/// Which features a request has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Features(u64);

impl Features {
    /// Whether it has this one.
    pub const fn has(self, feature: Feature) -> bool {
        self.0 >> feature as u8 & 1 == 1
    }

    /// The first of these that it has.
    pub fn first_of(self, features: &[Feature]) -> Option<Feature> {
        features.iter().copied().find(|feature| self.has(*feature))
    }

    /// Those that it has.
    pub fn iter(self) -> impl Iterator<Item = Feature> {
        Feature::ALL.into_iter().filter(move |feature| self.has(*feature))
    }

    pub(crate) fn add(&mut self, feature: Feature) {
        self.0 |= 1 << feature as u8;
    }

    pub(crate) fn put(&mut self, feature: Feature, has: bool) {
        self.0 = self.0 & !(1 << feature as u8) | u64::from(has) << feature as u8;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_feature_is_in_the_list_at_its_place_and_has_a_name_of_its_own() {
        for (place, feature) in Feature::ALL.iter().enumerate() {
            assert_eq!(*feature as usize, place);
        }
        let mut names: Vec<&str> = Feature::ALL.iter().map(|feature| feature.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Feature::ALL.len());
    }
}
