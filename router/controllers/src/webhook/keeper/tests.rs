use http::Method;
use serde_json::{Value, json};

use super::super::authority::SERVER_LIFE;
use super::super::material::certificates;
use super::super::testing::{CONFIGURATION, FakeApi, SECRET, configuration, days, now};
use super::*;
use kvasir_state::plan::ObjectName;

struct Room {
    keeper: Keeper,
    api: FakeApi,
    folder: tempfile::TempDir,
}

async fn room(api: &FakeApi, manage_certificate: bool) -> Room {
    let folder = tempfile::tempdir().unwrap();
    let secret = ObjectName::new("models", "certs");
    let cluster = Cluster::new(api.client().await, secret.clone(), "hooks".to_owned());
    let options = WebhookOptions {
        listen: "127.0.0.1:0".parse().unwrap(),
        cert_file: folder.path().join("tls.crt"),
        key_file: folder.path().join("tls.key"),
        secret,
        service_name: "webhook".to_owned(),
        configuration_name: "hooks".to_owned(),
        manage_certificate,
    };
    let (served, board) = (Arc::new(Served::default()), Arc::new(Board::default()));
    Room { keeper: Keeper::new(Some(cluster), options, served, board), api: api.clone(), folder }
}

impl Room {
    fn problems(&self) -> Vec<String> {
        self.keeper.board.status().problems
    }

    fn certificate(&self) -> Option<CertificateStatus> {
        self.keeper.board.status().certificate
    }

    fn trusted(&self) -> Trusted {
        self.keeper.board.status().trusted
    }

    fn data(&self, name: &str) -> String {
        self.api.get(SECRET).unwrap()["data"][name].as_str().unwrap_or_default().to_owned()
    }

    fn bundles(&self) -> Vec<Value> {
        let configuration = self.api.get(CONFIGURATION).unwrap();
        let hooks = configuration["webhooks"].as_array().unwrap();
        hooks.iter().map(|hook| hook["clientConfig"]["caBundle"].clone()).collect()
    }

    fn write_files(&self, at: SystemTime) {
        let Decision::Issue(order) = decide(None, true, "", at) else { panic!("nothing issued") };
        let secret = order.issue(&self.keeper.names, at).unwrap().0;
        let secret = secret.secret(&self.keeper.options.secret, None);
        for name in ["tls.crt", "tls.key"] {
            std::fs::write(self.folder.path().join(name), &secret.data.as_ref().unwrap()[name].0).unwrap();
        }
    }
}

#[tokio::test]
async fn the_first_look_makes_everything_and_the_second_nothing() {
    let api = FakeApi::default();
    api.put(CONFIGURATION, configuration());
    let room = room(&api, true).await;
    room.keeper.look(now()).await;
    assert_eq!(room.problems(), Vec::<String>::new());
    assert_eq!(
        room.certificate(),
        Some(CertificateStatus { source: Source::Secret, until: now() + SERVER_LIFE })
    );
    assert_eq!(room.trusted(), Trusted::Yes);
    let authority = json!(room.data("ca.crt"));
    assert_eq!(room.bundles(), [authority.clone(), authority]);
    assert_eq!(room.api.get(CONFIGURATION).unwrap()["webhooks"][1]["timeoutSeconds"], 30);
    assert_eq!(
        api.writes(),
        [
            (Method::POST, SECRET.rsplit_once('/').unwrap().0.to_owned()),
            (Method::PATCH, CONFIGURATION.to_owned())
        ]
    );
    room.keeper.look(now() + days(1)).await;
    assert_eq!(api.writes(), []);
}

#[tokio::test]
async fn a_replica_that_comes_second_uses_what_the_first_made() {
    let (api, other) = (FakeApi::default(), FakeApi::default());
    other.put(CONFIGURATION, configuration());
    let first = room(&other, true).await;
    first.keeper.look(now()).await;
    // Both saw that there is none; the other one's is there before ours.
    api.put(CONFIGURATION, configuration());
    api.be_faster(SECRET, other.get(SECRET).unwrap());
    let second = room(&api, true).await;
    second.keeper.look(now()).await;
    assert_eq!(second.problems(), Vec::<String>::new());
    assert_eq!(second.data("tls.crt"), first.data("tls.crt"));
    assert_eq!(second.bundles()[0], json!(first.data("ca.crt")));
}

#[tokio::test]
async fn replicas_renew_together_and_agree() {
    let api = FakeApi::default();
    api.put(CONFIGURATION, configuration());
    let (first, second) = (room(&api, true).await, room(&api, true).await);
    first.keeper.look(now()).await;
    second.keeper.look(now()).await;
    let (before, authority) = (first.data("tls.crt"), first.data("ca.crt"));
    api.writes();
    let later = now() + days(250);
    tokio::join!(first.keeper.look(later), second.keeper.look(later));
    let renewed = CertificateStatus { source: Source::Secret, until: later + SERVER_LIFE };
    assert_eq!((first.certificate(), second.certificate()), (Some(renewed), Some(renewed)));
    assert_ne!(first.data("tls.crt"), before);
    assert_eq!(first.data("ca.crt"), authority);
    let serve = |room: &Room| room.keeper.served.clone();
    let stored = Stored::read(&serde_json::from_value(api.get(SECRET).unwrap()).unwrap());
    for room in [&first, &second] {
        let Decision::Serve(material, None) = decide(Some(&stored), true, "webhook.models.svc", later) else {
            panic!("must be good")
        };
        assert!(!serve(room).exchange(material), "serves another certificate than the stored one");
    }
}

#[tokio::test]
async fn a_secret_that_is_deleted_is_made_anew_and_what_was_in_it_stays_trusted() {
    let api = FakeApi::default();
    api.put(CONFIGURATION, configuration());
    let room = room(&api, true).await;
    room.keeper.look(now()).await;
    let former = room.keeper.served.authorities();
    api.remove(SECRET);
    room.keeper.look(now() + days(1)).await;
    assert_eq!(room.problems(), Vec::<String>::new());
    let trusted = certificates(&room.keeper.served.authorities()).unwrap();
    assert_eq!(trusted.len(), 2);
    assert_eq!(trusted[1], certificates(&former).unwrap()[0]);
    assert_eq!(room.bundles()[0], json!(room.data("ca.crt")));
}

#[tokio::test]
async fn a_missing_verb_is_said_with_its_object_and_what_is_there_is_served() {
    let api = FakeApi::default();
    api.put(CONFIGURATION, configuration());
    api.forbid(Method::POST, "secrets");
    let room = room(&api, true).await;
    room.keeper.look(now()).await;
    assert_eq!(
        room.problems(),
        ["may not create Secret models/certs: the router's role lacks the verb create"]
    );
    assert_eq!(room.certificate(), None);
    api.permit_all();
    api.forbid(Method::PATCH, "validating");
    room.keeper.look(now()).await;
    assert_eq!(
        room.problems(),
        ["may not patch ValidatingWebhookConfiguration hooks: the router's role lacks the verb patch"]
    );
    assert!(room.certificate().is_some());
    assert_eq!(room.trusted(), Trusted::Unknown);
    // What may not be renewed is served on.
    api.permit_all();
    api.forbid(Method::PUT, "secrets");
    room.keeper.look(now() + days(250)).await;
    assert_eq!(
        room.problems(),
        ["may not update Secret models/certs: the router's role lacks the verb update"]
    );
    assert_eq!(room.certificate().unwrap().until, now() + SERVER_LIFE);
    assert_eq!(room.trusted(), Trusted::Yes);
    api.permit_all();
    room.keeper.look(now() + days(250)).await;
    assert_eq!(room.problems(), Vec::<String>::new());
}

#[tokio::test]
async fn a_configuration_that_comes_later_is_patched_then() {
    let api = FakeApi::default();
    let room = room(&api, true).await;
    room.keeper.look(now()).await;
    assert_eq!(room.trusted(), Trusted::Absent);
    assert!(room.problems()[0].contains("hooks does not exist"), "{:?}", room.problems());
    api.put(CONFIGURATION, configuration());
    room.keeper.look(now()).await;
    assert_eq!((room.trusted(), room.problems()), (Trusted::Yes, Vec::new()));
    // An upgrade of the chart takes it away again.
    api.put(CONFIGURATION, configuration());
    room.keeper.look(now()).await;
    assert_eq!(room.bundles()[0], json!(room.data("ca.crt")));
}

#[tokio::test]
async fn files_are_mounted_where_the_secret_may_not_be_read() {
    let api = FakeApi::default();
    api.put(CONFIGURATION, configuration());
    api.forbid(Method::GET, "secrets");
    let room = room(&api, true).await;
    room.keeper.look(now()).await;
    assert_eq!(room.certificate(), None);
    room.write_files(now());
    room.keeper.look(now()).await;
    let first = room.certificate().unwrap();
    assert_eq!((first.source, room.trusted()), (Source::Files, Trusted::ByOthers));
    room.write_files(now() + days(5));
    room.keeper.look(now() + days(5)).await;
    assert_ne!(room.certificate().unwrap().until, first.until);
    // Once it may be read, it counts.
    api.permit_all();
    room.keeper.look(now() + days(5)).await;
    assert_eq!(room.certificate().unwrap().source, Source::Secret);
}

#[tokio::test]
async fn unmanaged_files_win_the_secret_is_next_and_nothing_is_written() {
    let api = FakeApi::default();
    api.put(CONFIGURATION, configuration());
    let maker = room(&api, true).await;
    maker.keeper.look(now()).await;
    api.writes();
    api.put(CONFIGURATION, configuration());
    let room = room(&api, false).await;
    room.keeper.look(now()).await;
    assert_eq!(room.certificate().unwrap().source, Source::Secret);
    room.write_files(now() + days(3));
    room.keeper.look(now() + days(3)).await;
    let expected = CertificateStatus { source: Source::Files, until: now() + days(3) + SERVER_LIFE };
    assert_eq!(room.certificate(), Some(expected));
    // Files that do not fit together are told, and the Secret takes over.
    std::fs::write(room.folder.path().join("tls.key"), "no key").unwrap();
    room.keeper.look(now() + days(4)).await;
    assert!(room.problems()[0].contains("the key cannot be read"), "{:?}", room.problems());
    assert_eq!(room.certificate().unwrap().source, Source::Secret);
    assert_eq!((api.writes(), room.trusted()), (Vec::new(), Trusted::ByOthers));
}

#[tokio::test]
async fn a_secret_that_cert_manager_rotates_is_picked_up() {
    let api = FakeApi::default();
    api.put(CONFIGURATION, configuration());
    let other = FakeApi::default();
    let maker = room(&other, true).await;
    let room = room(&api, false).await;
    for day in [0, 250] {
        maker.keeper.look(now() + days(day)).await;
        let mut secret = other.get(SECRET).unwrap();
        secret["metadata"]["labels"] = json!({});
        api.put(SECRET, secret);
        room.keeper.look(now() + days(day)).await;
        assert_eq!(room.certificate().unwrap().until, now() + days(day) + SERVER_LIFE);
    }
    assert_eq!(api.writes(), []);
}
