use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

/// A file with every byte and some words.
fn file(words: &[&str]) -> Vec<u8> {
    let bytes = (0..=u8::MAX).map(|byte| vec![byte]);
    let words = words.iter().map(|word| word.as_bytes().to_vec());
    let lines =
        bytes.chain(words).zip(0..).map(|(token, rank)| format!("{} {rank}\n", STANDARD.encode(token)));
    lines.collect::<String>().into_bytes()
}

fn family(name: &str, config: Value, model: Value) -> Result<Family, String> {
    let directory = tempfile::tempdir().unwrap();
    if let Some(code) = config.get("code").and_then(Value::as_str) {
        std::fs::write(directory.path().join("tokenization_kimi.py"), code).unwrap();
    }
    Family::of(&FamilyFiles { ranks: &directory.path().join(name), config: &config, model: &model })
}

#[test]
fn ranks_are_places() {
    let ranks = read_ranks(&file(&["he", "llo"])).unwrap();
    assert_eq!((ranks.len(), &*ranks[256], &*ranks[257]), (258, &b"he"[..], &b"llo"[..]));
    let mut shuffled: Vec<Vec<u8>> =
        file(&["he"]).split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
    shuffled.reverse();
    shuffled.push(b"\r\n\n".to_vec());
    assert_eq!(read_ranks(&shuffled.concat()).unwrap().len(), 257);
    let gap = [file(&[]), b"aGU= 300\n".to_vec()].concat();
    assert!(read_ranks(&gap).unwrap()[280].is_empty());
}

#[test]
fn damage_is_named() {
    let error = |line: &str| read_ranks(&[file(&[]), line.as_bytes().to_vec()].concat()).unwrap_err();
    assert_eq!(error("aGU="), "line 257: not a token and its rank");
    assert_eq!(error("aGU= x"), "line 257: the rank is no number");
    assert_eq!(error("aGU= -1"), "line 257: the rank is no number");
    assert_eq!(error("aGU= 1048576"), "line 257: the rank is too high");
    assert_eq!(error("a*U= 256"), "line 257: the token is not base64");
    assert_eq!(error(" 256"), "line 257: not a token and its rank");
    assert_eq!(error("aGU= 7"), "line 257: rank 7 is there twice");
    assert_eq!(
        error(&format!("{} 256", STANDARD.encode([b'x'; LONGEST_TOKEN + 1]))),
        "line 257: the token is empty or too long"
    );
    assert_eq!(read_ranks(b"aGU= 0\n").unwrap_err(), "no token for the byte 0");
    assert_eq!(read_ranks(b"\xff\xfe").unwrap_err(), "line 1: not UTF-8");
    assert_eq!(read_ranks(b"").unwrap_err(), "no token for the byte 0");
    let own = family("x.tiktoken", json!({"pat_str": "."}), json!({})).unwrap();
    assert_eq!(
        tokenizer_json(&[file(&["he"]), b"aGU= 257\n".to_vec()].concat(), &own).unwrap_err(),
        "1 tokens are there twice"
    );
}

#[test]
fn qwen_s_tokens_are_composed_and_fixed() {
    for config in [
        json!({"tokenizer_class": "QWenTokenizer"}),
        json!({"auto_map": {"AutoTokenizer": ["tokenization_qwen.QWenTokenizer", null]}}),
    ] {
        let qwen = family("qwen.tiktoken", config, json!({})).unwrap();
        assert!(qwen.composes && qwen.limits.is_none() && qwen.tools == ToolOrder::AsGiven);
        let ranks: Vec<Vec<u8>> = (0_u32..151_643).map(|rank| rank.to_be_bytes().to_vec()).collect();
        let specials = qwen.specials(&ranks).unwrap();
        assert_eq!(
            (specials.len(), &*specials[&151_644], &*specials[&151_850]),
            (208, "<|im_start|>", "<|extra_204|>")
        );
        assert_eq!(tokenizer_json(&file(&[]), &qwen).unwrap_err(), "256 ranks, while Qwen's file has 151643");
    }
    let config = json!({"tokenizer_class": "QWenTokenizer"});
    assert!(family("qwen.tiktoken", config, json!({"visual": {}})).unwrap_err().contains("pictures"));
}

#[test]
fn kimi_s_tokens_are_named_or_reserved() {
    let config = |code: &str| {
        json!({"auto_map": {"AutoTokenizer": ["tokenization_kimi.TikTokenTokenizer", null]}, "code": code,
               "added_tokens_decoder": {"257": {"content": "[EOS]", "special": true}, "900": {"content": "x"}}})
    };
    let kimi = family("tiktoken.model", config("def deep_sort_dict(x): pass"), json!({})).unwrap();
    assert_eq!((kimi.composes, kimi.limits, kimi.tools), (false, Some((400_000, 25_000)), ToolOrder::Sorted));
    let specials = kimi.specials(&read_ranks(&file(&[])).unwrap()).unwrap();
    assert_eq!(
        (specials.len(), &*specials[&256], &*specials[&257]),
        (258, "<|reserved_token_256|>", "[EOS]")
    );
    assert_eq!(family("tiktoken.model", config("pass"), json!({})).unwrap().tools, ToolOrder::AsGiven);
    let without = json!({"tokenizer_class": "TikTokenTokenizer"});
    assert_eq!(family("tiktoken.model", without.clone(), json!({})).unwrap().tools, ToolOrder::Unknown);
    let error = family("tiktoken.model", without, json!({"model_type": "kimi_k3"})).unwrap_err();
    assert!(error.contains("Kimi K3"), "{error}");
}

#[test]
fn openai_s_encodings_go_by_the_name_of_the_file() {
    let encoding = |name: &str, config: Value| family(name, config, json!({}));
    let cl100k = encoding(
        "cl100k_base.tiktoken",
        json!({"added_tokens_decoder": {"100264": {"content": "<|im_start|>"}}}),
    );
    let specials = cl100k.unwrap().specials(&[]).unwrap();
    assert_eq!(
        (specials.len(), &*specials[&100_257], &*specials[&100_264]),
        (6, "<|endoftext|>", "<|im_start|>")
    );
    assert!(encoding("o200k_base.tiktoken", json!({})).unwrap().pattern.contains(r"[\r\n/]*"));
    assert!(encoding("r50k_base.tiktoken", json!({})).is_ok());
    assert!(encoding("tiktoken.model", json!({"encoding_name": "cl100k_base"})).is_ok());
    let error = encoding("other.tiktoken", json!({"tokenizer_class": "Other"})).unwrap_err();
    assert!(error.contains("pat_str") && error.contains("added_tokens_decoder"), "{error}");
}

#[test]
fn a_pattern_of_the_user_s_is_taken_where_it_means_the_same() {
    let own = |pattern: Value| family("x.tiktoken", json!({"pat_str": pattern}), json!({}));
    assert_eq!(own(json!(r"\p{L}+|[^\p{L}$^]+|\$\^|\s+\z")).unwrap().specials(&[]).unwrap().len(), 0);
    assert!(own(json!(r"\s+$|.")).unwrap_err().contains(r"\z"));
    assert!(own(json!(r"^a")).unwrap_err().contains(r"\A"));
    assert!(own(json!(r"\p{N}{1,3}+")).unwrap_err().contains("leave the + out"));
    assert!(own(json!(7)).unwrap_err().contains("no text"));
}

#[test]
fn special_tokens_that_cannot_be_exact_are_named() {
    let listed = |tokens: Value| {
        family("x.tiktoken", json!({"pat_str": ".", "added_tokens_decoder": tokens}), json!({}))
    };
    let ranks = read_ranks(&file(&[])).unwrap();
    let fine = listed(json!({"300": {"content": "<a>"}, "301": {"content": "<b>"}})).unwrap();
    assert_eq!(fine.specials(&ranks).unwrap().len(), 2);
    let alike = listed(json!({"300": {"content": "<a>"}, "301": {"content": "<a>b"}})).unwrap();
    assert!(alike.specials(&ranks).unwrap_err().contains("begins with another"));
    let taken = listed(json!({"7": {"content": "<a>"}})).unwrap();
    assert!(taken.specials(&ranks).unwrap_err().contains("the id of a rank"));
    for (tokens, part) in [
        (json!({"x": {"content": "<a>"}}), "the id x"),
        (json!({"99999999": {"content": "<a>"}}), "the id 99999999"),
        (json!({"300": {"content": ""}}), "no content"),
        (json!({"300": {"content": "<a>", "lstrip": true}}), "touches"),
    ] {
        let error = listed(tokens).unwrap_err();
        assert!(error.contains(part), "{error}");
    }
}

/// Merging by rank, as tiktoken describes it: the lowest rank of two neighbours, the leftmost of equal ones.
fn slowly(ranks: &[Vec<u8>], word: &[u8]) -> Vec<u32> {
    let rank = |bytes: &[u8]| ranks.iter().position(|token| token == bytes);
    if let Some(whole) = rank(word) {
        return vec![u32::try_from(whole).unwrap()];
    }
    let mut parts: Vec<Vec<u8>> = word.iter().map(|byte| vec![*byte]).collect();
    while let Some((_, at)) =
        parts.windows(2).enumerate().filter_map(|(at, pair)| Some((rank(&pair.concat())?, at))).min()
    {
        let right = parts.remove(at + 1);
        parts[at].extend(right);
    }
    parts.iter().map(|part| u32::try_from(rank(part).unwrap()).unwrap()).collect()
}

proptest! {
    /// The written merges give what merging by rank gives.
    #[test]
    fn merges_are_ranks(words in prop::collection::btree_set("[ab]{2,5}", 0..16), text in "[abc]{1,12}") {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let own = family("x.tiktoken", json!({"pat_str": "c|[^c]+"}), json!({})).unwrap();
        let file = file(&words);
        let tokenizer = tokenizers::Tokenizer::from_bytes(tokenizer_json(&file, &own).unwrap()).unwrap();
        let ranks = read_ranks(&file).unwrap();
        let expected: Vec<u32> = text
            .split_inclusive('c')
            .flat_map(|part| match part.strip_suffix('c') {
                Some(before) => [slowly(&ranks, before.as_bytes()), vec![u32::from(b'c')]].concat(),
                None => slowly(&ranks, part.as_bytes()),
            })
            .collect();
        let encoding = tokenizer.encode(text.as_str(), false).unwrap();
        prop_assert_eq!(encoding.get_ids(), expected);
    }

    /// No file does more than fail.
    #[test]
    fn noise_is_an_error(noise in "[A-Za-z0-9+/= \n\u{e9}]{0,120}") {
        prop_assert!(read_ranks(noise.as_bytes()).is_err());
    }
}
