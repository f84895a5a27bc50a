//! The contract of a lookup, per request, in a store outside the process.

use crate::BoxFuture;

/// A pod as such a store names it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct QueryOwner<'a> {
    /// Pod name.
    pub pod: &'a str,
    /// Its namespace.
    pub namespace: &'a str,
    /// When its newest container started, seconds since 1970; entries that are not newer are of an earlier life.
    /// `None` where that is not known.
    pub started_at: Option<u64>,
}

/// Which blocks, and whose.
#[derive(Clone, Copy, Debug)]
pub struct BlockQuery<'a> {
    /// The names under which the model's blocks may be filed, the likeliest first. The names after it are looked at
    /// only where nobody holds the first block under it.
    pub models: &'a [&'a str],
    /// kthena's content hash of each block, the first block first.
    pub hashes: &'a [u64],
    /// The candidates.
    pub owners: &'a [QueryOwner<'a>],
}

/// Why a lookup has no answer. Names no key and no address.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum QueryError {
    /// There is no connection, or the store was left alone after earlier failures.
    #[error("the store is not reachable")]
    Unreachable,
    /// The budget was over.
    #[error("the store took too long")]
    TimedOut,
    /// The store answered with an error.
    #[error("the store answered with an error")]
    Refused,
}

impl QueryError {
    /// The name in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unreachable => "unreachable",
            Self::TimedOut => "timeout",
            Self::Refused => "refused",
        }
    }
}

/// Who holds how many leading blocks of a prompt, asked for each request. Has a budget of its own and keeps to it.
pub trait BlockLookup: Send + Sync {
    /// For each owner of `query`, in its order, how many blocks it holds from the first one on without a hole.
    ///
    /// # Errors
    /// Nothing is known then; the request is placed without it.
    fn leading_blocks<'a>(&'a self, query: BlockQuery<'a>) -> BoxFuture<'a, Result<Vec<u32>, QueryError>>;
}
