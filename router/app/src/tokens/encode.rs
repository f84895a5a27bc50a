//! `kvasir tokens encode`: ids in bulk, for comparisons with an engine.

use std::io::{BufRead, BufReader, Write};
use std::process::ExitCode;

use anyhow::Context as _;
use bytes::Bytes;
use kvasir_core::RequestKind;
use kvasir_tokenize::{EncoderChoice, LocalTokenizer};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{EncodeArgs, Encoders, kind_of, load};

/// One line of the input. The body's bytes stay as they are: numbers have more forms than one.
#[derive(Deserialize)]
struct Line<'a> {
    path: &'a str,
    #[serde(borrow)]
    body: &'a RawValue,
}

/// One line of the output.
#[derive(Serialize)]
struct Answer {
    #[serde(skip_serializing_if = "Option::is_none")]
    fast: Option<Ids>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reference: Option<Ids>,
}

#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum Ids {
    Ids(Vec<u32>),
    Error(String),
}

/// Reads requests, prints ids.
pub fn run(args: &EncodeArgs) -> anyhow::Result<ExitCode> {
    let wanted = |choice| match choice {
        EncoderChoice::Auto => args.encoder != Encoders::Reference,
        EncoderChoice::Reference => args.encoder != Encoders::Fast,
    };
    let load = |choice| wanted(choice).then(|| load(&args.directory, choice)).transpose();
    let (fast, reference) = (load(EncoderChoice::Auto)?, load(EncoderChoice::Reference)?);
    if let Some(reason) = fast.as_ref().and_then(LocalTokenizer::fallback_reason) {
        writeln!(std::io::stderr(), "the fast encoder is not used: {reason}")?;
    }
    let input: Box<dyn BufRead> = match args.requests.as_str() {
        "-" => Box::new(std::io::stdin().lock()),
        path => {
            Box::new(BufReader::new(std::fs::File::open(path).with_context(|| format!("--requests {path}"))?))
        }
    };
    let mut output = std::io::BufWriter::new(std::io::stdout().lock());
    answer(input, &mut output, fast.as_ref(), reference.as_ref())?;
    output.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn answer(
    input: impl BufRead,
    output: &mut impl Write,
    fast: Option<&LocalTokenizer>,
    reference: Option<&LocalTokenizer>,
) -> anyhow::Result<()> {
    for (number, line) in input.lines().enumerate() {
        let line = line?;
        let line: Line<'_> =
            serde_json::from_str(&line).with_context(|| format!("line {} of --requests", number + 1))?;
        let kind = kind_of(line.path).with_context(|| format!("{}: an unknown path", line.path))?;
        let body = Bytes::copy_from_slice(line.body.get().as_bytes());
        let answer = Answer {
            fast: fast.map(|tokenizer| ids(tokenizer, kind, &body)),
            reference: reference.map(|tokenizer| ids(tokenizer, kind, &body)),
        };
        serde_json::to_writer(&mut *output, &answer)?;
        output.write_all(b"\n")?;
    }
    Ok(())
}

/// A second time the memory of segments answers; it must say the same.
fn ids(tokenizer: &LocalTokenizer, kind: RequestKind, body: &Bytes) -> Ids {
    let cold = tokenizer.encode_body(kind, body);
    let warm = tokenizer.encode_body(kind, body);
    match (cold, warm) {
        (Ok(cold), Ok(warm)) if cold == warm => Ids::Ids(cold),
        (Ok(_), _) => Ids::Error("a second time other ids came".to_owned()),
        (Err(error), _) => Ids::Error(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn answers(lines: &str) -> anyhow::Result<String> {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../demo/tokenizer");
        let tokenizer = LocalTokenizer::load(&directory, None)?;
        let mut output = Vec::new();
        answer(lines.as_bytes(), &mut output, Some(&tokenizer), None)?;
        Ok(String::from_utf8(output)?)
    }

    #[test]
    fn every_request_has_its_line() {
        let lines = "{\"path\":\"/v1/completions\",\"body\":{\"prompt\":[5,6]}}\n\
                     {\"path\":\"/v1/chat/completions\",\"body\":{\"messages\":[]}}\n";
        let expected =
            "{\"fast\":{\"ids\":[5,6]}}\n{\"fast\":{\"error\":\"the request is invalid: no messages\"}}\n";
        assert_eq!(answers(lines).unwrap(), expected);
    }

    #[test]
    fn a_line_that_is_no_request_is_named() {
        assert!(answers("{}").unwrap_err().to_string().contains("line 1"));
        let unknown = answers("{\"path\":\"/v1/audio\",\"body\":{}}").unwrap_err();
        assert_eq!(unknown.to_string(), "/v1/audio: an unknown path");
    }
}
