//! Any body: it is malformed, or the answer is the same review with a response that fits it.
#![no_main]

use kvasir_api::ReviewedKind;
use kvasir_controllers::webhook::answer;
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

const KINDS: [ReviewedKind; 3] =
    [ReviewedKind::ModelRoute, ReviewedKind::ModelServer, ReviewedKind::ExternalModelProvider];

fuzz_target!(|data: &[u8]| {
    let [choice, body @ ..] = data else { return };
    let kind = KINDS[usize::from(*choice) % KINDS.len()];
    let Ok(answered) = answer(kind, body) else { return };
    // A request may hold what one reader passes over and another one cannot read, such as a number without end.
    let Ok(asked) = serde_json::from_slice::<Value>(body) else { return };
    let answered: Value = serde_json::from_slice(&answered).expect("an answer can be read");
    assert_eq!(answered["request"], asked["request"]);
    let response = &answered["response"];
    assert_eq!(
        response["uid"].as_str().unwrap_or_default(),
        asked["request"]["uid"].as_str().unwrap_or_default()
    );
    let allowed = response["allowed"].as_bool().expect("an answer is yes or no");
    assert_eq!(allowed, response["status"]["message"].is_null());
    assert!(allowed || response["warnings"].is_null());
});
