//! `{% generation %}` marks what the assistant wrote, for training. It prints its body and nothing else.

/// Turns the generation tags into `with` blocks: no output of their own, the same white-space control, and a scope
/// that assignments do not leave, as in the engine.
pub fn drop_tags(source: &str) -> String {
    let source = source.replace("\r\n", "\n").replace('\r', "\n");
    let mut out = String::with_capacity(source.len());
    let mut rest = source.as_str();
    while let Some(start) = rest.find("{%") {
        let (before, tag) = rest.split_at(start);
        out.push_str(before);
        let Some(end) = tag.find("%}") else {
            out.push_str(tag);
            return out;
        };
        let (inner, after) = (&tag[2..end], &tag[end + 2..]);
        let name = inner.trim_matches(|c: char| c.is_whitespace() || c == '-' || c == '+');
        let replacement = match name {
            "generation" => Some("with"),
            "endgeneration" => Some("endwith"),
            _ => None,
        };
        match replacement {
            Some(word) => {
                out.push_str("{%");
                out.push_str(&inner.replacen(name, word, 1));
                out.push_str("%}");
            }
            None => out.push_str(&tag[..end + 2]),
        }
        rest = after;
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_tags_change() {
        assert_eq!(
            drop_tags("a{%- generation -%}b{% endgeneration %}\r\nc{% set generation = 1 %}{{ x }}"),
            "a{%- with -%}b{% endwith %}\nc{% set generation = 1 %}{{ x }}"
        );
        assert_eq!(drop_tags("no tags {{ x }}"), "no tags {{ x }}");
        assert_eq!(drop_tags("open {% generation"), "open {% generation");
    }
}
