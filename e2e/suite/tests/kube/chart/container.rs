//! The router's container of a rendered Deployment, and what the router makes of it.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use clap::{CommandFactory as _, Parser};
use kvasir_settings::flags::RouterArgs;
use kvasir_settings::{DiskFiles, Files, KthenaEnvironment, Settings, SystemFacts, resolve_from};
use serde_json::Value;

use super::helm::named;

/// The container of this name, wherever it runs.
pub fn container<'a>(deployment: &'a Value, name: &str) -> &'a Value {
    let pod = &deployment["spec"]["template"]["spec"];
    pod["containers"].as_array().unwrap().iter().find(|container| container["name"] == name).unwrap()
}

/// What mounted files would hold.
#[derive(Debug, Default)]
pub struct Mounted {
    files: BTreeMap<String, String>,
    /// Of which nobody here knows the files.
    folders: Vec<String>,
}

impl Mounted {
    fn text(&self, path: &Path) -> Option<&str> {
        let named = path.to_str().and_then(|path| self.files.get(path)).map(String::as_str);
        let is_inside = || self.folders.iter().any(|folder| path.starts_with(folder));
        named.or_else(|| is_inside().then_some("word"))
    }
}

impl Files for Mounted {
    fn read(&self, path: &Path) -> io::Result<String> {
        self.text(path).map_or_else(|| DiskFiles.read(path), |text| Ok(text.to_owned()))
    }

    fn is_directory(&self, path: &Path) -> bool {
        DiskFiles.is_directory(path)
    }

    fn is_file(&self, path: &Path) -> bool {
        self.text(path).is_some() || DiskFiles.is_file(path)
    }
}

/// Every ConfigMap and Secret that the pod mounts, by the paths of its files. What is not rendered holds a word.
pub fn mounted(objects: &[Value], deployment: &Value, container: &Value) -> Mounted {
    let mut mounted = Mounted::default();
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    for volume in list(&deployment["spec"]["template"]["spec"]["volumes"]) {
        let mount =
            list(&container["volumeMounts"]).into_iter().find(|mount| mount["name"] == volume["name"]);
        let Some(mount) = mount else { continue };
        let map = volume["configMap"]["name"].as_str().and_then(|name| named(objects, "ConfigMap", name));
        let source = if volume["secret"].is_object() { &volume["secret"] } else { &volume["configMap"] };
        for item in list(&source["items"]) {
            let path = format!("{}/{}", mount["mountPath"].as_str().unwrap(), item["path"].as_str().unwrap());
            let text = map.and_then(|map| map["data"][item["key"].as_str().unwrap()].as_str());
            mounted.files.insert(path, text.unwrap_or("word").to_owned());
        }
        if source.is_object() && !source["items"].is_array() {
            mounted.folders.push(mount["mountPath"].as_str().unwrap().to_owned());
        }
    }
    mounted
}

/// The environment of a container, what is taken from elsewhere left out.
pub fn environment(container: &Value) -> BTreeMap<String, Option<String>> {
    let variables = container["env"].as_array().cloned().unwrap_or_default();
    let value = |variable: &Value| variable["value"].as_str().map(str::to_owned);
    variables
        .iter()
        .map(|variable| (variable["name"].as_str().unwrap().to_owned(), value(variable)))
        .collect()
}

/// The variables that a command takes.
pub fn variables_of(command: &clap::Command) -> Vec<String> {
    let variables = command.get_arguments().filter_map(clap::Arg::get_env);
    variables.map(|name| name.to_str().unwrap().to_owned()).collect()
}

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    router: RouterArgs,
}

/// What the router would run with, in a pod of `namespace`, reaching the API server by `kubeconfig`. Whatever it does not
/// understand, or warns of, is a panic.
pub fn settings(
    objects: &[Value],
    deployment: &Value,
    namespace: &str,
    kubeconfig: Option<&Path>,
) -> Settings {
    let container = container(deployment, "router");
    let args: Vec<&str> =
        container["args"].as_array().unwrap().iter().map(|arg| arg.as_str().unwrap()).collect();
    assert_eq!(args.first(), Some(&"router"));
    let line = Line::try_parse_from(&args).unwrap_or_else(|error| panic!("{error}"));
    let mut facts = SystemFacts::default();
    facts.environment.kubernetes.pod_namespace = Some(namespace.to_owned());
    match kubeconfig {
        Some(path) => facts.environment.kubernetes.kubeconfig = Some(path.display().to_string()),
        None => facts.environment.kubernetes.service_host = Some("10.0.0.1".to_owned()),
    }
    let known = variables_of(&Line::command());
    for (name, value) in environment(container) {
        set(&mut facts.environment, &name, value, &known);
    }
    let files = mounted(objects, deployment, container);
    let settings = resolve_from(&line.router, &files, &facts);
    let settings = settings.unwrap_or_else(|problems| panic!("{args:?}:\n{problems}"));
    assert!(settings.warnings.is_empty(), "{args:?}: {:?}", settings.warnings);
    settings
}

fn set(environment: &mut KthenaEnvironment, name: &str, value: Option<String>, known: &[String]) {
    match name {
        "POD_NAMESPACE" => assert_eq!(value, None, "it is the pod's own"),
        "ACCESS_LOG_ENABLED" => environment.access_log_enabled = value,
        "ACCESS_LOG_FORMAT" => environment.access_log_format = value,
        "ACCESS_LOG_OUTPUT" => environment.access_log_output = value,
        "DRAIN_TIMEOUT" => environment.drain_timeout = value,
        name if name.starts_with("FAIRNESS_")
            || name.starts_with("SESSION_BOOST_")
            || name.starts_with("ENABLE_") =>
        {
            let ours = format!("KVASIR_{name}");
            assert!(known.contains(&ours), "the router knows no {name}");
            environment.admission.extend(value.map(|value| (name.to_owned(), value)));
        }
        name => assert!(known.iter().any(|known| known == name), "the router knows no {name}"),
    }
}
