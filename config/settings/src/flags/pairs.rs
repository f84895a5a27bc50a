//! Flags of the form `NAME=VALUE`: a model, a tokenizer, an event source.

use crate::models_file::MOST_RANKS;

/// `NAME=URL[,URL...]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ModelFlag {
    pub name: String,
    pub urls: Vec<String>,
}

impl ModelFlag {
    /// # Errors
    /// What is wrong.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let wanted = || format!("{text:?} is no model; write NAME=http://HOST:PORT[,http://HOST:PORT...]");
        let (name, urls) = text.split_once('=').ok_or_else(wanted)?;
        let urls: Vec<String> =
            urls.split(',').map(str::trim).filter(|url| !url.is_empty()).map(str::to_owned).collect();
        let name = name.trim();
        if name.is_empty() || urls.is_empty() {
            return Err(wanted());
        }
        Ok(Self { name: name.to_owned(), urls })
    }
}

/// `NAME=DIR`
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TokenizerFlag {
    pub name: String,
    pub directory: String,
}

impl TokenizerFlag {
    /// # Errors
    /// What is wrong.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some((name, directory)) if !name.trim().is_empty() && !directory.trim().is_empty() => {
                Ok(Self { name: name.trim().to_owned(), directory: directory.trim().to_owned() })
            }
            _ => Err(format!("{text:?} is no tokenizer; write NAME=DIRECTORY")),
        }
    }
}

/// `URL=tcp://HOST:PORT[,replay=tcp://HOST:PORT][,topic=PREFIX][,rank=N][,bind]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KvEventsFlag {
    pub url: String,
    pub endpoint: String,
    pub replay: Option<String>,
    pub topic: String,
    pub rank: u32,
    pub bind: bool,
}

impl KvEventsFlag {
    /// # Errors
    /// What is wrong.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let wanted = || format!("{text:?} is no event source; write URL=tcp://HOST:PORT");
        let at = text.find("=tcp://").ok_or_else(wanted)?;
        Self::parse_source(text, text[..at].trim(), &text[at + 1..])
    }

    /// The part after the URL: `tcp://HOST:PORT` and its options. `text` is what errors quote.
    ///
    /// # Errors
    /// What is wrong.
    pub(crate) fn parse_source(text: &str, url: &str, source: &str) -> Result<Self, String> {
        let mut parts = source.split(',');
        let endpoint = parts.next().unwrap_or_default();
        let mut flag = Self {
            url: url.to_owned(),
            endpoint: endpoint.trim().to_owned(),
            replay: None,
            topic: String::new(),
            rank: 0,
            bind: false,
        };
        for part in parts {
            match part.trim().split_once('=').unwrap_or((part.trim(), "")) {
                ("replay", value) if !value.is_empty() => flag.replay = Some(value.to_owned()),
                ("topic", value) => flag.topic = value.to_owned(),
                ("rank", value) => {
                    flag.rank = value.parse().ok().filter(|rank| *rank < MOST_RANKS).ok_or_else(|| {
                        format!("{text:?}: the rank {value:?} is no number from 0 to {}", MOST_RANKS - 1)
                    })?;
                }
                ("bind", "") => flag.bind = true,
                _ => {
                    return Err(format!(
                        "{text:?}: {part:?} is unknown; known are replay=tcp://HOST:PORT, topic=PREFIX, rank=N, bind"
                    ));
                }
            }
        }
        Ok(flag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_and_tokenizers_are_pairs() {
        let model = ModelFlag::parse("qwen=http://a:1, http://b:2,");
        assert_eq!(
            model,
            Ok(ModelFlag { name: "qwen".into(), urls: vec!["http://a:1".into(), "http://b:2".into()] })
        );
        for text in ["", "qwen", "=http://a", "qwen=", "qwen=,"] {
            assert!(ModelFlag::parse(text).is_err(), "{text}");
        }
        let tokenizer = TokenizerFlag::parse("qwen=/models/a=b");
        assert_eq!(tokenizer.map(|flag| flag.directory), Ok("/models/a=b".to_owned()));
        assert!(TokenizerFlag::parse("/models").is_err() && TokenizerFlag::parse("a=").is_err());
    }

    #[test]
    fn an_event_source_takes_options_in_any_order() {
        let text = "http://a:8000=tcp://a:5557,rank=3,replay=tcp://a:5657,topic=kv-events,bind";
        let flag = KvEventsFlag {
            url: "http://a:8000".into(),
            endpoint: "tcp://a:5557".into(),
            replay: Some("tcp://a:5657".into()),
            topic: "kv-events".into(),
            rank: 3,
            bind: true,
        };
        assert_eq!(KvEventsFlag::parse(text), Ok(flag));
        for (text, part) in [
            ("http://a:8000", "no event source"),
            ("http://a:8000=udp://a:1", "no event source"),
            ("http://a=tcp://a:1,rank=x", "the rank"),
            ("http://a=tcp://a:1,rank=1024", "the rank"),
            ("http://a=tcp://a:1,replay=", "unknown"),
            ("http://a=tcp://a:1,bind=yes", "unknown"),
            ("http://a=tcp://a:1,hwm=5", "unknown"),
        ] {
            let error = KvEventsFlag::parse(text).err().unwrap_or_default();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
