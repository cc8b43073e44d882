//! Where do logs go? To standard error, a line for each event, from the level that the settings say: for people, or as JSON objects.

use std::fmt;

use homing_config::{Colour, Log, LogFormat, LogLevel};
use serde_json::{Map, Value, json};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime as _, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Starts to log. To be called once.
pub fn start(log: &Log, colour: Colour) {
    let level = match log.level {
        LogLevel::Error => Level::ERROR,
        LogLevel::Warn => Level::WARN,
        LogLevel::Info => Level::INFO,
        LogLevel::Debug => Level::DEBUG,
        LogLevel::Trace => Level::TRACE,
    };
    let lines = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(std::io::stderr);
    match log.format {
        LogFormat::Text => lines.with_ansi(colour == Colour::On).init(),
        LogFormat::Json => lines.with_ansi(false).event_format(JsonLines).init(),
    }
}

/// An event as one JSON object: `at`, `level`, `target`, `message`, and its fields by their names. Requests are named in `request`.
struct JsonLines;

impl<S, N> FormatEvent<S, N> for JsonLines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut out: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let mut at = String::new();
        SystemTime.format_time(&mut Writer::new(&mut at))?;
        let metadata = event.metadata();
        let mut fields = Fields(Map::new());
        fields.0.insert("at".to_owned(), Value::String(at));
        fields
            .0
            .insert("level".to_owned(), json!(metadata.level().as_str().to_lowercase()));
        fields.0.insert("target".to_owned(), json!(metadata.target()));
        event.record(&mut fields);
        writeln!(out, "{}", Value::Object(fields.0))
    }
}

struct Fields(Map<String, Value>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, Value::String(format!("{value:?}")));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, Value::String(value.to_owned()));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, json!(value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, json!(value));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, json!(value));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, json!(value));
    }
}

impl Fields {
    fn put(&mut self, field: &Field, value: Value) {
        self.0.insert(field.name().to_owned(), value);
    }
}
