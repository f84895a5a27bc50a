//! The router document as kthena's users write it.

use crate::problems::{Located, Place};
use crate::yaml::Value;

/// The whole document. Everything is optional; what a key means is [`crate::document`]'s affair.
#[derive(Debug, Default)]
pub(crate) struct RouterDocument<'t> {
    /// `scheduler.pluginConfig`, in the order of the text.
    pub plugin_config: Vec<PluginConfig<'t>>,
    /// `scheduler.plugins.Filter`
    pub filters: PluginSet<Located<String>>,
    /// `scheduler.plugins.Score`
    pub scorers: PluginSet<WeightedPlugin>,
    /// `auth`
    pub auth: Authentication,
}

/// One plugin with its arguments.
#[derive(Debug)]
pub(crate) struct PluginConfig<'t> {
    pub name: Located<String>,
    /// `None` when nothing, or null, was said.
    pub args: Option<(Value<'t>, Place)>,
    pub place: Place,
}

/// Plugins that were switched on and off. kthena reads the second list and ignores it.
#[derive(Debug)]
pub(crate) struct PluginSet<T> {
    pub enabled: Vec<T>,
    pub disabled: Vec<T>,
}

impl<T> Default for PluginSet<T> {
    fn default() -> Self {
        Self { enabled: Vec::new(), disabled: Vec::new() }
    }
}

/// A scorer with its weight.
#[derive(Debug)]
pub(crate) struct WeightedPlugin {
    pub name: Located<String>,
    /// `None` when nothing, or null, was said.
    pub weight: Option<Located<i64>>,
    pub place: Place,
}

/// JWT authentication.
#[derive(Debug, Default)]
pub(crate) struct Authentication {
    pub issuer: Option<Located<String>>,
    pub audiences: Vec<Located<String>>,
    pub jwks_uri: Option<Located<String>>,
}
