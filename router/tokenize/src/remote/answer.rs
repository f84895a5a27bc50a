//! Answers of `/tokenize`, checked.

use serde::Deserialize;

#[derive(Deserialize)]
struct Answer {
    tokens: Vec<u32>,
    count: Option<usize>,
}

/// The ids. The rest of the answer does not matter; `max_model_len` may be any number.
pub fn ids(body: &[u8]) -> Result<Vec<u32>, &'static str> {
    let answer: Answer = serde_json::from_slice(body).map_err(|_| "the answer is not understood")?;
    if answer.count.is_some_and(|count| count != answer.tokens.len()) {
        return Err("the answer's count differs from its ids");
    }
    if answer.tokens.is_empty() {
        return Err("the answer has no ids");
    }
    Ok(answer.tokens)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_answers_count() {
        assert_eq!(
            ids(br#"{"count":2,"max_model_len":1e30,"tokens":[1,4294967295],"token_strs":null}"#),
            Ok(vec![1, u32::MAX])
        );
        assert_eq!(ids(br#"{"tokens":[1]}"#), Ok(vec![1]));
        for bad in [
            "",
            "{}",
            "[]",
            "null",
            r#"{"tokens":null}"#,
            r#"{"tokens":[]}"#,
            r#"{"tokens":[1.5]}"#,
            r#"{"tokens":[-1]}"#,
            r#"{"tokens":[4294967296]}"#,
            r#"{"tokens":[[1]]}"#,
            r#"{"count":3,"tokens":[1]}"#,
            r#"{"tokens":[1]"#,
            "<html>",
        ] {
            assert!(ids(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
