//! Whether a cluster is watched, and what in it.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use crate::defaults;
use crate::facts::{Files, KubernetesEnvironment};
use crate::flag_values::FlagValues;
use crate::flags::RouterArgs;
use crate::kubernetes::{
    Access, ConfigMapRef, KubernetesSettings, WebhookSettings, is_label, is_subdomain, parse_config_map,
};
use crate::problems::{Findings, Place};

use super::said;

/// The flag that decides.
const FLAG: &str = "--kubernetes";

/// The cluster's part of the settings; `None` watches none. `taken` are the listeners beside which the webhook must fit.
pub(super) fn resolve(
    args: &RouterArgs,
    taken: [(&str, SocketAddr); 3],
    files: &dyn Files,
    environment: &KubernetesEnvironment,
    findings: &mut Findings,
) -> Option<KubernetesSettings> {
    let switches = Switches::read(args, findings);
    if let Err(why) = is_on(args, switches, environment, findings) {
        refuse_without_cluster(args, switches, why, findings);
        return None;
    }
    let fix = format!("set KUBECONFIG; or write {FLAG} off and name engines with --model or --models");
    let access = Access::find(environment, files, &fix, findings);
    let gateway_api = switches.gateway_api.unwrap_or(false);
    let inference_extension = switches.inference_extension.unwrap_or(false);
    if inference_extension && !gateway_api {
        let fix = "add --enable-gateway-api=true, or write --enable-gateway-api-inference-extension=false";
        findings.error(
            &Place::flag("--enable-gateway-api-inference-extension"),
            "needs --enable-gateway-api",
            fix,
        );
    }
    let webhook = if switches.webhook.unwrap_or(access.in_cluster) {
        Some(webhook(args, taken, findings))
    } else {
        warn_of_webhook_flags(args, "has no effect: there is no webhook (--enable-webhook=false)", findings);
        None
    };
    Some(KubernetesSettings {
        watch_namespace: watch_namespace(args, findings),
        gateway_class: gateway_class(args, gateway_api, findings),
        lease_name: lease_name(args, findings),
        gateway_addresses: gateway_addresses(args, gateway_api, findings),
        webhook,
        api_qps: api_qps(args, findings),
        api_burst: api_burst(args, findings),
        config_map: config_map(args, &access.namespace, findings),
        kubeconfig: access.kubeconfig,
        in_cluster: access.in_cluster,
        namespace: access.namespace,
        gateway_api,
        inference_extension,
    })
}

/// kthena's switches of what needs a cluster; `None` where nothing was said.
#[derive(Clone, Copy, Debug)]
struct Switches {
    webhook: Option<bool>,
    gateway_api: Option<bool>,
    inference_extension: Option<bool>,
}

impl Switches {
    fn read(args: &RouterArgs, findings: &mut Findings) -> Self {
        let kthena = &args.kthena;
        let mut values = FlagValues::new(findings);
        let mut read = |flag, text| said(text).map(|text| values.boolean(flag, Some(text.trim()), false));
        Self {
            webhook: read("--enable-webhook", &kthena.enable_webhook),
            gateway_api: read("--enable-gateway-api", &kthena.enable_gateway_api),
            inference_extension: read(
                "--enable-gateway-api-inference-extension",
                &kthena.enable_gateway_api_inference_extension,
            ),
        }
    }

    /// Those that are on.
    fn on(self) -> impl Iterator<Item = &'static str> {
        [
            ("--enable-webhook", self.webhook),
            ("--enable-gateway-api", self.gateway_api),
            ("--enable-gateway-api-inference-extension", self.inference_extension),
        ]
        .into_iter()
        .filter_map(|(flag, value)| (value == Some(true)).then_some(flag))
    }
}

/// Whether a cluster is watched, else why not.
fn is_on(
    args: &RouterArgs,
    switches: Switches,
    environment: &KubernetesEnvironment,
    findings: &mut Findings,
) -> Result<(), &'static str> {
    let names_models = said(&args.models).is_some() || args.model.iter().any(|text| !text.trim().is_empty());
    match args.kubernetes.kubernetes.trim() {
        "on" => Ok(()),
        "off" => Err("--kubernetes is off"),
        mode => {
            if !matches!(mode, "auto" | "") {
                let message = format!("there is no mode {mode:?}");
                findings.error(&Place::flag(FLAG), message, "write auto, on or off");
            }
            let wanted = environment.in_cluster() || switches.on().next().is_some();
            match (names_models, wanted) {
                (false, true) => Ok(()),
                (true, _) => Err("models are named by --model or --models"),
                (false, false) => Err("the process runs in no pod"),
            }
        }
    }
}

/// What asks for a cluster must not look as if it were on; what only tunes it is said to have no effect.
fn refuse_without_cluster(args: &RouterArgs, switches: Switches, why: &str, findings: &mut Findings) {
    let message = format!("needs Kubernetes objects, which are not watched: {why}");
    for flag in switches.on() {
        findings.error(&Place::flag(flag), &message, format!("write {FLAG} on, or {flag}=false"));
    }
    if said(&args.kubernetes.config_map).is_some() {
        let fix = format!("write {FLAG} on, or use --config FILE");
        findings.error(&Place::flag("--config-map"), message, fix);
    }
    let message = format!("has no effect: Kubernetes objects are not watched ({why})");
    warn_of_webhook_flags(args, &message, findings);
    let gateway_address = args.kubernetes.gateway_address.iter().find(|text| !text.trim().is_empty());
    for (flag, text) in [
        ("--watch-namespace", said(&args.kubernetes.watch_namespace)),
        ("--gateway-class", said(&args.kubernetes.gateway_class)),
        ("--gateway-address", gateway_address.map(String::as_str)),
        ("--lease-name", said(&args.kubernetes.lease_name)),
        ("--kube-api-qps", said(&args.kthena.kube_api_qps)),
        ("--kube-api-burst", said(&args.kthena.kube_api_burst)),
    ] {
        if text.is_some() {
            findings.warn(&Place::flag(flag), &message);
        }
    }
}

fn warn_of_webhook_flags(args: &RouterArgs, message: &str, findings: &mut Findings) {
    for (flag, text) in [
        ("--webhook-port", &args.kthena.webhook_port),
        ("--webhook-tls-cert-file", &args.kthena.webhook_tls_cert_file),
        ("--webhook-tls-private-key-file", &args.kthena.webhook_tls_private_key_file),
        ("--cert-secret-name", &args.kthena.cert_secret_name),
        ("--webhook-service-name", &args.kthena.webhook_service_name),
        ("--webhook-configuration-name", &args.kubernetes.webhook_configuration_name),
        ("--webhook-manage-certificate", &args.kubernetes.webhook_manage_certificate),
    ] {
        if said(text).is_some() {
            findings.warn(&Place::flag(flag), message);
        }
    }
}

fn webhook(args: &RouterArgs, taken: [(&str, SocketAddr); 3], findings: &mut Findings) -> WebhookSettings {
    let known = WebhookSettings::default();
    let kthena = &args.kthena;
    let text = |text: &Option<String>, known: &str| said(text).map_or(known, str::trim).to_owned();
    let file = |text: &Option<String>, known: PathBuf| said(text).map_or(known, PathBuf::from);
    let secret_name = text(&kthena.cert_secret_name, &known.secret_name);
    let service_name = text(&kthena.webhook_service_name, &known.service_name);
    let configuration_name = text(&args.kubernetes.webhook_configuration_name, &known.configuration_name);
    for (flag, name, fits) in [
        ("--cert-secret-name", &secret_name, is_subdomain(&secret_name)),
        ("--webhook-service-name", &service_name, is_label(&service_name)),
        ("--webhook-configuration-name", &configuration_name, is_subdomain(&configuration_name)),
    ] {
        if !fits {
            let fix = "write the object's name: small letters, digits and -";
            findings.error(&Place::flag(flag), format!("{name:?} is no name"), fix);
        }
    }
    let mut values = FlagValues::new(findings);
    let port = said(&kthena.webhook_port).and_then(|text| values.port("--webhook-port", text));
    let port = port.unwrap_or(known.port);
    for (flag, listener) in taken {
        let any = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port);
        values.apart((flag, listener), ("--webhook-port", any));
    }
    let manage = said(&args.kubernetes.webhook_manage_certificate);
    WebhookSettings {
        port,
        cert_file: file(&kthena.webhook_tls_cert_file, known.cert_file),
        key_file: file(&kthena.webhook_tls_private_key_file, known.key_file),
        secret_name,
        service_name,
        configuration_name,
        manage_certificate: values.boolean("--webhook-manage-certificate", manage, known.manage_certificate),
    }
}

fn watch_namespace(args: &RouterArgs, findings: &mut Findings) -> Option<String> {
    let name = said(&args.kubernetes.watch_namespace)?.trim();
    if !is_label(name) {
        let fix = "write up to 63 small letters, digits and -; leave the flag out for all namespaces";
        findings.error(&Place::flag("--watch-namespace"), format!("{name:?} is no namespace"), fix);
    }
    Some(name.to_owned())
}

const NO_GATEWAYS: &str = "has no effect without --enable-gateway-api";

fn gateway_class(args: &RouterArgs, gateway_api: bool, findings: &mut Findings) -> String {
    let place = Place::flag("--gateway-class");
    let Some(name) = said(&args.kubernetes.gateway_class).map(str::trim) else {
        return defaults::GATEWAY_CLASS.to_owned();
    };
    if !gateway_api {
        findings.warn(&place, NO_GATEWAYS);
    }
    if !is_subdomain(name) {
        findings.error(&place, format!("{name:?} is no name"), "write the GatewayClass's name");
    }
    name.to_owned()
}

fn lease_name(args: &RouterArgs, findings: &mut Findings) -> String {
    let name = said(&args.kubernetes.lease_name).map_or(defaults::LEASE_NAME, str::trim);
    if !is_subdomain(name) {
        let fix = "write the Lease's name: small letters, digits, - and .";
        findings.error(&Place::flag("--lease-name"), format!("{name:?} is no name"), fix);
    }
    name.to_owned()
}

fn gateway_addresses(args: &RouterArgs, gateway_api: bool, findings: &mut Findings) -> Vec<String> {
    let place = Place::flag("--gateway-address");
    let mut addresses: Vec<String> = Vec::new();
    for text in args.kubernetes.gateway_address.iter().map(|text| text.trim()) {
        if text.is_empty() || addresses.iter().any(|known| known == text) {
            continue;
        }
        if text.parse::<IpAddr>().is_err() && !is_subdomain(text) {
            let fix = "write an IP address, or a host name in small letters";
            findings.error(&place, format!("{text:?} is no address"), fix);
        }
        addresses.push(text.to_owned());
    }
    if !addresses.is_empty() && !gateway_api {
        findings.warn(&place, NO_GATEWAYS);
    }
    if addresses.len() > MOST_ADDRESSES {
        let message = format!("is given {} times", addresses.len());
        findings.error(&place, message, format!("a Gateway's status shows {MOST_ADDRESSES} at most"));
    }
    addresses
}

/// What the Gateway API allows in a status.
const MOST_ADDRESSES: usize = 16;

fn api_qps(args: &RouterArgs, findings: &mut Findings) -> f64 {
    let Some(text) = said(&args.kthena.kube_api_qps) else { return 0.0 };
    let place = Place::flag("--kube-api-qps");
    match text.trim().parse::<f64>() {
        Ok(rate) if rate.is_finite() && rate >= 0.0 => rate,
        Ok(rate) if rate < 0.0 => {
            findings.warn(&place, format!("{text:?} is below 0; the client's default is used"));
            0.0
        }
        _ => {
            findings.error(&place, format!("{text:?} is no rate"), "write calls a second, such as 50");
            0.0
        }
    }
}

fn api_burst(args: &RouterArgs, findings: &mut Findings) -> u32 {
    let Some(text) = said(&args.kthena.kube_api_burst) else { return 0 };
    let place = Place::flag("--kube-api-burst");
    match text.trim().parse::<i64>() {
        Ok(count) if count < 0 => {
            findings.warn(&place, format!("{text:?} is below 0; the client's default is used"));
            0
        }
        read => read.ok().and_then(|count| u32::try_from(count).ok()).unwrap_or_else(|| {
            findings.error(&place, format!("{text:?} is no count"), "write a whole number, such as 100");
            0
        }),
    }
}

fn config_map(args: &RouterArgs, namespace: &str, findings: &mut Findings) -> Option<ConfigMapRef> {
    let place = Place::flag("--config-map");
    let text = said(&args.kubernetes.config_map)?.trim();
    if said(&args.routing).is_some() {
        let message = "cannot be combined with --config-map, whose plugins decide how endpoints are chosen";
        findings.error(&Place::flag("--routing"), message, "remove one of the two");
    }
    parse_config_map(text, namespace)
        .map_err(|message| findings.error(&place, message, "write [NAMESPACE/]NAME[:KEY]"))
        .ok()
}
