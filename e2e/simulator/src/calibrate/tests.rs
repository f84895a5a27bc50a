use super::*;

/// Requests as an engine of these rates would have served them.
fn measured(rates: Rates) -> Capture {
    let mut capture = Capture {
        engine: "made up".into(),
        kv_blocks: 4096,
        block_size: 32,
        step_tokens: 2048,
        most_running: 8,
        phases: Vec::new(),
    };
    for concurrency in [1, 4, 16] {
        let requests = (0..24_u32).map(|number| Measured {
            sent: f64::from(number) * 0.4 / f64::from(concurrency),
            prompt: 50 + 177 * (number * 7 % 24),
            cached: if number % 3 == 0 { 32 } else { 0 },
            answer: 1 + number % 5 * 12,
            ttft: 1.0,
            total: 1.0,
        });
        capture.phases.push(Phase { concurrency, requests: requests.collect() });
    }
    let shape = capture.shape(rates);
    for phase in &mut capture.phases {
        let times = phase.play(shape);
        for (request, (first, last)) in phase.requests.iter_mut().zip(times) {
            (request.ttft, request.total) = (first, last);
        }
    }
    capture
}

#[test]
fn the_rates_behind_measured_times_are_found() {
    let truth = Rates {
        step: 0.012,
        prefill_token: 2e-4,
        attention_pair: 1e-8,
        decode_sequence: 1e-3,
        context_token: 1e-7,
        request: 0.004,
        request_token: 2e-6,
    };
    let fit = measured(truth).fit();
    assert_eq!(fit.requests, 72);
    assert!(fit.ttft_error_p50 < 0.02 && fit.ttft_error_p90 < 0.06, "{fit:?}");
    // Single rates stand in for each other; what they make of a prompt together does not.
    let alone = |shape: EngineShape| shape.rates.way_in(2000) + shape.prefill_alone(2000, 0);
    let (found, true_one) = (alone(fit.shape), alone(EngineShape { rates: truth, ..fit.shape }));
    assert!((found / true_one - 1.0).abs() < 0.1, "{found} {true_one}");
}

#[test]
fn the_fit_that_is_checked_in_can_be_read() {
    let fit = fit_checked_in().unwrap();
    assert_eq!(fit.shape, checked_in());
    assert!(fit.shape.kv_blocks > 0 && fit.shape.rates.step > 0.0);
}

#[test]
fn a_capture_that_cannot_be_is_refused() {
    let file = |text: &str| {
        let path =
            std::env::temp_dir().join(format!("kvasir-capture-{}-{}.json", std::process::id(), text.len()));
        std::fs::write(&path, text).unwrap();
        let read = Capture::read(&path);
        std::fs::remove_file(&path).unwrap();
        read
    };
    let with = |cached: u32, ttft: f64| {
        format!(
            r#"{{"engine":"e","kv_blocks":1,"block_size":16,"step_tokens":1,"most_running":1,"phases":[{{"concurrency":1,
            "requests":[{{"sent":0,"prompt":10,"cached":{cached},"answer":1,"ttft":{ttft},"total":5}}]}}]}}"#
        )
    };
    assert!(file(&with(0, 1.0)).is_ok());
    assert!(file(&with(10, 1.5)).unwrap_err().to_string().contains("cannot have been measured"));
    assert!(file(&with(0, 5.125)).unwrap_err().to_string().contains("cannot have been measured"));
    assert!(file("{}").is_err());
}
