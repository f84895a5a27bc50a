//! SentencePiece's `tokenizer.model`: its pieces and the few settings that decide ids, read within bounds.

mod encoder;
mod llama;
mod wire;

use std::collections::HashSet;

use wire::{Fields, Value};

pub use encoder::SentencePiece;
pub use llama::{prepend, tokenizer_json};

/// What stands for a space in pieces.
const SPACE: char = '\u{2581}';

/// Most pieces of a model; the largest vocabularies have a quarter of that.
const MOST_PIECES: usize = 1 << 20;

/// Most bytes of a piece; training makes pieces of 16 letters unless it is told otherwise.
const LONGEST_PIECE: usize = 1 << 12;

/// The number of byte pairs merging in the file.
const PAIR_MERGING: u64 = 2;

/// One entry of the vocabulary; its place is its id.
#[derive(Clone, PartialEq, Debug)]
pub struct Piece {
    /// The text, with [`SPACE`] for spaces.
    pub text: String,
    /// Pieces of a higher score are merged first.
    pub score: f32,
    /// What it is for.
    pub kind: PieceKind,
}

/// What a piece is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PieceKind {
    /// Made by merging.
    Normal,
    /// Stands for what has no piece.
    Unknown,
    /// A control token: never made of text.
    Control,
    /// Found in a text before everything else, and never merged.
    Symbol,
    /// One byte of a letter that has no piece.
    Byte(u8),
    /// Made by merging and taken apart again.
    Unused,
}

/// A model as far as ids depend on it.
#[derive(Clone, PartialEq, Debug)]
pub struct Model {
    /// The vocabulary in the order of ids.
    pub pieces: Vec<Piece>,
    /// Whether letters without a piece become their bytes.
    pub byte_fallback: bool,
    /// Whether a text begins with a space that it does not have.
    pub dummy_prefix: bool,
    /// Id of the piece for what has none.
    pub unknown: u32,
    /// Id of the token that begins a text, where there is one.
    pub begin: Option<u32>,
    /// Id of the token that ends a text, where there is one.
    pub end: Option<u32>,
    /// What of the model is not followed here.
    unfollowed: Option<&'static str>,
}

/// The settings as they stand in the file; what is missing has the value that its schema says.
struct Settings<'a> {
    kind: u64,
    byte_fallback: bool,
    space_at_end: bool,
    begin: &'a [u8],
    end: &'a [u8],
    letter_map: bool,
    dummy_prefix: bool,
    one_space: bool,
    escape_space: bool,
}

impl Model {
    /// Reads a file. Damage is an error; so is everything that its own library would refuse.
    ///
    /// # Errors
    /// What is wrong.
    pub fn parse(file: &[u8]) -> Result<Self, String> {
        let mut pieces = Vec::new();
        let mut settings = Settings::default();
        for field in Fields::of(file) {
            match field? {
                (1, value) => {
                    if pieces.len() == MOST_PIECES {
                        return Err(format!("more than {MOST_PIECES} pieces"));
                    }
                    pieces
                        .push(piece(value.bytes()?).map_err(|why| format!("piece {}: {why}", pieces.len()))?);
                }
                (2, value) => settings.read_trainer(value.bytes()?)?,
                (3, value) => settings.read_normalizer(value.bytes()?)?,
                _ => {}
            }
        }
        let unknown = check(&pieces, settings.byte_fallback)?;
        let control = |name: &[u8]| {
            pieces
                .iter()
                .zip(0..)
                .find(|(piece, _)| piece.kind == PieceKind::Control && piece.text.as_bytes() == name)
                .map(|(_, id)| id)
        };
        Ok(Self {
            unknown,
            begin: control(settings.begin),
            end: control(settings.end),
            byte_fallback: settings.byte_fallback,
            dummy_prefix: settings.dummy_prefix,
            unfollowed: settings.unfollowed(&pieces),
            pieces,
        })
    }
}

impl Default for Settings<'_> {
    fn default() -> Self {
        Self {
            kind: 1,
            byte_fallback: false,
            space_at_end: false,
            begin: b"<s>",
            end: b"</s>",
            letter_map: false,
            dummy_prefix: true,
            one_space: true,
            escape_space: true,
        }
    }
}

impl<'a> Settings<'a> {
    fn read_trainer(&mut self, message: &'a [u8]) -> Result<(), &'static str> {
        for field in Fields::of(message) {
            match field? {
                (3, value) => self.kind = value.number()?,
                (24, value) => self.space_at_end = value.number()? != 0,
                (35, value) => self.byte_fallback = value.number()? != 0,
                (46, value) => self.begin = value.bytes()?,
                (47, value) => self.end = value.bytes()?,
                _ => {}
            }
        }
        Ok(())
    }

    fn read_normalizer(&mut self, message: &'a [u8]) -> Result<(), &'static str> {
        for field in Fields::of(message) {
            match field? {
                (2, value) => self.letter_map = !value.bytes()?.is_empty(),
                (3, value) => self.dummy_prefix = value.number()? != 0,
                (4, value) => self.one_space = value.number()? != 0,
                (5, value) => self.escape_space = value.number()? != 0,
                _ => {}
            }
        }
        Ok(())
    }

    fn unfollowed(&self, pieces: &[Piece]) -> Option<&'static str> {
        let has = |kind| pieces.iter().any(|piece| piece.kind == kind);
        let spaced = |piece: &Piece| piece.kind == PieceKind::Symbol && piece.text.contains(' ');
        if self.kind != PAIR_MERGING {
            Some("a model that does not merge pairs (unigram, words or letters)")
        } else if self.letter_map {
            Some("a normaliser that replaces letters")
        } else if self.one_space {
            Some("a normaliser that takes spaces away")
        } else if !self.escape_space || self.space_at_end {
            Some("spaces that are not marked before words")
        } else if has(PieceKind::Unused) {
            Some("pieces that are marked as unused")
        } else if pieces.iter().any(spaced) {
            Some("a symbol with a space in it")
        } else {
            None
        }
    }
}

/// Reads one entry of the vocabulary.
fn piece(message: &[u8]) -> Result<Piece, &'static str> {
    let (mut text, mut score, mut kind) = (&[][..], 0.0, 1);
    for field in Fields::of(message) {
        match field? {
            (1, value) => text = value.bytes()?,
            (2, Value::Float(value)) => score = value,
            (2, _) => return Err("a score that is no number"),
            (3, value) => kind = value.number()?,
            _ => {}
        }
    }
    if text.is_empty() || text.len() > LONGEST_PIECE {
        return Err("its text is empty or too long");
    }
    if !score.is_finite() {
        return Err("its score is not finite");
    }
    let text = std::str::from_utf8(text).map_err(|_| "its text is not UTF-8")?;
    let kind = match kind {
        1 => PieceKind::Normal,
        2 => PieceKind::Unknown,
        3 => PieceKind::Control,
        4 => PieceKind::Symbol,
        5 => PieceKind::Unused,
        6 => PieceKind::Byte(byte_of(text).ok_or("its text names no byte")?),
        _ => return Err("it is of an unknown kind"),
    };
    // Adding zero makes minus zero plus zero, which is the same score.
    Ok(Piece { text: text.to_owned(), score: score + 0.0, kind })
}

/// The byte of a piece like `<0x0A>`.
fn byte_of(text: &str) -> Option<u8> {
    let digits = text.strip_prefix("<0x")?.strip_suffix('>')?;
    (digits.len() == 2).then(|| u8::from_str_radix(digits, 16).ok())?
}

/// What the format's own library checks while loading; returns the id of the unknown piece.
fn check(pieces: &[Piece], byte_fallback: bool) -> Result<u32, String> {
    let mut seen = HashSet::with_capacity(pieces.len());
    let mut bytes = HashSet::new();
    let mut unknown = None;
    for (piece, id) in pieces.iter().zip(0_u32..) {
        if !seen.insert(piece.text.as_str()) {
            return Err(format!("piece {id} is there twice"));
        }
        match piece.kind {
            PieceKind::Unknown if unknown.replace(id).is_some() => {
                return Err(format!("piece {id} is a second unknown piece"));
            }
            PieceKind::Byte(byte) => {
                bytes.insert(byte);
            }
            _ => {}
        }
    }
    if bytes.len() != if byte_fallback { 256 } else { 0 } {
        return Err(format!("{} pieces for bytes", bytes.len()));
    }
    unknown.ok_or_else(|| "no unknown piece".to_owned())
}

#[cfg(test)]
pub mod tests;
