//! The record of what service accounts asked of an API server, and how it decided.

use std::path::Path;

use anyhow::{Context as _, Result};
use serde_json::Value;

const LOG: &str = "audit.log";
const POLICY: &str = "
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: Metadata, userGroups: ['system:serviceaccounts']}
";

/// One call about a resource.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Call {
    /// Who asked: `system:serviceaccount:NAMESPACE:NAME`.
    pub user: String,
    /// What was to be done, as roles name it.
    pub verb: String,
    /// The group of the resource; empty for the core's.
    pub group: String,
    /// The resource, with `/status` where only that was meant.
    pub resource: String,
    /// The namespace; empty where none was named.
    pub namespace: String,
    /// The object's name; empty where none was named.
    pub name: String,
    /// Whether no role allowed it.
    pub is_refused: bool,
}

/// What an API server needs to keep the record.
pub(super) fn arguments(folder: &Path) -> Result<[String; 2]> {
    let policy = folder.join("audit-policy.yaml");
    std::fs::write(&policy, POLICY).with_context(|| format!("cannot write {}", policy.display()))?;
    Ok([
        format!("--audit-policy-file={}", policy.display()),
        format!("--audit-log-path={}", folder.join(LOG).display()),
    ])
}

/// The record so far. A line that is being written is left out.
pub(super) fn read(folder: &Path) -> Result<Vec<Call>> {
    let path = folder.join(LOG);
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let events = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    Ok(events.filter_map(|event| call(&event)).collect())
}

fn call(event: &Value) -> Option<Call> {
    let object = event.get("objectRef")?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let resource = text(&object["resource"]);
    let decision = event["annotations"]["authorization.k8s.io/decision"].as_str();
    Some(Call {
        user: text(&event["user"]["username"]),
        verb: text(&event["verb"]),
        group: text(&object["apiGroup"]),
        resource: match object["subresource"].as_str() {
            Some(part) => format!("{resource}/{part}"),
            None => resource,
        },
        namespace: text(&object["namespace"]),
        name: text(&object["name"]),
        is_refused: decision == Some("forbid") || event["responseStatus"]["code"] == 403,
    })
}
