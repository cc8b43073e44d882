//! Would tests notice a mistake? Crates that can make one on purpose ask [`planted!`](crate::planted) where they would make it.

/// Whether a mistake is switched on: `planted!(self.bug, Name)` for `Name` of the calling crate's own `Bug`. In production, which is without
/// that crate's feature `testing`, it is the constant `false`, and nothing that is named there needs to exist.
#[macro_export]
#[expect(
    clippy::crate_in_macro_def,
    reason = "mistakes are those of the crate that makes them, and so is the feature"
)]
macro_rules! planted {
    ($bug:expr, $name:ident) => {{
        #[cfg(any(test, feature = "testing"))]
        let planted = $bug == Some(crate::Bug::$name);
        #[cfg(not(any(test, feature = "testing")))]
        let planted = false;
        planted
    }};
}
