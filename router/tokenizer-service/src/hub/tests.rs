use std::collections::BTreeMap;
use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use tokio::net::TcpListener;

use super::*;

const COMMIT: &str = "5b0c8a1e2f4d6b7a9c3e1f0d2b4a6c8e0f1a2b3c";
const REPOSITORY: &str = "owner/model-1";
const OTHERS: [&str; 2] = ["tekken.json", "tokenizer.model.v3"];

/// One server: the hub, or the other host that keeps large files.
struct Server {
    address: String,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// Content by path.
    files: BTreeMap<String, Stored>,
    /// Method, path and credential of every call.
    calls: Vec<(Method, String, Option<String>)>,
    /// What is said instead of an answer.
    refusal: Option<(u16, &'static str)>,
}

#[derive(Clone)]
struct Stored {
    content: Bytes,
    headers: Vec<(&'static str, String)>,
    status: u16,
}

impl Server {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let state: Arc<Mutex<State>> = Arc::default();
        let shared = Arc::clone(&state);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let state = Arc::clone(&shared);
                let service = service_fn(move |request| {
                    let answer = answer(&state, &request);
                    async move { Ok::<_, Infallible>(answer) }
                });
                tokio::spawn(async move {
                    let io = TokioIo::new(stream);
                    drop(Builder::new(TokioExecutor::new()).serve_connection(io, service).await);
                });
            }
        });
        Self { address, state }
    }

    fn put(&self, path: &str, stored: Stored) {
        self.state.lock().files.insert(path.to_owned(), stored);
    }

    /// A small file of the repository, at the branch and at its commit.
    fn small(&self, file: &str, content: &str) {
        let tag = format!("\"{:040x}\"", content.len());
        let headers = vec![("etag", tag), ("x-repo-commit", COMMIT.to_owned())];
        for revision in [REVISION, COMMIT] {
            let path = format!("/{REPOSITORY}/resolve/{revision}/{file}");
            let content = Bytes::from(content.to_owned());
            self.put(&path, Stored { content, headers: headers.clone(), status: 200 });
        }
    }

    /// A large file: a redirect to where it is kept.
    fn large(&self, file: &str, content: &str, tag: &str, kept: &str) {
        let headers = vec![
            ("location", kept.to_owned()),
            ("x-repo-commit", COMMIT.to_owned()),
            ("x-linked-etag", format!("\"{tag}\"")),
            ("x-linked-size", content.len().to_string()),
        ];
        for revision in [REVISION, COMMIT] {
            let path = format!("/{REPOSITORY}/resolve/{revision}/{file}");
            self.put(&path, Stored { content: Bytes::new(), headers: headers.clone(), status: 302 });
        }
    }

    fn calls(&self, method: &Method) -> Vec<String> {
        let state = self.state.lock();
        state.calls.iter().filter(|call| call.0 == method).map(|call| call.1.clone()).collect()
    }
}

fn answer(state: &Mutex<State>, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    let path = request.uri().path().to_owned();
    let credential = request.headers().get("authorization").map(|value| value.to_str().unwrap().to_owned());
    let mut state = state.lock();
    state.calls.push((request.method().clone(), path.clone(), credential));
    let stored = match (state.refusal, state.files.get(&path)) {
        (Some((status, code)), _) => {
            Stored { content: Bytes::new(), headers: vec![("x-error-code", code.to_owned())], status }
        }
        (None, Some(stored)) => stored.clone(),
        (None, None) => Stored {
            content: Bytes::new(),
            headers: vec![("x-error-code", "EntryNotFound".to_owned())],
            status: 404,
        },
    };
    let mut response = Response::new(Full::new(stored.content));
    *response.status_mut() = StatusCode::from_u16(stored.status).unwrap();
    for (name, value) in stored.headers {
        response.headers_mut().insert(name, value.parse().unwrap());
    }
    response
}

fn hub(endpoint: &str, cache: &Path, offline: bool) -> Hub {
    Hub::new(&HubConfig {
        endpoint: endpoint.to_owned(),
        token: Some("hf_secret".parse().unwrap()),
        cache: cache.to_owned(),
        offline,
        from_flag: true,
    })
}

fn sha256(content: &str) -> String {
    Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect()
}

const TOKENIZER_TEXT: &str = "the tokenizer, which is large";

/// A hub with a large tokenizer on another host, and a few small files.
async fn furnished() -> (Server, Server) {
    let (hub, other) = (Server::start().await, Server::start().await);
    let kept = format!("{}/kept/tokenizer?signature=x", other.address);
    hub.large("tokenizer.json", TOKENIZER_TEXT, &sha256(TOKENIZER_TEXT), &kept);
    let content = Bytes::from_static(TOKENIZER_TEXT.as_bytes());
    other.put("/kept/tokenizer", Stored { content, headers: Vec::new(), status: 200 });
    hub.small("tokenizer_config.json", "{\"a\": 1}");
    hub.small("additional_chat_templates/tool_use.jinja", "tools");
    hub.small("tekken.json", "another tokenizer, large");
    (hub, other)
}

#[tokio::test]
async fn a_repository_is_fetched_into_the_hubs_own_layout() {
    let folder = tempfile::tempdir().unwrap();
    let (server, other) = furnished().await;
    let hub = hub(&server.address, folder.path(), false);
    let snapshot = hub.fetch(REPOSITORY, &OTHERS).await.unwrap();
    let root = folder.path().join("models--owner--model-1");
    assert_eq!(snapshot.directory, root.join("snapshots").join(COMMIT));
    assert_eq!((snapshot.others.clone(), snapshot.complete), (vec!["tekken.json"], true));
    let read = |file: &str| std::fs::read_to_string(snapshot.directory.join(file)).unwrap();
    assert_eq!(read("tokenizer.json"), TOKENIZER_TEXT);
    assert_eq!(read("tokenizer_config.json"), "{\"a\": 1}");
    assert_eq!(read("additional_chat_templates/tool_use.jinja"), "tools");
    assert_eq!(std::fs::read_to_string(root.join("refs/main")).unwrap(), COMMIT);
    assert!(root.join("blobs").join(sha256(TOKENIZER_TEXT)).is_file());
    assert!(root.join(".no_exist").join(COMMIT).join("tokenizer.model.v3").is_file());
    assert!(!snapshot.directory.join("tekken.json").exists(), "only asked about");
    // The credential goes to the hub, and to nobody else.
    assert!(server.state.lock().calls.iter().all(|call| call.2.as_deref() == Some("Bearer hf_secret")));
    assert_eq!(other.state.lock().calls, [(Method::GET, "/kept/tokenizer".to_owned(), None)]);
    // After the first look, all is of one commit.
    let later = server.calls(&Method::HEAD).split_off(1);
    assert!(later.iter().all(|path| path.contains(COMMIT)), "{later:?}");

    let before = server.calls(&Method::GET).len();
    assert_eq!(hub.fetch(REPOSITORY, &OTHERS).await.unwrap(), snapshot);
    assert_eq!(server.calls(&Method::GET).len(), before, "nothing is fetched twice");
}

#[tokio::test]
async fn the_cache_serves_offline_and_when_the_hub_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let (server, _other) = furnished().await;
    let offline = hub(&server.address, folder.path(), true);
    assert!(matches!(offline.fetch(REPOSITORY, &OTHERS).await, Err(HubError::NotCached(_))));
    let online = hub(&server.address, folder.path(), false);
    let snapshot = online.fetch(REPOSITORY, &OTHERS).await.unwrap();
    // The file that was only asked about is not in the cache: what is there does not tell.
    let cached = Snapshot { others: Vec::new(), complete: false, ..snapshot };
    let calls = server.state.lock().calls.len();
    assert_eq!(offline.fetch(REPOSITORY, &OTHERS).await.unwrap(), cached);
    assert_eq!(server.state.lock().calls.len(), calls, "offline asks nobody");
    server.state.lock().refusal = Some((502, "x"));
    assert_eq!(online.fetch(REPOSITORY, &OTHERS).await.unwrap(), cached);
    let unreachable = hub("http://127.0.0.1:9", folder.path(), false);
    assert_eq!(unreachable.fetch(REPOSITORY, &OTHERS).await.unwrap(), cached);
    assert!(matches!(unreachable.fetch("owner/other", &OTHERS).await, Err(HubError::Unreachable(_))));
}

#[tokio::test]
async fn damage_is_noticed_and_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let (server, other) = furnished().await;
    let hub = hub(&server.address, folder.path(), false);
    let same_length = TOKENIZER_TEXT.replace("large", "LARGE");
    for content in [same_length.as_str(), "short", &TOKENIZER_TEXT.repeat(2)] {
        let content = Bytes::from(content.to_owned());
        other.put("/kept/tokenizer", Stored { content, headers: Vec::new(), status: 200 });
        let error = hub.fetch(REPOSITORY, &OTHERS).await.unwrap_err();
        assert!(matches!(error, HubError::Damaged { .. }) && error.a_renderer_may_do_better(), "{error}");
        let blobs = folder.path().join("models--owner--model-1/blobs");
        assert_eq!(std::fs::read_dir(blobs).unwrap().count(), 0);
    }
}

#[tokio::test]
async fn refusals_and_odd_answers_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let (server, _other) = furnished().await;
    let hub = hub(&server.address, folder.path(), false);
    let told = async || {
        let error = hub.fetch(REPOSITORY, &OTHERS).await.unwrap_err();
        (error.a_renderer_may_do_better(), error.to_string())
    };
    for (status, code) in [(401, "RepoNotFound"), (403, "GatedRepo"), (404, "RepoNotFound")] {
        server.state.lock().refusal = Some((status, code));
        let (better, error) = told().await;
        assert!(!better && error.contains(code) && error.contains(REPOSITORY), "{error}");
        assert!(!error.contains("hf_secret"));
    }
    server.state.lock().refusal = None;
    let path = format!("/{REPOSITORY}/resolve/main/tokenizer.json");
    let stored =
        |headers: Vec<(&'static str, String)>| Stored { content: Bytes::new(), headers, status: 200 };
    let tag = || ("etag", "\"t\"".to_owned());
    for (headers, lacks) in [
        (vec![tag()], "x-repo-commit"),
        (vec![tag(), ("x-repo-commit", "../../up".to_owned())], "x-repo-commit"),
        (vec![("x-repo-commit", COMMIT.to_owned()), ("etag", "\"../x\"".to_owned())], "etag"),
    ] {
        server.put(&path, stored(headers));
        let (better, error) = told().await;
        assert!(better && error.contains("this is no hub") && error.contains(lacks), "{error}");
    }
    let around = vec![("location", path.clone())];
    server.put(&path, Stored { content: Bytes::new(), headers: around, status: 307 });
    assert!(told().await.1.contains("redirects"));
    server.state.lock().files.remove(&path);
    assert!(told().await.1.contains("has no tokenizer.json"));
}

#[tokio::test]
async fn a_renamed_repository_is_followed_on_its_host() {
    let folder = tempfile::tempdir().unwrap();
    let (server, _other) = furnished().await;
    for file in ["tokenizer.json", "tokenizer_config.json"] {
        for revision in [REVISION, COMMIT] {
            let target = format!("/{REPOSITORY}/resolve/{revision}/{file}");
            let headers = vec![("location", target)];
            let stored = Stored { content: Bytes::new(), headers, status: 307 };
            server.put(&format!("/old/name/resolve/{revision}/{file}"), stored);
        }
    }
    let snapshot = hub(&server.address, folder.path(), false).fetch("old/name", &OTHERS).await.unwrap();
    assert_eq!(std::fs::read_to_string(snapshot.directory.join("tokenizer.json")).unwrap(), TOKENIZER_TEXT);
}

#[tokio::test]
async fn names_that_are_no_repositories_ask_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let hub = hub("http://127.0.0.1:9", folder.path(), false);
    for name in ["", "a/b/c", "../x", "a/..", "a b", "-a", "/a", "a--b", "a?b", &"x".repeat(97)] {
        assert!(matches!(hub.fetch(name, &[]).await, Err(HubError::NotARepository(_))), "{name}");
    }
    assert!(is_repository("gpt2") && is_repository("Qwen/Qwen3-0.6B"));
}
