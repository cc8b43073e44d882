//! Of which adapters are requests under way at a worker? As vLLM says it on its metrics page.
//!
//! `vllm:lora_requests_info` has the names in its labels and the time as its value, and a line that was once written stays: the
//! newest one holds. It tells of *activity*. An adapter that nobody uses is not on it, resident or not.

use std::collections::BTreeSet;

use crate::lines::Sample;

/// The line that names them.
pub(crate) const ADAPTERS: &str = "vllm:lora_requests_info";
/// Ranks of one worker write at about the same time, in seconds.
const TOGETHER: f64 = 2.0;
/// Names that are kept.
const MOST: usize = 4_096;

/// What a page says so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Activity {
    /// Each line, by its time.
    lines: Vec<(f64, Vec<String>)>,
}

impl Activity {
    /// Takes a line of that name.
    pub(crate) fn see(&mut self, sample: &Sample<'_>) {
        if !sample.value.is_finite() {
            return;
        }
        let names = ["running_lora_adapters", "waiting_lora_adapters"];
        let names = names.iter().filter_map(|label| sample.label(label));
        let names = names.flat_map(|list| list.split(',')).map(str::trim);
        let names: Vec<String> = names
            .filter(|name| !name.is_empty() && name.len() <= crate::probe::MAX_NAME)
            .take(MOST)
            .map(str::to_owned)
            .collect();
        let newest = self.newest().max(sample.value);
        self.lines.retain(|(at, _)| *at >= newest - TOGETHER);
        if sample.value >= newest - TOGETHER {
            self.lines.push((sample.value, names));
        }
    }

    /// The adapters in use; `None` if the page says nothing of them.
    pub(crate) fn end(self) -> Option<BTreeSet<String>> {
        if self.lines.is_empty() {
            return None;
        }
        Some(self.lines.into_iter().flat_map(|(_, names)| names).collect())
    }

    fn newest(&self) -> f64 {
        self.lines.iter().map(|(at, _)| *at).fold(f64::MIN, f64::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_line_holds() {
        let line = |running: &str, waiting: &str, at: f64| {
            format!(
                "{ADAPTERS}{{max_lora=\"4\",running_lora_adapters=\"{running}\",waiting_lora_adapters=\"{waiting}\"}} {at}"
            )
        };
        let lines = [
            line("old", "", 1e9),
            line("a, b", "c", 2e9),
            line("older", "", 1.5e9),
            line("d", "", 2e9 + 1.0),
        ];
        let mut activity = Activity::default();
        assert_eq!(activity.clone().end(), None);
        for line in &lines {
            activity.see(&Sample::of(line.as_bytes(), &[ADAPTERS]).unwrap());
        }
        let names: Vec<String> = activity.end().unwrap().into_iter().collect();
        assert_eq!(names, ["a", "b", "c", "d"]);
        let mut idle = Activity::default();
        idle.see(&Sample::of(lines[1].as_bytes(), &[ADAPTERS]).unwrap());
        idle.see(&Sample::of(line("", "", 3e9).as_bytes(), &[ADAPTERS]).unwrap());
        assert_eq!(idle.end(), Some(BTreeSet::new()));
    }
}
