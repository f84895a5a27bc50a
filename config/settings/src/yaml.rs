//! A YAML document as a tree that keeps what the text said: raw scalars, tags, aliases, lines and columns.
//!
//! The settings need the raw scalars because the two documents they come in follow different rules for them
//! (see [`crate::compat`]); a deserializer that resolves scalars on the way loses the difference.

use std::collections::HashMap;

use serde_saphyr::granit_parser::{Event, Parser, ScalarStyle, Span, Tag as EventTag};

mod scalar;

pub(crate) use scalar::{Booleans, Scalar};

/// Largest document that is read, bytes. A ConfigMap holds at most 1 MiB.
pub(crate) const MOST_BYTES: usize = 4 << 20;

/// Why a text is no YAML.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SyntaxError {
    pub line: usize,
    pub column: usize,
    pub message: String,
}

/// The first document of a text.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    nodes: Vec<Node>,
    /// Whether something follows the first document.
    pub more: bool,
}

#[derive(Debug)]
struct Node {
    line: usize,
    column: usize,
    /// One past the last node below this one; ids count in the order of the text.
    end: usize,
    tag: Tag,
    content: Content,
}

#[derive(Debug)]
enum Content {
    Scalar { text: String, plain: bool },
    List(Vec<usize>),
    Map(Vec<(usize, usize)>),
    Alias(usize),
}

/// An explicit tag, as far as it matters for a scalar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tag {
    None,
    Text,
    Integer,
    Float,
    Boolean,
    Null,
    /// Any other: the scalar is text.
    Other,
}

impl Tag {
    fn of(tag: Option<&EventTag>) -> Self {
        match tag.map(|tag| (tag.core_suffix(), tag)) {
            None => Self::None,
            Some((Some("str"), _)) => Self::Text,
            Some((Some("int"), _)) => Self::Integer,
            Some((Some("float"), _)) => Self::Float,
            Some((Some("bool"), _)) => Self::Boolean,
            Some((Some("null"), _)) => Self::Null,
            Some(_) => Self::Other,
        }
    }
}

impl Tree {
    /// Reads the first document. What follows it is not looked at beyond whether there is something.
    pub(crate) fn parse(text: &str) -> Result<Self, SyntaxError> {
        if text.len() > MOST_BYTES {
            let message = format!("the document is larger than {MOST_BYTES} bytes");
            return Err(SyntaxError { line: 1, column: 1, message });
        }
        let mut builder = Builder::default();
        let mut parser = Parser::new_from_str(text);
        let mut ended = false;
        while !ended {
            match parser.next_event() {
                None => break,
                Some(Err(error)) => {
                    return Err(SyntaxError {
                        line: error.marker().line(),
                        column: error.marker().col() + 1,
                        message: error.info(),
                    });
                }
                Some(Ok((Event::DocumentEnd | Event::StreamEnd, _))) => ended = true,
                Some(Ok((event, span))) => builder.event(event, span)?,
            }
        }
        let more = matches!(parser.next_event(), Some(Err(_) | Ok((Event::DocumentStart(..), _))));
        Ok(Self { nodes: builder.nodes, more })
    }

    /// The document's top node; `None` for an empty text.
    pub(crate) fn root(&self) -> Option<Value<'_>> {
        (!self.nodes.is_empty()).then_some(Value { tree: self, id: 0 })
    }
}

/// Turns events into nodes, without recursion.
#[derive(Default)]
struct Builder {
    nodes: Vec<Node>,
    /// Open collections with the children met so far.
    open: Vec<(usize, Vec<usize>)>,
    anchors: HashMap<usize, usize>,
}

impl Builder {
    fn event(&mut self, event: Event<'_>, span: Span) -> Result<(), SyntaxError> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let plain = style == ScalarStyle::Plain;
                let content = Content::Scalar { text: text.into_owned(), plain };
                let id = self.add(content, Tag::of(tag.as_deref()), anchor, span);
                self.child(id);
            }
            Event::SequenceStart(_, anchor, tag) => {
                let id = self.add(Content::List(Vec::new()), Tag::of(tag.as_deref()), anchor, span);
                self.open.push((id, Vec::new()));
            }
            Event::MappingStart(_, anchor, tag) => {
                let id = self.add(Content::Map(Vec::new()), Tag::of(tag.as_deref()), anchor, span);
                self.open.push((id, Vec::new()));
            }
            Event::SequenceEnd | Event::MappingEnd => self.close(),
            Event::Alias(anchor) => {
                let Some(target) = self.anchors.get(&anchor).copied() else {
                    return Err(SyntaxError {
                        line: span.start.line(),
                        column: span.start.col() + 1,
                        message: "the alias refers to no anchor".to_owned(),
                    });
                };
                let id = self.add(Content::Alias(target), Tag::None, 0, span);
                self.child(id);
            }
            _ => {}
        }
        Ok(())
    }

    fn add(&mut self, content: Content, tag: Tag, anchor: usize, span: Span) -> usize {
        let id = self.nodes.len();
        let (line, column) = (span.start.line(), span.start.col() + 1);
        self.nodes.push(Node { line, column, end: id + 1, tag, content });
        if anchor != 0 {
            self.anchors.insert(anchor, id);
        }
        id
    }

    fn child(&mut self, id: usize) {
        if let Some((_, children)) = self.open.last_mut() {
            children.push(id);
        }
    }

    fn close(&mut self) {
        let Some((id, children)) = self.open.pop() else { return };
        let end = self.nodes.len();
        if let Some(node) = self.nodes.get_mut(id) {
            node.end = end;
            match &mut node.content {
                Content::List(items) => *items = children,
                Content::Map(pairs) => {
                    *pairs = children
                        .chunks_exact(2)
                        .filter_map(|pair| Some((*pair.first()?, *pair.get(1)?)))
                        .collect();
                }
                Content::Scalar { .. } | Content::Alias(_) => {}
            }
        }
        self.child(id);
    }
}

/// One node of a tree.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Value<'t> {
    tree: &'t Tree,
    id: usize,
}

impl<'t> Value<'t> {
    fn node(self) -> Option<&'t Node> {
        self.tree.nodes.get(self.id)
    }

    fn other(self, id: usize) -> Self {
        Self { tree: self.tree, id }
    }

    /// What an alias stands for; anything else stands for itself.
    pub(crate) fn followed(self) -> Self {
        match self.node().map(|node| &node.content) {
            Some(Content::Alias(target)) => self.other(*target),
            _ => self,
        }
    }

    /// Line and column, counted from 1; of the alias itself where there is one.
    pub(crate) fn position(self) -> (usize, usize) {
        self.node().map_or((1, 1), |node| (node.line, node.column))
    }

    /// Keys and values of a mapping, in the order of the text.
    pub(crate) fn entries(self) -> Option<Vec<(Self, Self)>> {
        match &self.followed().node()?.content {
            Content::Map(pairs) => {
                Some(pairs.iter().map(|(key, value)| (self.other(*key), self.other(*value))).collect())
            }
            _ => None,
        }
    }

    /// Items of a list.
    pub(crate) fn items(self) -> Option<Vec<Self>> {
        match &self.followed().node()?.content {
            Content::List(items) => Some(items.iter().map(|id| self.other(*id)).collect()),
            _ => None,
        }
    }

    /// The text of a scalar as it was written, quotes and escapes undone.
    pub(crate) fn text(self) -> Option<&'t str> {
        match &self.followed().node()?.content {
            Content::Scalar { text, .. } => Some(text),
            _ => None,
        }
    }

    /// What a scalar means.
    pub(crate) fn scalar(self, booleans: Booleans) -> Option<Scalar<'t>> {
        let node = self.followed().node()?;
        match &node.content {
            Content::Scalar { text, plain } => Some(scalar::resolve(text, *plain, node.tag, booleans)),
            _ => None,
        }
    }

    /// Whether this is a null scalar.
    pub(crate) fn is_null(self) -> bool {
        self.scalar(Booleans::Two) == Some(Scalar::Null)
    }

    /// Whether this is the plain `<<` that merges another mapping.
    pub(crate) fn is_merge_key(self) -> bool {
        self.node().is_some_and(|node| {
            node.tag == Tag::None
                && matches!(&node.content, Content::Scalar { text, plain: true } if text == "<<")
        })
    }

    /// Whether an alias at or below this node refers to something outside it.
    pub(crate) fn refers_outside(self) -> bool {
        let Some(node) = self.node() else { return false };
        let own = self.id..node.end;
        self.tree
            .nodes
            .get(own.clone())
            .unwrap_or_default()
            .iter()
            .any(|below| matches!(&below.content, Content::Alias(target) if !own.contains(target)))
    }

    /// What kind of node this is, for messages.
    pub(crate) fn kind(self) -> &'static str {
        match self.followed().node().map(|node| &node.content) {
            Some(Content::List(_)) => "a list",
            Some(Content::Map(_)) => "a mapping",
            Some(Content::Scalar { .. }) => match self.scalar(Booleans::Two) {
                Some(Scalar::Null) => "null",
                Some(Scalar::Boolean(_)) => "a boolean",
                Some(Scalar::Integer(_) | Scalar::Float(_)) => "a number",
                _ => "a text",
            },
            Some(Content::Alias(_)) | None => "nothing",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_document_is_read_and_the_rest_is_noticed() {
        for (text, more) in [
            ("a: 1", false),
            ("a: 1\n---\nb: {", true),
            ("a: 1\n... \ngarbage: [", true),
            ("---\n...\n---\nscheduler: 5", true),
            ("\u{feff}a: 1\n", false),
            ("%YAML 1.1\n---\na: 1\n", false),
            ("", false),
            ("# nothing\n", false),
        ] {
            let tree = Tree::parse(text).unwrap_or_else(|error| panic!("{text:?}: {error:?}"));
            assert_eq!(tree.more, more, "{text:?}");
        }
    }

    #[test]
    fn broken_text_is_refused_with_its_line() {
        for (text, line) in [("scheduler:\n\tplugins: {}", 2), ("a: b: c", 1), ("x: *nope", 1), ("a: [", 2)] {
            let error = Tree::parse(text).err().unwrap_or_else(|| panic!("{text:?} should be refused"));
            assert!(error.line <= line, "{text:?}: {error:?}");
            assert!(!error.message.is_empty());
        }
        assert!(Tree::parse(&" ".repeat(MOST_BYTES + 1)).is_err());
    }

    #[test]
    fn positions_and_raw_scalars_are_kept() {
        let tree = Tree::parse("a: 010\nb:\n  - 'q'\n  - &x {c: yes}\n  - *x\n").unwrap_or_default();
        let entries = tree.root().and_then(Value::entries).unwrap_or_default();
        assert_eq!(entries[0].1.text(), Some("010"));
        assert_eq!(entries[0].1.position(), (1, 4));
        let items = entries[1].1.items().unwrap_or_default();
        assert_eq!(items[0].scalar(Booleans::Two), Some(Scalar::Text("q")));
        assert_eq!(items[2].position(), (5, 5));
        assert_eq!(items[2].entries().map(|entries| entries.len()), Some(1));
        assert!(items[2].refers_outside());
        assert!(!entries[1].1.refers_outside());
    }

    #[test]
    fn deep_nesting_is_refused_and_self_reference_ends() {
        assert!(Tree::parse(&"[".repeat(100_000)).is_err());
        let tree = Tree::parse("&a [*a]").unwrap_or_default();
        let root = tree.root();
        assert!(root.and_then(Value::items).is_some_and(|items| items[0].items().is_some()));
    }
}
