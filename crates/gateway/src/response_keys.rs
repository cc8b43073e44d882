//! Where the keys of response ids come from: a file that gateways share, the state directory, or this process alone.
//!
//! The shared file is read again when it changes, so that keys can be rotated. A key of the state directory is made once and stays.
//!
//! **Invariant:** a file that cannot be used changes nothing while the gateway runs, and keeps it from starting.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use homing_config::security::ResponseKeyFiles;
use homing_config::{Rejected, read_bounded};
use ring::digest;
use ring::rand::{SecureRandom as _, SystemRandom};

use crate::response_id::{BadKeys, KEY_BYTES, ResponseIdKeys};

/// The name of the key in the state directory.
const KEY_NAME: &str = "response-ids.key";

/// Why there are no keys.
#[derive(Debug, thiserror::Error)]
pub enum ResponseKeyError {
    /// A file cannot be read.
    #[error(transparent)]
    Unreadable(#[from] Rejected),
    /// A file holds no keys.
    #[error("the key file {path} cannot be used: {problem}")]
    BadFile {
        /// Which.
        path: PathBuf,
        /// Why.
        problem: BadKeys,
    },
    /// The state directory cannot be written.
    #[error("the state directory {path} cannot be used: {error}. Name a directory that this user can write")]
    StateDirectory {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// There is no key without them.
    #[error("the system gives no random bytes")]
    NoEntropy,
}

/// The keys in use, and the file to read them from again.
#[derive(Debug)]
pub(crate) struct ResponseKeys {
    current: Arc<ArcSwap<ResponseIdKeys>>,
    shared: Option<SharedFile>,
}

#[derive(Debug)]
struct SharedFile {
    path: PathBuf,
    /// Of the text that was read last.
    digest: Vec<u8>,
}

impl ResponseKeys {
    /// Reads the keys for the first time, or makes one.
    pub(crate) fn open(files: &ResponseKeyFiles) -> Result<Self, ResponseKeyError> {
        let (keys, shared) = match (&files.key_file, &files.state_dir) {
            (Some(path), _) => {
                let (keys, digest) = read(path)?;
                let path = path.clone();
                (keys, Some(SharedFile { path, digest }))
            }
            (None, Some(directory)) => (of_state_directory(directory)?, None),
            (None, None) => {
                tracing::warn!(
                    "ids of stored responses are signed with a key that ends with this process: after a restart no client can \
                     continue or read its responses. Set `serve.state-dir`, or `responses.key-file` where several gateways run"
                );
                (ResponseIdKeys::one(&random_key()?), None)
            }
        };
        Ok(Self {
            current: Arc::new(ArcSwap::from_pointee(keys)),
            shared,
        })
    }

    /// The keys, as they are at any time.
    pub(crate) fn current(&self) -> Arc<ArcSwap<ResponseIdKeys>> {
        self.current.clone()
    }

    /// Reads the shared file again. Waits for the disk.
    pub(crate) fn reload(&mut self) -> Result<(), ResponseKeyError> {
        let Some(shared) = &mut self.shared else { return Ok(()) };
        let (keys, digest) = read(&shared.path)?;
        if digest != shared.digest {
            shared.digest = digest;
            self.current.store(Arc::new(keys));
            tracing::info!("`responses.key-file` was read again");
        }
        Ok(())
    }
}

/// The keys of a file, and a digest of its text.
fn read(path: &Path) -> Result<(ResponseIdKeys, Vec<u8>), ResponseKeyError> {
    let text = read_bounded(path)?.text;
    let keys = ResponseIdKeys::parse(&text).map_err(|problem| ResponseKeyError::BadFile {
        path: path.to_path_buf(),
        problem,
    })?;
    let digest = digest::digest(&digest::SHA256, text.as_bytes());
    Ok((keys, digest.as_ref().to_vec()))
}

/// The key of the state directory. Of several gateways that start there at once the first makes it.
fn of_state_directory(directory: &Path) -> Result<ResponseIdKeys, ResponseKeyError> {
    let unusable = |error| ResponseKeyError::StateDirectory {
        path: directory.to_path_buf(),
        error,
    };
    let path = directory.join(KEY_NAME);
    if !path.try_exists().map_err(unusable)? {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)
            .map_err(unusable)?;
        let key = random_key()?;
        make(&path, &key).map_err(unusable)?;
    }
    let mode = fs::metadata(&path).map_err(unusable)?.permissions().mode();
    if mode & 0o077 != 0 {
        tracing::warn!(
            "other users may read {}, and with it make ids of any response: `chmod 600` it",
            path.display()
        );
    }
    Ok(read(&path)?.0)
}

/// Makes a file with a key if there is none yet. It is never there without all of its text.
fn make(path: &Path, key: &[u8; KEY_BYTES]) -> io::Result<()> {
    let beside = path.with_extension(format!("{:016x}.new", fastrand::u64(..)));
    let written = write_new(&beside, &ResponseIdKeys::write(key)).and_then(|()| match fs::hard_link(&beside, path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        linked => linked,
    });
    let removed = fs::remove_file(&beside);
    written.and(removed)
}

fn write_new(path: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

fn random_key() -> Result<[u8; KEY_BYTES], ResponseKeyError> {
    let mut key = [0; KEY_BYTES];
    SystemRandom::new()
        .fill(&mut key)
        .map_err(|_| ResponseKeyError::NoEntropy)?;
    Ok(key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::response_id::{Owner, WorkerTag};

    fn directory(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("homing-response-keys-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        path
    }

    fn id(keys: &ResponseKeys) -> String {
        let id = keys
            .current()
            .load()
            .sign(Owner::ANONYMOUS, WorkerTag::of("w"), "resp_1");
        id.unwrap()
    }

    fn reads(keys: &ResponseKeys, id: &str) -> bool {
        keys.current().load().verify(Owner::ANONYMOUS, id).is_ok()
    }

    #[test]
    fn the_key_of_the_state_directory_is_made_once_and_is_private() {
        let state_dir = directory("state").join("below");
        let files = ResponseKeyFiles {
            key_file: None,
            state_dir: Some(state_dir.clone()),
        };
        let first = std::thread::scope(|scope| {
            let opened: Vec<_> = (0..8)
                .map(|_| scope.spawn(|| ResponseKeys::open(&files).unwrap()))
                .collect();
            let ids: Vec<String> = opened.into_iter().map(|keys| id(&keys.join().unwrap())).collect();
            assert!(ids.iter().all(|other| *other == ids[0]), "{ids:?}");
            ids[0].clone()
        });
        assert!(reads(&ResponseKeys::open(&files).unwrap(), &first));
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(
            (mode(&state_dir), mode(&state_dir.join(KEY_NAME))),
            (0o700, 0o600),
            "other users can read neither"
        );
        let names: Vec<_> = fs::read_dir(&state_dir)
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(names, [KEY_NAME]);
        // A key that was damaged is not replaced by another one, which would take all responses away.
        fs::write(state_dir.join(KEY_NAME), "").unwrap();
        let why = ResponseKeys::open(&files).unwrap_err().to_string();
        assert!(why.contains(KEY_NAME) && why.contains("has no key"), "{why}");
    }

    #[test]
    fn a_shared_file_is_rotated_without_a_restart_and_a_bad_one_changes_nothing() {
        let folder = directory("shared");
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("keys");
        let [old, new] = [1, 2].map(|byte| ResponseIdKeys::write(&[byte; KEY_BYTES]));
        fs::write(&path, &old).unwrap();
        let files = ResponseKeyFiles {
            key_file: Some(path.clone()),
            state_dir: None,
        };
        let mut keys = ResponseKeys::open(&files).unwrap();
        let by_old = id(&keys);
        for bad in ["", "no key"] {
            fs::write(&path, bad).unwrap();
            assert!(keys.reload().is_err() && reads(&keys, &by_old));
        }
        fs::write(&path, format!("{new}{old}")).unwrap();
        keys.reload().unwrap();
        let by_new = id(&keys);
        assert!(by_new != by_old && reads(&keys, &by_old) && reads(&keys, &by_new));
        fs::write(&path, &new).unwrap();
        keys.reload().unwrap();
        assert!(!reads(&keys, &by_old) && reads(&keys, &by_new));
        fs::remove_file(&path).unwrap();
        assert!(keys.reload().is_err() && reads(&keys, &by_new));
    }

    #[test]
    fn every_process_without_files_has_a_key_of_its_own() {
        let files = ResponseKeyFiles {
            key_file: None,
            state_dir: None,
        };
        let [one, other] = [0, 1].map(|_| ResponseKeys::open(&files).unwrap());
        assert!(reads(&one, &id(&one)) && !reads(&other, &id(&one)));
    }

    #[test]
    fn a_state_directory_that_cannot_be_written_is_named() {
        let file = directory("file");
        fs::write(&file, "").unwrap();
        let files = ResponseKeyFiles {
            key_file: None,
            state_dir: Some(file.clone()),
        };
        let why = ResponseKeys::open(&files).unwrap_err().to_string();
        assert!(why.contains(file.to_str().unwrap()), "{why}");
    }
}
