use Attempt::{ConnectFailed, DiedAfterSend, FirstByteTimeout, Ok as Answered, Status5xx};
use Standing::{In, Out, Trial};

use super::*;

/// Seconds after an arbitrary start.
fn at(start: Instant, seconds: f64) -> Instant {
    start + Duration::from_secs_f64(seconds)
}

#[test]
fn a_refused_connection_takes_it_out_at_once() {
    let start = Instant::now();
    let mut health = Health::default();
    assert_eq!(health.report(ConnectFailed, start), Some(Turn::Out(Duration::from_secs(1))));
    assert_eq!(health.standing(at(start, 0.9)), Out);
    assert_eq!(health.standing(at(start, 1.0)), Trial);
    assert_eq!(health.report(Answered, at(start, 1.1)), Some(Turn::Back));
    assert_eq!(health, Health::default());
}

#[test]
fn three_other_failures_in_a_row_take_it_out() {
    let start = Instant::now();
    for failure in [Status5xx(500), Status5xx(503), FirstByteTimeout, DiedAfterSend] {
        let mut health = Health::default();
        assert_eq!(health.report(failure, start), None);
        assert_eq!(health.report(failure, start), None);
        assert_eq!(health.report(Answered, start), None);
        assert_eq!(health.report(failure, start), None, "an answer between them starts the count again");
        assert_eq!(health.report(failure, start), None);
        assert!(matches!(health.report(failure, start), Some(Turn::Out(_))), "{failure:?}");
        assert_eq!(health.standing(start), Out);
    }
}

/// RET-03: statuses that are about the request never count.
#[test]
fn answers_about_the_request_never_count() {
    let start = Instant::now();
    let mut health = Health::default();
    for attempt in [Answered, Status5xx(400), Status5xx(404), Status5xx(501), Status5xx(505)] {
        for _ in 0..20 {
            assert_eq!(health.report(attempt, start), None);
        }
    }
    assert_eq!(health, Health::default());
}

#[test]
fn the_back_off_doubles_to_its_limit() {
    let mut now = Instant::now();
    let mut health = Health::default();
    for seconds in [1, 2, 4, 8, 16, 30, 30] {
        let back_off = Duration::from_secs(seconds);
        assert_eq!(health.report(ConnectFailed, now), Some(Turn::Out(back_off)));
        now += back_off;
        assert_eq!(health.standing(now), Trial);
    }
}

#[test]
fn attempts_under_way_do_not_lengthen_the_back_off() {
    let start = Instant::now();
    let mut health = Health::default();
    health.report(ConnectFailed, start);
    for _ in 0..50 {
        assert_eq!(health.report(DiedAfterSend, at(start, 0.5)), None);
    }
    assert_eq!(health.standing(at(start, 1.0)), Trial);
    assert_eq!(health.report(DiedAfterSend, at(start, 1.0)), Some(Turn::Out(Duration::from_secs(2))));
}

#[test]
fn a_good_probe_brings_back_what_was_unreachable() {
    let start = Instant::now();
    let mut health = Health::default();
    health.report(ConnectFailed, start);
    assert_eq!(health.probed(true, at(start, 0.2)), Some(Turn::Back));
    assert_eq!(health.standing(at(start, 0.2)), In);
    let again = health.report(ConnectFailed, at(start, 0.3));
    assert_eq!(again, Some(Turn::Out(Duration::from_secs(2))), "no request was answered in between");
}

/// A draining vLLM answers 500 while its /health says 200.
#[test]
fn a_good_probe_does_not_excuse_bad_answers() {
    let start = Instant::now();
    let mut health = Health::default();
    for _ in 0..3 {
        health.report(Status5xx(500), start);
    }
    assert_eq!(health.probed(true, at(start, 0.5)), None);
    assert_eq!(health.standing(at(start, 0.5)), Out);
    health.report(ConnectFailed, at(start, 0.6));
    assert_eq!(health.probed(true, at(start, 0.7)), Some(Turn::Back), "it went down and came up again");
}

#[test]
fn a_bad_probe_puts_off_the_trial() {
    let start = Instant::now();
    let mut health = Health::default();
    health.report(ConnectFailed, start);
    health.probed(false, at(start, 0.9));
    assert_eq!(health.standing(at(start, 1.8)), Out);
    assert_eq!(health.standing(at(start, 1.9)), Trial);
}

#[test]
fn probes_mean_nothing_in_service() {
    let start = Instant::now();
    let mut health = Health::default();
    assert_eq!((health.probed(false, start), health.probed(true, start)), (None, None));
    assert_eq!(health.standing(start), In);
}
