//! As much of protobuf's wire format as a model file needs: fields one after another, nothing kept.

/// Most bytes of a number: seven bits in each.
const LONGEST_NUMBER: usize = 10;

/// What a field holds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Value<'a> {
    /// A number, a switch, or a choice.
    Number(u64),
    /// Text, bytes, or a message.
    Bytes(&'a [u8]),
    /// A number of single precision.
    Float(f32),
    /// Eight bytes that nobody here reads.
    Long,
}

impl<'a> Value<'a> {
    /// The number of a field that must be one.
    pub fn number(self) -> Result<u64, &'static str> {
        match self {
            Self::Number(number) => Ok(number),
            _ => Err("a field that should be a number is none"),
        }
    }

    /// The bytes of a field that must have some.
    pub fn bytes(self) -> Result<&'a [u8], &'static str> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            _ => Err("a field that should be text or a message is none"),
        }
    }
}

/// Iterator over the fields of a message: their numbers and what they hold. Ends with the first error.
#[derive(Clone, Debug)]
pub struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    /// The fields of a message.
    pub fn of(message: &'a [u8]) -> Self {
        Self { rest: message }
    }

    fn number(&mut self) -> Result<u64, &'static str> {
        let mut number = 0_u64;
        for (place, byte) in self.rest.iter().take(LONGEST_NUMBER).enumerate() {
            number |= u64::from(byte & 0x7f) << (7 * place);
            if byte & 0x80 == 0 {
                self.rest = self.rest.get(place + 1..).unwrap_or_default();
                return Ok(number);
            }
        }
        Err("a number does not end")
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], &'static str> {
        let (taken, rest) =
            self.rest.split_at_checked(count).ok_or("the file ends in the middle of a field")?;
        self.rest = rest;
        Ok(taken)
    }

    fn field(&mut self) -> Result<(u64, Value<'a>), &'static str> {
        let tag = self.number()?;
        let value = match tag & 7 {
            0 => Value::Number(self.number()?),
            1 => {
                self.take(8)?;
                Value::Long
            }
            2 => {
                let length = usize::try_from(self.number()?).map_err(|_| "a field is too long")?;
                Value::Bytes(self.take(length)?)
            }
            5 => {
                let bytes = self.take(4)?.try_into().map_err(|_| "a number is cut off")?;
                Value::Float(f32::from_le_bytes(bytes))
            }
            _ => return Err("a field of an unknown kind"),
        };
        Ok((tag >> 3, value))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u64, Value<'a>), &'static str>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            self.rest = &[];
        }
        Some(field)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_every_kind_are_read() {
        let message = [
            0x08, 0xac, 0x02, // 1: 300
            0x12, 0x02, b'h', b'i', // 2: "hi"
            0x1d, 0x00, 0x00, 0xc0, 0xbf, // 3: -1.5
            0x21, 1, 2, 3, 4, 5, 6, 7, 8, // 4: eight bytes
            0xa8, 0x02, 0x01, // 37: true
        ];
        let fields: Result<Vec<_>, _> = Fields::of(&message).collect();
        let expected = vec![
            (1, Value::Number(300)),
            (2, Value::Bytes(b"hi")),
            (3, Value::Float(-1.5)),
            (4, Value::Long),
            (37, Value::Number(1)),
        ];
        assert_eq!(fields, Ok(expected));
        assert_eq!(Fields::of(&[]).next(), None);
        assert_eq!(Value::Bytes(b"x").bytes(), Ok(&b"x"[..]));
        assert!(Value::Long.number().is_err() && Value::Number(1).bytes().is_err());
    }

    #[test]
    fn damage_ends_the_message_with_its_name() {
        for (message, part) in [
            (&[0x08, 0x80][..], "does not end"),
            (&[0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01], "does not end"),
            (&[0x12, 0x05, b'h'], "middle of a field"),
            (&[0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01], "middle of a field"),
            (&[0x1d, 0x00], "middle of a field"),
            (&[0x0b], "unknown kind"),
        ] {
            let fields: Vec<_> = Fields::of(message).collect();
            let [Err(reason)] = fields.as_slice() else { panic!("{fields:?}") };
            assert!(reason.contains(part), "{reason}");
        }
    }
}
