//! Any frames, live and as a replay, through the follower's decisions: they end, and what is applied has no holes.
#![no_main]

use std::time::Instant;

use bytes::Bytes;
use kvasir_kvcache::event::{ReplayFrame, parse_live, parse_replay};
use kvasir_kvcache::follow::machine::{Action, Follower, Input, Options};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let now = Instant::now();
    let mut follower = Follower::new(Options::default(), now);
    let mut last = None;
    let mut check = |actions: Vec<Action>| {
        for action in actions {
            match action {
                Action::Clear { .. } => last = None,
                Action::Apply(batch) => {
                    assert!(last.is_none_or(|last: u64| last.checked_add(1) == Some(batch.seq)));
                    last = Some(batch.seq);
                }
                _ => {}
            }
        }
    };
    check(follower.step(now, Input::Connected));
    let mut rest = Bytes::copy_from_slice(bytes);
    // The first byte says what comes next, the second how long its frames are.
    while rest.len() > 2 {
        let head = rest.split_to(2);
        let mut frames = Vec::new();
        for frame in 0..usize::from(head[0] >> 4) {
            let length = if frame == 1 || frame == 2 { 8 } else { usize::from(head[1]) };
            frames.push(rest.split_to(length.min(rest.len())));
        }
        let input = match head[0] & 7 {
            0 => Input::Connected,
            1 => Input::Disconnected,
            2 => Input::ReplayEnded { complete: head[1] & 1 == 1 },
            3 => Input::Tick,
            4 | 5 => match parse_live(&frames) {
                Ok(batch) => Input::Live(batch),
                Err(_) => continue,
            },
            _ => match parse_replay(&frames) {
                Ok(ReplayFrame::Batch(batch)) => Input::Replayed(batch),
                Ok(ReplayFrame::End) => Input::ReplayEnded { complete: true },
                Err(_) => continue,
            },
        };
        check(follower.step(now, input));
    }
});
