//! What does one event of vLLM or SGLang change?

use homing_domain::{ClearScope, KvChange, Label, Removed};

use super::fields::{Fields, Scratch, Tag};
use super::groups::tier_of;
use super::memory::{PassedOver, Place, Recall};
use super::{Decoder, Heard, part_label};
use crate::msgpack::{Cursor, Fault};
use crate::skipped::SkipReason;

impl Decoder {
    /// Reads the next event and adds what it changes. The only fault is that the bytes end.
    pub(super) fn event(&mut self, cursor: &mut Cursor<'_>, heard: &mut Heard) -> Result<(), Fault> {
        // The lists are taken out while the event is at work, so that the rest of the decoder can be changed.
        let mut scratch = std::mem::take(&mut self.scratch);
        let read = Fields::read(cursor, &mut scratch);
        if let Ok(fields) = &read
            && let Err(reason) = self.apply(fields, &mut scratch, heard)
        {
            heard.skip(reason);
        }
        self.scratch = scratch;
        read.map(|_| ())
    }

    fn apply(&mut self, fields: &Fields<'_>, scratch: &mut Scratch, heard: &mut Heard) -> Result<(), SkipReason> {
        match fields.tag {
            Tag::Unknown => return Err(SkipReason::UnknownEvent),
            Tag::Missing => return Err(SkipReason::BadFields),
            Tag::Removed | Tag::Cleared if fields.bad => return Err(SkipReason::BadFields),
            Tag::Stored | Tag::Removed | Tag::Cleared => {}
        }
        // Whatever is said about a place that is not this worker's is nothing to this worker.
        if fields.locality.is_some_and(|word| !word.eq_ignore_ascii_case("local")) {
            return Err(SkipReason::RemoteLocality);
        }
        let tier = tier_of(fields.medium).ok_or(SkipReason::UnknownMedium)?;
        if fields.tag == Tag::Cleared {
            let scope = fields.medium.map_or(ClearScope::AllTiers, |_| ClearScope::Only(tier));
            self.cleared(scope, heard);
            return Ok(());
        }
        let group = self.groups.admit(fields.group, fields.kind)?;
        if !fields.has_labels {
            return Err(SkipReason::BadFields);
        }
        let place = Place { tier, group };
        if fields.tag == Tag::Removed {
            self.removed(&scratch.labels, place, heard)
        } else {
            self.stored(fields, scratch, place, heard)
        }
    }

    fn removed(&mut self, labels: &[Label], place: Place, heard: &mut Heard) -> Result<(), SkipReason> {
        let parts = self.groups.parts(place.tier, place.group).unwrap_or(1);
        let mut passed_over = 0;
        for &label in labels {
            if !self.passed_over.is_empty() && self.passed_over.take(label, place) {
                passed_over += 1;
                continue;
            }
            let gone = removal(&mut heard.changes, place);
            // The last part goes first: it is the leaf.
            gone.extend((0..parts).rev().map(|part| part_label(label, part, parts)));
        }
        if passed_over > 0 {
            return Err(SkipReason::RemovalOfSkipped);
        }
        Ok(())
    }

    /// Engines repeat a clear; one is enough.
    fn cleared(&mut self, scope: ClearScope, heard: &mut Heard) {
        if heard.changes.last() != Some(&KvChange::Cleared(scope)) {
            heard.changes.push(KvChange::Cleared(scope));
        }
        match scope {
            ClearScope::AllTiers => {
                self.passed_over = PassedOver::default();
                self.recall = Recall::default();
            }
            ClearScope::Only(tier) => self.passed_over.clear(Some(tier)),
        }
    }
}

/// The labels of the removal that is last among the changes. Engines send an event for each block; one change serves
/// all that follow each other.
fn removal(changes: &mut Vec<KvChange>, place: Place) -> &mut Vec<Label> {
    let same = |gone: &Removed| gone.tier == place.tier && gone.group == place.group;
    if !matches!(changes.last(), Some(KvChange::Removed(gone)) if same(gone)) {
        changes.push(KvChange::Removed(Removed {
            labels: Vec::new(),
            tier: place.tier,
            group: place.group,
        }));
    }
    match changes.last_mut() {
        Some(KvChange::Removed(gone)) => &mut gone.labels,
        _ => unreachable!("a removal was pushed"),
    }
}
