//! Is there a sequence of operations after which the index and its oracle disagree, or the index panics?
#![no_main]

use arbitrary::{Arbitrary, Result, Unstructured};
use homing_index::testing::{Pair, Script};
use libfuzzer_sys::fuzz_target;

/// A script, spelt by bytes the same way as in the tests on stable Rust.
#[derive(Debug)]
struct Spelt(Script);

impl<'a> Arbitrary<'a> for Spelt {
    fn arbitrary(bytes: &mut Unstructured<'a>) -> Result<Self> {
        let count = bytes.len();
        Ok(Self(Script::from_bytes(bytes.bytes(count)?)))
    }

    fn arbitrary_take_rest(bytes: Unstructured<'a>) -> Result<Self> {
        Ok(Self(Script::from_bytes(bytes.take_rest())))
    }
}

fuzz_target!(|spelt: Spelt| {
    if let Err(mismatch) = Pair::run(&spelt.0, None) {
        panic!("after {} steps, {}", mismatch.after, mismatch.what);
    }
});
