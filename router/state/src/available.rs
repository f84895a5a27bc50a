//! Which endpoints of a target are worth an attempt now.

use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::time::Instant;

use kvasir_core::{AdapterName, Role};
use smallvec::SmallVec;

use crate::plan::Disaggregation;
use crate::snapshot::Member;

/// Some of a target's endpoints.
pub(crate) type Members<'a> = SmallVec<[&'a Member; 16]>;

/// See [`crate::State::candidates`]. The adapter comes before health: an engine without it would only answer 404.
pub(crate) fn available<'a>(
    pool: &'a [Member],
    adapter: Option<&AdapterName>,
    apart: Option<&Disaggregation>,
    now: Instant,
) -> Members<'a> {
    let mut members: Members<'_> =
        pool.iter().filter(|member| !member.live.draining.load(Ordering::Relaxed)).collect();
    let role = |member: &Member| apart.map(|_| member.endpoint.role);
    if let Some(adapter) = adapter {
        keep_if_any(&mut members, role, |member| member.live.lists(adapter.as_str()));
    }
    let Some(apart) = apart else {
        keep_if_any(&mut members, role, |member| member.live.is_available(now));
        return members;
    };
    let all = members.clone();
    keep_if_any(&mut members, role, |member| member.live.is_available(now));
    if can_pair(&members, apart) { members } else { all }
}

/// Keeps those for which `keep` holds, and all of a role where it holds for none of that role.
fn keep_if_any(
    members: &mut Members<'_>,
    role: impl Fn(&Member) -> Option<Role>,
    keep: impl Fn(&Member) -> bool,
) {
    // Asked once: the answer may change meanwhile.
    let kept: SmallVec<[bool; 16]> = members.iter().map(|member| keep(member)).collect();
    let mut roles: SmallVec<[Option<Role>; 2]> = SmallVec::new();
    for (member, _) in members.iter().zip(&kept).filter(|(_, kept)| **kept) {
        if !roles.contains(&role(member)) {
            roles.push(role(member));
        }
    }
    let mut kept = kept.into_iter();
    members.retain(|member| kept.next().unwrap_or(true) || !roles.contains(&role(member)));
}

/// Whether some group has both a prefill and a decode endpoint.
fn can_pair(members: &[&Member], apart: &Disaggregation) -> bool {
    let groups = |role: Role| {
        let members = members.iter().filter(move |member| member.endpoint.role == role);
        members.filter_map(|member| apart.group_of(&member.endpoint))
    };
    let prefill: HashSet<&str> = groups(Role::Prefill).collect();
    groups(Role::Decode).any(|group| prefill.contains(group))
}
