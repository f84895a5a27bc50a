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

    /// At least `bytes` bytes from line `line` on, up to the end of a line, and the number of the next line; nothing where
    /// so much is not left.
    pub fn from_line(&self, line: usize, bytes: usize) -> Option<(&str, usize)> {
        let start = *self.lines.get(line)?;
        let after = self.lines.partition_point(|begin| *begin < start + bytes);
        let end = match self.lines.get(after) {
            Some(end) => *end,
            None if self.escaped.len() >= start + bytes => self.escaped.len(),
            None => return None,
        };
        Some((self.escaped.get(start..end)?, after))
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
    fn reading_on_gives_all_of_it_once() {
        let corpus = corpus();
        let (mut line, mut whole) = (0, String::new());
        while let Some((passage, next)) = corpus.from_line(line, 1000) {
            assert!(passage.len() >= 1000 && next > line, "{}", passage.len());
            whole.push_str(passage);
            line = next;
        }
        assert!(corpus.escaped.starts_with(&whole) && corpus.escaped.len() - whole.len() < 1000);
        assert_eq!(corpus.from_line(corpus.lines.len(), 0), None);
    }

    #[test]
    fn a_passage_longer_than_the_text_is_the_text() {
        let corpus = corpus();
        let passage = corpus.passage(1 << 20, &mut StdRng::seed_from_u64(1));
        assert_eq!(passage.len(), corpus.escaped.len());
        assert!(Corpus::new("one line").is_err());
    }
}
