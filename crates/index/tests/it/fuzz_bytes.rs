//! Does the index answer as the oracle does for whatever bytes spell? What the fuzz target in `fuzz/` searches with
//! feedback, a few thousand random byte strings try here, on any toolchain.

#[path = "../../../../fuzz/corpus.rs"]
mod corpus;

use homing_index::testing::{Pair, Script};
use proptest::prelude::*;
use proptest::test_runner::Config;

proptest! {
    #![proptest_config(Config { cases: 2000, max_shrink_iters: 20_000, ..Config::default() })]

    #[test]
    fn every_byte_string_spells_a_script_that_holds(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let script = Script::from_bytes(&bytes);
        if let Err(mismatch) = Pair::run(&script, None) {
            return Err(TestCaseError::fail(format!("after {} steps, {}: {script:?}", mismatch.after, mismatch.what)));
        }
    }
}

#[test]
fn no_script_of_the_corpus_shows_a_difference() {
    corpus::replay("index_steps", |bytes| {
        let script = Script::from_bytes(bytes);
        if let Err(mismatch) = Pair::run(&script, None) {
            panic!("after {} steps, {}: {script:?}", mismatch.after, mismatch.what);
        }
    });
}
