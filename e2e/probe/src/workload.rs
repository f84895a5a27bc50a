//! The kinds of traffic that a load run can play.

use std::time::Duration;

use serde::Serialize;

use crate::error::{ProbeError, in_range};

/// Longest prompt part, tokens: above every context window in use.
const MAX_TOKENS: u32 = 4_000_000;

/// Most shared text of a workload, tokens; it is held in memory, about 5.5 bytes a token.
const MAX_SHARED_TOKENS: u64 = 64_000_000;

/// What is sent. Token lengths are approximate; the report shows what the engine counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Workload {
    /// Single requests of one of several groups; a group shares its prefix. The group is drawn at random, so that
    /// a rotation over endpoints does not line up with a rotation over groups.
    SharedPrefix {
        /// Groups.
        groups: u32,
        /// Tokens that a group shares.
        prefix_tokens: u32,
        /// Tokens of each request's own end.
        tail_tokens: u32,
    },
    /// Conversations: each turn sends everything said so far, with the answers that were really given.
    MultiTurn {
        /// Users, for the default size of a run.
        users: u32,
        /// Turns of one conversation.
        turns: u32,
        /// Different system prompts, dealt to the users in turn; 0 for none.
        system_prompts: u32,
        /// Tokens of a system prompt.
        system_tokens: u32,
        /// Tokens that the user adds each turn.
        turn_tokens: u32,
        /// Between an answer and the next turn.
        #[serde(rename = "think_time_s", serialize_with = "seconds")]
        think_time: Duration,
    },
    /// Single requests that share nothing, from their first word on.
    Unique {
        /// Tokens of a prompt.
        prompt_tokens: u32,
    },
    /// Single requests of about 16 tokens that share nothing: what a request costs, not what a prompt costs.
    Short,
}

impl Workload {
    /// Requests that one conversation makes; 1 for single requests.
    pub fn turns(&self) -> u32 {
        match self {
            Self::MultiTurn { turns, .. } => *turns,
            _ => 1,
        }
    }

    /// Time between an answer and the same user's next request.
    pub fn think_time(&self) -> Duration {
        match self {
            Self::MultiTurn { think_time, .. } => *think_time,
            _ => Duration::ZERO,
        }
    }

    /// Checks every number.
    pub(crate) fn check(&self) -> Result<(), ProbeError> {
        let tokens = |name, count: u32| in_range(name, "1 to 4000000", (1..=MAX_TOKENS).contains(&count));
        let shared = |texts: u32, each: u32| {
            let total = u64::from(texts) * u64::from(each);
            in_range("all shared text together", "at most 64000000 tokens", total <= MAX_SHARED_TOKENS)
        };
        match *self {
            Self::SharedPrefix { groups, prefix_tokens, tail_tokens } => {
                in_range("the number of groups", "1 to 100000", (1..=100_000).contains(&groups))?;
                tokens("the prefix", prefix_tokens)?;
                tokens("the tail", tail_tokens)?;
                shared(groups, prefix_tokens)
            }
            Self::MultiTurn { users, turns, system_prompts, system_tokens, turn_tokens, .. } => {
                in_range("the number of users", "1 to 10000", (1..=10_000).contains(&users))?;
                in_range("the number of turns", "1 to 1000", (1..=1000).contains(&turns))?;
                in_range("the number of system prompts", "0 to 100000", system_prompts <= 100_000)?;
                tokens("a turn", turn_tokens)?;
                if system_prompts > 0 {
                    tokens("a system prompt", system_tokens)?;
                }
                shared(system_prompts, system_tokens)
            }
            Self::Unique { prompt_tokens } => tokens("the prompt", prompt_tokens),
            Self::Short => Ok(()),
        }
    }
}

fn seconds<S: serde::Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(duration.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_checked() {
        let shared = |groups, prefix_tokens, tail_tokens| Workload::SharedPrefix {
            groups,
            prefix_tokens,
            tail_tokens,
        };
        let talk = |users, turns, system_prompts, system_tokens, turn_tokens| Workload::MultiTurn {
            users,
            turns,
            system_prompts,
            system_tokens,
            turn_tokens,
            think_time: Duration::ZERO,
        };
        for good in [
            shared(8, 20_000, 64),
            talk(4, 3, 0, 0, 50),
            Workload::Unique { prompt_tokens: 9 },
            Workload::Short,
        ] {
            assert_eq!(good.check(), Ok(()), "{good:?}");
        }
        for bad in [
            shared(0, 1, 1),
            shared(1, 0, 1),
            shared(1, 1, 0),
            shared(100_000, 100_000, 1),
            talk(0, 1, 0, 0, 1),
            talk(1, 0, 0, 0, 1),
            talk(1, 1, 1, 0, 1),
            talk(1, 1, 0, 0, 0),
            Workload::Unique { prompt_tokens: 0 },
        ] {
            assert!(bad.check().is_err(), "{bad:?}");
        }
    }
}
