//! Undoes the content encoding of a request body, up to a limit.

use std::io::Read;

use bytes::Bytes;
use flate2::read::MultiGzDecoder;
use flate2::{Decompress, FlushDecompress, Status};

/// Most encodings on top of each other. Clients use one; more only multiply the work of a hostile body.
const MAX_LAYERS: usize = 2;

/// Bytes of room for the first piece of output.
const FIRST_ROOM: usize = 64 << 10;

/// Why a body could not be decoded.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DecodeError {
    /// An encoding that we do not know; the name is cut to a bearable length.
    #[error("content encoding {0:?} is not supported; send the body plain, or with gzip or deflate")]
    Unsupported(String),
    /// More bytes than the limit.
    #[error("the decoded body is larger than {limit} bytes")]
    TooLarge {
        /// The limit, bytes.
        limit: usize,
    },
    /// The bytes are not what the header says.
    #[error("the body is not valid {encoding}; send it plain, or encode it again")]
    Malformed {
        /// The encoding.
        encoding: &'static str,
    },
}

/// Decodes `body` as the values of `Content-Encoding` say (comma-separated, the last one undone first).
///
/// `limit` bounds every layer's output, bytes, so that a small body cannot grow without end. Without an encoding
/// the same bytes come back, uncopied; their length is the caller's to judge.
///
/// # Errors
/// An unknown encoding, too many bytes, or bytes that are cut short or damaged.
pub fn decode_body(encodings: &str, body: Bytes, limit: usize) -> Result<Bytes, DecodeError> {
    let mut layers = encodings
        .split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty() && !name.eq_ignore_ascii_case("identity"));
    let count = layers.clone().count();
    if count > MAX_LAYERS {
        return Err(unsupported(encodings));
    }
    // Every name is known before any byte is decoded.
    if let Some(unknown) = layers.clone().find(|name| Coding::named(name).is_none()) {
        return Err(unsupported(unknown));
    }
    let mut body = body;
    while let Some(coding) = layers.next_back().and_then(Coding::named) {
        body = match coding {
            Coding::Gzip => gunzip(&body, limit)?,
            Coding::Deflate => inflate(&body, limit)?,
        };
    }
    Ok(body)
}

#[derive(Clone, Copy)]
enum Coding {
    Gzip,
    Deflate,
}

impl Coding {
    fn named(name: &str) -> Option<Self> {
        if name.eq_ignore_ascii_case("gzip") || name.eq_ignore_ascii_case("x-gzip") {
            Some(Self::Gzip)
        } else if name.eq_ignore_ascii_case("deflate") {
            Some(Self::Deflate)
        } else {
            None
        }
    }
}

fn unsupported(name: &str) -> DecodeError {
    DecodeError::Unsupported(name.chars().take(64).collect())
}

fn gunzip(body: &[u8], limit: usize) -> Result<Bytes, DecodeError> {
    let mut out = Vec::with_capacity(body.len().saturating_mul(3).min(limit).min(FIRST_ROOM));
    let most = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    // Checks the trailer of every member, so that a cut or damaged body does not pass.
    MultiGzDecoder::new(body)
        .take(most)
        .read_to_end(&mut out)
        .map_err(|_| DecodeError::Malformed { encoding: "gzip" })?;
    if out.len() > limit { Err(DecodeError::TooLarge { limit }) } else { Ok(out.into()) }
}

/// `deflate` means a zlib stream (RFC 9110), but some clients send the bare one; the first two bytes tell.
fn inflate(body: &[u8], limit: usize) -> Result<Bytes, DecodeError> {
    const MALFORMED: DecodeError = DecodeError::Malformed { encoding: "deflate" };
    let zlib = match body {
        [first, second, ..] => first & 15 == 8 && u16::from_be_bytes([*first, *second]) % 31 == 0,
        _ => return Err(MALFORMED),
    };
    let mut state = Decompress::new(zlib);
    let mut out = Vec::new();
    loop {
        if out.len() == out.capacity() {
            // One byte more than allowed, to tell a body that fits from one that does not.
            let room = out.capacity().max(FIRST_ROOM).min((limit + 1).saturating_sub(out.len()));
            out.reserve_exact(room);
        }
        let read = usize::try_from(state.total_in()).unwrap_or(usize::MAX);
        let written = out.len();
        let rest = body.get(read..).unwrap_or_default();
        let status = state.decompress_vec(rest, &mut out, FlushDecompress::None).map_err(|_| MALFORMED)?;
        if out.len() > limit {
            return Err(DecodeError::TooLarge { limit });
        }
        let all_read = usize::try_from(state.total_in()).is_ok_and(|read| read == body.len());
        match status {
            Status::StreamEnd if all_read => return Ok(out.into()),
            Status::StreamEnd => return Err(MALFORMED),
            // No progress although there was room: the stream is cut short.
            _ if out.len() == written && state.total_in() == read as u64 => return Err(MALFORMED),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};

    use super::*;

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    fn zlib(text: &[u8]) -> Vec<u8> {
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    fn raw_deflate(text: &[u8]) -> Vec<u8> {
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    /// About 250 kB that do not compress to nothing.
    fn text() -> Vec<u8> {
        (0..40_000_u32)
            .flat_map(|number| format!("{:x},", number.wrapping_mul(2_654_435_761)).into_bytes())
            .collect()
    }

    #[test]
    fn what_was_encoded_comes_back() {
        let text = text();
        let limit = text.len();
        for (names, body) in [
            ("gzip", gzip(&text)),
            (" GZip ", gzip(&text)),
            ("x-gzip", gzip(&text)),
            ("identity, gzip", gzip(&text)),
            ("deflate", zlib(&text)),
            ("deflate", raw_deflate(&text)),
            ("deflate, gzip", gzip(&zlib(&text))),
            ("gzip,deflate", zlib(&gzip(&text))),
        ] {
            assert_eq!(decode_body(names, body.into(), limit).unwrap(), text, "{names}");
        }
        let halves = [gzip(&text[..1000]), gzip(&text[1000..])].concat();
        assert_eq!(decode_body("gzip", halves.into(), limit).unwrap(), text, "members follow each other");
        assert_eq!(decode_body("deflate", zlib(b"").into(), 0).unwrap(), "");
    }

    #[test]
    fn plain_bodies_are_not_copied() {
        for names in ["", "identity", " , Identity,"] {
            let body = Bytes::from_static(b"{}");
            assert_eq!(decode_body(names, body.clone(), 0).unwrap().as_ptr(), body.as_ptr());
        }
    }

    #[test]
    fn bombs_stop_at_the_limit() {
        let zeros = vec![0; 20 << 20];
        let limit = 1 << 20;
        for (names, body) in [
            ("gzip", gzip(&zeros)),
            ("deflate", zlib(&zeros)),
            ("deflate", raw_deflate(&zeros)),
            ("gzip, gzip", gzip(&gzip(&zeros))),
        ] {
            assert!(body.len() < limit);
            assert_eq!(
                decode_body(names, body.into(), limit),
                Err(DecodeError::TooLarge { limit }),
                "{names}"
            );
        }
        let text = text();
        for body in [("gzip", gzip(&text)), ("deflate", zlib(&text))] {
            let limit = text.len() - 1;
            assert_eq!(decode_body(body.0, body.1.into(), limit), Err(DecodeError::TooLarge { limit }));
        }
    }

    #[test]
    fn cut_damaged_and_lengthened_bodies_are_malformed() {
        let text = text();
        for (name, good) in [("gzip", gzip(&text)), ("deflate", zlib(&text)), ("deflate", raw_deflate(&text))]
        {
            for length in [0, 1, 2, 9, good.len() / 2, good.len() - 1] {
                let cut = Bytes::copy_from_slice(&good[..length]);
                let result = decode_body(name, cut, text.len());
                assert_eq!(result, Err(DecodeError::Malformed { encoding: name }), "{name} {length}");
            }
            let longer = [good.as_slice(), b"x"].concat();
            assert!(decode_body(name, longer.into(), text.len()).is_err(), "{name} with a tail");
        }
        assert!(decode_body("gzip", Bytes::from_static(b"{\"model\":\"m\"}"), 100).is_err());
        assert!(decode_body("deflate", Bytes::from_static(b"{\"model\":\"m\"}"), 100).is_err());
    }

    #[test]
    fn unknown_encodings_are_named() {
        let body = Bytes::from_static(b"x");
        assert_eq!(decode_body("gzip, br", body.clone(), 9), Err(DecodeError::Unsupported("br".into())));
        assert_eq!(decode_body("zstd", body.clone(), 9), Err(DecodeError::Unsupported("zstd".into())));
        let long = "z".repeat(1000);
        assert_eq!(decode_body(&long, body.clone(), 9), Err(DecodeError::Unsupported("z".repeat(64))));
        assert!(matches!(decode_body("gzip,gzip,gzip", body, 9), Err(DecodeError::Unsupported(_))));
    }
}
