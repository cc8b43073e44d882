//! What does the settings file say now?

use std::sync::Arc;
use std::time::Duration;

use homing_config::{Reader, Resolved};
use tokio::sync::watch;

use crate::source::{Origin, Source, Tell, Telling};

/// The workers of the settings, the file of which is read again when it changes.
#[derive(Debug)]
pub struct FileSource {
    origin: Origin,
}

impl FileSource {
    /// Watches the file of `reader`, looking every `interval`. `first` is what was read at the start. The settings themselves
    /// are told to the receiver, whenever they change: a file that cannot be used changes nothing and is logged.
    pub fn new(reader: Reader, first: Resolved, interval: Duration) -> (Self, watch::Receiver<Arc<Resolved>>) {
        let _ = (reader, first, interval);
        todo!()
    }
}

impl Source for FileSource {
    fn origin(&self) -> Origin {
        self.origin.clone()
    }

    fn run(self: Box<Self>, tell: Tell) -> Telling {
        let _ = tell;
        todo!()
    }
}
