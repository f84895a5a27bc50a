//! Whether the engine is heard. A lease says that an agent lives; what it says must not outlast what it hears.

use std::time::Duration;

use kvasir_core::{EndpointId, OwnerSlot};
use kvasir_kvcache::Index;
use kvasir_kvcache::follow::Link;
use tokio::time::Instant;

/// Looks in the time of one lease.
const LOOKS: u32 = 16;

/// How long each rank of an engine has not been heard.
pub(super) struct Hearing {
    ranks: Vec<Rank>,
    /// How long that may be.
    patience: Duration,
}

struct Rank {
    id: EndpointId,
    slot: OwnerSlot,
    lost_since: Option<Instant>,
}

impl Hearing {
    /// Ranks of which nothing was heard up to `now`. One counts as heard until that has lasted a lease.
    pub(super) fn new(ranks: Vec<(EndpointId, OwnerSlot)>, lease: Duration, now: Instant) -> Self {
        let ranks = ranks.into_iter().map(|(id, slot)| Rank { id, slot, lost_since: Some(now) }).collect();
        Self { ranks, patience: lease }
    }

    /// Tells of each rank again and again whether it is heard.
    pub(super) async fn keep_telling(&mut self, index: &Index, tell: impl Fn(&EndpointId, bool)) {
        loop {
            let link = |slot| index.follower_status(slot).map_or(Link::None, |status| status.link);
            self.look(Instant::now(), link, &tell);
            tokio::time::sleep(self.patience / LOOKS).await;
        }
    }

    /// A link is up again only when the replay has told what was missed, or what was known is forgotten.
    fn look(&mut self, now: Instant, link: impl Fn(OwnerSlot) -> Link, tell: impl Fn(&EndpointId, bool)) {
        for rank in &mut self.ranks {
            if link(rank.slot) == Link::Following {
                rank.lost_since = None;
            } else {
                rank.lost_since.get_or_insert(now);
            }
            tell(&rank.id, rank.lost_since.is_none_or(|since| now.duration_since(since) < self.patience));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[tokio::test]
    async fn a_rank_is_heard_until_its_link_was_down_for_a_lease() {
        let (start, lease) = (Instant::now(), Duration::from_secs(10));
        let ids = [0, 1].map(|rank| (EndpointId::new("ns", "pod", 8000, rank), OwnerSlot(rank)));
        let mut hearing = Hearing::new(ids.to_vec(), lease, start);
        let mut look = |seconds: u64, links: [Link; 2]| {
            let told = RefCell::new(Vec::new());
            let now = start + Duration::from_secs(seconds);
            hearing.look(now, |slot| links[slot.0 as usize], |_, heard| told.borrow_mut().push(heard));
            told.into_inner()
        };
        use Link::{Connecting, Following, None, Replaying};
        assert_eq!(look(9, [Replaying, Connecting]), [true, true]);
        assert_eq!(look(10, [Following, Connecting]), [true, false], "never heard");
        assert_eq!(look(100, [Following, Following]), [true, true]);
        assert_eq!(look(101, [Connecting, Following]), [true, true]);
        assert_eq!(look(110, [Replaying, None]), [true, true]);
        assert_eq!(look(111, [Replaying, Replaying]), [false, true], "the replay has proved nothing yet");
        assert_eq!(look(112, [Following, Following]), [true, true]);
        assert_eq!(look(113, [Connecting, Following]), [true, true], "counted anew");
    }
}
