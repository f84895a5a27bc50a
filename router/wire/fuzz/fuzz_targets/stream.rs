//! Any stream: bytes pass untouched without hiding, and with it the cuts between chunks make no difference.
#![no_main]

use bytes::Bytes;
use kvasir_core::RequestKind;
use kvasir_wire::{Pieces, StreamTap};
use libfuzzer_sys::fuzz_target;

fn run(kind: RequestKind, hide: bool, stream: &[u8], size: usize) -> (Vec<u8>, StreamTap) {
    let mut tap = StreamTap::new(kind, hide);
    let mut out = Pieces::new();
    for chunk in stream.chunks(size) {
        tap.push(Bytes::copy_from_slice(chunk), &mut out);
    }
    tap.finish(&mut out);
    (out.concat(), tap)
}

fuzz_target!(|data: &[u8]| {
    let [choice, size, stream @ ..] = data else { return };
    let kinds = [RequestKind::Chat, RequestKind::Completions, RequestKind::Responses, RequestKind::Messages];
    let kind = kinds[usize::from(*choice) % kinds.len()];
    let size = usize::from(*size).max(1);
    let (plain, first) = run(kind, false, stream, size);
    assert_eq!(plain, stream);
    let (whole, second) = run(kind, true, stream, stream.len().max(1));
    let (split, third) = run(kind, true, stream, size);
    assert_eq!(whole, split);
    assert!(whole.len() <= stream.len());
    assert_eq!(first.usage(), second.usage());
    assert_eq!(first.usage(), third.usage());
    assert_eq!(first.response_id(), third.response_id());
});
