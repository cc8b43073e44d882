//! The corpora of the fuzz targets, which tests replay on stable Rust.

use std::path::{Path, PathBuf};

/// Runs `check` on every file of the corpus of a fuzz target. Where it panics, the file is named.
pub fn replay(target: &str, check: impl Fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz/corpus")
        .join(target);
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.sort();
    assert!(!files.is_empty(), "{} has no files", folder.display());
    for file in &files {
        let bytes = std::fs::read(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let named = NameOnPanic(file);
        check(&bytes);
        drop(named);
    }
}

struct NameOnPanic<'a>(&'a Path);

impl Drop for NameOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the input is {}", self.0.display());
        }
    }
}
