//! The access log: one record for each request, in kthena's text or JSON form, written off the request path.

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::{self, BufWriter, Write};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use prometheus::IntCounter;
use serde::Serialize;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// How long records are gathered before they are written together.
const GATHER: Duration = Duration::from_millis(10);

/// How long the end of the process waits for a slow output.
const LONGEST_FLUSH: Duration = Duration::from_secs(2);

/// Lines that may wait for a slow output; more are dropped and counted rather than delaying requests.
const QUEUE_LINES: usize = 16_384;

/// One request, as logged. Fields and their names are kthena's; the `kvasir` ones at the end are ours.
#[derive(Clone, Debug, Default, Serialize)]
pub struct AccessRecord {
    /// Start, RFC 3339 with nanoseconds.
    pub timestamp: String,
    /// HTTP method.
    pub method: String,
    /// Path without query.
    pub path: String,
    /// `HTTP/1.1` or `HTTP/2.0`.
    pub protocol: &'static str,
    /// Status the client saw; 499 when it left before one.
    pub status_code: u16,
    /// What went wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<AccessError>,
    /// As the client wrote it.
    pub model_name: String,
    /// `namespace/name`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub model_route: String,
    /// `namespace/name`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub model_server: String,
    /// The endpoint that answered.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub selected_pod: String,
    /// The endpoint that computed the prompt, or was the last to be asked for it, where that is another one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub prefill_pod: String,
    /// Request id.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub request_id: String,
    /// `model_server` or `inference_pool`.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub backend_type: &'static str,
    /// `namespace/name`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub backend_name: String,
    /// Model name sent upstream.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub upstream_model: String,
    /// Status of the answer that went to the client; without one the last status an engine gave.
    #[serde(skip_serializing_if = "is_zero")]
    pub upstream_status_code: u16,
    /// Attempts made.
    #[serde(skip_serializing_if = "is_zero")]
    pub upstream_attempts: u16,
    /// The Gateway that the request came in by, `namespace/name`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub gateway: String,
    /// `namespace/name`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub http_route: String,
    /// `namespace/name`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub inference_pool: String,
    /// Prompt tokens.
    #[serde(skip_serializing_if = "is_zero_u64")]
    pub input_tokens: u64,
    /// Generated tokens.
    #[serde(skip_serializing_if = "is_zero_u64")]
    pub output_tokens: u64,
    /// Whole time, ms.
    pub duration_total: u64,
    /// From the header to the first dispatch, ms.
    pub duration_request_processing: u64,
    /// From the first dispatch to the answer's end, ms.
    pub duration_upstream_processing: u64,
    /// After the answer's end, ms.
    pub duration_response_processing: u64,
    /// Cached prompt tokens the decision expected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub predicted_cached_tokens: Option<u32>,
    /// Cached prompt tokens the engine reported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cached_tokens: Option<u64>,
    /// Time to the first byte, ms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttft_ms: Option<u64>,
    /// Time that it waited for its turn, ms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queued_ms: Option<u64>,
}

/// What went wrong.
#[derive(Clone, Debug, Serialize)]
pub struct AccessError {
    /// One of a fixed set.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// A sentence without client text.
    pub message: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_zero(number: &u16) -> bool {
    *number == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_zero_u64(number: &u64) -> bool {
    *number == 0
}

/// The wall clock as the log writes it.
pub fn timestamp() -> String {
    OffsetDateTime::now_utc().format(&Rfc3339).unwrap_or_default()
}

impl AccessRecord {
    /// kthena's text line. Values are escaped, so that a model name cannot forge a line.
    pub fn to_text(&self) -> String {
        let mut line = format!(
            "[{}] \"{} {} {}\" {}",
            self.timestamp,
            clean(&self.method),
            clean(&self.path),
            self.protocol,
            self.status_code
        );
        if let Some(error) = &self.error {
            let _ = write!(line, " error={}:{}", error.kind, clean(&error.message));
        }
        add_fields(
            &mut line,
            &[
                ("model_name", self.model_name.as_str()),
                ("model_route", &self.model_route),
                ("model_server", &self.model_server),
                ("selected_pod", &self.selected_pod),
                ("prefill_pod", &self.prefill_pod),
                ("request_id", &self.request_id),
                ("backend_type", self.backend_type),
                ("backend_name", &self.backend_name),
                ("upstream_model", &self.upstream_model),
            ],
        );
        if self.upstream_status_code > 0 {
            let _ = write!(line, " upstream_status_code={}", self.upstream_status_code);
        }
        if self.upstream_attempts > 0 {
            let _ = write!(line, " upstream_attempts={}", self.upstream_attempts);
        }
        add_fields(
            &mut line,
            &[
                ("gateway", &self.gateway),
                ("http_route", &self.http_route),
                ("inference_pool", &self.inference_pool),
            ],
        );
        if self.input_tokens > 0 || self.output_tokens > 0 {
            let _ = write!(line, " tokens={}/{}", self.input_tokens, self.output_tokens);
        }
        if let Some(predicted) = self.predicted_cached_tokens {
            let _ = write!(line, " cached={predicted}");
            if let Some(reported) = self.cached_tokens {
                let _ = write!(line, "/{reported}");
            }
        }
        if let Some(queued) = self.queued_ms {
            let _ = write!(line, " queued={queued}ms");
        }
        let _ = write!(
            line,
            " timings={}ms({}+{}+{})",
            self.duration_total,
            self.duration_request_processing,
            self.duration_upstream_processing,
            self.duration_response_processing
        );
        line
    }

    /// One JSON object.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// Adds the fields that are not empty.
fn add_fields(line: &mut String, fields: &[(&str, &str)]) {
    for (name, value) in fields.iter().filter(|(_, value)| !value.is_empty()) {
        let _ = write!(line, " {name}={}", clean(value));
    }
}

/// Escapes what could break a line or a field apart.
fn clean(value: &str) -> std::borrow::Cow<'_, str> {
    if value.chars().any(|c| c.is_control() || c == '"' || c == ' ') {
        value
            .chars()
            .flat_map(|c| if c == ' ' { vec!['\\', 's'] } else { c.escape_default().collect() })
            .collect::<String>()
            .into()
    } else {
        value.into()
    }
}

/// Hands records to a thread of its own.
#[derive(Clone, Debug)]
pub struct AccessLogger {
    shared: Arc<Closing>,
    dropped: IntCounter,
}

/// Ends the writing thread when the last logger is gone.
#[derive(Debug)]
struct Closing(Arc<Shared>);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.queue.lock().closed = true;
        self.0.filled.notify_one();
    }
}

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    /// Told when the queue stops being empty, and when it closes.
    filled: Condvar,
    /// Told when everything is written.
    written: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    records: Vec<AccessRecord>,
    writing: bool,
    closed: bool,
}

impl AccessLogger {
    /// Opens `output` (`stdout`, `stderr`, or a file that is appended to) and starts the writing thread.
    ///
    /// # Errors
    /// When the file cannot be opened or the thread cannot start.
    pub fn start(output: &str, json: bool, dropped: IntCounter) -> io::Result<Self> {
        let writer: Box<dyn Write + Send> = match output {
            "stdout" => Box::new(io::stdout()),
            "stderr" => Box::new(io::stderr()),
            path => Box::new(OpenOptions::new().append(true).create(true).open(path)?),
        };
        let shared = Arc::new(Shared::default());
        let source = Arc::clone(&shared);
        std::thread::Builder::new()
            .name("access-log".to_owned())
            .spawn(move || write_lines(&source, writer, json))?;
        Ok(Self { shared: Arc::new(Closing(shared)), dropped })
    }

    /// Queues one record; drops and counts it when the output cannot keep up.
    pub fn log(&self, record: AccessRecord) {
        let shared = &self.shared.0;
        let mut queue = shared.queue.lock();
        if queue.records.len() >= QUEUE_LINES || queue.closed {
            drop(queue);
            self.dropped.inc();
            return;
        }
        queue.records.push(record);
        let first = queue.records.len() == 1;
        drop(queue);
        if first {
            shared.filled.notify_one();
        }
    }

    /// Waits until what was queued is written; for the end of the process.
    pub fn flush(&self) {
        let shared = &self.shared.0;
        let mut queue = shared.queue.lock();
        queue.closed = true;
        shared.filled.notify_one();
        while !queue.records.is_empty() || queue.writing {
            if shared.written.wait_for(&mut queue, LONGEST_FLUSH).timed_out() {
                return;
            }
        }
    }
}

/// Formats and writes until the queue is closed. Under load it wakes a hundred times a second, not for each record: a
/// wake-up costs a request more than the rest of its log line.
fn write_lines(shared: &Shared, writer: Box<dyn Write + Send>, json: bool) {
    let mut out = BufWriter::with_capacity(64 * 1024, writer);
    let mut batch = Vec::new();
    loop {
        let mut queue = shared.queue.lock();
        while queue.records.is_empty() && !queue.closed {
            shared.filled.wait(&mut queue);
        }
        if !queue.closed {
            // Told early only when the queue closes.
            shared.filled.wait_for(&mut queue, GATHER);
        }
        std::mem::swap(&mut queue.records, &mut batch);
        queue.writing = true;
        drop(queue);
        for record in batch.drain(..) {
            let line = if json { record.to_json() } else { record.to_text() };
            // An output that is gone (a closed pipe) must not stop the router.
            let _ = writeln!(out, "{line}");
        }
        let _ = out.flush();
        let mut queue = shared.queue.lock();
        queue.writing = false;
        let finished = queue.closed && queue.records.is_empty();
        shared.written.notify_all();
        if finished {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> AccessRecord {
        AccessRecord {
            timestamp: "2026-01-15T10:30:45.123Z".into(),
            method: "POST".into(),
            path: "/v1/chat/completions".into(),
            protocol: "HTTP/1.1",
            status_code: 200,
            model_name: "llama2-7b".into(),
            model_route: "default/r".into(),
            selected_pod: "p-1".into(),
            request_id: "id".into(),
            backend_type: "model_server",
            upstream_status_code: 200,
            upstream_attempts: 1,
            input_tokens: 150,
            output_tokens: 75,
            duration_total: 2350,
            duration_request_processing: 45,
            duration_upstream_processing: 2180,
            duration_response_processing: 5,
            ..AccessRecord::default()
        }
    }

    #[test]
    fn the_text_line_is_kthenas() {
        assert_eq!(
            record().to_text(),
            "[2026-01-15T10:30:45.123Z] \"POST /v1/chat/completions HTTP/1.1\" 200 model_name=llama2-7b \
             model_route=default/r selected_pod=p-1 request_id=id backend_type=model_server upstream_status_code=200 \
             upstream_attempts=1 tokens=150/75 timings=2350ms(45+2180+5)"
        );
    }

    #[test]
    fn gateway_api_names_come_after_the_attempts() {
        let mut routed = record();
        routed.model_route = String::new();
        (routed.gateway, routed.http_route, routed.inference_pool) =
            ("ns/g".into(), "ns/h".into(), "ns/p".into());
        let text = routed.to_text();
        let expected = " upstream_attempts=1 gateway=ns/g http_route=ns/h inference_pool=ns/p tokens=150/75 ";
        assert!(text.contains(expected), "{text}");
        let value: serde_json::Value = serde_json::from_str(&routed.to_json()).unwrap();
        assert_eq!(
            [&value["gateway"], &value["http_route"], &value["inference_pool"]],
            ["ns/g", "ns/h", "ns/p"]
        );
        assert!(value.get("model_route").is_none());
    }

    #[test]
    fn a_model_name_cannot_forge_a_line() {
        let mut forged = record();
        forged.model_name = "m\n[2026] \"GET / HTTP/1.1\" 200".into();
        let line = forged.to_text();
        assert_eq!(line.lines().count(), 1);
        assert!(line.contains("m\\n[2026]\\s"), "{line}");
    }

    #[test]
    fn the_json_object_leaves_empty_fields_out() {
        let value: serde_json::Value = serde_json::from_str(&record().to_json()).unwrap();
        assert_eq!(value["duration_total"], 2350);
        assert!(value.get("backend_name").is_none());
        assert!(value.get("error").is_none());
    }

    #[test]
    fn records_reach_the_file() {
        let path = std::env::temp_dir().join(format!("kvasir-access-{}.log", std::process::id()));
        let dropped = IntCounter::new("d", "d").unwrap();
        let logger = AccessLogger::start(&path.to_string_lossy(), true, dropped.clone()).unwrap();
        for _ in 0..3 {
            logger.log(record());
        }
        logger.flush();
        assert_eq!(std::fs::read_to_string(&path).unwrap_or_default().lines().count(), 3);
        assert_eq!(dropped.get(), 0);
        logger.log(record());
        assert_eq!(dropped.get(), 1, "a closed log counts what it drops");
        let _ = std::fs::remove_file(&path);
    }
}
