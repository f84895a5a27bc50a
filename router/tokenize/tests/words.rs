//! Gemma's real tokenizer through the encoder of words: the ids are the reference's for texts of all kinds.
#![expect(clippy::panic, reason = "a test that cannot read its data fails")]

mod common;

use std::sync::OnceLock;

use common::directory;
use kvasir_tokenize::{EncoderChoice, LoadOptions, LocalTokenizer};
use proptest::prelude::*;

fn load(encoder: EncoderChoice) -> LocalTokenizer {
    let options = LoadOptions { encoder, memory_bytes: 0, ..LoadOptions::default() };
    LocalTokenizer::load_with(&directory("gemma3"), None, options)
        .unwrap_or_else(|error| panic!("{error}: run e2e/tokenizers/fetch.sh first"))
}

/// The encoder of words, and the reference.
fn loaded() -> &'static [LocalTokenizer; 2] {
    static LOADED: OnceLock<[LocalTokenizer; 2]> = OnceLock::new();
    LOADED.get_or_init(|| [EncoderChoice::Auto, EncoderChoice::Reference].map(load))
}

fn texts() -> impl Strategy<Value = String> {
    let token = prop::sample::select(vec![
        "<bos>",
        "<start_of_turn>",
        "<end_of_turn>",
        "<start_of_image>",
        "<unused7>",
        "<unused70>",
        "<table>",
        "</h1>",
        "[multimodal]",
        "[multimodal",
        "<0x0A>",
        "<unk>",
        "<start_of_",
        "\u{2581}",
        "\u{2581}\u{2581}\u{2581}",
    ]);
    let piece = prop_oneof![
        4 => "[ a-zA-Z0-9.,;:'\"(){}=_/<>-]{0,30}",
        3 => "( ?[a-z]{1,9}[.,!?]?){1,8}",
        2 => "[ \\t\\n\\r]{1,40}",
        2 => any::<String>(),
        1 => "[\\x00-\\x1f\\x7f\u{80}-\u{a0}\u{2000}-\u{200f}\u{2028}\u{feff}]{1,8}",
        2 => "[\u{4e00}-\u{4f00}\u{3040}-\u{309f}\u{ac00}-\u{ac80}\u{410}-\u{44f}\u{e0}-\u{ff}]{1,24}",
        1 => "\\PC{1,12}",
        3 => token.prop_map(str::to_owned),
        1 => ("[a-z=\\-#]", 1..400_usize).prop_map(|(letter, count)| letter.repeat(count)),
        1 => "[a-z]{100,300}",
    ];
    prop::collection::vec(piece, 0..16).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn the_ids_are_the_reference_s(text in texts()) {
        let [words, reference] = loaded();
        prop_assert_eq!(words.encoder_name(), "words", "{:?}", words.fallback_reason());
        let expected = reference.encode_text(&text, true);
        prop_assert_eq!(&words.encode_text(&text, true), &expected, "{:?}", text);
        prop_assert_eq!(&words.encode_text(&text, true), &expected, "{:?} again", text);
    }
}
