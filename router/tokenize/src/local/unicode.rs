//! Composing a text (NFC) where all versions of Unicode compose it alike.

use std::borrow::Cow;

use kvasir_core::TokenizeError;
use tokenizers::{NormalizedString, Normalizer as _, normalizers::NFC};

/// Letters that are composed, decomposed or put in order, and that came after Unicode 9, which is what the encoder's
/// own normaliser knows; from the Unicode Character Database 18.
const RECENT: [(u32, u32); 71] = [
    (0x5c8, 0x5c9),
    (0x7fd, 0x7fd),
    (0x897, 0x89f),
    (0x8ca, 0x8d3),
    (0x9fe, 0x9fe),
    (0xc3c, 0xc3c),
    (0xd3b, 0xd3c),
    (0xeba, 0xeba),
    (0x1715, 0x1715),
    (0x1abf, 0x1af0),
    (0x1df6, 0x1dfa),
    (0xa82c, 0xa82c),
    (0x105c9, 0x105c9),
    (0x105d2, 0x105d2),
    (0x105da, 0x105da),
    (0x105e4, 0x105e4),
    (0x10d24, 0x10d27),
    (0x10d69, 0x10d6d),
    (0x10eab, 0x10eac),
    (0x10ecb, 0x10ecf),
    (0x10ef0, 0x10efb),
    (0x10efd, 0x10eff),
    (0x10f46, 0x10f50),
    (0x10f82, 0x10f85),
    (0x11070, 0x11070),
    (0x1133b, 0x1133b),
    (0x11382, 0x11385),
    (0x1138b, 0x1138b),
    (0x1138e, 0x1138e),
    (0x11390, 0x11391),
    (0x113b8, 0x113b8),
    (0x113bb, 0x113bb),
    (0x113c2, 0x113c2),
    (0x113c5, 0x113c5),
    (0x113c7, 0x113c9),
    (0x113ce, 0x113d0),
    (0x1145e, 0x1145e),
    (0x11839, 0x1183a),
    (0x11930, 0x11930),
    (0x11935, 0x11935),
    (0x11938, 0x11938),
    (0x1193d, 0x1193e),
    (0x11943, 0x11943),
    (0x119e0, 0x119e0),
    (0x11a34, 0x11a34),
    (0x11a47, 0x11a47),
    (0x11a99, 0x11a99),
    (0x11d42, 0x11d42),
    (0x11d44, 0x11d45),
    (0x11d97, 0x11d97),
    (0x11f41, 0x11f42),
    (0x1611e, 0x16129),
    (0x1612f, 0x1612f),
    (0x16d63, 0x16d63),
    (0x16d67, 0x16d6a),
    (0x16ff0, 0x16ff1),
    (0x1d127, 0x1d128),
    (0x1d250, 0x1d252),
    (0x1d25b, 0x1d25c),
    (0x1d25f, 0x1d25f),
    (0x1d280, 0x1d281),
    (0x1e08f, 0x1e08f),
    (0x1e130, 0x1e136),
    (0x1e2ae, 0x1e2ae),
    (0x1e2ec, 0x1e2ef),
    (0x1e4ec, 0x1e4ef),
    (0x1e5ee, 0x1e5ef),
    (0x1e6e3, 0x1e6e3),
    (0x1e6e6, 0x1e6e6),
    (0x1e6ee, 0x1e6ef),
    (0x1e6f5, 0x1e6f5),
];

/// The composed text.
///
/// # Errors
/// [`TokenizeError::Inexact`] where another version of Unicode composes it differently.
pub fn compose(text: &str) -> Result<Cow<'_, str>, TokenizeError> {
    if text.is_ascii() {
        return Ok(Cow::Borrowed(text));
    }
    if text.chars().any(is_recent) {
        return Err(TokenizeError::Inexact("letters that Unicode versions treat differently"));
    }
    let mut composed = NormalizedString::from(text);
    NFC.normalize(&mut composed).map_err(|_| TokenizeError::Tokenizer("the normaliser failed".to_owned()))?;
    Ok(Cow::Owned(composed.get().to_owned()))
}

fn is_recent(letter: char) -> bool {
    let letter = u32::from(letter);
    let place = RECENT.partition_point(|(_, last)| *last < letter);
    RECENT.get(place).is_some_and(|(first, _)| *first <= letter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_composed_unless_versions_differ() {
        assert!(matches!(compose("plain <|im_end|>"), Ok(Cow::Borrowed(_))));
        assert_eq!(compose("cafe\u{301} \u{1112}\u{1161}\u{11ab}").as_deref(), Ok("caf\u{e9} \u{d55c}"));
        assert_eq!(compose("<|im_end|>\u{338}").as_deref(), Ok("<|im_end|\u{226f}"));
        for letter in ['\u{897}', '\u{1ac0}', '\u{1133b}', '\u{1e6f5}', '\u{16d67}'] {
            assert_eq!(compose(&format!("a{letter}")).unwrap_err().label(), "inexact", "{letter:?}");
        }
        assert!(!is_recent('\u{301}') && !is_recent('\u{1e6f6}') && !is_recent('\u{896}'));
        assert!(RECENT.windows(2).all(|pair| pair[0].1 < pair[1].0));
    }
}
