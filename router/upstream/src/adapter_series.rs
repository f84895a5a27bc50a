//! vLLM's series about LoRA adapters: the state is in the labels, and the value is when it was last seen.

use kvasir_core::EngineAdapters;

use crate::prometheus_text::Series;

/// Most names kept of one list; an engine has a few dozen places at most.
const MAX_NAMES: usize = 1024;

/// Label values: comma-separated names, comma-separated names, a number.
const RUNNING: &str = "running_lora_adapters";
const WAITING: &str = "waiting_lora_adapters";
const MOST: &str = "max_lora";

/// The series of one page. Every state of the adapters that there ever was keeps its series, so the newest counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct AdapterSeries {
    newest: Option<(f64, EngineAdapters)>,
    oldest_seen: Option<f64>,
}

impl AdapterSeries {
    /// Takes in one series; of two that are equally new, the later one counts.
    pub(crate) fn add(&mut self, sample: &Series<'_>) {
        let at = sample.value;
        self.oldest_seen = Some(self.oldest_seen.map_or(at, |oldest| oldest.min(at)));
        if self.newest.as_ref().is_some_and(|(newest, _)| *newest > at) {
            return;
        }
        let adapters = EngineAdapters {
            running: names(sample, RUNNING),
            waiting: names(sample, WAITING),
            most: sample.label(MOST).and_then(|most| most.trim().parse().ok()).unwrap_or(0),
        };
        self.newest = Some((at, adapters));
    }

    /// The state now; `None` when the page has no such series, or adds up those of several API servers: their times
    /// become sums, and the one that most servers saw looks like the newest for ever.
    pub(crate) fn newest(&self) -> Option<EngineAdapters> {
        let (newest, adapters) = self.newest.as_ref()?;
        // Times of one engine's life differ by far less than half of the seconds since 1970.
        let summed = self.oldest_seen.is_some_and(|oldest| *newest > oldest * 1.5);
        (!summed).then(|| adapters.clone())
    }
}

fn names(sample: &Series<'_>, label: &str) -> Vec<String> {
    let value = sample.label(label).unwrap_or_default();
    let names = value.split(',').map(str::trim).filter(|name| !name.is_empty());
    names.take(MAX_NAMES).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prometheus_text::series;

    fn read(page: &str) -> Option<EngineAdapters> {
        let mut all = AdapterSeries::default();
        for sample in series(page, |_| true) {
            all.add(&sample.expect("a good page"));
        }
        all.newest()
    }

    fn line(running: &str, waiting: &str, at: &str) -> String {
        format!(
            "vllm:lora_requests_info{{max_lora=\"4\",running_lora_adapters=\"{running}\",\
             waiting_lora_adapters=\"{waiting}\"}} {at}\n"
        )
    }

    #[test]
    fn the_newest_state_counts_whatever_the_order() {
        let (old, new) = (line("a", "", "1.7000000000e+09"), line("b,c", "d", "1.7000000015e+09"));
        let expected = EngineAdapters {
            running: vec!["b".to_owned(), "c".to_owned()],
            waiting: vec!["d".to_owned()],
            most: 4,
        };
        assert_eq!(read(&format!("{old}{new}")), Some(expected.clone()));
        assert_eq!(read(&format!("{new}{old}")), Some(expected));
    }

    #[test]
    fn an_engine_without_requests_has_room_and_no_names() {
        let idle = EngineAdapters { most: 4, ..EngineAdapters::default() };
        assert_eq!(read(&line("", "", "1.7e9")), Some(idle));
        assert_eq!(read(""), None);
        let bare = "vllm:lora_requests_info 1\n";
        assert_eq!(read(bare), Some(EngineAdapters::default()), "no label is no name");
    }

    #[test]
    fn sums_of_several_servers_tell_nothing() {
        let (once, twice) = (line("a", "", "1.7e9"), line("", "", "3.4e9"));
        assert_eq!(read(&format!("{once}{twice}")), None);
    }

    #[test]
    fn lists_are_bounded() {
        let many: Vec<String> = (0..5000).map(|number| format!("a{number}")).collect();
        let told = read(&line(&many.join(","), " x , ,y", "1.7e9")).expect("a state");
        assert_eq!((told.running.len(), told.waiting), (1024, vec!["x".to_owned(), "y".to_owned()]));
    }
}
