//! Which fields of a body mean something to us, and what?
//!
//! **Invariant:** the list is in order, so that it can be searched.

use crate::ask::{Ask, BadBody, Delivery, MaxOutput, Prompt, UsageAsked, word};
use crate::endpoint::Endpoint;
use crate::feature::Feature;
use crate::json::{Fields, Kind, Span, entry, items, kind, text};
use crate::lax::{count, integer, is_false, is_given, is_true, number};
use crate::media;

/// Texts that end an answer: the most that are kept, and how many bytes of them. Engines have limits of their own.
const MOST_STOPS: usize = 128;
const MOST_STOP_BYTES: usize = 64 << 10;

/// What a field does to what is known.
type Read = fn(&mut Ask, Field<'_>) -> Result<(), BadBody>;

/// A field of a body.
#[derive(Clone, Copy)]
struct Field<'a> {
    value: &'a [u8],
    span: Span,
}

/// Reads all fields that mean something.
pub(crate) fn read(ask: &mut Ask, fields: &Fields, body: &[u8]) -> Result<(), BadBody> {
    let mut seen = 0_u128;
    // From the last to the first: what came before one of the same name does not count.
    for field in fields.iter().rev() {
        let key = field.key.of(body);
        let Some(place) = place(key) else { continue };
        if seen >> place & 1 == 1 {
            continue;
        }
        seen |= 1 << place;
        let field = Field {
            value: field.value.of(body),
            span: field.value,
        };
        KEYS[place].1(ask, field)?;
    }
    Ok(())
}

fn place(written: &[u8]) -> Option<usize> {
    let inner = written.get(1..written.len().checked_sub(1)?)?;
    let find = |key: &[u8]| KEYS.binary_search_by(|(name, _)| name.as_bytes().cmp(key)).ok();
    if inner.contains(&b'\\') {
        return find(text(written)?.as_bytes());
    }
    find(inner)
}

/// Every field that means something.
const KEYS: &[(&str, Read)] = &[
    ("add_generation_prompt", |ask, field| {
        ask.mark(is_false(field.value), Feature::NoGenerationPrompt)
    }),
    ("allowed_token_ids", |ask, field| ask.given(field, Feature::LogitBias)),
    ("background", |ask, field| {
        ask.mark(is_true(field.value), Feature::Background)
    }),
    ("bad_words", |ask, field| ask.given(field, Feature::Extension)),
    ("best_of", |ask, field| {
        ask.best_of = count(field.value).unwrap_or(1).max(1);
        Ok(())
    }),
    ("cache_salt", |ask, field| {
        ask.cache_salt = word(field.value);
        Ok(())
    }),
    ("chat_template", |ask, field| ask.given(field, Feature::Template)),
    ("chat_template_kwargs", |ask, field| ask.given(field, Feature::Template)),
    ("continue_final_message", |ask, field| {
        ask.mark(is_true(field.value), Feature::ContinueFinal)
    }),
    ("custom_logit_processor", |ask, field| {
        ask.given(field, Feature::Extension)
    }),
    ("custom_params", |ask, field| ask.given(field, Feature::Extension)),
    ("data_parallel_rank", |ask, field| {
        ask.dp_rank = ask.dp_rank.or(rank(field, "data_parallel_rank")?);
        Ok(())
    }),
    ("documents", |ask, field| ask.given(field, Feature::Template)),
    ("ebnf", |ask, field| ask.given(field, Feature::Grammar)),
    ("echo", |ask, field| ask.mark(is_true(field.value), Feature::Echo)),
    ("extra_key", |ask, field| {
        ask.extra_key = word(field.value);
        Ok(())
    }),
    ("frequency_penalty", |ask, field| ask.penalty(field, 0.0)),
    ("functions", |ask, field| ask.given(field, Feature::Tools)),
    ("grammar", |ask, field| ask.given(field, Feature::Grammar)),
    ("guided_choice", |ask, field| ask.given(field, Feature::Grammar)),
    ("guided_grammar", |ask, field| ask.given(field, Feature::Grammar)),
    ("guided_json", |ask, field| ask.given(field, Feature::Grammar)),
    ("guided_regex", |ask, field| ask.given(field, Feature::Grammar)),
    ("homing", |ask, field| {
        if field.value != b"null" {
            ask.homing = Some(field.span);
        }
        Ok(())
    }),
    ("ignore_eos", |ask, field| {
        ask.mark(is_true(field.value), Feature::IgnoreEos)
    }),
    ("include_reasoning", |ask, field| {
        ask.mark(is_false(field.value), Feature::Reasoning)
    }),
    ("include_stop_str_in_output", |ask, field| {
        ask.mark(is_true(field.value), Feature::KeepStop)
    }),
    ("input", |ask, field| ask.input(field)),
    ("input_ids", |ask, field| ask.given(field, Feature::Extension)),
    ("json_schema", |ask, field| ask.given(field, Feature::Grammar)),
    ("kv_transfer_params", |ask, field| ask.given(field, Feature::KvTransfer)),
    ("logit_bias", |ask, field| ask.given(field, Feature::LogitBias)),
    ("logprob_token_ids", |ask, field| ask.given(field, Feature::Logprobs)),
    ("logprobs", |ask, field| {
        // In a chat it is a switch, in a completion a number: there 0 is one, too.
        let asked = match ask.endpoint {
            Endpoint::Completions => is_given(field.value),
            _ => is_true(field.value),
        };
        ask.mark(asked, Feature::Logprobs)
    }),
    ("lora_path", |ask, field| {
        ask.adapter = word(field.value);
        Ok(())
    }),
    ("max_completion_tokens", |ask, field| {
        ask.limit(field, "max_completion_tokens")
    }),
    ("max_output_tokens", |ask, field| ask.limit(field, "max_output_tokens")),
    ("max_tokens", |ask, field| ask.limit(field, "max_tokens")),
    ("messages", |ask, field| ask.messages(field)),
    ("metadata", |ask, field| {
        let id = entry(field.value, "user_id").and_then(word);
        ask.user = id.or_else(|| ask.user.take());
        Ok(())
    }),
    ("min_tokens", |ask, field| {
        ask.min_output = count(field.value).unwrap_or(0);
        ask.mark(ask.min_output > 0, Feature::MinTokens)
    }),
    ("model", |ask, field| match kind(field.value) {
        Some(Kind::Null) => Ok(()),
        Some(Kind::String) => {
            ask.model = word(field.value);
            Ok(())
        }
        _ => Err(BadBody::Field {
            field: "model",
            must: "a text",
        }),
    }),
    ("n", |ask, field| {
        ask.n = count(field.value).unwrap_or(1).max(1);
        Ok(())
    }),
    ("no_stop_trim", |ask, field| {
        ask.mark(is_true(field.value), Feature::KeepStop)
    }),
    ("output_config", |ask, field| {
        let format = entry(field.value, "format").is_some_and(is_given);
        ask.mark(format, Feature::Grammar)
    }),
    ("output_format", |ask, field| ask.given(field, Feature::Grammar)),
    ("presence_penalty", |ask, field| ask.penalty(field, 0.0)),
    ("previous_response_id", |ask, field| {
        ask.previous_response = word(field.value);
        ask.given(field, Feature::PreviousResponse)
    }),
    ("priority", |ask, field| {
        ask.priority = integer(field.value);
        Ok(())
    }),
    ("prompt", |ask, field| {
        // Of a response it is the name of a prompt that is kept elsewhere.
        if ask.endpoint == Endpoint::Responses {
            return ask.given(field, Feature::Extension);
        }
        ask.set_prompt(Prompt::of_value(field.value, field.span))
    }),
    ("prompt_cache_key", |ask, field| {
        ask.prompt_cache_key = word(field.value);
        Ok(())
    }),
    ("prompt_embeds", |ask, field| ask.given(field, Feature::PromptEmbeds)),
    ("prompt_logprobs", |ask, field| {
        ask.given(field, Feature::PromptLogprobs)
    }),
    ("reasoning", |ask, field| ask.given(field, Feature::Reasoning)),
    ("reasoning_effort", |ask, field| {
        let effort = is_given(field.value) && field.value != b"\"none\"";
        ask.mark(effort, Feature::Reasoning)
    }),
    ("regex", |ask, field| ask.given(field, Feature::Grammar)),
    ("repetition_detection", |ask, field| {
        ask.given(field, Feature::Penalties)
    }),
    ("repetition_penalty", |ask, field| ask.penalty(field, 1.0)),
    ("response_format", |ask, field| {
        ask.mark(is_given(field.value) && !is_plain(field.value), Feature::Grammar)
    }),
    ("return_hidden_states", |ask, field| {
        ask.given(field, Feature::Extension)
    }),
    ("return_meta_info", |ask, field| ask.given(field, Feature::Extension)),
    ("return_routed_experts", |ask, field| {
        ask.given(field, Feature::Extension)
    }),
    ("return_token_ids", |ask, field| {
        ask.mark(is_true(field.value), Feature::TokenIds)
    }),
    ("routed_dp_rank", |ask, field| {
        ask.dp_rank = rank(field, "routed_dp_rank")?.or(ask.dp_rank);
        Ok(())
    }),
    ("seed", |ask, field| ask.given(field, Feature::Seed)),
    ("separate_reasoning", |ask, field| {
        ask.mark(is_false(field.value), Feature::Reasoning)
    }),
    ("session_id", |ask, field| {
        ask.session_id = word(field.value);
        Ok(())
    }),
    ("session_params", |ask, field| ask.given(field, Feature::Extension)),
    ("skip_special_tokens", |ask, field| {
        ask.mark(is_false(field.value), Feature::SpecialTokens)
    }),
    ("stop", |ask, field| ask.stop(field)),
    ("stop_regex", |ask, field| ask.given(field, Feature::Extension)),
    ("stop_sequences", |ask, field| ask.stop(field)),
    ("stop_token_ids", |ask, field| ask.given(field, Feature::StopTokens)),
    ("store", |ask, field| ask.mark(is_true(field.value), Feature::Store)),
    ("stream", |ask, field| {
        if is_true(field.value) {
            ask.delivery = Delivery::Streamed;
        }
        Ok(())
    }),
    ("stream_options", |ask, field| {
        let is = |key| entry(field.value, key).is_some_and(is_true);
        ask.usage = match (is("include_usage"), is("continuous_usage_stats")) {
            (false, _) => UsageAsked::No,
            (true, false) => UsageAsked::AtEnd,
            (true, true) => UsageAsked::Always,
        };
        Ok(())
    }),
    ("stream_reasoning", |ask, field| {
        ask.mark(is_false(field.value), Feature::Reasoning)
    }),
    ("structural_tag", |ask, field| ask.given(field, Feature::Grammar)),
    ("structured_outputs", |ask, field| ask.given(field, Feature::Grammar)),
    ("suffix", |ask, field| ask.given(field, Feature::Suffix)),
    ("temperature", |ask, field| {
        ask.mark(number(field.value) == Some(0.0), Feature::Greedy)
    }),
    ("text", |ask, field| {
        let format = entry(field.value, "format").filter(|format| is_given(format));
        let prescribed = format.is_some_and(|format| !is_plain(format));
        ask.mark(prescribed, Feature::Grammar)
    }),
    ("thinking", |ask, field| {
        let kind = entry(field.value, "type").and_then(text);
        ask.mark(
            is_given(field.value) && kind.as_deref() != Some("disabled"),
            Feature::Reasoning,
        )
    }),
    ("thinking_token_budget", |ask, field| {
        ask.given(field, Feature::Reasoning)
    }),
    ("tokens", |ask, field| {
        if ask.endpoint == Endpoint::Detokenize {
            return ask.set_prompt(Prompt::of_value(field.value, field.span));
        }
        Ok(())
    }),
    ("tools", |ask, field| ask.given(field, Feature::Tools)),
    ("top_k", |ask, field| {
        ask.mark(integer(field.value) == Some(1), Feature::Greedy)
    }),
    ("top_logprobs", |ask, field| {
        ask.mark(count(field.value).unwrap_or(0) > 0, Feature::Logprobs)
    }),
    ("truncate_prompt_tokens", |ask, field| {
        ask.given(field, Feature::TruncatePrompt)
    }),
    ("truncation", |ask, field| {
        ask.mark(
            text(field.value).is_some_and(|how| how == "auto"),
            Feature::TruncatePrompt,
        )
    }),
    ("use_beam_search", |ask, field| {
        ask.mark(is_true(field.value), Feature::BeamSearch)
    }),
    ("user", |ask, field| {
        ask.user = ask.user.take().or_else(|| word(field.value));
        Ok(())
    }),
    ("vllm_xargs", |ask, field| ask.given(field, Feature::Extension)),
    ("watermark", |ask, field| ask.given(field, Feature::Extension)),
    ("watermarking", |ask, field| ask.given(field, Feature::Extension)),
];

/// The data-parallel rank that a field names. It is ours to read, so it is ours to refuse.
fn rank(field: Field<'_>, name: &'static str) -> Result<Option<u32>, BadBody> {
    if field.value == b"null" {
        return Ok(None);
    }
    let wrong = BadBody::Field {
        field: name,
        must: "a whole number from 0 on",
    };
    count(field.value).map(Some).ok_or(wrong)
}

/// Whether a format is that of any text.
fn is_plain(format: &[u8]) -> bool {
    entry(format, "type").and_then(text).is_some_and(|kind| kind == "text")
}

#[expect(clippy::unnecessary_wraps, reason = "all readers of fields have one form")]
impl Ask {
    fn mark(&mut self, set: bool, feature: Feature) -> Result<(), BadBody> {
        if set {
            self.features.add(feature);
        }
        Ok(())
    }

    fn given(&mut self, field: Field<'_>, feature: Feature) -> Result<(), BadBody> {
        self.mark(is_given(field.value), feature)
    }

    fn penalty(&mut self, field: Field<'_>, none: f64) -> Result<(), BadBody> {
        let some = number(field.value).is_some_and(|penalty| (penalty - none).abs() > 0.0);
        self.mark(some, Feature::Penalties)
    }

    /// What engines take of two limits: the one that is not deprecated. A name that another endpoint has means nothing.
    fn limit(&mut self, field: Field<'_>, name: &'static str) -> Result<(), BadBody> {
        let means = match self.endpoint {
            Endpoint::Responses => name == "max_output_tokens",
            Endpoint::ChatCompletions => name != "max_output_tokens",
            _ => name == "max_tokens",
        };
        if !means {
            return Ok(());
        }
        let said = match count(field.value) {
            Some(tokens) => MaxOutput::Tokens(tokens),
            None => MaxOutput::Open,
        };
        let stronger = name != "max_tokens" && said != MaxOutput::Open;
        let unsaid = !matches!(self.max_output, MaxOutput::Tokens(_));
        if stronger || unsaid {
            self.max_output = said;
            self.max_output_field = Some(name);
        }
        Ok(())
    }

    fn set_prompt(&mut self, prompt: Prompt) -> Result<(), BadBody> {
        if self.prompt == Prompt::None {
            self.prompt = prompt;
        }
        Ok(())
    }

    fn messages(&mut self, field: Field<'_>) -> Result<(), BadBody> {
        match kind(field.value) {
            None | Some(Kind::Null) => return Ok(()),
            Some(Kind::Array) => self.prompt = Prompt::Messages(field.span),
            Some(_) => self.prompt = Prompt::Other(field.span),
        }
        media::mark(&mut self.features, field.value);
        Ok(())
    }

    fn input(&mut self, field: Field<'_>) -> Result<(), BadBody> {
        let prompt = Prompt::of_value(field.value, field.span);
        if matches!(prompt, Prompt::Messages(_)) {
            media::mark(&mut self.features, field.value);
        }
        self.set_prompt(prompt)
    }

    fn stop(&mut self, field: Field<'_>) -> Result<(), BadBody> {
        let mut stops: Vec<String> = match kind(field.value) {
            Some(Kind::String) => word(field.value).into_iter().collect(),
            Some(Kind::Array) => items(field.value).into_iter().flatten().filter_map(word).collect(),
            _ => return Ok(()),
        };
        if stops.is_empty() {
            return Ok(());
        }
        self.features.add(Feature::StopTexts);
        if stops.len() > MOST_STOPS || stops.iter().map(String::len).sum::<usize>() > MOST_STOP_BYTES {
            // Too many to watch for: the engine may do it, or refuse.
            self.features.add(Feature::Extension);
            return Ok(());
        }
        self.stops.append(&mut stops);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_in_order_and_fits_into_its_set() {
        assert!(KEYS.windows(2).all(|pair| pair[0].0 < pair[1].0));
        assert!(KEYS.len() <= 128, "{}", KEYS.len());
    }
}
