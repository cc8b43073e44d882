//! What can bytes do to us? The bodies of the fuzz targets, which tests on stable Rust run over random bytes too.
