//! The outer document, by the rules of go-yaml 3 decoding into fixed structures.

use crate::problems::{Findings, Located, Place};
use crate::raw::router_document::{Authentication, PluginConfig, PluginSet, RouterDocument, WeightedPlugin};
use crate::raw::{Fields, UnknownKeys, list_of, text_of};
use crate::yaml::{Booleans, Scalar, Tree, Value};

/// Reads the document. An empty one is accepted and says nothing; problems are fatal, as there.
pub(crate) fn read_document<'t>(
    tree: &'t Tree,
    place: &Place,
    findings: &mut Findings,
) -> RouterDocument<'t> {
    if tree.more {
        findings.warn(place, "only the first YAML document of the file is used; what follows has no effect");
    }
    let mut document = RouterDocument::default();
    let Some(mut top) = tree.root().and_then(|root| Fields::of(root, place, findings)) else {
        return document;
    };
    if let Some((value, place)) = top.take("scheduler") {
        read_scheduler(value, &place, &mut document, findings);
    }
    if let Some((value, place)) = top.take("auth") {
        document.auth = read_authentication(value, &place, findings);
    }
    top.finish(UnknownKeys::Warn, findings);
    document
}

fn read_scheduler<'t>(
    value: Value<'t>,
    place: &Place,
    document: &mut RouterDocument<'t>,
    findings: &mut Findings,
) {
    let Some(mut scheduler) = Fields::of(value, place, findings) else { return };
    if let Some((value, place)) = scheduler.take("pluginConfig") {
        for (value, place) in list_of(value, &place, findings) {
            document.plugin_config.extend(read_plugin_config(value, place, findings));
        }
    }
    let plugins = scheduler.take("plugins").and_then(|(value, place)| Fields::of(value, &place, findings));
    if let Some(mut plugins) = plugins {
        if let Some((value, place)) = plugins.take("Filter") {
            document.filters = read_set(value, &place, findings, text_of);
        }
        if let Some((value, place)) = plugins.take("Score") {
            document.scorers = read_set(value, &place, findings, read_weighted);
        }
        plugins.finish(UnknownKeys::Warn, findings);
    }
    scheduler.finish(UnknownKeys::Warn, findings);
}

/// A null entry is skipped; anything else must be a mapping.
fn read_plugin_config<'t>(
    value: Value<'t>,
    place: Place,
    findings: &mut Findings,
) -> Option<PluginConfig<'t>> {
    if value.is_null() {
        return None;
    }
    if value.entries().is_none() {
        let message = format!("plugin configuration must be a mapping, not {}", value.kind());
        findings.error(&place, message, "write name: and args:");
        return None;
    }
    let mut fields = Fields::of(value, &place, findings)?;
    let name = fields.take("name").map_or_else(
        || Some(Located::new(String::new(), place.clone())),
        |(value, place)| text_of(value, &place, findings),
    );
    let args = fields.take("args");
    fields.finish(UnknownKeys::Warn, findings);
    Some(PluginConfig { name: name?, args, place })
}

fn read_set<'t, T>(
    value: Value<'t>,
    place: &Place,
    findings: &mut Findings,
    read: fn(Value<'t>, &Place, &mut Findings) -> Option<T>,
) -> PluginSet<T> {
    let mut set = PluginSet::default();
    let Some(mut fields) = Fields::of(value, place, findings) else { return set };
    for (key, target) in [("enabled", &mut set.enabled), ("disabled", &mut set.disabled)] {
        if let Some((value, place)) = fields.take(key) {
            for (value, place) in list_of(value, &place, findings) {
                target.extend(read(value, &place, findings));
            }
        }
    }
    fields.finish(UnknownKeys::Warn, findings);
    set
}

fn read_weighted(value: Value<'_>, place: &Place, findings: &mut Findings) -> Option<WeightedPlugin> {
    let mut fields = Fields::of(value, place, findings)?;
    let name = fields.take("name").map_or_else(
        || Some(Located::new(String::new(), place.clone())),
        |(value, place)| text_of(value, &place, findings),
    );
    let weight = fields.take("weight").and_then(|(value, place)| read_weight(value, place, findings));
    fields.finish(UnknownKeys::Warn, findings);
    Some(WeightedPlugin { name: name?, weight, place: place.clone() })
}

/// Integers, and floats cut down to integers; a quoted number is a text and refused.
fn read_weight(value: Value<'_>, place: Place, findings: &mut Findings) -> Option<Located<i64>> {
    /// The first float above every `i64`.
    const ABOVE: f64 = 9_223_372_036_854_775_808.0;
    let weight = match value.scalar(Booleans::Two) {
        Some(Scalar::Integer(weight)) => i64::try_from(weight).ok(),
        Some(Scalar::Float(weight)) if weight < ABOVE => Some(weight as i64),
        _ => None,
    };
    match weight {
        Some(weight) => Some(Located::new(weight, place)),
        None => {
            let said = value.text().map_or_else(|| value.kind().to_owned(), |text| format!("{text:?}"));
            findings.error(&place, format!("the weight is {said}"), "write a whole number, without quotes");
            None
        }
    }
}

fn read_authentication(value: Value<'_>, place: &Place, findings: &mut Findings) -> Authentication {
    let mut auth = Authentication::default();
    let Some(mut fields) = Fields::of(value, place, findings) else { return auth };
    auth.issuer = fields.take("issuer").and_then(|(value, place)| text_of(value, &place, findings));
    if let Some((value, place)) = fields.take("audiences") {
        for (value, place) in list_of(value, &place, findings) {
            auth.audiences.extend(text_of(value, &place, findings));
        }
    }
    auth.jwks_uri = fields.take("jwksUri").and_then(|(value, place)| text_of(value, &place, findings));
    fields.finish(UnknownKeys::Warn, findings);
    auth
}
