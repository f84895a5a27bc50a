//! ExternalModelProviders: what their status says until they can be served.

use super::Translation;
use crate::objects::Objects;

pub(super) fn translate(_objects: &Objects, _translation: &mut Translation) {}
