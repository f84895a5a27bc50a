//! Python's letter case and letter classes, where they do not depend on which Unicode tables a Python brings.
//!
//! Pythons of different versions know different Unicode versions, and ours is another one again. What all of them agree
//! on is computed; anything else is an error, so that the request goes on without tokens instead of with wrong ones.

use minijinja::{Error, ErrorKind};

use super::environment;

/// `str.upper()`
pub fn upper(text: &str) -> Result<String, Error> {
    stable(text)?;
    Ok(text.to_uppercase())
}

/// `str.lower()`
pub fn lower(text: &str) -> Result<String, Error> {
    stable(text)?;
    Ok(text.to_lowercase())
}

/// `str.capitalize()`: the first letter in title case, the others in lower case.
pub fn capitalize(text: &str) -> Result<String, Error> {
    stable(text)?;
    let mut letters = text.chars();
    let Some(first) = letters.next() else { return Ok(String::new()) };
    let mut out = String::with_capacity(text.len());
    out.push(title_letter(first)?);
    // The whole is lowered, for the sigma at the end of a word looks back; the first letter is then cut off.
    let lowered = text.to_lowercase();
    let head: usize = first.to_lowercase().map(char::len_utf8).sum();
    out.push_str(lowered.get(head..).unwrap_or_default());
    Ok(out)
}

/// `str.title()`: a letter after anything that has no case begins a word, also after an apostrophe.
pub fn title(text: &str) -> Result<String, Error> {
    stable(text)?;
    let mut out = String::with_capacity(text.len());
    let mut inside = false;
    for letter in text.chars() {
        let cased = letter.is_lowercase() || letter.is_uppercase();
        match (cased, inside) {
            // Which of its two small forms it takes depends on its neighbours.
            (_, true) if letter == 'Σ' => return Err(uncertain()),
            (true, true) => out.extend(letter.to_lowercase()),
            _ => out.push(title_letter(letter)?),
        }
        inside = cased;
    }
    Ok(out)
}

/// The `title` filter: words begin after white space and opening brackets.
pub fn title_words(text: &str) -> Result<String, Error> {
    stable(text)?;
    let begins =
        |letter: char| matches!(letter, '-' | '(' | '{' | '[' | '<') || super::python::is_space(letter);
    let mut out = String::with_capacity(text.len());
    for word in text.split_inclusive(begins) {
        let Some(first) = word.chars().next() else { continue };
        out.extend(first.to_uppercase());
        let (_, rest) = word.split_at(first.len_utf8());
        if rest.contains('Σ') {
            return Err(uncertain());
        }
        out.push_str(&rest.to_lowercase());
    }
    Ok(out)
}

/// `str.isdigit()`, `str.isnumeric()`, `str.isdecimal()`
pub fn is_number(text: &str) -> Result<bool, Error> {
    all(text, |letter| letter.is_ascii_digit(), |letter| if letter.is_numeric() { None } else { Some(false) })
}

/// `str.isalpha()`
pub fn is_alphabetic(text: &str) -> Result<bool, Error> {
    all(text, |letter| letter.is_ascii_alphabetic(), other_letter)
}

/// `str.isalnum()`
pub fn is_alphanumeric(text: &str) -> Result<bool, Error> {
    all(text, |letter| letter.is_ascii_alphanumeric(), other_letter)
}

/// Whether every letter is of a class: false as soon as one is surely not, an error when one may be.
fn all(
    text: &str,
    ascii: impl Fn(char) -> bool,
    other: impl Fn(char) -> Option<bool>,
) -> Result<bool, Error> {
    let mut certain = true;
    for letter in text.chars() {
        match if letter.is_ascii() { Some(ascii(letter)) } else { other(letter) } {
            Some(true) => {}
            Some(false) => return Ok(false),
            None => certain = false,
        }
    }
    if certain { Ok(!text.is_empty()) } else { Err(uncertain()) }
}

fn other_letter(letter: char) -> Option<bool> {
    let common = matches!(letter,
        'À'..='Ö' | 'Ø'..='ö' | 'ø'..='ˁ' | 'Α'..='Ρ' | 'Σ'..='ώ' | 'Ѐ'..='ҁ' | 'Ҋ'..='ԯ' | 'ぁ'..='ゖ' | 'ァ'..='ヺ'
        | '一'..='\u{9fef}' | '가'..='힣');
    match (common, letter.is_alphanumeric()) {
        (true, _) => Some(true),
        (false, false) => Some(false),
        (false, true) => None,
    }
}

/// `repr`: whether a letter other than ASCII stands for itself; none where that depends on the Unicode version.
pub fn is_printable(letter: char) -> Option<bool> {
    let shown = matches!(letter,
        '\u{a1}'..='\u{ac}' | '\u{ae}'..='\u{377}' | '\u{400}'..='\u{52f}' | '\u{5d0}'..='\u{5ea}' | '\u{620}'..='\u{66f}'
        | '\u{900}'..='\u{97f}' | '\u{e01}'..='\u{e3a}' | '\u{e3f}'..='\u{e5b}' | '\u{1e00}'..='\u{1eff}'
        | '\u{2010}'..='\u{2027}' | '\u{2030}'..='\u{205e}' | '\u{20a0}'..='\u{20bf}' | '\u{2100}'..='\u{218b}'
        | '\u{2190}'..='\u{2426}' | '\u{2460}'..='\u{2b73}' | '\u{3001}'..='\u{303f}' | '\u{3041}'..='\u{3096}'
        | '\u{3099}'..='\u{30ff}' | '\u{3400}'..='\u{4db5}' | '\u{4e00}'..='\u{9fef}' | '\u{ac00}'..='\u{d7a3}'
        | '\u{fe00}'..='\u{fe0f}' | '\u{ff01}'..='\u{ffbe}' | '\u{1f300}'..='\u{1f64f}' | '\u{1f680}'..='\u{1f6c5}'
        | '\u{1f1e6}'..='\u{1f1ff}' | '\u{1f910}'..='\u{1f93e}' | '\u{20000}'..='\u{2a6d6}');
    let hidden = matches!(letter,
        '\u{80}'..='\u{a0}' | '\u{ad}' | '\u{1680}' | '\u{180e}' | '\u{2000}'..='\u{200f}' | '\u{2028}'..='\u{202f}'
        | '\u{205f}'..='\u{206f}' | '\u{3000}' | '\u{e000}'..='\u{f8ff}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
        | '\u{fffe}'..='\u{ffff}' | '\u{e0001}' | '\u{e0020}'..='\u{e007f}' | '\u{f0000}'..='\u{10ffff}');
    match (shown, hidden) {
        (true, _) => Some(true),
        (_, true) => Some(false),
        _ => None,
    }
}

/// A letter in title case, where that is one letter and the same as the capital.
fn title_letter(letter: char) -> Result<char, Error> {
    // Digraphs with a third form of their own, and Georgian, whose words take no capitals.
    if matches!(letter, 'Ǆ'..='ǌ' | 'Ǳ'..='ǳ' | 'ა'..='ჿ' | '\u{1c90}'..='\u{1cbf}') {
        return Err(uncertain());
    }
    let mut upper = letter.to_uppercase();
    match (upper.next(), upper.next()) {
        (Some(upper), None) => Ok(upper),
        _ => Err(uncertain()),
    }
}

/// No letter that got its case, or its partner, after Unicode 14: engines run on older tables.
fn stable(text: &str) -> Result<(), Error> {
    let young = |letter: char| {
        matches!(letter,
            '\u{19b}' | '\u{264}' | '\u{1c89}' | '\u{1c8a}' | '\u{a7cb}'..='\u{a7cf}' | '\u{a7d2}'..='\u{a7d5}'
            | '\u{a7da}'..='\u{a7dc}' | '\u{a7f1}' | '\u{10d50}'..='\u{10d85}' | '\u{16ea0}'..='\u{16ed3}'
            | '\u{1df25}'..='\u{1df2a}' | '\u{1e030}'..='\u{1e06d}')
    };
    if text.is_ascii() || !text.chars().any(young) { Ok(()) } else { Err(uncertain()) }
}

/// Marks an error as ours: the engine may well render the request.
#[derive(Debug, thiserror::Error)]
#[error("the result depends on the Unicode version")]
struct Uncertain;

/// The error for letters whose treatment differs from one Unicode version to the next.
pub fn uncertain() -> Error {
    Error::new(ErrorKind::InvalidOperation, "uncertain").with_source(Uncertain)
}

/// Whether an error is [`uncertain`].
pub fn is_uncertain(error: &Error) -> bool {
    environment::has_source::<Uncertain>(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_is_python_s() {
        assert_eq!(title("don't stop: a_b 1st ÉCOLE x²y").unwrap(), "Don'T Stop: A_B 1St École X²Y");
        assert_eq!(title_words("don't stop: a_b (x y-z) <TOOL").unwrap(), "Don't Stop: A_b (X Y-Z) <Tool");
        assert_eq!(capitalize("ÄRGER Oder").unwrap(), "Ärger oder");
        assert_eq!(capitalize("").unwrap(), "");
        assert_eq!(
            (upper("straße").unwrap(), lower("ΣΊΣΥΦΟΣ").unwrap()),
            ("STRASSE".into(), "σίσυφος".into())
        );
    }

    #[test]
    fn what_depends_on_the_tables_is_refused() {
        for text in ["ﬁn", "ǆ", "გამარჯობა", "ßa"] {
            assert!(title(text).is_err() && capitalize(text).is_err(), "{text}");
        }
        for text in ["ƛ", "\u{1e030}"] {
            assert!(upper(text).is_err() && lower(text).is_err() && title(text).is_err(), "{text}");
        }
        assert!(title("aΣ").is_err());
        assert_eq!(title("aßb ﬀ").ok(), None);
        assert_eq!(title("aßb").unwrap(), "Aßb");
    }

    #[test]
    fn classes_are_answered_where_they_are_certain() {
        assert_eq!(is_number("123").ok(), Some(true));
        assert_eq!(is_number("12é").ok(), Some(false));
        assert!(is_number("12²").is_err());
        assert_eq!(is_number("²x").ok(), Some(false));
        assert_eq!(is_number("").ok(), Some(false));
        assert_eq!(is_alphabetic("Größe你").ok(), Some(true));
        assert_eq!(is_alphanumeric("x1。").ok(), Some(false));
        assert!(is_alphanumeric("x\u{11f02}").is_err());
    }

    #[test]
    fn letters_are_printed_or_escaped_or_unknown() {
        for (letter, expected) in [
            ('é', Some(true)),
            ('你', Some(true)),
            ('😀', Some(true)),
            ('\u{a0}', Some(false)),
            ('\u{200d}', Some(false)),
            ('\u{e0067}', Some(false)),
            ('\u{1fae8}', None),
        ] {
            assert_eq!(is_printable(letter), expected, "{letter:?}");
        }
    }
}
