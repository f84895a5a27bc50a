//! The ids that SentencePiece itself gives, by its own way of merging.
//!
//! A `tokenizer.json` cannot say the same: there the pair decides what is merged first, and of equal pairs the left
//! one; here the score of what comes out decides, and of equal scores the left one. Mistral's models give all runs of
//! spaces one score.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashMap};
use std::fmt;

use super::{Model, Piece, PieceKind, SPACE};

/// No neighbour.
const NONE: u32 = u32::MAX;

/// Most bytes of a text that is encoded; places are numbers of 32 bits.
const LONGEST_TEXT: usize = 1 << 30;

/// Encodes by one model.
pub struct SentencePiece {
    /// What merging can make: id and score by text.
    made: HashMap<Box<str>, (u32, f32)>,
    /// Symbols that are found before merging, longest first, by their first byte.
    symbols: HashMap<u8, Vec<(Box<str>, u32)>>,
    /// Ids of single bytes, where letters without a piece become theirs.
    bytes: Option<Box<[u32]>>,
    pieces: Vec<Piece>,
    unknown: u32,
    dummy_prefix: bool,
    /// Whether no piece goes from one word into the next, so that words can be merged one by one.
    words_apart: bool,
}

/// A letter, or what letters were merged to.
#[derive(Clone, Copy)]
struct Part {
    start: u32,
    end: u32,
    before: u32,
    after: u32,
}

impl Part {
    /// Whether its left neighbour has taken it in.
    fn is_gone(self) -> bool {
        self.start == self.end
    }
}

/// Two neighbours that make a piece.
struct Pair {
    score: f32,
    left: u32,
    right: u32,
    /// Bytes of the piece: a pair whose parts have grown since is no more.
    size: u32,
}

/// What encoding writes to, and room that is used again for each word.
#[derive(Default)]
struct Work {
    ids: Vec<u32>,
    parts: Vec<Part>,
    pairs: BinaryHeap<Pair>,
    /// Whether the last id is the unknown one: a run of unknown letters is one.
    after_unknown: bool,
}

impl SentencePiece {
    /// The encoder of a model.
    ///
    /// # Errors
    /// What of the model is not followed here.
    pub fn new(model: Model) -> Result<Self, &'static str> {
        if let Some(reason) = model.unfollowed {
            return Err(reason);
        }
        let mut made = HashMap::new();
        let mut symbols: HashMap<u8, Vec<(Box<str>, u32)>> = HashMap::new();
        let mut bytes = vec![model.unknown; 256].into_boxed_slice();
        let mut words_apart = true;
        for (piece, id) in model.pieces.iter().zip(0_u32..) {
            match piece.kind {
                PieceKind::Normal => {
                    words_apart &= !piece.text.trim_start_matches(SPACE).contains(SPACE);
                    made.insert(piece.text.as_str().into(), (id, piece.score));
                }
                PieceKind::Symbol => {
                    made.insert(piece.text.as_str().into(), (id, piece.score));
                    words_apart &= !piece.text.trim_start_matches(SPACE).contains(SPACE);
                    let first = piece.text.bytes().next().unwrap_or_default();
                    symbols.entry(first).or_default().push((piece.text.as_str().into(), id));
                }
                PieceKind::Byte(byte) => {
                    if let Some(slot) = bytes.get_mut(usize::from(byte)) {
                        *slot = id;
                    }
                }
                PieceKind::Unknown | PieceKind::Control | PieceKind::Unused => {}
            }
        }
        for list in symbols.values_mut() {
            list.sort_by_key(|(text, _)| std::cmp::Reverse(text.len()));
        }
        Ok(Self {
            made,
            symbols,
            bytes: model.byte_fallback.then_some(bytes),
            unknown: model.unknown,
            dummy_prefix: model.dummy_prefix,
            words_apart,
            pieces: model.pieces,
        })
    }

    /// Number of ids.
    pub fn vocab_size(&self) -> usize {
        self.pieces.len()
    }

    /// The ids of a text. Names of control tokens in it are text.
    ///
    /// # Errors
    /// The text is too long.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, &'static str> {
        if text.len() > LONGEST_TEXT {
            return Err("the text is too long");
        }
        let mut work = Work { ids: Vec::with_capacity(text.len() / 3 + 8), ..Work::default() };
        if text.is_empty() {
            return Ok(work.ids);
        }
        let mut marked = String::with_capacity(text.len() + text.len() / 3 + SPACE.len_utf8());
        marked.extend(self.dummy_prefix.then_some(SPACE));
        marked.extend(text.chars().map(|letter| if letter == ' ' { SPACE } else { letter }));
        let mut rest = marked.as_str();
        while let Some((at, symbol, id)) = self.next_symbol(rest) {
            self.words(rest.get(..at).unwrap_or_default(), &mut work);
            work.push(id);
            rest = rest.get(at + symbol..).unwrap_or_default();
        }
        self.words(rest, &mut work);
        Ok(work.ids)
    }

    /// The first symbol in a text: where, how long, and its id.
    fn next_symbol(&self, text: &str) -> Option<(usize, usize, u32)> {
        if self.symbols.is_empty() {
            return None;
        }
        text.bytes().enumerate().find_map(|(at, first)| {
            let rest = text.get(at..)?;
            let (symbol, id) =
                self.symbols.get(&first)?.iter().find(|(symbol, _)| rest.starts_with(&**symbol))?;
            Some((at, symbol.len(), *id))
        })
    }

    fn words(&self, text: &str, work: &mut Work) {
        if !self.words_apart {
            return self.merge(text, work);
        }
        let mut start = 0;
        let mut in_word = false;
        for (at, letter) in text.char_indices() {
            if in_word && letter == SPACE {
                self.merge(text.get(start..at).unwrap_or_default(), work);
                start = at;
            }
            in_word = letter != SPACE;
        }
        self.merge(text.get(start..).unwrap_or_default(), work);
    }

    /// Merges the letters of a text as long as two neighbours make a piece: the highest score first, and of equal
    /// scores the leftmost.
    fn merge(&self, text: &str, work: &mut Work) {
        work.parts.clear();
        work.pairs.clear();
        let mut at = 0_u32;
        for (letter, number) in text.chars().zip(0_u32..) {
            let end = at + u32::try_from(letter.len_utf8()).unwrap_or_default();
            work.parts.push(Part { start: at, end, before: number.wrapping_sub(1), after: number + 1 });
            at = end;
        }
        if let Some(last) = work.parts.last_mut() {
            last.after = NONE;
        }
        for right in 1..u32::try_from(work.parts.len()).unwrap_or_default() {
            self.propose(text, right - 1, right, work);
        }
        while let Some(pair) = work.pairs.pop() {
            let (Some(left), Some(right)) = (work.part(pair.left), work.part(pair.right)) else { continue };
            if left.is_gone() || right.is_gone() || right.end - left.start != pair.size {
                continue;
            }
            let merged = Part { end: right.end, after: right.after, ..left };
            work.set(pair.left, merged);
            work.set(pair.right, Part { start: right.end, ..right });
            if let Some(next) = work.part(right.after) {
                work.set(right.after, Part { before: pair.left, ..next });
            }
            self.propose(text, merged.before, pair.left, work);
            self.propose(text, pair.left, merged.after, work);
        }
        let mut number = 0;
        while let Some(part) = work.part(number) {
            self.write(between(text, part.start, part.end), work);
            number = part.after;
        }
    }

    fn propose(&self, text: &str, left: u32, right: u32, work: &mut Work) {
        let (Some(first), Some(second)) = (work.part(left), work.part(right)) else { return };
        if let Some((_, score)) = self.made.get(between(text, first.start, second.end)) {
            work.pairs.push(Pair { score: *score, left, right, size: second.end - first.start });
        }
    }

    fn write(&self, piece: &str, work: &mut Work) {
        match (self.made.get(piece), &self.bytes) {
            (Some((id, _)), _) => work.push(*id),
            (None, Some(bytes)) => {
                for byte in piece.bytes() {
                    work.push(bytes.get(usize::from(byte)).copied().unwrap_or(self.unknown));
                }
            }
            (None, None) if work.after_unknown => {}
            (None, None) => {
                work.push(self.unknown);
                work.after_unknown = true;
            }
        }
    }

    /// The piece of an id.
    pub fn token(&self, id: u32) -> Option<&str> {
        self.pieces.get(usize::try_from(id).ok()?).map(|piece| piece.text.as_str())
    }

    /// The text of ids. Control tokens have none.
    pub fn decode(&self, ids: &[u32]) -> String {
        let mut out: Vec<u8> = Vec::new();
        for id in ids {
            let Some(piece) = usize::try_from(*id).ok().and_then(|id| self.pieces.get(id)) else { continue };
            match piece.kind {
                PieceKind::Byte(byte) => out.push(byte),
                PieceKind::Control => {}
                PieceKind::Unknown => out.extend_from_slice(" \u{2047} ".as_bytes()),
                PieceKind::Normal | PieceKind::Symbol | PieceKind::Unused => {
                    out.extend_from_slice(piece.text.replace(SPACE, " ").as_bytes());
                }
            }
        }
        let text = String::from_utf8_lossy(&out);
        match text.strip_prefix(' ') {
            Some(rest) if self.dummy_prefix => rest.to_owned(),
            _ => text.into_owned(),
        }
    }
}

impl fmt::Debug for SentencePiece {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SentencePiece")
            .field("pieces", &self.pieces.len())
            .field("words_apart", &self.words_apart)
            .finish_non_exhaustive()
    }
}

fn between(text: &str, start: u32, end: u32) -> &str {
    let place = |place: u32| usize::try_from(place).unwrap_or(usize::MAX);
    text.get(place(start)..place(end)).unwrap_or_default()
}

impl Work {
    fn part(&self, number: u32) -> Option<Part> {
        self.parts.get(usize::try_from(number).ok()?).copied()
    }

    fn set(&mut self, number: u32, part: Part) {
        if let Some(slot) = usize::try_from(number).ok().and_then(|number| self.parts.get_mut(number)) {
            *slot = part;
        }
    }

    fn push(&mut self, id: u32) {
        self.ids.push(id);
        self.after_unknown = false;
    }
}

impl Ord for Pair {
    fn cmp(&self, other: &Self) -> Ordering {
        self.score.total_cmp(&other.score).then_with(|| other.left.cmp(&self.left))
    }
}

impl PartialOrd for Pair {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Pair {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Pair {}
