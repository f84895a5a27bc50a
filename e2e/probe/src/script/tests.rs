//! Tests of the scripts: sharing, growth, determinism.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::Value;

use super::*;
use crate::config::Api;

fn config(workload: Workload) -> LoadConfig {
    LoadConfig { salt: "salt\"y".to_owned(), ..LoadConfig::new("http://a", "m", workload) }
}

fn contents(body: &Bytes) -> Vec<(String, String)> {
    let body: Value = serde_json::from_slice(body).unwrap();
    body["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|message| {
            (message["role"].as_str().unwrap().to_owned(), message["content"].as_str().unwrap().to_owned())
        })
        .collect()
}

fn only_text(body: &Bytes) -> String {
    let messages = contents(body);
    assert_eq!(messages.len(), 1);
    messages[0].1.clone()
}

#[test]
fn a_group_shares_its_prefix_and_nothing_else() {
    let workload = Workload::SharedPrefix { groups: 3, prefix_tokens: 1300, tail_tokens: 13 };
    let script = Script::new(&config(workload)).unwrap();
    let texts: Vec<String> = (0..60).map(|index| only_text(&script.open(index).next_body())).collect();
    let halves: Vec<(&str, &str)> = texts.iter().map(|text| text.split_once("\n\n").unwrap()).collect();
    let prefixes: BTreeSet<&str> = halves.iter().map(|half| half.0).collect();
    let tails: BTreeSet<&str> = halves.iter().map(|half| half.1).collect();
    assert_eq!((prefixes.len(), tails.len()), (3, 60));
    for (prefix, tail) in halves {
        assert!(prefix.starts_with("salt\"y "), "the salt is at the very start");
        assert_eq!(prefix.split(' ').count(), 1 + 1000, "1300 tokens are 1000 words, after the salt");
        assert_eq!(tail.split(' ').count(), 10);
    }
    assert!((script.shared_fraction() - 1000.0 / 1010.0).abs() < 1e-9);
}

#[test]
fn the_same_seed_gives_the_same_bodies_in_any_order() {
    let workload = Workload::SharedPrefix { groups: 4, prefix_tokens: 100, tail_tokens: 10 };
    let (one, two) = (Script::new(&config(workload)).unwrap(), Script::new(&config(workload)).unwrap());
    for index in (0..20).rev() {
        assert_eq!(one.open(index).next_body(), two.open(index).next_body());
    }
    let other = Script::new(&LoadConfig { seed: 2, ..config(workload) }).unwrap();
    assert_ne!(one.open(0).next_body(), other.open(0).next_body());
}

#[test]
fn a_conversation_grows_by_the_answers_it_was_given() {
    let workload = Workload::MultiTurn {
        users: 2,
        turns: 3,
        system_prompts: 2,
        system_tokens: 100,
        turn_tokens: 13,
        think_time: Duration::ZERO,
    };
    let script = Script::new(&config(workload)).unwrap();
    let mut dialogue = script.open(0);
    let first = contents(&dialogue.next_body());
    dialogue.hear("answer \"one\"\n");
    let second = contents(&dialogue.next_body());
    dialogue.hear("answer two");
    let third = contents(&dialogue.next_body());
    assert!(!dialogue.has_next());

    assert_eq!(first.len(), 2);
    assert!(first[0].0 == "system" && first[0].1.starts_with("salt\"y "));
    assert_eq!(second[..2], first[..]);
    assert_eq!(second[2], ("assistant".to_owned(), "answer \"one\"\n".to_owned()));
    assert_eq!(third[..4], second[..]);
    assert_eq!(third[4], ("assistant".to_owned(), "answer two".to_owned()));
    assert_eq!(third.len(), 6);
    assert_ne!(first[1], second[3], "every turn adds new words");

    let system = |index| contents(&script.open(index).next_body())[0].1.clone();
    assert_eq!(system(0), system(2), "two system prompts are dealt in turn");
    assert_ne!(system(0), system(1));
}

#[test]
fn without_system_prompts_the_salt_opens_the_first_turn_only() {
    let workload = Workload::MultiTurn {
        users: 1,
        turns: 2,
        system_prompts: 0,
        system_tokens: 0,
        turn_tokens: 13,
        think_time: Duration::ZERO,
    };
    let mut config = config(workload);
    config.target.api = Api::Completions;
    let script = Script::new(&config).unwrap();
    let mut dialogue = script.open(5);
    let prompt =
        |body: Bytes| serde_json::from_slice::<Value>(&body).unwrap()["prompt"].as_str().unwrap().to_owned();
    let first = prompt(dialogue.next_body());
    dialogue.hear(" and so on");
    let second = prompt(dialogue.next_body());
    assert!(second.starts_with(&(first + " and so on\n\n")), "the text runs on");
    assert_eq!(second.matches("salt").count(), 1);
}

#[test]
fn unique_prompts_differ_from_their_first_word_even_from_a_tiny_file() {
    let config = LoadConfig {
        prompt_text: Some("only \u{e4} \"few\" words".to_owned()),
        salt: String::new(),
        ..config(Workload::Unique { prompt_tokens: 40 })
    };
    let script = Script::new(&config).unwrap();
    let starts: BTreeSet<String> =
        (0..100).map(|index| only_text(&script.open(index).next_body())[..12].to_owned()).collect();
    assert_eq!(starts.len(), 100);
}

#[test]
fn nonsense_is_refused() {
    let bad = LoadConfig { tokens_per_word: 0.0, ..config(Workload::Short) };
    assert!(Script::new(&bad).is_err());
    let bad = config(Workload::Unique { prompt_tokens: 0 });
    assert!(Script::new(&bad).is_err());
}
