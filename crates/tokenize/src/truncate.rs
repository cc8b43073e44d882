//! Which tokens of a prompt are left when the request limits it?

use serde_json::{Map, Value as Json};

use crate::chat::{flag, get, text, wrong};
use crate::error::PromptError;
use crate::options::{Dialect, PromptOptions};
use crate::tokenizer::Marks;

/// Which end of a prompt is cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    /// That which the engine's tokenizer cuts off: the left one, and marks stay.
    Usual,
    Left,
    Right,
}

/// How many tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Most {
    All,
    /// As many as fit.
    Fitting,
    Tokens(usize),
}

/// How a request limits its prompt, and whether it wants marks around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Truncate {
    most: Most,
    side: Side,
    /// Whether the request says how long its answer may be.
    answer: bool,
    pub marks: Marks,
}

impl Truncate {
    /// Nothing is cut off.
    pub fn none(marks: Marks) -> Self {
        Self {
            most: Most::All,
            side: Side::Usual,
            answer: false,
            marks,
        }
    }

    /// As many tokens as fit.
    pub fn fitting(self, answer: bool) -> Self {
        Self {
            most: Most::Fitting,
            answer,
            ..self
        }
    }

    /// An answer of some length is expected.
    pub fn with_answer(self) -> Self {
        Self { answer: true, ..self }
    }

    /// Whether anything may be cut off.
    pub fn cuts(self) -> bool {
        self.most != Most::All
    }

    /// Reads it from a body, in which marks are added or not unless it says otherwise.
    pub fn read(body: &Map<String, Json>, marks: bool) -> Result<Self, PromptError> {
        let most = match get(body, "truncate_prompt_tokens") {
            None => Most::All,
            Some(Json::Number(number)) if number.as_i64() == Some(-1) => Most::Fitting,
            Some(number) => match number.as_u64().and_then(|number| usize::try_from(number).ok()) {
                Some(tokens) => Most::Tokens(tokens),
                None => return Err(wrong("truncate_prompt_tokens", "is no number of tokens")),
            },
        };
        let side = match text(body, "truncation_side")? {
            None => Side::Usual,
            Some("left") => Side::Left,
            Some("right") => Side::Right,
            Some(_) => return Err(wrong("truncation_side", "is neither `left` nor `right`")),
        };
        let limits = ["max_completion_tokens", "max_tokens"];
        let answer = limits.iter().find_map(|limit| get(body, limit)).and_then(Json::as_u64);
        let added = flag(body, "add_special_tokens", marks)?;
        Ok(Self {
            most,
            side,
            answer: answer.is_some_and(|answer| answer > 0),
            marks: if added { Marks::Added } else { Marks::None },
        })
    }

    /// What is left of the tokens of a prompt, the first and last of which are marks: so many before and behind.
    pub fn apply(
        self,
        tokens: &mut Vec<u32>,
        marks: (usize, usize),
        options: &PromptOptions,
    ) -> Result<(), PromptError> {
        let most = match self.most {
            Most::All => return Ok(()),
            Most::Tokens(most) => most,
            Most::Fitting if options.context == 0 => {
                return Err(PromptError::NotMirrored("truncation to a length that is not known"));
            }
            Most::Fitting => (options.context as usize) - usize::from(self.answer),
        };
        if options.dialect == Dialect::Sglang {
            return Ok(());
        }
        let length = tokens.len();
        if length <= most {
            return Ok(());
        }
        match self.side {
            Side::Right => tokens.truncate(most),
            Side::Left => {
                tokens.drain(..length - most);
            }
            Side::Usual => {
                let (before, behind) = if self.marks == Marks::Added { marks } else { (0, 0) };
                let kept = most.saturating_sub(before + behind);
                tokens.drain(before..length - behind - kept);
                tokens.truncate(most);
            }
        }
        Ok(())
    }
}
