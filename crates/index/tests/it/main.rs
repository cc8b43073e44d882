//! Integration tests of `homing-index`: one binary, one module for each subject.

#[cfg(not(any(shuttle, loom)))]
mod engines;
#[cfg(not(any(shuttle, loom)))]
mod fuzz_bytes;
#[cfg(not(any(shuttle, loom)))]
mod memory;
#[cfg(not(any(shuttle, loom)))]
mod oracle;
#[cfg(not(any(shuttle, loom)))]
mod parts;
#[cfg(shuttle)]
mod schedules;
#[cfg(not(any(shuttle, loom)))]
mod slots;
#[cfg(not(any(shuttle, loom)))]
mod threads;
