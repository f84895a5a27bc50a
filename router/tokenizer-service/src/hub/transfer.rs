//! The hub's file protocol over HTTP: look at a file's head, fetch its content.
//!
//! `HEAD /OWNER/NAME/resolve/REVISION/FILE` tells the commit (`x-repo-commit`), the content's tag and size
//! (`x-linked-etag` and `x-linked-size` for large files, which a redirect to another host serves; else `etag` and
//! `content-length`). Redirects within the host are renamed repositories.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use sha2::{Digest as _, Sha256};
use tokio::io::AsyncWriteExt as _;
use tokio::time::timeout;

use super::error::HubError;
use crate::cli::Secret;

/// Longest wait for a connection.
const CONNECT: Duration = Duration::from_secs(10);

/// Longest wait for an answer's head, and for each piece of its body.
const IDLE: Duration = Duration::from_secs(30);

/// Redirects that are followed.
const MOST_REDIRECTS: usize = 5;

/// Largest file: the largest `tokenizer.json` in use has 35 MB.
const MOST_FILE_BYTES: u64 = 512 << 20;

/// What the hub says about a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileHead {
    /// The commit that the revision stands for.
    pub commit: String,
    /// Names the content.
    pub etag: String,
    /// Bytes, where it says.
    pub size: Option<u64>,
}

/// Whether a file is there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Remote {
    /// It is.
    There(FileHead),
    /// The repository has no such file.
    Absent,
}

/// Talks to one hub.
#[derive(Debug)]
pub struct Transfer {
    endpoint: String,
    token: Option<Secret>,
    client: Client<HttpsConnector<HttpConnector>, Empty<Bytes>>,
}

impl Transfer {
    /// A client for the hub at `endpoint`. Certificates are checked against the system's roots (`SSL_CERT_FILE`),
    /// where it has some, since mirrors often have a company's own; else against Mozilla's.
    pub fn new(endpoint: &str, token: Option<Secret>) -> Self {
        let mut http = HttpConnector::new();
        http.enforce_http(false);
        http.set_connect_timeout(Some(CONNECT));
        let builder = HttpsConnectorBuilder::new()
            .with_native_roots()
            .unwrap_or_else(|_| HttpsConnectorBuilder::new().with_webpki_roots());
        let connector = builder.https_or_http().enable_http1().wrap_connector(http);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(Duration::from_secs(20))
            .build(connector);
        Self { endpoint: endpoint.to_owned(), token, client }
    }

    /// Looks at a file.
    ///
    /// # Errors
    /// [`HubError`]; a file that the repository does not have is none.
    pub async fn look(&self, repository: &str, revision: &str, file: &str) -> Result<Remote, HubError> {
        let mut uri = self.uri(repository, revision, file)?;
        for _ in 0..=MOST_REDIRECTS {
            let answer = self.ask(Method::HEAD, &uri).await?;
            let headers = answer.headers();
            let status = answer.status();
            if status == StatusCode::NOT_FOUND && word(headers, "x-error-code") != Some("RepoNotFound") {
                // A mirror may not say which of the two is missing; a repository that is not there fails at the
                // file that must be.
                return Ok(Remote::Absent);
            }
            let target = status.is_redirection().then(|| redirect(&uri, headers)).transpose()?;
            match target {
                Some(target) if same_host(&target, &uri) && word(headers, "x-linked-etag").is_none() => {
                    uri = target;
                }
                _ if status.is_success() || status.is_redirection() => {
                    return file_head(headers).map(Remote::There);
                }
                _ => return Err(refusal(repository, status, headers)),
            }
        }
        Err(HubError::Odd(format!("more than {MOST_REDIRECTS} redirects for {file}")))
    }

    /// Fetches a file's content to `part`, and checks it.
    ///
    /// # Errors
    /// [`HubError`]; what is in `part` is then of no use.
    pub async fn fetch(
        &self,
        repository: &str,
        file: &str,
        head: &FileHead,
        part: &Path,
    ) -> Result<(), HubError> {
        let mut uri = self.uri(repository, &head.commit, file)?;
        for _ in 0..=MOST_REDIRECTS {
            let answer = self.ask(Method::GET, &uri).await?;
            match answer.status() {
                status if status.is_redirection() => uri = redirect(&uri, answer.headers())?,
                StatusCode::OK => return receive(answer, file, head, part).await,
                status => return Err(refusal(repository, status, answer.headers())),
            }
        }
        Err(HubError::Odd(format!("more than {MOST_REDIRECTS} redirects for {file}")))
    }

    fn uri(&self, repository: &str, revision: &str, file: &str) -> Result<Uri, HubError> {
        let text = format!("{}/{repository}/resolve/{revision}/{file}", self.endpoint);
        text.parse().map_err(|error| HubError::Odd(format!("HF_ENDPOINT {:?}: {error}", self.endpoint)))
    }

    async fn ask(&self, method: Method, uri: &Uri) -> Result<Response<Incoming>, HubError> {
        let mut request = Request::builder()
            .method(method)
            .uri(uri)
            .header(header::USER_AGENT, concat!("kvasir/", env!("CARGO_PKG_VERSION")))
            // Sizes and tags are those of the plain content.
            .header(header::ACCEPT_ENCODING, "identity");
        // The hub's redirects lead to other hosts, whose URLs are credentials by themselves.
        if let Some(token) = self.token.as_ref().filter(|_| self.is_hub(uri)) {
            let mut value = http::HeaderValue::from_str(&format!("Bearer {}", token.reveal()))
                .map_err(|_| HubError::Odd("HF_TOKEN has characters that a header cannot have".to_owned()))?;
            value.set_sensitive(true);
            request = request.header(header::AUTHORIZATION, value);
        }
        let request = request.body(Empty::new()).map_err(|error| HubError::Odd(error.to_string()))?;
        let host = uri.authority().map_or_else(String::new, ToString::to_string);
        match timeout(IDLE, self.client.request(request)).await {
            Ok(Ok(answer)) if answer.status().is_server_error() => {
                Err(HubError::Unreachable(format!("{host}: status {}", answer.status().as_u16())))
            }
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(HubError::Unreachable(format!("{host}: {}", innermost(&error)))),
            Err(_) => Err(HubError::Unreachable(format!("{host}: no answer within {} s", IDLE.as_secs()))),
        }
    }

    fn is_hub(&self, uri: &Uri) -> bool {
        self.endpoint.parse::<Uri>().is_ok_and(|endpoint| same_host(&endpoint, uri))
    }
}

async fn receive(
    answer: Response<Incoming>,
    file: &str,
    head: &FileHead,
    part: &Path,
) -> Result<(), HubError> {
    let damaged = |reason: String| HubError::Damaged { file: file.to_owned(), reason };
    let mut body = answer.into_body();
    let mut target = tokio::fs::File::create(part).await?;
    let (mut digest, mut size) = (Sha256::new(), 0u64);
    loop {
        let frame = timeout(IDLE, body.frame())
            .await
            .map_err(|_| HubError::Unreachable(format!("{file}: nothing came for {} s", IDLE.as_secs())))?;
        let Some(frame) = frame else { break };
        let frame = frame.map_err(|error| HubError::Unreachable(format!("{file}: {}", innermost(&error))))?;
        let Some(data) = frame.data_ref() else { continue };
        size += data.len() as u64;
        if size > head.size.unwrap_or(MOST_FILE_BYTES).min(MOST_FILE_BYTES) {
            return Err(damaged(format!("more than {size} bytes")));
        }
        digest.update(data);
        target.write_all(data).await?;
    }
    target.flush().await?;
    target.sync_all().await?;
    if head.size.is_some_and(|announced| announced != size) {
        return Err(damaged(format!("{size} bytes in place of {}", head.size.unwrap_or(0))));
    }
    // Tags of large files are SHA-256; those of small ones name a git object.
    if head.etag.len() == 64 {
        let found: String = digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        if found != head.etag {
            return Err(damaged("its SHA-256 is not the announced one".to_owned()));
        }
    }
    Ok(())
}

fn file_head(headers: &HeaderMap) -> Result<FileHead, HubError> {
    let lacks = |name: &str| HubError::Odd(format!("an answer without a usable {name}"));
    let commit = word(headers, "x-repo-commit").filter(|commit| is_plain(commit));
    let etag = word(headers, "x-linked-etag").or_else(|| word(headers, "etag"));
    let etag = etag.map(|etag| etag.trim_start_matches("W/").trim_matches('"')).filter(|etag| is_plain(etag));
    let linked = headers.contains_key("x-linked-etag");
    let size = word(headers, if linked { "x-linked-size" } else { "content-length" });
    Ok(FileHead {
        commit: commit.ok_or_else(|| lacks("x-repo-commit"))?.to_owned(),
        etag: etag.ok_or_else(|| lacks("etag"))?.to_owned(),
        size: size.and_then(|size| size.parse().ok()),
    })
}

/// Commits and tags become names of files.
pub fn is_plain(text: &str) -> bool {
    let plain = |sign: char| sign.is_ascii_alphanumeric() || matches!(sign, '-' | '_');
    !text.is_empty() && text.len() <= 128 && text.chars().all(plain)
}

fn redirect(from: &Uri, headers: &HeaderMap) -> Result<Uri, HubError> {
    let odd = || HubError::Odd("a redirect that leads nowhere".to_owned());
    let location: Uri = word(headers, "location").and_then(|text| text.parse().ok()).ok_or_else(odd)?;
    let target = match location.authority() {
        Some(_) => location,
        None => {
            let mut parts = from.clone().into_parts();
            parts.path_and_query = location.into_parts().path_and_query;
            Uri::from_parts(parts).map_err(|_| odd())?
        }
    };
    if from.scheme_str() == Some("https") && target.scheme_str() != Some("https") {
        return Err(HubError::Odd("a redirect from https to http".to_owned()));
    }
    Ok(target)
}

fn same_host(one: &Uri, other: &Uri) -> bool {
    one.authority() == other.authority() && one.scheme_str() == other.scheme_str()
}

fn word<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

fn refusal(repository: &str, status: StatusCode, headers: &HeaderMap) -> HubError {
    let code = word(headers, "x-error-code").filter(|code| is_plain(code)).unwrap_or("no reason given");
    let hint = match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => "; does it exist, and may HF_TOKEN see it?",
        StatusCode::TOO_MANY_REQUESTS => "; too many requests",
        _ => "",
    };
    let reason = format!("status {} ({code}){hint}", status.as_u16());
    if status == StatusCode::TOO_MANY_REQUESTS {
        return HubError::Unreachable(reason);
    }
    HubError::Refused { repository: repository.to_owned(), reason }
}

/// The innermost cause says what happened, the outer ones only where.
fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}
