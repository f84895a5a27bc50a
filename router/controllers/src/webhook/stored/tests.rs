use serde_json::{Value, json};

use super::super::authority::names_of;
use super::super::testing::{days, now};
use super::*;

const NAME: &str = "webhook.models.svc";

fn names() -> Vec<String> {
    names_of("webhook", "models")
}

fn issued(at: SystemTime) -> Stored {
    Order::first("test").issue(&names(), at).unwrap().0
}

/// One that kthena, or a user, has put there.
fn foreign(at: SystemTime) -> Stored {
    Stored { ours: false, authority_key: Vec::new(), ..issued(at) }
}

fn order(decision: Decision) -> Order {
    match decision {
        Decision::Issue(order) => order,
        other => panic!("{other:?}"),
    }
}

fn served(decision: Decision) -> (Material, Option<String>) {
    match decision {
        Decision::Serve(material, problem) => (material, problem),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_issued_certificate_convinces_whoever_calls_any_of_the_names() {
    let (stored, material) = Order::first("test").issue(&names(), now()).unwrap();
    for name in ["webhook.models.svc", "webhook.models.svc.cluster.local", "webhook.models"] {
        assert_eq!(material.convinces(name, now()), Ok(()), "{name}");
    }
    assert!(material.convinces("webhook.other.svc", now()).unwrap_err().contains("webhook.other.svc"));
    assert!(material.convinces(NAME, now() + days(366)).is_err());
    assert_eq!(material.validity.until, now() + SERVER_LIFE);
    let authority = certificates(&stored.authorities).unwrap();
    let life = Validity::read(&authority[0]).unwrap();
    assert_eq!(life.until, now() + days(3650));
    // The names by which tools find it, as they stand in the certificate.
    for word in [&b"kthena-webhook-ca"[..], b"Volcano"] {
        assert!(authority[0].windows(word.len()).any(|part| part == word));
    }
}

#[test]
fn nothing_there_is_made_only_where_we_may() {
    let order = order(decide(None, true, NAME, now()));
    assert!(order.authority.is_none() && order.meanwhile.is_none());
    assert!(matches!(decide(None, false, NAME, now()), Decision::Nothing(_)));
    let empty = Stored::default();
    assert!(matches!(decide(Some(&empty), true, NAME, now()), Decision::Issue(_)));
    assert!(matches!(decide(Some(&empty), false, NAME, now()), Decision::Nothing(_)));
}

#[test]
fn our_own_is_served_until_a_third_of_its_life_is_left_then_renewed_by_the_same_authority() {
    let stored = issued(now());
    for passed in [0, 100, 242] {
        let (_, problem) = served(decide(Some(&stored), true, NAME, now() + days(passed)));
        assert_eq!(problem, None, "{passed}");
    }
    let later = now() + days(244);
    let order = order(decide(Some(&stored), true, NAME, later));
    assert_eq!(order.reason, "a third of the certificate's life is left");
    assert!(order.meanwhile.is_some());
    let (renewed, material) = order.issue(&names(), later).unwrap();
    assert_eq!(renewed.authorities, stored.authorities);
    assert_eq!(renewed.authority_key, stored.authority_key);
    assert_ne!(renewed.chain, stored.chain);
    assert_eq!(material.convinces(NAME, later + days(364)), Ok(()));
}

#[test]
fn an_authority_that_ends_too_soon_is_replaced_and_stays_trusted_for_a_while() {
    let first = issued(now());
    let much_later = now() + days(3650 - 300);
    let order = order(decide(Some(&first), true, NAME, much_later));
    assert!(order.authority.is_none());
    let (second, _) = order.issue(&names(), much_later).unwrap();
    let trusted = certificates(&second.authorities).unwrap();
    assert_eq!(trusted.len(), 2);
    assert_eq!(trusted[1], certificates(&first.authorities).unwrap()[0]);
    // What the first one issued is still accepted with what is trusted now.
    let old = Material::read(&first.chain, &first.key, &second.authorities).unwrap();
    assert_eq!(old.convinces(NAME, now()), Ok(()));
    // Once it has ended, the next renewal drops it.
    let after = much_later + days(310);
    let (third, _) = Order {
        reason: String::new(),
        authority: second.authority(after),
        trusted: second.authorities.clone(),
        meanwhile: None,
    }
    .issue(&names(), after)
    .unwrap();
    assert_eq!(certificates(&third.authorities).unwrap(), trusted[..1]);
}

#[test]
fn our_own_that_is_broken_is_replaced() {
    let good = issued(now());
    let other = issued(now());
    for (broken, keeps_authority) in [
        (Stored { chain: b"no PEM".to_vec(), ..good.clone() }, true),
        (Stored { key: other.key.clone(), ..good.clone() }, true),
        (Stored { key: Vec::new(), ..good.clone() }, true),
        (Stored { authorities: other.authorities.clone(), ..good.clone() }, false),
        (Stored { authorities: Vec::new(), ..good.clone() }, false),
        (
            Stored {
                authority_key: Vec::new(),
                chain: b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".to_vec(),
                ..good.clone()
            },
            false,
        ),
    ] {
        let order = order(decide(Some(&broken), true, NAME, now()));
        assert_eq!(order.authority.is_some(), keeps_authority, "{}", order.reason);
        let (_, material) = order.issue(&names(), now()).unwrap();
        assert_eq!(material.convinces(NAME, now()), Ok(()));
        assert!(!matches!(decide(Some(&broken), false, NAME, now()), Decision::Issue(_)));
    }
}

#[test]
fn one_for_other_names_is_replaced() {
    let stored = issued(now());
    let order = order(decide(Some(&stored), true, "renamed.models.svc", now()));
    assert!(order.reason.contains("renamed.models.svc"), "{}", order.reason);
    assert!(order.authority.is_some());
}

#[test]
fn somebody_elses_is_served_and_never_replaced() {
    let stored = foreign(now());
    assert_eq!(served(decide(Some(&stored), true, NAME, now())).1, None);
    let ended = served(decide(Some(&stored), true, NAME, now() + days(400))).1;
    assert!(ended.is_some_and(|problem| problem.contains(NAME)));
    let broken = Stored { key: Vec::new(), ..foreign(now()) };
    assert!(matches!(decide(Some(&broken), true, NAME, now()), Decision::Nothing(_)));
}

#[test]
fn where_we_do_not_manage_only_the_time_is_looked_at() {
    let without = Stored { authorities: Vec::new(), ..foreign(now()) };
    assert_eq!(served(decide(Some(&without), false, "other.name.svc", now())).1, None);
    assert!(served(decide(Some(&without), false, NAME, now() + days(400))).1.is_some());
    let ours = issued(now());
    assert!(matches!(decide(Some(&ours), false, NAME, now() + days(300)), Decision::Serve(..)));
}

#[test]
fn a_secret_carries_it_and_keeps_what_else_is_there() {
    let stored = issued(now());
    let name = ObjectName::new("models", "certs");
    let first = stored.secret(&name, None);
    assert_eq!(first.type_.as_deref(), Some("kubernetes.io/tls"));
    let read = Stored::read(&first);
    assert!(read.ours);
    assert_eq!(read.chain, stored.chain);
    assert_eq!(read.authority_key, stored.authority_key);
    let former: Secret = serde_json::from_value(json!({
        "metadata": {"name": "certs", "namespace": "models", "resourceVersion": "7", "labels": {"a": "b"}},
        "type": "Opaque", "data": {"other": "eA==", "tls.crt": ""},
    }))
    .unwrap();
    let second: Value = serde_json::to_value(stored.secret(&name, Some(&former))).unwrap();
    assert_eq!(second["metadata"]["resourceVersion"], "7");
    assert_eq!(second["metadata"]["labels"], json!({"a": "b", "kvasir.io/webhook-certificate": "generated"}));
    assert_eq!((&second["type"], &second["data"]["other"]), (&json!("Opaque"), &json!("eA==")));
    assert!(second["data"]["ca.crt"].as_str().is_some_and(|data| data.len() > 100));
}

#[test]
fn no_key_is_shown() {
    let stored = issued(now());
    let order = order(decide(Some(&stored), true, NAME, now() + days(300)));
    let shown = format!("{stored:?} {order:?}");
    assert!(!shown.contains("PRIVATE KEY"), "{shown}");
}
