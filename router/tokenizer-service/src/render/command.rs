//! The command line of a renderer.

use std::path::Path;

/// Arguments that leave the ids as they are; those that take a value have it named with true.
const HARMLESS: [(&str, bool); 9] = [
    ("--trust-remote-code", false),
    ("--enable-auto-tool-choice", false),
    ("--tool-call-parser", true),
    ("--disable-uvicorn-access-log", false),
    ("--uvicorn-log-level", true),
    ("--disable-fastapi-docs", false),
    ("--dtype", true),
    ("--enforce-eager", false),
    ("--root-path", true),
];

/// How renderers are started.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RenderCommand {
    /// Program and first arguments.
    pub command: Vec<String>,
    /// Last arguments.
    pub extra: Vec<String>,
}

/// What one renderer is for.
#[derive(Clone, Copy, Debug)]
pub struct Rendering<'a> {
    /// Directory or repository.
    pub source: &'a str,
    /// Served name.
    pub model: &'a str,
    /// Where it listens, on 127.0.0.1.
    pub port: u16,
    /// A chat template in place of the model's own.
    pub chat_template: Option<&'a Path>,
}

impl RenderCommand {
    /// Program and arguments, in the order that kthena's service has them.
    pub fn line(&self, of: &Rendering<'_>) -> Vec<String> {
        let mut line = self.command.clone();
        line.push(of.source.to_owned());
        let port = of.port.to_string();
        let fixed = ["--served-model-name", of.model, "--host", "127.0.0.1", "--port", &port];
        line.extend(fixed.map(str::to_owned));
        if let Some(template) = of.chat_template {
            line.extend(["--chat-template".to_owned(), template.display().to_string()]);
        }
        line.extend(self.extra.iter().cloned());
        line
    }

    /// The first of the last arguments that may change the ids: all but a few known ones may.
    pub fn first_that_changes_ids(&self) -> Option<&str> {
        let mut words = self.extra.iter();
        while let Some(word) = words.next() {
            let (name, inline) =
                word.split_once('=').map_or((word.as_str(), false), |(name, _)| (name, true));
            match HARMLESS.iter().find(|(harmless, _)| *harmless == name) {
                None => return Some(word),
                Some((_, true)) if !inline => {
                    words.next();
                }
                Some(_) => {}
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(extra: &str) -> RenderCommand {
        RenderCommand {
            command: ["vllm", "launch", "render"].map(str::to_owned).to_vec(),
            extra: extra.split_whitespace().map(str::to_owned).collect(),
        }
    }

    #[test]
    fn the_line_is_the_one_of_the_contract() {
        let of = Rendering { source: "Qwen/Qwen3-0.6B", model: "qwen3", port: 8200, chat_template: None };
        assert_eq!(
            command("--trust-remote-code").line(&of).join(" "),
            "vllm launch render Qwen/Qwen3-0.6B --served-model-name qwen3 --host 127.0.0.1 --port 8200 \
             --trust-remote-code"
        );
        let of = Rendering { chat_template: Some(Path::new("/t.jinja")), ..of };
        assert!(command("").line(&of).ends_with(&["--chat-template".to_owned(), "/t.jinja".to_owned()]));
    }

    #[test]
    fn arguments_that_may_change_ids_are_found() {
        for harmless in ["", "--trust-remote-code", "--tool-call-parser hermes --enable-auto-tool-choice"] {
            assert_eq!(command(harmless).first_that_changes_ids(), None, "{harmless}");
        }
        assert_eq!(command("--dtype=auto --revision x").first_that_changes_ids(), Some("--revision"));
        assert_eq!(
            command("--dtype auto --chat-template=/t").first_that_changes_ids(),
            Some("--chat-template=/t")
        );
        assert_eq!(command("--tool-call-parser").first_that_changes_ids(), None);
    }
}
