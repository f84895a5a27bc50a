//! Gateway API (v1.4, standard channel): the kinds that a router reads, and the statuses that it writes.
//!
//! Everything of a spec that decides about traffic is typed, also what the router does not do: it must be able to
//! refuse it in the status instead of passing over it. The project itself ships the CRDs.

mod gateway_class;
mod http_filter;
mod http_route;
mod listener;
mod reference_grant;

pub use gateway_class::{
    GatewayClass, GatewayClassSpec, GatewayClassStatus, ParametersReference, SupportedFeature,
};
pub use http_filter::{
    Fraction, HttpBackendObject, HttpFilter, HttpFilterKind, HttpHeader, HttpHeaderModifier,
    HttpPathModifier, HttpPathModifierKind, HttpRequestMirror, HttpRequestRedirect, HttpUrlRewrite,
    LocalObjectReference,
};
pub use http_route::{
    HttpBackendRef, HttpHeaderMatch, HttpMethod, HttpPathMatch, HttpPathMatchKind, HttpRoute, HttpRouteMatch,
    HttpRouteRule, HttpRouteSpec, HttpRouteTimeouts, HttpValueMatchKind, RouteParentStatus, RouteStatus,
};
pub use listener::{
    AllowedRoutes, Gateway, GatewayAddress, GatewayInfrastructure, GatewaySpec, GatewayStatus, Listener,
    ListenerStatus, ListenerTls, NamespacesFrom, RouteGroupKind, RouteNamespaces, SecretObjectReference,
};
pub use reference_grant::{ReferenceGrant, ReferenceGrantFrom, ReferenceGrantSpec, ReferenceGrantTo};

/// The API group of these kinds.
pub const GATEWAY_GROUP: &str = "gateway.networking.k8s.io";
