//! Many engines in one process.

use std::net::SocketAddr;

use crate::config::EngineConfig;
use crate::engine::Engine;
use crate::part::Part;

/// Engines that differ in their ports and seeds only.
#[derive(Debug)]
pub struct Fleet {
    engines: Vec<Engine>,
}

impl Fleet {
    /// Starts `count` engines. With a fixed port in `config.listen`, engine i takes that port plus i. With the
    /// same [`crate::HashRoot::Fixed`] all name equal blocks equally.
    pub async fn start(count: usize, config: &EngineConfig) -> anyhow::Result<Self> {
        Self::start_parts(count, config, |_| None).await
    }

    /// As [`start`](Self::start), each engine with its part in a group.
    pub async fn start_parts(
        count: usize,
        config: &EngineConfig,
        part: impl Fn(usize) -> Option<Part>,
    ) -> anyhow::Result<Self> {
        let mut engines = Vec::with_capacity(count);
        for index in 0..count {
            let mut one = config.clone();
            one.listen = nth_address(config.listen, index)?;
            one.seed = config.seed.wrapping_add(index as u64);
            one.part = part(index);
            engines.push(Engine::start(one).await?);
        }
        Ok(Self { engines })
    }

    /// The engines, in order of their ports.
    pub fn engines(&self) -> &[Engine] {
        &self.engines
    }

    /// Their URLs.
    pub fn urls(&self) -> Vec<String> {
        self.engines.iter().map(Engine::url).collect()
    }

    /// Stops all.
    pub async fn stop(&self) {
        for engine in &self.engines {
            engine.stop().await;
        }
    }
}

fn nth_address(base: SocketAddr, index: usize) -> anyhow::Result<SocketAddr> {
    if base.port() == 0 {
        return Ok(base);
    }
    let port = u16::try_from(index).ok().and_then(|index| base.port().checked_add(index));
    let port = port.ok_or_else(|| anyhow::anyhow!("port {} plus {index} is no port", base.port()))?;
    Ok(SocketAddr::new(base.ip(), port))
}
