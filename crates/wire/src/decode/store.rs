//! Which blocks came? From the fields of a store to blocks with content hashes.

use homing_domain::{AdapterName, CacheSalt, Extras, KvChange, Label, Stored, StoredBlock, Window};

use super::extras::ExtraKeys;
use super::fields::{Fields, Scratch};
use super::memory::{Known, Place};
use super::{Decoder, Heard, MAX_SPLIT, part_label};
use crate::dialect::Dialect;
use crate::skipped::{BlockSizeRefusal, SkipReason};

/// How the tokens of an event make blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Plan {
    /// Blocks of the engine that are full; what follows them is not.
    full: usize,
    /// Blocks of ours in each of them.
    parts: u32,
}

/// The block before a block; none at the beginning of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Before(Option<Label>);

impl Decoder {
    pub(super) fn stored(
        &mut self,
        fields: &Fields<'_>,
        scratch: &mut Scratch,
        place: Place,
        heard: &mut Heard,
    ) -> Result<(), SkipReason> {
        let result = self.try_stored(fields, scratch, place, heard);
        // What was skipped is remembered, so that its removal is skipped, too.
        let taken = result.map_or(0, |(taken, _)| taken);
        for &label in scratch.labels.get(taken..).unwrap_or_default() {
            self.passed_over.note(label, place);
        }
        match result {
            Ok((_, None)) => Ok(()),
            Ok((_, Some(reason))) | Err(reason) => Err(reason),
        }
    }

    /// How many of the blocks were taken, and why no more.
    fn try_stored(
        &mut self,
        fields: &Fields<'_>,
        scratch: &mut Scratch,
        place: Place,
        heard: &mut Heard,
    ) -> Result<(usize, Option<SkipReason>), SkipReason> {
        if fields.bad {
            return Err(SkipReason::BadFields);
        }
        let blocks = scratch.labels.len();
        if blocks == 0 {
            return if scratch.tokens.is_empty() {
                Ok((0, None))
            } else {
                Err(SkipReason::TokensDoNotFit)
            };
        }
        if scratch.tokens.is_empty() {
            return Ok(self.named_only(fields, scratch, place, heard));
        }
        let ahead = usize::from(fields.window == Window::OneTokenAhead);
        let plan = self.plan(fields, blocks, scratch.tokens.len() - ahead, place, heard)?;
        if !self.passed_over.is_empty()
            && let Some(parent) = fields.parent
            && self.passed_over.has(parent, place)
        {
            return Err(SkipReason::AfterSkipped);
        }
        let mut keys = ExtraKeys::of(fields, blocks).map_err(|_| SkipReason::BadFields)?;
        let adapter = self.adapter_of(fields);
        let mut stored = Stored {
            parent: fields.parent,
            blocks: Vec::with_capacity(plan.full * plan.parts as usize),
            tier: place.tier,
            group: place.group,
            adapter,
            salt: fields.salt.filter(|salt| !salt.is_empty()).map(CacheSalt::new),
        };
        let adapter = self.config.hasher.adapter(stored.adapter.as_ref());
        let size = self.config.block_size.get() as usize;
        let mut parent = fields.parent;
        let mut stopped = (plan.full < blocks).then_some(SkipReason::PartialBlock);
        let mut kept = plan.full;
        for (number, &label) in scratch.labels[..plan.full].iter().enumerate() {
            let begins = number == 0 && fields.parent.is_none();
            if let Some(keys) = &mut keys {
                match keys.next(begins, &mut scratch.media) {
                    Ok(None) => {}
                    Ok(salt) => stored.salt = salt,
                    Err(_) => return Err(SkipReason::BadFields),
                }
                if plan.parts > 1 && !scratch.media.is_empty() {
                    (stopped, kept) = (Some(SkipReason::MediaInSplitBlock), number);
                    break;
                }
            }
            for part in 0..plan.parts {
                let start = (number * plan.parts as usize + part as usize) * size;
                let content = self.config.hasher.content(
                    &scratch.tokens[start..start + size + ahead],
                    &Extras {
                        adapter,
                        salt: stored.salt.as_ref().filter(|_| begins && part == 0),
                        media: &scratch.media,
                    },
                );
                let label = part_label(label, part, plan.parts);
                self.recall.note(label, place.group, Known { parent, content });
                stored.blocks.push(StoredBlock { label, content });
                parent = Some(label);
            }
        }
        scratch.media.clear();
        if !stored.blocks.is_empty() {
            heard.changes.push(KvChange::Stored(stored));
        }
        Ok((kept, stopped))
    }

    /// How `tokens` tokens make `blocks` blocks, or why they do not.
    fn plan(
        &mut self,
        fields: &Fields<'_>,
        blocks: usize,
        tokens: usize,
        place: Place,
        heard: &mut Heard,
    ) -> Result<Plan, SkipReason> {
        let given = fields.block_size.and_then(|size| u32::try_from(size).ok());
        let given = given.filter(|&size| size > 0).ok_or(SkipReason::BadFields)?;
        let ours = self.config.block_size.get();
        let learned = self.groups.parts_at(place.tier, place.group).map(|parts| parts * ours);
        let (engine, full) = if blocks.checked_mul(given as usize) == Some(tokens) {
            (given, blocks)
        } else if self.config.dialect == Dialect::Sglang {
            if blocks == 1 && tokens < given as usize {
                return Err(SkipReason::PartialBlock);
            }
            short_tail(blocks, tokens, given, learned).ok_or(SkipReason::TokensDoNotFit)?
        } else {
            return Err(SkipReason::TokensDoNotFit);
        };
        // A single block that is smaller than those before it is not full. Several are: the engine has changed its mind.
        if blocks == 1 && learned.is_some_and(|learned| engine < learned) {
            return Err(SkipReason::PartialBlock);
        }
        if !engine.is_multiple_of(ours) || engine / ours > MAX_SPLIT {
            heard.refused = Some(BlockSizeRefusal {
                engine,
                router: self.config.block_size,
            });
            return Err(SkipReason::BlockSize);
        }
        let parts = engine / ours;
        self.groups.learn_parts(place.tier, place.group, parts);
        Ok(Plan { full, parts })
    }

    /// Blocks that are named without their tokens, as engines do when they copy blocks to another tier. Those whose
    /// content is remembered are taken, with the parents that they had.
    fn named_only(
        &mut self,
        fields: &Fields<'_>,
        scratch: &mut Scratch,
        place: Place,
        heard: &mut Heard,
    ) -> (usize, Option<SkipReason>) {
        let ours = self.config.block_size.get();
        let given = fields
            .block_size
            .and_then(|size| u32::try_from(size).ok())
            .filter(|&size| size > 0);
        let parts = match given {
            Some(size) if size.is_multiple_of(ours) && size / ours <= MAX_SPLIT => Some(size / ours),
            Some(_) => None,
            None => Some(self.groups.parts(place.tier, place.group).unwrap_or(1)),
        };
        let mut chain: Option<Stored> = None;
        let mut last = None;
        // Those that are taken come first in the list afterwards, because what follows them counts as skipped.
        let mut taken = 0;
        for number in 0..scratch.labels.len() {
            let label = scratch.labels[number];
            let Some(parts) = parts else { break };
            let Some(before) = self.recall_parts(label, parts, place, &mut scratch.recalled) else {
                continue;
            };
            self.groups.learn_parts(place.tier, place.group, parts);
            if before.0 != last {
                heard.changes.extend(chain.take().map(KvChange::Stored));
            }
            let chain = chain.get_or_insert_with(|| Stored {
                tier: place.tier,
                group: place.group,
                ..Stored::plain(before.0, Vec::new())
            });
            chain.blocks.extend_from_slice(&scratch.recalled);
            last = Some(label);
            scratch.labels.swap(taken, number);
            taken += 1;
        }
        heard.changes.extend(chain.map(KvChange::Stored));
        (taken, (taken < scratch.labels.len()).then_some(SkipReason::NoTokens))
    }

    /// Puts the parts of a block, from memory, into `blocks`; what comes before them is returned.
    fn recall_parts(
        &mut self,
        label: Label,
        parts: u32,
        place: Place,
        blocks: &mut Vec<StoredBlock>,
    ) -> Option<Before> {
        blocks.clear();
        let mut before = Before(None);
        for part in 0..parts {
            let label = part_label(label, part, parts);
            let known = self.recall.find(label, place.group)?;
            if part == 0 {
                before = Before(known.parent);
            }
            blocks.push(StoredBlock {
                label,
                content: known.content,
            });
        }
        Some(before)
    }

    /// The adapter of an event: by name, or by number where older engines tell no more.
    fn adapter_of(&mut self, fields: &Fields<'_>) -> Option<AdapterName> {
        let named = fields.lora_name.filter(|name| !name.is_empty());
        let numbered;
        let name = match (named, fields.lora_id) {
            (Some(name), _) => name,
            (None, Some(id)) => {
                numbered = format!("lora-{id}");
                &numbered
            }
            (None, None) => return None,
        };
        if self.adapter.as_ref().is_none_or(|known| known.as_str() != name) {
            self.adapter = Some(AdapterName::new(name));
        }
        self.adapter.clone()
    }
}

/// SGLang joins stores; the last page of them may be short, and the size given is that of a page or that of the short
/// one. The size of a page, and how many are full. A page that was not seen before is not guessed.
fn short_tail(blocks: usize, tokens: usize, given: u32, learned: Option<u32>) -> Option<(u32, usize)> {
    let full = blocks.checked_sub(1).filter(|&full| full > 0)?;
    let fits = |page: u32| full * (page as usize) < tokens && tokens < blocks * page as usize;
    if fits(given) {
        return Some((given, full));
    }
    let page = learned.filter(|&page| fits(page) && tokens - full * page as usize == given as usize)?;
    Some((page, full))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_last_page_is_found_by_either_size() {
        assert_eq!(short_tail(3, 37, 16, None), Some((16, 2)));
        assert_eq!(short_tail(3, 37, 5, Some(16)), Some((16, 2)));
        assert_eq!(short_tail(3, 37, 5, None), None);
        assert_eq!(short_tail(3, 36, 5, Some(16)), None);
        assert_eq!(short_tail(1, 5, 16, None), None);
        assert_eq!(short_tail(2, 64, 16, Some(32)), None);
        assert_eq!(short_tail(2, 3, 16, Some(16)), None);
    }
}
