//! A group's book-keeping.
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use futures_util::FutureExt;
use serde_json::json;

use super::*;

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const LONG: Duration = Duration::from_secs(3600);

#[test]
fn parameters_are_taken_once_for_their_own_prompt_while_their_engine_lives() {
    let fabric = Fabric::new();
    let engine = fabric.join(Role::Prefill);
    let params = json!({"nonce": u64::MAX, "remote_block_ids": [1, 2]});
    fabric.give(&engine, 7, u64::MAX, params.clone());
    let other = json!({"nonce": u64::MAX, "remote_block_ids": [1]});
    assert_eq!(fabric.take(&other, 7), Err("are not as the prefill engine gave them out"));
    assert_eq!(fabric.take(&params, 8), Err("were given out for another prompt"));
    assert_eq!(fabric.take(&params, 7), Ok(()));
    assert_eq!(fabric.take(&params, 7), Err("were handed over before"));
    drop(engine);
    assert_eq!(fabric.take(&params, 7), Err("were given out by no prefill engine of this group"));
    assert_eq!(Fabric::new().take(&params, 7), Err("were given out by no prefill engine of this group"));
}

#[test]
fn a_prefill_serves_one_decode() {
    let fabric = Fabric::new();
    let engine = fabric.join(Role::Prefill);
    assert!(!fabric.take_computed(7));
    fabric.computed(&engine, 7);
    assert!(!fabric.take_computed(8));
    assert_eq!([fabric.take_computed(7), fabric.take_computed(7)], [true, false]);
}

#[test]
fn books_are_bounded() {
    let fabric = Fabric::new();
    let engine = fabric.join(Role::Prefill);
    for number in 0..5000 {
        fabric.computed(&engine, number);
        fabric.give(&engine, number, number, json!({"nonce": number}));
    }
    assert!(!fabric.take_computed(0) && fabric.take_computed(4999));
    assert!(fabric.take(&json!({"nonce": 0}), 0).is_err());
    assert_eq!(fabric.take(&json!({"nonce": 4999}), 4999), Ok(()));
    for room in 0..70_000 {
        drop(fabric.enter(room, Role::Prefill, HERE, 1));
    }
    assert!(fabric.enter(69_999, Role::Prefill, HERE, 1).is_err());
    assert!(fabric.enter(0, Role::Prefill, HERE, 1).is_ok(), "forgotten");
}

#[tokio::test(start_paused = true)]
async fn two_meet_and_one_alone_gives_up() {
    let fabric = Fabric::new();
    let alone = fabric.enter(1, Role::Prefill, HERE, 7).expect("a new room");
    assert_eq!(alone.meet(LONG).await, Err(Parting::Alone));
    drop(alone);
    let late = fabric.enter(1, Role::Decode, HERE, 7).expect("the other side");
    assert_eq!(late.meet(LONG).await, Err(Parting::Left), "they were never there together");

    let decode = fabric.enter(2, Role::Decode, HERE, 7).expect("a new room");
    let mut meeting = Box::pin(decode.meet(LONG));
    assert!(meeting.as_mut().now_or_never().is_none());
    assert_eq!(fabric.enter(2, Role::Prefill, HERE, 8).expect_err("refused"), "is another prompt's");
    let prefill = fabric.enter(2, Role::Prefill, IpAddr::V4(Ipv4Addr::new(127, 0, 0, 9)), 7).expect("enters");
    assert_eq!(meeting.await, Ok(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 9))));
    assert_eq!(prefill.meet(LONG).await, Ok(HERE));
    assert_eq!(fabric.enter(2, Role::Prefill, HERE, 7).expect_err("refused"), "was used before");
    let mut receiving = Box::pin(decode.receive());
    assert!(receiving.as_mut().now_or_never().is_none(), "nothing is computed");
    let (given, received) = tokio::join!(prefill.hand_over(16), receiving);
    assert_eq!((given, received), (Ok(()), Ok(16)));
}

#[tokio::test(start_paused = true)]
async fn who_leaves_too_early_is_noticed_by_the_other() {
    let fabric = Fabric::new();
    let seats = |room| {
        let seat = |role| fabric.enter(room, role, HERE, 7).expect("enters");
        (seat(Role::Prefill), seat(Role::Decode))
    };
    let (prefill, decode) = seats(1);
    drop(prefill);
    assert_eq!(decode.receive().await, Err(Parting::Left));
    let (prefill, decode) = seats(2);
    drop(decode);
    assert_eq!(prefill.hand_over(0).await, Err(Parting::Left));
}

#[test]
fn exchanges_are_told_with_their_ends() {
    let fabric = Fabric::new();
    let at = |port| SocketAddr::new(HERE, port);
    let (one, two) = (fabric.open(at(1), Role::Prefill), fabric.open(at(2), Role::Decode));
    two.is_about(Role::Decode, 7, Some(9));
    assert_eq!(fabric.under_way(), 2);
    drop(one);
    two.close(End::Refused("no".to_owned()));
    let three = fabric.open(at(3), Role::Decode);
    three.close(End::Answered(200));
    let [one, two, three] = &fabric.exchanges()[..] else { panic!("three exchanges") };
    assert_eq!((&one.end, two.prompt, two.room), (&Some(End::Left), Some(7), Some(9)));
    assert!(one.overlaps(two) && three.succeeded() && !two.succeeded() && !two.overlaps(three));
    assert_eq!((fabric.refusals(), fabric.under_way()), (vec!["no".to_owned()], 0));
    fabric.clear_exchanges();
    assert!(fabric.exchanges().is_empty());
    let four = fabric.open(at(4), Role::Decode);
    four.close(End::Answered(503));
    assert_eq!(fabric.exchanges()[0].end, Some(End::Answered(503)), "numbers go on");
}
