use proptest::prelude::*;

use super::*;

const TYPE: &str = "multipart/form-data; boundary=XX";

fn field(name: &str, value: &str) -> String {
    format!("--XX\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
}

const FILE: &str = "--XX\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a;name=\\\"model\\\".wav\"\r\n\
    Content-Type: audio/wav\r\n\r\nRIFF\r\n--XY\r\n\r\n--XXmodel\0\r\n";

fn found(content_type: &str, body: &str) -> Result<MultipartScan, ScanError> {
    scan_multipart(content_type, &Bytes::copy_from_slice(body.as_bytes()))
}

#[test]
fn the_fields_are_found_around_a_file() {
    for content_type in [
        TYPE,
        "multipart/form-data;BOUNDARY=\"XX\"; charset=utf-8",
        "multipart/form-data; a=b;  boundary = XX",
    ] {
        let body = format!("{FILE}{}{}--XX--\r\n", field("model", "whisper/é"), field("stream", "True"));
        let scan = found(content_type, &body).unwrap();
        assert_eq!(scan.model, "whisper/é");
        assert_eq!(&body[scan.model_span.clone()], "whisper/é");
        assert!(scan.stream);
        let bytes = Bytes::from(body.clone());
        let renamed = rewrite_multipart(&bytes, &scan, "x");
        assert_eq!(renamed, body.replace("whisper/é", "x"));
        assert_eq!(rewrite_multipart(&bytes, &scan, "whisper/é").as_ptr(), bytes.as_ptr());
    }
}

#[test]
fn the_last_of_a_repeated_field_counts_and_all_are_rewritten() {
    let body = format!("{}{FILE}{}--XX--", field("model", "a"), field("model", "longer"));
    let scan = found(TYPE, &body).unwrap();
    assert_eq!(scan.model, "longer");
    let expected = format!("{}{FILE}{}--XX--", field("model", "new"), field("model", "new"));
    assert_eq!(rewrite_multipart(&Bytes::from(body), &scan, "new"), expected);
}

#[test]
fn careless_clients_are_understood() {
    let bare = "preamble\n--XX \nCONTENT-DISPOSITION:form-data;name=model\n\nm\n--XX\n\n\nno headers\n--XX--";
    assert_eq!(found(TYPE, bare).unwrap().model, "m");
    let empty = format!("{}{}--XX--", field("prompt", ""), field("model", "m"));
    assert_eq!(found(TYPE, &empty).unwrap().model, "m");
    let multiline = format!("{}--XX--", field("model", "a\r\n--X"));
    assert_eq!(found(TYPE, &multiline).unwrap().model, "a\r\n--X");
}

#[test]
fn malformed_forms_are_refused_with_a_reason() {
    let broken = |expected| ScanError::BrokenForm { expected };
    let start = broken("the boundary at the start");
    let close = broken("the closing boundary");
    let good = format!("{}--XX--", field("model", "m"));
    let headless = "--XX\r\nContent-Disposition: form-data; name=\"model\"\r\n--XX--";
    let many = format!("{}--XX--", field("x", "1").repeat(MAX_FIELDS + 1));
    let repeats = format!("{}--XX--", field("model", "m").repeat(MAX_REPEATS + 1));
    let upload = "--XX\r\nContent-Disposition: form-data; name=\"model\"; filename=\"m\"\r\n\r\nm\r\n--XX--";
    let cases = [
        ("multipart/form-data", good.as_str(), ScanError::NoBoundary),
        ("multipart/form-data; boundary=", &good, ScanError::NoBoundary),
        ("multipart/form-data; boundary=\"XX", &good, ScanError::NoBoundary),
        (TYPE, "", start.clone()),
        (TYPE, "--XX", start.clone()),
        (TYPE, "{\"model\":\"m\"}", start.clone()),
        ("multipart/form-data; boundary=YY", &good, start),
        (TYPE, "--XX--", ScanError::FieldMissing),
        (TYPE, &good[..good.len() - 6], close.clone()),
        (TYPE, headless, broken("a blank line behind a field's headers")),
        (TYPE, &many, ScanError::TooManyFields { limit: MAX_FIELDS }),
        (TYPE, &repeats, ScanError::Repeated { field: "model" }),
        (TYPE, upload, ScanError::FieldMissing),
        (TYPE, &format!("{}--XX--", field("model", " \t")), ScanError::ModelBlank),
        (TYPE, &format!("{}--XX--", field("model", &"m".repeat(5000))), ScanError::ModelTooLong),
    ];
    for (content_type, body, expected) in cases {
        assert_eq!(found(content_type, body), Err(expected), "{content_type} {:.80}", body);
    }
    let latin =
        [b"--XX\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\n".as_slice(), b"\xe9\r\n--XX--"]
            .concat();
    assert_eq!(scan_multipart(TYPE, &latin.into()), Err(ScanError::ModelNotText));
}

#[test]
fn parameters_are_read_with_their_quotes() {
    let cases = [
        ("form-data; name=\"a\"", Some("a")),
        ("form-data; name=a ; x=y", Some("a")),
        ("form-data; x=\"name=b; name=c\"; name=\"a\"", Some("a")),
        ("form-data; flag; name=\"a\"", Some("a")),
        ("form-data; NAME=\"q\\\"\\\\C:\\dir\"", Some("q\"\\C:\\dir")),
        ("form-data; name=\"open", None),
        ("form-data; filename=\"a\"", None),
        ("form-data", None),
        ("name=a", None),
    ];
    for (value, expected) in cases {
        assert_eq!(parameter(value, "name").as_deref(), expected, "{value}");
    }
}

proptest! {
    #[test]
    fn any_bytes_around_the_field_leave_it_found(
        audio in proptest::collection::vec(prop_oneof![Just(b'-'), Just(b'X'), Just(b'\r'), Just(b'\n'), any::<u8>()], 0..200),
    ) {
        // A file may hold anything but its own delimiter line.
        if memchr::memmem::find(&audio, b"--XX").is_some() {
            return Ok(());
        }
        let mut body = b"--XX\r\nContent-Disposition: form-data; name=\"file\"; filename=\"f\"\r\n\r\n".to_vec();
        body.extend_from_slice(&audio);
        body.extend_from_slice(b"\r\n");
        body.extend_from_slice(field("model", "m").as_bytes());
        body.extend_from_slice(b"--XX--\r\n");
        let scan = scan_multipart(TYPE, &Bytes::from(body)).unwrap();
        prop_assert_eq!(scan.model, "m");
    }

    #[test]
    fn no_bytes_make_it_fail_badly(bytes in proptest::collection::vec(
        proptest::sample::select(b"--XX\r\n:;=\"\\ model".to_vec()), 0..120)) {
        let _ = scan_multipart(TYPE, &Bytes::from(bytes));
    }
}
