//! Plays `vllm launch render` for tests: the same arguments and paths, and faults by files in its source directory.
//!
//! `SOURCE/refuse-start` makes it exit with an error, `SOURCE/hang` keeps it from answering, `SOURCE/slow` delays
//! `/tokenize` for ever, `SOURCE/late` keeps `/health` at 503, `SOURCE/stranger` has it list another model. It writes
//! its process id to `SOURCE/pid`.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

struct Renderer {
    source: PathBuf,
    model: String,
}

fn main() -> std::io::Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let value = |flag: &str| {
        let at = arguments.iter().position(|argument| argument == flag);
        at.and_then(|at| arguments.get(at + 1)).cloned().unwrap_or_default()
    };
    let source = PathBuf::from(arguments.first().cloned().unwrap_or_default());
    if has(&source, "refuse-start") {
        writeln!(
            std::io::stderr(),
            "Traceback\nValueError: Invalid repository ID or local directory\n(bye)"
        )?;
        return Ok(ExitCode::FAILURE);
    }
    let listener = TcpListener::bind(format!("{}:{}", value("--host"), value("--port")))?;
    std::fs::write(source.join("pid"), std::process::id().to_string())?;
    let renderer = Arc::new(Renderer { source, model: value("--served-model-name") });
    for stream in listener.incoming() {
        let renderer = Arc::clone(&renderer);
        let stream = stream?;
        std::thread::spawn(move || renderer.converse(stream));
    }
    Ok(ExitCode::SUCCESS)
}

fn has(source: &Path, name: &str) -> bool {
    source.join(name).exists()
}

impl Renderer {
    /// One request for each connection.
    fn converse(&self, mut stream: TcpStream) -> std::io::Result<()> {
        let mut reader = BufReader::new(stream.try_clone()?);
        let (mut line, mut head, mut length) = (String::new(), String::new(), 0usize);
        reader.read_line(&mut head)?;
        while reader.read_line(&mut line)? > 2 {
            if let Some(number) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = number.trim().parse().unwrap_or(0);
            }
            line.clear();
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        let path = head.split(' ').nth(1).unwrap_or_default();
        if has(&self.source, "hang") || (path == "/tokenize" && has(&self.source, "slow")) {
            // Until the other side gives up.
            return reader.read_to_end(&mut body).map(drop);
        }
        let (status, answer) = self.answer(path, &body);
        write!(
            stream,
            "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{answer}",
            answer.len()
        )
    }

    /// `/tokenize` answers with the bytes of the body as ids, so that a test sees what arrived.
    fn answer(&self, path: &str, body: &[u8]) -> (u16, String) {
        let model = if has(&self.source, "stranger") { "another" } else { &self.model };
        match path {
            "/health" if has(&self.source, "late") => (503, String::new()),
            "/health" => (200, String::new()),
            "/v1/models" => (200, format!(r#"{{"object":"list","data":[{{"id":"{model}"}}]}}"#)),
            "/tokenize" => {
                let ids: Vec<String> = body.iter().map(ToString::to_string).collect();
                (200, format!(r#"{{"count":{},"max_model_len":7,"tokens":[{}]}}"#, body.len(), ids.join(",")))
            }
            "/detokenize" => (418, r#"{"detail":"as the renderer says"}"#.to_owned()),
            _ => (404, String::new()),
        }
    }
}
