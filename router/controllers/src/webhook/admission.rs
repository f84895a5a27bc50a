//! One call of the API server: the body of an admission review in, the body of the answer out.

use std::borrow::Cow;

use kvasir_api::{ReviewedKind, review};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use thiserror::Error;

use super::warnings::warnings;

#[cfg(test)]
mod tests;

/// What a review is called where it does not say so itself.
const REVIEW_KIND: &str = "AdmissionReview";
const REVIEW_VERSION: &str = "admission.k8s.io/v1";

/// A body that is no review of the kind that was asked about: status 400, with this as its text.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum Malformed {
    /// It is not JSON, or not that of a review.
    #[error("cannot read the admission review: {0}")]
    Review(String),
    /// It asks nothing.
    #[error("the admission review has no request")]
    NoRequest,
    /// It asks about nothing.
    #[error("the request has no object")]
    NoObject,
    /// What it asks about is not JSON that an object could be.
    #[error("cannot read the object: {0}")]
    Object(String),
    /// What it asks about is another kind's.
    #[error("this path reviews a {expected}, not a {found}")]
    OtherKind {
        /// What the path is for.
        expected: &'static str,
        /// What the object calls itself.
        found: String,
    },
}

/// A review as it comes in. The request is kept as it was written: it goes back unchanged.
#[derive(Deserialize)]
struct Asked<'a> {
    #[serde(borrow, default)]
    kind: Option<Cow<'a, str>>,
    #[serde(borrow, default, rename = "apiVersion")]
    api_version: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    request: Option<&'a RawValue>,
}

/// What of a request decides.
#[derive(Deserialize)]
struct Subject<'a> {
    #[serde(borrow, default)]
    uid: Cow<'a, str>,
    #[serde(borrow, default)]
    operation: Cow<'a, str>,
    #[serde(borrow, default)]
    object: Option<&'a RawValue>,
}

/// A review as it goes back.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Answered<'a> {
    kind: &'a str,
    api_version: &'a str,
    request: &'a RawValue,
    response: Response<'a>,
}

#[derive(Serialize)]
struct Response<'a> {
    uid: &'a str,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Refusal>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

#[derive(Serialize)]
struct Refusal {
    message: String,
}

/// Answers a review of an object of `kind`: the same review, with its response filled in.
///
/// # Errors
/// The body is not such a review.
pub fn answer(kind: ReviewedKind, body: &[u8]) -> Result<Vec<u8>, Malformed> {
    let unreadable = |error: serde_json::Error| Malformed::Review(error.to_string());
    let not_object = || Malformed::Review("expected an object".to_owned());
    let asked: Asked<'_> = serde_json::from_slice(body).map_err(unreadable)?;
    is_object(body).then_some(()).ok_or_else(not_object)?;
    let request = asked.request.ok_or(Malformed::NoRequest)?;
    is_object(request.get().as_bytes()).then_some(()).ok_or_else(not_object)?;
    let subject: Subject<'_> = serde_json::from_str(request.get()).map_err(unreadable)?;
    let (refused, warnings) = judge(kind, &subject)?;
    let answered = Answered {
        kind: asked.kind.as_deref().filter(|kind| !kind.is_empty()).unwrap_or(REVIEW_KIND),
        api_version: asked
            .api_version
            .as_deref()
            .filter(|version| !version.is_empty())
            .unwrap_or(REVIEW_VERSION),
        request,
        response: Response {
            uid: &subject.uid,
            allowed: refused.is_none(),
            status: refused.map(|message| Refusal { message }),
            warnings,
        },
    };
    serde_json::to_vec(&answered).map_err(unreadable)
}

/// Whether a text that is JSON is an object. A list would be read too, its items for the fields in their order.
fn is_object(json: &[u8]) -> bool {
    json.trim_ascii_start().first() == Some(&b'{')
}

/// Why the object is refused, if it is, and else what its author should know.
fn judge(kind: ReviewedKind, subject: &Subject<'_>) -> Result<(Option<String>, Vec<String>), Malformed> {
    // Neither carries an object to look at: one goes, the other opens a connection to one.
    if matches!(&*subject.operation, "DELETE" | "CONNECT") {
        return Ok((None, Vec::new()));
    }
    let written = subject.object.ok_or(Malformed::NoObject)?;
    let object: Value =
        serde_json::from_str(written.get()).map_err(|error| Malformed::Object(error.to_string()))?;
    if let Some(found) = object.get("kind").and_then(Value::as_str)
        && found != kind.name()
    {
        return Err(Malformed::OtherKind { expected: kind.name(), found: found.to_owned() });
    }
    let refused = review(kind, &object).map_err(|error| Malformed::Object(error.to_string()))?;
    let warnings = if refused.is_none() { warnings(kind, &object) } else { Vec::new() };
    Ok((refused, warnings))
}
