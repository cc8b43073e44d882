//! How are the sums of a group computed with vectors? For x86-64; the same numbers as `group.rs`.
//!
//! One instruction multiplies the lower halves of 64-bit lanes: two with SSE2, which every such processor has, four with
//! AVX2. A lane holds two tokens, so the other factor is the lane shifted down. With AVX2 two groups are taken at a time,
//! because adding up within a register costs shuffles, and for two groups it costs little more than for one.
//!
//! Nothing here reads memory by itself: vectors are made from arrays, and the compiler makes one load of that.

/// Four tokens in a register.
pub(super) mod sse2 {
    use std::arch::x86_64::{
        __m128i, _mm_add_epi32, _mm_add_epi64, _mm_cvtsi128_si64, _mm_mul_epu32, _mm_set_epi64x, _mm_setr_epi32,
        _mm_srli_epi64, _mm_unpackhi_epi64, _mm_unpacklo_epi64,
    };

    use crate::key::group::{GROUP, GroupConstants, fold};

    /// The constants in registers.
    pub(in crate::key) struct Sums {
        added: [[__m128i; 4]; 2],
        white: __m128i,
    }

    impl Sums {
        #[target_feature(enable = "sse2")]
        #[inline]
        pub(in crate::key) fn new(constants: &GroupConstants) -> Self {
            let [a, b] = &constants.added;
            let [x, y] = constants.white.map(u64::cast_signed);
            Self {
                added: [all(a), all(b)],
                white: _mm_set_epi64x(y, x),
            }
        }

        #[target_feature(enable = "sse2")]
        #[inline]
        pub(in crate::key) fn group(&self, tokens: &[u32; GROUP]) -> u64 {
            let tokens = all(tokens);
            let (a, b) = (sum(&tokens, &self.added[0]), sum(&tokens, &self.added[1]));
            let both = _mm_add_epi64(_mm_unpacklo_epi64(a, b), _mm_unpackhi_epi64(a, b));
            let both = _mm_add_epi64(both, self.white);
            let lower = |vector| _mm_cvtsi128_si64(vector).cast_unsigned();
            fold(lower(both), lower(_mm_unpackhi_epi64(both, both)))
        }
    }

    /// The sum in two lanes, which are to be added.
    #[target_feature(enable = "sse2")]
    #[inline]
    fn sum(tokens: &[__m128i; 4], added: &[__m128i; 4]) -> __m128i {
        let part = |at: usize| {
            let keyed = _mm_add_epi32(tokens[at], added[at]);
            _mm_mul_epu32(keyed, _mm_srli_epi64::<32>(keyed))
        };
        _mm_add_epi64(_mm_add_epi64(part(0), part(1)), _mm_add_epi64(part(2), part(3)))
    }

    #[target_feature(enable = "sse2")]
    #[inline]
    fn all(tokens: &[u32; GROUP]) -> [__m128i; 4] {
        let four = |at: usize| {
            let token = |offset: usize| tokens[4 * at + offset].cast_signed();
            _mm_setr_epi32(token(0), token(1), token(2), token(3))
        };
        [four(0), four(1), four(2), four(3)]
    }
}

/// Eight tokens in a register.
pub(super) mod avx2 {
    use std::arch::x86_64::{
        __m256i, _mm_add_epi64, _mm_cvtsi128_si64, _mm_unpackhi_epi64, _mm256_add_epi32, _mm256_add_epi64,
        _mm256_castsi256_si128, _mm256_extract_epi64, _mm256_extracti128_si256, _mm256_mul_epu32,
        _mm256_permute2x128_si256, _mm256_setr_epi32, _mm256_setr_epi64x, _mm256_srli_epi64, _mm256_unpackhi_epi64,
        _mm256_unpacklo_epi64,
    };

    use crate::key::group::{GROUP, GroupConstants, fold};

    /// The constants in registers.
    pub(in crate::key) struct Sums {
        added: [[__m256i; 2]; 2],
        white: __m256i,
    }

    impl Sums {
        #[target_feature(enable = "avx2,bmi2")]
        #[inline]
        pub(in crate::key) fn new(constants: &GroupConstants) -> Self {
            let [a, b] = &constants.added;
            let [x, y] = constants.white.map(u64::cast_signed);
            Self {
                added: [all(a), all(b)],
                white: _mm256_setr_epi64x(x, y, x, y),
            }
        }

        #[target_feature(enable = "avx2,bmi2")]
        #[inline]
        pub(in crate::key) fn group(&self, tokens: &[u32; GROUP]) -> u64 {
            let sums = self.both(tokens);
            let white = _mm256_castsi256_si128(self.white);
            let upper = _mm_add_epi64(_mm256_extracti128_si256::<1>(sums), white);
            let sums = _mm_add_epi64(_mm256_castsi256_si128(sums), upper);
            let lower = |vector| _mm_cvtsi128_si64(vector).cast_unsigned();
            fold(lower(sums), lower(_mm_unpackhi_epi64(sums, sums)))
        }

        #[target_feature(enable = "avx2,bmi2")]
        #[inline]
        pub(in crate::key) fn two(&self, groups: &[[u32; GROUP]; 2]) -> [u64; 2] {
            let (first, second) = (self.both(&groups[0]), self.both(&groups[1]));
            let lower = _mm256_permute2x128_si256::<0x20>(first, second);
            let upper = _mm256_permute2x128_si256::<0x31>(first, second);
            let sums = _mm256_add_epi64(_mm256_add_epi64(lower, upper), self.white);
            let a = [_mm256_extract_epi64::<0>(sums), _mm256_extract_epi64::<2>(sums)];
            let b = [_mm256_extract_epi64::<1>(sums), _mm256_extract_epi64::<3>(sums)];
            [0, 1].map(|at| fold(a[at].cast_unsigned(), b[at].cast_unsigned()))
        }

        /// Both sums of a group, each in two lanes: those of the lower half are to be added to those of the upper.
        #[target_feature(enable = "avx2,bmi2")]
        #[inline]
        fn both(&self, tokens: &[u32; GROUP]) -> __m256i {
            let tokens = all(tokens);
            let (a, b) = (sum(tokens, self.added[0]), sum(tokens, self.added[1]));
            _mm256_add_epi64(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b))
        }
    }

    /// The sum in four lanes, which are to be added.
    #[target_feature(enable = "avx2,bmi2")]
    #[inline]
    fn sum(tokens: [__m256i; 2], added: [__m256i; 2]) -> __m256i {
        let part = |at: usize| {
            let keyed = _mm256_add_epi32(tokens[at], added[at]);
            _mm256_mul_epu32(keyed, _mm256_srli_epi64::<32>(keyed))
        };
        _mm256_add_epi64(part(0), part(1))
    }

    #[target_feature(enable = "avx2,bmi2")]
    #[inline]
    fn all(tokens: &[u32; GROUP]) -> [__m256i; 2] {
        let eight = |at: usize| {
            let token = |offset: usize| tokens[8 * at + offset].cast_signed();
            _mm256_setr_epi32(
                token(0),
                token(1),
                token(2),
                token(3),
                token(4),
                token(5),
                token(6),
                token(7),
            )
        };
        [eight(0), eight(1)]
    }
}
