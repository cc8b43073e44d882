//! Where does chance come from? From one number that the caller drew. Whoever only asks passes the next number without taking
//! it, and the chance of those who come after stays the same.

/// All the chance that one decision may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draw(pub u64);

impl Draw {
    /// A number that belongs to this draw and to `of`, spread over all 64 bits.
    #[inline]
    pub const fn number(self, of: u64) -> u64 {
        mix(self.0 ^ mix(of.wrapping_add(0x9e37_79b9_7f4a_7c15)))
    }

    /// A number from 0 to below 1 that belongs to this draw and to `of`.
    pub fn share(self, of: u64) -> f64 {
        (self.number(of) >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Spreads a number over all 64 bits; different numbers stay different.
#[inline]
pub(crate) const fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}
