//! What does the reference page say? Written from the table of knobs and the checks, never by hand.

use std::fmt::Write as _;

use crate::checks::CHECKS;
use crate::knob::{Kind, Knob};
use crate::table::KNOBS;
use crate::worker::keys::{Form, WorkerKey};
use crate::worker::{MAX_LABELS, MAX_WORKERS};

const HEAD: &str = "\
# Settings

<!-- Generated from crates/config/src/table.rs by `HOMING_BLESS=1 cargo test -p homing-config`. Do not edit. -->

Every setting has one name in three spellings: a key in a TOML file (`index.max-ranks` is `max-ranks` in section
`[index]`), a flag (`--index-max-ranks`) and a variable (`HOMING_INDEX_MAX_RANKS`). A flag wins over a variable, a
variable over the file, the file over the default. The file is named by `--config FILE` or `HOMING_CONFIG`; none is read
unasked. A key that does not exist is an error; an empty variable counts as unset. `homing config` prints what holds and
where each value came from.

Counts may be written as `4096`, `1_000`, `64Ki`, `16Mi`, `10k`, `5M` or `2^26`; times as `500ms`, `120s`, `2m`, `1h` (a
plain number is seconds); sizes as `64MiB`; ratios as `0.8` or `80%`. In the file, what is not a plain number stands in quotes.
";

const WORKERS: &str = "
## Workers

A worker is its address and what else is to be known about it: `URL[,KEY=VALUE]...`. The same is written

- as a flag, once for each: `--worker http://10.0.0.1:8000,events=tcp://10.0.0.1:5557`;
- as the variable `HOMING_WORKER`, which takes several, separated by spaces or line breaks;
- as tables of the file:

```toml
[[worker]]
url = \"http://10.0.0.1:8000\"
events = \"tcp://10.0.0.1:5557\"
replay = \"tcp://10.0.0.1:5567\"
labels = { zone = \"a\" }
```

Lists are not mixed: workers of flags replace those of the variable, and they those of the file. Values contain neither
spaces nor commas, and addresses neither passwords nor queries.

| key | default | allowed | what it says |
|---|---|---|---|
";

const DISCOVER: &str = "
## Places to look for workers

Workers need not be named one by one. `--discover` names a place to look, again and again (`docs/discovery.md`):

- `dns:HOST:PORT`: a worker at every address (A and AAAA records) of the name, all with this port;
- `dns-srv:NAME`: a worker at every address of every target of its SRV records, with the record's port.

What follows, separated by commas, are keys of a worker as above, `url` excepted; they hold for every worker found, and
`{host}` in them stands for its address: `dns:vllm.default.svc:8000,model=qwen,events=tcp://{host}:5557`. A worker for which
neither `events` nor `agent` nor `cache-view` is given has the view `approximate`, until it tells itself where its events are.

The same is written as the variable `HOMING_DISCOVER`, which takes several, separated by spaces or line breaks, and in the file
before the first section as a list: `discover = [\"dns:vllm.default.svc:8000\"]`. Lists are not mixed.
";

/// The page, as it is committed in `docs/reference/config.md`.
pub fn page() -> String {
    let mut page = HEAD.to_owned();
    for sections in KNOBS.chunk_by(|a, b| a.section() == b.section()) {
        section(&mut page, sections);
    }
    workers(&mut page);
    page.push_str(DISCOVER);
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
    page.push_str("- The ranks of all workers with one model and block size must not exceed `index.max-ranks`.\n");
    page
}

fn workers(page: &mut String) {
    page.push_str(WORKERS);
    for key in WorkerKey::ALL {
        let facts = key.facts();
        let allowed = match &facts.form {
            form @ (Form::Http | Form::Events | Form::Socket | Form::Label) => {
                format!("`{form}`").replace(" or ", "` or `")
            }
            form => form.to_string().replace(" | ", ", "),
        };
        line(
            page,
            format_args!("| `{}` | {} | {allowed} | {} |", facts.name, facts.default, facts.doc),
        );
    }
    line(
        page,
        format_args!(
            "\nUp to {MAX_WORKERS} workers, each with up to {MAX_LABELS} labels. What does not go together is an error that names \
             both: `replay` or `topic`\nwithout `events`; `agent` with `events`; `cache-view=events` without a source; a local socket \
             with several ranks; an address or\nendpoint used twice, ports of all ranks included. `bind:tcp://:PORT` is bound to the \
             loopback interface."
        ),
    );
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
