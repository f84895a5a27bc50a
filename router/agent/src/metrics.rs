//! The metrics page: made anew for each scrape, so that what is gone leaves no series behind.

use kvasir_coordination::PublisherStatus;
use kvasir_kvcache::follow::{Link, SavedState};
use kvasir_telemetry::Page;
use kvasir_telemetry::names::{self, Family};

use crate::board::{Board, KthenaLine, OwnerView};

/// How a number is read off a line.
type NumberOf<T> = fn(&T) -> f64;

/// The page.
pub fn page(board: &Board) -> String {
    let mut page = Page::default();
    let redis = board.redis.status();
    page.family(&names::AGENT_REDIS_UP, [(Vec::new(), flag(redis.connected))]);
    page.family(&names::AGENT_REDIS_RECONNECTS, [(Vec::new(), redis.reconnects as f64)]);
    let engines = board.owners();
    let pods: Vec<(String, bool)> =
        engines.iter().map(|(engine, state, _)| (engine.config.pod_name(), state.answers)).collect();
    page.family(&names::AGENT_ENGINE_UP, pods.iter().map(|(pod, up)| (vec![pod.as_str()], flag(*up))));
    let owners: Vec<OwnerView> = engines.into_iter().flat_map(|(_, _, owners)| owners).collect();
    followed(&mut page, &owners);
    saved(&mut page, board, &owners);
    published(&mut page, &owners);
    kthena(&mut page, board);
    page.finish()
}

fn flag(is: bool) -> f64 {
    if is { 1.0 } else { 0.0 }
}

/// Adds a family with one number for each owner that has it.
fn each(page: &mut Page, family: &Family, owners: &[OwnerView], of: impl Fn(&OwnerView) -> Option<f64>) {
    page.family(family, owners.iter().filter_map(|owner| Some((vec![owner.name.as_str()], of(owner)?))));
}

fn followed(page: &mut Page, owners: &[OwnerView]) {
    page.family(
        &names::AGENT_LINK,
        owners.iter().map(|owner| (vec![owner.name.as_str(), link_word(owner.stats.follower.link)], 1.0)),
    );
    page.family(
        &names::AGENT_BLOCKS,
        owners.iter().map(|owner| {
            let stats = &owner.stats;
            let labels = vec![stats.model.as_str(), owner.name.as_str(), stats.completeness.as_str()];
            (labels, stats.blocks as f64)
        }),
    );
    each(page, &names::AGENT_LAST_SEQUENCE, owners, |owner| owner.stats.last_seq.map(|seq| seq as f64));
    each(page, &names::AGENT_EVENT_AGE, owners, |owner| {
        owner.stats.last_event_age.map(|age| age.as_secs_f64())
    });
    each(page, &names::AGENT_GAPS, owners, |owner| Some(owner.stats.gaps as f64));
    each(page, &names::AGENT_REPAIRS, owners, |owner| Some(owner.stats.repairs as f64));
    each(page, &names::AGENT_RESETS, owners, |owner| Some(owner.stats.resets as f64));
    each(page, &names::AGENT_FAILED_REPLAYS, owners, |owner| {
        Some(owner.stats.follower.failed_replays as f64)
    });
    each(page, &names::AGENT_DECODE_FAILURES, owners, |owner| {
        let stats = &owner.stats;
        Some((stats.decode_failures + stats.malformed_events + stats.follower.bad_messages) as f64)
    });
    each(page, &names::AGENT_BLOCK_SIZE, owners, |owner| {
        owner.stats.block_size.map(|size| f64::from(u32::from(size)))
    });
    each(page, &names::AGENT_BLOCK_SIZE_CONFLICT, owners, |owner| {
        Some(flag(owner.stats.block_size_conflict.is_some()))
    });
}

fn saved(page: &mut Page, board: &Board, owners: &[OwnerView]) {
    page.family(
        &names::AGENT_RESUME,
        owners.iter().map(|owner| (vec![owner.name.as_str(), saved_word(owner.stats.follower.saved)], 1.0)),
    );
    each(page, &names::AGENT_RESUME_SAVES, owners, |owner| Some(board.saves.of(&owner.id).saves as f64));
    each(page, &names::AGENT_RESUME_BYTES, owners, |owner| Some(board.saves.of(&owner.id).bytes as f64));
}

fn published(page: &mut Page, owners: &[OwnerView]) {
    page.family(
        &names::AGENT_PUBLISHER,
        owners.iter().filter_map(|owner| {
            let published = owner.published.as_ref()?;
            Some((vec![owner.name.as_str(), published.state.as_str()], 1.0))
        }),
    );
    let families: [(&Family, NumberOf<PublisherStatus>); 9] = [
        (&names::AGENT_PUBLISH_LAG, |published| published.lag_ms as f64 / 1000.0),
        (&names::AGENT_PUBLISHED_BLOCKS, |published| published.blocks as f64),
        (&names::AGENT_PUBLISHED_SEQUENCE, |published| published.seq as f64),
        (&names::AGENT_LEASE, |published| published.lease_left_ms as f64 / 1000.0),
        (&names::AGENT_SNAPSHOTS, |published| published.snapshots as f64),
        (&names::AGENT_LOSSES, |published| published.losses as f64),
        (&names::AGENT_FENCED, |published| published.fenced as f64),
        (&names::AGENT_OVERFLOWS, |published| published.overflows as f64),
        (&names::AGENT_PUBLISH_FAILURES, |published| published.failures as f64),
    ];
    for (family, of) in families {
        each(page, family, owners, |owner| owner.published.as_ref().map(of));
    }
}

fn kthena(page: &mut Page, board: &Board) {
    let lines = board.kthena.lines();
    let families: [(&Family, NumberOf<KthenaLine>); 5] = [
        (&names::AGENT_KTHENA_KEYS, |line| line.keys as f64),
        (&names::AGENT_KTHENA_UNKNOWN, |line| line.unknown_removals as f64),
        (&names::AGENT_KTHENA_FAILURES, |line| line.failures as f64),
        (&names::AGENT_KTHENA_PENDING, |line| line.pending as f64),
        (&names::AGENT_KTHENA_STALE, |line| line.stale_removed as f64),
    ];
    for (family, of) in families {
        page.family(
            family,
            lines.iter().map(|line| (vec![line.pod.as_str(), line.model.as_str()], of(line))),
        );
    }
}

fn link_word(link: Link) -> &'static str {
    match link {
        Link::None => "none",
        Link::Connecting => "connecting",
        Link::Replaying => "replaying",
        Link::Following => "following",
    }
}

fn saved_word(saved: SavedState) -> &'static str {
    match saved {
        SavedState::None => "none",
        SavedState::Unproven => "unproven",
        SavedState::Taken => "taken",
        SavedState::Dropped => "dropped",
    }
}
