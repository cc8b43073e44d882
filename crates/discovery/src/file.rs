//! What does the settings file say now?
//!
//! The file is read again and again, and understood again when its text is another and has stood still for a while
//! ([`homing_config::settle`]). Texts are compared as well as times of change: a mounted file can be exchanged without a new one.
//!
//! **Invariant:** a file that cannot be read or used changes nothing: what it said before holds, and why is said once. One that no longer
//! names any worker cannot be used, unless it says so: `workers = []`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use homing_config::file::declares_no_workers;
use homing_config::{FileText, FileVersion, Reader, Rejected, Resolved, Settling};
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
type Text = Result<Option<(FileText, FileVersion)>, Rejected>;

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
        let mut settling = Settling::default();
        let mut pause = self.interval;
        loop {
            tokio::time::sleep(pause).await;
            pause = self.interval;
            let read = match self.text().await? {
                Ok(read) => {
                    let (text, version) = read.unzip();
                    let unsettled = version.map(|version| settling.observe(Instant::now(), version));
                    if let Some(unsettled) = unsettled.filter(|time| !time.is_zero()) {
                        pause = pause.min(unsettled);
                        continue;
                    }
                    if text == seen && trouble.is_empty() {
                        continue;
                    }
                    seen.clone_from(&text);
                    self.resolve(text)
                }
                Err(unreadable) => {
                    settling.reset();
                    Err(unreadable.to_string())
                }
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
                Err(why) => {
                    if why != trouble {
                        tell.tell(Told::Failed { why: why.clone() }).await?;
                        trouble = why;
                    }
                }
            }
        }
    }

    /// The settings that a text makes, or why it is not used.
    fn resolve(&self, text: Option<FileText>) -> Result<Resolved, String> {
        let has_declared = text.as_ref().is_some_and(|file| declares_no_workers(&file.text));
        let new = self.reader.resolve(text).map_err(|rejected| rejected.to_string())?;
        let held = self.settings.borrow().config.workers.len();
        if new.config.workers.is_empty() && held > 0 && !has_declared {
            return Err(format!(
                "the settings file names no worker any more, and named {held} before: it is not used, because it may have been cut; write \
                 `workers = []` into it if all are to go"
            ));
        }
        Ok(new)
    }

    /// Reads the file where waiting for a disk holds nobody up.
    async fn text(&self) -> Result<Text, NobodyListens> {
        let reader = self.reader.clone();
        // It fails only when the runtime ends.
        let text = tokio::task::spawn_blocking(move || reader.versioned_text()).await;
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
