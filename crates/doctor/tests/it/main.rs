//! Is each defect of an engine named? Mock engines that have it, over real sockets.

#![expect(clippy::unwrap_used, reason = "a test may fail anywhere, helpers included")]

mod clinic;
mod defects;
mod folder;
