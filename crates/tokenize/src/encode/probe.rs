//! Does a faster way give the same tokens? Asked when a tokenizer is read, on texts in which it would differ.

use super::Encoder;
use crate::tokenizer::Marks;

/// Texts in which ways of encoding differ: spaces, breaks, apostrophes, digits, scripts, marks that combine, parts of tokens.
const HARD: [&str; 26] = [
    "",
    " ",
    "  ",
    "\n",
    " \n\n  \t x",
    "Hello, world!",
    " leading",
    "trailing ",
    "a  b   c    d",
    "x\r\n\r\ny\u{a0}\u{3000}z\u{2028}",
    "it's I'LL we'Re 'tis don''t",
    "1 12 123 1234 12345 3.14 1,000 0x7F",
    "naïve e\u{301}a\u{308} \u{1e9b}\u{323} ﬁ Å \u{212b}",
    "你好，世界。今天 天气 カタカナ 한국어",
    "مرحبا עברית ไทย हिन्दी",
    "👩‍👩‍👧‍👦🇩🇪 👍🏽 \u{200b}\u{feff}\u{200d}",
    "!?.,;:--- *** ___ $$$ «»…",
    "fn main() {\n    let x = [1, 2];\n\t// done\n}\n",
    "{\"a\": [1, null], \"b\": \"c\\n\"}",
    "<b>bold</b><br/> <| | > <|im_ [INST ]",
    "▁▁ ▁a a▁b <0x0A> Ġ Ċ",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "\u{0}\u{1}\u{7f}\u{85}\u{ad}\u{1c}",
    "MixedCASE camelCase snake_case SCREAMING kebab-case ǅ ß",
    "https://example.org/a?b=c&d=%20#e user@host",
    "\\n \\\\ \" ' ` ~ ^",
];
/// How many added tokens are tried with each text.
const TOKENS: usize = 12;

/// Whether the encoder gives the tokens of its tokenizer, twice: as if new, and as known.
pub(super) fn equal(encoder: &Encoder) -> bool {
    let texts = texts(encoder);
    (0..2).all(|_| texts.iter().all(|text| same(encoder, text)))
}

fn same(encoder: &Encoder, text: &str) -> bool {
    [Marks::None, Marks::Added].into_iter().all(|marks| {
        let (ours, theirs) = (encoder.encode(text, marks), encoder.tokenizer.encode(text, marks));
        matches!((ours, theirs), (Ok(ours), Ok(theirs)) if ours == theirs)
    })
}

fn texts(encoder: &Encoder) -> Vec<String> {
    let mut names: Vec<(u32, String)> = encoder
        .tokenizer
        .inner()
        .get_added_tokens_decoder()
        .into_iter()
        .map(|(id, token)| (id, token.content))
        .collect();
    names.sort_unstable();
    let step = names.len().div_ceil(TOKENS).max(1);
    let names: Vec<String> = names.into_iter().step_by(step).map(|(_, name)| name).collect();
    let mut texts: Vec<String> = HARD.iter().map(|text| (*text).to_owned()).collect();
    texts.push(HARD.join("\n"));
    texts.push(HARD.join(" "));
    for (index, text) in HARD.iter().enumerate() {
        let Some(name) = names.get(index % names.len().max(1)) else {
            continue;
        };
        let other = &names[(index * 7 + 1) % names.len()];
        texts.push(format!("{name}{text}{other}"));
        texts.push(format!("{text}{name} {text}\n{other} {text}"));
        texts.push(format!("{text} {name}{other}{name}  {text}"));
    }
    texts
}
