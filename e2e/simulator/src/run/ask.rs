//! A request of the trace in the words of the router.

use kvasir_core::{InferenceRequest, ModelName, Prompt, RequestId, RequestKind, SessionKey};

use crate::engine::Work;
use crate::replica::Ask;

/// The request as a router reads it: its text is the ids in letters, four to a token, so that equal tokens are equal text.
pub(super) fn ask(work: &Work, session: u64, model: &ModelName) -> Ask {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+-";
    let ids = &work.ids[..work.prompt as usize];
    let mut body = Vec::with_capacity(4 * ids.len() + 2);
    body.push(b'"');
    for id in ids {
        body.extend([18, 12, 6, 0].map(|shift| LETTERS[(id >> shift & 63) as usize]));
    }
    body.push(b'"');
    let length = body.len();
    let request = InferenceRequest {
        id: RequestId::new(work.request.to_string()),
        kind: RequestKind::Completions,
        requested_model: model.as_str().into(),
        model: model.clone(),
        adapter: None,
        stream: true,
        prompt: Prompt::Text(0..length),
        cache_salt: None,
        skips_cache: false,
        max_tokens: None,
        session: Some(SessionKey(session)),
        body: body.into(),
    };
    Ask { request, ids: ids.into() }
}
