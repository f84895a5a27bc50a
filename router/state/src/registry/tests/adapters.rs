//! Which adapters an endpoint has, as its engine tells: where each stands for a request, and how long that is true.

use kvasir_core::{AdapterName, AdapterStanding, EngineAdapters};

use super::*;

#[test]
fn those_that_list_the_adapter_are_preferred() {
    let (state, _) = state();
    state.replace(plan(&["a", "b", "c"]));
    let adapter = AdapterName::from("sql");
    assert_eq!(candidates(&state, &served(), Some(&adapter)).len(), 3, "nobody has told yet");
    state.models_listed(&id("a"), vec!["served".to_owned(), "other".to_owned()]);
    assert_eq!(candidates(&state, &served(), Some(&adapter)).len(), 3, "nobody lists it");
    state.models_listed(&id("b"), vec!["sql".to_owned(), "served".to_owned()]);
    assert_eq!(pods(&candidates(&state, &served(), Some(&adapter))), ["b"]);
    assert_eq!(candidates(&state, &served(), None).len(), 3);
    eject(&state, "b");
    assert_eq!(pods(&candidates(&state, &served(), Some(&adapter))), ["b"], "the others would answer 404");
    state.models_listed(&id("b"), vec!["served".to_owned()]);
    assert_eq!(pods(&candidates(&state, &served(), Some(&adapter))), ["a", "c"], "it was unloaded");
}

fn report(running: &[&str], waiting: &[&str]) -> Option<EngineAdapters> {
    let names = |list: &[&str]| list.iter().map(|name| (*name).to_owned()).collect();
    Some(EngineAdapters { running: names(running), waiting: names(waiting), most: 2 })
}

#[test]
fn candidates_carry_where_the_requests_adapter_stands() {
    use AdapterStanding::{Absent, Full, Loading, Resident, Unknown};
    let (state, clock) = state();
    state.replace(plan(&["a", "b", "c", "d", "e"]));
    state.adapters_seen(&id("a"), report(&["sql", "x"], &[]));
    state.adapters_seen(&id("b"), report(&["x"], &["sql"]));
    state.adapters_seen(&id("c"), report(&["x"], &[]));
    state.adapters_seen(&id("d"), report(&["x", "y"], &[]));
    state.adapters_seen(&id("e"), None);
    state.adapters_seen(&id("gone"), report(&["sql"], &[]));
    let standings = |adapter: Option<&AdapterName>| {
        let pool = candidates(&state, &served(), adapter);
        pool.all().iter().map(|candidate| candidate.load.adapter).collect::<Vec<_>>()
    };
    let sql = AdapterName::from("sql");
    assert_eq!(standings(Some(&sql)), [Resident, Loading, Absent, Full, Unknown]);
    assert_eq!(standings(None), [Unknown; 5], "a request for the base model has no adapter");
    assert_eq!(state.endpoints()[0].adapters, report(&["sql", "x"], &[]));
    clock.advance(Duration::from_secs(6));
    assert_eq!(standings(Some(&sql)), [Unknown; 5], "what was seen so long ago says nothing of now");
}
