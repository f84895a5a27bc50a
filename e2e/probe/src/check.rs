//! Probe mode: requests that share one long prefix, and who served them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::config::{LoadConfig, ProbeConfig};
use crate::engines::{Attribution, Counters, Engines, attribute, participants};
use crate::error::ProbeError;
use crate::exchange::{Answer, Caller, HttpCaller};
use crate::failure::Failure;
use crate::probe_report::{PhaseReport, ProbeReport, RequestLine};
use crate::progress::Progress;
use crate::report::EndpointSource;
use crate::script::Script;
use crate::verdict::{Judgement, Seen, Verdict, judge};
use crate::workload::Workload;

/// Between two looks at counters that have not caught up.
const METRICS_POLL: Duration = Duration::from_millis(50);

/// Everything that the requests of a probe need.
struct Probe {
    caller: HttpCaller,
    script: Script,
    engines: Engines,
    metrics_wait: Duration,
    progress: Arc<Progress>,
}

/// One request as it went.
struct Exchange {
    number: u32,
    began: Instant,
    outcome: Result<Answer, Failure>,
    /// Who served, by the counters.
    by_metrics: Option<String>,
}

/// One part as it went.
#[derive(Default)]
struct Phase {
    exchanges: Vec<Exchange>,
    taken: BTreeMap<String, u64>,
    /// How many engines the counters saw at work.
    participants: usize,
}

/// Sends the requests and judges. An error is a run without a verdict; a failed request is part of the report.
pub async fn run_probe(config: ProbeConfig, stop: CancellationToken) -> Result<ProbeReport, ProbeError> {
    run_probe_watched(config, stop, Arc::new(Progress::default())).await
}

/// The same, with counters to watch. `progress` must be fresh.
pub async fn run_probe_watched(
    config: ProbeConfig,
    stop: CancellationToken,
    progress: Arc<Progress>,
) -> Result<ProbeReport, ProbeError> {
    config.check()?;
    let workload = Workload::SharedPrefix {
        groups: 1,
        prefix_tokens: config.prefix_tokens,
        tail_tokens: config.tail_tokens,
    };
    let texts = LoadConfig {
        target: config.target.clone(),
        seed: config.seed,
        salt: config.salt.clone(),
        tokens_per_word: config.tokens_per_word,
        prompt_text: config.prompt_text.clone(),
        ..LoadConfig::new("", "", workload)
    };
    let probe = Probe {
        caller: HttpCaller::new(&config.target)?,
        script: Script::new(&texts)?,
        engines: Engines::new(&config.target.engines)?,
        metrics_wait: config.metrics_wait,
        progress,
    };
    probe.progress.expect(u64::from(config.requests) + u64::from(config.concurrent));
    let phases = async {
        let sequential = probe.one_after_the_other(config.requests).await?;
        let concurrent = match config.concurrent {
            0 => None,
            count => Some(probe.at_once(config.requests, count).await?),
        };
        Ok((sequential, concurrent))
    };
    let (sequential, concurrent) = stop.run_until_cancelled(phases).await.ok_or(ProbeError::Stopped)??;
    Ok(probe.report(&config, sequential, concurrent))
}

impl Probe {
    async fn one_after_the_other(&self, count: u32) -> Result<Phase, ProbeError> {
        let mut phase = Phase::default();
        for number in 1..=count {
            let before = self.engines.read().await?;
            let mut exchange = self.exchange(number).await;
            let taken = self.taken_since(&before, prompt_tokens(&exchange)).await?;
            if let Attribution::One(index) = attribute(&taken) {
                exchange.by_metrics = self.engines.name(index);
            }
            self.add(&mut phase.taken, &taken);
            phase.exchanges.push(exchange);
        }
        Ok(phase)
    }

    async fn at_once(&self, numbers_before: u32, count: u32) -> Result<Phase, ProbeError> {
        let before = self.engines.read().await?;
        let requests = (1..=count).map(|offset| self.exchange(numbers_before + offset));
        let mut exchanges = join_all(requests).await;
        let taken = self.taken_since(&before, exchanges.iter().map(prompt_tokens).sum()).await?;
        // Counters cannot tell requests apart that run at the same time, unless all went to one engine.
        let at_work = participants(&taken, count);
        if let [only] = at_work[..] {
            for exchange in &mut exchanges {
                exchange.by_metrics = self.engines.name(only);
            }
        }
        let mut phase = Phase { exchanges, participants: at_work.len(), ..Phase::default() };
        self.add(&mut phase.taken, &taken);
        Ok(phase)
    }

    async fn exchange(&self, number: u32) -> Exchange {
        let body = self.script.open(u64::from(number)).next_body();
        self.progress.start(None);
        let began = Instant::now();
        let outcome = self.caller.call(body, false).await;
        self.progress.end(outcome.is_ok());
        Exchange { number, began, outcome, by_metrics: None }
    }

    /// Prompt tokens that each engine took since `before`. Engines update their counters a moment after they
    /// answer, so this looks again until `expected` have been counted or the time is up.
    async fn taken_since(&self, before: &[Counters], expected: u64) -> Result<Vec<u64>, ProbeError> {
        let until = Instant::now() + self.metrics_wait;
        loop {
            let after = self.engines.read().await?;
            let taken: Vec<u64> =
                before.iter().zip(&after).map(|(before, after)| after.prompt_tokens_since(before)).collect();
            if taken.iter().sum::<u64>() >= expected.max(1) || taken.is_empty() || Instant::now() >= until {
                return Ok(taken);
            }
            tokio::time::sleep(METRICS_POLL).await;
        }
    }

    fn add(&self, sums: &mut BTreeMap<String, u64>, taken: &[u64]) {
        for (index, tokens) in taken.iter().enumerate() {
            if let Some(name) = self.engines.name(index) {
                *sums.entry(name).or_default() += tokens;
            }
        }
    }

    fn report(&self, config: &ProbeConfig, sequential: Phase, concurrent: Option<Phase>) -> ProbeReport {
        let all = || sequential.exchanges.iter().chain(concurrent.iter().flat_map(|phase| &phase.exchanges));
        let source = source_of(all());
        let failed = all().filter(|exchange| exchange.outcome.is_err()).count() as u64;
        let fraction = self.script.shared_fraction();
        let lines = |phase: &Phase| -> Vec<RequestLine> {
            phase.exchanges.iter().map(|exchange| line_of(exchange, source, fraction)).collect()
        };
        let first_lines = lines(&sequential);
        let judgement = judge(&first_lines.iter().map(seen).collect::<Vec<_>>());
        let concurrent_part = concurrent.as_ref().map(|phase| {
            let requests = lines(phase);
            let with_first: Vec<Seen<'_>> =
                first_lines.first().into_iter().chain(&requests).map(seen).collect();
            let mut judgement = judge(&with_first);
            if judgement.verdict == Verdict::Unknown && failed == 0 && phase.participants > 1 {
                let reason = format!("{} engines took prompt tokens", phase.participants);
                judgement = Judgement { verdict: Verdict::Scattered, reason };
            }
            phase_report(judgement, requests, phase.taken.clone())
        });
        let verdict = concurrent_part
            .as_ref()
            .map_or(judgement.verdict, |concurrent| judgement.verdict.and(concurrent.verdict));
        ProbeReport {
            url: config.target.base_url.clone(),
            model: config.target.model.clone(),
            verdict,
            failed,
            engine_source: source,
            sequential: phase_report(judgement, first_lines, sequential.taken.clone()),
            concurrent: concurrent_part,
        }
    }
}

/// One source for a whole run, because a header and a URL name the same engine differently: the counters if they
/// tell all, else the header if it does, else whichever tells anything.
fn source_of<'e>(exchanges: impl Iterator<Item = &'e Exchange> + Clone) -> Option<EndpointSource> {
    let by_metrics = |exchange: &Exchange| exchange.by_metrics.is_some();
    let by_header =
        |exchange: &Exchange| exchange.outcome.as_ref().is_ok_and(|answer| answer.endpoint.is_some());
    let all = |told: &dyn Fn(&Exchange) -> bool| exchanges.clone().all(told);
    let any = |told: &dyn Fn(&Exchange) -> bool| exchanges.clone().any(told);
    if all(&by_metrics) || (any(&by_metrics) && !all(&by_header)) {
        Some(EndpointSource::Metrics)
    } else {
        any(&by_header).then_some(EndpointSource::Header)
    }
}

fn line_of(exchange: &Exchange, source: Option<EndpointSource>, shared_fraction: f64) -> RequestLine {
    let since = |instant: Instant| instant.duration_since(exchange.began).as_secs_f64() * 1000.0;
    let mut line = RequestLine { number: exchange.number, ..RequestLine::default() };
    if source == Some(EndpointSource::Metrics) {
        line.engine.clone_from(&exchange.by_metrics);
    }
    match &exchange.outcome {
        Ok(answer) => {
            if source == Some(EndpointSource::Header) {
                line.engine = answer.endpoint.as_ref().map(ToString::to_string);
            }
            line.prompt_tokens = answer.usage.map(|usage| usage.prompt_tokens);
            line.shared_tokens =
                line.prompt_tokens.map(|tokens| (tokens as f64 * shared_fraction).round() as u64);
            line.cached_tokens = answer.usage.and_then(|usage| usage.cached_tokens);
            line.ttft_ms = answer.first_content.map(since);
            line.total_ms = Some(since(answer.finished));
        }
        Err(failure) => {
            line.error = Some(failure.kind.to_string());
            line.error_message = Some(failure.message.clone());
        }
    }
    line
}

fn seen(line: &RequestLine) -> Seen<'_> {
    Seen {
        number: line.number,
        engine: line.engine.as_deref(),
        cached_tokens: line.cached_tokens,
        shared_tokens: line.shared_tokens,
        failed: line.error.is_some(),
    }
}

fn phase_report(
    judgement: Judgement,
    requests: Vec<RequestLine>,
    prompt_tokens_by_engine: BTreeMap<String, u64>,
) -> PhaseReport {
    PhaseReport { verdict: judgement.verdict, reason: judgement.reason, requests, prompt_tokens_by_engine }
}

/// Prompt tokens of an exchange as the engine reported them, 0 when it did not.
fn prompt_tokens(exchange: &Exchange) -> u64 {
    exchange.outcome.as_ref().ok().and_then(|answer| answer.usage).map_or(0, |usage| usage.prompt_tokens)
}

#[cfg(test)]
mod tests;
