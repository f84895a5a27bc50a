use std::collections::HashMap;
use std::io;

use super::*;

struct MemoryFiles(HashMap<&'static str, &'static str>);

impl Files for MemoryFiles {
    fn read(&self, path: &Path) -> io::Result<String> {
        let text = self.0.get(&*path.to_string_lossy());
        text.map(|text| (*text).to_owned()).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn is_directory(&self, _: &Path) -> bool {
        false
    }

    fn is_file(&self, path: &Path) -> bool {
        self.0.contains_key(&*path.to_string_lossy())
    }
}

fn set(text: &str) -> Option<String> {
    Some(text.to_owned())
}

fn url(text: &str) -> RedisArgs {
    RedisArgs { redis: Some(Secret::new(text)), ..RedisArgs::default() }
}

/// What a command line and an environment come to, with problems and warnings one a line.
fn choice(
    args: &RedisArgs,
    environment: &RedisEnvironment,
    program: KthenaProgram,
    default_host: bool,
) -> (Option<RedisSettings>, String, String) {
    let files = MemoryFiles(HashMap::from([
        ("secret", "from-file\n"),
        ("windows", "from-file\r\n"),
        ("empty", "\n"),
        ("two", "a\nb\n"),
        ("ca.pem", "CA"),
        ("cert.pem", "CERT"),
        ("key.pem", "KEY"),
    ]));
    let mut findings = Findings::default();
    let redis = choose(args, &files, environment, program, default_host, &mut findings);
    (redis, findings.problems().join("\n"), findings.warnings().join("\n"))
}

fn of_router(args: &RedisArgs, environment: &RedisEnvironment) -> (Option<RedisSettings>, String, String) {
    choice(args, environment, KthenaProgram::Router, false)
}

fn password(redis: &Option<RedisSettings>) -> Option<&str> {
    redis.as_ref().and_then(|redis| redis.password.as_ref()).map(Secret::reveal)
}

fn kthena() -> RedisEnvironment {
    RedisEnvironment {
        host: set("r"),
        port: set("7000"),
        username: set("u"),
        password: Some(Secret::new("p")),
        database: set("3"),
    }
}

#[test]
fn nobody_names_a_redis() {
    assert_eq!(of_router(&RedisArgs::default(), &RedisEnvironment::default()), (None, "".into(), "".into()));
    assert_eq!(of_router(&url(" "), &RedisEnvironment::default()).0, None, "a variable set to nothing");
    let beside = RedisEnvironment { host: None, ..kthena() };
    let (redis, problems, warnings) = of_router(&RedisArgs::default(), &beside);
    assert_eq!((redis, problems.as_str()), (None, ""));
    for name in ["REDIS_PORT", "REDIS_USERNAME", "REDIS_PASSWORD", "REDIS_DB"] {
        assert!(warnings.contains(&format!("{name}: has no effect without REDIS_HOST")), "{warnings}");
    }
}

#[test]
fn kthenas_default_host_is_implied_and_takes_the_other_variables() {
    let none = RedisEnvironment::default();
    let (redis, ..) = choice(&RedisArgs::default(), &none, KthenaProgram::Router, true);
    let redis = redis.expect("a Redis");
    assert_eq!((redis.to_string().as_str(), redis.implied), ("redis-server:6379/0", true));
    let beside = RedisEnvironment { host: None, ..kthena() };
    let (redis, problems, _) = choice(&RedisArgs::default(), &beside, KthenaProgram::Sidecar, true);
    assert_eq!(problems, "");
    assert_eq!(password(&redis), Some("p"));
    let redis = redis.expect("a Redis");
    assert_eq!((redis.to_string().as_str(), redis.implied), ("redis-server:7000/3", true));
    let (redis, ..) = choice(&RedisArgs::default(), &kthena(), KthenaProgram::Router, true);
    assert!(!redis.expect("a Redis").implied, "somebody named it");
    let (redis, problems, _) = choice(&url("none"), &kthena(), KthenaProgram::Router, true);
    assert_eq!((redis, problems.as_str()), (None, ""), "none at all");
}

#[test]
fn the_database_is_the_sidecars_alone() {
    let args = RedisArgs::default();
    for (database, program, expected, warning) in [
        (None, KthenaProgram::Sidecar, 0, ""),
        (set("3"), KthenaProgram::Sidecar, 3, ""),
        (set("x"), KthenaProgram::Sidecar, 0, "REDIS_DB: \"x\" is no database; 0 is used"),
        (set("0"), KthenaProgram::Router, 0, ""),
        (set("3"), KthenaProgram::Router, 0, "REDIS_DB: has no effect on the router"),
    ] {
        let environment = RedisEnvironment { database, ..kthena() };
        let (redis, problems, warnings) = choice(&args, &environment, program, false);
        assert_eq!((redis.expect("a Redis").database, problems.as_str()), (expected, ""));
        assert!(warnings.contains(warning) && warnings.is_empty() == warning.is_empty(), "{warnings}");
    }
}

#[test]
fn variables_that_do_not_fit() {
    let args = RedisArgs::default();
    for (host, port, expected, problem, warning) in [
        ("r", "7", Some("r:7/0"), "", ""),
        ("::1", "7", Some("[::1]:7/0"), "", ""),
        ("[::1]", "7", Some("[::1]:7/0"), "", ""),
        (
            "r",
            "tcp://10.0.0.1:6379",
            Some("r:6379/0"),
            "",
            "Kubernetes sets it so for a Service called redis",
        ),
        ("r", "0", Some("r:6379/0"), "", "REDIS_PORT: \"0\" is no port; 6379 is used"),
        (
            "r:6380",
            "7",
            None,
            "REDIS_HOST: is neither a name nor an address; write the port into REDIS_PORT",
            "",
        ),
        ("redis://r", "7", None, "REDIS_HOST: is neither a name nor an address; write the host alone", ""),
    ] {
        let environment =
            RedisEnvironment { host: set(host), port: set(port), ..RedisEnvironment::default() };
        let (redis, problems, warnings) = of_router(&args, &environment);
        assert_eq!(redis.map(|redis| redis.to_string()).as_deref(), expected, "{host} {port}");
        assert!(problems.contains(problem) && problems.is_empty() == problem.is_empty(), "{problems}");
        assert!(warnings.contains(warning) && warnings.is_empty() == warning.is_empty(), "{warnings}");
    }
}

#[test]
fn a_url_wins_over_all_of_kthenas_variables() {
    let (redis, problems, warnings) = of_router(&url("redis://x:y@h:1/2"), &kthena());
    assert_eq!((problems.as_str(), warnings.as_str()), ("", ""));
    assert_eq!(password(&redis), Some("y"));
    let redis = redis.expect("a Redis");
    assert_eq!((redis.to_string().as_str(), redis.username.as_deref()), ("h:1/2", Some("x")));
    let (redis, problems, warnings) = of_router(&url("redis://h"), &kthena());
    assert_eq!((password(&redis), problems.as_str()), (None, ""));
    assert!(warnings.contains("REDIS_PASSWORD: is not used"), "{warnings}");
}

#[test]
fn a_password_comes_from_one_place() {
    let file = |args: RedisArgs, path| RedisArgs { redis_password_file: set(path), ..args };
    let none = RedisEnvironment::default();
    for path in ["secret", "windows"] {
        let (redis, problems, _) = of_router(&file(url("redis://u@h"), path), &none);
        assert_eq!((password(&redis), problems.as_str()), (Some("from-file"), ""));
    }
    let (redis, problems, warnings) = of_router(&file(url("redis://h"), "secret"), &kthena());
    assert_eq!((password(&redis), problems.as_str(), warnings.as_str()), (Some("from-file"), "", ""));
    let (redis, problems, _) = of_router(&file(RedisArgs::default(), "secret"), &kthena());
    assert_eq!((password(&redis), problems.as_str()), (Some("from-file"), ""), "a flag wins over a variable");
    for (args, problem) in [
        (file(url("redis://:p@h"), "secret"), "--redis-password-file: the URL of --redis has a password too"),
        (file(url("redis://h"), "absent"), "--redis-password-file: cannot read absent"),
        (file(url("redis://h"), "empty"), "empty is empty; write the password alone into it"),
        (file(url("redis://h"), "two"), "two has more than one line"),
        (file(RedisArgs::default(), "secret"), "--redis-password-file: has no effect: no Redis is named"),
        (file(url("none"), "secret"), "--redis-password-file: has no effect: no Redis is named"),
        (url("redis://u@h"), "--redis: there is a user without a password"),
    ] {
        let (_, problems, _) = of_router(&args, &none);
        assert!(problems.contains(problem) && problems.lines().count() == 1, "{problems}");
    }
    let user = RedisEnvironment { password: None, ..kthena() };
    let (_, problems, _) = of_router(&RedisArgs::default(), &user);
    assert!(problems.contains("REDIS_USERNAME: there is a user without a password"), "{problems}");
}

#[test]
fn sentinels_have_a_user_and_a_password_of_their_own() {
    let args = RedisArgs {
        redis_sentinel_user: set("watcher"),
        redis_sentinel_password_file: set("secret"),
        ..url("redis-sentinel://u:p@a/m")
    };
    let (redis, problems, _) = of_router(&args, &RedisEnvironment::default());
    assert_eq!((password(&redis), problems.as_str()), (Some("p"), ""));
    let Some(RedisTopology::Sentinel { username, password, .. }) = redis.map(|redis| redis.topology) else {
        panic!("no sentinels");
    };
    assert_eq!(username.as_deref(), Some("watcher"));
    assert_eq!(password.as_ref().map(Secret::reveal), Some("from-file"));
}

#[test]
fn every_problem_is_named_at_once() {
    let args = RedisArgs {
        redis_password_file: set("absent"),
        redis_sentinel_user: set("watcher"),
        redis_sentinel_password_file: set("empty"),
        redis_ca_file: set("absent.pem"),
        redis_client_key: set("key.pem"),
        ..url("redis://h")
    };
    let (redis, problems, _) = of_router(&args, &RedisEnvironment::default());
    assert_eq!(redis, None);
    for part in [
        "--redis-password-file: cannot read absent",
        "--redis-sentinel-password-file: empty is empty",
        "--redis-ca-file: there is no file absent.pem",
        "--redis-client-key: is of no use without --redis-client-cert",
        "--redis-ca-file: the connection is made without TLS; write --redis rediss://HOST:PORT",
        "--redis-client-key: the connection is made without TLS",
        "--redis-sentinel-user: there are no sentinels",
        "--redis-sentinel-password-file: there are no sentinels",
    ] {
        assert!(problems.contains(part), "{part:?} is missing in\n{problems}");
    }
    assert_eq!(problems.lines().count(), 8, "{problems}");
    let (_, problems, _) =
        of_router(&RedisArgs { redis: Some(Secret::new("redis://h:x")), ..args }, &kthena());
    assert!(problems.contains("--redis: the port is none") && problems.contains("absent.pem"), "{problems}");
}

#[test]
fn tls_takes_authorities_and_a_client_certificate() {
    let args = RedisArgs {
        redis_ca_file: set("ca.pem"),
        redis_client_cert: set("cert.pem"),
        redis_client_key: set("key.pem"),
        ..url("rediss-cluster://a")
    };
    let (redis, problems, _) = of_router(&args, &RedisEnvironment::default());
    let expected =
        RedisTls { ca_file: Some("ca.pem".into()), client: Some(("cert.pem".into(), "key.pem".into())) };
    assert_eq!((redis.and_then(|redis| redis.tls), problems.as_str()), (Some(expected), ""));
    let plain = of_router(&url("rediss://a"), &RedisEnvironment::default()).0;
    assert_eq!(plain.and_then(|redis| redis.tls), Some(RedisTls::default()), "the system's authorities");
}

#[test]
fn an_agent_reads_what_kthenas_sidecar_reads() {
    let environment = KthenaEnvironment { redis: kthena(), ..KthenaEnvironment::default() };
    let files = MemoryFiles(HashMap::new());
    let found = resolve_sidecar_from(&RedisArgs::default(), &files, &environment).expect("a Redis");
    assert_eq!(found.redis.map(|redis| redis.to_string()).as_deref(), Some("r:7000/3"));
    assert_eq!(found.warnings, Vec::<String>::new());
    let nothing = KthenaEnvironment::default();
    let found = resolve_sidecar_from(&RedisArgs::default(), &files, &nothing).expect("the default");
    assert!(found.redis.is_some_and(|redis| redis.implied && redis.to_string() == "redis-server:6379/0"));
    let problems = resolve_sidecar_from(&url("redis://"), &files, &nothing).err().unwrap_or_default();
    assert!(problems.to_string().contains("--redis: the host is empty"), "{problems}");
}
