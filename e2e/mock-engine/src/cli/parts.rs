//! Flags for engines that prefill or decode only.

use std::collections::BTreeMap;
use std::sync::Arc;

use clap::{Args, ValueEnum};
use kvasir_core::{ConnectorKind, Role};

use crate::fabric::Fabric;
use crate::part::Part;

/// Parts of the engines.
#[derive(Clone, Debug, Args)]
pub struct PartArgs {
    /// What the engines do: one word for all, or comma-separated for one after the other, beginning anew
    /// (`--engines 4 --role prefill,decode`).
    ///
    /// Engines with a role are strict: what a real pair could not serve gets a 400 that names the field. Engines of one
    /// group in one process check each other; an engine whose counterpart is in another process checks only what it can
    /// see itself
    #[arg(long, env = "KVASIR_MOCK_ROLE", value_enum, value_delimiter = ',')]
    pub role: Vec<RoleArg>,
    /// How the KV cache goes from prefill to decode
    #[arg(long, env = "KVASIR_MOCK_CONNECTOR", value_enum, default_value_t = ConnectorArg::Http, requires = "role")]
    pub connector: ConnectorArg,
    /// Groups, comma-separated: each takes one round of `--role`, one after the other, beginning anew
    #[arg(
        long,
        env = "KVASIR_MOCK_PEER_GROUP",
        value_name = "NAME",
        value_delimiter = ',',
        default_value = "group",
        requires = "role"
    )]
    pub peer_group: Vec<String>,
    /// Decode engines also serve requests that no engine has prefilled
    #[arg(long, env = "KVASIR_MOCK_SERVES_WHOLE", requires = "role")]
    pub serves_whole: bool,
}

/// `--role`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum RoleArg {
    /// Prefill only
    Prefill,
    /// Decode only
    Decode,
    /// What each request says
    Both,
}

/// `--connector`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum ConnectorArg {
    /// Two steps, nothing handed over
    Http,
    /// LMCache
    Lmcache,
    /// NIXL
    Nixl,
    /// Mooncake
    Mooncake,
    /// SGLang's bootstrap rooms
    Sglang,
}

impl PartArgs {
    /// What each engine plays, by its index.
    pub(super) fn parts(&self) -> impl Fn(usize) -> Option<Part> {
        let fabrics: BTreeMap<&String, Arc<Fabric>> =
            self.peer_group.iter().map(|name| (name, Fabric::new())).collect();
        let fabrics: Vec<Arc<Fabric>> =
            self.peer_group.iter().filter_map(|name| fabrics.get(name).cloned()).collect();
        let (roles, connector, serves_whole) = (self.role.clone(), self.connector.into(), self.serves_whole);
        move |index| {
            let round = index.checked_div(roles.len())?;
            let role = roles.get(index % roles.len())?;
            let fabric = fabrics.get(round.checked_rem(fabrics.len())?)?;
            Some(Part { serves_whole, ..Part::new((*role).into(), connector, fabric) })
        }
    }
}

impl From<RoleArg> for Role {
    fn from(role: RoleArg) -> Self {
        match role {
            RoleArg::Prefill => Self::Prefill,
            RoleArg::Decode => Self::Decode,
            RoleArg::Both => Self::Both,
        }
    }
}

impl From<ConnectorArg> for ConnectorKind {
    fn from(connector: ConnectorArg) -> Self {
        match connector {
            ConnectorArg::Http => Self::Http,
            ConnectorArg::Lmcache => Self::Lmcache,
            ConnectorArg::Nixl => Self::Nixl,
            ConnectorArg::Mooncake => Self::Mooncake,
            ConnectorArg::Sglang => Self::Sglang,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Face {
        #[command(flatten)]
        parts: PartArgs,
    }

    fn parts(flags: &[&str]) -> Vec<Option<Part>> {
        let face = Face::try_parse_from([&["mock-engine"], flags].concat()).expect("parses");
        (0..8).map(face.parts.parts()).collect()
    }

    #[test]
    fn roles_go_round_and_each_round_is_a_group() {
        let all = parts(&["--role=prefill,decode", "--connector=sglang", "--peer-group=a,b"]);
        let all: Vec<Part> = all.into_iter().map(|part| part.expect("a part")).collect();
        assert!(all.iter().all(|part| part.connector == ConnectorKind::Sglang && !part.serves_whole));
        assert_eq!([all[0].role, all[1].role, all[6].role], [Role::Prefill, Role::Decode, Role::Prefill]);
        let same = |one: usize, two: usize| Arc::ptr_eq(&all[one].fabric, &all[two].fabric);
        assert!(same(0, 1) && same(2, 3) && same(0, 4) && !same(1, 2));
    }

    #[test]
    fn without_a_role_there_is_no_part() {
        assert!(parts(&[]).iter().all(Option::is_none));
        let one = parts(&["--role=decode", "--serves-whole"]);
        assert!(one.iter().flatten().all(|part| part.role == Role::Decode && part.serves_whole));
        assert_eq!(one.iter().flatten().count(), 8);
        assert!(Face::try_parse_from(["mock-engine", "--serves-whole"]).is_err());
    }
}
