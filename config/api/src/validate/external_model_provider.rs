//! The rules for an ExternalModelProvider.

use super::base_url::{BaseUrl, read_base_url};
use crate::external_model_provider::{
    AuthScheme, ExternalModelProvider, ExternalModelProviderSpec, ProviderAuth, ProviderType,
};
use crate::field_error::FieldError;

/// Headers that the router itself decides about: credentials, and what belongs to one connection.
pub(crate) const RESERVED_HEADERS: &[&str] = &[
    "authorization",
    "proxy-authorization",
    "cookie",
    "x-api-key",
    "host",
    "content-length",
    "connection",
    "keep-alive",
    "proxy-connection",
    "transfer-encoding",
    "upgrade",
    "trailer",
    "te",
];

/// What is wrong with a provider, in the order of its fields.
pub fn validate_external_model_provider(provider: &ExternalModelProvider) -> Vec<FieldError> {
    let spec = &provider.spec;
    let mut errors = Vec::new();
    if let ProviderType::Other(name) = &spec.provider_type
        && !name.is_empty()
    {
        errors.push(FieldError::unsupported("spec.providerType", name, &["OpenAI", "Anthropic"]));
    }
    check_base_url(spec, &mut errors);
    check_headers(spec, &mut errors);
    if let Some(auth) = &spec.auth {
        check_auth(auth, &mut errors);
    }
    errors
}

fn check_base_url(spec: &ExternalModelProviderSpec, errors: &mut Vec<FieldError>) {
    let detail = match read_base_url(&spec.base_url) {
        BaseUrl::Fine => return,
        BaseUrl::NotHttps => "baseURL must use https",
        BaseUrl::TooMuch => "baseURL must not contain userinfo, query, or fragment",
    };
    errors.push(FieldError::invalid("spec.baseURL", &spec.base_url, detail));
}

fn check_headers(spec: &ExternalModelProviderSpec, errors: &mut Vec<FieldError>) {
    for (name, value) in &spec.headers {
        let field = format!("spec.headers[{name}]");
        if !is_token(name) {
            errors.push(FieldError::invalid(field, name, "header name is invalid"));
            continue;
        }
        if RESERVED_HEADERS.iter().any(|reserved| name.eq_ignore_ascii_case(reserved)) {
            let detail = "header is reserved and cannot be configured as a static header";
            errors.push(FieldError::invalid(field.as_str(), name, detail));
        }
        if value.contains(['\r', '\n']) {
            errors.push(FieldError::invalid(field, value, "header value must not contain CR or LF"));
        }
    }
}

/// A header's name is a token of HTTP.
fn is_token(name: &str) -> bool {
    !name.is_empty()
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

fn check_auth(auth: &ProviderAuth, errors: &mut Vec<FieldError>) {
    if let Some(AuthScheme::Other(name)) = &auth.scheme
        && !name.is_empty()
    {
        errors.push(FieldError::unsupported("spec.auth.scheme", name, &["Bearer", "APIKey"]));
    }
    let secret = &auth.secret_ref;
    if secret.name.is_empty() {
        errors.push(FieldError::required("spec.auth.secretRef.name", "secret name is required"));
    }
    if secret.key.is_empty() {
        errors.push(FieldError::required("spec.auth.secretRef.key", "secret key is required"));
    }
    if secret.optional == Some(true) {
        let field = "spec.auth.secretRef.optional";
        errors.push(FieldError::invalid(field, true, "optional must be false or unset"));
    }
}
