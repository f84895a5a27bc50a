//! `GET /v1/models`: every name a client may use, aliases and adapters included.

use bytes::Bytes;
use kvasir_state::Listing;
use serde_json::{Value, json};

use crate::Gateway;

/// The list.
pub(crate) fn list(gateway: &Gateway) -> Bytes {
    let data: Vec<Value> = gateway.state.models().iter().map(object).collect();
    Bytes::from(json!({"object": "list", "data": data}).to_string())
}

/// One model, `None` when no route names it.
pub(crate) fn one(gateway: &Gateway, id: &str) -> Option<Bytes> {
    let models = gateway.state.models();
    let at = models.binary_search_by(|listing| listing.id.as_str().cmp(id)).ok()?;
    models.get(at).map(|listing| Bytes::from(object(listing).to_string()))
}

/// OpenAI's model object, with vLLM's `root` and `parent`.
fn object(listing: &Listing) -> Value {
    json!({
        "id": listing.id,
        "object": "model",
        "created": 0,
        "owned_by": "kvasir",
        "root": listing.root,
        "parent": listing.parent,
    })
}
