//! `kvasir tokens check`: the probes of the tokenization chain from a shell, as a table.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use kvasir_core::{Address, EngineKind, InferenceRequest, ModelName, SideClient, TokenizeError};
use kvasir_tokenize::probe::{self, EngineUrls, Outcome, ProbeReport, ProbeTarget};
use kvasir_tokenize::{EncoderChoice, LocalTokenizer, Proof};
use kvasir_upstream::{HyperSideClient, SideClientOptions};

use super::{CheckArgs, Engine, load};
use crate::explain::table;

/// How long the engine may take to tell its name.
const PATIENCE: Duration = Duration::from_secs(10);

/// Exit code of a comparison that is not all equal.
const NOT_EXACT: u8 = 1;

/// Compares and prints.
pub async fn run(args: CheckArgs) -> anyhow::Result<ExitCode> {
    let address = Address::parse(args.engine.trim_end_matches('/')).map_err(anyhow::Error::msg)?;
    let engine = match args.kind {
        Engine::Vllm => EngineKind::Vllm,
        Engine::Sglang => EngineKind::Sglang,
    };
    let tokenizer = load(&args.directory, EncoderChoice::Auto)?;
    let side_client = HyperSideClient::new(SideClientOptions::default());
    let found = kvasir_upstream::discover(&side_client, &address, engine, PATIENCE).await;
    let listed = found.served_models.first().cloned();
    let model = match args.model.as_deref().map(ModelName::from).or(listed) {
        Some(model) => model,
        None => anyhow::bail!(
            found.problem.unwrap_or_else(|| "the engine lists no model; give --model".to_owned())
        ),
    };
    let client: Arc<dyn SideClient> = Arc::new(side_client);
    let target = ProbeTarget {
        urls: EngineUrls::of_base(&address.url()),
        engine,
        model,
        dated: tokenizer.prints_the_date(),
    };
    let ours = |request: InferenceRequest| {
        let ids: Result<Vec<u32>, TokenizeError> = tokenizer.encode_request(&request);
        std::future::ready(ids)
    };
    let report = probe::run(&client, &target, ours).await;
    let version = found.engine_version.as_deref().unwrap_or("unknown version");
    let text = if args.json {
        format!("{}\n", serde_json::to_string_pretty(&report).context("the report")?)
    } else {
        render(&report, &tokenizer, &target, version)
    };
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(if report.proof() == Proof::Exact && report.answered() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(NOT_EXACT)
    })
}

fn render(report: &ProbeReport, tokenizer: &LocalTokenizer, target: &ProbeTarget, version: &str) -> String {
    let mut out = String::new();
    let _ = writeln!(
        out,
        "model     {} at {} ({} {version})\nencoder   {}{}\n",
        target.model,
        target.urls.base,
        target.engine.as_str(),
        tokenizer.encoder_name(),
        tokenizer.fallback_reason().map(|reason| format!(" ({reason})")).unwrap_or_default()
    );
    let rows = report.probed.iter().map(|one| {
        let (result, ids, via, more) = columns(&one.outcome);
        vec![one.probe.to_owned(), result.to_owned(), ids, via.to_owned(), more]
    });
    out.push_str(&table(&["probe", "result", "ids", "asked", "first difference or reason"], rows.collect()));
    let _ = writeln!(out, "\n{}", verdict(report));
    out
}

fn columns(outcome: &Outcome) -> (&'static str, String, &'static str, String) {
    match outcome {
        Outcome::Equal { ids, via } => ("equal", ids.to_string(), via.as_str(), String::new()),
        Outcome::Differs { difference, via } => {
            let shown = |id: Option<u32>| id.map_or_else(|| "the end".to_owned(), |id| id.to_string());
            let more = format!(
                "position {}: engine {}, ours {} ({} ids, ours {})",
                difference.position,
                shown(difference.engine),
                shown(difference.ours),
                difference.engine_count,
                difference.our_count
            );
            ("DIFFERS", difference.engine_count.to_string(), via.as_str(), more)
        }
        Outcome::Refused => ("refused", "-".to_owned(), "-", "the engine takes no such request".to_owned()),
        Outcome::Declined { reason } => ("absent", "-".to_owned(), "-", reason.clone()),
        Outcome::Unavailable { reason } => ("failed", "-".to_owned(), "-", reason.clone()),
    }
}

fn verdict(report: &ProbeReport) -> String {
    let (equal, different) = (report.equal(), report.differences().count());
    match report.proof() {
        Proof::Differs => format!(
            "differs: {different} of {} probes. Is it the tokenizer, and the chat template, of the model that is served?",
            equal + different
        ),
        Proof::Exact if report.answered() => format!("exact: {equal} probes have equal ids"),
        Proof::Exact | Proof::Unverified => "unverified: the engine could not be asked".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kvasir_tokenize::probe::{Difference, Probed, Via};

    fn report(outcomes: Vec<Outcome>) -> ProbeReport {
        ProbeReport {
            probed: outcomes.into_iter().map(|outcome| Probed { probe: "chat", outcome }).collect(),
        }
    }

    #[test]
    fn a_difference_is_told_by_its_place() {
        let difference =
            Difference { position: 3, engine: Some(7), ours: None, engine_count: 9, our_count: 3 };
        let outcome = Outcome::Differs { difference, via: Via::Render };
        let (result, _, via, more) = columns(&outcome);
        assert_eq!((result, via), ("DIFFERS", "render"));
        assert_eq!(more, "position 3: engine 7, ours the end (9 ids, ours 3)");
        assert!(verdict(&report(vec![outcome])).starts_with("differs: 1 of 1"));
    }

    #[test]
    fn an_engine_that_went_away_proves_nothing() {
        let equal = Outcome::Equal { ids: 4, via: Via::Tokenize };
        let gone = Outcome::Unavailable { reason: "timed out".to_owned() };
        assert_eq!(verdict(&report(vec![equal.clone()])), "exact: 1 probes have equal ids");
        assert!(verdict(&report(vec![equal, gone])).starts_with("unverified"));
    }
}
