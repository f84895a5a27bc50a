//! What prefill engines gave out and decode engines have not taken yet.

use std::collections::VecDeque;

use serde_json::Value;

use super::{Fabric, Member};

/// Hand-overs kept at most; the oldest are worth nothing then.
const KEPT: usize = 4096;

/// Both books of a group.
#[derive(Debug, Default)]
pub(super) struct HandOvers {
    /// Parameters that were given out: nixl and mooncake.
    given: VecDeque<Given>,
    /// Prompts that are computed and that nobody has generated from yet: http and lmcache. (Start, prompt.)
    computed: VecDeque<(u64, u64)>,
}

#[derive(Debug)]
struct Given {
    start: u64,
    prompt: u64,
    nonce: u64,
    params: Value,
    taken: bool,
}

impl HandOvers {
    /// An engine is gone, and what it held with it.
    pub(super) fn forget(&mut self, start: u64) {
        self.given.retain(|given| given.start != start);
        self.computed.retain(|(by, _)| *by != start);
    }
}

impl Fabric {
    /// A prefill engine gives `params` out for a prompt; `nonce` is theirs alone.
    pub(crate) fn give(&self, by: &Member, prompt: u64, nonce: u64, params: Value) {
        let given = &mut self.state.lock().hand_overs.given;
        if given.len() >= KEPT {
            given.pop_front();
        }
        given.push_back(Given { start: by.start(), prompt, nonce, params, taken: false });
    }

    /// A decode engine was handed `params` for a prompt.
    ///
    /// # Errors
    /// What is wrong with them.
    pub(crate) fn take(&self, params: &Value, prompt: u64) -> Result<(), &'static str> {
        let mut state = self.state.lock();
        let nonce = params.get("nonce").and_then(Value::as_u64);
        let given = state.hand_overs.given.iter_mut().find(|given| Some(given.nonce) == nonce);
        let Some(given) = given else { return Err("were given out by no prefill engine of this group") };
        if given.params != *params {
            return Err("are not as the prefill engine gave them out");
        }
        if given.prompt != prompt {
            return Err("were given out for another prompt");
        }
        if std::mem::replace(&mut given.taken, true) {
            return Err("were handed over before");
        }
        Ok(())
    }

    /// A prefill engine has computed a prompt.
    pub(crate) fn computed(&self, by: &Member, prompt: u64) {
        let computed = &mut self.state.lock().hand_overs.computed;
        if computed.len() >= KEPT {
            computed.pop_front();
        }
        computed.push_back((by.start(), prompt));
    }

    /// Uses up one prefill of a prompt; false when none has ended.
    pub(crate) fn take_computed(&self, prompt: u64) -> bool {
        let computed = &mut self.state.lock().hand_overs.computed;
        let found = computed.iter().position(|(_, ready)| *ready == prompt);
        found.and_then(|index| computed.remove(index)).is_some()
    }
}
