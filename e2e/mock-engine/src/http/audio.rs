//! `/v1/audio/transcriptions`: a multipart form in, a short text out.

use std::sync::Arc;

use bytes::Bytes;
use http::{Response, StatusCode, header};
use serde_json::json;

use super::Desk;
use super::body::{ReplyBody, json as json_response};
use super::call::resolve_model;
use super::failure::Failure;

/// Bytes of one second of sound: 16-bit samples at 16 kHz.
const BYTES_PER_SECOND: usize = 32_000;

/// Serves one request.
pub(crate) async fn answer(
    desk: &Arc<Desk>,
    head: &http::request::Parts,
    body: Bytes,
) -> Result<Response<ReplyBody>, Failure> {
    let boundary = head
        .headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .and_then(boundary)
        .ok_or_else(|| Failure::bad_request("a multipart form is required"))?;
    let form = parts(&body, &boundary);
    let field = |name: &str| form.iter().find(|part| part.name == name);
    let model = field("model").map(|part| String::from_utf8_lossy(part.content).into_owned());
    resolve_model(desk, model.as_deref())?;
    let sound = field("file").ok_or_else(|| Failure::bad_request("file is required"))?;
    let seconds = sound.content.len().div_ceil(BYTES_PER_SECOND);
    let answer = json!({
        "text": format!("{} bytes of sound", sound.content.len()),
        "usage": {"type": "duration", "seconds": seconds},
    });
    Ok(json_response(StatusCode::OK, answer.to_string()))
}

/// One part of a form.
#[derive(Debug)]
struct Part<'a> {
    name: &'a str,
    content: &'a [u8],
}

fn boundary(content_type: &str) -> Option<String> {
    let (kind, rest) = content_type.split_once(';')?;
    if !kind.trim().eq_ignore_ascii_case("multipart/form-data") {
        return None;
    }
    let value = rest.split(';').find_map(|parameter| parameter.trim().strip_prefix("boundary="))?;
    Some(value.trim_matches('"').to_owned()).filter(|value| !value.is_empty())
}

/// The parts that have a name; what is not a part is passed over.
fn parts<'a>(body: &'a [u8], boundary: &str) -> Vec<Part<'a>> {
    let delimiter = format!("--{boundary}");
    let mut parts = Vec::new();
    let mut rest = body;
    while let Some(start) = find(rest, delimiter.as_bytes()) {
        let after = &rest[start + delimiter.len()..];
        let Some(end) = find(after, delimiter.as_bytes()) else { break };
        let part = &after[..end];
        if let Some(split) = find(part, b"\r\n\r\n") {
            let content = part.get(split + 4..).unwrap_or_default();
            let content = content.strip_suffix(b"\r\n").unwrap_or(content);
            if let Some(name) =
                part.get(..split).and_then(|head| std::str::from_utf8(head).ok()).and_then(name_of)
            {
                parts.push(Part { name, content });
            }
        }
        rest = &after[end..];
    }
    parts
}

fn name_of(head: &str) -> Option<&str> {
    let (_, rest) = head.split_once("; name=\"").or_else(|| head.split_once(";name=\""))?;
    rest.split_once('"').map(|(name, _)| name)
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_found_whatever_is_in_the_sound() {
        let body = b"--b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nm\r\n\
            --b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\n\
            Content-Type: audio/wav\r\n\r\n\x00\r\n\xff--\r\n--b--\r\n";
        let form = parts(body, "b");
        assert_eq!(form.iter().map(|part| part.name).collect::<Vec<_>>(), ["model", "file"]);
        assert_eq!(form[0].content, b"m");
        assert_eq!(form[1].content, b"\x00\r\n\xff--");
        assert!(parts(b"--b\r\nname", "b").is_empty());
        assert_eq!(boundary("multipart/form-data; boundary=\"x y\"").as_deref(), Some("x y"));
        assert_eq!(boundary("application/json"), None);
    }
}
