//! Faults to order.

use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

/// How an engine misbehaves.
///
/// Faults of the answer apply to inference requests (POST below `/v1`); `hang` applies to every path, the faults of
/// the connection to every connection.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(tag = "fault", rename_all = "snake_case")]
pub enum Fault {
    /// None: it behaves.
    #[default]
    None,
    /// Connections are refused and open ones are closed; the port stays reserved.
    RefuseConnections,
    /// Answers this.
    Status {
        /// Status code.
        code: u16,
        /// Body, sent as JSON.
        #[serde(default)]
        body: String,
    },
    /// Accepts, reads, never answers.
    Hang,
    /// Reads the request, then resets the connection (RST).
    ResetBeforeFirstByte,
    /// Resets the connection (RST) after so many stream events, or inside the body of an answer that is not
    /// streamed.
    ResetMidStream {
        /// Events before it, the first one with the role included.
        after_events: usize,
    },
    /// Ends the stream after so many events without `[DONE]` and without the end of the chunked body (FIN).
    CutMidStream {
        /// Events before it.
        after_events: usize,
    },
    /// Sends no more after so many events and keeps the connection open, as vLLM does on SIGTERM.
    StallMidStream {
        /// Events before it.
        after_events: usize,
    },
    /// After so many events sends an error event and then `[DONE]`, as vLLM does when its core dies.
    ErrorMidStream {
        /// Events before it.
        after_events: usize,
    },
    /// Waits before the head of the answer.
    SlowFirstByte {
        /// Milliseconds.
        ms: u64,
    },
    /// Answers something that is not HTTP and closes. Open connections are closed when this is set.
    Garbage,
    /// A `content-length` larger than the body, then the end of the connection.
    ShortBody,
    /// Subscribers do not get the next batches of KV events; the sequence numbers go on.
    DropEvents {
        /// How many batches.
        batches: u64,
        /// Whether replay still has them.
        #[serde(default)]
        replayable: bool,
    },
    /// Subscribers get each of the next batches of KV events twice.
    DuplicateEvents {
        /// How many batches.
        batches: u64,
    },
    /// Subscribers get the next batches of KV events in pairs, the later one first. Replay has them in order.
    ReorderEvents {
        /// How many pairs.
        pairs: u64,
    },
    /// vLLM while it shuts down gracefully: new requests get 500, `/health` stays 200, running streams finish.
    Draining,
    /// vLLM with a dead core: new requests get 500, `/health` 503.
    Dead,
    /// Answers 429 or 503 with `Retry-After`.
    BusyWithRetryAfter {
        /// 429 or 503.
        code: u16,
        /// Seconds.
        seconds: u32,
    },
    /// Does its work, waits, and then answers this status with an error.
    StatusAfterWork {
        /// Status code.
        code: u16,
        /// Milliseconds between the work and the answer.
        #[serde(default)]
        ms: u64,
    },
    /// Does its work and answers 200 with something that is no JSON. Streams are left as they are.
    AnswerNoJson,
    /// Does its work and answers without `kv_transfer_params`.
    NoTransferParams,
}

impl Fault {
    /// Whether open connections do not survive the order.
    pub(crate) fn closes_connections(&self) -> bool {
        matches!(self, Self::RefuseConnections | Self::Garbage)
    }
}

/// A fault with its limits, as `POST /mock/fault` takes it: `{"fault":"status","code":503,"times":2}`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct FaultOrder {
    /// What to do.
    #[serde(flatten)]
    pub fault: Fault,
    /// Requests it applies to; then it is over. Without it, all.
    #[serde(default)]
    pub times: Option<u32>,
    /// Milliseconds after which it is over. The only way to end `refuse_connections` from outside.
    #[serde(default)]
    pub for_ms: Option<u64>,
}

impl From<Fault> for FaultOrder {
    fn from(fault: Fault) -> Self {
        Self { fault, times: None, for_ms: None }
    }
}

impl From<(Fault, u32)> for FaultOrder {
    /// A fault for so many requests.
    fn from((fault, times): (Fault, u32)) -> Self {
        Self { fault, times: Some(times), for_ms: None }
    }
}

impl FaultOrder {
    /// How long it lasts.
    pub(crate) fn lifetime(&self) -> Option<Duration> {
        self.for_ms.map(Duration::from_millis)
    }
}

/// The order that is in force.
#[derive(Debug, Default)]
pub(crate) struct FaultBoard {
    order: Mutex<FaultOrder>,
}

impl FaultBoard {
    pub(crate) fn set(&self, order: FaultOrder) {
        *self.order.lock() = order;
    }

    /// The fault without using it up.
    pub(crate) fn current(&self) -> Fault {
        self.order.lock().fault.clone()
    }

    /// The fault for one more inference request.
    pub(crate) fn next(&self) -> Fault {
        let mut order = self.order.lock();
        match &mut order.times {
            Some(0) => *order = FaultOrder::default(),
            Some(times) => *times -= 1,
            None => {}
        }
        order.fault.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_over_after_its_number_of_requests() {
        let board = FaultBoard::default();
        board.set(FaultOrder { fault: Fault::Draining, times: Some(2), for_ms: None });
        assert_eq!(
            [board.next(), board.next(), board.next()],
            [Fault::Draining, Fault::Draining, Fault::None]
        );
        board.set(Fault::Hang.into());
        assert_eq!([board.next(), board.next()], [Fault::Hang, Fault::Hang]);
    }

    #[test]
    fn orders_are_written_as_flat_json() {
        let order: FaultOrder =
            serde_json::from_str(r#"{"fault":"reset_mid_stream","after_events":3,"times":1}"#)
                .expect("an order");
        assert_eq!(order.fault, Fault::ResetMidStream { after_events: 3 });
        assert_eq!(order.times, Some(1));
        assert!(serde_json::from_str::<FaultOrder>(r#"{"fault":"nonsense"}"#).is_err());
    }
}
