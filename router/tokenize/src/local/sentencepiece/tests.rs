use proptest::prelude::*;
use serde_json::{Value as Config, json};

use super::*;
use crate::local::load::Settings;

/// Writes model files.
#[derive(Clone, Debug)]
pub struct Writer {
    pieces: Vec<(String, f32, u64)>,
    pub trainer: Vec<u8>,
    normalizer: Vec<u8>,
}

fn varint(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(u8::try_from(number & 0x7f).unwrap() | 0x80);
        number >>= 7;
    }
    out.push(u8::try_from(number).unwrap());
}

fn number(field: u64, value: u64, out: &mut Vec<u8>) {
    varint(field << 3, out);
    varint(value, out);
}

fn bytes(field: u64, value: &[u8], out: &mut Vec<u8>) {
    varint(field << 3 | 2, out);
    varint(value.len() as u64, out);
    out.extend_from_slice(value);
}

impl Writer {
    /// A model as Mistral's are: byte fallback, a space put first, nothing else changed.
    pub fn new(pieces: &[(&str, f32)]) -> Self {
        let mut all: Vec<(String, f32, u64)> =
            vec![("<unk>".to_owned(), 0.0, 2), ("<s>".to_owned(), 0.0, 3), ("</s>".to_owned(), 0.0, 3)];
        all.extend((0..=255).map(|byte| (format!("<0x{byte:02X}>"), 0.0, 6)));
        all.extend(pieces.iter().map(|(text, score)| ((*text).to_owned(), *score, 1)));
        let (mut trainer, mut normalizer) = (Vec::new(), Vec::new());
        number(3, PAIR_MERGING, &mut trainer);
        number(35, 1, &mut trainer);
        number(4, 0, &mut normalizer);
        Self { pieces: all, trainer, normalizer }
    }

    pub fn control(&mut self, name: &str) -> &mut Self {
        self.pieces.push((name.to_owned(), 0.0, 3));
        self
    }

    pub fn file(&self) -> Vec<u8> {
        let mut file = Vec::new();
        for (text, score, kind) in &self.pieces {
            let mut piece = Vec::new();
            bytes(1, text.as_bytes(), &mut piece);
            piece.push(2 << 3 | 5);
            piece.extend_from_slice(&score.to_le_bytes());
            number(3, *kind, &mut piece);
            bytes(1, &piece, &mut file);
        }
        bytes(2, &self.trainer, &mut file);
        bytes(3, &self.normalizer, &mut file);
        file
    }

    fn model(&self) -> Model {
        Model::parse(&self.file()).unwrap()
    }

    fn encoder(&self) -> SentencePiece {
        SentencePiece::new(self.model()).unwrap()
    }
}

/// Id of the first piece that is no byte and no control token.
const FIRST: u32 = 259;

#[test]
fn the_file_says_what_decides_ids() {
    let model = Writer::new(&[("a", -1.0)]).model();
    assert_eq!((model.pieces.len(), model.unknown, model.begin, model.end), (260, 0, Some(1), Some(2)));
    assert!(model.byte_fallback && model.dummy_prefix && model.unfollowed.is_none());
    assert_eq!(model.pieces[13].kind, PieceKind::Byte(10));
    let mut other = Writer::new(&[("a", -0.0)]);
    bytes(46, b"[begin]", &mut other.trainer);
    number(3, 0, &mut other.normalizer);
    other.pieces.push(("[begin]".to_owned(), 0.0, 3));
    let model = other.model();
    assert_eq!((model.begin, model.end, model.dummy_prefix), (Some(260), Some(2), false));
    assert!(model.pieces[259].score.is_sign_positive());
}

#[test]
fn damage_is_named() {
    let error = |change: &dyn Fn(&mut Writer)| {
        let mut writer = Writer::new(&[("a", -1.0)]);
        change(&mut writer);
        Model::parse(&writer.file()).unwrap_err()
    };
    let push = |text: &str, score: f32, kind: u64| {
        error(&|writer| writer.pieces.push((text.to_owned(), score, kind)))
    };
    assert_eq!(push("a", 0.0, 1), "piece 260 is there twice");
    assert_eq!(push("b", 0.0, 2), "piece 260 is a second unknown piece");
    assert_eq!(push("", 0.0, 1), "piece 260: its text is empty or too long");
    assert_eq!(push(&"x".repeat(LONGEST_PIECE + 1), 0.0, 1), "piece 260: its text is empty or too long");
    assert_eq!(push("b", f32::NAN, 1), "piece 260: its score is not finite");
    assert_eq!(push("b", 0.0, 9), "piece 260: it is of an unknown kind");
    assert_eq!(push("<0xG0>", 0.0, 6), "piece 260: its text names no byte");
    assert_eq!(error(&|writer| writer.pieces.truncate(258)), "255 pieces for bytes");
    assert_eq!(error(&|writer| writer.trainer.truncate(2)), "256 pieces for bytes");
    assert_eq!(error(&|writer| drop(writer.pieces.remove(0))), "no unknown piece");
    let file = Writer::new(&[]).file();
    assert!(Model::parse(&file[..file.len() - 1]).unwrap_err().contains("middle of a field"));
    assert_eq!(Model::parse(b"").unwrap_err(), "no unknown piece");
    assert!(Model::parse(&[0x08, 0x01]).is_err(), "pieces are messages");
    let mut many = Vec::new();
    (0..=MOST_PIECES).for_each(|id| {
        let mut piece = Vec::new();
        bytes(1, id.to_string().as_bytes(), &mut piece);
        bytes(1, &piece, &mut many);
    });
    assert_eq!(Model::parse(&many).unwrap_err(), "more than 1048576 pieces");
}

#[test]
fn what_is_not_followed_is_named() {
    let reason = |change: &dyn Fn(&mut Writer)| {
        let mut writer = Writer::new(&[("a", -1.0)]);
        change(&mut writer);
        SentencePiece::new(writer.model()).err().unwrap_or_default()
    };
    assert_eq!(reason(&|_| {}), "");
    assert!(reason(&|writer| number(3, 1, &mut writer.trainer)).contains("unigram"));
    assert!(reason(&|writer| number(24, 1, &mut writer.trainer)).contains("before words"));
    assert!(reason(&|writer| bytes(2, b"map", &mut writer.normalizer)).contains("replaces letters"));
    assert!(reason(&|writer| number(4, 1, &mut writer.normalizer)).contains("spaces away"));
    assert!(reason(&|writer| number(5, 0, &mut writer.normalizer)).contains("before words"));
    assert!(reason(&|writer| writer.pieces.push(("b".to_owned(), 0.0, 5))).contains("unused"));
    assert!(reason(&|writer| writer.pieces.push(("b c".to_owned(), 0.0, 4))).contains("symbol"));
}

#[test]
fn the_best_score_is_merged_first_and_of_equal_scores_the_leftmost() {
    let pieces =
        [("a", -9.0), ("b", -9.0), ("c", -9.0), ("▁", -9.0), ("ab", -2.0), ("bc", -1.0), ("▁a", -3.0)];
    let encoder = Writer::new(&pieces).encoder();
    assert_eq!(encoder.encode("abc"), Ok(vec![FIRST + 6, FIRST + 5]));
    let equal: Vec<_> = pieces.iter().map(|(text, _)| (*text, -1.0)).collect();
    let encoder = Writer::new(&equal).encoder();
    assert_eq!(encoder.encode("abc"), Ok(vec![FIRST + 6, FIRST + 5]), "▁a is left of bc");
    assert_eq!(encoder.encode("cabc"), Ok(vec![FIRST + 3, FIRST + 2, FIRST + 4, FIRST + 2]));
}

/// Runs of spaces have one score in Mistral's models, and no run of 15.
#[test]
fn runs_of_spaces_are_filled_from_the_left() {
    let runs: Vec<String> = [1, 2, 3, 4, 6, 8].iter().map(|count| "▁".repeat(*count)).collect();
    let pieces: Vec<_> = runs.iter().map(|run| (run.as_str(), -1e9)).collect();
    let encoder = Writer::new(&pieces).encoder();
    let lengths = |count: usize| -> Vec<usize> {
        let ids = encoder.encode(&" ".repeat(count)).unwrap();
        ids.iter().map(|id| [1, 2, 3, 4, 6, 8][usize::try_from(id - FIRST).unwrap()]).collect()
    };
    assert_eq!(lengths(0), Vec::<usize>::new(), "no text, no space before it");
    assert_eq!(lengths(1), [2]);
    assert_eq!(lengths(4), [4, 1]);
    assert_eq!(lengths(5), [6]);
    assert_eq!(lengths(10), [8, 3]);
}

#[test]
fn letters_without_a_piece_become_bytes_or_one_unknown() {
    let encoder = Writer::new(&[("▁", -1.0), ("a", -2.0)]).encoder();
    assert_eq!(encoder.encode("a\u{e9}\n"), Ok(vec![FIRST, FIRST + 1, 3 + 0xc3, 3 + 0xa9, 3 + 10]));
    assert_eq!(encoder.encode("<0x0A>").unwrap().len(), 7, "the name of a byte is text");
    assert_eq!(encoder.decode(&[FIRST, FIRST + 1, 3 + 0xc3, 3 + 0xa9, 2, 0, 9999]), "a\u{e9} \u{2047} ");
    let mut writer = Writer::new(&[("▁", -1.0), ("a", -2.0)]);
    writer.pieces.drain(3..259);
    writer.trainer.truncate(2);
    let encoder = writer.encoder();
    assert_eq!(encoder.encode("bca bb"), Ok(vec![3, 0, 4, 3, 0]), "a run of unknown letters is one");
}

#[test]
fn symbols_come_before_merging_and_the_longest_first() {
    let mut writer = Writer::new(&[("[", -1.0), ("a", -1.0), ("▁", -1.0), ("▁a", -1.0), ("]a", -0.5)]);
    writer.pieces.extend([("[X]".to_owned(), 0.0, 4), ("[X][Y]".to_owned(), 0.0, 4)]);
    let (x, y) = (FIRST + 5, FIRST + 6);
    let encoder = writer.encoder();
    assert_eq!(encoder.encode("[X]a"), Ok(vec![FIRST + 2, x, FIRST + 1]));
    assert_eq!(encoder.encode("a[X][Y][X]"), Ok(vec![FIRST + 3, y, x]));
    assert_eq!(encoder.encode("[[X]"), Ok(vec![FIRST + 2, FIRST, x]));
    assert_eq!(encoder.encode("<s>").unwrap().len(), 4, "control tokens are not found in texts");
}

/// Merges by looking at all neighbours each time.
fn slowly(writer: &Writer, text: &str) -> Vec<u32> {
    let known =
        |piece: &str| writer.pieces.iter().position(|(text, _, kind)| text == piece && matches!(kind, 1 | 4));
    let mut parts: Vec<String> = format!("▁{}", text.replace(' ', "▁")).chars().map(String::from).collect();
    loop {
        let best = parts
            .windows(2)
            .enumerate()
            .filter_map(|(at, pair)| Some((at, writer.pieces[known(&pair.concat())?].1)))
            .reduce(|best, next| if next.1 > best.1 { next } else { best });
        let Some((at, _)) = best else { break };
        let right = parts.remove(at + 1);
        parts[at].push_str(&right);
    }
    let ids = |part: &String| match known(part) {
        Some(id) => vec![u32::try_from(id).unwrap()],
        None => part.bytes().map(|byte| 3 + u32::from(byte)).collect(),
    };
    parts.iter().flat_map(ids).collect()
}

proptest! {
    /// Whatever the vocabulary, and whether its pieces keep to words or not.
    #[test]
    fn merging_is_what_looking_everywhere_gives(
        pieces in prop::collection::btree_map("[ab▁]{1,4}", -4_i8..0, 0..24), texts in prop::collection::vec("[abc ]{1,14}", 1..8),
    ) {
        let pieces: Vec<(&str, f32)> = pieces.iter().map(|(text, score)| (text.as_str(), f32::from(*score))).collect();
        let writer = Writer::new(&pieces);
        let encoder = writer.encoder();
        for text in &texts {
            prop_assert_eq!(encoder.encode(text).unwrap(), slowly(&writer, text), "{:?}", text);
        }
    }

    /// No file does more than fail.
    #[test]
    fn noise_is_an_error(noise in prop::collection::vec(any::<u8>(), 0..200), at in any::<prop::sample::Index>()) {
        drop(Model::parse(&noise));
        let mut file = Writer::new(&[("a", -1.0), ("▁a", -2.0)]).file();
        let at = at.index(file.len());
        for (slot, byte) in file[at..].iter_mut().zip(&noise) {
            *slot = *byte;
        }
        if let Ok(encoder) = Model::parse(&file).map_err(drop).and_then(|model| SentencePiece::new(model).map_err(drop)) {
            let encoded = encoder.encode("a <s> \u{e9}");
            prop_assert!(encoded.is_ok());
        }
    }
}

fn llama(change: impl Fn(&mut Config)) -> Result<Config, String> {
    let mut writer =
        Writer::new(&[("▁", -3.0), ("a", -4.0), ("b", -5.0), ("ab", -2.0), ("▁a", -6.0), ("▁ab", -1.0)]);
    writer.pieces.push(("[X]".to_owned(), 0.0, 4));
    let mut files = json!({"config": {"tokenizer_class": "LlamaTokenizer", "add_bos_token": true}});
    change(&mut files);
    let file = |name: &str| files[name].clone();
    let config =
        Settings { config: file("config"), map: file("map"), added: file("added"), model: file("model") };
    tokenizer_json(&writer.model(), &config).map(|text| serde_json::from_slice(&text).unwrap())
}

#[test]
fn llama_s_merges_stand_in_the_order_of_ids() {
    let written = llama(|_| {}).unwrap();
    assert_eq!(written["model"]["merges"], json!([["a", "b"], ["▁", "a"], ["▁", "ab"], ["▁a", "b"]]));
    assert_eq!(written["pre_tokenizer"]["prepend_scheme"], "first");
    let added: Vec<_> =
        written["added_tokens"].as_array().unwrap().iter().map(|token| &token["content"]).collect();
    assert_eq!(added, ["<unk>", "<s>", "</s>", "[X]"]);
    let tokenizer = tokenizers::Tokenizer::from_bytes(written.to_string()).unwrap();
    let ids = |text: &str| tokenizer.encode(text, true).unwrap().get_ids().to_vec();
    assert_eq!(ids("ab[X]ab"), [1, FIRST + 5, FIRST + 6, FIRST + 3], "no space behind a token");
    assert_eq!(ids("</s>\u{e9}"), [1, 2, 3 + 0xc3, 3 + 0xa9]);
}

#[test]
fn llama_s_configuration_is_followed() {
    let scheme = |config: Config| {
        let written = llama(|files| {
            config
                .as_object()
                .unwrap()
                .iter()
                .for_each(|(name, value)| files["config"][name] = value.clone());
        });
        written.unwrap()["pre_tokenizer"]["prepend_scheme"].clone()
    };
    assert_eq!(scheme(json!({"legacy": true})), "always");
    assert_eq!(scheme(json!({"legacy": null})), "first");
    assert_eq!(scheme(json!({"legacy": true, "add_prefix_space": false})), "never");
    let written = llama(|files| {
        files["config"]["add_bos_token"] = json!(null);
        files["config"]["add_eos_token"] = json!(true);
        files["config"]["pad_token"] = json!("<pad>");
        files["config"]["additional_special_tokens"] = json!(["<more>", {"content": "a", "lstrip": true}]);
        files["config"]["added_tokens_decoder"] =
            json!({"266": {"content": "<new>", "rstrip": true, "special": true}});
        files["map"] = json!({"pad_token": {"content": "<pad>"}, "bos_token": "<s>"});
        files["added"] = json!({"<new>": 266});
        files["model"] = json!({"model_type": "llama"});
    })
    .unwrap();
    let added: Vec<_> = written["added_tokens"]
        .as_array()
        .unwrap()
        .iter()
        .map(|token| {
            (token["id"].as_u64().unwrap(), token["content"].as_str().unwrap(), token["rstrip"] == true)
        })
        .collect();
    let expected = [
        (0, "<unk>", false),
        (1, "<s>", false),
        (2, "</s>", false),
        (260, "a", false),
        (266, "<new>", true),
        (267, "<pad>", false),
        (268, "<more>", false),
    ];
    assert_eq!(added, expected);
    let single = written["post_processor"]["single"].as_array().unwrap();
    assert_eq!((single.len(), &single[1]["SpecialToken"]["id"]), (2, &json!("</s>")));
}

#[test]
fn what_only_transformers_knows_is_named() {
    let reason = |name: &str, value: Config| {
        let changed = llama(|files| {
            let (file, key) = name.split_once('/').unwrap();
            files[file][key] = value.clone();
        });
        changed.unwrap_err()
    };
    assert!(reason("config/tokenizer_class", json!("GemmaTokenizer")).contains("class GemmaTokenizer"));
    assert!(reason("config/tokenizer_class", json!(null)).contains("no tokenizer_class"));
    assert!(reason("config/auto_map", json!({"AutoTokenizer": ["x.Y", null]})).contains("code of its own"));
    assert!(reason("model/model_type", json!("mistral")).contains("type mistral"));
    assert!(reason("config/split_special_tokens", json!(true)).contains("split_special_tokens"));
    assert!(reason("config/extra_special_tokens", json!({})).contains("extra_special_tokens"));
    assert!(reason("config/legacy", json!(1)).contains("legacy is no boolean"));
    assert!(reason("config/additional_special_tokens", json!([1])).contains("malformed"));
    assert!(reason("map/pad_token", json!("<pad>")).contains("pad_token in special_tokens_map.json"));
    assert!(reason("added/<x>", json!(300)).contains("added_tokens.json"));
}
