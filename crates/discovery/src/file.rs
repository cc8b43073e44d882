//! What does the settings file say now?
//!
//! The file is read again and again, and understood again when its text is another. Texts are compared and not times of change: a
//! mounted file can be exchanged without a new one.
//!
//! **Invariant:** a file that cannot be read or used changes nothing: what it said before holds, and why is said once.

use std::sync::Arc;
use std::time::Duration;

use homing_config::{FileText, Reader, Rejected, Resolved};
use tokio::sync::watch;

use crate::source::{Absence, NobodyListens, Origin, Source, SourceKind, Tell, Telling, Told};

/// The workers of the settings, the file of which is read again when it changes.
#[derive(Debug)]
pub struct FileSource {
    reader: Arc<Reader>,
    interval: Duration,
    origin: Origin,
    settings: watch::Sender<Arc<Resolved>>,
}

/// What was read of the file, for better or worse.
type Text = Result<Option<FileText>, Rejected>;

impl FileSource {
    /// Watches the file of `reader`, looking every `interval`. `first` is what was read at the start. The settings themselves
    /// go to the receiver whenever the file changes and can be used; which of them can be changed while all goes on is for who
    /// listens to know.
    pub fn new(reader: Reader, first: Resolved, interval: Duration) -> (Self, watch::Receiver<Arc<Resolved>>) {
        let words = match reader.file() {
            Some(path) => format!("{} (file {})", first.workers_source, path.display()),
            None => first.workers_source.to_string(),
        };
        let (settings, changed) = watch::channel(Arc::new(first));
        let source = Self {
            reader: Arc::new(reader),
            interval,
            origin: Origin::new(SourceKind::File, &words),
            settings,
        };
        (source, changed)
    }

    async fn watch(self, tell: Tell) -> Result<(), NobodyListens> {
        tell.tell(self.set()).await?;
        // What was read at the start may be older than the file by now.
        let mut seen = None;
        let mut trouble = String::new();
        loop {
            tokio::time::sleep(self.interval).await;
            let read = match self.text().await? {
                Ok(text) if text == seen && trouble.is_empty() => continue,
                Ok(text) => {
                    seen.clone_from(&text);
                    self.reader.resolve(text)
                }
                Err(unreadable) => Err(unreadable),
            };
            match read {
                Ok(settings) => {
                    trouble.clear();
                    self.settings.send_if_modified(|held| {
                        let is_other = held.config != settings.config;
                        if is_other {
                            *held = Arc::new(settings);
                        }
                        is_other
                    });
                    tell.tell(self.set()).await?;
                }
                Err(rejected) => {
                    let why = rejected.to_string();
                    if why != trouble {
                        tell.tell(Told::Failed { why: why.clone() }).await?;
                        trouble = why;
                    }
                }
            }
        }
    }

    /// Reads the file where waiting for a disk holds nobody up.
    async fn text(&self) -> Result<Text, NobodyListens> {
        let reader = self.reader.clone();
        // It fails only when the runtime ends.
        let text = tokio::task::spawn_blocking(move || reader.text()).await;
        text.map_err(|_| NobodyListens)
    }

    fn set(&self) -> Told {
        let workers = self.settings.borrow().config.workers.clone();
        Told::Set {
            workers: workers.into_iter().map(Arc::new).collect(),
            absence: Absence::Meant,
        }
    }
}

impl Source for FileSource {
    fn origin(&self) -> Origin {
        self.origin.clone()
    }

    fn run(self: Box<Self>, tell: Tell) -> Telling {
        Box::pin(async move {
            // It ends when nobody listens.
            let _ = self.watch(tell).await;
        })
    }
}
