//! The report of a run.

use crate::master::Found;
use crate::rules::Rule;
use serde_json::json;
use std::fmt::Write;
use weir_records::size::megabytes_per_second;

/// A result, and further information for the report.
pub struct Report<'a> {
    /// Name of the file.
    pub file: &'a str,
    /// Number of clients.
    pub clients: usize,
    /// The result.
    pub found: &'a Found,
    /// The rules that follow from it.
    pub rules: &'a [Rule],
    /// Names of items, as far as they have any.
    pub names: &'a [String],
    /// Whether it was compared with the oracle.
    pub is_verified: bool,
}

impl Report<'_> {
    fn name(&self, item: u32) -> String {
        self.names.get(item as usize).cloned().unwrap_or_else(|| item.to_string())
    }

    fn side(&self, items: &[u32]) -> String {
        items.iter().map(|item| self.name(*item)).collect::<Vec<_>>().join(", ")
    }

    fn part(&self, count: u64) -> f64 {
        100.0 * count as f64 / self.found.transactions.max(1) as f64
    }

    /// The report for people: passes, and `top` rules.
    #[must_use]
    pub fn text(&self, top: usize) -> String {
        let found = self.found;
        let (file, clients) = (self.file, self.clients);
        let mut text = format!(
            "{file}: {} transactions, {clients} client{}; frequent: in {} transactions\n\
             {:>4} {:>11} {:>9} {:>9} {:>8}\n",
            found.transactions,
            if clients == 1 { "" } else { "s" },
            found.least,
            "pass",
            "candidates",
            "frequent",
            "seconds",
            "MB/s"
        );
        for pass in &found.passes {
            let rate = megabytes_per_second(pass.bytes, pass.seconds);
            // Writing to a String cannot fail.
            let _ = writeln!(
                text,
                "{:>4} {:>11} {:>9} {:>9.2} {rate:>8.1}",
                pass.size, pass.candidates, pass.frequent, pass.seconds
            );
        }
        let _ = writeln!(text, "{} itemsets, {} rules", found.frequent.len(), self.rules.len());
        for rule in self.rules.iter().take(top) {
            let _ = writeln!(
                text,
                "{:.2}  {} of {} ({:.1} %)  {} => {}",
                rule.confidence(),
                rule.support,
                rule.left_support,
                self.part(rule.support),
                self.side(&rule.left),
                self.side(&rule.right)
            );
        }
        if self.is_verified {
            text += "verified: one thread finds the same by another way\n";
        }
        text
    }

    /// The report for programs, complete.
    #[must_use]
    pub fn json(&self) -> serde_json::Value {
        let names = |items: &[u32]| items.iter().map(|item| self.name(*item)).collect::<Vec<_>>();
        let found = self.found;
        let passes = found.passes.iter().map(|pass| {
            json!({
                "items": pass.size,
                "candidates": pass.candidates,
                "frequent": pass.frequent,
                "bytes": pass.bytes,
                "seconds": pass.seconds,
            })
        });
        let itemsets = found
            .frequent
            .iter()
            .map(|(set, count)| json!({"items": names(set), "transactions": count}));
        let rules = self.rules.iter().map(|rule| {
            json!({
                "left": names(&rule.left),
                "right": names(&rule.right),
                "transactions": rule.support,
                "left_transactions": rule.left_support,
                "confidence": rule.confidence(),
            })
        });
        json!({
            "file": self.file,
            "clients": self.clients,
            "transactions": found.transactions,
            "least": found.least,
            "verified": self.is_verified,
            "passes": passes.collect::<Vec<_>>(),
            "itemsets": itemsets.collect::<Vec<_>>(),
            "rules": rules.collect::<Vec<_>>(),
        })
    }
}
