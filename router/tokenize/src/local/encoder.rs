//! The encoders: the reference, the fast one that must agree with it, and SentencePiece's own way.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::sentencepiece::SentencePiece;

/// Which encoder to load.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum EncoderChoice {
    /// The fast one where it loads and agrees with the reference, else the reference.
    #[default]
    Auto,
    /// The reference.
    Reference,
}

/// An encoder.
pub enum Encoder {
    /// `fastokens`: 5 to 40 times faster than the reference.
    Fast(Box<fastokens::Tokenizer>),
    /// Hugging Face `tokenizers`: what engines use.
    Reference(Box<tokenizers::Tokenizer>),
    /// For models that engines give to SentencePiece itself.
    SentencePiece(Box<SentencePiece>),
}

impl Encoder {
    /// The crate's name.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Fast(_) => "fastokens",
            Self::Reference(_) => "tokenizers",
            Self::SentencePiece(_) => "sentencepiece",
        }
    }

    /// The ids of a text. Errors of the crates are not passed on: they may quote the text.
    pub fn encode(&self, text: &str, add_special_tokens: bool) -> Result<Vec<u32>, &'static str> {
        guarded(|| match self {
            Self::Fast(fast) => {
                fast.encode_with_special_tokens(text, add_special_tokens).map_err(|_| "the encoder failed")
            }
            Self::Reference(reference) => reference
                .encode_fast(text, add_special_tokens)
                .map(|encoding| encoding.get_ids().to_vec())
                .map_err(|_| "the encoder failed"),
            // Its special tokens are put around the ids by the caller.
            Self::SentencePiece(own) => own.encode(text),
        })
    }

    /// The text of ids.
    pub fn decode(&self, ids: &[u32]) -> Result<String, &'static str> {
        guarded(|| match self {
            Self::Fast(fast) => fast.decode(ids, false).map_err(|_| "the decoder failed"),
            Self::Reference(reference) => reference.decode(ids, false).map_err(|_| "the decoder failed"),
            Self::SentencePiece(own) => Ok(own.decode(ids)),
        })
    }
}

/// A panic inside an encoder is a failed request, not a lost thread.
fn guarded<T>(work: impl FnOnce() -> Result<T, &'static str>) -> Result<T, &'static str> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or(Err("the encoder panicked"))
}
