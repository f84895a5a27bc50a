//! Which LoRA adapters one engine has loaded, as far as its reports tell.

use std::time::Instant;

use kvasir_core::{AdapterStanding, EngineAdapters};

use crate::freshness::Freshness;

/// Most names kept, whatever number of places an engine claims to have.
const MOST_KEPT: usize = 1024;

/// What an engine lists, its last report, and what it had loaded before.
///
/// Engines name the adapters of requests that run or wait. One whose requests have ended stays in its place until another
/// one needs it, the longest unused first (vLLM's LRU of `max_lora` places). So the names that were seen last, as many
/// as there are places, are taken to be there still.
#[derive(Debug, Default)]
pub(crate) struct AdapterMemory {
    told: Option<Told>,
    /// At `/v1/models`; sorted.
    listed: Vec<String>,
}

#[derive(Debug)]
struct Told {
    now: EngineAdapters,
    /// The last names that ran, the newest first; never more than there are places.
    kept: Vec<String>,
    at: Instant,
}

impl AdapterMemory {
    /// Takes in a report; `None` says that the engine tells nothing of adapters.
    pub(crate) fn seen(&mut self, report: Option<EngineAdapters>, at: Instant) {
        let Some(now) = report else {
            self.told = None;
            return;
        };
        let before = self.told.take().map(|told| told.kept).unwrap_or_default();
        let mut kept: Vec<String> = Vec::new();
        for name in now.running.iter().chain(&now.waiting).chain(&before) {
            if kept.len() == (now.most as usize).min(MOST_KEPT) {
                break;
            }
            if !kept.contains(name) {
                kept.push(name.clone());
            }
        }
        self.told = Some(Told { now, kept, at });
    }

    /// Takes in the adapters of a model list.
    pub(crate) fn listed(&mut self, mut adapters: Vec<String>) {
        adapters.sort_unstable();
        self.listed = adapters;
    }

    /// Whether the engine lists `name` as an adapter.
    pub(crate) fn lists(&self, name: &str) -> bool {
        self.listed.binary_search_by(|adapter| adapter.as_str().cmp(name)).is_ok()
    }

    /// Where `adapter` stands by a report that is not too old.
    pub(crate) fn standing(&self, adapter: &str, now: Instant, freshness: Freshness) -> AdapterStanding {
        let Some(told) = &self.told else { return AdapterStanding::Unknown };
        if !freshness.trusts(now.saturating_duration_since(told.at)) {
            return AdapterStanding::Unknown;
        }
        match told.now.standing(adapter) {
            AdapterStanding::Absent | AdapterStanding::Full
                if told.kept.iter().any(|name| name == adapter) =>
            {
                AdapterStanding::Resident
            }
            standing => standing,
        }
    }

    /// The last report.
    pub(crate) fn report(&self) -> Option<EngineAdapters> {
        self.told.as_ref().map(|told| told.now.clone())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use AdapterStanding::{Absent, Full, Loading, Resident, Unknown};

    use super::*;

    fn report(running: &[&str], waiting: &[&str], most: u32) -> Option<EngineAdapters> {
        let names = |list: &[&str]| list.iter().map(|name| (*name).to_owned()).collect();
        Some(EngineAdapters { running: names(running), waiting: names(waiting), most })
    }

    /// Where `a`, `b` and `c` stand after these reports.
    fn standings(reports: &[Option<EngineAdapters>]) -> [AdapterStanding; 3] {
        let (mut memory, at) = (AdapterMemory::default(), Instant::now());
        for report in reports {
            memory.seen(report.clone(), at);
        }
        let freshness = Freshness::of(Duration::from_secs(1));
        ["a", "b", "c"].map(|name| memory.standing(name, at, freshness))
    }

    #[test]
    fn an_adapter_stays_in_its_place_until_another_needs_it() {
        assert_eq!(standings(&[report(&["a"], &[], 2), report(&[], &[], 2)]), [Resident, Absent, Absent]);
        let displaced = [report(&["a"], &[], 2), report(&["b"], &[], 2), report(&["c"], &[], 2)];
        assert_eq!(standings(&displaced), [Absent, Resident, Resident]);
        assert_eq!(standings(&[report(&["a"], &[], 1), report(&["b"], &[], 1)]), [Full, Resident, Full]);
    }

    #[test]
    fn one_that_waits_takes_the_place_of_one_that_idles() {
        assert_eq!(standings(&[report(&["a"], &[], 1), report(&[], &["b"], 1)]), [Full, Loading, Full]);
    }

    #[test]
    fn nothing_is_remembered_where_the_number_of_places_is_unknown() {
        assert_eq!(standings(&[report(&["a"], &[], 0), report(&[], &[], 0)]), [Absent; 3]);
    }

    #[test]
    fn an_engine_that_claims_endless_places_is_not_remembered_without_end() {
        let (mut memory, at) = (AdapterMemory::default(), Instant::now());
        for round in 0..4 {
            let names: Vec<String> = (0..1000).map(|number| format!("{round}-{number}")).collect();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            memory.seen(report(&names, &[], u32::MAX), at);
        }
        assert_eq!(memory.told.map(|told| told.kept.len()), Some(MOST_KEPT));
    }

    #[test]
    fn silence_and_age_are_unknown() {
        assert_eq!(standings(&[]), [Unknown; 3]);
        assert_eq!(standings(&[report(&["a"], &[], 1), None]), [Unknown; 3]);
        let (mut memory, at) = (AdapterMemory::default(), Instant::now());
        memory.seen(report(&["a"], &[], 1), at);
        let freshness = Freshness::of(Duration::from_secs(1));
        let after = |seconds| memory.standing("a", at + Duration::from_secs(seconds), freshness);
        assert_eq!((after(5), after(6)), (Resident, Unknown), "numbers are trusted for 5 s at least");
    }
}
