//! What came back, held against what a case expects.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use http::{HeaderMap, Response};
use kvasir_suite::echo;
use serde_json::{Value, json};

use super::format::{Expected, Upstream};

/// How much of an answer a report repeats.
const SHOWN: usize = 300;

/// One answer.
pub struct Answer {
    status: u16,
    headers: Value,
    body: Value,
}

impl Answer {
    pub fn of(response: &Response<Bytes>) -> Self {
        let text = || Value::from(String::from_utf8_lossy(response.body()));
        Self {
            status: response.status().as_u16(),
            headers: echo::headers(response.headers() as &HeaderMap),
            body: serde_json::from_slice(response.body()).unwrap_or_else(|_| text()),
        }
    }

    fn pod(&self) -> Option<&str> {
        self.body.get("pod").and_then(Value::as_str)
    }

    fn shown(&self) -> String {
        let mut body = self.body.to_string();
        body.truncate(body.floor_char_boundary(SHOWN));
        match self.pod() {
            Some(pod) => format!("{} of pod {pod}: {body}", self.status),
            None => format!("{} {body}", self.status),
        }
    }
}

/// What is not as it should be.
pub fn judge(expected: &Expected, answers: &[Answer]) -> Result<(), String> {
    let mut by_pod: BTreeMap<String, usize> = BTreeMap::new();
    for answer in answers {
        one(expected, answer)?;
        let who = answer.pod().map_or_else(|| answer.status.to_string(), str::to_owned);
        *by_pod.entry(who).or_default() += 1;
    }
    if !expected.pods.is_empty() {
        let wanted: BTreeSet<&str> = expected.pods.iter().map(String::as_str).collect();
        let found: BTreeSet<&str> = by_pod.keys().map(String::as_str).collect();
        let fits = if answers.len() > 1 { found == wanted } else { found.is_subset(&wanted) };
        if !fits {
            return Err(format!("expected the pods {wanted:?}, found {by_pod:?}"));
        }
    }
    if !expected.share.is_empty() {
        let percent =
            |pod: &str| by_pod.get(pod).copied().unwrap_or_default() as f64 * 100.0 / answers.len() as f64;
        let off = |(pod, share): (&String, &f64)| (percent(pod) - share).abs() > expected.within;
        let strange = by_pod.keys().any(|pod| !expected.share.contains_key(pod));
        if strange || expected.share.iter().any(off) {
            let (wanted, within) = (&expected.share, expected.within);
            return Err(format!("expected {wanted:?} percent, each within {within}, found {by_pod:?}"));
        }
    }
    Ok(())
}

fn one(expected: &Expected, answer: &Answer) -> Result<(), String> {
    let told = |what: String| Err(format!("expected {what}, found {}", answer.shown()));
    // Shares may be of answers that are no pod's.
    let usual = if expected.share.is_empty() { Some(200) } else { None };
    if let Some(status) = expected.status.or(usual)
        && answer.status != status
    {
        return told(format!("status {status}"));
    }
    if let Some(pod) = &expected.pod
        && answer.pod() != Some(pod)
    {
        return told(format!("pod {pod}"));
    }
    let error = |field: &str| answer.body.pointer(&format!("/error/{field}")).and_then(Value::as_str);
    if let Some(code) = &expected.code
        && error("code") != Some(code)
    {
        return told(format!("code {code}"));
    }
    if let Some(part) = &expected.message
        && !error("message").is_some_and(|message| message.contains(part))
    {
        return told(format!("a message with {part:?}"));
    }
    if let Some(models) = &expected.models {
        let listed = answer.body.get("data").and_then(Value::as_array);
        let ids = listed.map(|data| data.iter().map(|model| model["id"].clone()).collect::<Value>());
        if ids != Some(json!(models)) {
            return told(format!("the models {models:?}"));
        }
    }
    headers("the answer", &expected.headers, &answer.headers)?;
    upstream(&expected.upstream, &answer.body)
}

/// What the engine was asked, as it told it.
fn upstream(expected: &Upstream, told: &Value) -> Result<(), String> {
    for (field, wanted) in [
        ("method", &expected.method),
        ("path", &expected.path),
        ("host", &expected.host),
        ("model", &expected.model),
        ("body", &expected.body),
    ] {
        let found = told.get(field).and_then(Value::as_str);
        if wanted.is_some() && found != wanted.as_deref() {
            return Err(format!("expected the engine to see the {field} {wanted:?}, it saw {found:?}"));
        }
    }
    let body = told.get("body").and_then(Value::as_str).unwrap_or_default();
    let body: Value = serde_json::from_str(body).unwrap_or_default();
    for (pointer, wanted) in &expected.fields {
        let found = body.pointer(pointer).filter(|found| !found.is_null());
        let fits = match wanted {
            Value::Null => found.is_none(),
            Value::String(any) if any == "*" => found.is_some(),
            wanted => found == Some(wanted),
        };
        if !fits {
            return Err(format!("expected the engine to see {pointer} as {wanted}, it saw {found:?}"));
        }
    }
    headers("the engine's request", &expected.headers, told.get("headers").unwrap_or(&Value::Null))
}

fn headers(of: &str, expected: &BTreeMap<String, Value>, found: &Value) -> Result<(), String> {
    for (name, wanted) in expected {
        let values = found.get(name.to_ascii_lowercase());
        let fits = match wanted {
            Value::Null => values.is_none(),
            Value::String(any) if any == "*" => values.is_some(),
            Value::Array(_) => values == Some(wanted),
            one => values == Some(&json!([one])),
        };
        if !fits {
            let values = values.unwrap_or(&Value::Null);
            return Err(format!("expected the header {name} of {of} to be {wanted}, found {values}"));
        }
    }
    Ok(())
}
