use proptest::prelude::*;
use serde::Deserialize;

use super::*;

/// Made by Go 1.26's own `regexp`: the texts tried, then one expression a line with what it finds or why it is refused.
const GO: &str = include_str!("../../tests/data/re2_go_1_26.jsonl");

#[derive(Deserialize)]
struct Texts {
    texts: Vec<String>,
}

#[derive(Deserialize)]
struct Judged {
    pattern: String,
    error: Option<String>,
    found: Vec<String>,
}

#[test]
fn expressions_mean_what_they_mean_in_go() {
    let (first, rows) = GO.split_once('\n').unwrap();
    let texts: Texts = serde_json::from_str(first).unwrap();
    let mut wrong = Vec::new();
    let rows: Vec<Judged> = rows.lines().map(|row| serde_json::from_str(row).unwrap()).collect();
    assert!(rows.len() > 150, "{}", rows.len());
    for Judged { pattern, error, found } in rows {
        match (compile(&pattern), error) {
            (Ok(regex), None) => {
                for text in &texts.texts {
                    if regex.is_match(text) != found.contains(text) {
                        wrong.push(format!("{pattern} in {text:?}: Go says {}", found.contains(text)));
                    }
                }
            }
            (Err(ours), Some(gos)) if ours.to_string() == gos => {}
            (ours, gos) => {
                wrong.push(format!("{pattern}: {:?} is Go's {gos:?}", ours.map_err(|e| e.to_string())))
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_program_that_would_be_too_large_is_refused() {
    let error = compile(r"(?:\pL{1000}){1000}").unwrap_err();
    assert!(error.to_string().starts_with("error parsing regexp: expression too large"), "{error}");
}

proptest! {
    /// Whatever users write, the translation neither panics nor makes an error out of plain text.
    #[test]
    fn any_text_is_compiled_or_refused(pattern in r"[\\\[\](){}?*+|^$.:<>PQEdwsbpx0-9a-c,&~é-]{0,12}") {
        let _ = compile(&pattern);
    }

    #[test]
    fn quoted_text_finds_itself(text in r"[ -~é\n]{0,16}") {
        prop_assume!(!text.contains('\\'));
        let regex = compile(&format!(r"^\Q{text}\E$")).unwrap();
        prop_assert!(regex.is_match(&text), "{}", regex);
    }
}

#[test]
fn who_compiles_the_same_shares_it() {
    let place = |regex: &Regex| regex.as_str().as_ptr();
    let first = compile("^shared-[0-9]+$").unwrap();
    assert_eq!(place(&first), place(&compile("^shared-[0-9]+$").unwrap()));
    assert_ne!(place(&first), place(&compile("^shared-[0-8]+$").unwrap()));
    let all: Vec<Regex> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| compile("^at once$").unwrap())).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(all.iter().all(|regex| place(regex) == place(&all[0])));
    assert_eq!(compile("shared(").err(), compile("shared(").err());
    assert!(compile("shared(").is_err());
}

#[test]
fn large_programs_weigh_more() {
    for (pattern, weight) in [
        (r"^(premium|team-5)$", 1),
        (r"^/v1/models/[^/]+/(chat|completions)$", 1),
        (r"\pL{5}", 10),
        (r"\pL{50}", LARGEST_WEIGHT),
        (r"[", 1),
    ] {
        assert_eq!(compile_anew(pattern).1, weight, "{pattern}");
    }
    let large = compile_anew(r"(\pL{100}){100}").0.map_err(|problem| problem.to_string());
    assert!(large.is_err_and(|problem| problem.contains("too large")));
}
