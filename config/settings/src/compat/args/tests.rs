//! Arguments row by row; the results were taken from runs of the Go libraries.

use super::{ArgFields, read_args};
use crate::problems::{Findings, Place};
use crate::yaml::Tree;

/// Block size, most blocks, service enabled, endpoint, float: -1 and empty where nothing was read.
type Args = (i64, i64, bool, &'static str, f64);

fn args_of(text: &str) -> (i64, i64, bool, String, f64, Option<String>) {
    let tree = Tree::parse(text).unwrap_or_else(|error| panic!("{text:?}: {error:?}"));
    let nothing = (-1, -1, false, String::new(), -1.0);
    let Some(root) = tree.root() else { return (-1, -1, false, String::new(), -1.0, None) };
    let map = match read_args(root, &["tokenizerservice.endpoint"]) {
        Ok(map) => map,
        Err(error) => return (nothing.0, nothing.1, nothing.2, nothing.3, nothing.4, Some(error)),
    };
    let mut fields = ArgFields::of(&map, &Place::default());
    let block = fields.integer("blockSizeToHash").unwrap_or(-1);
    let most = fields.integer("maxBlocksToMatch").unwrap_or(-1);
    let float = fields.float("f").unwrap_or(-1.0);
    let (mut enabled, mut endpoint) = (false, String::new());
    if let Some(mut service) = fields.map("tokenizerService") {
        enabled = service.boolean("enabled").unwrap_or(false);
        endpoint = service.text("endpoint").unwrap_or_default();
        fields.adopt(service);
    }
    let errors = fields.finish(&mut Findings::default());
    let error = errors.into_iter().map(|(_, error)| error).reduce(|all, next| format!("{all}; {next}"));
    (block, most, enabled, endpoint, float, error)
}

const NOTHING: Args = (-1, -1, false, "", -1.0);

fn block(size: i64) -> Args {
    (size, -1, false, "", -1.0)
}

fn float(value: f64) -> Args {
    (-1, -1, false, "", value)
}

fn service(enabled: bool, endpoint: &'static str) -> Args {
    (-1, -1, enabled, endpoint, -1.0)
}

fn check_args(rows: &[(&str, Args)], failing: bool) {
    for (text, (block, most, enabled, endpoint, float)) in rows {
        let read = args_of(text);
        let values = (read.0, read.1, read.2, read.3.as_str(), read.4);
        assert_eq!(values, (*block, *most, *enabled, *endpoint, *float), "{text}");
        assert_eq!(read.5.is_some(), failing, "{text}: {:?}", read.5);
    }
}

#[test]
fn arguments_that_are_accepted() {
    check_args(
        &[
            ("blockSizeToHash: 32", block(32)),
            ("BLOCKSIZETOHASH: 32", block(32)),
            ("bloc\u{212a}SizeToHash: 7", block(7)),
            ("BlockSizeToHash: 9\nblockSizeToHash: 8", block(8)),
            ("blockSizeToHash: 8\nBlockSizeToHash: 9", block(8)),
            ("blockSizeToHash: 1\nblockSizeToHash: 2", block(2)),
            ("unknown: 1\nunknown: 2", NOTHING),
            ("blockSizeToHash: 32.0", block(32)),
            ("blockSizeToHash: 1.", block(1)),
            ("blockSizeToHash: 0x10", block(16)),
            ("blockSizeToHash: 010", block(8)),
            ("blockSizeToHash: 08", block(8)),
            ("blockSizeToHash: 0o10", block(8)),
            ("blockSizeToHash: 0b11", block(3)),
            ("blockSizeToHash: 1_000", block(1000)),
            ("blockSizeToHash: 1e3", block(1000)),
            ("blockSizeToHash: -5", block(-5)),
            ("blockSizeToHash: -0", block(0)),
            ("blockSizeToHash: ~", NOTHING),
            ("blockSizeToHash:", NOTHING),
            ("blockSizeToHash: !!int \"5\"", block(5)),
            ("blockSizeToHash: !!float 5", block(5)),
            ("{1: a, blockSizeToHash: 7}", block(7)),
            ("true: 5\nblockSizeToHash: 7", block(7)),
            ("x: &a {blockSizeToHash: 5}\n<<: *a", block(5)),
            ("blockSizeToHash: 3\n<<: {blockSizeToHash: 5}", block(5)),
            ("<<: {blockSizeToHash: 5}\nBlockSizeToHash: 4", block(5)),
            ("blockSizeToHash: &x 5\nmaxBlocksToMatch: *x", (5, 5, false, "", -1.0)),
            ("~", NOTHING),
            ("", NOTHING),
            ("tokenizerService: {endpoint: 5, enabled: yes}", service(true, "5")),
            ("tokenizerService: {endpoint: 5.50, enabled: on}", service(true, "5.5")),
            ("tokenizerService: {endpoint: true, enabled: off}", service(false, "true")),
            ("tokenizerService: {endpoint: 1e3, enabled: y}", service(true, "1000")),
            ("tokenizerService: {endpoint: 1.0}", service(false, "1")),
            ("tokenizerService: {endpoint: 2001-01-01, enabled: yes}", service(true, "2001-01-01")),
            ("tokenizerService: {endpoint: ~}", NOTHING),
            ("tokenizerService: {enabled: N, endpoint: y}", service(false, "true")),
            ("tokenizerService: {endpoint: 18446744073709551615}", service(false, "18446744073709551615")),
            ("tokenizerService: {endpoint: 100000000000000000000000}", service(false, "1e+23")),
            ("tokenizerService: {endpoint: .inf}\nblockSizeToHash: 7", (7, -1, false, "+Inf", -1.0)),
            ("tokenizerService: {Enabled: true}\nTokenizerService: {endpoint: q}", service(true, "q")),
            ("f: 1", float(1.0)),
            ("f: .5", float(0.5)),
            ("f: 5.", float(5.0)),
            ("f: +0.5", float(0.5)),
            ("f: -.5", float(-0.5)),
            ("f: 1_0.5", float(10.5)),
            ("f: 1e-3", float(0.001)),
            ("f: 12e03", float(12_000.0)),
        ],
        false,
    );
}

#[test]
fn arguments_that_do_not_fit_leave_their_siblings_alone() {
    check_args(
        &[
            ("blockSizeToHash: 32.5", NOTHING),
            ("blockSizeToHash: \"32\"", NOTHING),
            ("blockSizeToHash: true", NOTHING),
            ("blockSizeToHash: 99999999999999999999", NOTHING),
            ("blockSizeToHash: 9223372036854775808", NOTHING),
            ("blockSizeToHash: 1e21", NOTHING),
            ("blockSizeToHash: 1.0e+20", NOTHING),
            ("blockSizeToHash: !!str 5", NOTHING),
            ("blockSizeToHash: x\nmaxBlocksToMatch: 7", (-1, 7, false, "", -1.0)),
            (
                "tokenizerService: {endpoint: 0x10, enabled: \"true\"}\nblockSizeToHash: 7",
                (7, -1, false, "16", -1.0),
            ),
            ("tokenizerService: 5\nblockSizeToHash: 7", block(7)),
            ("tokenizerService: {endpoint: [a]}\nblockSizeToHash: 7", block(7)),
            ("f: \"0.5\"", NOTHING),
            ("f: 1e400", NOTHING),
        ],
        true,
    );
}

#[test]
fn arguments_that_spoil_the_whole_mapping() {
    check_args(
        &[
            ("x: .nan\nblockSizeToHash: 7", NOTHING),
            ("f: .inf\nblockSizeToHash: 7", NOTHING),
            ("f: -.INF", NOTHING),
            ("[a]", NOTHING),
            ("5", NOTHING),
            ("a", NOTHING),
            ("{? [a] : b, blockSizeToHash: 7}", NOTHING),
        ],
        true,
    );
}

#[test]
fn arguments_are_bounded_whatever_aliases_multiply() {
    let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        let alias = format!("*a{}", level - 1);
        text.push_str(&format!("a{level}: &a{level} [{}]\n", [alias.as_str(); 10].join(", ")));
    }
    assert!(args_of(&text).5.is_some_and(|error| error.contains("too large")));
    assert!(args_of("a: &a {b: *a}").5.is_some(), "a mapping that holds itself");
    assert!(args_of("a: &a {<<: *a}").5.is_some(), "a mapping that merges itself");
}
