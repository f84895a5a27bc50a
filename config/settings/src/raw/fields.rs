//! Reads mappings, lists and texts out of a YAML tree, noting every problem on the way.

use std::collections::HashMap;

use crate::problems::{Findings, Located, Place};
use crate::suggest;
use crate::yaml::Value;

/// What a key that nobody asked for is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnknownKeys {
    /// Said in the log: kthena ignores such keys, so its documents may carry them.
    Warn,
    /// Refused: our own format.
    Refuse,
}

/// The keys of one mapping.
#[derive(Debug)]
pub(crate) struct Fields<'t> {
    place: Place,
    fields: Vec<Field<'t>>,
    asked: Vec<&'static str>,
}

#[derive(Debug)]
struct Field<'t> {
    name: String,
    place: Place,
    value: Value<'t>,
    taken: bool,
}

impl<'t> Fields<'t> {
    /// The keys of `value`. A null is a mapping without keys; anything else that is no mapping is a problem. A key
    /// said twice is a problem. Merged mappings (`<<`) give way to keys that are written out.
    pub(crate) fn of(value: Value<'t>, place: &Place, findings: &mut Findings) -> Option<Self> {
        let mut fields = Self { place: place_of(value, place), fields: Vec::new(), asked: Vec::new() };
        if value.is_null() {
            return Some(fields);
        }
        let Some(entries) = value.entries() else {
            findings.error(&fields.place, format!("is {}, not a mapping", value.kind()), "write KEY: VALUE");
            return None;
        };
        let mut merged = Vec::new();
        let mut lines: HashMap<&str, usize> = HashMap::new();
        for (key, value) in entries {
            let key_place = place_of(key, place);
            let Some(name) = key.text() else {
                findings.error(&key_place, format!("a key is {}", key.kind()), "write a plain word");
                continue;
            };
            if let Some(first) = lines.insert(name, key.position().0) {
                let message = format!("the key {name:?} is already defined at line {first}");
                findings.error(&key_place.key(name), message, "remove one of the two");
                continue;
            }
            if key.is_merge_key() {
                merged.push(value);
            } else {
                fields.add(name, &key_place, value);
            }
        }
        for value in merged {
            fields.merge(value, findings);
        }
        Some(fields)
    }

    fn add(&mut self, name: &str, key_place: &Place, value: Value<'t>) {
        let place = key_place.key(name);
        self.fields.push(Field { name: name.to_owned(), place, value, taken: false });
    }

    /// Adds the keys of a merged mapping, or of a list of them, that are not there yet. Merges inside a merged
    /// mapping are not followed: no document has them, and it keeps the work bounded.
    fn merge(&mut self, value: Value<'t>, findings: &mut Findings) {
        let sources = value.items().unwrap_or_else(|| vec![value]);
        for source in sources {
            let place = place_of(source, &self.place);
            let Some(entries) = source.entries() else {
                findings.error(
                    &place.key("<<"),
                    format!("merges {}", source.kind()),
                    "merge a mapping, or a list of mappings",
                );
                continue;
            };
            for (key, value) in entries {
                match key.text() {
                    Some(name) if !key.is_merge_key() && !self.fields.iter().any(|f| f.name == name) => {
                        self.add(name, &place_of(key, &self.place), value);
                    }
                    _ => {}
                }
            }
        }
    }

    /// The value of a key, with its place; `None` when it is absent or null.
    pub(crate) fn take(&mut self, name: &'static str) -> Option<(Value<'t>, Place)> {
        self.asked.push(name);
        let field = self.fields.iter_mut().find(|field| field.name == name)?;
        field.taken = true;
        let place = place_of(field.value, &field.place);
        (!field.value.is_null()).then_some((field.value, place))
    }

    /// Like [`Fields::take`], for a key that must be there; says so when it is not.
    pub(crate) fn require(
        &mut self,
        name: &'static str,
        fix: &str,
        findings: &mut Findings,
    ) -> Option<(Value<'t>, Place)> {
        let found = self.take(name);
        if found.is_none() {
            findings.error(&self.place, format!("lacks the key {name:?}"), fix);
        }
        found
    }

    /// Where the mapping is.
    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    /// Reports the keys that were not asked for.
    pub(crate) fn finish(self, unknown: UnknownKeys, findings: &mut Findings) {
        for field in self.fields.iter().filter(|field| !field.taken) {
            let meant = suggest::closest(&field.name, self.asked.iter().copied());
            let known = || format!("known keys: {}", self.asked.join(", "));
            match (unknown, meant) {
                (UnknownKeys::Warn, Some(meant)) => findings.warn(
                    &field.place,
                    format!("the key is unknown and has no effect; did you mean {meant:?}?"),
                ),
                (UnknownKeys::Warn, None) => {
                    findings.warn(&field.place, format!("the key is unknown and has no effect; {}", known()));
                }
                (UnknownKeys::Refuse, Some(meant)) => {
                    findings.error(&field.place, "the key is unknown", format!("did you mean {meant:?}?"));
                }
                (UnknownKeys::Refuse, None) => findings.error(&field.place, "the key is unknown", known()),
            }
        }
    }
}

fn place_of(value: Value<'_>, place: &Place) -> Place {
    let (line, column) = value.position();
    place.at(line, column)
}

/// The items of a list, with their places; a null is an empty list.
pub(crate) fn list_of<'t>(
    value: Value<'t>,
    place: &Place,
    findings: &mut Findings,
) -> Vec<(Value<'t>, Place)> {
    if value.is_null() {
        return Vec::new();
    }
    let Some(items) = value.items() else {
        let fix = "write a list, one item a line after \"- \"";
        findings.error(place, format!("is {}, not a list", value.kind()), fix);
        return Vec::new();
    };
    items.into_iter().enumerate().map(|(index, item)| (item, place_of(item, &place.item(index)))).collect()
}

/// A text, or the text of a number or boolean as it was written. A null is the empty text, as go-yaml has it.
pub(crate) fn text_of(value: Value<'_>, place: &Place, findings: &mut Findings) -> Option<Located<String>> {
    if value.is_null() {
        return Some(Located::new(String::new(), place.clone()));
    }
    match value.text() {
        Some(text) => Some(Located::new(text.to_owned(), place.clone())),
        None => {
            findings.error(place, format!("is {}, not a text", value.kind()), "write a text");
            None
        }
    }
}
