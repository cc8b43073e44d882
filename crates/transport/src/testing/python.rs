//! Which Python has the packages that tests need?

use std::process::Command;

/// Names the interpreter of the virtual environment that `./test` makes from `scripts/test-requirements.txt`.
pub const PYTHON_VARIABLE: &str = "HOMING_TEST_PYTHON";

/// A command that starts the tests' Python.
///
/// # Panics
///
/// When there is none: a test that needs it must not pass without.
pub fn python() -> Command {
    let interpreter = std::env::var_os(PYTHON_VARIABLE).unwrap_or_else(|| {
        panic!(
            "{PYTHON_VARIABLE} is not set: this test needs Python with the packages of scripts/test-requirements.txt. \
             Run ./test, which installs them and sets it; arguments go to cargo, as in ./test -p homing-transport"
        )
    });
    Command::new(interpreter)
}
