//! The market baskets of a supermarket (`scripts/market-basket.sh`), whose counts are known.

use crate::cluster::built;
use crate::plain::{found, said};
use serde_json::Value;

fn count(found: &Value, items: &[&str]) -> u64 {
    let itemsets = found["itemsets"].as_array().unwrap();
    let is_it = |set: &&Value| {
        let set = set["items"].as_array().unwrap();
        set.len() == items.len() && items.iter().all(|item| set.contains(&Value::from(*item)))
    };
    itemsets.iter().find(is_it).unwrap()["transactions"].as_u64().unwrap()
}

/// Number of frequent itemsets of one, two and three items. The class of each basket is not an
/// item.
fn frequent(found: &Value) -> [usize; 3] {
    let sets = found["itemsets"].as_array().unwrap().iter().map(|set| &set["items"]);
    let sets = sets.map(|set| set.as_array().unwrap());
    let is_class = |item: &Value| item.as_str().unwrap().starts_with("total=");
    let of_items: Vec<_> = sets.filter(|set| !set.iter().any(is_class)).collect();
    [1, 2, 3].map(|size| of_items.iter().filter(|set| set.len() == size).count())
}

#[test]
fn a_supermarket_sells_what_is_known() {
    let tools = built().parent().map(|target| target.join("tools/supermarket.arff")).unwrap();
    if !tools.is_file() {
        println!("skipped: needs {} (make test downloads it)", tools.display());
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    said(at, &["import", "baskets", "--from", tools.to_str().unwrap()]);
    let of = |support: &str| {
        let run = ["run", "baskets", "--support", support, "--clients", "2", "--verify", "--json"];
        found(at, &run)
    };
    let third = of("30%");
    assert_eq!(third["transactions"], 4627);
    assert_eq!(frequent(&third), [23, 62, 20]);
    for (items, times) in [
        (&["bread and cake"][..], 3330),
        (&["fruit"], 2962),
        (&["vegetables"], 2961),
        (&["milk-cream"], 2939),
        (&["baking needs"], 2795),
        (&["frozen foods"], 2717),
        (&["biscuits"], 2605),
        (&["bread and cake", "milk-cream"], 2337),
        (&["bread and cake", "fruit"], 2325),
        (&["bread and cake", "vegetables"], 2298),
    ] {
        assert_eq!(count(&third, items), times, "{items:?}");
    }
    assert_eq!(frequent(&of("40%")), [17, 15, 0]);
    assert_eq!(frequent(&of("50%")), [9, 2, 0]);

    let sure = of("15%");
    let rules = sure["rules"].as_array().unwrap();
    let surest = &rules[0];
    let left = surest["left"].as_array().unwrap();
    assert_eq!(surest["right"][0], "bread and cake");
    assert_eq!((&surest["transactions"], &surest["left_transactions"]), (&723.into(), &788.into()));
    for item in ["biscuits", "frozen foods", "fruit", "total=high"] {
        assert!(left.contains(&item.into()), "{left:?}");
    }
}
