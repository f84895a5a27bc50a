//! Random streams, framed and cut at random, against a model that reads whole events.

use proptest::prelude::*;

use super::tests::run;
use super::*;
use kvasir_core::{RequestKind, Usage};

/// One event: what the engine sends, what the client gets when usage is hidden, and the usage in it.
#[derive(Clone, Debug)]
struct Sample {
    sent: String,
    hidden: Option<String>,
    usage: Option<(u64, u64)>,
}

fn content() -> impl Strategy<Value = String> {
    proptest::collection::vec(
        proptest::sample::select(vec![
            "a",
            "漢",
            "🦀",
            "\"",
            "\\",
            "\n",
            "usage",
            "\"usage\":{",
            "data: ",
            "[DONE]",
            " ",
        ]),
        0..6,
    )
    .prop_map(|pieces| serde_json::to_string(&pieces.concat()).unwrap())
}

fn sample() -> impl Strategy<Value = Sample> {
    let plain = content().prop_map(|text| {
        let sent = format!("{{\"choices\":[{{\"delta\":{{\"content\":{text}}},\"finish_reason\":null}}]}}");
        Sample { hidden: Some(sent.clone()), sent, usage: None }
    });
    let null = content().prop_map(|text| {
        let sent = format!("{{\"id\":{text},\"choices\":[{{}}],\"usage\":null}}");
        Sample { hidden: Some(sent.clone()), sent, usage: None }
    });
    let counts = (0..1000_u64, 0..1000_u64);
    let bare = (counts.clone(), content()).prop_map(|((prompt, completion), text)| {
        let usage = format!("{{\"prompt_tokens\":{prompt}, \"completion_tokens\":{completion}}}");
        let sent = format!("{{\"id\":{text}, \"choices\": [ ], \"usage\": {usage}}}");
        Sample { sent, hidden: None, usage: Some((prompt, completion)) }
    });
    let both = (counts, content(), any::<bool>()).prop_map(|((prompt, completion), text, front)| {
        let usage = format!("\"usage\":{{\"completion_tokens\":{completion},\"prompt_tokens\":{prompt}}}");
        let choices = format!("\"choices\":[{{\"delta\":{{\"content\":{text}}}}}]");
        let sent = if front { format!("{{{usage},{choices}}}") } else { format!("{{{choices},{usage}}}") };
        Sample { sent, hidden: Some(format!("{{{choices}}}")), usage: Some((prompt, completion)) }
    });
    let other = proptest::sample::select(vec!["[DONE]", "", "hello", "{\"usage\":", "{}", "{]", "1"])
        .prop_map(|text| Sample { sent: text.to_owned(), hidden: Some(text.to_owned()), usage: None });
    prop_oneof![6 => plain, 1 => null, 2 => bare, 2 => both, 1 => other]
}

/// How one event is written: its lines before and after the payload, the comments among them, and the line ends.
#[derive(Clone, Debug)]
struct Frame {
    before: Vec<&'static str>,
    after: Vec<&'static str>,
    space: bool,
    ends: Vec<&'static str>,
}

fn frame() -> impl Strategy<Value = Frame> {
    let line = || proptest::sample::select(vec![": ping", ":", "event: x", "id: 5", "retry", "dataset: 1"]);
    let end = proptest::sample::select(vec!["\n", "\r\n", "\r"]);
    (proptest::collection::vec(line(), 0..3), proptest::collection::vec(line(), 0..2), any::<bool>(), end)
        .prop_map(|(before, after, space, end)| Frame { before, after, space, ends: vec![end] })
}

impl Frame {
    fn write(&self, payload: Option<&str>) -> String {
        let end = self.ends[0];
        let mut lines: Vec<String> = Vec::new();
        let data = payload.map(|payload| format!("data:{}{payload}", if self.space { " " } else { "" }));
        let all = self
            .before
            .iter()
            .map(|line| line.to_string())
            .chain(data.clone())
            .chain(self.after.iter().map(|line| line.to_string()));
        // Of an event that is left out, its comments stay.
        lines.extend(all.filter(|line| data.is_some() || line.starts_with(':')));
        let mut out: String = lines.into_iter().map(|line| line + end).collect();
        if data.is_some() {
            out.push_str(end);
        }
        out
    }
}

/// Cuts the bytes at the given places.
fn cut<'a>(bytes: &'a [u8], places: &[proptest::sample::Index]) -> Vec<&'a [u8]> {
    let mut places: Vec<_> = places.iter().map(|place| place.index(bytes.len() + 1)).collect();
    places.sort_unstable();
    places.push(bytes.len());
    let mut from = 0;
    places
        .into_iter()
        .map(|to| {
            let piece = &bytes[from..to];
            from = to;
            piece
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn any_framing_and_any_cut_give_what_the_engine_would_have_sent(
        events in proptest::collection::vec((sample(), frame()), 0..7),
        places in proptest::collection::vec(any::<proptest::sample::Index>(), 0..12),
    ) {
        let sent: String = events.iter().map(|(event, frame)| frame.write(Some(&event.sent))).collect();
        let hidden: String = events.iter().map(|(event, frame)| frame.write(event.hidden.as_deref())).collect();
        let usage = events.iter().rev().find_map(|(event, _)| event.usage).map(|(prompt, completion)| Usage {
            prompt_tokens: prompt,
            completion_tokens: completion,
            cached_tokens: None,
        });
        let pieces = cut(sent.as_bytes(), &places);
        let bytes: Vec<_> = sent.as_bytes().chunks(1).collect();
        for (hide, expected) in [(false, &sent), (true, &hidden)] {
            for pieces in [&pieces, &bytes] {
                let mut tap = StreamTap::new(RequestKind::Chat, hide);
                let out = run(&mut tap, pieces).concat();
                prop_assert_eq!(String::from_utf8_lossy(&out), expected.as_str());
                prop_assert_eq!(tap.usage(), usage);
            }
        }
    }

    #[test]
    fn a_payload_over_several_lines_is_read_and_cut(
        sample in sample(),
        breaks in proptest::collection::vec(any::<proptest::sample::Index>(), 0..4),
        places in proptest::collection::vec(any::<proptest::sample::Index>(), 0..8),
    ) {
        // A line break may stand between any two tokens; the ones around punctuation outside of strings will do.
        let mut spots = Vec::new();
        let (mut quoted, mut escaped) = (false, false);
        for (at, character) in sample.sent.char_indices() {
            match character {
                _ if escaped => escaped = false,
                '\\' if quoted => escaped = true,
                '"' => quoted = !quoted,
                ',' if !quoted => spots.extend([at, at + 1]),
                '{' | '[' | ':' if !quoted => spots.push(at + 1),
                '}' | ']' if !quoted => spots.push(at),
                _ => {}
            }
        }
        if spots.is_empty() || !sample.sent.ends_with('}') {
            return Ok(());
        }
        let mut chosen: Vec<_> = breaks.iter().map(|place| spots[place.index(spots.len())]).collect();
        chosen.sort_unstable();
        chosen.dedup();
        let mut payload = sample.sent.clone();
        for at in chosen.into_iter().rev() {
            payload.insert_str(at, "\ndata: ");
        }
        let stream = format!("data: {payload}\n\ndata: [DONE]\n\n");
        for pieces in [cut(stream.as_bytes(), &places), stream.as_bytes().chunks(1).collect()] {
            let mut tap = StreamTap::new(RequestKind::Chat, true);
            let out = String::from_utf8(run(&mut tap, &pieces).concat()).unwrap();
            prop_assert_eq!(tap.usage().map(|usage| (usage.prompt_tokens, usage.completion_tokens)), sample.usage);
            prop_assert!(out.ends_with("data: [DONE]\n\n"));
            let first = out.strip_suffix("data: [DONE]\n\n").unwrap();
            let joined: String = first.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
            match &sample.hidden {
                None => prop_assert_eq!(first, ""),
                Some(hidden) => prop_assert_eq!(&joined, hidden),
            }
        }
    }

    #[test]
    fn any_bytes_pass(
        bytes in proptest::collection::vec(
            proptest::sample::select(b"data: {}\"usage\",[]\r\n\r\n:x\xff\xef\xbb\xbf".to_vec()), 0..200),
        places in proptest::collection::vec(any::<proptest::sample::Index>(), 0..20),
    ) {
        let mut plain = StreamTap::new(RequestKind::Chat, false);
        prop_assert_eq!(&run(&mut plain, &cut(&bytes, &places)).concat(), &bytes);
        let mut whole = StreamTap::new(RequestKind::Chat, true);
        let mut split = StreamTap::new(RequestKind::Chat, true);
        let expected = run(&mut whole, &[&bytes]).concat();
        prop_assert_eq!(run(&mut split, &cut(&bytes, &places)).concat(), expected);
        prop_assert_eq!(plain.usage(), split.usage());
    }
}
