//! Who served, by the counters of the engines themselves.

use futures_util::future::try_join_all;
use http::HeaderMap;

use crate::base_url::BaseUrl;
use crate::client::Client;
use crate::discovery::fetch;
use crate::error::ProbeError;

/// Counters of one engine, summed over its ranks and models.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Counters {
    /// Prompt tokens it has taken; `None` when its page has no such counter.
    pub(crate) prompt_tokens: Option<f64>,
    /// Prompt tokens that came out of its cache.
    pub(crate) cached_tokens: Option<f64>,
    /// Requests it has finished.
    pub(crate) requests: Option<f64>,
}

/// The engines that were named, in that order.
#[derive(Debug)]
pub(crate) struct Engines {
    engines: Vec<Client>,
}

/// What the counters say about one request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Attribution {
    /// No counter moved.
    Nobody,
    /// This engine took it.
    One(usize),
    /// Two or more moved by a like amount: something else was being served too.
    Several,
}

impl Engines {
    /// Checks the URLs.
    pub(crate) fn new(urls: &[String]) -> Result<Self, ProbeError> {
        let engines =
            urls.iter().map(|url| BaseUrl::parse(url).map(Client::new)).collect::<Result<_, _>>()?;
        Ok(Self { engines })
    }

    /// Whether none was named.
    pub(crate) fn is_empty(&self) -> bool {
        self.engines.is_empty()
    }

    /// An engine's name in reports: its URL.
    pub(crate) fn name(&self, index: usize) -> Option<String> {
        self.engines.get(index).map(|client| client.url().to_string())
    }

    /// Reads every engine's page at once. An engine that has no prompt token counter is an error, because it
    /// could serve unseen.
    pub(crate) async fn read(&self) -> Result<Vec<Counters>, ProbeError> {
        let headers = HeaderMap::new();
        try_join_all(self.engines.iter().map(|client| async {
            let unreadable = |reason| ProbeError::NoMetrics { url: client.url().to_string(), reason };
            let page = fetch(client, "/metrics", &headers).await;
            let page = page.map_err(|failure| unreadable(failure.message))?;
            let counters = parse(&String::from_utf8_lossy(&page));
            if counters.prompt_tokens.is_none() {
                return Err(unreadable(
                    "no vllm:prompt_tokens_total and no sglang:prompt_tokens_total".to_owned(),
                ));
            }
            Ok(counters)
        }))
        .await
    }
}

impl Counters {
    /// Prompt tokens taken since `before`; a counter that fell belongs to a restarted engine and counts from 0.
    pub(crate) fn prompt_tokens_since(&self, before: &Self) -> u64 {
        rise(self.prompt_tokens, before.prompt_tokens).unwrap_or(0)
    }

    /// Cached tokens since `before`, when the engine counts them.
    pub(crate) fn cached_tokens_since(&self, before: &Self) -> Option<u64> {
        rise(self.cached_tokens, before.cached_tokens)
    }

    /// Requests finished since `before`, when the engine counts them.
    pub(crate) fn requests_since(&self, before: &Self) -> Option<u64> {
        rise(self.requests, before.requests)
    }
}

/// Who took one request, by prompt tokens taken while it ran.
///
/// A stray request of someone else is told from ours by its size: the winner must have taken more than twice as
/// much as anyone else.
pub(crate) fn attribute(taken: &[u64]) -> Attribution {
    let mut order: Vec<usize> = (0..taken.len()).collect();
    let of = |index: &usize| taken.get(*index).copied().unwrap_or(0);
    order.sort_by_key(|index| std::cmp::Reverse(of(index)));
    let Some(first) = order.first().filter(|index| of(index) > 0) else { return Attribution::Nobody };
    let second = order.get(1).map_or(0, of);
    if second.saturating_mul(2) >= of(first) { Attribution::Several } else { Attribution::One(*first) }
}

/// The engines that took part in `requests` equal requests sent at once. Whoever served one of them took that
/// share of all tokens; half of it is the bar, so that stray small requests do not count.
pub(crate) fn participants(taken: &[u64], requests: u32) -> Vec<usize> {
    let total: u64 = taken.iter().sum();
    let served = |tokens: u64| tokens > 0 && tokens.saturating_mul(2 * u64::from(requests)) >= total;
    (0..).zip(taken).filter(|(_, tokens)| served(**tokens)).map(|(index, _)| index).collect()
}

fn rise(now: Option<f64>, before: Option<f64>) -> Option<u64> {
    let now = now?;
    let before = before.unwrap_or(0.0);
    let rise = if now >= before { now - before } else { now };
    Some(rise.round() as u64)
}

/// Reads the counters out of a Prometheus page.
fn parse(page: &str) -> Counters {
    let mut counters = Counters::default();
    let mut prefix_hits = None;
    for line in page.lines().filter(|line| line.starts_with("vllm:") || line.starts_with("sglang:")) {
        let name_end = line.find(['{', ' ']).unwrap_or(line.len());
        let (name, rest) = line.split_at(name_end);
        let counter = match name {
            "vllm:prompt_tokens_total" | "sglang:prompt_tokens_total" => &mut counters.prompt_tokens,
            "vllm:prompt_tokens_cached_total" | "sglang:cached_tokens_total" => &mut counters.cached_tokens,
            "vllm:prefix_cache_hits_total" => &mut prefix_hits,
            "vllm:request_success_total" | "sglang:num_requests_total" => &mut counters.requests,
            _ => continue,
        };
        // Label values may hold anything, so the value is what follows the last closing brace.
        let value = rest.rsplit('}').next().unwrap_or(rest).split_ascii_whitespace().next();
        if let Some(value) = value.and_then(|text| text.parse::<f64>().ok()).filter(|value| value.is_finite())
        {
            *counter.get_or_insert(0.0) += value;
        }
    }
    // Engines before `prompt_tokens_cached_total` count hits of the prefix cache, which are tokens too.
    counters.cached_tokens = counters.cached_tokens.or(prefix_hits);
    counters
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_summed_over_ranks_and_labels() {
        let page = "\
# TYPE vllm:prompt_tokens_total counter
vllm:prompt_tokens_total{engine=\"0\",model_name=\"a } b\"} 1.5e3
vllm:prompt_tokens_total{engine=\"1\",model_name=\"m\"} 500.0 1700000000
vllm:prompt_tokens_created{engine=\"0\"} 1.7e9
vllm:prefix_cache_hits_total{engine=\"0\"} 64.0
vllm:request_success_total{finished_reason=\"stop\"} 2.0
vllm:request_success_total{finished_reason=\"length\"} 3.0
other_metric 9
";
        assert_eq!(
            parse(page),
            Counters { prompt_tokens: Some(2000.0), cached_tokens: Some(64.0), requests: Some(5.0) }
        );
        let newer = format!("{page}vllm:prompt_tokens_cached_total 7\n");
        assert_eq!(parse(&newer).cached_tokens, Some(7.0));
        assert_eq!(parse("sglang:prompt_tokens_total 4\n").prompt_tokens, Some(4.0));
        assert_eq!(parse("nothing here"), Counters::default());
    }

    #[test]
    fn a_restarted_engine_counts_from_zero() {
        let before = Counters { prompt_tokens: Some(100.0), ..Counters::default() };
        let after = Counters { prompt_tokens: Some(40.0), ..Counters::default() };
        assert_eq!(after.prompt_tokens_since(&before), 40);
        assert_eq!(after.cached_tokens_since(&before), None);
    }

    #[test]
    fn who_took_part_in_requests_at_once() {
        for (taken, requests, expected) in [
            (&[0, 0][..], 4, &[][..]),
            (&[77_600, 200], 4, &[0]),
            (&[58_200, 19_400], 4, &[0, 1]),
            (&[0, 40], 4, &[1]),
        ] {
            assert_eq!(participants(taken, requests), expected, "{taken:?}");
        }
    }

    #[test]
    fn the_one_that_took_most_served_unless_another_took_much() {
        for (taken, expected) in [
            (&[0, 0][..], Attribution::Nobody),
            (&[], Attribution::Nobody),
            (&[0, 19_400], Attribution::One(1)),
            (&[19_400, 300, 20], Attribution::One(0)),
            (&[19_400, 9_700], Attribution::Several),
            (&[5, 5], Attribution::Several),
        ] {
            assert_eq!(attribute(taken), expected, "{taken:?}");
        }
    }
}
