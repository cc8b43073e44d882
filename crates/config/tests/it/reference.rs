//! Is the committed reference page what the table of knobs says? `HOMING_BLESS=1` writes it anew.

use std::path::Path;

#[test]
fn the_committed_page_is_the_generated_one() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/config.md");
    let page = homing_config::reference::page();
    if std::env::var_os("HOMING_BLESS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, &page).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == page,
        "docs/reference/config.md is stale: run `HOMING_BLESS=1 cargo test -p homing-config` and commit it"
    );
}
