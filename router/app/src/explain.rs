//! `kvasir explain`: a decision record as a table.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use clap::Args;
use kvasir_core::{SideClient as _, SideRequest};
use kvasir_upstream::{HyperSideClient, SideClientOptions};
use serde_json::Value;

/// Longest answer of the admin listener that is read.
const MAX_ANSWER: usize = 64 << 20;

/// Print why a request went where it went.
#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// The request's id (`x-request-id` of its answer); without one, the last decisions are listed
    pub request_id: Option<String>,
    /// Decide for this JSON body without sending it anywhere (`-` reads standard input)
    #[arg(long, value_name = "FILE", conflicts_with = "request_id")]
    pub body: Option<String>,
    /// API path of the body; by default chat when it has `messages`, else completions
    #[arg(long, value_name = "PATH", requires = "body")]
    pub path: Option<String>,
    /// The router's admin listener
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:15000", env = "KVASIR_ADMIN_URL")]
    pub admin: String,
    /// Print the record as JSON
    #[arg(long)]
    pub json: bool,
}

/// The subcommand.
///
/// # Errors
/// When the admin listener cannot be reached or does not know the request.
pub async fn run(args: ExplainArgs) -> anyhow::Result<ExitCode> {
    let base = args.admin.trim_end_matches('/');
    let (method, url, body) = match (&args.body, &args.request_id) {
        (Some(file), _) => {
            let path = args.path.as_ref().map_or_else(String::new, |path| format!("?path={path}"));
            (http::Method::POST, format!("{base}/explain{path}"), read_body(file)?)
        }
        (None, Some(id)) => (http::Method::GET, format!("{base}/explain/{id}"), Bytes::new()),
        (None, None) => (http::Method::GET, format!("{base}/explain"), Bytes::new()),
    };
    let client = HyperSideClient::new(SideClientOptions::default());
    let request = SideRequest {
        method,
        url: url.clone(),
        tls: None,
        body,
        timeout: Duration::from_secs(30),
        max_bytes: MAX_ANSWER,
    };
    let answer =
        client.call(request).await.with_context(|| format!("{url}: is the router running there?"))?;
    let value: Value = serde_json::from_slice(&answer.body).context("the answer is no JSON")?;
    if !answer.status.is_success() {
        let reason = value.pointer("/error/message").and_then(Value::as_str).unwrap_or("unknown error");
        anyhow::bail!("{url}: {}: {reason}", answer.status.as_u16());
    }
    let text = if args.json { format!("{value:#}\n") } else { render(&value) };
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn read_body(file: &str) -> anyhow::Result<Bytes> {
    let mut text = Vec::new();
    if file == "-" {
        std::io::stdin().read_to_end(&mut text)?;
    } else {
        text = std::fs::read(file).with_context(|| format!("--body {file}"))?;
    }
    Ok(Bytes::from(text))
}

/// One record, or a list of them.
pub fn render(value: &Value) -> String {
    match value.as_array() {
        Some(records) => list(records),
        None => record(value),
    }
}

fn list(records: &[Value]) -> String {
    let rows = records.iter().map(|record| {
        vec![
            text(&record["request_id"]),
            text(&record["requested_model"]),
            text(&record["tokens"]["prompt_tokens"]),
            text(&record["predicted_cached_tokens"]),
            text(&record["outcome"]["usage"]["cached_tokens"]),
            text(
                record["attempts"]
                    .as_array()
                    .and_then(|tries| tries.last())
                    .map_or(&Value::Null, |last| &last["endpoint"]),
            ),
            text(&record["outcome"]["status"]),
            milliseconds(&record["outcome"]["ttft_ms"]),
        ]
    });
    table(
        &["request", "model", "tokens", "predicted", "cached", "endpoint", "status", "first byte"],
        rows.collect(),
    )
}

fn record(record: &Value) -> String {
    let mut out = String::new();
    let tokens = &record["tokens"];
    let _ = writeln!(out, "request   {}", text(&record["request_id"]));
    let _ = writeln!(
        out,
        "model     {} (asked for as {})",
        text(&record["model"]),
        text(&record["requested_model"])
    );
    let how = match tokens["source"].as_str() {
        Some(source) => format!("exact, from {source} in {} us", text(&tokens["took_us"])),
        None => format!("estimated: {}", text(&tokens["missing"])),
    };
    let _ = writeln!(out, "prompt    {} tokens ({how})", text(&tokens["prompt_tokens"]));
    let _ = writeln!(
        out,
        "decided   in {} us, after {} us of gathering",
        text(&record["decide_us"]),
        text(&record["gather_us"])
    );
    for dropped in record["filtered"].as_array().into_iter().flatten() {
        let _ = writeln!(out, "filter    {} dropped {}", text(&dropped[0]), text(&dropped[1]));
    }
    out.push('\n');
    out.push_str(&candidates(record));
    for attempt in record["attempts"].as_array().into_iter().flatten() {
        let result =
            if attempt["status"].is_null() { text(&attempt["error"]) } else { text(&attempt["status"]) };
        let part = match attempt["phase"].as_str() {
            Some(phase) if phase != "whole" => format!(" ({phase})"),
            _ => String::new(),
        };
        let _ = writeln!(out, "attempt   {}{part} -> {result}", text(&attempt["endpoint"]));
    }
    let outcome = &record["outcome"];
    if outcome.is_object() {
        let _ = writeln!(
            out,
            "outcome   status {}, first byte {}, total {}",
            text(&outcome["status"]),
            milliseconds(&outcome["ttft_ms"]),
            milliseconds(&outcome["total_ms"])
        );
        let _ = writeln!(
            out,
            "cached    predicted {}, reported {}",
            text(&record["predicted_cached_tokens"]),
            text(&outcome["usage"]["cached_tokens"])
        );
        if let Some(line) = expectation(record) {
            let _ = writeln!(out, "expected  {line}");
        }
        if let Some(error) = outcome["error"].as_str() {
            let _ = writeln!(out, "error     {error}");
        }
    }
    out
}

/// What the decision expected of the endpoint whose prefill answered, beside what came.
fn expectation(record: &Value) -> Option<String> {
    let answered = |attempt: &&Value| attempt["error"].is_null() && attempt["phase"] != "decode";
    let attempt = record["attempts"].as_array()?.iter().rfind(answered)?;
    let mut candidates = record["candidates"].as_array()?.iter();
    let candidate = candidates.find(|candidate| candidate["endpoint"] == attempt["endpoint"])?;
    let expected = candidate["expected_ttft_ms"].as_f64()?;
    let came = match record["stream"].as_bool() {
        Some(true) => format!("it came after {}", milliseconds(&record["outcome"]["ttft_ms"])),
        _ => "not streamed, so only the whole answer can be seen".to_owned(),
    };
    Some(format!("first token after {expected:.1} ms at {}; {came}", text(&attempt["endpoint"])))
}

fn candidates(record: &Value) -> String {
    let scores: Vec<&Value> = record["scores"].as_array().into_iter().flatten().collect();
    let expects = |candidate: &Value| candidate["expected_ttft_ms"].is_number();
    let expected = record["candidates"].as_array().is_some_and(|all| all.iter().any(expects));
    let mut head = vec!["endpoint", "cache", "matched", "reusable", "in flight", "prefill", "waiting"];
    head.extend(expected.then_some("expected"));
    head.extend(scores.iter().filter_map(|line| line["plugin"].as_str()));
    head.push("total");
    let rows = record["candidates"].as_array().into_iter().flatten().enumerate().map(|(index, candidate)| {
        let load = &candidate["load"];
        let mut row = vec![
            text(&candidate["endpoint"]),
            text(&candidate["completeness"]),
            text(&candidate["matched_tokens"]),
            text(&candidate["reusable_tokens"]),
            text(&load["in_flight"]),
            text(&load["prefill_tokens"]),
            text(&load["sample"]["waiting"]),
        ];
        row.extend(expected.then(|| milliseconds(&candidate["expected_ttft_ms"])));
        row.extend(scores.iter().map(|line| number(&line["scores"][index])));
        row.push(if candidate["kept"] == Value::Bool(false) {
            "filtered".to_owned()
        } else {
            number(&candidate["total"])
        });
        row
    });
    table(&head, rows.collect())
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn number(value: &Value) -> String {
    value.as_f64().map_or_else(|| "-".to_owned(), |number| format!("{number:.1}"))
}

fn milliseconds(value: &Value) -> String {
    value.as_f64().map_or_else(|| "-".to_owned(), |number| format!("{number:.1} ms"))
}

/// Columns as wide as their widest cell.
pub fn table(head: &[&str], rows: Vec<Vec<String>>) -> String {
    let mut widths: Vec<usize> = head.iter().map(|cell| cell.chars().count()).collect();
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut out = String::new();
    let mut line = |cells: Vec<&str>| {
        let padded: Vec<String> =
            cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        out.push_str(padded.join("  ").trim_end());
        out.push('\n');
    };
    line(head.to_vec());
    for row in &rows {
        line(row.iter().map(String::as_str).collect());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_record_reads_as_a_table() {
        let value = json!({
            "request_id": "r1", "model": "m", "requested_model": "alias", "stream": true,
            "tokens": {"source": "local", "prompt_tokens": 64, "took_us": 120, "missing": null},
            "gather_us": 200, "decide_us": 5, "filtered": [["least-request", 1]],
            "candidates": [
                {"endpoint": "default/a:1", "kept": true, "matched_tokens": 64, "reusable_tokens": 48, "completeness": "exact",
                 "load": {"in_flight": 1, "prefill_tokens": 16, "sample": null}, "total": 87.5, "expected_ttft_ms": 4.125},
                {"endpoint": "default/b:1", "kept": false, "matched_tokens": 0, "reusable_tokens": 0, "completeness": null,
                 "load": {"in_flight": 0, "prefill_tokens": 0, "sample": {"waiting": 12}}, "total": null},
            ],
            "scores": [{"plugin": "kvasir-cost", "weight": 1.0, "scores": [87.5, null]}],
            "attempts": [
                {"endpoint": "default/a:1", "phase": "prefill", "status": 200, "error": null},
                {"endpoint": "default/b:1", "phase": "decode", "status": 200, "error": null},
            ],
            "predicted_cached_tokens": 48,
            "outcome": {"status": 200, "ttft_ms": 3.25, "total_ms": 9.0, "usage": {"cached_tokens": 48}, "error": null},
        });
        let text = render(&value);
        for part in [
            "asked for as alias",
            "exact, from local in 120 us",
            "kvasir-cost",
            "87.5",
            "filtered",
            "least-request dropped 1",
            "predicted 48, reported 48",
            "3.2 ms",
            "default/a:1 (prefill) -> 200",
            "first token after 4.1 ms at default/a:1; it came after 3.2 ms",
        ] {
            assert!(text.contains(part), "{part:?} is missing in\n{text}");
        }
        assert!(render(&json!([value])).contains("default/b:1"));
    }
}
