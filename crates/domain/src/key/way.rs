//! Which instructions are used? The best that the processor has; keys are the same with all of them.
//!
//! This is the one file of the crate with `unsafe` code. A function compiled for instructions that not every processor has
//! may be called only where they are, and the compiler cannot know where that is.
//!
//! **Invariant:** a [`Way`] is made by [`Way::best`] or [`Way::all`] only, which ask the processor.

use super::blocks::{BlockConstants, Run};
#[cfg(target_arch = "x86_64")]
use super::vector::{avx2, sse2};

/// A way to compute the numbers of groups.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way(Instructions);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Instructions {
    #[cfg_attr(
        all(target_arch = "x86_64", not(test)),
        expect(dead_code, reason = "for other machines")
    )]
    Plain,
    #[cfg(target_arch = "x86_64")]
    Sse2,
    #[cfg(target_arch = "x86_64")]
    Avx2,
}

impl Way {
    /// The fastest here. The answer of the processor is kept by the standard library.
    pub(super) fn best() -> Self {
        #[cfg(target_arch = "x86_64")]
        let best = if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("bmi2") {
            Instructions::Avx2
        } else {
            Instructions::Sse2
        };
        #[cfg(not(target_arch = "x86_64"))]
        let best = Instructions::Plain;
        Self(best)
    }

    /// Each that can be used here.
    #[cfg(test)]
    pub(super) fn all() -> Vec<Self> {
        let mut all = vec![Self(Instructions::Plain)];
        #[cfg(target_arch = "x86_64")]
        all.push(Self(Instructions::Sse2));
        if !all.iter().any(|way| way.0 == Self::best().0) {
            all.push(Self::best());
        }
        all
    }

    /// What a list of any length adds to `state`; see [`BlockConstants::chained`].
    #[inline]
    #[cfg_attr(
        target_arch = "x86_64",
        expect(unsafe_code, reason = "by the invariant above the processor has the instructions")
    )]
    pub(super) fn chained(self, constants: &BlockConstants, state: u64, list: &[u32]) -> u64 {
        match self.0 {
            Instructions::Plain => plain_chained(constants, state, list),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: every x86-64 has them.
            Instructions::Sse2 => unsafe { sse2_chained(constants, state, list) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: by the invariant above.
            Instructions::Avx2 => unsafe { avx2_chained(constants, state, list) },
        }
    }

    /// The keys of a run of blocks; see [`BlockConstants::chain`].
    #[inline]
    #[cfg_attr(
        target_arch = "x86_64",
        expect(unsafe_code, reason = "by the invariant above the processor has the instructions")
    )]
    pub(super) fn chain<const PAIRS: usize, const KEYS: usize>(
        self,
        constants: &BlockConstants,
        run: Run<'_>,
        soon: impl Fn(&u32),
    ) {
        match self.0 {
            Instructions::Plain => plain_chain::<PAIRS, KEYS>(constants, run, soon),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: every x86-64 has them.
            Instructions::Sse2 => unsafe { sse2_chain::<PAIRS, KEYS>(constants, run, soon) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: by the invariant above.
            Instructions::Avx2 => unsafe { avx2_chain::<PAIRS, KEYS>(constants, run, soon) },
        }
    }
}

fn plain_chained(constants: &BlockConstants, state: u64, list: &[u32]) -> u64 {
    constants.chained(state, list, |group| constants.group.plain(group))
}

#[inline(never)]
fn plain_chain<const PAIRS: usize, const KEYS: usize>(constants: &BlockConstants, run: Run<'_>, soon: impl Fn(&u32)) {
    constants.chain::<PAIRS, KEYS>(run, soon, |[a, b]| [constants.group.plain(a), constants.group.plain(b)]);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse2")]
fn sse2_chained(constants: &BlockConstants, state: u64, list: &[u32]) -> u64 {
    let sums = sse2::Sums::new(&constants.group);
    constants.chained(state, list, |group| sums.group(group))
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse2")]
#[inline(never)]
fn sse2_chain<const PAIRS: usize, const KEYS: usize>(constants: &BlockConstants, run: Run<'_>, soon: impl Fn(&u32)) {
    let sums = sse2::Sums::new(&constants.group);
    constants.chain::<PAIRS, KEYS>(run, soon, |[a, b]| [sums.group(a), sums.group(b)]);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi2")]
fn avx2_chained(constants: &BlockConstants, state: u64, list: &[u32]) -> u64 {
    let sums = avx2::Sums::new(&constants.group);
    constants.chained(state, list, |group| sums.group(group))
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi2")]
#[inline(never)]
fn avx2_chain<const PAIRS: usize, const KEYS: usize>(constants: &BlockConstants, run: Run<'_>, soon: impl Fn(&u32)) {
    let sums = avx2::Sums::new(&constants.group);
    constants.chain::<PAIRS, KEYS>(run, soon, |pair| sums.two(pair));
}
