//! What a list of messages is like, seen in one pass that keeps nothing.

use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::media::Medium;

/// What decides whether others see the messages as we do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ChatShape {
    /// Images, audio or video are in some message.
    pub media: bool,
    /// Some message's content is more than one text.
    pub several_texts: bool,
    /// The last message is the assistant's.
    pub assistant_last: bool,
}

impl ChatShape {
    /// Of the JSON of a list of messages; none where it is not what an engine takes.
    pub fn of(messages: &str) -> Option<Self> {
        let mut shape = Self::default();
        let mut reader = serde_json::Deserializer::from_str(messages);
        Messages(&mut shape).deserialize(&mut reader).ok()?;
        Some(shape)
    }
}

struct Messages<'a>(&'a mut ChatShape);

struct Message<'a>(&'a mut ChatShape);

struct Content<'a>(&'a mut ChatShape);

struct Part;

/// What a part of a content is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PartKind {
    Text,
    Medium,
    Other,
}

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "lowercase")]
enum MessageField {
    Role,
    Content,
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "lowercase")]
enum MessageRole {
    Assistant,
    #[serde(other)]
    Other,
}

/// A word that is looked at and not kept.
struct Word<T>(fn(&str) -> T);

impl<'de, T> DeserializeSeed<'de> for Word<T> {
    type Value = T;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<T, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<T> Visitor<'_> for Word<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text")
    }

    fn visit_str<E: Error>(self, word: &str) -> Result<T, E> {
        Ok(self.0(word))
    }
}

impl<'de> DeserializeSeed<'de> for Messages<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Messages<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("messages")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while list.next_element_seed(Message(self.0))?.is_some() {}
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Message<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Message<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a message")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        self.0.assistant_last = false;
        while let Some(field) = fields.next_key()? {
            match field {
                MessageField::Role => {
                    let role = fields.next_value()?;
                    self.0.assistant_last = matches!(role, MessageRole::Assistant);
                }
                MessageField::Content => fields.next_value_seed(Content(self.0))?,
                MessageField::Other => drop(fields.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Content<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Content<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text or its parts")
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<(), A::Error> {
        let mut texts = 0_usize;
        while let Some(kind) = parts.next_element_seed(Part)? {
            texts += usize::from(kind == PartKind::Text);
            self.0.media |= kind == PartKind::Medium;
        }
        self.0.several_texts |= texts > 1;
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Part {
    type Value = PartKind;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<PartKind, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Part {
    type Value = PartKind;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a part")
    }

    fn visit_str<E>(self, _: &str) -> Result<PartKind, E> {
        Ok(PartKind::Text)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<PartKind, A::Error> {
        let (mut kind, mut holds_medium) = (None, false);
        let is_type = |field: &str| (field == "type", Medium::is_held_by(field));
        while let Some((is_type, holds)) = fields.next_key_seed(Word(is_type))? {
            holds_medium |= holds;
            if is_type {
                kind = Some(fields.next_value_seed(Word(kind_of))?);
            } else {
                fields.next_value::<IgnoredAny>()?;
            }
        }
        // An engine guesses a missing type from what is there.
        Ok(kind.unwrap_or(if holds_medium { PartKind::Medium } else { PartKind::Other }))
    }
}

fn kind_of(name: &str) -> PartKind {
    match (name, Medium::named(name)) {
        ("text" | "input_text" | "output_text" | "refusal" | "thinking", _) => PartKind::Text,
        (_, Some(_)) => PartKind::Medium,
        (_, None) => PartKind::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn media_are_seen_however_they_are_written() {
        for (part, media) in [
            (r#"{"type":"text","text":"image_url"}"#, false),
            (r#"{"type":"image_url","image_url":{"url":"data:,"}}"#, true),
            (r#"{"image_url":"x","type":"image\u005furl"}"#, true),
            (r#"{"image\u005furl":"x"}"#, true),
            (r#"{"type":"text","type":"input_audio"}"#, true),
            (r#"{"type":"video_embeds","x":[{"y":1}]}"#, true),
            (r#"{"type":"file","file":{}}"#, false),
            (r#""image_url""#, false),
        ] {
            let text = format!(r#"[{{"role":"user","content":"x"}},{{"content":[{part}],"role":"user"}}]"#);
            let shape = ChatShape { media, ..ChatShape::default() };
            assert_eq!(ChatShape::of(&text), Some(shape), "{part}");
        }
    }

    #[test]
    fn the_last_role_and_several_texts_are_seen() {
        let of = |text| ChatShape::of(text).map(|shape| (shape.assistant_last, shape.several_texts));
        assert_eq!(of(r#"[{"role":"assistant","content":null}]"#), Some((true, false)));
        assert_eq!(of(r#"[{"role":"assistant"},{"role":"tool","content":["a","b"]}]"#), Some((false, true)));
        assert_eq!(of(r#"[{"role":"assistant"},{}]"#), Some((false, false)));
        for odd in ["{}", "[1]", r#"[{"role":1}]"#, r#"[{"content":1}]"#, r#"[{"content":[1]}]"#] {
            assert_eq!(of(odd), None, "{odd}");
        }
    }
}
