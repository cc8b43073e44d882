//! The listening side of `ipc://`: a Unix socket at a path.
//!
//! A path that exists is replaced only if it is a socket that this user owns and no process listens on: what a process leaves behind
//! that was killed. Anything else stays as it is, and the error names it.
//!
//! **Invariant:** the file never has more rights than [`MODE`], not even between its creation and the first connection.
//!
//! **Invariant:** when the listener is dropped, the path is removed only if it is still the file that the listener created.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use socket2::{Domain, SockAddr, Socket, Type};
use tokio::net::{UnixListener, UnixStream};

/// The most rights of a socket file; the umask takes away from them.
const MODE: u32 = 0o660;
/// Connections that wait to be accepted.
const BACKLOG: i32 = 128;
const RULE: &str =
    "only a socket of this user that no process listens on is replaced; name another path, or remove this one yourself";

/// A Unix socket that listens.
#[derive(Debug)]
pub(crate) struct IpcListener {
    pub(crate) listener: UnixListener,
    pub(crate) file: SocketFile,
}

/// The file of a socket; removed when dropped.
#[derive(Debug)]
pub(crate) struct SocketFile {
    pub(crate) path: PathBuf,
    id: FileId,
}

/// A file, whatever its path is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileId {
    device: u64,
    inode: u64,
}

impl IpcListener {
    /// Binds a path, also if a process that was killed left its socket there.
    pub(crate) async fn bind(path: &Path) -> io::Result<Self> {
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        socket.set_nonblocking(true)?;
        // The file is created with the rights of the socket.
        let rights = File::from(OwnedFd::from(socket.try_clone()?));
        rights.set_permissions(Permissions::from_mode(MODE))?;
        let user = rights.metadata()?.uid();
        remove_abandoned(path, user).await?;
        socket.bind(&SockAddr::unix(path)?)?;
        let file = SocketFile {
            path: path.to_path_buf(),
            id: FileId::of(path)?,
        };
        socket.listen(BACKLOG)?;
        let listener = UnixListener::from_std(OwnedFd::from(socket).into())?;
        Ok(Self { listener, file })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if FileId::of(&self.path).is_ok_and(|id| id == self.id) {
            // If it cannot be removed, the next listener finds it abandoned.
            fs::remove_file(&self.path).ok();
        }
    }
}

impl FileId {
    fn of(path: &Path) -> io::Result<Self> {
        let file = fs::symlink_metadata(path)?;
        Ok(Self {
            device: file.dev(),
            inode: file.ino(),
        })
    }
}

/// Removes the socket that a process of this user left behind, if there is one.
async fn remove_abandoned(path: &Path, user: u32) -> io::Result<()> {
    let file = match fs::symlink_metadata(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let kept = |kind, what: String| Err(io::Error::new(kind, format!("{} {what}: {RULE}", path.display())));
    if !file.file_type().is_socket() {
        return kept(
            io::ErrorKind::AlreadyExists,
            "exists already and is not a socket".to_owned(),
        );
    }
    if file.uid() != user {
        let owner = file.uid();
        return kept(io::ErrorKind::PermissionDenied, format!("belongs to user {owner}"));
    }
    match UnixStream::connect(path).await {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
        _ => return kept(io::ErrorKind::AddrInUse, "is in use by another process".to_owned()),
    }
    fs::remove_file(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener as StdUnixListener;
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

    struct Directory(PathBuf);

    impl Directory {
        fn new() -> Self {
            static COUNT: AtomicU32 = AtomicU32::new(0);
            let name = format!("homing-ipc-unit-{}-{}", std::process::id(), COUNT.fetch_add(1, Relaxed));
            let path = std::env::temp_dir().join(name);
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        fn path(&self) -> PathBuf {
            self.0.join("events")
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).ok();
        }
    }

    async fn refusal(path: &Path) -> String {
        let error = IpcListener::bind(path)
            .await
            .expect_err("it must be refused")
            .to_string();
        assert!(error.contains(&path.display().to_string()), "{error}");
        error
    }

    #[tokio::test]
    async fn a_plain_file_a_directory_and_a_link_are_left_alone() {
        let directory = Directory::new();
        let path = directory.path();
        fs::write(&path, "precious").unwrap();
        assert!(refusal(&path).await.contains("is not a socket"));
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");

        let link = directory.0.join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(refusal(&link).await.contains("is not a socket"));
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());

        assert!(refusal(&directory.0).await.contains("is not a socket"));
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
    }

    #[tokio::test]
    async fn a_socket_in_use_is_left_alone_and_an_abandoned_one_is_replaced() {
        let directory = Directory::new();
        let path = directory.path();
        let held = StdUnixListener::bind(&path).unwrap();
        assert!(refusal(&path).await.contains("in use"));
        drop(held);
        let listener = IpcListener::bind(&path).await.unwrap();
        assert!(refusal(&path).await.contains("in use"));
        drop(listener);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn a_socket_of_another_user_is_left_alone() {
        let directory = Directory::new();
        let path = directory.path();
        drop(StdUnixListener::bind(&path).unwrap());
        let user = fs::symlink_metadata(&path).unwrap().uid();
        let error = remove_abandoned(&path, user + 1).await.unwrap_err().to_string();
        assert!(error.contains(&format!("belongs to user {user}")), "{error}");
        assert!(path.exists());
    }

    #[tokio::test]
    async fn others_have_no_rights_on_the_file() {
        let directory = Directory::new();
        let path = directory.path();
        let _listener = IpcListener::bind(&path).await.unwrap();
        let mode = fs::symlink_metadata(&path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode & !MODE, 0, "{mode:o}");
    }

    #[tokio::test]
    async fn a_file_that_took_its_place_outlives_the_listener() {
        let directory = Directory::new();
        let path = directory.path();
        let listener = IpcListener::bind(&path).await.unwrap();
        fs::remove_file(&path).unwrap();
        fs::write(&path, "precious").unwrap();
        drop(listener);
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
    }
}
