//! InferencePools to targets.

use super::Translation;
use super::pods::PodIndex;
use crate::objects::Objects;

pub(super) fn translate(_objects: &Objects, _pods: &PodIndex<'_>, _translation: &mut Translation) {}
