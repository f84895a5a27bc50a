//! The requests an engine got, kept for tests.

use std::collections::VecDeque;

use bytes::Bytes;
use http::{HeaderMap, Method, Version};
use parking_lot::Mutex;

/// Bytes of bodies kept at most.
const KEPT_BYTES: usize = 32 << 20;

/// One request as it arrived.
#[derive(Clone, Debug)]
pub struct RecordedRequest {
    /// Method.
    pub method: Method,
    /// Path and query.
    pub path: String,
    /// HTTP version.
    pub version: Version,
    /// Headers.
    pub headers: HeaderMap,
    /// Body.
    pub body: Bytes,
}

/// The latest requests, oldest first.
#[derive(Debug)]
pub(crate) struct Recorder {
    most: usize,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    requests: VecDeque<RecordedRequest>,
    bytes: usize,
}

impl Recorder {
    /// Keeps `most` requests; 0 keeps none.
    pub(crate) fn new(most: usize) -> Self {
        Self { most, kept: Mutex::default() }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.most > 0
    }

    pub(crate) fn record(&self, request: RecordedRequest) {
        let mut kept = self.kept.lock();
        kept.bytes += request.body.len();
        kept.requests.push_back(request);
        while kept.requests.len() > self.most || kept.bytes > KEPT_BYTES {
            let Some(oldest) = kept.requests.pop_front() else { return };
            kept.bytes -= oldest.body.len();
        }
    }

    pub(crate) fn requests(&self) -> Vec<RecordedRequest> {
        self.kept.lock().requests.iter().cloned().collect()
    }

    pub(crate) fn clear(&self) {
        *self.kept.lock() = Kept::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(path: &str, bytes: usize) -> RecordedRequest {
        RecordedRequest {
            method: Method::POST,
            path: path.to_owned(),
            version: Version::HTTP_11,
            headers: HeaderMap::new(),
            body: Bytes::from(vec![0; bytes]),
        }
    }

    #[test]
    fn the_oldest_leave_first_by_number_and_by_size() {
        let recorder = Recorder::new(2);
        for path in ["/a", "/b", "/c"] {
            recorder.record(request(path, 1));
        }
        let paths: Vec<String> = recorder.requests().into_iter().map(|request| request.path).collect();
        assert_eq!(paths, ["/b", "/c"]);
        recorder.record(request("/large", KEPT_BYTES));
        assert_eq!(recorder.requests().len(), 1);
    }
}
