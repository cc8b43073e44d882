//! What has the client seen of an answer, and which tokens was that?
//!
//! **Invariant:** `text` is what was passed to the client. `at` is how far the stream that is heard now has come in it: after a seam
//! it may repeat a little.
//!
//! **Invariant:** the tokens up to a mark are those whose text ends at the mark, or, where the engine keeps text back, behind it.

use std::collections::VecDeque;

use bytes::Bytes;

use super::body::{self, Start};
use super::seam::{Expected, Seam};
use super::{Continuation, Elsewhere, Resumed, Way, WhyNot};
use crate::ask::{Ask, Feature, MaxOutput, Prompt};
use crate::edit::Plan;
use crate::endpoint::Endpoint;
use crate::heard::{Head, Heard, Usage};
use crate::json::Limits;

/// The longest part of a text that is said again to begin at a space, in bytes.
const LONGEST_WORD: usize = 128;

/// Places in the text of which it is known how many tokens they took.
const MARKS: usize = 256;

/// An answer so far.
#[derive(Clone, Debug)]
pub struct SoFar {
    /// What the client asked.
    ask: Ask,
    /// In which words.
    body: Bytes,
    max_bytes: usize,
    /// What was passed to the client.
    pub(super) text: String,
    /// How far the stream that is heard has come in it, in bytes.
    at: usize,
    /// Its tokens, for as long as each piece told them.
    tokens: Option<Vec<u32>>,
    /// Those of the prompt, where they were told.
    prompt_tokens: Option<Vec<u32>>,
    /// Pieces that were heard: about as many as tokens.
    pieces: u32,
    /// Where pieces ended, the latest last.
    marks: VecDeque<Mark>,
    /// A piece without text came before the first with some: the engine keeps text back.
    keeps_back: bool,
    pub(super) head: Option<Head>,
    usage: Option<Usage>,
    /// Something of it was heard.
    begun: bool,
    /// Why it cannot be continued, once that is known.
    refused: Option<WhyNot>,
}

/// A place where a piece ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Mark {
    /// In the text, in bytes.
    at: usize,
    /// Tokens up to there, or pieces where tokens are not told.
    tokens: u32,
}

impl SoFar {
    /// Nothing is said yet. What the client asked, and the body in which it did; `max_bytes` bounds what is kept of the answer, and
    /// one that is longer cannot be continued.
    pub fn new(ask: &Ask, body: &Bytes, max_bytes: usize) -> Self {
        Self {
            ask: ask.clone(),
            body: body.clone(),
            max_bytes,
            text: String::new(),
            at: 0,
            tokens: Some(Vec::new()),
            prompt_tokens: None,
            pieces: 0,
            marks: VecDeque::new(),
            keeps_back: false,
            head: None,
            usage: None,
            begun: false,
            refused: Continuation::possible(ask).err(),
        }
    }

    /// Takes what an event of the first stream, or of one that continues it, said: as the engine sent it, before editor and seam.
    pub fn hear(&mut self, heard: &Heard) {
        // An engine that gives up says so as if it were an end. Whoever hears it does not pass it.
        if heard.is_given_up() || heard.error.is_some() {
            return;
        }
        self.begun |=
            heard.content || heard.finish.is_some() || heard.words.as_ref().is_some_and(|it| it.head.is_some());
        if self.refused.is_some() {
            return;
        }
        if heard.reasoning || heard.tool {
            self.refuse(if heard.tool { WhyNot::Tool } else { WhyNot::Reasoning });
            return;
        }
        if heard.done || heard.finish.is_some() {
            self.refuse(WhyNot::Ended);
            return;
        }
        self.usage = heard.usage.or(self.usage);
        let Some(words) = &heard.words else { return };
        let first = self.head.is_none();
        if let Some(head) = words.head.as_ref().filter(|_| first) {
            self.head = Some(head.clone());
        }
        if let Some(prompt) = words.prompt_tokens.as_ref().filter(|_| self.prompt_tokens.is_none()) {
            self.prompt_tokens = Some(prompt.clone());
        }
        self.say(&words.text);
        match (&mut self.tokens, &words.tokens) {
            (Some(all), Some(new)) => all.extend_from_slice(new),
            (tokens @ Some(_), None) if !words.text.is_empty() => *tokens = None,
            _ => {}
        }
        // The beginning of a chat is no token.
        let beginning = words.head.is_some() && self.ask.endpoint == Endpoint::ChatCompletions && words.text.is_empty();
        self.pieces += u32::from(!beginning);
        if !words.text.is_empty() {
            self.mark();
        }
        self.keeps_back |= self.text.is_empty() && self.pieces > 0;
        let tokens = self.tokens.as_ref().map_or(0, Vec::len) + self.prompt_tokens.as_ref().map_or(0, Vec::len);
        if self.text.len() + tokens * 4 > self.max_bytes {
            self.refuse(WhyNot::TooLong);
        }
    }

    /// Whether the client has seen anything: before that, a plain retry does.
    pub fn begun(&self) -> bool {
        self.begun
    }

    /// What the client has seen.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Why it cannot be continued, if that is known by now.
    pub fn refused(&self) -> Option<WhyNot> {
        self.refused
    }

    /// The request that continues it. What is heard from then on is its answer.
    pub fn resume(&mut self, elsewhere: &Elsewhere) -> Result<Resumed, WhyNot> {
        if let Some(why) = self.refused {
            return Err(why);
        }
        let asked = read(self.ask.endpoint, &self.body)?;
        let (way, mut start) = self.start(&asked, elsewhere)?;
        start.prompt = start.prompt.or(elsewhere.prompt);
        let endpoint = match way {
            Way::Tokens => Endpoint::Completions,
            Way::Again | Way::Text => asked.endpoint,
        };
        let body = body::resumed(&asked, &self.body, &start)?;
        let mut ask = read(endpoint, &body)?;
        // What the client did not ask for is taken out again, even if the body came with it.
        ask.usage = self.ask.usage;
        ask.engine_salt.clone_from(&self.ask.engine_salt);
        ask.features.put(Feature::TokenIds, self.ask.has(Feature::TokenIds));
        let mut plan = Plan::new(&ask, elsewhere.wanted);
        plan.model.clone_from(&elsewhere.model);
        let expected = Expected {
            text: self.text[start.at..].to_owned(),
            lenient: self.text[start.at..].trim().is_empty(),
        };
        let seam = Seam::new(self, &self.ask, endpoint, &start, expected);
        self.restart(&start);
        Ok(Resumed {
            sent: plan.body(&ask, &body),
            editor: plan.editor(),
            ask,
            body,
            seam,
            way,
        })
    }

    /// Where the next worker is to begin.
    fn start(&self, ask: &Ask, elsewhere: &Elsewhere) -> Result<(Way, Start), WhyNot> {
        if self.text.is_empty() {
            return Ok((Way::Again, Start::default()));
        }
        let kept_back = kept_back(ask);
        if kept_back == 0
            && let Some(start) = self.by_tokens(ask, elsewhere)
        {
            return Ok((Way::Tokens, start));
        }
        if matches!(ask.prompt, Prompt::Tokens(_)) {
            return Err(if kept_back > 0 {
                WhyNot::KeptBack
            } else {
                WhyNot::Prompt
            });
        }
        let at = self.text_end(ask, kept_back)?;
        if at == 0 {
            return Ok((Way::Again, Start::default()));
        }
        let start = Start {
            text: Some(self.text[..at].to_owned()),
            at,
            said: self.tokens_until(at, kept_back),
            ..Start::default()
        };
        Ok((Way::Text, start))
    }

    /// From the tokens, where all are known.
    fn by_tokens(&self, ask: &Ask, elsewhere: &Elsewhere) -> Option<Start> {
        let prompt = ask.prompt_tokens(&self.body).or_else(|| self.prompt_tokens.clone())?;
        let mark = *self.marks.back()?;
        // Tokens after the mark gave no text yet: they are computed again.
        let said = self.tokens.as_ref()?.get(..mark.tokens as usize)?;
        if said.is_empty() {
            return None;
        }
        let prompt_length = prompt.len() as u64;
        let ids = [prompt.as_slice(), said].concat();
        let limited = match (ask.endpoint, ask.max_output) {
            (_, MaxOutput::Tokens(_)) | (Endpoint::Completions, MaxOutput::Unsaid) => None,
            // A completion without a limit is a short one, so a chat without one needs one here.
            _ => {
                let room = elsewhere.context?.checked_sub(u32::try_from(ids.len()).ok()?)?;
                Some(room.max(1))
            }
        };
        Some(Start {
            ids: Some(ids),
            at: mark.at,
            said: mark.tokens,
            prompt: Some(prompt_length),
            room: limited,
            ..Start::default()
        })
    }

    /// Where to begin in the text.
    fn text_end(&self, ask: &Ask, kept_back: usize) -> Result<usize, WhyNot> {
        if let Some(feature) = ask.features.first_of(&[Feature::SpecialTokens]) {
            return Err(WhyNot::Feature(feature));
        }
        let whole = &self.text[..self.at.min(self.text.len())];
        if ask.endpoint == Endpoint::Completions {
            return Ok(boundary(whole, ask, kept_back));
        }
        if let Some(feature) = ask
            .features
            .first_of(&[Feature::ContinueFinal, Feature::NoGenerationPrompt])
        {
            return Err(WhyNot::Feature(feature));
        }
        if is_thinking(whole) {
            return Err(WhyNot::Reasoning);
        }
        // Templates may strip spaces at the end of a message, so they are left out and expected again.
        let whole = &whole[..boundary(whole, ask, kept_back)];
        Ok(whole.trim_end().len())
    }

    /// Tokens whose text lies before a place.
    fn tokens_until(&self, at: usize, kept_back: usize) -> u32 {
        // Tokens are told when they are computed, their text so many characters later.
        let kept_back = if self.keeps_back { kept_back } else { 0 };
        let fits = |mark: &&Mark| {
            let more = self.text[mark.at..at.max(mark.at)].chars().count();
            mark.at <= at && more >= kept_back
        };
        if let Some(mark) = self.marks.iter().rev().find(fits) {
            return mark.tokens;
        }
        // Before the first mark: as if all its tokens were equally long.
        let characters = |until: usize| self.text[..until].chars().count() as u64;
        self.marks.front().map_or(0, |mark| {
            let whole = characters(mark.at) + kept_back as u64;
            (u64::from(mark.tokens) * characters(at) / whole.max(1)) as u32
        })
    }

    /// What is heard from now on begins at another place.
    fn restart(&mut self, start: &Start) {
        self.at = start.at;
        self.marks.retain(|mark| mark.at <= start.at);
        self.pieces = start.said;
        match (&mut self.tokens, &start.ids) {
            (Some(tokens), Some(_)) => tokens.truncate(start.said as usize),
            // By its text, other tokens may have been made of it than those that were generated.
            (tokens, _) => *tokens = (start.at == 0).then(Vec::new),
        }
        if start.at == 0 {
            self.marks.clear();
        }
    }

    fn say(&mut self, text: &str) {
        let known = common(&self.text[self.at..], text);
        self.at += known;
        if known == text.len() {
            return;
        }
        self.text.push_str(&text[known..]);
        self.at = self.text.len();
    }

    fn mark(&mut self) {
        if self.marks.len() == MARKS {
            self.marks.pop_front();
        }
        let tokens = self.tokens.as_ref().map_or(self.pieces, |tokens| tokens.len() as u32);
        self.marks.push_back(Mark { at: self.at, tokens });
    }

    fn refuse(&mut self, why: WhyNot) {
        self.refused = Some(why);
        (self.text, self.tokens, self.prompt_tokens) = (String::new(), None, None);
        self.marks = VecDeque::new();
    }

    /// What the first worker said of its prompt.
    pub(super) fn used(&self) -> Option<Usage> {
        self.usage
    }
}

/// What a body asks. It was read before, or made of one that was.
fn read(endpoint: Endpoint, body: &[u8]) -> Result<Ask, WhyNot> {
    let limits = Limits {
        bytes: usize::MAX,
        ..Limits::default()
    };
    Ask::read(endpoint, body, limits).map_err(|_| WhyNot::Prompt)
}

/// Characters that an engine keeps back: one less than the longest text that ends the answer has, as vLLM does.
fn kept_back(ask: &Ask) -> usize {
    if ask.has(Feature::KeepStop) {
        return 0;
    }
    let longest = ask.stops.iter().map(|stop| stop.chars().count()).max();
    longest.unwrap_or(1).saturating_sub(1)
}

/// Where a worker can begin in a text. Where text is kept back, it was given out character by character, and its end is in the middle
/// of a token; if the same comes again, it begins at the last space.
fn boundary(text: &str, ask: &Ask, kept_back: usize) -> usize {
    if kept_back == 0 || !ask.has(Feature::Greedy) {
        return text.len();
    }
    let before = text.trim_end_matches(|letter: char| !letter.is_whitespace()).trim_end();
    // What is written without spaces has short tokens; all of it would be too much to say again.
    if text.len() - before.len() > LONGEST_WORD {
        return text.len();
    }
    before.len()
}

/// Whether a text is in the middle of thoughts, as models write them that nobody parses.
fn is_thinking(text: &str) -> bool {
    match (text.rfind("<think>"), text.rfind("</think>")) {
        (Some(open), Some(close)) => open > close,
        (Some(_), None) => true,
        (None, _) => false,
    }
}

/// How many bytes two texts have in common at their beginnings.
pub(super) fn common(a: &str, b: &str) -> usize {
    let mut both = a.char_indices().zip(b.chars());
    match both.find(|((_, a), b)| a != b) {
        Some(((at, _), _)) => at,
        None => a.len().min(b.len()),
    }
}
