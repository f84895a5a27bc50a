//! A test on a piece of text: a header, a path, a parameter.

use std::sync::Arc;

use regex::Regex;

/// What a text must be. Everything but [`StringTest::Regex`] compares bytes.
#[derive(Clone, Debug)]
pub enum StringTest {
    /// Equal to this.
    Exact(Arc<str>),
    /// Begins with this.
    Prefix(Arc<str>),
    /// Found in it.
    Regex(Regex),
    /// Anything.
    Any,
    /// Nothing: a test that cannot be understood lets no text pass.
    Never,
}

impl StringTest {
    /// Whether `text` passes.
    pub fn passes(&self, text: &str) -> bool {
        match self {
            Self::Exact(wanted) => **wanted == *text,
            Self::Prefix(wanted) => text.starts_with(&**wanted),
            Self::Regex(regex) => regex.is_match(text),
            Self::Any => true,
            Self::Never => false,
        }
    }
}

impl PartialEq for StringTest {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Exact(one), Self::Exact(other)) | (Self::Prefix(one), Self::Prefix(other)) => one == other,
            (Self::Regex(one), Self::Regex(other)) => same_pattern(one, other),
            (Self::Any, Self::Any) | (Self::Never, Self::Never) => true,
            _ => false,
        }
    }
}

/// Two expressions with one text are one expression.
pub(crate) fn same_pattern(one: &Regex, other: &Regex) -> bool {
    one.as_str() == other.as_str()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_test_has_its_texts() {
        let regex = |pattern| StringTest::Regex(Regex::new(pattern).expect("a good pattern"));
        for (test, good, bad) in [
            (StringTest::Exact("ab".into()), vec!["ab"], vec!["", "abc", "AB"]),
            (StringTest::Exact("".into()), vec![""], vec!["a"]),
            (StringTest::Prefix("ab".into()), vec!["ab", "abc"], vec!["", "a", "Ab"]),
            (StringTest::Prefix("".into()), vec!["", "a"], vec![]),
            (regex("b+"), vec!["abb", "b"], vec!["", "B"]),
            (regex(".*"), vec!["", "x"], vec![]),
            (StringTest::Any, vec!["", "x"], vec![]),
            (StringTest::Never, vec![], vec!["", "x"]),
        ] {
            assert!(good.iter().all(|text| test.passes(text)), "{test:?}");
            assert!(!bad.iter().any(|text| test.passes(text)), "{test:?}");
            assert_eq!(test, test.clone());
        }
        assert_ne!(regex("a"), regex("b"));
        assert_ne!(StringTest::Exact("a".into()), StringTest::Prefix("a".into()));
    }
}
