//! Similarity of records, and the keys for looking them up. No I/O.

use crate::fields::{Field, Record};

/// Records below this similarity belong to different people.
pub const LEAST_SCORE: u32 = 8;

/// The American Soundex of a name: its first letter and three digits of the sounds that follow.
pub fn soundex(name: &str) -> [u8; 4] {
    let sound = |letter: u8| match letter {
        b'B' | b'F' | b'P' | b'V' => b'1',
        b'C' | b'G' | b'J' | b'K' | b'Q' | b'S' | b'X' | b'Z' => b'2',
        b'D' | b'T' => b'3',
        b'L' => b'4',
        b'M' | b'N' => b'5',
        b'R' => b'6',
        // Two letters with the same sound count once if an H or W is between them, and twice if a
        // vowel is.
        b'H' | b'W' => b'-',
        _ => b'0',
    };
    let mut letters = name.bytes().filter(u8::is_ascii_alphabetic).map(|b| b.to_ascii_uppercase());
    let Some(first) = letters.next() else { return *b"0000" };
    let (mut code, mut len, mut last) = ([first, b'0', b'0', b'0'], 1, sound(first));
    for letter in letters {
        let this = sound(letter);
        if this == b'-' {
            continue;
        }
        if this != b'0' && this != last && len < 4 {
            code[len] = this;
            len += 1;
        }
        last = this;
    }
    code
}

/// The keys of a record. Two records without a common key are not compared.
pub fn keys(record: &Record<'_>) -> [Option<String>; 2] {
    let last = soundex(record.get(Field::Last));
    let last = String::from_utf8_lossy(&last);
    let [birth, postcode, house] =
        [Field::Birth, Field::Postcode, Field::House].map(|field| record.get(field));
    [
        (!birth.is_empty()).then(|| format!("B{last}{birth}")),
        (!postcode.is_empty()).then(|| format!("P{postcode}/{house}/{}", &last[..1])),
    ]
}

/// Similarity of two records.
pub fn score(one: &Record<'_>, other: &Record<'_>) -> u32 {
    let both = |field| (one.get(field), other.get(field));
    let equal = |field| {
        let (one, other) = both(field);
        !one.is_empty() && one == other
    };
    let last = match both(Field::Last) {
        (one, other) if one == other => 4,
        (one, other) if soundex(one) == soundex(other) => 2,
        _ => 0,
    };
    let first = match both(Field::First) {
        (one, other) if one == other => 3,
        (one, other) if !one.is_empty() && one.as_bytes().first() == other.as_bytes().first() => 1,
        _ => 0,
    };
    let (birth, other_birth) = both(Field::Birth);
    let differing = birth.bytes().zip(other_birth.bytes()).filter(|(a, b)| a != b).count();
    let birth = match (birth.len() == other_birth.len() && !birth.is_empty(), differing) {
        (true, 0) => 4,
        (true, 1) => 2,
        _ => 0,
    };
    let place = if equal(Field::Postcode) && equal(Field::House) { 3 } else { 0 };
    last + first + birth + place + u32::from(equal(Field::Street))
}

/// The key of a person's household.
pub fn household(record: &Record<'_>) -> String {
    [Field::Last, Field::House, Field::Street, Field::Postcode]
        .map(|field| record.get(field))
        .join("/")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::{blank, set};

    #[test]
    fn names_that_sound_alike_have_one_code() {
        // Examples of the National Archives.
        for (name, code) in [
            ("Robert", "R163"),
            ("Rupert", "R163"),
            ("Tymczak", "T522"),
            ("Pfister", "P236"),
            ("Ashcraft", "A261"),
            ("Lee", "L000"),
            ("Gutierrez", "G362"),
            ("", "0000"),
        ] {
            assert_eq!(soundex(name), code.as_bytes(), "{name}");
        }
    }

    #[test]
    fn records_are_alike_by_what_they_share() {
        let of = |first: &str, last: &str, birth: &str, house: &str| {
            let mut bytes = blank();
            let fields = [Field::Number, Field::First, Field::Last, Field::Birth, Field::House];
            for (field, text) in fields.into_iter().zip(["1", first, last, birth, house]) {
                set(&mut bytes, field, text);
            }
            set(&mut bytes, Field::Postcode, "AB1 2CD");
            bytes
        };
        let record = of("ANNE", "SMITH", "19700131", "12");
        let whole = Record::new(&record).unwrap();
        assert_eq!(score(&whole, &whole), 14);
        let to = |other: &[u8; 838]| score(&whole, &Record::new(other).unwrap());
        assert_eq!(to(&of("A", "SMYTH", "19700131", "12")), 2 + 1 + 4 + 3);
        assert_eq!(to(&of("ANNE", "SMITH", "19700130", "9")), 4 + 3 + 2);
        assert!(to(&of("BOB", "SMITH", "19990909", "12")) < LEAST_SCORE, "of the same household");
        let nobody = of("", "", "", "");
        assert_eq!(keys(&Record::new(&nobody).unwrap())[0], None);
    }
}
