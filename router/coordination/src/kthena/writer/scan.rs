//! Goes through the store for entries of a pod that should not be there.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use redis::{Pipeline, Value};

use crate::connection::{Node, Redis, StoreError};
use crate::key;

use super::state::State;
use super::{WriterNames, WriterOptions};

/// Keys that one step of the server looks at.
const COUNT: usize = 1000;
/// How long one call may take: a tenth of the second between two calls, some 50,000 keys.
const BUDGET: Duration = Duration::from_millis(100);

/// A pass over all keys, in steps that resume.
#[derive(Debug, Default)]
pub(super) struct Scan {
    /// What is left to do; `None` before the servers are known.
    todo: Option<VecDeque<Sweep>>,
    removed: u64,
}

/// One kind of key on one server.
#[derive(Debug)]
struct Sweep {
    node: Node,
    pattern: String,
    cursor: u64,
}

impl Scan {
    /// Goes on for a short while. Whether the pass is complete.
    pub(super) async fn advance(
        &mut self,
        redis: &Redis,
        names: &WriterNames,
        state: &State,
        options: &WriterOptions,
    ) -> Result<bool, StoreError> {
        let (begun, limit) = (Instant::now(), options.limit);
        if self.todo.is_none() {
            self.todo = Some(sweeps(redis.nodes(limit).await?, names, options.keeps_mapping));
        }
        while let Some(sweep) = self.todo.as_mut().and_then(VecDeque::front_mut) {
            let mut scan = redis::cmd("SCAN");
            scan.arg(sweep.cursor).arg("MATCH").arg(&sweep.pattern).arg("COUNT").arg(COUNT);
            let (cursor, keys): (u64, Vec<Vec<u8>>) = redis.query_on(&sweep.node, &scan, limit).await?;
            self.removed += remove(redis, names, state, &keys, limit).await?;
            sweep.cursor = cursor;
            if cursor == 0 {
                self.todo.as_mut().map(VecDeque::pop_front);
            }
            if begun.elapsed() >= BUDGET {
                break;
            }
        }
        Ok(self.todo.as_ref().is_some_and(VecDeque::is_empty))
    }

    /// Entries removed since the last call of this.
    pub(super) fn take_removed(&mut self) -> u64 {
        std::mem::take(&mut self.removed)
    }
}

fn sweeps(nodes: Vec<Node>, names: &WriterNames, mapping: bool) -> VecDeque<Sweep> {
    let mut patterns = vec![key::kthena_block_pattern(Some(&names.model))];
    if mapping {
        patterns.push(key::kthena_mapping_pattern(names.engine.as_str(), &names.pod));
    }
    nodes
        .into_iter()
        .flat_map(|node| {
            patterns.clone().into_iter().map(move |pattern| Sweep { node: node.clone(), pattern, cursor: 0 })
        })
        .collect()
}

/// Removes what the pod does not hold from these keys. A field that is not there costs the server next to nothing.
async fn remove(
    redis: &Redis,
    names: &WriterNames,
    state: &State,
    keys: &[Vec<u8>],
    limit: Duration,
) -> Result<u64, StoreError> {
    let mapping = key::kthena_mapping(names.engine.as_str(), &names.pod, "");
    let mut pipe = Pipeline::with_capacity(keys.len());
    for name in keys.iter().filter_map(|name| std::str::from_utf8(name).ok()) {
        match (key::parse_kthena_block(name), name.strip_prefix(&mapping)) {
            (Some((model, hash)), _) if model == names.model && !state.holds(hash) => {
                pipe.cmd("HDEL").arg(name).arg(&names.pod);
            }
            (None, Some(engine_hash)) if !state.maps(engine_hash) => {
                pipe.cmd("DEL").arg(name);
            }
            _ => {}
        }
    }
    let answers = redis.pipeline(&pipe, limit).await?;
    Ok(answers
        .iter()
        .map(|answer| if let Value::Int(removed) = answer { removed.unsigned_abs() } else { 0 })
        .sum())
}
