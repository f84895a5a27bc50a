use super::*;
use crate::testing::{Heard, cycle, endpoint, pool_of, scores_of};
use kvasir_core::Load;

fn plugin(args: PrefixCacheArgs) -> (PrefixCache, Arc<Heard>) {
    let heard = Arc::new(Heard::default());
    (PrefixCache::new(&args, Arc::clone(&heard) as Arc<dyn ScheduleMeter>), heard)
}

fn asking(hashes: &[u64]) -> CycleState {
    CycleState { text_hashes: hashes.to_vec(), ..cycle() }
}

#[test]
fn the_matched_share_is_the_score() {
    let (plugin, heard) = plugin(PrefixCacheArgs::default());
    plugin.completed(&asking(&[1, 2, 3]), &endpoint(0), None);
    plugin.completed(&asking(&[1, 2, 9]), &endpoint(1), None);
    let pool = pool_of([Load::default(); 3]);
    for (asked, expected) in [
        (&[1, 2, 3][..], [Some(100.0), Some(66.0), Some(0.0)]),
        (&[1, 2, 9, 4, 5, 6, 7], [Some(28.0), Some(42.0), Some(0.0)]),
        (&[5], [Some(0.0), Some(0.0), Some(0.0)]),
        (&[], [None, None, None]),
    ] {
        assert_eq!(scores_of(&plugin, &asking(asked), &pool), expected, "{asked:?}");
    }
    let ratios: Vec<f64> = heard.ratios.lock().iter().map(|(_, ratio)| *ratio).collect();
    assert_eq!(ratios, [1.0, 3.0 / 7.0, 0.0]);
}

#[test]
fn only_answers_that_were_relayed_to_their_end_teach() {
    let (plugin, _) = plugin(PrefixCacheArgs::default());
    plugin.dispatched(&asking(&[1]), &endpoint(0), InFlightCost::default());
    plugin.failed(&asking(&[1]), &endpoint(0));
    assert_eq!(plugin.entries(), 0);
    plugin.completed(&asking(&[1]), &endpoint(0), None);
    assert_eq!(plugin.entries(), 1);
    plugin.forget(&endpoint(0).id);
    assert_eq!(plugin.entries(), 0);
}

#[test]
fn evictions_are_counted() {
    let (plugin, heard) = plugin(PrefixCacheArgs { max_hash_cache_size: 2, ..PrefixCacheArgs::default() });
    plugin.completed(&asking(&[1, 2, 3]), &endpoint(0), None);
    assert_eq!(*heard.evicted.lock(), 1);
    let scores = scores_of(&plugin, &asking(&[1, 2, 3]), &pool_of([Load::default()]));
    assert_eq!(scores, [Some(66.0)]);
}

#[test]
fn at_the_cut_the_longest_win_and_chance_decides_among_equals() {
    let (plugin, _) = plugin(PrefixCacheArgs { top_k_matches: 2, ..PrefixCacheArgs::default() });
    for index in 0..4 {
        plugin.completed(&asking(&[1, 2]), &endpoint(index), None);
    }
    plugin.completed(&asking(&[1, 2, 3]), &endpoint(4), None);
    let pool = pool_of([Load::default(); 5]);
    let mut seconds = [0; 5];
    for turn in 0..400 {
        let cycle = CycleState { request_id: format!("r{turn}").into(), ..asking(&[1, 2, 3]) };
        let scores = scores_of(&plugin, &cycle, &pool);
        assert_eq!(scores[4], Some(100.0));
        let winners: Vec<usize> = (0..4).filter(|index| scores[*index] == Some(66.0)).collect();
        assert_eq!(winners.len(), 1);
        seconds[winners[0]] += 1;
    }
    assert!(seconds[..4].iter().all(|count| *count > 60), "{seconds:?}");
}
