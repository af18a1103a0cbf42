//! Names of users and groups, from the files of this machine.

use std::collections::HashMap;

/// The names of users or groups by number.
#[derive(Debug, Default)]
pub struct Owners {
    names: HashMap<u32, String>,
}

impl Owners {
    /// Users.
    pub fn users() -> Self {
        Self::read("/etc/passwd")
    }

    /// Groups.
    pub fn groups() -> Self {
        Self::read("/etc/group")
    }

    fn read(file: &str) -> Self {
        Self::parse(&std::fs::read_to_string(file).unwrap_or_default())
    }

    // name:password:number:...
    fn parse(text: &str) -> Self {
        let names = text.lines().filter_map(|line| {
            let mut fields = line.split(':');
            let name = fields.next()?;
            Some((fields.nth(1)?.parse().ok()?, name.to_owned()))
        });
        Self { names: names.collect() }
    }

    /// The number of a name, or the number itself if the text is one; `None` if the name is
    /// unknown.
    pub fn number(&self, name: &str) -> Option<u32> {
        let known = self.names.iter().find(|(_, known)| *known == name).map(|(number, _)| *number);
        known.or_else(|| name.parse().ok())
    }

    /// The name of a number, or the number as text.
    pub fn name(&self, number: u32) -> String {
        self.names.get(&number).cloned().unwrap_or_else(|| number.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_get_names_where_there_are_any() {
        let owners = Owners::parse("root:x:0:0:root:/root:/bin/sh\nbroken\n");
        assert_eq!(owners.name(0), "root");
        assert_eq!(owners.name(12), "12");
        assert_eq!(owners.number("root"), Some(0));
        assert_eq!((owners.number("12"), owners.number("who")), (Some(12), None));
    }
}
