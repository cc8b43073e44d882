//! What does the reference page say? Written from the table of knobs and the checks, never by hand.

use std::fmt::Write as _;

use crate::checks::CHECKS;
use crate::knob::{Kind, Knob};
use crate::table::KNOBS;

const HEAD: &str = "\
# Settings

<!-- Generated from crates/config/src/table.rs by `HOMING_BLESS=1 cargo test -p homing-config`. Do not edit. -->

Every setting has one name in three spellings: a key in a TOML file (`index.max-ranks` is `max-ranks` in section
`[index]`), a flag (`--index-max-ranks`) and a variable (`HOMING_INDEX_MAX_RANKS`). A flag wins over a variable, a
variable over the file, the file over the default. The file is named by `--config FILE` or `HOMING_CONFIG`; none is read
unasked. A key that does not exist is an error; an empty variable counts as unset. `homing config` prints what holds and
where each value came from.

Counts may be written as `4096`, `1_000`, `64Ki`, `16Mi`, `10k`, `5M` or `2^26`; times as `500ms`, `120s`, `2m`, `1h` (a
plain number is seconds); ratios as `0.8` or `80%`. In the file, what is not a plain number stands in quotes.
";

/// The page, as it is committed in `docs/reference/config.md`.
pub fn page() -> String {
    let mut page = HEAD.to_owned();
    for sections in KNOBS.chunk_by(|a, b| a.section() == b.section()) {
        section(&mut page, sections);
    }
    page.push_str("\n## Rules between settings\n\n");
    for check in CHECKS {
        let (left, right) = (check.left.knob().path, check.right.knob().path);
        let when = if check.when.is_empty() {
            String::new()
        } else {
            format!(" when {}", check.when)
        };
        line(&mut page, format_args!("- `{left}` {} `{right}`{when}.", check.rule));
    }
    page
}

fn section(page: &mut String, knobs: &[Knob]) {
    match knobs[0].section() {
        "" => page.push_str("\n## Before the first section\n\n"),
        name => line(page, format_args!("\n## `[{name}]`\n")),
    }
    page.push_str("| key | default | allowed | what it does |\n|---|---|---|---|\n");
    for knob in knobs {
        let allowed = knob.kind.to_string().replace(" | ", ", ");
        line(
            page,
            format_args!("| `{}` | `{}` | {allowed} | {} |", knob.key(), knob.default, knob.doc),
        );
    }
    for knob in knobs {
        if let Kind::Choice(choices) = &knob.kind {
            line(page, format_args!("\n`{}`:\n", knob.path));
            for choice in *choices {
                line(page, format_args!("- `{}`: {}", choice.name, choice.doc));
            }
        }
    }
}

fn line(page: &mut String, text: std::fmt::Arguments<'_>) {
    writeln!(page, "{text}").expect("a string takes all that is written to it");
}
