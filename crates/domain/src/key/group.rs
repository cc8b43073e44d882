//! How do sixteen tokens become one number?
//!
//! By two sums of eight products each. Every token has a constant of its own in each sum, which is added to it; two
//! neighbours are then multiplied, 32 by 32 bits, and the products are added. The two sums are multiplied with each other,
//! and the halves of that product folded together.
//!
//! Such a sum is the universal hash NH: two groups that differ have the same sum for at most one in 2^32 choices of the
//! constants, and the same two sums for at most one in 2^64. [ADR 2](../../../../docs/adr/0002-block-keys.md) says what
//! follows from that and what does not.
//!
//! Processors multiply four or more such pairs at a time, which is why the sums are what they are: see `vector.rs`. This
//! file says what they must come to, for every machine.

/// Tokens that are hashed together.
pub(super) const GROUP: usize = 16;

/// The constants of a group.
#[derive(Clone, Copy, Debug)]
pub(super) struct GroupConstants {
    /// What is added to the tokens, for each of the two sums.
    pub(super) added: [[u32; GROUP]; 2],
    /// What is added to each sum before the two are multiplied.
    pub(super) white: [u64; 2],
}

impl GroupConstants {
    /// The number of a group, in plain code.
    #[inline]
    pub(super) fn plain(&self, tokens: &[u32; GROUP]) -> u64 {
        let [a, b] = [0, 1].map(|sum| {
            let mut total = self.white[sum];
            for pair in 0..GROUP / 2 {
                let [x, y] = [2 * pair, 2 * pair + 1].map(|at| tokens[at].wrapping_add(self.added[sum][at]));
                total = total.wrapping_add(u64::from(x) * u64::from(y));
            }
            total
        });
        fold(a, b)
    }
}

/// Both halves of a 128-bit product, folded together.
#[inline]
pub(super) fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product as u64) ^ ((product >> 64) as u64)
}
