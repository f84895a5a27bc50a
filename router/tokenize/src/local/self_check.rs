//! The fast encoder is trusted only after it gave the reference's ids for a little of everything.

use super::encoder::Encoder;
use super::outline::AddedToken;

/// Added tokens that are tried in texts of their own.
const MOST_TOKENS: usize = 48;

/// Texts that have told encoders apart: words and code, scripts, composed and decomposed accents, runs, control
/// characters, numbers, and the tokenizer's added tokens with and without white space around them.
pub fn samples(tokens: &[AddedToken]) -> Vec<String> {
    let prose = "The router reads a request once, finds who already holds its beginning, and sends it there. \
                 It doesn't wait; nobody's cache is guessed at, and we're done in 0.25 ms (or 1,234,567 ns).";
    let code = "fn main() {\n    let x: Vec<u32> = (0..10).map(|i| i * 2).collect();\n\tprintln!(\"{x:?}\");\n}\n\n\
                def f(a, *, b=None):\n    return {\"k\": [a, b], 'n': 1e-7}  # TODO\n";
    let fixed = [
        prose,
        code,
        "  leading, trailing  \n\n\n   \t\t tabs \r\n crlf \r\n\r\n",
        "你好，世界。这是一个测试。日本語のテキストと한국어 텍스트。",
        "مرحبا بالعالم שלום עולם हिन्दी ไทย Ελληνικά Русский",
        "cafe\u{301} caf\u{e9} A\u{30a} \u{c5} \u{1112}\u{1161}\u{11ab} \u{d55c} \u{fb01} \u{2126}",
        "👩\u{200d}👩\u{200d}👧\u{200d}👦 👋🏽 🇩🇪 ✅\u{fe0f} e\u{301}\u{301}",
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa 0000000000000000000000 ----------------====",
        "\u{0}\u{1}\u{7f}\u{85}\u{a0}\u{200b}\u{2028}\u{feff}\u{fffd}\u{10ffff}",
        "I'M they'LL we'd I\u{2019}m HTTPServer2 snake_case camelCase SCREAMING_CASE v1.2.3-rc.4",
        "<|not a token|> <s></s> [INST] <unk> ▁ ▁▁x Ġ Ċ <0x0A>",
        "https://example.org/a?b=c&d=%20#e \\n \\\\ $x_{1}^2$ `x` **b** 3.14159 1/3 50% #1 @me",
        // Blanks for some and not for others, and letters of recent versions of Unicode.
        "a \u{180e}I \u{1680}x\u{2003}\u{180e}1 \u{180e}\n \u{85}y \u{200b}z \u{feff}q \u{1d}w \u{202f}.\u{3000}\u{180e}",
        "x\u{1c89}x 1\u{a7cb}2 .\u{16d43}. \u{31350}\u{2ebf0}a \u{10d4a}b\u{1e5f1}c \u{1df25} \u{88f}d",
        "x",
        " ",
        "",
    ];
    let mut texts: Vec<String> = fixed.iter().map(|text| (*text).to_owned()).collect();
    let step = tokens.len().div_ceil(MOST_TOKENS).max(1);
    for token in tokens.iter().step_by(step) {
        let content = &token.content;
        texts.push(format!(
            "{content}user\nHello e\u{301} {content} there{content}{content}\n\n {content}  x\u{301}{content}"
        ));
    }
    texts.push(texts.join("\n"));
    texts
}

/// Compares the two.
///
/// # Errors
/// Which sample differs, by number.
pub fn compare(fast: &Encoder, reference: &Encoder, tokens: &[AddedToken]) -> Result<(), String> {
    for (number, text) in samples(tokens).iter().enumerate() {
        for add_special_tokens in [false, true] {
            let expected = reference.encode(text, add_special_tokens);
            if expected.is_ok() && fast.encode(text, add_special_tokens) != expected {
                return Err(format!("the encoders disagree on sample {number}"));
            }
        }
    }
    Ok(())
}
