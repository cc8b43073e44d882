//! Does a block in this cache group mean a usable prefix, and how large are its blocks?
//!
//! Engines with hybrid models keep a cache per kind of layer. Only groups that keep everything say that a prefix is
//! usable. Stores say of which kind their group is, removals mostly do not: so it is learned.

use homing_domain::{CacheGroup, Tier};

use crate::skipped::SkipReason;

/// Groups that a [`CacheGroup`] can name.
const GROUPS: usize = 256;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Kind {
    #[default]
    Unlearned,
    Usable,
    Unusable,
    Unknown,
}

impl Kind {
    fn of(name: &str) -> Self {
        const USABLE: [&str; 3] = ["full_attention", "mla_attention", "sink_full_attention"];
        const UNUSABLE: [&str; 6] = [
            "sliding_window",
            "sliding_window_mla",
            "mamba",
            "chunked_local_attention",
            "encoder_only_attention",
            "cross_attention",
        ];
        let is = |word: &&str| name.eq_ignore_ascii_case(word);
        if USABLE.iter().any(is) {
            Self::Usable
        } else if UNUSABLE.iter().any(is) {
            Self::Unusable
        } else {
            Self::Unknown
        }
    }
}

/// What is known of the groups of one rank.
#[derive(Debug)]
pub(super) struct Groups {
    kinds: [Kind; GROUPS],
    /// Blocks of ours in one of the engine, by tier and group; 0 where none was seen.
    parts: [[u8; GROUPS]; Tier::COUNT],
}

impl Default for Groups {
    fn default() -> Self {
        Self {
            kinds: [Kind::default(); GROUPS],
            parts: [[0; GROUPS]; Tier::COUNT],
        }
    }
}

impl Groups {
    /// Which group an event is of, and that it counts. A kind that it names is learned.
    pub(super) fn admit(&mut self, group: Option<u64>, kind: Option<&str>) -> Result<CacheGroup, SkipReason> {
        let number = u8::try_from(group.unwrap_or(0)).map_err(|_| SkipReason::BadFields)?;
        let known = &mut self.kinds[usize::from(number)];
        if let Some(name) = kind {
            *known = Kind::of(name);
        }
        match *known {
            Kind::Usable => Ok(CacheGroup(number)),
            // Engines that name no kinds have one group that counts, and it is the first.
            Kind::Unlearned if number == 0 => Ok(CacheGroup(number)),
            Kind::Unlearned => Err(SkipReason::UnlearnedGroup),
            Kind::Unusable => Err(SkipReason::UnusableGroup),
            Kind::Unknown => Err(SkipReason::UnknownGroupKind),
        }
    }

    /// Remembers into how many of ours a block is split.
    pub(super) fn learn_parts(&mut self, tier: Tier, group: CacheGroup, parts: u32) {
        self.parts[tier.index()][usize::from(group.0)] = u8::try_from(parts).unwrap_or(u8::MAX);
    }

    /// Into how many of ours a block of this group is split, if one was seen on this tier.
    pub(super) fn parts_at(&self, tier: Tier, group: CacheGroup) -> Option<u32> {
        let parts = self.parts[tier.index()][usize::from(group.0)];
        (parts > 0).then_some(u32::from(parts))
    }

    /// The same, or failing that, what was seen on another tier.
    pub(super) fn parts(&self, tier: Tier, group: CacheGroup) -> Option<u32> {
        let elsewhere = || {
            Tier::ALL
                .into_iter()
                .filter_map(|tier| self.parts_at(tier, group))
                .max()
        };
        self.parts_at(tier, group).or_else(elsewhere)
    }
}

/// Where a medium is; `None` for a name that nobody uses.
pub(super) fn tier_of(medium: Option<&str>) -> Option<Tier> {
    const NAMES: [(&str, Tier); 14] = [
        ("", Tier::Device),
        ("gpu", Tier::Device),
        ("device", Tier::Device),
        ("cpu", Tier::Host),
        ("cpu_pinned", Tier::Host),
        ("cpu_tier1", Tier::Host),
        ("cpu_tier2", Tier::Disk),
        ("disk", Tier::Disk),
        ("nvme", Tier::Disk),
        ("storage", Tier::Disk),
        ("external", Tier::External),
        ("network", Tier::External),
        ("remote", Tier::External),
        ("shared", Tier::External),
    ];
    let medium = match medium {
        // What nearly all say.
        None | Some("GPU") => return Some(Tier::Device),
        Some(medium) => medium,
    };
    let found = NAMES.iter().find(|(name, _)| medium.eq_ignore_ascii_case(name));
    found.map(|&(_, tier)| tier)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_learned_from_who_names_them() {
        let mut groups = Groups::default();
        assert_eq!(groups.admit(None, None), Ok(CacheGroup(0)));
        assert_eq!(groups.admit(Some(1), None), Err(SkipReason::UnlearnedGroup));
        assert_eq!(groups.admit(Some(1), Some("mla_attention")), Ok(CacheGroup(1)));
        assert_eq!(groups.admit(Some(1), None), Ok(CacheGroup(1)));
        assert_eq!(groups.admit(Some(0), Some("mamba")), Err(SkipReason::UnusableGroup));
        assert_eq!(groups.admit(None, None), Err(SkipReason::UnusableGroup));
        assert_eq!(groups.admit(Some(2), Some("hyena")), Err(SkipReason::UnknownGroupKind));
        assert_eq!(groups.admit(Some(256), None), Err(SkipReason::BadFields));
    }

    #[test]
    fn parts_are_those_of_the_tier_or_of_another() {
        let mut groups = Groups::default();
        let group = CacheGroup(0);
        assert_eq!(groups.parts(Tier::Host, group), None);
        groups.learn_parts(Tier::Device, group, 2);
        assert_eq!(groups.parts(Tier::Host, group), Some(2));
        assert_eq!(groups.parts_at(Tier::Host, group), None);
        groups.learn_parts(Tier::Host, group, 8);
        assert_eq!(groups.parts(Tier::Host, group), Some(8));
        assert_eq!(groups.parts(Tier::Device, group), Some(2));
    }

    #[test]
    fn media_are_known_in_any_case() {
        assert_eq!(tier_of(None), Some(Tier::Device));
        assert_eq!(tier_of(Some("Gpu")), Some(Tier::Device));
        assert_eq!(tier_of(Some("CPU_PINNED")), Some(Tier::Host));
        assert_eq!(tier_of(Some("STORAGE")), Some(Tier::Disk));
        assert_eq!(tier_of(Some("EXTERNAL")), Some(Tier::External));
        assert_eq!(tier_of(Some("tape")), None);
    }
}
