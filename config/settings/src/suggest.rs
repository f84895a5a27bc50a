//! "Did you mean": the known word closest to one that was mistyped.

/// The known word that `word` most likely stands for, when one is close enough to be worth saying.
///
/// Case and separators are not counted, so `kv-cache-aware` finds `kvcache-aware`; beyond that one edit is
/// allowed for every three letters of it. Of equally close words the first wins.
pub(crate) fn closest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let wanted = letters(word);
    if wanted.is_empty() || wanted.len() > LONGEST_WORD {
        return None;
    }
    known
        .into_iter()
        .map(|candidate| (edits(&wanted, &letters(candidate)), candidate))
        .filter(|(edits, candidate)| {
            *edits <= wanted.len() / 3 && candidate.len() <= LONGEST_WORD && *candidate != word
        })
        .min_by_key(|(edits, _)| *edits)
        .map(|(_, candidate)| candidate)
}

/// Longer words are not compared: the work grows with the product of both lengths.
const LONGEST_WORD: usize = 64;

fn letters(word: &str) -> Vec<char> {
    word.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

/// Insertions, removals, replacements and swaps of neighbours that turn one word into the other.
fn edits(from: &[char], to: &[char]) -> usize {
    let width = to.len() + 1;
    let mut table = vec![0; (from.len() + 1) * width];
    for (column, cell) in table.iter_mut().take(width).enumerate() {
        *cell = column;
    }
    for row in 1..=from.len() {
        table[row * width] = row;
        for column in 1..width {
            let same = usize::from(from[row - 1] != to[column - 1]);
            let mut best = (table[(row - 1) * width + column] + 1)
                .min(table[row * width + column - 1] + 1)
                .min(table[(row - 1) * width + column - 1] + same);
            if row > 1 && column > 1 && from[row - 1] == to[column - 2] && from[row - 2] == to[column - 1] {
                best = best.min(table[(row - 2) * width + column - 2] + 1);
            }
            table[row * width + column] = best;
        }
    }
    table.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistyped_word_finds_its_neighbour() {
        let known = ["least-request", "least-latency", "kvcache-aware", "gpu-usage", "args", "Filter"];
        for (word, expected) in [
            ("kv-cache-aware", Some("kvcache-aware")),
            ("least_request", Some("least-request")),
            ("leastlatency", Some("least-latency")),
            ("gpu-usgae", Some("gpu-usage")),
            ("filter", Some("Filter")),
            ("arg", Some("args")),
            ("prefix", None),
            ("", None),
            ("--", None),
        ] {
            assert_eq!(closest(word, known), expected, "{word}");
        }
    }

    #[test]
    fn a_word_never_suggests_itself_and_a_huge_one_nothing() {
        assert_eq!(closest("args", ["args"]), None);
        assert_eq!(closest(&"a".repeat(10_000), ["aaaa"]), None);
    }
}
