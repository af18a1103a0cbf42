//! Market baskets in text: one line for each basket with its items, separated by commas, or an ARFF
//! file whose attributes are items (`t` or `y`: in the basket, `?`: not).

use crate::format::ITEM_LIMIT;
use std::collections::HashMap;

/// Baskets, and the names of their items.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Baskets {
    /// The name of each item, by number.
    pub names: Vec<String>,
    /// The items of each basket in ascending order. Empty baskets are left out.
    pub baskets: Vec<Vec<u32>>,
    /// Number of empty baskets.
    pub empty: u64,
}

impl Baskets {
    /// Reads a text.
    ///
    /// # Errors
    /// The line that is invalid.
    pub fn read(text: &str) -> Result<Self, String> {
        let is_arff = text.lines().any(|line| keyword(line, "@relation").is_some());
        if is_arff { Self::arff(text) } else { Self::lines(text) }
    }

    fn lines(text: &str) -> Result<Self, String> {
        let (mut all, mut numbers) = (Self::default(), HashMap::new());
        for line in text.lines() {
            let names = line.split(',').map(str::trim).filter(|name| !name.is_empty());
            let mut items = Vec::new();
            for name in names {
                items.push(all.number(&mut numbers, name)?);
            }
            all.push(items);
        }
        Ok(all)
    }

    fn number(&mut self, numbers: &mut HashMap<String, u32>, name: &str) -> Result<u32, String> {
        if let Some(number) = numbers.get(name) {
            return Ok(*number);
        }
        let number = self.names.len() as u32;
        if number == ITEM_LIMIT {
            return Err(format!("there are more than {ITEM_LIMIT} different items"));
        }
        self.names.push(name.to_owned());
        numbers.insert(name.to_owned(), number);
        Ok(number)
    }

    fn push(&mut self, mut items: Vec<u32>) {
        items.sort_unstable();
        items.dedup();
        match items.is_empty() {
            true => self.empty += 1,
            false => self.baskets.push(items),
        }
    }

    fn arff(text: &str) -> Result<Self, String> {
        let (mut all, mut numbers) = (Self::default(), HashMap::new());
        let mut attributes = Vec::new();
        let mut is_data = false;
        for (at, line) in text.lines().enumerate() {
            let line = line.trim();
            let wrong = |what: &str| format!("line {}: {what}", at + 1);
            if line.is_empty() || line.starts_with('%') || keyword(line, "@relation").is_some() {
                continue;
            }
            if let Some(rest) = keyword(line, "@attribute") {
                attributes.push(name_of(rest).ok_or_else(|| wrong("an attribute without name"))?);
            } else if keyword(line, "@data").is_some() {
                is_data = true;
            } else if is_data {
                let values: Vec<&str> = line.split(',').map(str::trim).collect();
                if values.len() != attributes.len() {
                    let (found, wanted) = (values.len(), attributes.len());
                    return Err(wrong(&format!("{found} values for {wanted} attributes")));
                }
                let mut items = Vec::new();
                for (value, attribute) in values.iter().zip(&attributes) {
                    match *value {
                        "?" => {}
                        "t" | "y" => items.push(all.number(&mut numbers, attribute)?),
                        value => {
                            let name = format!("{attribute}={value}");
                            items.push(all.number(&mut numbers, &name)?);
                        }
                    }
                }
                all.push(items);
            } else {
                return Err(wrong("no @attribute and no @data"));
            }
        }
        Ok(all)
    }
}

/// The text after a keyword, which may be in upper or lower case.
fn keyword<'a>(line: &'a str, word: &str) -> Option<&'a str> {
    let line = line.trim_start();
    let (head, rest) = line.split_at_checked(word.len())?;
    head.eq_ignore_ascii_case(word).then_some(rest)
}

/// The name at the beginning, perhaps in quotes.
fn name_of(rest: &str) -> Option<String> {
    let rest = rest.trim_start();
    let quote = rest.chars().next().filter(|c| matches!(c, '\'' | '"'));
    let name = match quote {
        Some(quote) => rest[1..].split(quote).next(),
        None => rest.split_whitespace().next(),
    };
    name.filter(|name| !name.is_empty()).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_attributes_are_baskets() {
        let lines = Baskets::read("milk, eggs,bread\n\nbread,milk,bread\n").unwrap();
        assert_eq!(lines.names, ["milk", "eggs", "bread"]);
        assert_eq!(lines.baskets, [vec![0, 1, 2], vec![0, 2]]);
        assert_eq!(lines.empty, 1);

        let text = "% a comment\n@relation shop\n@attribute 'bread and cake' { t}\n\
            @attribute milk {t}\n@attribute total {low, high}\n@data\nt,?,high\n?,?,?\nt,t,low\n";
        let arff = Baskets::read(text).unwrap();
        assert_eq!(arff.names, ["bread and cake", "total=high", "milk", "total=low"]);
        assert_eq!(arff.baskets, [vec![0, 1], vec![0, 2, 3]]);
        assert_eq!(arff.empty, 1);
        let short = Baskets::read("@relation x\n@attribute a {t}\n@data\nt,t\n").unwrap_err();
        assert_eq!(short, "line 4: 2 values for 1 attributes");
        assert!(Baskets::read("@relation x\nnonsense").unwrap_err().contains("line 2"));
    }
}
