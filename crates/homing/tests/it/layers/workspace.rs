//! What does this workspace say about itself? Reads `ARCHITECTURE.md`, the manifests, the lock file and what lints are told.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use toml::{Table, Value};

/// All that the rules look at.
#[derive(Debug)]
pub struct Facts {
    /// Crates and their layers, in the order of the table.
    pub table: Vec<(String, String)>,
    /// The members that exist. Names are without the prefix `homing-`.
    pub crates: Vec<CrateFacts>,
    /// What each package needs, by the lock file.
    pub locked: BTreeMap<String, Vec<String>>,
    /// The text of `crates/clippy-pure.toml`.
    pub pure_clippy: String,
}

/// One member.
#[derive(Debug)]
pub struct CrateFacts {
    /// Its folder's name.
    pub name: String,
    /// The layer it declares.
    pub layer: Option<String>,
    /// What it needs in production and to be built.
    pub dependencies: Vec<String>,
    /// The text of its `src/lib.rs` or `src/main.rs`.
    pub root: String,
    /// The text of a `clippy.toml` of its own.
    pub clippy: Option<String>,
}

impl Facts {
    /// The member of that name.
    pub fn member(&self, name: &str) -> Option<&CrateFacts> {
        self.crates.iter().find(|krate| krate.name == name)
    }
}

/// Reads this workspace.
pub fn read() -> Facts {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut crates: Vec<CrateFacts> = fs::read_dir(root.join("crates"))
        .expect("crates/")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.join("Cargo.toml").exists())
        .map(|path| crate_in(&path))
        .collect();
    crates.sort_by(|a, b| a.name.cmp(&b.name));
    Facts {
        table: table(&text_of(&root.join("ARCHITECTURE.md"))),
        crates,
        locked: locked(&text_of(&root.join("Cargo.lock"))),
        pure_clippy: text_of(&root.join("crates/clippy-pure.toml")),
    }
}

/// Rows of the form `| layer | `crate` | ...`.
fn table(page: &str) -> Vec<(String, String)> {
    let row = |line: &str| {
        let mut cells = line.strip_prefix('|')?.split('|').map(str::trim);
        let (layer, name) = (cells.next()?, cells.next()?);
        let name = name.strip_prefix('`')?.strip_suffix('`')?;
        let known = ["pure", "adapter", "service", "binary"].contains(&layer);
        known.then(|| (name.to_owned(), layer.to_owned()))
    };
    page.lines().filter_map(row).collect()
}

fn crate_in(path: &Path) -> CrateFacts {
    let manifest: Table = text_of(&path.join("Cargo.toml")).parse().expect("a manifest is TOML");
    let folder = path
        .file_name()
        .expect("a folder has a name")
        .to_string_lossy()
        .into_owned();
    let mut dependencies = dependencies_in(&manifest);
    let targets = manifest.get("target").and_then(Value::as_table);
    let production = targets
        .into_iter()
        .flatten()
        .filter(|(condition, _)| !is_for_tests(condition));
    for (_, target) in production {
        dependencies.extend(target.as_table().map(dependencies_in).unwrap_or_default());
    }
    let layer = ["package", "metadata", "homing", "layer"]
        .iter()
        .try_fold(&Value::Table(manifest.clone()), |value, key| value.get(key))
        .and_then(Value::as_str)
        .map(str::to_owned);
    let roots = ["src/lib.rs", "src/main.rs"].map(|file| path.join(file));
    let root = roots.iter().find(|root| root.exists()).expect("a crate has a root");
    let clippy = path.join("clippy.toml");
    CrateFacts {
        name: folder,
        layer,
        dependencies,
        root: text_of(root),
        clippy: clippy.exists().then(|| text_of(&clippy)),
    }
}

/// Builds under a checker of schedules or a fuzzer are no production.
fn is_for_tests(condition: &str) -> bool {
    ["cfg(loom)", "cfg(shuttle)", "cfg(fuzzing)"].contains(&condition)
}

fn dependencies_in(manifest: &Table) -> Vec<String> {
    let tables = ["dependencies", "build-dependencies"].map(|kind| manifest.get(kind).and_then(Value::as_table));
    let named = tables.into_iter().flatten().flat_map(Table::iter).map(|(name, value)| {
        let renamed = value.get("package").and_then(Value::as_str);
        short(renamed.unwrap_or(name))
    });
    named.collect()
}

fn locked(lock: &str) -> BTreeMap<String, Vec<String>> {
    let lock: Table = lock.parse().expect("a lock file is TOML");
    let packages = lock["package"].as_array().expect("packages").iter();
    let mut locked: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for package in packages {
        let name = package["name"].as_str().expect("a package has a name");
        let needs = package
            .get("dependencies")
            .and_then(Value::as_array)
            .into_iter()
            .flatten();
        // `name`, or `name version` where there are several; all versions of a name are taken together.
        let names = needs
            .filter_map(Value::as_str)
            .filter_map(|need| need.split(' ').next())
            .map(short);
        locked.entry(short(name)).or_default().extend(names);
    }
    locked
}

fn short(package: &str) -> String {
    package.strip_prefix("homing-").unwrap_or(package).to_owned()
}

fn text_of(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
