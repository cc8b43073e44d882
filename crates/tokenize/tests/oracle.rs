//! Are our tokens those of `transformers`? For real tokenizers, with and without the cache.
