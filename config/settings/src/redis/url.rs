//! Reads the URL of a Redis.
//!
//! A password may stand in the wrong place of a URL that is mistyped, so no message shows anything of it.

use super::{PORT, RedisNode, RedisSettings, RedisTls, RedisTopology, SENTINEL_PORT, Secret};

/// What is wrong with a URL.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Fault {
    /// Which part, and what is wrong with it.
    pub(super) message: String,
    /// What to write instead.
    pub(super) fix: String,
}

impl Fault {
    fn new(message: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { message: message.into(), fix: fix.into() }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Arrangement {
    Single,
    Sentinel,
    Cluster,
}

/// Every scheme: how the servers are arranged, and whether they speak TLS.
const SCHEMES: [(&str, Arrangement, bool); 6] = [
    ("redis", Arrangement::Single, false),
    ("rediss", Arrangement::Single, true),
    ("redis-sentinel", Arrangement::Sentinel, false),
    ("rediss-sentinel", Arrangement::Sentinel, true),
    ("redis-cluster", Arrangement::Cluster, false),
    ("rediss-cluster", Arrangement::Cluster, true),
];

/// Reads a URL; see [`RedisSettings::parse`].
pub(super) fn parse(url: &str) -> Result<RedisSettings, Fault> {
    let (scheme, rest) = url.trim().split_once("://").ok_or_else(|| {
        Fault::new("the scheme is missing", "write redis://HOST:PORT, or rediss:// for TLS")
    })?;
    let scheme = scheme.to_ascii_lowercase();
    let (_, arrangement, tls) = SCHEMES.into_iter().find(|(name, ..)| *name == scheme).ok_or_else(|| {
        let known = SCHEMES.map(|(name, ..)| format!("{name}://")).join(", ");
        Fault::new("the scheme is unknown", format!("known: {known}"))
    })?;
    // The last @ ends the credentials, whatever they hold.
    let (credentials, place) = match rest.rsplit_once('@') {
        Some((credentials, place)) => (Some(credentials), place),
        None => (None, rest),
    };
    let (username, password) = credentials.map_or(Ok((None, None)), read_credentials)?;
    if place.contains(['?', '#']) {
        return Err(Fault::new(
            "there is a query or a fragment (? or #)",
            "remove it; in a user or a password write %3F and %23",
        ));
    }
    let (servers, path) =
        place.split_once('/').map_or((place, None), |(servers, path)| (servers, Some(path)));
    let default_port = if arrangement == Arrangement::Sentinel { SENTINEL_PORT } else { PORT };
    let nodes = read_nodes(servers, default_port)?;
    let (topology, database) = arrange(arrangement, nodes, path)?;
    Ok(RedisSettings {
        topology,
        username,
        password: password.map(Secret::new),
        database,
        tls: tls.then(RedisTls::default),
        implied: false,
    })
}

/// `USER`, `USER:PASSWORD` or `:PASSWORD`.
fn read_credentials(text: &str) -> Result<(Option<String>, Option<String>), Fault> {
    if text.contains(['/', '?', '#']) {
        return Err(Fault::new(
            "the user or the password holds one of / ? #, or there is an @ behind the host",
            "write %2F, %3F, %23 and %40 for them",
        ));
    }
    let (user, password) = match text.split_once(':') {
        Some((user, password)) => (user, password),
        None => (text, ""),
    };
    let said = |text: &str, part| (!text.is_empty()).then(|| percent_decoded(text, part)).transpose();
    Ok((said(user, "the user")?, said(password, "the password")?))
}

/// `HOST[:PORT][,HOST[:PORT]...]`
fn read_nodes(text: &str, default_port: u16) -> Result<Vec<RedisNode>, Fault> {
    let single = !text.contains(',');
    let named = |number: usize, part: &str| {
        if single { format!("the {part}") } else { format!("the {part} of server {number}") }
    };
    let read = |(index, text): (usize, &str)| {
        let part = |part| named(index + 1, part);
        let (host, port) = split_port(text.trim()).ok_or_else(|| {
            let message = format!("{} is no IPv6 address in brackets", part("host"));
            Fault::new(message, "write [ADDRESS]:PORT")
        })?;
        if host.is_empty() {
            return Err(Fault::new(format!("{} is empty", part("host")), "write HOST:PORT"));
        }
        if !is_host(host) {
            return Err(Fault::new(
                format!("{} is neither a name nor an address", part("host")),
                "write HOST:PORT, and USER:PASSWORD@ only before the first host",
            ));
        }
        let port = match port {
            None => default_port,
            Some(text) => read_port(text).ok_or_else(|| {
                Fault::new(format!("{} is none", part("port")), "write a number from 1 to 65535")
            })?,
        };
        Ok(RedisNode { host: host.to_owned(), port })
    };
    text.split(',').enumerate().map(read).collect()
}

/// The host without brackets, and what stands behind it as a port. `None` for brackets that do not match or hold
/// something else, and for an IPv6 address without any.
pub(super) fn split_port(text: &str) -> Option<(&str, Option<&str>)> {
    if let Some(inner) = text.strip_prefix('[') {
        let (host, tail) = inner.split_once(']').filter(|(host, _)| host.contains(':'))?;
        return match tail {
            "" => Some((host, None)),
            tail => tail.strip_prefix(':').map(|port| (host, Some(port))),
        };
    }
    match text.split_once(':') {
        None => Some((text, None)),
        Some((_, rest)) if rest.contains(':') => None,
        Some((host, port)) => Some((host, Some(port))),
    }
}

/// Whether `text` is a name or an address, IPv6 without brackets.
pub(super) fn is_host(text: &str) -> bool {
    if text.contains(':') {
        return text.parse::<std::net::Ipv6Addr>().is_ok();
    }
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
}

/// A port; none for 0.
pub(super) fn read_port(text: &str) -> Option<u16> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|port| is_number && *port != 0)
}

/// A database; 0 for an empty text.
fn read_database(text: &str) -> Result<u16, Fault> {
    if text.is_empty() {
        return Ok(0);
    }
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_number).ok_or_else(|| {
        Fault::new("the database behind the host is none", "write a number from 0 to 65535, or nothing")
    })
}

/// The servers as they are arranged, and the database.
fn arrange(
    arrangement: Arrangement,
    mut nodes: Vec<RedisNode>,
    path: Option<&str>,
) -> Result<(RedisTopology, u16), Fault> {
    let path = path.unwrap_or_default();
    match arrangement {
        Arrangement::Single => match (nodes.pop(), nodes.is_empty()) {
            (Some(node), true) => Ok((RedisTopology::Single(node), read_database(path)?)),
            _ => Err(Fault::new(
                "more than one server is named",
                "write redis-sentinel:// or redis-cluster:// for several",
            )),
        },
        Arrangement::Sentinel => {
            let (master, database) = path.split_once('/').unwrap_or((path, ""));
            if master.is_empty() {
                return Err(Fault::new(
                    "the master's name is missing behind the sentinels",
                    "write redis-sentinel://HOST:PORT,HOST:PORT/MASTER",
                ));
            }
            let master = percent_decoded(master, "the master's name")?;
            let topology =
                RedisTopology::Sentinel { sentinels: nodes, master, username: None, password: None };
            Ok((topology, read_database(database)?))
        }
        Arrangement::Cluster => match read_database(path)? {
            0 => Ok((RedisTopology::Cluster(nodes), 0)),
            _ => Err(Fault::new("a Cluster has no database but 0", "remove what is behind the hosts")),
        },
    }
}

/// `%XX` undone.
fn percent_decoded(text: &str, part: &str) -> Result<String, Fault> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || rest.next().and_then(|digit| char::from(digit).to_digit(16));
        match (digit(), digit()) {
            (Some(high), Some(low)) => bytes.push((high * 16 + low) as u8),
            _ => {
                let message = format!("{part} holds a % that is not followed by two hexadecimal digits");
                return Err(Fault::new(message, "write %25 for a % sign"));
            }
        }
    }
    String::from_utf8(bytes)
        .map_err(|_| Fault::new(format!("{part} is no UTF-8 when it is decoded"), "encode its UTF-8 bytes"))
}

#[cfg(test)]
mod tests;
