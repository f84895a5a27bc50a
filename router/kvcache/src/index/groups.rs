//! Which KV-cache group of an engine stands for "the block is held".
//!
//! Hybrid models publish one store for each group. Only a full-attention group covers whole prefixes; a
//! sliding-window group drops blocks behind its window and lists fewer hashes than tokens. So one group is
//! followed: the first whose events cover whole blocks and that is not known to be of a partial kind. The
//! others neither add nor remove anything.

use kvasir_core::Stored;

/// What to do with a store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// It is of the followed group and whole.
    Follow,
    /// It is of a group that is not followed.
    Ignore,
    /// Tokens and hashes do not fit each other.
    Malformed,
    /// The followed group turned out to be a partial one: what it gave must be forgotten.
    Deposed,
}

/// The followed group and those that cannot be followed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Groups {
    pub(super) followed: Option<u32>,
    /// One bit for each group below 64; groups above are never followed.
    pub(super) partial: u64,
}

impl Groups {
    pub(crate) fn followed(&self) -> Option<u32> {
        self.followed
    }

    /// Whether a removal or a store without tokens of `group` concerns us.
    pub(crate) fn concerns(&self, group: u32) -> bool {
        match self.followed {
            Some(followed) => followed == group,
            None => !self.is_partial(group),
        }
    }

    pub(crate) fn judge(&mut self, stored: &Stored) -> Verdict {
        let group = stored.group;
        // Mamba, chunked local, cross and encoder attention hold no reusable whole prefix either; a kind that is
        // not known yet may be anything.
        let kind = stored.spec_kind.as_deref();
        let full = kind
            .is_none_or(|kind| matches!(kind, "full_attention" | "mla_attention" | "sink_full_attention"));
        if self.is_partial(group) {
            return Verdict::Ignore;
        }
        if !full {
            return self.depose(group);
        }
        let block = stored.block_size as usize;
        let whole = block > 0 && stored.token_ids.len() == stored.hashes.len().saturating_mul(block);
        if !whole {
            // Older engines do not name the kind; fewer hashes than whole blocks of tokens give it away.
            let fewer = block > 0
                && stored.token_ids.len().is_multiple_of(block)
                && stored.hashes.len() < stored.token_ids.len() / block;
            return if kind.is_none() && fewer { self.depose(group) } else { Verdict::Malformed };
        }
        if *self.followed.get_or_insert(group) == group { Verdict::Follow } else { Verdict::Ignore }
    }

    fn is_partial(&self, group: u32) -> bool {
        group >= 64 || self.partial >> group & 1 == 1
    }

    fn depose(&mut self, group: u32) -> Verdict {
        self.partial |= 1 << group;
        if self.followed == Some(group) {
            self.followed = None;
            Verdict::Deposed
        } else {
            Verdict::Ignore
        }
    }
}

#[cfg(test)]
mod tests {
    use kvasir_core::EngineHash;

    use super::*;

    fn stored(group: u32, kind: Option<&str>, hashes: usize, tokens: usize) -> Stored {
        Stored {
            hashes: vec![EngineHash::Int { bits: 1, negative: false }; hashes],
            token_ids: vec![0; tokens],
            block_size: 16,
            group,
            spec_kind: kind.map(Into::into),
            ..Stored::default()
        }
    }

    #[test]
    fn the_full_attention_group_is_followed() {
        let mut groups = Groups::default();
        for (event, verdict) in [
            (stored(0, Some("sliding_window"), 2, 32), Verdict::Ignore),
            (stored(1, Some("full_attention"), 2, 32), Verdict::Follow),
            (stored(0, Some("sliding_window"), 1, 32), Verdict::Ignore),
            (stored(2, Some("full_attention"), 2, 32), Verdict::Ignore),
            (stored(1, Some("full_attention"), 1, 32), Verdict::Malformed),
            (stored(1, Some("full_attention"), 2, 31), Verdict::Malformed),
            (stored(99, None, 2, 32), Verdict::Ignore),
        ] {
            assert_eq!(groups.judge(&event), verdict, "{event:?}");
        }
        assert!(groups.concerns(1) && !groups.concerns(0));
    }

    #[test]
    fn a_group_that_shows_to_be_partial_is_deposed() {
        let mut groups = Groups::default();
        assert_eq!(groups.judge(&stored(0, None, 2, 32)), Verdict::Follow);
        assert_eq!(groups.judge(&stored(1, None, 2, 32)), Verdict::Ignore);
        assert_eq!(groups.judge(&stored(0, None, 1, 32)), Verdict::Deposed);
        assert_eq!(groups.judge(&stored(1, None, 2, 32)), Verdict::Follow);
        assert_eq!(groups.judge(&stored(0, None, 2, 32)), Verdict::Ignore);
    }
}
