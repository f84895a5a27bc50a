//! Which keys belong to which slot, and which slots to which server of a Cluster.

use kvasir_settings::redis::RedisNode;
use redis::{Arg, Cmd, Value};

/// Slots of a Cluster.
const SLOTS: u16 = 16_384;

/// Which server serves which slot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct SlotMap {
    masters: Vec<RedisNode>,
    /// For each slot, the place of its master; `u16::MAX` for a slot that nobody serves.
    serving: Box<[u16]>,
}

impl SlotMap {
    /// Reads an answer to `CLUSTER SLOTS`: a list of (first slot, last slot, (host, port, ...), replicas ...). A server
    /// that does not know its own host is where it was asked. `None` for another answer.
    pub(super) fn read(answer: &Value, asked: &RedisNode) -> Option<Self> {
        let Value::Array(ranges) = answer else { return None };
        let mut map =
            Self { masters: Vec::new(), serving: vec![u16::MAX; usize::from(SLOTS)].into_boxed_slice() };
        for range in ranges {
            let Value::Array(range) = range else { return None };
            let [first, last, Value::Array(master), ..] = range.as_slice() else { return None };
            let (first, last): (usize, usize) = (number(first)?, number(last)?);
            let port = u16::try_from(number(master.get(1)?)?).ok()?;
            let host = match redis::from_redis_value_ref::<Option<String>>(master.first()?).ok()? {
                Some(host) if !host.is_empty() && host != "?" => host,
                _ => asked.host.clone(),
            };
            let node = RedisNode { host, port };
            let place = map.masters.iter().position(|known| *known == node).unwrap_or_else(|| {
                map.masters.push(node);
                map.masters.len() - 1
            });
            map.serving.get_mut(first..=last)?.fill(u16::try_from(place).ok()?);
        }
        Some(map.sorted())
    }

    /// With the masters in an order of their own, so that two servers that say the same give equal maps.
    fn sorted(self) -> Self {
        let mut order: Vec<usize> = (0..self.masters.len()).collect();
        order.sort_by_key(|place| self.masters.get(*place).map(|node| (node.host.as_str(), node.port)));
        let mut place_of = vec![u16::MAX; order.len()];
        for (new, old) in order.iter().enumerate() {
            if let Some(place) = place_of.get_mut(*old) {
                *place = new as u16;
            }
        }
        let serving =
            self.serving.iter().map(|old| place_of.get(usize::from(*old)).copied().unwrap_or(u16::MAX));
        let masters = order.iter().filter_map(|old| self.masters.get(*old).cloned());
        Self { serving: serving.collect(), masters: masters.collect() }
    }

    /// The servers that serve slots.
    pub(super) fn masters(&self) -> &[RedisNode] {
        &self.masters
    }

    /// Who serves a slot.
    pub(super) fn master(&self, slot: u16) -> Option<&RedisNode> {
        self.masters.get(usize::from(*self.serving.get(usize::from(slot))?))
    }
}

fn number(value: &Value) -> Option<usize> {
    redis::from_redis_value_ref(value).ok()
}

/// The slot of a key: of the part in the first braces, where there is one.
pub(super) fn slot_of(key: &[u8]) -> u16 {
    let tag = key.iter().position(|byte| *byte == b'{').and_then(|open| {
        let rest = &key[open + 1..];
        let close = rest.iter().position(|byte| *byte == b'}')?;
        (close > 0).then(|| &rest[..close])
    });
    crc16(tag.unwrap_or(key)) % SLOTS
}

/// The slot of a command's first key; `None` for a command without one. Knows the commands that this crate sends.
pub(super) fn slot_of_command(cmd: &Cmd) -> Option<u16> {
    let arguments: Vec<&[u8]> = cmd
        .args_iter()
        .map(|argument| match argument {
            Arg::Simple(bytes) => bytes,
            _ => b"0".as_slice(),
        })
        .collect();
    let name = arguments.first()?.to_ascii_uppercase();
    let key = match name.as_slice() {
        b"PING" | b"TIME" | b"SCRIPT" | b"INFO" | b"SCAN" | b"CLUSTER" | b"CONFIG" | b"DBSIZE" => {
            return None;
        }
        b"EVAL" | b"EVALSHA" | b"EVAL_RO" | b"EVALSHA_RO" => arguments.get(3)?,
        b"XREAD" => {
            let streams = arguments.iter().position(|argument| argument.eq_ignore_ascii_case(b"STREAMS"))?;
            arguments.get(streams + 1)?
        }
        b"XGROUP" | b"XINFO" | b"OBJECT" | b"MEMORY" => arguments.get(2)?,
        _ => arguments.get(1)?,
    };
    Some(slot_of(key))
}

/// CRC16 as Redis Cluster uses it (polynomial 0x1021, nothing reflected, from 0).
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0_u16, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 }
        })
    })
}

#[cfg(test)]
mod tests {
    use redis::cmd;

    use super::*;

    #[test]
    fn slots_are_redis_slots() {
        // The check value of the Cluster specification, and slots as `CLUSTER KEYSLOT` gives them.
        assert_eq!(crc16(b"123456789"), 0x31C3);
        for (key, slot) in [("foo", 12_182), ("bar", 5_061), ("{foo}bar", 12_182), ("x{bar}{foo}", 5_061)] {
            assert_eq!(slot_of(key.as_bytes()), slot, "{key}");
        }
        assert_eq!(slot_of(b"{}foo"), crc16(b"{}foo") % SLOTS);
        assert_eq!(slot_of(b"foo{bar"), crc16(b"foo{bar") % SLOTS);
    }

    #[test]
    fn the_key_of_a_command_is_found() {
        let foo = Some(12_182);
        assert_eq!(slot_of_command(cmd("GET").arg("foo")), foo);
        assert_eq!(slot_of_command(cmd("evalsha").arg("0").arg(2).arg("foo").arg("bar")), foo);
        assert_eq!(slot_of_command(cmd("XREAD").arg("COUNT").arg(1).arg("STREAMS").arg("foo").arg("0")), foo);
        assert_eq!(slot_of_command(cmd("OBJECT").arg("ENCODING").arg("foo")), foo);
        assert_eq!(slot_of_command(&cmd("TIME")), None);
    }

    #[test]
    fn the_map_reads_what_a_cluster_says() {
        let master =
            |host: Value, port| Value::Array(vec![host, Value::Int(port), Value::BulkString(b"id".to_vec())]);
        let range = |first, last, master| Value::Array(vec![Value::Int(first), Value::Int(last), master]);
        let named = Value::BulkString(b"10.0.0.2".to_vec());
        let answer = Value::Array(vec![
            range(0, 99, master(named.clone(), 7000)),
            range(100, 199, master(Value::Nil, 7001)),
            range(300, 16_383, master(named.clone(), 7000)),
        ]);
        let asked = RedisNode { host: "seed".to_owned(), port: 1 };
        let map = SlotMap::read(&answer, &asked).unwrap();
        let master_of = |slot| map.master(slot).map(ToString::to_string);
        assert_eq!(map.masters().len(), 2);
        assert_eq!(master_of(99), Some("10.0.0.2:7000".to_owned()));
        assert_eq!(master_of(100), Some("seed:7001".to_owned()));
        assert_eq!(master_of(250), None);
        assert_eq!(master_of(16_383), Some("10.0.0.2:7000".to_owned()));
        for wrong in [
            Value::Nil,
            Value::Array(vec![range(0, 20_000, master(named, 1))]),
            Value::Array(vec![Value::Nil]),
        ] {
            assert_eq!(SlotMap::read(&wrong, &asked), None);
        }
    }
}
