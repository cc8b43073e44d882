//! Where do logs go? To standard error, a line for each event, from the level that the settings say.

use homing_config::{Colour, LogLevel};
use tracing::Level;

/// Starts to log. To be called once.
pub fn start(level: LogLevel, colour: Colour) {
    let level = match level {
        LogLevel::Error => Level::ERROR,
        LogLevel::Warn => Level::WARN,
        LogLevel::Info => Level::INFO,
        LogLevel::Debug => Level::DEBUG,
        LogLevel::Trace => Level::TRACE,
    };
    tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(std::io::stderr)
        .with_ansi(colour == Colour::On)
        .init();
}
