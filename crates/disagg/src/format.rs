//! Who understands whose KV, and by which protocol?
//!
//! What is not known agrees with everything, unless it is required to be known: engines say different amounts of themselves, and a
//! pair that does not fit fails before any harm is done.

use std::fmt;
use std::sync::Arc;

use homing_domain::BlockSize;
use homing_profile::GigabytesPerSecond;

use crate::meeting::Endpoint;

/// What KV looks like. What is none is not known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct KvFormat {
    /// The model, as engines call it.
    pub model: Option<Arc<str>>,
    /// The type of a number, as in `auto` or `fp8_e4m3`.
    pub kv_type: Option<Arc<str>>,
    /// Tokens in a block.
    pub block_size: Option<BlockSize>,
    /// The order in a block, as in `HND`.
    pub layout: Option<Arc<str>>,
    /// What moves it, as in `NixlConnector`, with its version if that matters.
    pub connector: Option<Arc<str>>,
}

/// Whether what is not known agrees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Agreement {
    /// It does.
    #[default]
    Presumed,
    /// It does not: both sides must say it.
    Shown,
}

/// In what two workers differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mismatch {
    /// The way to hand over.
    Protocol,
    /// The model.
    Model,
    /// The type of numbers.
    KvType,
    /// The size of blocks.
    BlockSize,
    /// The order in blocks.
    Layout,
    /// What moves it.
    Connector,
}

impl Mismatch {
    /// As people read it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Protocol => "protocol",
            Self::Model => "model",
            Self::KvType => "KV type",
            Self::BlockSize => "block size",
            Self::Layout => "layout",
            Self::Connector => "connector",
        }
    }
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl KvFormat {
    /// Whether a worker of one format can read what one of the other wrote; if not, the first difference.
    pub fn agrees(&self, other: &Self, agreement: Agreement) -> Result<(), Mismatch> {
        let checks = [
            (same(self.model.as_ref(), other.model.as_ref()), Mismatch::Model),
            (same(self.kv_type.as_ref(), other.kv_type.as_ref()), Mismatch::KvType),
            (
                same(self.block_size.as_ref(), other.block_size.as_ref()),
                Mismatch::BlockSize,
            ),
            (same(self.layout.as_ref(), other.layout.as_ref()), Mismatch::Layout),
            (
                same(self.connector.as_ref(), other.connector.as_ref()),
                Mismatch::Connector,
            ),
        ];
        for (same, mismatch) in checks {
            if !same.unwrap_or(agreement == Agreement::Presumed) {
                return Err(mismatch);
            }
        }
        Ok(())
    }
}

/// Whether two are the same; none if one of them is not known.
fn same<T: PartialEq>(one: Option<&T>, other: Option<&T>) -> Option<bool> {
    Some(one? == other?)
}

/// The way in which KV is handed over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// By the result of the prefill leg (vLLM).
    #[default]
    ByResult,
    /// In a meeting of both legs (SGLang).
    Rendezvous,
}

/// What a decode worker reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Reads {
    /// Only blocks that it does not hold: vLLM's NIXL connector; SGLang with the decode radix cache on.
    Missing,
    /// All of them.
    #[default]
    All,
}

/// Whether a worker that decodes can also serve a whole request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Serves {
    /// It can: vLLM's decode workers compute prompts that come without KV.
    #[default]
    Whole,
    /// It cannot: SGLang's decode workers wait for a meeting.
    Part,
}

/// What matters of a rank when KV is handed over.
#[derive(Clone, Debug, PartialEq)]
pub struct Traits {
    /// By which way.
    pub protocol: Protocol,
    /// Where it can be met, if that is known. A prefill worker without it hands over by result.
    pub endpoint: Option<Endpoint>,
    /// What its KV looks like.
    pub format: KvFormat,
    /// What it reads.
    pub reads: Reads,
    /// Whether it serves whole requests, if it decodes.
    pub serves: Serves,
    /// How fast KV reaches or leaves it; 0 if that is not known, and then it counts for nothing.
    pub rate: GigabytesPerSecond,
}

impl Traits {
    /// Of a worker that hands over by result and of which nothing else is known: vLLM with its NIXL connector.
    pub fn by_result() -> Self {
        Self {
            protocol: Protocol::ByResult,
            endpoint: None,
            format: KvFormat::default(),
            reads: Reads::Missing,
            serves: Serves::Whole,
            rate: GigabytesPerSecond(0.0),
        }
    }

    /// Of a worker that meets others: SGLang.
    pub fn rendezvous(endpoint: Option<Endpoint>) -> Self {
        Self {
            protocol: Protocol::Rendezvous,
            endpoint,
            format: KvFormat::default(),
            reads: Reads::All,
            serves: Serves::Part,
            rate: GigabytesPerSecond(0.0),
        }
    }

    /// Whether this prefill worker can hand over to that decode worker; if not, the first difference.
    pub fn fits(&self, decode: &Self, agreement: Agreement) -> Result<(), Mismatch> {
        // Most workers are alike, and what they are like is kept once.
        if agreement == Agreement::Presumed && std::ptr::eq(self, decode) {
            return Ok(());
        }
        if self.protocol != decode.protocol {
            return Err(Mismatch::Protocol);
        }
        self.format.agrees(&decode.format, agreement)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn format() -> KvFormat {
        KvFormat {
            model: Some("m".into()),
            kv_type: Some("fp8".into()),
            block_size: BlockSize::new(16),
            layout: Some("HND".into()),
            connector: Some("NixlConnector".into()),
        }
    }

    #[test]
    fn each_difference_is_named() {
        let other = |change: fn(&mut KvFormat)| {
            let mut other = format();
            change(&mut other);
            [
                format().agrees(&other, Agreement::Shown),
                other.agrees(&format(), Agreement::Presumed),
            ]
        };
        for (change, mismatch) in [
            ((|of| of.model = Some("n".into())) as fn(&mut KvFormat), Mismatch::Model),
            (|of| of.kv_type = Some("auto".into()), Mismatch::KvType),
            (|of| of.block_size = BlockSize::new(32), Mismatch::BlockSize),
            (|of| of.layout = Some("NHD".into()), Mismatch::Layout),
            (
                |of| of.connector = Some("MooncakeConnector".into()),
                Mismatch::Connector,
            ),
        ] {
            assert_eq!(other(change), [Err(mismatch); 2]);
        }
        assert_eq!(other(|_| ()), [Ok(()); 2]);
    }

    #[test]
    fn what_is_not_known_agrees_unless_it_has_to_be_shown() {
        let mut unknown = format();
        unknown.layout = None;
        assert_eq!(format().agrees(&unknown, Agreement::Presumed), Ok(()));
        assert_eq!(format().agrees(&unknown, Agreement::Shown), Err(Mismatch::Layout));
        assert_eq!(
            unknown.agrees(&unknown, Agreement::Shown),
            Err(Mismatch::Layout),
            "both sides must say it"
        );
    }

    #[test]
    fn those_who_hand_over_differently_do_not_fit() {
        let (vllm, sglang) = (Traits::by_result(), Traits::rendezvous(None));
        assert_eq!(vllm.fits(&sglang, Agreement::Presumed), Err(Mismatch::Protocol));
        assert_eq!(sglang.fits(&sglang, Agreement::Presumed), Ok(()));
    }
}
