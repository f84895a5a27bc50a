//! Tokenizer files that change while they are in use.

use super::*;

const OTHER: &str = "{% for m in messages %}{{ m.content }}!{% endfor %}";

async fn loaded(directory: &tempfile::TempDir) -> Fixture {
    let fixture = fixture(vec![("a", local(directory))]);
    fixture.chain.loaded().await;
    fixture
}

async fn ids(fixture: &Fixture) -> Vec<u32> {
    ask(fixture, "a", &chat()).await.unwrap().ids.to_vec()
}

/// Waits for a look that a request began.
async fn looked(fixture: &Fixture) {
    let slots: Vec<_> = fixture.chain.slots.read().values().cloned().collect();
    for slot in slots {
        slot.looked().await;
    }
}

#[tokio::test]
async fn a_request_begins_a_look_every_half_minute() {
    let directory = small();
    let fixture = loaded(&directory).await;
    let before = ids(&fixture).await;
    write_tokenizer(directory.path(), |_| {}, OTHER);
    fixture.clock.advance(Duration::from_secs(29));
    assert_eq!(ids(&fixture).await, before);
    looked(&fixture).await;
    assert_eq!(ids(&fixture).await, before);
    fixture.clock.advance(Duration::from_secs(1));
    assert_eq!(ids(&fixture).await, before, "nobody waits for the look");
    looked(&fixture).await;
    let after = ids(&fixture).await;
    assert_ne!(after, before);
    write_tokenizer(directory.path(), |_| {}, CHATML);
    fixture.chain.look_at_files().await;
    assert_eq!(ids(&fixture).await, before);
}

#[tokio::test]
async fn new_files_are_trusted_anew() {
    let directory = small();
    let fixture = loaded(&directory).await;
    let model: ModelName = "a".into();
    let contradict = || (0..3).for_each(|_| fixture.chain.observe(&model, TokenSource::Local, 1, 2));
    contradict();
    assert!(only_source(&fixture).demoted);
    fixture.chain.look_at_files().await;
    assert_eq!(ask(&fixture, "a", &chat()).await.unwrap_err(), TokenizeError::NoBackend, "the same files");
    fixture.chain.observe(&model, TokenSource::Local, 1, 1);
    write_tokenizer(directory.path(), |_| {}, OTHER);
    fixture.chain.look_at_files().await;
    assert_eq!(ask(&fixture, "a", &chat()).await.map(|answer| answer.source), Ok(TokenSource::Local));
    fixture.chain.observe(&model, TokenSource::Local, 1, 1);
    let source = only_source(&fixture);
    let counts = (source.proof, source.agreements, source.contradictions);
    assert_eq!(counts, (Proof::Unverified, 0, 0), "nothing is known of the new one");
    contradict();
    assert!(!only_source(&fixture).demoted, "answers to what the former tokenizer counted");
    fixture.clock.advance(Duration::from_secs(60));
    contradict();
    assert!(only_source(&fixture).demoted);
}

#[tokio::test]
async fn files_that_do_not_load_take_nothing_away() {
    let directory = small();
    let fixture = loaded(&directory).await;
    let before = ids(&fixture).await;
    std::fs::write(directory.path().join("tokenizer.json"), "{").unwrap();
    fixture.chain.look_at_files().await;
    assert_eq!(ids(&fixture).await, before);
    let source = only_source(&fixture);
    assert!(source.problem.unwrap().contains("is damaged"));
    assert!(matches!(source.load, Some(LoadState::Ready { .. })));
    std::fs::remove_file(directory.path().join("tokenizer.json")).unwrap();
    std::fs::remove_file(directory.path().join("tokenizer_config.json")).unwrap();
    fixture.chain.look_at_files().await;
    assert_eq!(ids(&fixture).await, before, "nothing is there");
    write_tokenizer(directory.path(), |_| {}, OTHER);
    fixture.chain.look_at_files().await;
    assert_ne!(ids(&fixture).await, before);
    assert_eq!(only_source(&fixture).problem, None);
}

#[tokio::test]
async fn what_did_not_load_is_loaded_when_it_changes() {
    let directory = tempfile::tempdir().unwrap();
    let fixture = loaded(&directory).await;
    assert!(matches!(only_source(&fixture).load, Some(LoadState::Failed { .. })));
    write_tokenizer(directory.path(), |_| {}, CHATML);
    fixture.chain.look_at_files().await;
    assert!(ask(&fixture, "a", &chat()).await.is_ok(), "earlier than its pause says");
}
