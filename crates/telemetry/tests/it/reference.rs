//! Is the committed reference page what the declarations say? `HOMING_BLESS=1` writes it anew.

use std::path::Path;

use homing_telemetry::{Change, Metrics};

#[test]
fn the_committed_page_is_the_generated_one() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/metrics.md");
    let page = homing_telemetry::reference::page();
    if std::env::var_os("HOMING_BLESS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, &page).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == page,
        "docs/reference/metrics.md is stale: run `HOMING_BLESS=1 cargo test -p homing-telemetry` and commit it"
    );
}

#[test]
fn all_that_is_declared_is_rendered_once_in_order() {
    let metrics = Metrics::default();
    metrics.index.applied_events.of(Change::Cleared).add(1);
    let text = metrics.render();
    let rendered: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
    let declared: Vec<String> = Metrics::declarations()
        .filter(|declaration| !declaration.name.starts_with("homing_worker_"))
        .map(|declaration| format!("{} {}", declaration.name, declaration.kind.as_str()))
        .collect();
    assert_eq!(rendered, declared);
    assert!(text.contains("homing_index_applied_events_total{change=\"cleared\"} 1\n"));
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (_, value) = line.rsplit_once(' ').unwrap();
        assert!(value.parse::<f64>().is_ok(), "{line}");
    }
}
