//! Any header: the rules on names and types never fail, and hop-by-hop never passes.
#![no_main]

use http::HeaderName;
use http::header::HeaderValue;
use kvasir_wire::headers;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(text) = std::str::from_utf8(data) {
        let kinds =
            [headers::is_event_stream(text), headers::is_json(text), headers::is_multipart_form(text)];
        assert!(kinds.iter().filter(|kind| **kind).count() <= 1);
    }
    let value = HeaderValue::from_bytes(data);
    let connection = headers::ConnectionNames::read(&value);
    if let Ok(name) = HeaderName::from_bytes(data) {
        let passes = headers::passes_to_engine(&name, &connection, true);
        assert!(!(passes && (headers::is_hop_by_hop(&name) || connection.contains(&name))));
    }
});
