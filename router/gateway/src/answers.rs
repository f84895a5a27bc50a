//! Answers that need no engine: health, readiness, models, refusals.

use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;
use kvasir_core::ErrorKind;
use pingora_core::protocols::http::ServerSession;

use crate::head::Entry;
use crate::{Gateway, models, page, reply};

/// Sends the answer to anything but inference.
pub(crate) async fn send(
    gateway: &Arc<Gateway>,
    session: &mut ServerSession,
    entry: Entry,
) -> pingora_core::Result<()> {
    let refused = match entry {
        Entry::Health => {
            let text = Bytes::from_static(br#"{"message":"ok"}"#);
            return reply::send_json(session, StatusCode::OK, text, "").await;
        }
        Entry::Ready => {
            let (status, message) = match gateway.readiness.is_ready() {
                true => (StatusCode::OK, "router is ready"),
                false => (StatusCode::SERVICE_UNAVAILABLE, "router is not ready"),
            };
            let text = gateway.coordination.readiness(message, &gateway.readiness.pending());
            return reply::send_json(session, status, text.into(), "").await;
        }
        Entry::Metrics => {
            let text = page::render_aside(gateway).await.into();
            return reply::send(session, StatusCode::OK, page::MEDIA, text, "").await;
        }
        Entry::Models => return reply::send_json(session, StatusCode::OK, models::list(gateway), "").await,
        Entry::Model(id) => match models::one(gateway, &id) {
            Some(text) => return reply::send_json(session, StatusCode::OK, text, "").await,
            None => ErrorKind::ModelNotFound(id),
        },
        Entry::WrongMethod => ErrorKind::MethodNotAllowed,
        Entry::Upgrade => ErrorKind::UpgradeRequired,
        Entry::Unknown | Entry::StoredResponse(_) | Entry::Inference(_) => ErrorKind::NoSuchPath,
    };
    reply::send_error(session, &refused.into(), "").await
}
