//! The encoders: the reference, the fast ones that must agree with it, and SentencePiece's own way.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::sentencepiece::SentencePiece;
use super::words::Words;

/// Which encoder to load.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum EncoderChoice {
    /// A fast one where it loads and agrees with the reference, else the reference.
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
    Reference(Arc<tokenizers::Tokenizer>),
    /// For vocabularies whose rules know no words, where `fastokens` is slow or does not load. What is asked rarely goes
    /// to the reference.
    Words(Box<Words>, Arc<tokenizers::Tokenizer>),
    /// For models that engines give to SentencePiece itself.
    SentencePiece(Box<SentencePiece>),
}

impl Encoder {
    /// Its name, which is the crate's where it comes from one.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Fast(_) => "fastokens",
            Self::Reference(_) => "tokenizers",
            Self::Words(..) => "words",
            Self::SentencePiece(_) => "sentencepiece",
        }
    }

    /// The ids of a text. Errors of the crates are not passed on: they may quote the text.
    pub fn encode(&self, text: &str, add_special_tokens: bool) -> Result<Vec<u32>, &'static str> {
        guarded(|| match self {
            Self::Fast(fast) => {
                fast.encode_with_special_tokens(text, add_special_tokens).map_err(|_| "the encoder failed")
            }
            Self::Words(words, _) if !add_special_tokens => words.encode(text),
            Self::Reference(reference) | Self::Words(_, reference) => reference
                .encode_fast(text, add_special_tokens)
                .map(|encoding| encoding.get_ids().to_vec())
                .map_err(|_| "the encoder failed"),
            // Its special tokens are put around the ids by the caller.
            Self::SentencePiece(own) => own.encode(text),
        })
    }

    /// The token of an id as the vocabulary writes it.
    pub fn token(&self, id: u32) -> Option<String> {
        match self {
            Self::Fast(fast) => fast.id_to_token(id).map(str::to_owned),
            Self::Reference(reference) | Self::Words(_, reference) => reference.id_to_token(id),
            Self::SentencePiece(own) => own.token(id).map(str::to_owned),
        }
    }

    /// The text of ids.
    pub fn decode(&self, ids: &[u32]) -> Result<String, &'static str> {
        guarded(|| match self {
            Self::Fast(fast) => fast.decode(ids, false).map_err(|_| "the decoder failed"),
            Self::Reference(reference) | Self::Words(_, reference) => {
                reference.decode(ids, false).map_err(|_| "the decoder failed")
            }
            Self::SentencePiece(own) => Ok(own.decode(ids)),
        })
    }
}

/// A panic inside an encoder is a failed request, not a lost thread.
fn guarded<T>(work: impl FnOnce() -> Result<T, &'static str>) -> Result<T, &'static str> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or(Err("the encoder panicked"))
}
