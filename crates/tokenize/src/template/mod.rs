//! Which text does a chat template make of a conversation? As Jinja in Python would render it, the way `transformers` sets it up.
//!
//! - `detect`: which form of contents a template wants;
//! - `python`: how Python writes values; `methods`: its methods of strings; `date`: its dates.
//!
//! **Invariant:** rendering ends: after [`FUEL`] instructions, [`DEEPEST_CALLS`] nested calls or [`LONGEST_TEXT`] bytes of text
//! it fails. A template that joins a text with itself again and again can still use memory up, so only templates of the
//! operator are rendered, never those of a client.

mod date;
mod detect;
mod methods;
mod python;

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Value, ValueKind};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, Output, State};
use serde_json::Value as Json;

use crate::error::PromptError;
use crate::options::Clock;
use python::JsonStyle;

pub(crate) use methods::is_space;

/// Instructions that rendering may take: a second of them at most.
const FUEL: u64 = 20_000_000;
/// How deep macros and loops may nest.
const DEEPEST_CALLS: usize = 200;
/// Bytes of text that rendering may give.
pub(crate) const LONGEST_TEXT: usize = 64 << 20;
/// Bytes of a template.
pub(crate) const LONGEST_TEMPLATE: usize = 1 << 20;
/// The longest message of a failed template that is told.
const LONGEST_COMPLAINT: usize = 400;
const NAME: &str = "chat";

/// A chat template, ready to render.
#[derive(Debug)]
pub(crate) struct Template {
    environment: Environment<'static>,
    source: String,
    /// Whether contents are lists of parts.
    pub parts: bool,
    /// Whether it knows the role `developer`.
    pub developer: bool,
    /// Whether it marks what a model said.
    tagged: bool,
}

impl Template {
    /// Reads a template; what is wrong with it is said in words.
    pub fn compile(source: &str) -> Result<Self, String> {
        if source.len() > LONGEST_TEMPLATE {
            return Err(format!("it has more than {LONGEST_TEMPLATE} bytes"));
        }
        let given = source;
        let source = without_generation_tags(given);
        let mut environment = environment().map_err(|error| error.to_string())?;
        environment
            .add_template_owned(NAME, source.clone())
            .map_err(|error| error.to_string())?;
        Ok(Self {
            parts: detect::loops_over_parts(&source),
            tagged: source != given,
            developer: source.contains("\"developer\"") || source.contains("'developer'"),
            environment,
            source,
        })
    }

    /// Whether this word is anywhere in it.
    pub fn mentions(&self, word: &str) -> bool {
        self.source.contains(word)
    }

    /// Whether it wants all that the system says at the beginning: it then refuses a later message of the system, or
    /// needs what an engine does not give it when it asks.
    pub fn wants_system_first(&self) -> bool {
        let message = |role: &str| Value::from_pairs([("role", role), ("content", "t")]);
        let messages: Value = ["system", "user", "system", "user"].map(message).into_iter().collect();
        let context = [("messages", messages), ("add_generation_prompt", Value::from(false))];
        self.tagged || self.run(Value::from_pairs(context)).is_err()
    }

    /// The text of a conversation. The clock is asked once at most.
    pub fn render(&self, context: Vec<(String, Value)>, clock: &Clock) -> Result<String, PromptError> {
        let clock = clock.clone();
        let now = OnceLock::new();
        let strftime = move |format: &str| date::strftime(*now.get_or_init(|| clock.now()), format);
        let today = ("strftime_now".to_owned(), Value::from_function(strftime));
        self.run(Value::from_pairs(std::iter::once(today).chain(context)))
    }

    fn run(&self, context: Value) -> Result<String, PromptError> {
        let mut text = Bounded::default();
        // The engine of templates indexes without looking in places, and no request may take the process down.
        let rendered = catch_unwind(AssertUnwindSafe(|| {
            let template = self.environment.get_template(NAME)?;
            template.render_captured_to(context, &mut text).map(|_| ())
        }));
        match rendered {
            Ok(Ok(())) => String::from_utf8(text.bytes).map_err(|error| PromptError::Template(error.to_string())),
            Ok(Err(_)) if text.full => Err(PromptError::TooMuch {
                what: "the text of the conversation",
                limit: LONGEST_TEXT as u64,
                unit: "bytes",
            }),
            Ok(Err(error)) if error.kind() == ErrorKind::OutOfFuel => Err(PromptError::TooMuch {
                what: "rendering the conversation",
                limit: FUEL,
                unit: "instructions",
            }),
            Ok(Err(error)) => Err(PromptError::Template(complaint(&error))),
            Err(_) => Err(PromptError::Template("it broke the engine of templates".to_owned())),
        }
    }
}

/// A value as templates see it.
pub(crate) fn value(json: &Json) -> Value {
    match json {
        Json::Null => Value::from(()),
        Json::Bool(flag) => Value::from(*flag),
        Json::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(integer), _) => Value::from(integer),
            (None, Some(integer)) => Value::from(integer),
            (None, None) => Value::from(number.as_f64().unwrap_or(f64::NAN)),
        },
        Json::String(text) => Value::from(text.as_str()),
        Json::Array(list) => list.iter().map(value).collect(),
        Json::Object(object) => Value::from_pairs(object.iter().map(|(key, field)| (key.as_str(), value(field)))),
    }
}

/// What a template says about why it failed, shortened.
fn complaint(error: &Error) -> String {
    let text = error.detail().map_or_else(|| error.to_string(), str::to_owned);
    text.chars().take(LONGEST_COMPLAINT).collect()
}

/// The tags that mark what a model said mean nothing for a prompt; what stands between them has a scope of its own.
fn without_generation_tags(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(at) = rest.find("{%") {
        let (before, tag) = rest.split_at(at + 2);
        out.push_str(before);
        let inner = tag.trim_start_matches(['-', '+']).trim_start();
        let word = ["generation", "endgeneration"].into_iter().find(|word| {
            let after = inner.strip_prefix(word).map(str::trim_start);
            after.is_some_and(|after| after.trim_start_matches(['-', '+']).starts_with("%}"))
        });
        let Some(word) = word else {
            rest = tag;
            continue;
        };
        out.push_str(&tag[..tag.len() - inner.len()]);
        out.push_str(if word == "generation" { "with" } else { "endwith" });
        rest = &inner[word.len()..];
    }
    out.push_str(rest);
    out
}

/// Text up to a limit.
#[derive(Default)]
struct Bounded {
    bytes: Vec<u8>,
    full: bool,
}

impl io::Write for &mut Bounded {
    fn write(&mut self, more: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + more.len() > LONGEST_TEXT {
            self.full = true;
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.bytes.extend_from_slice(more);
        Ok(more.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Jinja as `transformers` sets it up.
fn environment() -> Result<Environment<'static>, Error> {
    let mut environment = Environment::new();
    environment.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_fuel(Some(FUEL));
    environment.set_recursion_limit(DEEPEST_CALLS);
    environment.set_formatter(print);
    environment.set_unknown_method_callback(methods::call);
    environment.add_filter("tojson", to_json);
    environment.add_filter("string", |value: &Value| python::text(value).map(Value::from));
    environment.add_filter("trim", trim);
    environment.add_test("iterable", |value: &Value| {
        !value.is_none() && (value.is_undefined() || value.try_iter().is_ok())
    });
    environment.add_test("sequence", |value: &Value| {
        let lists = [ValueKind::Seq, ValueKind::Iterable, ValueKind::Map];
        value.is_undefined() || value.kind() == ValueKind::String || lists.contains(&value.kind())
    });
    environment.add_function("raise_exception", |why: &Value| -> Result<Value, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, python::text(why)?))
    });
    environment.add_function("cycler", minijinja_contrib::globals::cycler);
    environment.add_function("joiner", minijinja_contrib::globals::joiner);
    Ok(environment)
}

fn print(out: &mut Output<'_>, _: &mut State<'_, '_>, value: &Value) -> Result<(), Error> {
    let written = match value.as_str() {
        Some(text) => out.write_str(text),
        None => out.write_str(&python::text(value)?),
    };
    written.map_err(|_| Error::new(ErrorKind::WriteFailure, "the text cannot be written"))
}

fn trim(value: &Value, letters: Option<&str>) -> Result<Value, Error> {
    let text = python::text(value)?;
    let wanted = |letter: char| letters.map_or_else(|| is_space(letter), |letters| letters.contains(letter));
    Ok(Value::from(text.trim_matches(wanted)))
}

#[expect(clippy::needless_pass_by_value, reason = "filters get their arguments by value")]
fn to_json(value: &Value, ascii: Option<bool>, kwargs: Kwargs) -> Result<Value, Error> {
    let ascii = ascii.or(kwargs.get("ensure_ascii")?).unwrap_or(false);
    let indent: Option<Value> = kwargs.get("indent")?;
    let indent = indent
        .filter(|indent| !indent.is_none())
        .map(|indent| match indent.as_str() {
            Some(text) => text.to_owned(),
            None => " ".repeat(indent.as_usize().unwrap_or(0).min(64)),
        });
    let separators: Option<Value> = kwargs.get("separators")?;
    let (item, key) = match separators.filter(|separators| !separators.is_none()) {
        None if indent.is_some() => (",".to_owned(), ": ".to_owned()),
        None => (", ".to_owned(), ": ".to_owned()),
        Some(pair) => (
            python::text(&pair.get_item_by_index(0)?)?,
            python::text(&pair.get_item_by_index(1)?)?,
        ),
    };
    let sorted: Option<bool> = kwargs.get("sort_keys")?;
    kwargs.assert_all_used()?;
    let style = JsonStyle {
        indent,
        item,
        key,
        sorted: sorted.unwrap_or(false),
        ascii,
    };
    python::json(value, &style).map(Value::from)
}

#[cfg(test)]
mod tests;
