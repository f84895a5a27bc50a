//! The ids of a request, or of the part of it that can be told exactly.

use bytes::Bytes;
use kvasir_core::{InferenceRequest, RequestKind, TokenizeError};

use super::{ChatRules, LocalTokenizer};
use crate::request::{MEDIA, PromptInput};

/// The ids of a prompt.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EncodedPrompt {
    /// Ids, from the first on.
    pub ids: Vec<u32>,
    /// False when more follows that is not known here: images, for example.
    pub whole: bool,
}

impl LocalTokenizer {
    /// The ids of a request's prompt; where it holds images, audio or video, those of the text before them.
    ///
    /// # Errors
    /// Why there are none; never with text of the prompt.
    pub fn encode_prompt(&self, request: &InferenceRequest) -> Result<EncodedPrompt, TokenizeError> {
        match self.encode_request(request) {
            Ok(ids) => Ok(EncodedPrompt { ids, whole: true }),
            Err(TokenizeError::Inexact(MEDIA)) => {
                let ids = self.encode_before_media(request.kind, &request.body)?;
                Ok(EncodedPrompt { ids, whole: false })
            }
            Err(error) => Err(error),
        }
    }

    /// Ids of the text before the first message with media. It is cut behind the last token of that text at which
    /// cutting is exact: what comes after may merge with what the engine puts in place of the media.
    fn encode_before_media(&self, kind: RequestKind, body: &Bytes) -> Result<Vec<u32>, TokenizeError> {
        let unsure = TokenizeError::Inexact(MEDIA);
        if !self.texts.is_none() {
            return Err(unsure);
        }
        let (PromptInput::Chat(call), ChatRules::Templates(templates), Some(boundaries)) =
            (PromptInput::read(kind, body)?, &self.chat, &self.boundaries)
        else {
            return Err(unsure);
        };
        let mut ids = match (call.add_special_tokens(), &self.affixes) {
            (false, _) => Vec::new(),
            (true, Some(affixes)) => affixes.before.clone(),
            (true, None) => return Err(unsure),
        };
        let text = call.render_before_media(templates)?;
        let mut end = 0;
        for piece in boundaries.pieces(&text.rendered) {
            if end + piece.len() >= text.end {
                break;
            }
            end += piece.len();
        }
        let before = text.rendered.get(..end).filter(|before| !before.is_empty()).ok_or(unsure)?;
        self.encode_pieces(before, &mut ids)?;
        Ok(ids)
    }
}

#[cfg(test)]
mod tests;
