//! The path of one request, front to back: read, bind, admit, place, dispatch, relay, settle.

use std::sync::Arc;

use kvasir_core::{ErrorKind, RouterError};
use pingora_core::protocols::http::ServerSession;

use crate::head::{Entry, Errand, classify};
use crate::resolve::Binding;
use crate::service::Door;
use crate::settle::Trail;
use crate::{Gateway, admit, answers, dispatch, forward, place, read, relay, reply, resolve};

/// What becomes of the client's connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ending {
    /// The answer is whole; the connection may be used again.
    Whole,
    /// The answer was cut; the connection must be closed without ending it.
    Cut,
}

/// Serves one request whose head has been read, and that came in by `door`.
pub(crate) async fn serve(gateway: &Arc<Gateway>, session: &mut ServerSession, door: Door) -> Ending {
    let errand = match classify(session.req_header(), door) {
        Entry::StoredResponse(id) => Errand::Stored(id),
        Entry::Inference(kind) => Errand::Call(kind),
        Entry::Unknown | Entry::WrongMethod if forward::may_be_known(gateway) => Errand::Forward,
        other => {
            let answered = answers::send(gateway, session, other).await;
            return if answered.is_ok() { Ending::Whole } else { Ending::Cut };
        }
    };
    let mut trail = Trail::open(gateway, session.req_header(), errand.kind());
    let ended = walk(gateway, session, door.port, &errand, &mut trail).await;
    let Err(error) = ended else { return Ending::Whole };
    trail.failed(&error);
    let begun = session.response_written().is_some_and(|header| !header.status.is_informational());
    if begun || error.kind == ErrorKind::ClientGone {
        return Ending::Cut;
    }
    match reply::send_error(session, &error, trail.request_id().as_str()).await {
        Ok(()) => {
            read::let_the_client_finish(session).await;
            Ending::Whole
        }
        Err(_) => Ending::Cut,
    }
}

/// Walks a request through the house; the trail settles it, however it ended.
async fn walk(
    gateway: &Gateway,
    session: &mut ServerSession,
    port: u16,
    errand: &Errand,
    trail: &mut Trail<'_>,
) -> Result<(), RouterError> {
    let binding = match errand {
        Errand::Call(kind) => {
            let call = read::call(gateway, session, *kind, trail.request_id()).await?;
            resolve::bind(gateway, session, port, call, trail)?
        }
        Errand::Stored(id) => {
            let received = read::body(gateway, session).await?;
            resolve::bind_stored(gateway, session, id, received, trail)?
        }
        Errand::Forward => forward::bind(gateway, session, port, trail).await?,
    };
    let mut bound = match binding {
        Binding::Onward(bound) => bound,
        Binding::Elsewhere(redirect) => return reply::redirect(session, &redirect, trail).await,
    };
    let answer = watched(session, async {
        bound.received.cover_copy(gateway, &bound.body).await?;
        admit::admit(gateway, errand, &bound, trail).await?;
        dispatch::dispatch(gateway, &bound, &place::place(gateway, &bound, trail).await?, trail).await
    })
    .await??;
    let (hide_usage, kind) = (bound.hide_usage, bound.request.kind);
    let deleted = errand.stored().filter(|_| bound.outbound.method == http::Method::DELETE);
    // Nothing is retried from here on: the body's bytes make room for others while the answer streams.
    drop(bound);
    let succeeded = answer.header.status.is_success();
    relay::relay(gateway, session, answer, hide_usage, kind, trail).await?;
    if let Some(id) = deleted.filter(|_| succeeded) {
        gateway.responses.forget(id);
    }
    Ok(())
}

/// Runs `work` while watching the client: when it leaves, `work` is dropped and with it the upstream connection, so
/// that the engine stops at once, even in a silent prefill.
async fn watched<T>(session: &mut ServerSession, work: impl Future<Output = T>) -> Result<T, RouterError> {
    tokio::select! {
        biased;
        done = work => Ok(done),
        _ = session.read_body_or_idle(true) => Err(ErrorKind::ClientGone.into()),
    }
}
