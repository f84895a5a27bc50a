//! Requests with images, audio or video: what can be told exactly is the text before them.
//!
//! An engine puts placeholders where the media are, as many as the media need; that is not known here. But nothing of it
//! reaches the text before the message that holds the first of them, as long as the template prints the messages in
//! order. Whether it does is seen by rendering twice: once with the media, once with a sentinel in place of that
//! message's content. Where both agree up to the sentinel, that text is what every engine renders.

use kvasir_core::TokenizeError;

use super::chat::ChatCall;
use crate::json::{Json, Object};
use crate::template::ChatTemplates;

/// Why a request with media has no ids, or those of its first part only.
pub const MEDIA: &str = "content that is not text";

/// Stands for a content. Private-use characters: no template looks for them, none changes their case, and they are in
/// nobody's text.
const SENTINEL: &str = "\u{f0000}\u{10fffd}\u{f1eaf}\u{100000}";

/// A kind of content that is not text, by the name that templates know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Medium {
    /// A picture.
    Image,
    /// Sound.
    Audio,
    /// A film.
    Video,
}

impl Medium {
    /// The medium of a content part; none for text, for what is unknown, and for a part without its medium, which the
    /// engine skips.
    pub fn of(part: &Object) -> Option<Self> {
        let (medium, holder) = Self::named(part.get("type").and_then(Json::as_text)?)?;
        super::field(part, holder).map(|_| medium)
    }

    /// The medium of a kind of part, and the field that holds it.
    pub fn named(kind: &str) -> Option<(Self, &'static str)> {
        Some(match kind {
            "image_url" | "input_image" => (Self::Image, "image_url"),
            "image_embeds" => (Self::Image, "image_embeds"),
            "audio_url" => (Self::Audio, "audio_url"),
            "input_audio" => (Self::Audio, "input_audio"),
            "audio_embeds" => (Self::Audio, "audio_embeds"),
            "video_url" => (Self::Video, "video_url"),
            "video_embeds" => (Self::Video, "video_embeds"),
            _ => return None,
        })
    }

    /// Whether a field of a part holds a medium.
    pub fn is_held_by(field: &str) -> bool {
        let known = Self::named(field);
        known.is_some_and(|(_, holder)| holder == field)
    }

    /// The template's word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Image => "image",
            Self::Audio => "audio",
            Self::Video => "video",
        }
    }
}

/// A rendering with media, and how much of it stands whatever they are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BeforeMedia {
    /// The whole; behind `end` it is not what the engine encodes.
    pub rendered: String,
    /// Bytes up to the content of the first message with media.
    pub end: usize,
}

/// Whether a message has media in it.
pub fn is_in(message: &Json) -> bool {
    let parts = message.as_map().and_then(|message| message.get("content")).and_then(Json::as_list);
    parts.is_some_and(|parts| {
        parts.iter().any(|part| part.as_map().is_some_and(|map| Medium::of(map).is_some()))
    })
}

impl ChatCall {
    /// Renders up to the first message with media.
    ///
    /// # Errors
    /// [`TokenizeError::Inexact`] where the text before it may depend on the media, and what rendering may find.
    pub fn render_before_media(&self, templates: &ChatTemplates) -> Result<BeforeMedia, TokenizeError> {
        let unsure = TokenizeError::Inexact(MEDIA);
        let mut stand_in = self.messages.clone();
        let first = stand_in.iter_mut().find(|message| is_in(message)).ok_or(unsure.clone())?;
        let Json::Map(message) = first else { return Err(unsure) };
        // Other roles are rewritten on the way: system texts are merged, results become one text.
        if self.continue_final_message || message.get("role") != Some(&Json::text("user")) {
            return Err(unsure);
        }
        message.insert("content".into(), Json::text(SENTINEL));
        let rendered = self.render_messages(&self.messages, templates)?;
        let marked = self.render_messages(&stand_in, templates)?;
        match marked.split_once(SENTINEL) {
            Some((before, after)) if rendered.starts_with(before) && !after.contains(SENTINEL) => {
                Ok(BeforeMedia { end: before.len(), rendered })
            }
            _ => Err(unsure),
        }
    }
}

#[cfg(test)]
mod tests;
