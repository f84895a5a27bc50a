//! Whatever a file or a flag says, resolving it ends with settings or with problems.

use std::io;
use std::path::Path;

use kvasir_settings::flags::{KlogFlags, KthenaFlags, KubernetesArgs};
use kvasir_settings::{Files, RouterArgs, Settings, SystemFacts, resolve_from};
use proptest::prelude::{Strategy, any, prop_oneof};

struct TwoTexts<'a> {
    document: &'a str,
    models: &'a str,
}

impl Files for TwoTexts<'_> {
    fn read(&self, path: &Path) -> io::Result<String> {
        Ok(if path.ends_with("document") { self.document } else { self.models }.to_owned())
    }

    fn is_directory(&self, _: &Path) -> bool {
        true
    }

    fn is_file(&self, _: &Path) -> bool {
        true
    }
}

fn resolve_texts(document: &str, models: &str) {
    let args = RouterArgs {
        config: Some("document".to_owned()),
        models: Some("models".to_owned()),
        ..RouterArgs::default()
    };
    let result = resolve_from(&args, &TwoTexts { document, models }, &SystemFacts::default());
    if let Err(problems) = result {
        let count = problems.0.len();
        assert!(count > 0);
        assert_eq!(problems.to_string().lines().count(), count, "one line each:\n{problems}");
    }
}

/// Text made of pieces that the readers look for, so that more than the parser is reached.
fn pieces() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        proptest::sample::select(vec![
            "scheduler",
            "plugins",
            "Filter",
            "Score",
            "enabled",
            "pluginConfig",
            "name",
            "weight",
            "args",
            "auth",
            "jwksUri",
            "kvcache-aware",
            "prefix-cache",
            "least-request",
            "least-latency",
            "random",
            "blockSizeToHash",
            "coordination",
            "query",
            "queryBudget",
            "tokenizerService",
            "tokenization",
            "order",
            "local",
            "models",
            "endpoints",
            "url",
            "http://a:1",
            "kvEvents",
            "endpoint",
            "tcp://a:65535",
            "replay",
            "dataParallel",
            "adapters",
            "aliases",
            ": ",
            ": ",
            ": ",
            ":\n",
            "\n",
            "\n",
            "\n  ",
            "\n    ",
            "- ",
            "- ",
            "{",
            "}",
            "[",
            "]",
            ", ",
            "&a ",
            "*a",
            "<<",
            "~",
            "!!int ",
            "'",
            "\"",
            "010",
            "1.5",
            ".nan",
            "-.inf",
            "yes",
            "99999999999999999999",
            "---\n",
            "# ",
            "|\n",
            ">\n",
            "? ",
            "\t",
            "%YAML 1.1\n",
        ])
        .prop_map(str::to_owned),
        any::<char>().prop_map(String::from),
    ];
    proptest::collection::vec(piece, 0..60).prop_map(|pieces| pieces.concat())
}

proptest::proptest! {
    #[test]
    fn any_text_is_resolved_or_refused(document in "\\PC*", models in "\\PC*") {
        resolve_texts(&document, &models);
    }

    #[test]
    fn text_like_a_document_is_resolved_or_refused(document in pieces(), models in pieces()) {
        resolve_texts(&document, &models);
    }

    #[test]
    fn any_new_version_is_taken_or_refused(text in pieces()) {
        let settings = Settings::default();
        if let Ok(reloaded) = settings.reload_document_from(&text, &TwoTexts { document: "", models: "" }) {
            assert!(reloaded.from_document && reloaded.scheduler.scorers.iter().all(|(_, weight)| *weight >= 0.0));
        }
    }

    #[test]
    fn any_flag_is_resolved_or_refused(texts in proptest::collection::vec(".{0,40}", 25)) {
        let args = RouterArgs {
            listen: texts[0].clone(),
            max_body_bytes: texts[1].clone(),
            max_buffered_bytes: Some(texts[2].clone()),
            connect_timeout: texts[3].clone(),
            retry_budget: texts[4].clone(),
            pool_size: texts[5].clone(),
            model: vec![texts[6].clone(), format!("a={}", texts[7])],
            tokenizer: vec![texts[8].clone()],
            kv_events: vec![texts[9].clone(), format!("http://a:1=tcp://{}", texts[10])],
            routing: Some(texts[11].clone()),
            mirror_grace: texts[12].clone(),
            kubernetes: KubernetesArgs {
                kubernetes: "on".to_owned(),
                watch_namespace: Some(texts[13].clone()),
                lease_name: Some(texts[24].clone()),
                config_map: Some(texts[14].clone()),
                gateway_class: Some(texts[15].clone()),
                gateway_address: vec![texts[16].clone()],
                webhook_configuration_name: Some(texts[17].clone()),
                webhook_manage_certificate: Some(texts[18].clone()),
            },
            kthena: KthenaFlags {
                enable_webhook: Some(texts[19].clone()),
                webhook_port: Some(texts[20].clone()),
                kube_api_qps: Some(texts[21].clone()),
                kube_api_burst: Some(texts[22].clone()),
                ..KthenaFlags::default()
            },
            klog: KlogFlags { verbosity: Some(texts[23].clone()), ..KlogFlags::default() },
            ..RouterArgs::default()
        };
        let files = TwoTexts { document: "", models: "" };
        let _ = resolve_from(&args, &files, &SystemFacts::default());
    }
}
