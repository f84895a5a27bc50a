//! Tests of the command: flags, output, exit codes.

use clap::{CommandFactory, Parser};
use serde_json::{Value, json};

use super::*;
use crate::testing::{Give, Server};

#[derive(Parser)]
struct Command {
    #[command(flatten)]
    probe: ProbeArgs,
}

struct Shown {
    exit: Exit,
    out: String,
    err: String,
}

fn parse(flags: &[&str]) -> ProbeArgs {
    Command::try_parse_from([&["probe"], flags].concat()).unwrap().probe
}

async fn show(flags: &[&str], show_progress: bool) -> Shown {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let screen = Screen { out: &mut out, err: &mut err, show_progress };
    let exit = present(parse(flags), CancellationToken::new(), screen).await.unwrap();
    Shown { exit, out: String::from_utf8(out).unwrap(), err: String::from_utf8(err).unwrap() }
}

/// A router that sends everything to the endpoint that `place` names, for request number `n` from 0.
async fn router(place: fn(usize) -> &'static str) -> Server {
    let number = std::sync::atomic::AtomicUsize::new(0);
    Server::start(move |got| match got.path.as_str() {
        "/v1/models" => Give::json(&json!({"object": "list", "data": [{"id": "listed"}]})),
        _ => {
            let number = number.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            Give::chat_stream("ok", 100, None).header("x-kvasir-endpoint", place(number))
        }
    })
    .await
}

#[test]
fn the_flags_are_sound() {
    Command::command().debug_assert();
    assert!(Command::try_parse_from(["probe", "--requests", "4", "load"]).is_err());
    assert!(Command::try_parse_from(["probe", "load", "--rate", "3", "--concurrency", "2"]).is_err());
    assert!(Command::try_parse_from(["probe", "load", "--duration", "3s", "--requests", "2"]).is_err());
}

#[tokio::test]
async fn the_exit_code_follows_the_verdict_and_what_was_expected() {
    let pinned = |_| "a";
    let scattered = |number| if number == 0 { "a" } else { "b" };
    for (place, expect, exit) in [
        (pinned as fn(usize) -> &'static str, "pinned", Exit::Good),
        (pinned, "scattered", Exit::Bad),
        (scattered, "pinned", Exit::Bad),
        (scattered, "scattered", Exit::Good),
        (scattered, "any", Exit::Good),
    ] {
        let server = router(place).await;
        let flags = ["--url", &server.url(), "--prefix-tokens", "50", "--expect", expect];
        let shown = show(&flags, false).await;
        assert_eq!(shown.exit, exit, "{expect}: {}", shown.out);
        assert!(shown.out.contains("\nverdict: "), "{}", shown.out);
        assert_eq!(shown.err, "", "no progress where there is no terminal");
        assert_eq!(server.got()[1].json()["model"], "listed", "the model was asked for");
    }
}

#[tokio::test]
async fn json_is_one_object_and_progress_goes_elsewhere() {
    let server = router(|_| "a").await;
    let shown = show(&["--url", &server.url(), "-m", "m", "-n", "2", "--json"], true).await;
    let report: Value = serde_json::from_str(&shown.out).unwrap();
    assert_eq!((&report["verdict"], &report["failed"]), (&json!("pinned"), &json!(0)));
    assert_eq!(report["sequential"]["requests"][1]["engine"], "a");
    assert_eq!(shown.out.lines().count(), 1);
    assert!(shown.err.ends_with("\r\x1b[K"), "the progress line is cleared: {:?}", shown.err);
}

#[tokio::test]
async fn the_default_salt_differs_from_run_to_run_and_a_given_one_is_kept() {
    let server = router(|_| "a").await;
    let url = server.url();
    let first_word = |index: usize| {
        let text = server.got()[index].json()["messages"][0]["content"].as_str().unwrap().to_owned();
        text.split(' ').next().unwrap().to_owned()
    };
    for extra in [&[][..], &[], &["--salt", "mine"]] {
        show(&[&["--url", &url, "-m", "m", "-n", "2", "--prefix-tokens", "20"], extra].concat(), false).await;
    }
    assert_eq!(first_word(0), first_word(1));
    assert_ne!(first_word(0), first_word(2));
    assert_eq!(first_word(4), "mine");
}

#[tokio::test]
async fn what_cannot_start_is_told_in_one_line_with_exit_code_2() {
    let free = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", free.local_addr().unwrap());
    drop(free);
    for (flags, part) in [
        (vec!["--url", url.as_str()], url.as_str()),
        (vec!["--url", "https://a", "-m", "m"], "only http:// is supported"),
        (vec!["-m", "m", "-n", "1"], "the number of requests must be 2 to 1000"),
        (vec!["-m", "m", "--prompt-file", "/no/such/file"], "/no/such/file cannot be read"),
        (vec!["load", "-m", "m", "--groups", "0"], "the number of groups must be"),
        (vec!["load", "-m", "m", "--extra-body", r#"{"prompt":1}"#], "must not set \"prompt\""),
    ] {
        let shown = show(&flags, false).await;
        assert_eq!(shown.exit, Exit::Failed, "{flags:?}");
        assert!(shown.err.starts_with("error: ") && shown.err.contains(part), "{flags:?}: {}", shown.err);
        assert_eq!((shown.err.lines().count(), shown.out.as_str()), (1, ""));
    }
}

#[tokio::test]
async fn a_refused_connection_during_a_probe_names_the_url() {
    let free = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", free.local_addr().unwrap());
    drop(free);
    let shown = show(&["--url", &url, "-m", "m"], false).await;
    assert_eq!(shown.exit, Exit::Failed);
    assert!(shown.out.contains(&format!("connect: cannot connect to {url}: ")), "{}", shown.out);
}

#[tokio::test]
async fn a_load_run_reports_and_its_exit_code_tells_of_failures() {
    let server = router(|number| if number % 2 == 0 { "a" } else { "b" }).await;
    let flags = ["load", "--url", &server.url(), "-m", "m", "-w", "short", "-n", "40", "-c", "3", "--json"];
    let shown = show(&flags, false).await;
    let report: Value = serde_json::from_str(&shown.out).unwrap();
    assert_eq!(shown.exit, Exit::Good);
    assert_eq!((&report["requests"], &report["prompt_tokens"]), (&json!(40), &json!(4000)));
    assert_eq!(report["per_endpoint"]["a"]["requests"], 20);
    assert!(report["ttft_ms"]["p50"].as_f64().unwrap() <= report["total_ms"]["max"].as_f64().unwrap());
    assert!(server.got().iter().map(|got| got.connection).max().unwrap() <= 3, "connections are kept");

    let half = Server::start(|got| match got.json()["messages"][0]["content"].as_str().unwrap().len() % 2 {
        0 => Give::chat_stream("ok", 1, None),
        _ => Give::new(503, "application/json", r#"{"error":{"message":"busy"}}"#),
    })
    .await;
    let flags = ["load", "--url", &half.url(), "-m", "m", "-w", "short", "-n", "40"];
    let shown = show(&flags, false).await;
    assert_eq!(shown.exit, Exit::Bad, "{}", shown.out);
    assert!(shown.out.contains("http_503") && shown.out.contains("HTTP 503: busy"), "{}", shown.out);

    let none = Server::start(|_| Give::new(500, "text/plain", "")).await;
    let shown = show(&["load", "--url", &none.url(), "-m", "m", "-n", "3"], false).await;
    assert_eq!(shown.exit, Exit::Failed);
}

#[tokio::test]
async fn multi_turn_defaults_to_every_turn_of_every_user() {
    let server = router(|_| "a").await;
    let flags =
        ["load", "--url", &server.url(), "-m", "m", "-w", "multi-turn", "--users", "3", "--turns", "2"];
    let shown = show(&flags, false).await;
    assert_eq!(shown.exit, Exit::Good, "{}", shown.out);
    let turns: Vec<Value> = server.got().iter().map(|got| got.json()["messages"].clone()).collect();
    assert_eq!(turns.len(), 6);
    let second: Vec<&Value> =
        turns.iter().filter(|messages| messages.as_array().unwrap().len() == 4).collect();
    assert_eq!(second.len(), 3);
    assert!(second.iter().all(|messages| messages[2] == json!({"role": "assistant", "content": "ok"})));
}

#[tokio::test]
async fn engines_tell_the_spread_where_no_header_does() {
    let pages = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let engine = Server::start(move |_| {
        let looks = pages.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let (tokens, requests) = (looks * 700, looks * 7);
        let page = format!("vllm:prompt_tokens_total {tokens}\nvllm:request_success_total {requests}\n");
        Give::new(200, "text/plain", page)
    })
    .await;
    let server = Server::start(|_| Give::chat_stream("ok", 100, Some(50))).await;
    let flags = ["load", "--url", &server.url(), "-m", "m", "-n", "7", "--engine", &engine.url(), "--json"];
    let report: Value = serde_json::from_str(&show(&flags, false).await.out).unwrap();
    assert_eq!(report["endpoint_source"], "metrics");
    let share = json!({"requests": 7, "prompt_tokens": 700, "cached_tokens": null});
    assert_eq!(report["per_endpoint"][engine.url()], share);
    assert_eq!(report["hit_rate"], 0.5);
}
