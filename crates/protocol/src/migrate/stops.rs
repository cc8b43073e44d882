//! Does a text that ends the answer lie across the seam?
//!
//! The second worker looks only at what it says itself. A text that began before the seam and ends after it must be found here.
//! An engine that keeps back what could be the beginning of such a text never has one begin in what it gave out; others do, and
//! all do where the text is to be part of the answer.
//!
//! **Invariant:** what is found is what an undisturbed engine would have found: the match that ends first, of those that begin
//! before the seam.

/// Watches the first bytes behind a seam.
#[derive(Clone, Debug, Default)]
pub(super) struct Watch {
    stops: Vec<String>,
    /// The end of what was said before, and what came since.
    text: String,
    /// How much of it was said before.
    before: usize,
}

/// A text that ends the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Met {
    /// Which.
    pub(super) stop: String,
    /// How many bytes of the newest piece belong to the answer if the text does; 0 if it does not.
    pub(super) kept: usize,
}

impl Watch {
    /// Watches for these texts after this one was said.
    pub(super) fn new(stops: &[String], said: &str) -> Self {
        let longest = stops.iter().map(String::len).max().unwrap_or(0);
        let mut from = said.len().saturating_sub(longest.saturating_sub(1));
        while !said.is_char_boundary(from) {
            from -= 1;
        }
        let text = said[from..].to_owned();
        Self {
            stops: stops.to_vec(),
            before: text.len(),
            text,
        }
    }

    /// Whether the first of two texts counts where both end at one place: the one that was named first.
    pub(super) fn prefers(&self, one: &str, other: &str) -> bool {
        let place = |text: &str| self.stops.iter().position(|stop| stop == text);
        place(one) < place(other)
    }

    /// Takes a piece. A text that began before the seam may be complete with it.
    pub(super) fn push(&mut self, piece: &str) -> Option<Met> {
        if self.before == 0 {
            return None;
        }
        let old = self.text.len();
        self.text.push_str(piece);
        let found = self.stops.iter().filter_map(|stop| {
            let starts = (0..self.before).filter(|start| self.text.is_char_boundary(*start));
            let start = starts
                .into_iter()
                .find(|start| self.text[*start..].starts_with(stop.as_str()))?;
            let end = start + stop.len();
            (end > old).then_some((end, stop))
        });
        if let Some((end, stop)) = found.min_by_key(|(end, _)| *end) {
            return Some(Met {
                stop: stop.clone(),
                kept: end - old,
            });
        }
        let longest = self.stops.iter().map(String::len).max().unwrap_or(0);
        if self.text.len() - self.before >= longest {
            // Nothing that began before the seam can end any more.
            self.before = 0;
            self.text.clear();
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_text_across_the_seam_is_found() {
        let stops = vec!["END".to_owned(), "\n\n".to_owned()];
        let mut watch = Watch::new(&stops, "the E");
        assert_eq!(watch.push("N"), None);
        assert_eq!(
            watch.push("D of"),
            Some(Met {
                stop: "END".into(),
                kept: 1
            })
        );
        let mut watch = Watch::new(&stops, "the E");
        assert_eq!(
            watch.push("ND"),
            Some(Met {
                stop: "END".into(),
                kept: 2
            })
        );
        // What begins after the seam is for the engine to find.
        let mut watch = Watch::new(&stops, "the");
        assert_eq!(watch.push(" END"), None);
    }

    proptest! {
        #[test]
        fn what_is_found_ends_where_an_undisturbed_engine_would_end(
            before in "[ab]{0,6}", after in "[ab]{0,8}", stops in prop::collection::vec("[ab]{1,4}", 0..3), cut in 0..8_usize,
        ) {
            // Nothing was complete before the seam: else it would have ended there.
            prop_assume!(stops.iter().all(|stop| !before.contains(stop.as_str())));
            let whole = format!("{before}{after}");
            let crossing = stops.iter().filter_map(|stop| {
                let starts = 0..before.len();
                starts.into_iter().find(|start| whole[*start..].starts_with(stop.as_str())).map(|start| start + stop.len())
            });
            let expected = crossing.filter(|end| *end > before.len()).min();
            let mut watch = Watch::new(&stops, &before);
            let (mut found, mut at) = (None, before.len());
            for piece in [&after[..cut.min(after.len())], &after[cut.min(after.len())..]] {
                if found.is_none() {
                    found = watch.push(piece).map(|met| at + met.kept);
                }
                at += piece.len();
            }
            prop_assert_eq!(found, expected);
        }
    }
}
