//! tiktoken's rank files: byte strings in base64, each with its rank. What they lack, how a text is cut and which
//! tokens are special, is code of the model; see [`Family`].

mod family;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::ranks::RankedVocabulary;

pub use family::{Family, FamilyFiles, ToolOrder};

/// Most tokens of a file; today's have a fifth of that.
const MOST_TOKENS: usize = 1 << 20;

/// Most bytes of a token.
const LONGEST_TOKEN: usize = 1 << 12;

/// Reads a rank file. The place of a byte string is its rank, and its id; ranks without one are empty.
///
/// # Errors
/// What is wrong with the file.
pub fn read_ranks(file: &[u8]) -> Result<Vec<Vec<u8>>, String> {
    let mut ranks: Vec<Vec<u8>> = Vec::new();
    let lines = file.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).zip(1_usize..);
    for (line, number) in lines.filter(|(line, _)| !line.is_empty()) {
        let (rank, token) = read_line(line).map_err(|why| format!("line {number}: {why}"))?;
        if rank >= ranks.len() {
            ranks.resize(rank + 1, Vec::new());
        }
        match ranks.get_mut(rank) {
            Some(slot) if slot.is_empty() => *slot = token,
            _ => return Err(format!("line {number}: rank {rank} is there twice")),
        }
    }
    // Each byte by itself, or there would be texts without ids.
    let mut bytes = [false; 256];
    for token in &ranks {
        if let [byte] = token.as_slice()
            && let Some(slot) = bytes.get_mut(usize::from(*byte))
        {
            *slot = true;
        }
    }
    match bytes.iter().position(|known| !known) {
        Some(missing) => Err(format!("no token for the byte {missing}")),
        None => Ok(ranks),
    }
}

fn read_line(line: &[u8]) -> Result<(usize, Vec<u8>), &'static str> {
    let text = std::str::from_utf8(line).map_err(|_| "not UTF-8")?;
    let (token, rank) = text.split_once(' ').ok_or("not a token and its rank")?;
    let rank: usize = rank.trim().parse().map_err(|_| "the rank is no number")?;
    if rank >= MOST_TOKENS {
        return Err("the rank is too high");
    }
    let token = STANDARD.decode(token).map_err(|_| "the token is not base64")?;
    if token.is_empty() || token.len() > LONGEST_TOKEN {
        return Err("the token is empty or too long");
    }
    Ok((rank, token))
}

/// A rank file of a family as a `tokenizer.json`.
///
/// # Errors
/// What is wrong with the file, or does not fit the family.
pub fn tokenizer_json(file: &[u8], family: &Family) -> Result<Vec<u8>, String> {
    let ranks = read_ranks(file)?;
    let specials = family.specials(&ranks)?;
    RankedVocabulary { first: 0, ranks: &ranks, pattern: &family.pattern, specials: &specials }
        .tokenizer_json()
}

#[cfg(test)]
mod tests;
