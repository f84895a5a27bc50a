//! Engines that read a request to its end and look at nothing of it: where prompts are so large that a mock engine
//! would be what is measured.

use std::convert::Infallible;
use std::io::Write as _;

use bytes::Bytes;
use clap::Parser;
use http::header::CONTENT_TYPE;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

/// `stream` stands among so many bytes at the start of a body, where the load generator puts it, or at its end, where
/// proxies put it that write the body anew.
const EDGE_BYTES: usize = 200;

/// Runs engines that answer one fixed token to everything.
#[derive(Debug, Parser)]
#[command(name = "kvasir-bench-sink")]
struct Args {
    /// How many, each on a free port of 127.0.0.1
    #[arg(long, default_value_t = 4)]
    engines: usize,
    /// Served model name
    #[arg(long)]
    model: String,
    /// Threads
    #[arg(long, default_value_t = 1)]
    threads: usize,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(args.threads.max(1))
        .enable_all()
        .build()?;
    runtime.block_on(serve(args))
}

async fn serve(args: Args) -> anyhow::Result<()> {
    let answers = Answers::new(&args.model);
    let mut table = "engine  url  kv events  replay\n".to_owned();
    let mut engines = tokio::task::JoinSet::new();
    for number in 0..args.engines {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        table.push_str(&format!("{number}  http://{}  -  -\n", listener.local_addr()?));
        engines.spawn(accept(listener, answers.clone()));
    }
    std::io::stdout().write_all(table.as_bytes())?;
    while let Some(ended) = engines.join_next().await {
        ended??;
    }
    Ok(())
}

async fn accept(listener: TcpListener, answers: Answers) -> anyhow::Result<()> {
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let answers = answers.clone();
        let service = service_fn(move |request| answers.clone().answer(request));
        // A connection that breaks off is the other side's choice.
        tokio::spawn(async move {
            drop(http1::Builder::new().serve_connection(TokioIo::new(stream), service).await)
        });
    }
}

/// Everything that is ever answered.
#[derive(Clone, Debug)]
struct Answers {
    whole: Bytes,
    stream: Bytes,
    models: Bytes,
}

impl Answers {
    fn new(model: &str) -> Self {
        let model = serde_json::Value::from(model);
        let head = format!(r#""id":"chatcmpl-1","created":1,"model":{model}"#);
        let delta = r#"[{"index":0,"delta":{"role":"assistant","content":"yes"},"finish_reason":"stop"}]"#;
        let message =
            r#"[{"index":0,"message":{"role":"assistant","content":"yes"},"finish_reason":"stop"}]"#;
        let stream = format!(
            "data: {{{head},\"object\":\"chat.completion.chunk\",\"choices\":{delta}}}\n\ndata: [DONE]\n\n"
        );
        Self {
            whole: format!(r#"{{{head},"object":"chat.completion","choices":{message}}}"#).into(),
            stream: stream.into(),
            models: format!(r#"{{"object":"list","data":[{{"id":{model},"object":"model","created":1,"owned_by":"bench"}}]}}"#)
                .into(),
        }
    }

    async fn answer(self, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
        let known = match (request.method(), request.uri().path()) {
            (&Method::POST, "/v1/chat/completions") => None,
            (&Method::GET, "/v1/models") => Some(self.models.clone()),
            (&Method::GET, "/health" | "/metrics") => Some(Bytes::new()),
            _ => return Ok(response(StatusCode::NOT_FOUND, "application/json", Bytes::from_static(b"{}"))),
        };
        if let Some(body) = known {
            return Ok(response(StatusCode::OK, "application/json", body));
        }
        Ok(match reads_stream(request.into_body()).await {
            None => response(StatusCode::BAD_REQUEST, "application/json", Bytes::from_static(b"{}")),
            Some(true) => response(StatusCode::OK, "text/event-stream", self.stream),
            Some(false) => response(StatusCode::OK, "application/json", self.whole),
        })
    }
}

/// Reads a body and lets it go. Whether it asks for a stream; `None` when it broke off.
async fn reads_stream(mut body: Incoming) -> Option<bool> {
    let (mut head, mut tail) = (Vec::with_capacity(EDGE_BYTES), Vec::with_capacity(2 * EDGE_BYTES));
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame.ok()?.into_data() {
            let missing = EDGE_BYTES - head.len();
            head.extend_from_slice(data.get(..missing).unwrap_or(&data));
            tail.extend_from_slice(data.get(data.len().saturating_sub(EDGE_BYTES)..).unwrap_or_default());
            tail.drain(..tail.len().saturating_sub(EDGE_BYTES));
        }
    }
    let asks = |edge: &[u8]| memchr::memmem::find(edge, br#""stream":true"#).is_some();
    Some(asks(&head) || asks(&tail))
}

fn response(status: StatusCode, kind: &'static str, body: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static(kind));
    response
}
