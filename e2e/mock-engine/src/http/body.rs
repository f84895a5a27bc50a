//! The body of an answer: whole, or event by event.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::Stream;
use http::{HeaderValue, Response, StatusCode, header};
use hyper::body::{Body, Frame, SizeHint};

/// Events of a stream; each item is one whole server-sent event.
pub(crate) type Events = Pin<Box<dyn Stream<Item = io::Result<Bytes>> + Send>>;

/// A body as hyper takes it.
pub(crate) enum ReplyBody {
    /// All of it; `None` once it was sent.
    Whole(Option<Bytes>),
    /// Piece by piece.
    Events(Events),
}

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match &mut *self {
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Events(events) => {
                events.as_mut().poll_next(context).map(|event| event.map(|event| event.map(Frame::data)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Self::Events(_) => SizeHint::default(),
        }
    }
}

/// A response with the head that the engine's server sends.
pub(crate) fn reply(status: StatusCode, media_type: &'static str, body: ReplyBody) -> Response<ReplyBody> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::SERVER, HeaderValue::from_static("uvicorn"));
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    response
}

/// A JSON answer.
pub(crate) fn json(status: StatusCode, bytes: impl Into<Bytes>) -> Response<ReplyBody> {
    let bytes: Bytes = bytes.into();
    reply(status, "application/json", ReplyBody::Whole(Some(bytes).filter(|bytes| !bytes.is_empty())))
}

/// A stream of server-sent events.
pub(crate) fn event_stream(events: Events) -> Response<ReplyBody> {
    reply(StatusCode::OK, "text/event-stream; charset=utf-8", ReplyBody::Events(events))
}
