use proptest::prelude::*;

use super::*;

/// What vLLM 0.32.0 prints with `--data-parallel-size 2`, cut down to the families that matter here.
const VLLM: &str = r#"# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="test-model"} 3.0
vllm:num_requests_running{engine="1",model_name="test-model"} 4.0
vllm:num_requests_waiting{engine="0",model_name="test-model"} 1.0
vllm:num_requests_waiting{engine="1",model_name="test-model"} 0.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="test-model",reason="capacity"} 9.0
vllm:kv_cache_usage_perc{engine="0",model_name="test-model"} 0.2
vllm:kv_cache_usage_perc{engine="1",model_name="test-model"} 0.6
vllm:engine_sleep_state{engine="0",model_name="test-model",sleep_state="awake"} 1.0
vllm:engine_sleep_state{engine="0",model_name="test-model",sleep_state="weights_offloaded"} 0.0
vllm:engine_sleep_state{engine="0",model_name="test-model",sleep_state="discard_all"} 0.0
vllm:cache_config_info{block_size="32",engine="0",num_gpu_blocks="300",num_cpu_blocks="None"} 1.0
vllm:cache_config_info{block_size="32",engine="1",num_gpu_blocks="300",num_cpu_blocks="None"} 1.0
# TYPE vllm:time_to_first_token_seconds histogram
vllm:time_to_first_token_seconds_bucket{engine="0",le="0.001",model_name="test-model"} 0.0
vllm:time_to_first_token_seconds_count{engine="0",model_name="test-model"} 10.0
vllm:time_to_first_token_seconds_sum{engine="0",model_name="test-model"} 2.0
vllm:time_to_first_token_seconds_created{engine="0",model_name="test-model"} 1.7e+09
vllm:time_to_first_token_seconds_count{engine="1",model_name="test-model"} 30.0
vllm:time_to_first_token_seconds_sum{engine="1",model_name="test-model"} 4.0
vllm:inter_token_latency_seconds_count{engine="0",model_name="test-model"} 100.0
vllm:inter_token_latency_seconds_sum{engine="0",model_name="test-model"} 1.0
python_gc_objects_collected_total{generation="0"} 5.0
"#;

fn numbers(page: &str, engine: EngineKind, rank: Option<u32>) -> PageNumbers {
    read_metrics(page.as_bytes(), engine).expect("a good page").numbers(rank).expect("a known rank")
}

fn totals(sum: f64, count: f64) -> Option<HistogramTotals> {
    Some(HistogramTotals { sum, count })
}

#[test]
fn vllm_ranks_are_added_up() {
    let all = numbers(VLLM, EngineKind::Vllm, None);
    let expected = PageNumbers {
        running: 7,
        waiting: 1,
        kv_usage: 0.4,
        kv_blocks: 600,
        block_size: 32,
        ttft: totals(6.0, 40.0),
        tpot: totals(1.0, 100.0),
        asleep: Some(false),
    };
    assert_eq!(all, expected);
}

#[test]
fn one_rank_is_picked_when_asked() {
    let page = read_metrics(VLLM.as_bytes(), EngineKind::Vllm).expect("a good page");
    assert_eq!(page.ranks().collect::<Vec<_>>(), [0, 1]);
    let one = page.numbers(Some(1)).expect("rank 1 is there");
    assert_eq!((one.running, one.waiting, one.kv_usage, one.kv_blocks), (4, 0, 0.6, 300));
    assert_eq!((one.ttft, one.tpot, one.asleep), (totals(4.0, 30.0), None, None));
    assert_eq!(page.numbers(Some(2)), None);
}

#[test]
fn a_page_without_rank_labels_stands_for_every_rank() {
    let page = "vllm:num_requests_running 2\nvllm:num_requests_waiting 3\n";
    for rank in [None, Some(0), Some(5)] {
        let all = numbers(page, EngineKind::Vllm, rank);
        assert_eq!((all.running, all.waiting, all.kv_usage, all.kv_blocks), (2, 3, 0.0, 0));
        assert_eq!((all.ttft, all.asleep), (None, None));
    }
}

#[test]
fn older_names_are_taken_where_the_newer_ones_are_missing() {
    let old = "vllm:num_requests_running 1\nvllm:gpu_cache_usage_perc 0.25\n\
               vllm:time_per_output_token_seconds_sum 5\nvllm:time_per_output_token_seconds_count 10\n";
    let read = numbers(old, EngineKind::Vllm, None);
    assert_eq!((read.kv_usage, read.tpot), (0.25, totals(5.0, 10.0)));
    let both = format!(
        "{old}vllm:kv_cache_usage_perc 0.5\nvllm:inter_token_latency_seconds_sum 1\n\
         vllm:inter_token_latency_seconds_count 4\n"
    );
    let read = numbers(&both, EngineKind::Vllm, None);
    assert_eq!((read.kv_usage, read.tpot), (0.5, totals(1.0, 4.0)));
}

#[test]
fn sleep_is_seen() {
    let page = |awake, offloaded| {
        format!(
            "vllm:num_requests_running 0\n\
             vllm:engine_sleep_state{{engine=\"0\",sleep_state=\"awake\"}} {awake}\n\
             vllm:engine_sleep_state{{engine=\"0\",sleep_state=\"weights_offloaded\"}} {offloaded}\n"
        )
    };
    assert_eq!(numbers(&page(1, 0), EngineKind::Vllm, Some(0)).asleep, Some(false));
    assert_eq!(numbers(&page(0, 1), EngineKind::Vllm, Some(0)).asleep, Some(true));
    assert_eq!(numbers(&page(0, 0), EngineKind::Vllm, None).asleep, Some(true));
}

#[test]
fn sglang_counts_each_number_once() {
    let page = r#"sglang:num_running_reqs{dp_rank="0",tp_rank="0",pp_rank="0"} 2
sglang:num_running_reqs{dp_rank="0",tp_rank="1",pp_rank="0"} 2
sglang:num_running_reqs{dp_rank="1",tp_rank="2",pp_rank="0"} 5
sglang:num_queue_reqs{dp_rank="0",tp_rank="0",pp_rank="0",priority=""} 4
sglang:num_queue_reqs{dp_rank="0",tp_rank="0",pp_rank="0",priority="7"} 3
sglang:token_usage{dp_rank="0",tp_rank="0",pp_rank="0"} 0.5
sglang:max_total_num_tokens{dp_rank="0",tp_rank="0",pp_rank="0"} 1000
sglang:time_to_first_token_seconds_sum{model_name="m"} 6
sglang:time_to_first_token_seconds_count{model_name="m"} 3
"#;
    let all = numbers(page, EngineKind::Sglang, None);
    assert_eq!((all.running, all.waiting, all.kv_usage), (7, 4, 0.5));
    assert_eq!((all.kv_blocks, all.block_size), (1000, 1));
    let one = numbers(page, EngineKind::Sglang, Some(1));
    assert_eq!((one.running, one.waiting), (5, 0));
    assert_eq!(one.ttft, totals(6.0, 3.0), "latency has no rank label and stands for every rank");
}

#[test]
fn sglang_tells_its_capacity_in_three_ways() {
    let base = "sglang:num_running_reqs 0\n";
    for (page, capacity) in [
        ("sglang:cache_config_info{page_size=\"64\",num_pages=\"100\"} 1\n", (100, 64)),
        ("sglang:page_size 64\nsglang:num_pages 100\nsglang:max_total_num_tokens 6400\n", (100, 64)),
        ("sglang:page_size 64\nsglang:max_total_num_tokens 6401\n", (100, 64)),
        ("", (0, 0)),
    ] {
        let read = numbers(&format!("{base}{page}"), EngineKind::Sglang, None);
        assert_eq!((read.kv_blocks, read.block_size), capacity, "{page}");
    }
}

#[test]
fn numbers_that_are_none_are_left_out() {
    let page = "vllm:num_requests_running 1\nvllm:num_requests_waiting NaN\nvllm:kv_cache_usage_perc -1\n\
                vllm:kv_cache_usage_perc{model_name=\"b\"} 7\n";
    let read = numbers(page, EngineKind::Vllm, None);
    assert_eq!((read.waiting, read.kv_usage), (0, 1.0));
    let huge = numbers("vllm:num_requests_running 1e30\n", EngineKind::Vllm, None);
    assert_eq!(huge.running, u32::MAX);
}

/// MET-06: an error page, HTML, a page cut short, and a page of something else give no numbers.
#[test]
fn garbage_gives_no_numbers() {
    let cut = VLLM.get(..VLLM.len() / 2).expect("ASCII");
    for (page, part) in [
        ("<html><body>Bad gateway</body></html>\n", "line 1"),
        ("Internal Server Error", "line 1"),
        ("{\"detail\":\"Not Found\"}\n", "line 1"),
        (cut, "line"),
        (VLLM.trim_end(), "cut off"),
        ("", "no request counts"),
        ("go_goroutines 5\n", "no request counts of vllm"),
        ("sglang:num_running_reqs 5\n", "no request counts of vllm"),
    ] {
        let error = read_metrics(page.as_bytes(), EngineKind::Vllm).map(|_| ()).expect_err(page);
        assert!(matches!(&error, SampleError::Garbage(text) if text.contains(part)), "{page:?}: {error}");
    }
    assert!(read_metrics(b"vllm:num_requests_running 1\n\xff\n", EngineKind::Vllm).is_err());
    let many: String =
        (0..2000).map(|n| format!("vllm:num_requests_running{{engine=\"{n}\"}} 1\n")).collect();
    assert!(read_metrics(many.as_bytes(), EngineKind::Vllm).is_err());
}

proptest! {
    /// Whatever an engine sends, reading ends with numbers or an error.
    #[test]
    fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        for engine in [EngineKind::Vllm, EngineKind::Sglang] {
            let _ = read_metrics(&bytes, engine).map(|page| page.numbers(None));
        }
    }

    /// A good page with a few bytes changed, cut at any place.
    #[test]
    fn damaged_pages_are_survived(
        at in prop::collection::vec((0..VLLM.len(), any::<u8>()), 0..4),
        end in 0..=VLLM.len(),
    ) {
        let mut bytes = VLLM.as_bytes().to_vec();
        for (index, byte) in at {
            bytes[index] = byte;
        }
        bytes.truncate(end);
        if let Ok(page) = read_metrics(&bytes, EngineKind::Vllm) {
            let numbers = page.numbers(None).expect("the sum over all ranks");
            prop_assert!((0.0..=1.0).contains(&numbers.kv_usage));
            for rank in page.ranks().collect::<Vec<_>>() {
                prop_assert!(page.numbers(Some(rank)).is_some());
            }
        }
    }
}
