//! How does a second stream become the continuation of the first?
//!
//! Its events get the first one's id, time and model; a second beginning is left out; text that the client has seen is left out;
//! tokens are counted together; a completion that continues a chat is put into a chat's words; a text that ends the answer is found
//! across the seam.
//!
//! **Invariant:** fields that are not named here are passed as the second worker sent them.

use bytes::Bytes;

use super::WhyNot;
use super::body::Start;
use super::so_far::{SoFar, common};
use super::stops::Watch;
use crate::ask::{Ask, Feature, UsageAsked};
use crate::edit::Passed;
use crate::endpoint::Endpoint;
use crate::heard::Head;
use crate::json::{Fields, Kind, Limits, entry, items, kind, quoted, text};
use crate::lax::integer;
use crate::splice::Splice;
use crate::sse::{Event, event};

/// Text that the second worker is expected to say again.
#[derive(Clone, Debug, Default)]
pub(super) struct Expected {
    pub(super) text: String,
    /// Nothing but spaces: others will do, too.
    pub(super) lenient: bool,
}

/// Makes events of a second stream the continuation of the first.
#[derive(Clone, Debug)]
pub struct Seam {
    /// Whose words the client expects.
    to: Endpoint,
    /// Whose words the second worker uses.
    from: Endpoint,
    head: Option<Head>,
    expected: Expected,
    /// How much of it came.
    met: usize,
    watch: Watch,
    keep_stop: bool,
    usage: UsageAsked,
    counts: Counts,
    over: bool,
}

/// What was used before the seam, and since.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    /// Tokens of the prompt that the client sent, where that is known.
    prompt: Option<u64>,
    cached: Option<u64>,
    /// Tokens of the answer that the second worker does not generate.
    said: u64,
    /// Pieces of the second worker: about as many as tokens.
    pieces: u64,
}

impl Seam {
    pub(super) fn new(so_far: &SoFar, ask: &Ask, from: Endpoint, start: &Start, expected: Expected) -> Self {
        let used = so_far.used();
        Self {
            to: ask.endpoint,
            from,
            head: so_far.head.clone(),
            expected,
            met: 0,
            watch: Watch::new(&ask.stops, &so_far.text),
            keep_stop: ask.has(Feature::KeepStop),
            usage: ask.usage,
            counts: Counts {
                prompt: used.map(|used| used.prompt).or(start.prompt),
                cached: used.and_then(|used| used.cached),
                said: u64::from(start.said),
                pieces: 0,
            },
            over: false,
        }
    }

    /// Whether the answer has ended here, although the second worker may go on.
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// What becomes of an event of the second stream, after its editor. What is passed may be several events.
    pub fn event(&mut self, event: &Event) -> Result<Passed, WhyNot> {
        if self.over {
            return Ok(Passed::Drop);
        }
        let Some(data) = event.data().filter(|_| !event.is_done()) else {
            return Ok(Passed::Pass);
        };
        let data = data.trim_ascii();
        let Ok(fields) = Fields::read(data, Limits::default()) else {
            return Ok(Passed::Pass);
        };
        let Some(choices) = fields.get(data, "choices").map(|span| span.of(data)) else {
            return Ok(Passed::Pass);
        };
        let mut splice = Splice::new(data, &fields);
        let mut end = None;
        if let Some(choice) = items(choices).and_then(|mut choices| choices.next()) {
            match self.choice(choice)? {
                Said::Nothing => return Ok(Passed::Drop),
                Said::Piece(choice) => {
                    splice.set("choices", [b"[", choice.as_slice(), b"]"].concat());
                }
                Said::End(choice) => {
                    splice.set("choices", [b"[", choice.as_slice(), b"]"].concat());
                    end = Some(());
                }
            }
        }
        self.heading(&mut splice);
        let used = fields.get(data, "usage").map(|span| span.of(data));
        self.using(&mut splice, used.filter(|usage| kind(usage) == Some(Kind::Object)));
        let passed = event.with_data(&splice.finish());
        if end.is_none() {
            return Ok(Passed::Replace(passed));
        }
        self.over = true;
        Ok(Passed::Replace([passed.as_ref(), &self.ending()].concat().into()))
    }

    /// What becomes of a choice.
    fn choice(&mut self, choice: &[u8]) -> Result<Said, WhyNot> {
        let delta = entry(choice, "delta");
        let (holder, key) = match self.from {
            Endpoint::ChatCompletions => (delta.unwrap_or(b"{}"), "content"),
            _ => (choice, "text"),
        };
        let said = entry(holder, key).and_then(text).unwrap_or_default().into_owned();
        let finish = entry(choice, "finish_reason").is_some_and(|reason| kind(reason) == Some(Kind::String));
        let begins = delta.is_some_and(|delta| entry(delta, "role").is_some());
        if begins && said.is_empty() && !finish {
            return Ok(Said::Nothing);
        }
        self.counts.pieces += 1;
        let new = self.new_part(&said, finish)?.to_owned();
        if new.is_empty() && !said.is_empty() && !finish {
            return Ok(Said::Nothing);
        }
        let own_stop = entry(choice, "stop_reason").and_then(text);
        match self.watch.push(&new) {
            None => Ok(Said::Piece(self.spoken(choice, &new, None))),
            // The engine found another one that ends at the same place.
            Some(met) if met.kept == new.len() && own_stop.is_some_and(|own| self.watch.prefers(&own, &met.stop)) => {
                Ok(Said::Piece(self.spoken(choice, &new, None)))
            }
            Some(met) => {
                let kept = if self.keep_stop { &new[..met.kept] } else { "" };
                Ok(Said::End(self.spoken(choice, kept, Some(&met.stop))))
            }
        }
    }

    /// What of a text the client has not seen.
    fn new_part<'t>(&mut self, said: &'t str, finish: bool) -> Result<&'t str, WhyNot> {
        let left = &self.expected.text[self.met..];
        let known = common(left, said);
        self.met += known;
        let missing = known < left.len();
        let differs = missing && (known < said.len() || finish);
        if differs && !self.expected.lenient {
            return Err(WhyNot::Diverged);
        }
        if differs {
            self.met = self.expected.text.len();
        }
        Ok(&said[known..])
    }

    /// A choice with this text, in the words that the client expects.
    fn spoken(&self, choice: &[u8], new: &str, stop: Option<&str>) -> Vec<u8> {
        let fields = Fields::read(choice, Limits::default()).unwrap_or_default();
        let mut splice = Splice::new(choice, &fields);
        match (self.from, self.to) {
            (Endpoint::Completions, Endpoint::ChatCompletions) => {
                splice.remove("text");
                splice.remove("prompt_token_ids");
                splice.remove("prompt_logprobs");
                if entry(choice, "stop_reason").is_some_and(|reason| reason == b"null") && stop.is_none() {
                    splice.remove("stop_reason");
                }
                splice.set("delta", format!("{{\"content\":{}}}", quoted(new)));
            }
            (Endpoint::ChatCompletions, _) => {
                let delta = entry(choice, "delta").unwrap_or(b"{}");
                if entry(delta, "content").is_some_and(|content| kind(content) == Some(Kind::String)) {
                    splice.set_in("delta", "content", quoted(new));
                }
                splice.remove_in("delta", "role");
            }
            _ => {
                splice.set("text", quoted(new));
            }
        }
        if let Some(stop) = stop {
            splice.set("finish_reason", "\"stop\"");
            splice.set("stop_reason", quoted(stop));
        }
        splice.finish().to_vec()
    }

    fn heading(&self, splice: &mut Splice<'_>) {
        if self.from != self.to {
            splice.set("object", "\"chat.completion.chunk\"");
        }
        if let Some(head) = &self.head {
            splice.set("id", quoted(&head.id));
            splice.set("created", head.created.to_string());
            splice.set("model", quoted(&head.model));
        }
    }

    /// Counts the tokens of both streams together.
    fn using(&self, splice: &mut Splice<'_>, usage: Option<&[u8]>) {
        let Some(usage) = usage else { return };
        let number = |key: &str| {
            entry(usage, key)
                .and_then(integer)
                .and_then(|number| u64::try_from(number).ok())
        };
        let prompt = self.prompt(number("prompt_tokens").unwrap_or(0));
        let completion = number("completion_tokens").unwrap_or(0) + self.counts.said;
        splice.set_in("usage", "prompt_tokens", prompt.to_string());
        splice.set_in("usage", "completion_tokens", completion.to_string());
        splice.set_in("usage", "total_tokens", (prompt + completion).to_string());
        if self.counts.said > 0 && entry(usage, "prompt_tokens_details").is_some() {
            // What the second worker found in its cache was found for another prompt.
            let cached = self.counts.cached;
            let details = cached.map_or("null".to_owned(), |cached| format!("{{\"cached_tokens\":{cached}}}"));
            splice.set_in("usage", "prompt_tokens_details", details);
        }
    }

    fn prompt(&self, of_second: u64) -> u64 {
        let guess = of_second.saturating_sub(self.counts.said);
        self.counts.prompt.unwrap_or(guess)
    }

    /// What ends a stream that the second worker does not know to have ended.
    fn ending(&self) -> Bytes {
        let mut ending = Vec::new();
        // Without the prompt's length nothing true could be said of the usage.
        if let (true, Some(head), Some(prompt)) = (self.usage != UsageAsked::No, &self.head, self.counts.prompt) {
            let object = match self.to {
                Endpoint::ChatCompletions => "chat.completion.chunk",
                _ => "text_completion",
            };
            let completion = self.counts.said + self.counts.pieces;
            let data = format!(
                "{{\"id\":{},\"object\":\"{object}\",\"created\":{},\"model\":{},\"choices\":[],\"usage\":{{\"prompt_tokens\":{prompt},\
                 \"completion_tokens\":{completion},\"total_tokens\":{}}}}}",
                quoted(&head.id),
                head.created,
                quoted(&head.model),
                prompt + completion,
            );
            ending.extend_from_slice(&event(None, data.as_bytes()));
        }
        ending.extend_from_slice(b"data: [DONE]\n\n");
        ending.into()
    }
}

/// What becomes of a choice.
enum Said {
    /// The client has seen it.
    Nothing,
    /// It goes on.
    Piece(Vec<u8>),
    /// It ends here.
    End(Vec<u8>),
}
