use proptest::prelude::*;

use super::*;

fn node(host: &str, port: u16) -> RedisNode {
    RedisNode { host: host.to_owned(), port }
}

fn shown(url: &str) -> String {
    parse(url).map_or_else(|fault| format!("{}; {}", fault.message, fault.fix), |redis| redis.to_string())
}

#[test]
fn a_url_names_servers_and_database() {
    for (url, expected) in [
        ("redis://a", "a:6379/0"),
        (" redis://a:1/ ", "a:1/0"),
        ("REDIS://a.b-c_d:65535/15", "a.b-c_d:65535/15"),
        ("redis://10.0.0.1:7/65535", "10.0.0.1:7/65535"),
        ("redis://[fd00::5]", "[fd00::5]:6379/0"),
        ("redis://u:p@[::1]:9/2", "[::1]:9/2"),
        ("redis-sentinel://a,b:1/mymaster", "master mymaster of sentinels a:26379,b:1/0"),
        ("redis-sentinel://a/my%20master/3", "master my master of sentinels a:26379/3"),
        ("redis-cluster://a,b:1, c", "cluster at a:6379,b:1,c:6379"),
        ("redis-cluster://:p@a/0", "cluster at a:6379"),
    ] {
        assert_eq!(shown(url), expected, "{url}");
    }
}

#[test]
fn the_scheme_says_whether_tls_is_spoken() {
    for (scheme, arrangement, tls) in SCHEMES {
        let path = if arrangement == Arrangement::Sentinel { "/master" } else { "" };
        let redis = parse(&format!("{scheme}://a{path}"));
        assert_eq!(redis.map(|redis| redis.tls.is_some()), Ok(tls), "{scheme}");
    }
}

#[test]
fn credentials_are_those_of_the_data_servers_and_are_decoded() {
    for (url, user, password) in [
        ("redis://a", None, None),
        ("redis://@a", None, None),
        ("redis://:@a", None, None),
        ("redis://:p@a", None, Some("p")),
        ("redis://u@a", Some("u"), None),
        ("redis://u:p@a", Some("u"), Some("p")),
        ("redis://u:p:q@r@a", Some("u"), Some("p:q@r")),
        ("redis://%75%40:%2f%3F%23%25%c3%a9@a", Some("u@"), Some("/?#%é")),
        ("redis-sentinel://u:p@a,b/m", Some("u"), Some("p")),
        ("redis-cluster://u:p@a,b", Some("u"), Some("p")),
    ] {
        let redis = parse(url).unwrap_or_else(|fault| panic!("{url}: {fault:?}"));
        assert_eq!(redis.username.as_deref(), user, "{url}");
        assert_eq!(redis.password.as_ref().map(Secret::reveal), password, "{url}");
        if let RedisTopology::Sentinel { username, password, .. } = redis.topology {
            assert_eq!((username, password), (None, None), "the sentinels have their own");
        }
    }
}

#[test]
fn a_bad_url_names_the_part_and_the_fix() {
    for (url, expected) in [
        ("", "the scheme is missing; write redis://HOST:PORT"),
        ("a:6379", "the scheme is missing"),
        ("http://a", "the scheme is unknown; known: redis://, rediss://, redis-sentinel://"),
        ("unix:///run/redis", "the scheme is unknown"),
        ("redis://", "the host is empty; write HOST:PORT"),
        ("redis://:6379", "the host is empty"),
        ("redis://u:p@/1", "the host is empty"),
        ("redis://a b", "the host is neither a name nor an address"),
        ("redis://[a]:1", "the host is no IPv6 address in brackets"),
        ("redis://[a:b]:1", "the host is neither a name nor an address"),
        ("redis://[::1", "the host is no IPv6 address in brackets; write [ADDRESS]:PORT"),
        ("redis://[::1]6379", "the host is no IPv6 address in brackets"),
        ("redis-cluster://a,::1", "the host of server 2 is no IPv6 address in brackets"),
        ("redis://a:0", "the port is none; write a number from 1 to 65535"),
        ("redis://a:+1", "the port is none"),
        ("redis://a:", "the port is none"),
        ("redis://a:65536", "the port is none"),
        ("redis-cluster://a,b:x", "the port of server 2 is none"),
        ("redis-sentinel://a,,b/m", "the host of server 2 is empty"),
        ("redis://a/x", "the database behind the host is none; write a number from 0 to 65535"),
        ("redis://a/65536", "the database behind the host is none"),
        ("redis://a/1/2", "the database behind the host is none"),
        ("redis://a/+1", "the database behind the host is none"),
        ("redis://a,b", "more than one server is named; write redis-sentinel:// or redis-cluster://"),
        ("redis-sentinel://a", "the master's name is missing"),
        ("redis-sentinel://a//1", "the master's name is missing"),
        ("redis-sentinel://a/m/x", "the database behind the host is none"),
        ("redis-sentinel://a/%m", "the master's name holds a %"),
        ("redis-cluster://a/1", "a Cluster has no database but 0"),
        ("redis://a/0?db=1", "there is a query or a fragment"),
        ("redis://a#1", "there is a query or a fragment"),
        ("redis://u:p/q@a", "write %2F, %3F, %23 and %40"),
        ("redis://a/0?user=u@b", "or there is an @ behind the host"),
        (
            "redis://u:p%@a",
            "the password holds a % that is not followed by two hexadecimal digits; write %25",
        ),
        ("redis://u%4:p@a", "the user holds a %"),
        ("redis://u:%ff@a", "the password is no UTF-8"),
    ] {
        assert!(parse(url).is_err(), "{url} was taken");
        assert!(shown(url).contains(expected), "{url}: {}", shown(url));
    }
}

#[test]
fn a_secret_is_never_shown() {
    let redis = parse("rediss://user:hunter2@a:1/2").unwrap_or_else(|fault| panic!("{fault:?}"));
    assert!(!format!("{redis} {redis:?}").contains("hunter2"));
}

/// `%XX` for every byte that is no letter or digit.
fn encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric();
    text.bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

proptest! {
    /// Whatever user, password and place there are: written into a URL, they come out of it.
    #[test]
    fn what_is_written_is_read(
        user in "\\PC{0,12}",
        password in "\\PC{0,24}",
        host in "[a-z][a-z0-9.-]{0,20}",
        port in 1..=u16::MAX,
        database in any::<u16>(),
    ) {
        let url = format!("redis://{}:{}@{host}:{port}/{database}", encoded(&user), encoded(&password));
        let redis = parse(&url).map_err(|fault| TestCaseError::fail(format!("{fault:?}")))?;
        prop_assert_eq!(redis.topology, RedisTopology::Single(node(&host, port)));
        prop_assert_eq!(redis.database, database);
        prop_assert_eq!(redis.username.unwrap_or_default(), user);
        prop_assert_eq!(redis.password.map(|secret| secret.reveal().to_owned()).unwrap_or_default(), password);
    }

    /// A password stands anywhere in a URL that is mangled anyhow; no message shows it.
    #[test]
    fn no_message_shows_a_password(
        before in "(redis|rediss|redis-sentinel|redis-cluster|x)?(://|:/|:)?[a-z:/@,%?#\\[\\]0-9]{0,12}",
        after in "[a-z:/@,%?#\\[\\]0-9]{0,12}",
    ) {
        let password = "S3CRETPASS";
        if let Err(fault) = parse(&format!("{before}{password}{after}")) {
            let text = format!("{} {}", fault.message, fault.fix).to_lowercase();
            prop_assert!(!text.contains(&password.to_lowercase()), "{text}");
        }
    }

    /// Any text is read or refused, and what is read has at least one server with a port.
    #[test]
    fn any_text_is_read_or_refused(text in "(rediss?(-sentinel|-cluster)?://)?\\PC{0,40}") {
        if let Ok(redis) = parse(&text) {
            let nodes = match redis.topology {
                RedisTopology::Single(node) => vec![node],
                RedisTopology::Sentinel { sentinels, master, .. } => {
                    prop_assert!(!master.is_empty());
                    sentinels
                }
                RedisTopology::Cluster(nodes) => nodes,
            };
            prop_assert!(!nodes.is_empty() && nodes.iter().all(|node| node.port > 0 && is_host(&node.host)));
        }
    }
}
