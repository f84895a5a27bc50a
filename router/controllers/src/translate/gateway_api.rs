//! Gateways and HTTPRoutes to listeners and routes, with their status.

use super::{Options, Translation};
use crate::objects::Objects;

pub(super) fn translate(_objects: &Objects, _options: &Options, _translation: &mut Translation) {}
