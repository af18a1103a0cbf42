//! Profiles of customers and households after matching. No I/O.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;

/// The profile of a customer or household.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// Number of linked records.
    pub records: u64,
    /// Sum of their amounts, in cents.
    pub amount: u64,
}

impl Profile {
    fn add(&mut self, other: Self) {
        self.records += other.records;
        self.amount += other.amount;
    }
}

/// The customers that were found, and the households that they form.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profiles {
    customers: HashMap<u32, (Profile, u32)>,
    /// Ids of households by their keys.
    households: HashMap<String, u32>,
}

/// A household: its customers, and the sum of their profiles.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Household {
    /// In ascending order.
    pub customers: Vec<u32>,
    /// The sum of their profiles.
    pub profile: Profile,
}

impl Profiles {
    /// Counts a record of a customer of this household.
    pub fn count(&mut self, customer: u32, household: &str, amount: u64) {
        let one = Profile { records: 1, amount };
        let of = self.household(household);
        self.customers.entry(customer).or_insert((Profile::default(), of)).0.add(one);
    }

    fn household(&mut self, common: &str) -> u32 {
        if let Some(number) = self.households.get(common) {
            return *number;
        }
        let number = self.households.len() as u32;
        self.households.insert(common.to_owned(), number);
        number
    }

    /// Adds the results of another reader.
    pub fn add(&mut self, other: Self) {
        let common = other.households.into_iter().map(|(common, number)| (number, common));
        let common: HashMap<u32, String> = common.collect();
        for (customer, (profile, household)) in other.customers {
            let Some(common) = common.get(&household) else { continue };
            let of = self.household(common);
            self.customers.entry(customer).or_insert((Profile::default(), of)).0.add(profile);
        }
    }

    /// The customers, by their numbers.
    pub fn customers(&self) -> BTreeMap<u32, Profile> {
        self.customers.iter().map(|(customer, (profile, _))| (*customer, *profile)).collect()
    }

    /// The households, by the number of their first customer.
    pub fn households(&self) -> BTreeMap<u32, Household> {
        let mut all: HashMap<u32, Household> = HashMap::new();
        for (customer, (profile, household)) in &self.customers {
            let of = all.entry(*household).or_default();
            of.customers.push(*customer);
            of.profile.add(*profile);
        }
        let sorted = all.into_values().map(|mut household| {
            household.customers.sort_unstable();
            (household.customers[0], household)
        });
        sorted.collect()
    }
}

/// The customers as CSV, with the household of each.
pub fn customers_csv(profiles: &Profiles) -> String {
    let mut text = "customer,household,records,amount\n".to_owned();
    let households = profiles.households();
    let of: HashMap<u32, u32> = households
        .iter()
        .flat_map(|(number, household)| household.customers.iter().map(|one| (*one, *number)))
        .collect();
    for (customer, profile) in profiles.customers() {
        // Writing to a String cannot fail, and each customer has a household.
        let _ = writeln!(
            text,
            "{customer},{},{},{}",
            of.get(&customer).copied().unwrap_or(customer),
            profile.records,
            profile.amount
        );
    }
    text
}

/// The households as CSV.
pub fn households_csv(profiles: &Profiles) -> String {
    let mut text = "household,customers,records,amount\n".to_owned();
    for (number, household) in profiles.households() {
        let people: Vec<String> = household.customers.iter().map(u32::to_string).collect();
        let Profile { records, amount } = household.profile;
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{number},{},{records},{amount}", people.join(" "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_find_together_what_one_would_find() {
        let all = [(7, "A", 10), (3, "A", 5), (7, "A", 1), (9, "B", 2)];
        let of = |records: &[(u32, &str, u64)]| {
            let mut profiles = Profiles::default();
            records.iter().for_each(|(who, home, amount)| profiles.count(*who, home, *amount));
            profiles
        };
        let one = of(&all);
        let mut sum = of(&all[2..]);
        sum.add(of(&all[..2]));
        let csv = "customer,household,records,amount\n3,3,1,5\n7,3,2,11\n9,9,1,2\n";
        assert_eq!((customers_csv(&one), customers_csv(&sum)), (csv.to_owned(), csv.to_owned()));
        let csv = "household,customers,records,amount\n3,3 7,3,16\n9,9,1,2\n";
        assert_eq!((households_csv(&one), households_csv(&sum)), (csv.to_owned(), csv.to_owned()));
    }
}
