//! Records of 838 bytes with fields at fixed positions: text, padded with spaces.
//!
//! ```text
//! bytes   0..12   number of the customer, or of the record: digits
//!        12..36   first name, perhaps only its initial
//!        36..68   last name
//!        68..76   date of birth, YYYYMMDD, or spaces
//!        76..84   number of the house
//!        84..124  street
//!       124..156  city
//!       156..164  postal code
//!       164..176  records: an amount in cents, digits
//!       176..188  records: the customer from whom the generator made it, or spaces
//!       188..837  padding
//!       837       newline
//! ```

use std::fmt;
use std::ops::Range;
use weir_records::record::RECORD_BYTES;

/// A field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    Number,
    First,
    Last,
    Birth,
    House,
    Street,
    City,
    Postcode,
    Amount,
    Truth,
}

impl Field {
    fn place(self) -> Range<usize> {
        match self {
            Field::Number => 0..12,
            Field::First => 12..36,
            Field::Last => 36..68,
            Field::Birth => 68..76,
            Field::House => 76..84,
            Field::Street => 84..124,
            Field::City => 124..156,
            Field::Postcode => 156..164,
            Field::Amount => 164..176,
            Field::Truth => 176..188,
        }
    }
}

/// A checked record, with access to its fields.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    text: &'a str,
}

impl fmt::Debug for Record<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text.trim_end())
    }
}

impl<'a> Record<'a> {
    /// Checks a record: printable ASCII, with a number and a newline.
    ///
    /// # Errors
    /// What is wrong.
    pub fn new(bytes: &'a [u8]) -> Result<Self, &'static str> {
        let is_text = |byte: &u8| byte.is_ascii_graphic() || *byte == b' ';
        let whole = bytes.len() == RECORD_BYTES
            && bytes[RECORD_BYTES - 1] == b'\n'
            && bytes[..RECORD_BYTES - 1].iter().all(is_text);
        let text = std::str::from_utf8(bytes).ok().filter(|_| whole).ok_or("is no record")?;
        let record = Self { text };
        if record.digits(Field::Number).is_none() {
            return Err("has no number");
        }
        Ok(record)
    }

    /// The whole record.
    pub fn bytes(&self) -> &'a [u8] {
        self.text.as_bytes()
    }

    /// A field without its padding.
    pub fn get(&self, field: Field) -> &'a str {
        self.text[field.place()].trim_end()
    }

    /// A field of digits; `None` if it is empty or has other characters.
    pub fn digits(&self, field: Field) -> Option<u64> {
        let text = self.get(field);
        text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
    }
}

/// A new record without fields.
pub fn blank() -> [u8; RECORD_BYTES] {
    let mut record = [b' '; RECORD_BYTES];
    record[RECORD_BYTES - 1] = b'\n';
    record
}

/// Sets a field; a text that is too long is cut.
pub fn set(record: &mut [u8; RECORD_BYTES], field: Field, text: &str) {
    let place = &mut record[field.place()];
    place.fill(b' ');
    let len = text.len().min(place.len());
    place[..len].copy_from_slice(&text.as_bytes()[..len]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_set_is_found_and_what_is_no_record_is_refused() {
        let mut bytes = blank();
        assert_eq!(Record::new(&bytes), Err("has no number"));
        set(&mut bytes, Field::Number, "17");
        set(&mut bytes, Field::Last, &"x".repeat(99));
        let record = Record::new(&bytes).unwrap();
        assert_eq!(record.digits(Field::Number), Some(17));
        assert_eq!(record.get(Field::Last).len(), 32);
        assert_eq!((record.get(Field::First), record.digits(Field::Amount)), ("", None));
        assert!(Record::new(&bytes[1..]).is_err());
        let mut bad = bytes;
        bad[400] = 0xc3;
        assert!(Record::new(&bad).is_err());
    }
}
