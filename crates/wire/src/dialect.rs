//! Which engine speaks?

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// How an engine writes what it says about its cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// vLLM: MessagePack over ZMQ.
    Vllm,
    /// SGLang: MessagePack over ZMQ.
    Sglang,
    /// TensorRT-LLM: JSON over HTTP.
    TrtLlm,
}

/// A dialect that nobody here speaks.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{0}` is no dialect; there are vllm, sglang and trtllm")]
pub struct UnknownDialect(pub String);

impl Dialect {
    /// All dialects.
    pub const ALL: [Self; 3] = [Self::Vllm, Self::Sglang, Self::TrtLlm];

    /// Its name in settings and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Vllm => "vllm",
            Self::Sglang => "sglang",
            Self::TrtLlm => "trtllm",
        }
    }
}

impl fmt::Display for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Dialect {
    type Err = UnknownDialect;

    /// Takes the names in any case, and `tensorrt-llm` for the last.
    fn from_str(name: &str) -> Result<Self, UnknownDialect> {
        match name.to_ascii_lowercase().as_str() {
            "vllm" => Ok(Self::Vllm),
            "sglang" => Ok(Self::Sglang),
            "trtllm" | "trt-llm" | "tensorrt-llm" => Ok(Self::TrtLlm),
            _ => Err(UnknownDialect(name.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for dialect in Dialect::ALL {
            assert_eq!(dialect.to_string().parse(), Ok(dialect));
        }
        assert_eq!("TensorRT-LLM".parse(), Ok(Dialect::TrtLlm));
        assert_eq!(
            "ollama".parse::<Dialect>().unwrap_err().to_string(),
            "`ollama` is no dialect; there are vllm, sglang and trtllm"
        );
    }
}
