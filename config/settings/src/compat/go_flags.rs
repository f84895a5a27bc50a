//! Long flags with one dash, as Go's flag package takes them.

use std::ffi::OsString;

/// Gives flags of the router that were written with one dash (`-port=8080`) their second one. What is no known long
/// name, a single letter among them, stays as it is, and so does everything after `--`.
pub fn go_flags(arguments: Vec<OsString>) -> Vec<OsString> {
    let command = crate::flags::command();
    let is_long = |name: &str| {
        name.len() > 1
            && (name == "help" || command.get_arguments().any(|known| known.get_long() == Some(name)))
    };
    let mut ended = false;
    arguments
        .into_iter()
        .map(|argument| {
            ended |= argument == "--";
            let name = argument.to_str().and_then(|text| text.strip_prefix('-'));
            let name = name.map(|text| text.split_once('=').map_or(text, |(name, _)| name));
            match name {
                Some(name) if !ended && is_long(name) => {
                    let mut long = OsString::from("-");
                    long.push(&argument);
                    long
                }
                _ => argument,
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> String {
        let words = go_flags(line.split(' ').map(OsString::from).collect());
        words.iter().map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn known_long_names_get_their_second_dash() {
        for (typed, expected) in [
            ("-port=8080 -enable-webhook -v=2", "--port=8080 --enable-webhook -v=2"),
            ("-port 8080 --metrics-port=9090", "--port 8080 --metrics-port=9090"),
            ("-vmodule=a=2 -log_dir /a -v4 -v 4", "--vmodule=a=2 --log_dir /a -v4 -v 4"),
            ("-help -h -V - -nope=1", "--help -h -V - -nope=1"),
            ("kthena-router router -kube-api-qps=5", "kthena-router router --kube-api-qps=5"),
            ("-port=1 -- -port=2", "--port=1 -- -port=2"),
        ] {
            assert_eq!(read(typed), expected);
        }
    }
}
