//! Real text, cut at line ends into passages of any size.

use rand::RngExt as _;
use rand::rngs::StdRng;

/// Text that is ready to stand inside a JSON string.
#[derive(Debug)]
pub struct Corpus {
    escaped: String,
    /// Where each line begins in `escaped`.
    lines: Vec<usize>,
}

impl Corpus {
    /// Takes a text in.
    ///
    /// # Errors
    /// The text has too few lines to cut different passages from.
    pub fn new(text: &str) -> anyhow::Result<Self> {
        let mut escaped = String::with_capacity(text.len() + text.len() / 8);
        let mut lines = Vec::new();
        for line in text.split_inclusive('\n') {
            lines.push(escaped.len());
            let quoted = serde_json::to_string(line)?;
            escaped.push_str(quoted.trim_start_matches('"').strip_suffix('"').unwrap_or_default());
        }
        anyhow::ensure!(lines.len() > 100, "the text has {} lines; it needs more than 100", lines.len());
        Ok(Self { escaped, lines })
    }

    /// At least `bytes` bytes from a random line on, up to the end of a line; less only near the end of a short
    /// text.
    pub fn passage(&self, bytes: usize, rng: &mut StdRng) -> &str {
        let starts = self.lines.partition_point(|start| start + bytes < self.escaped.len()).max(1);
        let start = self.lines.get(rng.random_range(0..starts)).copied().unwrap_or_default();
        let after = self.lines.partition_point(|line| *line < start + bytes);
        let end = self.lines.get(after).copied().unwrap_or(self.escaped.len());
        self.escaped.get(start..end).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng as _;

    use super::*;

    fn corpus() -> Corpus {
        let text: String = (0..500).map(|line| format!("line {line}: \"quoted\"\tand \\ more\n")).collect();
        Corpus::new(&text).unwrap()
    }

    #[test]
    fn passages_are_whole_json_text_of_about_the_size() {
        let corpus = corpus();
        let mut rng = StdRng::seed_from_u64(1);
        for bytes in [1, 100, 4000] {
            for _ in 0..50 {
                let passage = corpus.passage(bytes, &mut rng);
                assert!(passage.len() >= bytes && passage.len() < bytes + 100, "{}", passage.len());
                let text: String = serde_json::from_str(&format!("\"{passage}\"")).unwrap();
                assert!(text.starts_with("line ") && text.ends_with('\n'));
            }
        }
    }

    #[test]
    fn a_passage_longer_than_the_text_is_the_text() {
        let corpus = corpus();
        let passage = corpus.passage(1 << 20, &mut StdRng::seed_from_u64(1));
        assert_eq!(passage.len(), corpus.escaped.len());
        assert!(Corpus::new("one line").is_err());
    }
}
