use super::*;
use crate::problems::Findings;

fn read(args: &AdmissionArgs, variables: &[(&str, &str)]) -> (AdmissionSettings, Findings) {
    let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let mut findings = Findings::default();
    let settings = resolve(args, &variables, &mut findings);
    (settings, findings)
}

fn set(text: &str) -> Option<String> {
    Some(text.to_owned())
}

fn fair(settings: AdmissionSettings) -> FairnessSettings {
    match settings {
        AdmissionSettings::Fairness(fairness) => fairness,
        other => panic!("{other:?}"),
    }
}

#[test]
fn nothing_said_is_off() {
    let (settings, findings) = read(&AdmissionArgs::default(), &[]);
    assert_eq!(settings, AdmissionSettings::Off);
    assert_eq!((findings.warnings().len(), findings.problem_count()), (0, 0));
}

#[test]
fn every_flag_has_a_variable_that_environment_reads() {
    for (flag, _) in AdmissionArgs::default().all() {
        assert!(crate::facts::ADMISSION.contains(&variable_of(flag).as_str()), "{flag}");
    }
    assert_eq!(crate::facts::ADMISSION.len(), AdmissionArgs::default().all().len());
    assert_eq!(variable_of("--enable-session-boost"), "ENABLE_SESSION_BOOST");
}

#[test]
fn kthenas_variables_switch_a_queue_on_and_fill_it() {
    let (settings, findings) = read(
        &AdmissionArgs::default(),
        &[
            ("ENABLE_FAIRNESS_SCHEDULING", "T"),
            ("FAIRNESS_WINDOW_SIZE", "1h"),
            ("FAIRNESS_INPUT_TOKEN_WEIGHT", "0.5"),
            ("FAIRNESS_OUTPUT_TOKEN_WEIGHT", "4"),
            ("FAIRNESS_PRIORITY_REQUEST_NUM_WEIGHT", "10"),
            ("FAIRNESS_MAX_CONCURRENT", "8"),
            ("FAIRNESS_MAX_QPS", "7"),
            ("FAIRNESS_QUEUE_TIMEOUT", "1m30s"),
            ("FAIRNESS_AGEING", "0"),
            ("FAIRNESS_MAX_WAITING", "50"),
            ("FAIRNESS_USER_HEADER", "X-User"),
            ("FAIRNESS_USER_WEIGHTS", "alice=2, uid=bob=0.5"),
            ("FAIRNESS_PRIORITY_REFRESH_RETRIES", "3"),
            ("FAIRNESS_REBUILD_THRESHOLD", "12"),
        ],
    );
    let expected = FairnessSettings {
        user_header: set("x-user"),
        user_weights: [("alice".to_owned(), 2.0), ("uid=bob".to_owned(), 0.5)].into(),
        window: Duration::from_secs(3600),
        input_token_weight: 0.5,
        output_token_weight: 4.0,
        priority_token_weight: 1.0,
        priority_request_weight: 10.0,
        max_concurrent: 8,
        max_qps: 7,
        queue_timeout: Duration::from_secs(90),
        ageing: 0.0,
        max_waiting: 50,
    };
    assert_eq!(fair(settings), expected);
    assert_eq!((findings.warnings(), findings.problem_count()), (&[][..], 0));
}

#[test]
fn a_bad_variable_warns_and_the_default_counts_a_bad_flag_is_a_problem() {
    let bad = [
        ("FAIRNESS_WINDOW_SIZE", "59s", "write 1m to 1h; 5m is used"),
        ("FAIRNESS_WINDOW_SIZE", "1h1ms", "write 1m to 1h; 5m is used"),
        ("FAIRNESS_WINDOW_SIZE", "300", "has no unit"),
        ("FAIRNESS_INPUT_TOKEN_WEIGHT", "-1", "is no weight; write a number of at least 0; 1 is used"),
        ("FAIRNESS_OUTPUT_TOKEN_WEIGHT", "Inf", "is no weight"),
        ("FAIRNESS_PRIORITY_TOKEN_WEIGHT", "NaN", "is no weight"),
        ("FAIRNESS_PRIORITY_REQUEST_NUM_WEIGHT", "many", "is no weight"),
        ("FAIRNESS_MAX_CONCURRENT", "-1", "does not fit"),
        ("FAIRNESS_MAX_QPS", "0", "write a whole number of at least 1; 100 is used"),
        ("FAIRNESS_QUEUE_TIMEOUT", "0", "is not above 0; 1m is used"),
        ("FAIRNESS_AGEING", "10s", "is no weight"),
        ("FAIRNESS_MAX_WAITING", "0", "does not fit"),
        ("FAIRNESS_USER_HEADER", "x user", "is no header's name"),
        ("FAIRNESS_USER_WEIGHTS", "alice", "is no weight of a user"),
        ("FAIRNESS_USER_WEIGHTS", "a=1,a=2", "has two weights"),
        ("FAIRNESS_PRIORITY_REFRESH_RETRIES", "x", "does not fit"),
        ("FAIRNESS_REBUILD_THRESHOLD", "0", "does not fit"),
    ];
    let on = ("ENABLE_FAIRNESS_SCHEDULING", "1");
    for (name, value, part) in bad {
        let (settings, findings) = read(&AdmissionArgs::default(), &[on, (name, value)]);
        assert_eq!(fair(settings), FairnessSettings::default(), "{name}={value}");
        let said = findings.warnings().join("\n");
        assert!(said.contains(name) && said.contains(part), "{name}={value}: {said}");
        assert_eq!(findings.problem_count(), 0, "{name}={value}");
    }
    let args = AdmissionArgs {
        enable_fairness_scheduling: set("maybe"),
        fairness_window_size: set("2h"),
        ..AdmissionArgs::default()
    };
    let (_, findings) = read(&args, &[on, ("FAIRNESS_WINDOW_SIZE", "10m")]);
    assert_eq!(
        findings.problems(),
        ["--enable-fairness-scheduling: \"maybe\" is no boolean; write true or false"]
    );
}

#[test]
fn a_flag_wins_over_the_variable() {
    let args = AdmissionArgs {
        enable_fairness_scheduling: set("true"),
        fairness_max_concurrent: set("3"),
        fairness_user_header: set("x-user"),
        ..AdmissionArgs::default()
    };
    let variables = [("ENABLE_FAIRNESS_SCHEDULING", "false"), ("FAIRNESS_MAX_CONCURRENT", "9")];
    let (settings, findings) = read(&args, &variables);
    assert_eq!(fair(settings).max_concurrent, 3);
    assert_eq!(findings.warnings(), &[] as &[String]);
}

#[test]
fn fairness_without_identity_is_said_aloud() {
    let (_, findings) = read(&AdmissionArgs::default(), &[("ENABLE_FAIRNESS_SCHEDULING", "true")]);
    assert!(findings.warnings().iter().any(|said| said.contains("nobody says who a client is")));
}

#[test]
fn both_weights_at_zero_leave_the_tokens_one() {
    let (settings, findings) = read(
        &AdmissionArgs::default(),
        &[
            ("ENABLE_FAIRNESS_SCHEDULING", "true"),
            ("FAIRNESS_USER_HEADER", "x-user"),
            ("FAIRNESS_PRIORITY_TOKEN_WEIGHT", "0"),
        ],
    );
    assert_eq!(fair(settings).priority_token_weight, 1.0);
    assert_eq!(findings.warnings().len(), 1);
}

#[test]
fn session_boost_is_read_as_kthena_reads_it() {
    let on = ("ENABLE_SESSION_BOOST", "true");
    let boost = |variables: &[(&str, &str)]| match read(&AdmissionArgs::default(), variables).0 {
        AdmissionSettings::SessionBoost(boost) => boost,
        other => panic!("{other:?}"),
    };
    assert_eq!(boost(&[on]), SessionBoostSettings::default());
    let read = boost(&[
        on,
        ("SESSION_BOOST_HEADER", "X-Chat"),
        ("SESSION_BOOST_MAX_SESSIONS", "7"),
        ("SESSION_BOOST_INFLIGHT_PER_POD", "2"),
        ("SESSION_BOOST_GRACE_PERIOD", "200ms"),
        ("SESSION_BOOST_TIMEOUT", "-1s"),
        ("SESSION_BOOST_AGEING", "0"),
        ("SESSION_BOOST_MAX_WAITING", "9"),
    ]);
    let expected = SessionBoostSettings {
        header: "x-chat".to_owned(),
        max_sessions: 7,
        inflight_per_pod: 2,
        grace_period: Duration::from_millis(200),
        timeout: None,
        ageing: None,
        max_waiting: 9,
    };
    assert_eq!(read, expected);
    for (value, timeout) in [("0", None), ("5s", Some(5)), ("soon", Some(30)), ("-soon", Some(30))] {
        let read = boost(&[on, ("SESSION_BOOST_TIMEOUT", value)]);
        assert_eq!(read.timeout, timeout.map(Duration::from_secs), "{value}");
    }
}

#[test]
fn two_queues_are_refused_and_rules_of_none_are_named() {
    let both = [("ENABLE_FAIRNESS_SCHEDULING", "true"), ("ENABLE_SESSION_BOOST", "true")];
    let (_, findings) = read(&AdmissionArgs::default(), &both);
    assert_eq!(
        findings.problems(),
        [
            "--enable-fairness-scheduling: cannot be on together with --enable-session-boost: a request waits in one \
          queue only; switch one of the two off"
        ]
    );
    let args = AdmissionArgs { session_boost_header: set("x-chat"), ..AdmissionArgs::default() };
    let (settings, findings) = read(&args, &[("FAIRNESS_MAX_QPS", "5")]);
    assert_eq!(settings, AdmissionSettings::Off);
    assert_eq!(
        findings.warnings(),
        [
            "--session-boost-header: has no effect without --enable-session-boost",
            "FAIRNESS_MAX_QPS: has no effect without --enable-fairness-scheduling"
        ]
    );
}
