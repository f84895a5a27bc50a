//! Chat bodies: conversations of real text that never repeat unless they are meant to.

use bytes::Bytes;
use rand::SeedableRng as _;
use rand::rngs::StdRng;

use crate::corpus::Corpus;

/// Text of an assistant's answer between two turns, bytes.
const ANSWER_BYTES: usize = 200;

/// How large the parts of a conversation are, in bytes of text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sizes {
    /// Everything up to the first answer that is measured.
    pub first: usize,
    /// One message of it.
    pub message: usize,
    /// What the user adds with each later turn.
    pub turn: usize,
}

/// Makes bodies. The same numbers give the same body.
#[derive(Debug)]
pub struct Conversations<'a> {
    /// Where text comes from.
    pub corpus: &'a Corpus,
    /// Model name in the body.
    pub model: String,
    /// Whether bodies ask for a stream.
    pub stream: bool,
    /// `max_tokens` in the body.
    pub max_tokens: u32,
    /// Bodies of two seeds share no message.
    pub seed: u64,
    /// Sizes.
    pub sizes: Sizes,
}

impl Conversations<'_> {
    /// Turn `turn` (from 0) of a conversation: its first part, then an answer and a question for each later turn.
    pub fn body(&self, conversation: u64, turn: u32) -> Bytes {
        let mut text = self.start(turn);
        self.push_first(conversation, &mut text);
        for later in 1..=turn {
            let number = 1_000_000 + u64::from(later) * 2;
            self.push(&mut text, "assistant", conversation, number, ANSWER_BYTES);
            self.push(&mut text, "user", conversation, number + 1, self.sizes.turn);
        }
        text.push_str("]}");
        text.into()
    }

    /// The first part of conversation `group`, ended by a turn that only `number` has.
    pub fn shared_body(&self, group: u64, number: u64) -> Bytes {
        let mut text = self.start(1);
        self.push_first(group, &mut text);
        self.push(&mut text, "assistant", group, 1_000_000, ANSWER_BYTES);
        self.push(&mut text, "user", group, 2_000_000 + number, self.sizes.turn);
        text.push_str("]}");
        text.into()
    }

    fn start(&self, turns: u32) -> String {
        let later = turns as usize * (self.sizes.turn + ANSWER_BYTES + 256);
        let mut text = String::with_capacity(self.sizes.first + self.sizes.first / 4 + later + 1024);
        let model = serde_json::Value::from(self.model.as_str());
        let (stream, most) = (self.stream, self.max_tokens);
        text.push_str(&format!(r#"{{"model":{model},"stream":{stream},"max_tokens":{most},"messages":["#));
        text
    }

    fn push_first(&self, conversation: u64, text: &mut String) {
        let messages = self.sizes.first.div_ceil(self.sizes.message.max(1)).max(2);
        for number in 0..messages as u64 {
            // The last one is the user's, and the first sets the stage.
            let role = match messages as u64 - 1 - number {
                _ if number == 0 => "system",
                from_end if from_end.is_multiple_of(2) => "user",
                _ => "assistant",
            };
            self.push(text, role, conversation, number, self.sizes.first / messages);
        }
    }

    fn push(&self, text: &mut String, role: &str, conversation: u64, number: u64, bytes: usize) {
        let seed = self.seed
            ^ conversation.wrapping_mul(0x9e37_79b9_7f4a_7c15)
            ^ number.wrapping_mul(0xc2b2_ae3d_27d4_eb4f);
        let mut rng = StdRng::seed_from_u64(seed);
        if !text.ends_with('[') {
            text.push(',');
        }
        // The number keeps two messages apart that happen to start at the same line.
        text.push_str(&format!(r#"{{"role":"{role}","content":"No. {seed:016x}: "#));
        text.push_str(self.corpus.passage(bytes.saturating_sub(48), &mut rng));
        text.push_str("\"}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn corpus() -> Corpus {
        let text: String = (0..2000).map(|line| format!("line {line} says \"this\" and that\n")).collect();
        Corpus::new(&text).unwrap()
    }

    fn conversations(corpus: &Corpus, seed: u64) -> Conversations<'_> {
        let sizes = Sizes { first: 8000, message: 1000, turn: 500 };
        Conversations { corpus, model: "m".to_owned(), stream: true, max_tokens: 4, seed, sizes }
    }

    fn messages(body: &Bytes) -> Vec<Value> {
        let value: Value = serde_json::from_slice(body).unwrap();
        assert_eq!(value["stream"], true);
        value["messages"].as_array().unwrap().clone()
    }

    #[test]
    fn a_later_turn_continues_the_one_before() {
        let corpus = corpus();
        let maker = conversations(&corpus, 1);
        let (first, third) = (messages(&maker.body(7, 0)), messages(&maker.body(7, 2)));
        assert_eq!(first.len(), 8);
        assert_eq!(third.len(), 12);
        assert_eq!(third[..8], first[..]);
        assert_eq!(third[..10], messages(&maker.body(7, 1))[..]);
        let roles: Vec<_> = third.iter().map(|message| message["role"].as_str().unwrap()).collect();
        assert_eq!((roles[0], roles[7], roles[8], roles[11]), ("system", "user", "assistant", "user"));
    }

    #[test]
    fn conversations_and_seeds_share_no_message() {
        let corpus = corpus();
        let all = [
            messages(&conversations(&corpus, 1).body(0, 1)),
            messages(&conversations(&corpus, 1).body(1, 1)),
            messages(&conversations(&corpus, 2).body(0, 1)),
        ];
        let texts: std::collections::HashSet<String> =
            all.iter().flatten().map(|message| message["content"].to_string()).collect();
        assert_eq!(texts.len(), 30);
    }

    #[test]
    fn a_group_shares_all_but_its_end() {
        let corpus = corpus();
        let maker = conversations(&corpus, 1);
        let (one, other) = (messages(&maker.shared_body(3, 10)), messages(&maker.shared_body(3, 11)));
        assert_eq!(one[..9], other[..9]);
        assert_ne!(one[9], other[9]);
    }

    #[test]
    fn bodies_have_about_the_size_asked_for() {
        let corpus = corpus();
        let body = conversations(&corpus, 1).body(0, 0);
        assert!((8000..9500).contains(&body.len()), "{}", body.len());
    }
}
