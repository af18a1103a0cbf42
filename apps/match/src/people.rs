//! Generates customers in households, and records of them with typical errors.

use crate::fields::{Field, blank, set};
use fastrand::Rng;
use weir_records::record::RECORD_BYTES;

/// Parameters of the generator.
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    /// Number of customers.
    pub customers: u64,
    /// Seed of the contents.
    pub seed: u64,
}

const FIRST: [&str; 24] = [
    "ANNE", "BRIAN", "CLARE", "DAVID", "EMMA", "FRANK", "GRACE", "HARRY", "IRENE", "JAMES",
    "KAREN", "LIAM", "MARY", "NEIL", "OLIVE", "PETER", "ROSE", "SIMON", "TESSA", "URSULA",
    "VICTOR", "WENDY", "YVONNE", "ZOE",
];
const BEGIN: [&str; 20] = [
    "ASH", "BRAD", "CART", "DAL", "ELL", "FAR", "GREEN", "HART", "ING", "KEN", "LANG", "MARSH",
    "NORTH", "OAK", "PEM", "RED", "STAN", "THORN", "WAL", "YOR",
];
const MIDDLE: [&str; 10] = ["", "ER", "ING", "LE", "ES", "EN", "MAN", "BER", "TER", "WICK"];
const END: [&str; 12] =
    ["TON", "FORD", "LEY", "WELL", "HAM", "BY", "SON", "WOOD", "FIELD", "STONE", "DALE", "MORE"];
const STREETS: [&str; 8] = [
    "HIGH STREET",
    "MILL LANE",
    "CHURCH ROAD",
    "STATION ROAD",
    "PARK AVENUE",
    "THE GREEN",
    "SCHOOL LANE",
    "KING STREET",
];

/// Random numbers that depend on the seed and the record's number, so that any record can be
/// generated alone.
fn rng(spec: Spec, kind: u64, number: u64) -> Rng {
    let begin = Rng::with_seed(spec.seed ^ kind.wrapping_mul(0x9e37_79b9_7f4a_7c15)).u64(..);
    Rng::with_seed(begin ^ number.wrapping_mul(0xd134_2543_de82_ef95))
}

fn one<'a>(of: &[&'a str], rng: &mut Rng) -> &'a str {
    of[rng.usize(..of.len())]
}

/// A customer. Two or three consecutive numbers form a household.
pub fn customer(spec: Spec, number: u64) -> [u8; RECORD_BYTES] {
    let household = number * 2 / 5;
    let mut home = rng(spec, 1, household);
    let mut own = rng(spec, 2, number);
    let mut record = blank();
    let last =
        format!("{}{}{}", one(&BEGIN, &mut home), one(&MIDDLE, &mut home), one(&END, &mut home));
    let birth = format!("{}{:02}{:02}", own.u32(1930..2005), own.u32(1..13), own.u32(1..29));
    let house = home.u32(1..200).to_string();
    let letters = |rng: &mut Rng| char::from(rng.u8(b'A'..=b'Z'));
    let postcode = format!(
        "{}{}{} {}{}{}",
        letters(&mut home),
        letters(&mut home),
        home.u32(1..10),
        home.u32(0..10),
        letters(&mut home),
        letters(&mut home)
    );
    let street = format!("{} {}", one(&BEGIN, &mut home), one(&STREETS, &mut home));
    let city = format!("{}{}", one(&BEGIN, &mut home), one(&END, &mut home));
    let first = format!("{}{}", one(&FIRST, &mut own), ["", "-LEE", "-MAY"][own.usize(..3)]);
    let number = number.to_string();
    for (field, text) in [
        (Field::Number, &number),
        (Field::First, &first),
        (Field::Last, &last),
        (Field::Birth, &birth),
        (Field::House, &house),
        (Field::Street, &street),
        (Field::City, &city),
        (Field::Postcode, &postcode),
    ] {
        set(&mut record, field, text);
    }
    record
}

/// A record of a random customer, or in one of twenty cases of a person who is no customer.
pub fn record(spec: Spec, number: u64) -> [u8; RECORD_BYTES] {
    let mut rng = rng(spec, 3, number);
    let is_stranger = spec.customers == 0 || rng.u32(..20) == 0;
    let who = if is_stranger { spec.customers + number } else { rng.u64(..spec.customers) };
    let mut record = customer(spec, who);
    for _ in 0..rng.u32(..3) {
        spoil(&mut record, &mut rng);
    }
    set(&mut record, Field::Number, &number.to_string());
    set(&mut record, Field::Amount, &rng.u32(100..500_000).to_string());
    let truth = if is_stranger { String::new() } else { who.to_string() };
    set(&mut record, Field::Truth, &truth);
    record
}

/// Adds one typical error to a record.
fn spoil(record: &mut [u8; RECORD_BYTES], rng: &mut Rng) {
    let text = |field| match crate::fields::Record::new(record) {
        Ok(record) => record.get(field).to_owned(),
        Err(_) => String::new(),
    };
    match rng.u32(..6) {
        0 => {
            let initial = text(Field::First).chars().take(1).collect::<String>();
            set(record, Field::First, &initial);
        }
        1 => {
            // Two letters are swapped, but not the first one.
            let mut last = text(Field::Last).into_bytes();
            if last.len() > 3 {
                let at = rng.usize(1..last.len() - 1);
                last.swap(at, at + 1);
            }
            set(record, Field::Last, &String::from_utf8_lossy(&last));
        }
        2 => {
            // A letter is doubled.
            let mut last = text(Field::Last);
            if let Some(letter) = last.pop() {
                last.extend([letter, letter]);
            }
            set(record, Field::Last, &last);
        }
        3 => set(record, Field::Birth, ""),
        4 => {
            let mut birth = text(Field::Birth).into_bytes();
            if birth.len() == 8 {
                birth[7] = b'0' + rng.u8(..10);
            }
            set(record, Field::Birth, &String::from_utf8_lossy(&birth));
        }
        _ => {
            // The person has moved.
            set(record, Field::House, &rng.u32(200..400).to_string());
            set(record, Field::Street, one(&STREETS, rng));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::Record;
    use crate::likeness::{LEAST_SCORE, score};

    #[test]
    fn most_records_are_like_the_customer_that_was_meant() {
        let spec = Spec { customers: 1000, seed: 1 };
        let (mut alike, mut strangers) = (0, 0);
        for number in 0..1000 {
            let bytes = record(spec, number);
            let record = Record::new(&bytes).unwrap();
            match record.digits(Field::Truth) {
                Some(who) => {
                    let customer = customer(spec, who);
                    let score = score(&record, &Record::new(&customer).unwrap());
                    alike += u32::from(score >= LEAST_SCORE);
                }
                None => strangers += 1,
            }
        }
        assert!((20..90).contains(&strangers), "{strangers}");
        assert!(alike > 850, "{alike}");
    }
}
