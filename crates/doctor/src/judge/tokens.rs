//! Are prompts the same tokens here and there?

use super::{Words, found};
use crate::finding::{Check, Outcome, Severity};
use crate::observed::{Compared, Kind, Observed, Tokenized};

pub(super) fn tokenizer(observed: &Observed) -> Vec<Outcome> {
    // One line is enough where there is no tokenizer here, or where all are equal.
    let only_there = |compared: &Compared| matches!(compared.outcome, Tokenized::OnlyThere { .. });
    if !observed.tokens.is_empty() && observed.tokens.iter().all(only_there) {
        let why =
            "there is no tokenizer here, so the engine is asked for tokens: name the model's folder with --tokenizer";
        return vec![Outcome::Unchecked(Check::Tokenizer, why.to_owned())];
    }
    let equal = |compared: &Compared| match compared.outcome {
        Tokenized::Equal { tokens } => Some(tokens),
        _ => None,
    };
    let counts: Option<Vec<usize>> = observed.tokens.iter().map(equal).collect();
    if let Some(counts) = counts.filter(|counts| !counts.is_empty()) {
        let sum: usize = counts.iter().sum();
        let seen = format!("a text, a chat and a chat with tools are the same {sum} tokens here and there");
        return vec![Outcome::Well(Check::Tokenizer, seen)];
    }
    let plain_is_equal = observed
        .tokens
        .iter()
        .any(|compared| compared.kind == Kind::Plain && equal(compared).is_some());
    observed
        .tokens
        .iter()
        .map(|compared| one(compared, plain_is_equal))
        .collect()
}

fn one(compared: &Compared, plain_is_equal: bool) -> Outcome {
    let what = compared.kind.words();
    match &compared.outcome {
        Tokenized::Equal { tokens } => Outcome::Well(Check::Tokenizer, format!("{what} is the same {tokens} tokens here and there")),
        Tokenized::OnlyThere { tokens } => {
            Outcome::Unchecked(Check::Tokenizer, format!("{what} is {tokens} tokens there; there is no tokenizer here"))
        }
        Tokenized::Differs { ours, theirs, at } => found(
            Check::Tokenizer,
            Severity::Fault,
            Words {
                seen: format!("{what} is {ours} tokens here and {theirs} there, and they differ from token {at} on"),
                cost: "keys are made of other tokens than the engine's: what is predicted to be cached of such prompts is wrong".to_owned(),
                change: if compared.kind != Kind::Plain && plain_is_equal {
                    "the tokenizers are equal, the chat templates are not: put the engine's (--chat-template) into the folder as \
                     chat_template.jinja, or start the engine with that of the folder"
                        .to_owned()
                } else {
                    "name the folder of the model that the engine was started with (--model, or its --tokenizer) with --tokenizer \
                     here and `serve.tokenizer` in the gateway"
                        .to_owned()
                },
            },
        ),
        Tokenized::NotHere(why) => found(
            Check::Tokenizer,
            Severity::Warning,
            Words {
                seen: format!("{what} cannot be made into tokens here: {why}"),
                cost: "such requests go where the load is least, whatever is cached where".to_owned(),
                change: "put the model's chat template into its folder, or leave the tokenizer out so that the engine is asked".to_owned(),
            },
        ),
        Tokenized::NotThere(why) => Outcome::Unchecked(Check::Tokenizer, format!("{what} cannot be compared: {why}")),
        Tokenized::Nowhere(why) => found(
            Check::Tokenizer,
            Severity::Fault,
            Words {
                seen: format!("{what} can be made into tokens neither here nor there: {why}"),
                cost: "such requests go where the load is least, whatever is cached where".to_owned(),
                change: "name the model's folder with --tokenizer here and `serve.tokenizer` in the gateway".to_owned(),
            },
        ),
    }
}
