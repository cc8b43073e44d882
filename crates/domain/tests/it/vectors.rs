//! Are keys what they were published to be? Every line of `vectors.txt` is checked; `docs/block-keys.md` explains them.
//!
//! The values come from a second implementation, `scripts/block_keys.py`, which was written from that document and shares
//! no code with this crate: run it with the file and `--check` to compare, with `--write` to fill in lines that were added.
//! A key that changes breaks every deployment that updates one part before another: such a change needs an ADR and a new
//! document, not a new file.

use std::collections::BTreeMap;

use homing_domain::{
    AdapterName, BlockKey, BlockSize, CacheSalt, HashSeed, KeyHasher, Label, Media, MediaId, Prompt, Tokens, Window,
};

const VECTORS: &str = include_str!("../vectors.txt");

struct Line<'a> {
    text: &'a str,
    fields: BTreeMap<&'a str, &'a str>,
}

impl<'a> Line<'a> {
    fn of(text: &'a str) -> Self {
        let fields = text.split(' ').skip(1).map(|field| field.split_once('=').expect(text));
        Self {
            text,
            fields: fields.collect(),
        }
    }

    fn get(&self, name: &str) -> &'a str {
        self.fields
            .get(name)
            .unwrap_or_else(|| panic!("no `{name}` in: {}", self.text))
    }

    /// `-` is nothing.
    fn list(&self, name: &str) -> Vec<&'a str> {
        match self.get(name) {
            "-" => Vec::new(),
            list => list.split(',').collect(),
        }
    }

    fn name(&self, name: &str) -> Option<&'a str> {
        Some(self.get(name)).filter(|&text| text != "-")
    }

    fn hex(&self, name: &str) -> Vec<u64> {
        let parse = |text| u64::from_str_radix(text, 16).expect(self.text);
        self.list(name).into_iter().map(parse).collect()
    }

    fn hasher(&self) -> KeyHasher {
        let seed = u128::from_str_radix(self.get("seed"), 16).expect(self.text);
        KeyHasher::new(HashSeed::new(seed))
    }

    fn tokens(&self) -> Vec<u32> {
        let number = |text: &str| text.parse::<u32>().expect(self.text);
        let mut tokens = Vec::new();
        for part in self.list("tokens") {
            if let Some((from, to)) = part.split_once("..") {
                tokens.extend(number(from)..number(to));
            } else if let Some((token, times)) = part.split_once('x') {
                tokens.extend(std::iter::repeat_n(number(token), number(times) as usize));
            } else {
                tokens.push(number(part));
            }
        }
        tokens
    }

    fn media(&self) -> Vec<Media> {
        let parse = |text: &str| {
            let (id, place) = text.split_once('@')?;
            let (start, length) = place.split_once('+')?;
            Some(Media {
                id: MediaId::new(id),
                start: Tokens(start.parse().ok()?),
                length: Tokens(length.parse().ok()?),
            })
        };
        self.list("media")
            .into_iter()
            .map(|text| parse(text).expect(self.text))
            .collect()
    }
}

fn lines(kind: &str) -> Vec<Line<'static>> {
    VECTORS
        .lines()
        .filter(|line| line.split(' ').next() == Some(kind))
        .map(Line::of)
        .collect()
}

#[test]
fn every_line_is_of_a_known_kind() {
    let known = lines("seed").len() + lines("bytes").len() + lines("prompt").len();
    let written = VECTORS
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    assert_eq!(written.count(), known);
    assert!(lines("prompt").len() >= 20);
}

#[test]
fn seeds() {
    for line in lines("seed") {
        let hasher = line.hasher();
        assert_eq!(vec![hasher.root().0], line.hex("root"), "{}", line.text);
        assert_eq!(vec![hasher.seed_id()], line.hex("id"), "{}", line.text);
    }
}

#[test]
fn hashes_of_bytes() {
    for line in lines("bytes") {
        let text = line.name("text").unwrap_or_default();
        let label = Label::from_bytes(text.as_bytes());
        assert_eq!(vec![label.get()], line.hex("hash"), "{}", line.text);
    }
}

#[test]
fn keys_of_prompts() {
    for line in lines("prompt") {
        let hasher = line.hasher();
        let adapter = line.name("adapter").map(AdapterName::new);
        let salt = line.name("salt").map(CacheSalt::new);
        let (tokens, media) = (line.tokens(), line.media());
        let mut keys = Vec::new();
        hasher.keys(
            &Prompt {
                tokens: &tokens,
                block_size: BlockSize::new(line.get("block").parse().expect(line.text)).expect(line.text),
                window: match line.get("window") {
                    "plain" => Window::Plain,
                    "ahead" => Window::OneTokenAhead,
                    other => panic!("window {other} in: {}", line.text),
                },
                adapter: adapter.as_ref(),
                salt: salt.as_ref(),
                media: &media,
            },
            &mut keys,
        );
        let numbers: Vec<u64> = keys.iter().map(|key| key.0).collect();
        assert_eq!(numbers, line.hex("keys"), "{}", line.text);
        check_contents(&hasher, &keys, &line);
    }
}

fn check_contents(hasher: &KeyHasher, keys: &[BlockKey], line: &Line<'_>) {
    let parents = std::iter::once(hasher.root()).chain(keys.iter().copied());
    let contents: Vec<u64> = parents
        .zip(keys)
        .map(|(parent, &key)| hasher.content_of(parent, key).0)
        .collect();
    assert_eq!(contents, line.hex("contents"), "{}", line.text);
}
