use kvasir_core::SideError;

use super::*;
use crate::local::LocalTokenizer;
use crate::testing::{CHATML, ServingClient, answer, engine_answer, write_tokenizer};

const OTHER: &str =
    "{{ bos_token }}{% for m in messages %}<|im_start|>{{ m.role }}: {{ m.content }}<|im_end|>{% endfor %}";

fn tokenizer(template: &str) -> Arc<LocalTokenizer> {
    let directory = tempfile::tempdir().unwrap();
    write_tokenizer(directory.path(), |_| {}, template);
    Arc::new(LocalTokenizer::load(directory.path(), None).unwrap())
}

fn target() -> ProbeTarget {
    ProbeTarget {
        urls: EngineUrls::of_base("http://a:8000/"),
        engine: EngineKind::Vllm,
        model: "m".into(),
        dated: false,
    }
}

async fn compare(client: Arc<dyn SideClient>, ours: &Arc<LocalTokenizer>) -> ProbeReport {
    run(&client, &target(), |request| {
        let ours = Arc::clone(ours);
        async move { ours.encode_request(&request) }
    })
    .await
}

#[tokio::test]
async fn an_engine_with_the_same_tokenizer_agrees() {
    let engine = tokenizer(CHATML);
    let ours = tokenizer(CHATML);
    for (renders, via) in [(true, Via::Render), (false, Via::Tokenize)] {
        let engine = Arc::clone(&engine);
        let client = ServingClient::new(move |call| engine_answer(&engine, renders, "1", call));
        let report = compare(client.clone(), &ours).await;
        assert_eq!((report.proof(), report.equal()), (Proof::Exact, probes().len()), "{report:?}");
        assert!(
            report
                .probed
                .iter()
                .all(|one| matches!(one.outcome, Outcome::Equal { via: by, .. } if by == via))
        );
        assert!(client.urls().iter().all(|url| url.starts_with("http://a:8000/")));
    }
}

#[tokio::test]
async fn the_first_other_id_is_told() {
    let engine = tokenizer(OTHER);
    let client = ServingClient::new(move |call| engine_answer(&engine, true, "1", call));
    let report = compare(client, &tokenizer(CHATML)).await;
    assert_eq!(report.proof(), Proof::Differs);
    let (probe, difference) = report.differences().next().unwrap();
    assert_eq!((probe, difference.engine == difference.ours), ("chat", false));
    assert!(difference.position > 0 && report.equal() >= 3, "{report:?}");
    let text = serde_json::to_string(&report).unwrap();
    assert!(!text.contains("Hello"), "{text}");
}

#[test]
fn a_list_that_ends_early_differs_at_its_end() {
    let difference = Difference::between(&[1, 2, 3], &[1, 2]).unwrap();
    assert_eq!((difference.position, difference.engine, difference.ours), (2, Some(3), None));
    assert_eq!((difference.engine_count, difference.our_count), (3, 2));
    assert_eq!(Difference::between(&[1], &[1]), None);
}

#[tokio::test]
async fn an_engine_that_cannot_be_asked_proves_nothing() {
    let ours = tokenizer(CHATML);
    for failure in
        [Err(SideError::Timeout), answer(401, "{}"), answer(500, "{}"), answer(200, "[]"), answer(200, "no")]
    {
        let client = ServingClient::new(move |_| failure.clone());
        let report = compare(client.clone(), &ours).await;
        assert_eq!((report.proof(), report.answered()), (Proof::Unverified, false));
        assert_eq!(client.urls().len(), 1, "it is not asked for the others");
    }
    for status in [403, 404] {
        let client = ServingClient::new(move |_| answer(status, "{}"));
        let report = compare(client, &ours).await;
        assert_eq!((report.proof(), report.answered()), (Proof::Unverified, true));
        assert!(report.probed.iter().all(|one| one.outcome == Outcome::Refused));
    }
}

#[test]
fn a_template_that_prints_the_day_is_told_which() {
    let probe = &probes()[3];
    let body = |dated| String::from_utf8(probe.request(&"m".into(), dated).body.to_vec()).unwrap();
    assert!(body(true).contains("date_string") && !body(false).contains("date_string"));
    assert!(tokenizer("{{ strftime_now('%d') }}").prints_the_date());
    assert!(!tokenizer(CHATML).prints_the_date());
}
