//! The reasons that Gateway API and its inference extension have for a condition.

/// Any object: it is in use.
pub(super) const ACCEPTED: &str = "Accepted";
/// Any object: everything it names is there.
pub(super) const RESOLVED_REFS: &str = "ResolvedRefs";
/// Any object: it cannot be read, or rests on something that is not in use.
pub(super) const INVALID: &str = "Invalid";
/// Gateways and listeners: requests are taken in.
pub(super) const PROGRAMMED: &str = "Programmed";
/// Gateways and listeners: what is missing is tried again.
pub(super) const PENDING: &str = "Pending";
/// Classes and Gateways: the parameters cannot be used.
pub(super) const INVALID_PARAMETERS: &str = "InvalidParameters";
/// Gateways: some listeners, or all, cannot be used.
pub(super) const LISTENERS_NOT_VALID: &str = "ListenersNotValid";
/// Gateways: addresses of this type cannot be given.
pub(super) const UNSUPPORTED_ADDRESS: &str = "UnsupportedAddress";
/// Gateways: this address cannot be given.
pub(super) const ADDRESS_NOT_USABLE: &str = "AddressNotUsable";
/// Listeners: no other one claims the same.
pub(super) const NO_CONFLICTS: &str = "NoConflicts";
/// Listeners: another one has the same port and host.
pub(super) const HOSTNAME_CONFLICT: &str = "HostnameConflict";
/// Listeners: another one speaks something else on the same port.
pub(super) const PROTOCOL_CONFLICT: &str = "ProtocolConflict";
/// Listeners: the port is taken.
pub(super) const PORT_UNAVAILABLE: &str = "PortUnavailable";
/// Listeners: the protocol is not spoken.
pub(super) const UNSUPPORTED_PROTOCOL: &str = "UnsupportedProtocol";
/// Listeners: a kind of route that is not known.
pub(super) const INVALID_ROUTE_KINDS: &str = "InvalidRouteKinds";
/// Listeners and routes: a field's value is not understood, or what it asks for is not done.
pub(super) const UNSUPPORTED_VALUE: &str = "UnsupportedValue";
/// Routes: filters that exclude each other.
pub(super) const INCOMPATIBLE_FILTERS: &str = "IncompatibleFilters";
/// Routes: the Gateway has no such listener, or none that is in use.
pub(super) const NO_MATCHING_PARENT: &str = "NoMatchingParent";
/// Routes: no listener takes routes of this kind and namespace.
pub(super) const NOT_ALLOWED_BY_LISTENERS: &str = "NotAllowedByListeners";
/// Routes: no listener has a host in common with it.
pub(super) const NO_MATCHING_LISTENER_HOSTNAME: &str = "NoMatchingListenerHostname";
/// Routes: a backend does not exist.
pub(super) const BACKEND_NOT_FOUND: &str = "BackendNotFound";
/// Routes: a backend is of a kind that cannot be one.
pub(super) const INVALID_KIND: &str = "InvalidKind";
/// Routes: a backend of another namespace, without that namespace's leave.
pub(super) const REF_NOT_PERMITTED: &str = "RefNotPermitted";
/// Pools: what they ask for is not done.
pub(super) const NOT_SUPPORTED_BY_PARENT: &str = "NotSupportedByParent";
/// Pools: their endpoint picker is of a kind that cannot be one.
pub(super) const INVALID_EXTENSION_REF: &str = "InvalidExtensionRef";

/// Why something is not used: a condition's reason and message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Refusal {
    /// For programs; one of this file's words.
    pub(super) reason: &'static str,
    /// For people: which field, and what to change.
    pub(super) message: String,
}

impl Refusal {
    pub(super) fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }
}

/// The most sentences that one message is made of.
const MOST_SENTENCES: usize = 8;

/// Sentences as one message, bounded: an object may have a thousand mistakes, a message has room for a few.
pub(super) fn joined<'a>(sentences: impl ExactSizeIterator<Item = &'a str>) -> String {
    let more = sentences.len().saturating_sub(MOST_SENTENCES);
    let mut told: Vec<String> = sentences.take(MOST_SENTENCES).map(str::to_owned).collect();
    if more > 0 {
        told.push(format!("and {more} more"));
    }
    told.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_has_an_end() {
        assert_eq!(joined(["a", "b"].into_iter()), "a; b");
        let many = vec!["x"; 1_000];
        assert_eq!(joined(many.into_iter()), "x; x; x; x; x; x; x; x; and 992 more");
    }
}
