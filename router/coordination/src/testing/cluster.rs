//! A Redis Cluster of masters on loopback.

use kvasir_settings::redis::{RedisNode, RedisSettings, RedisTopology};

use super::{TestServer, free_port, settings_of};

/// Slots of a Cluster.
const SLOTS: usize = 16_384;

/// A Cluster whose slots are spread evenly over its masters.
#[derive(Debug)]
pub struct TestCluster {
    /// The masters, in the order of their slots.
    pub masters: Vec<TestServer>,
}

impl TestCluster {
    /// Starts so many masters, introduces them and waits until each calls the Cluster whole.
    pub async fn start(masters: usize) -> Self {
        let mut servers = Vec::new();
        let mut buses = Vec::new();
        for _ in 0..masters {
            let bus = free_port().to_string();
            let arguments = [
                "--cluster-enabled",
                "yes",
                "--cluster-node-timeout",
                "2000",
                "--cluster-port",
                bus.as_str(),
            ];
            servers.push(TestServer::start_with(&arguments).await);
            buses.push(bus);
        }
        for (number, server) in servers.iter().enumerate() {
            let (first, end) = (number * SLOTS / masters, (number + 1) * SLOTS / masters);
            let done =
                server.ask(&["CLUSTER", "ADDSLOTSRANGE", &first.to_string(), &(end - 1).to_string()]).await;
            assert_eq!(done, ["OK"]);
            let met = servers[0]
                .ask(&["CLUSTER", "MEET", "127.0.0.1", &server.port().to_string(), &buses[number]])
                .await;
            assert_eq!(met, ["OK"]);
        }
        let known = format!("cluster_known_nodes:{masters}");
        for server in &servers {
            server
                .wait_for(&["CLUSTER", "INFO"], |parts| {
                    let text = parts.join("\n");
                    text.contains("cluster_state:ok") && text.contains(&known)
                })
                .await;
        }
        Self { masters: servers }
    }

    /// Settings that name every master.
    pub fn settings(&self) -> RedisSettings {
        let nodes: Vec<RedisNode> = self.masters.iter().map(TestServer::node).collect();
        RedisSettings { topology: RedisTopology::Cluster(nodes), ..settings_of(self.masters[0].node()) }
    }

    /// The slot of a key.
    pub async fn slot(&self, key: &str) -> usize {
        let answer = self.masters[0].ask(&["CLUSTER", "KEYSLOT", key]).await;
        answer.first().and_then(|slot| slot.parse().ok()).unwrap_or_default()
    }

    /// The number of the master that serves a slot, as the masters see it.
    pub async fn master_of(&self, slot: usize) -> usize {
        for (number, server) in self.masters.iter().enumerate() {
            let own = server.ask(&["CLUSTER", "NODES"]).await.join("\n");
            let myself = own.lines().find(|line| line.contains("myself")).unwrap_or_default();
            let serves =
                myself.split_whitespace().skip(8).filter(|word| !word.starts_with('[')).any(|range| {
                    let (first, last) = range.split_once('-').unwrap_or((range, range));
                    let (first, last) = (first.parse::<usize>(), last.parse::<usize>());
                    matches!((first, last), (Ok(first), Ok(last)) if (first..=last).contains(&slot))
                });
            if serves {
                return number;
            }
        }
        usize::MAX
    }

    /// Moves a slot with its keys from one master to another, as an operator would while it is in use.
    pub async fn move_slot(&self, slot: usize, from: usize, to: usize) {
        let (source, target) = (&self.masters[from], &self.masters[to]);
        let source_id = source.ask(&["CLUSTER", "MYID"]).await.concat();
        let target_id = target.ask(&["CLUSTER", "MYID"]).await.concat();
        let slot = slot.to_string();
        assert_eq!(target.ask(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &source_id]).await, ["OK"]);
        assert_eq!(source.ask(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &target_id]).await, ["OK"]);
        loop {
            let keys = source.ask(&["CLUSTER", "GETKEYSINSLOT", &slot, "100"]).await;
            if keys.is_empty() {
                break;
            }
            let port = target.port().to_string();
            let mut words = vec!["MIGRATE", "127.0.0.1", port.as_str(), "", "0", "5000", "KEYS"];
            words.extend(keys.iter().map(String::as_str));
            assert_eq!(source.ask(&words).await, ["OK"]);
        }
        // Every master is told, as `redis-cli` does: one that only hears of it may take a later claim of the source for
        // the newer one, and the two then send each other's clients back and forth.
        let others = self.masters.iter().enumerate().filter(|(number, _)| ![from, to].contains(number));
        for server in [target, source].into_iter().chain(others.map(|(_, server)| server)) {
            assert_eq!(server.ask(&["CLUSTER", "SETSLOT", &slot, "NODE", &target_id]).await, ["OK"]);
        }
    }
}
