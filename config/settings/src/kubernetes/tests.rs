//! How a cluster is reached, and the names it takes.

use std::io;
use std::path::{Path, PathBuf};

use super::*;
use crate::facts::KubernetesEnvironment;

/// Files whose name does not say that they are absent.
struct SomeFiles;

impl Files for SomeFiles {
    fn read(&self, _: &Path) -> io::Result<String> {
        Err(io::ErrorKind::NotFound.into())
    }

    fn is_directory(&self, _: &Path) -> bool {
        false
    }

    fn is_file(&self, path: &Path) -> bool {
        !path.to_string_lossy().contains("absent")
    }
}

fn watcher(namespace: &str, kubernetes: KubernetesEnvironment) -> Result<KubernetesSettings, String> {
    let environment = KthenaEnvironment { kubernetes, ..KthenaEnvironment::default() };
    resolve_watcher_from(Some(namespace), &SomeFiles, &environment).map_err(|problems| problems.to_string())
}

#[test]
fn the_cluster_is_found_as_kubectl_finds_it() {
    let set = |text: &str| Some(text.to_owned());
    for (host, list, home, expected) in [
        (None, None, Some("/home/me"), Some(&["/home/me/.kube/config"][..])),
        (None, Some("/a:/absent::/b"), Some("/home/me"), Some(&["/a", "/b"])),
        (Some("10.0.0.1"), None, None, Some(&[])),
        (Some("10.0.0.1"), Some("/a"), None, Some(&["/a"])),
        (Some("10.0.0.1"), Some("/absent"), Some("/absent"), Some(&[])),
        (None, Some("/absent"), Some("/home/me"), None),
        (None, None, Some("/absent"), None),
        (None, None, None, None),
    ] {
        let environment = KubernetesEnvironment {
            service_host: host.and_then(set),
            kubeconfig: list.and_then(set),
            home: home.and_then(set),
            pod_namespace: None,
        };
        let read = watcher("", environment);
        let Some(expected) = expected else {
            let problems = read.err().unwrap_or_default();
            assert!(
                problems.contains("there is no cluster to reach") && problems.ends_with("set KUBECONFIG")
            );
            continue;
        };
        let read = read.unwrap_or_else(|problems| panic!("{list:?} {home:?}: {problems}"));
        let files: Vec<PathBuf> = expected.iter().map(PathBuf::from).collect();
        assert_eq!((read.kubeconfig, read.in_cluster), (files, host.is_some()), "{list:?} {home:?}");
        assert_eq!((read.namespace.as_str(), read.watch_namespace, read.webhook), ("default", None, None));
    }
}

#[test]
fn a_watcher_is_told_its_namespace() {
    let environment = || KubernetesEnvironment {
        service_host: Some("10.0.0.1".to_owned()),
        pod_namespace: Some("serving".to_owned()),
        ..KubernetesEnvironment::default()
    };
    let read = watcher(" team-a ", environment()).map(|read| (read.namespace, read.watch_namespace));
    assert_eq!(read, Ok(("serving".to_owned(), Some("team-a".to_owned()))));
    let problems = watcher("Team", environment()).err().unwrap_or_default();
    assert_eq!(
        problems,
        "WATCH_NAMESPACE: \"Team\" is no namespace; write up to 63 small letters, digits and -"
    );
}

#[test]
fn names_are_those_that_the_api_server_takes() {
    let long = "a".repeat(63);
    for (name, label, subdomain) in [
        ("a", true, true),
        ("team-1", true, true),
        ("1", true, true),
        (long.as_str(), true, true),
        ("a.b-c.d", false, true),
        ("", false, false),
        ("-a", false, false),
        ("a-", false, false),
        ("A", false, false),
        ("a_b", false, false),
        ("a..b", false, false),
        (".a", false, false),
    ] {
        assert_eq!((is_label(name), is_subdomain(name)), (label, subdomain), "{name}");
    }
    assert!(!is_label(&"a".repeat(64)) && is_subdomain(&"a".repeat(253)) && !is_subdomain(&"a".repeat(254)));
}

#[test]
fn a_config_map_is_named_in_parts() {
    for (text, expected) in [
        ("conf", "mine/conf:routerConfiguration"),
        ("ns/conf", "ns/conf:routerConfiguration"),
        ("conf.v1:Router_1.yaml", "mine/conf.v1:Router_1.yaml"),
        ("ns/conf:a", "ns/conf:a"),
    ] {
        assert_eq!(parse_config_map(text, "mine").map(|read| read.to_string()), Ok(expected.to_owned()));
    }
    for (text, part) in [
        ("", "no name of a ConfigMap"),
        ("/conf", "no namespace"),
        ("ns/", "no name of a ConfigMap"),
        ("a/b/c", "no name of a ConfigMap"),
        ("conf:", "no key"),
        ("conf:a/b", "no key"),
        ("conf:..", "no key"),
    ] {
        let error = parse_config_map(text, "mine").err().unwrap_or_default();
        assert!(error.contains(part), "{text}: {error}");
    }
}
