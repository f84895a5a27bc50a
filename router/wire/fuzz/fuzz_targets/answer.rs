//! Any answer: the tap never fails, and the cuts between chunks make no difference.
#![no_main]

use kvasir_core::RequestKind;
use kvasir_wire::BodyTap;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let [size, body @ ..] = data else { return };
    let mut whole = BodyTap::new(RequestKind::Responses);
    whole.push(body);
    let mut split = BodyTap::new(RequestKind::Responses);
    body.chunks(usize::from(*size).max(1)).for_each(|chunk| split.push(chunk));
    assert_eq!(whole.finish(), split.finish());
    assert_eq!(whole.response_id(), split.response_id());
});
