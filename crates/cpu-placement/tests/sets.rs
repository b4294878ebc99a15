//! Sets: the two text forms, and the laws of set algebra.

use std::collections::BTreeSet;

use cpu_placement::{CpuSet, MAX_INDEX, NodeSet};
use proptest::prelude::*;

fn parse(text: &str) -> Result<CpuSet, String> {
    text.parse().map_err(|error: cpu_placement::ParseSetError| error.to_string())
}

#[test]
fn lists() {
    let cases = [
        ("", "", "00000000"),
        ("0", "0", "00000001"),
        ("0-3,8", "0-3,8", "0000010f"),
        ("8,0-3", "0-3,8", "0000010f"),
        ("1,2,3", "1-3", "0000000e"),
        ("0-1,1-2\n", "0-2", "00000007"),
        ("32", "32", "00000001,00000000"),
        ("63-65", "63-65", "00000003,80000000,00000000"),
    ];
    for (text, list, mask) in cases {
        let set = parse(text).expect(text);
        assert_eq!((set.to_string().as_str(), set.to_mask().as_str()), (list, mask), "{text:?}");
        assert_eq!(CpuSet::from_mask(mask).expect(mask), set);
    }
}

#[test]
fn what_is_not_a_list_says_why() {
    let cases = [
        ("a", "\"a\" is not a number in the set \"a\""),
        ("1,,2", "\"\" is not a number in the set \"1,,2\""),
        ("1-", "\"\" is not a number in the set \"1-\""),
        ("-1", "\"\" is not a number in the set \"-1\""),
        ("+1", "\"+1\" is not a number in the set \"+1\""),
        ("1 - 2", "\"1 \" is not a number in the set \"1 - 2\""),
        ("0-10:2/4", "\"10:2/4\" is not a number in the set \"0-10:2/4\""),
        ("3-1", "range 3-1 runs backwards in the set \"3-1\""),
        (
            "0-4000000000",
            "4000000000 in the set \"0-4000000000\" is above 65535, the largest number a set may hold",
        ),
        (
            "99999999999999999999",
            "\"99999999999999999999\" is not a number in the set \"99999999999999999999\"",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(parse(text).expect_err(text), expected);
    }
}

#[test]
fn masks() {
    let good = [
        ("0x0000000f", "0-3"),
        ("0x00000001,0x0", "32"),
        ("0x00200000,,,,,,,0x0", "245"),
        ("f", "0-3"),
        ("00000000,00000003", "0-1"),
        ("0x0", ""),
    ];
    for (mask, list) in good {
        assert_eq!(CpuSet::from_mask(mask).expect(mask).to_string(), list);
    }
    for mask in ["", "0xg", "123456789", "1,,2", "0xf...f", "0x-1", "+1"] {
        CpuSet::from_mask(mask).expect_err(mask);
    }
    let huge = format!("00000001{}", ",00000000".repeat(2048));
    assert!(CpuSet::from_mask(&huge).expect_err("too large").to_string().contains("65536"));
}

#[test]
fn json() {
    let set: NodeSet = "0-1,4".parse().expect("a set");
    assert_eq!(serde_json::to_string(&set).expect("a string"), "\"0-1,4\"");
    assert_eq!(serde_json::from_str::<NodeSet>("\"0-1,4\"").expect("a set"), set);
    serde_json::from_str::<NodeSet>("\"x\"").expect_err("not a set");
}

fn members() -> impl Strategy<Value = BTreeSet<u32>> {
    prop::collection::btree_set(prop_oneof![0u32..200, Just(MAX_INDEX), 0..=MAX_INDEX], 0..40)
}

fn set(members: &BTreeSet<u32>) -> CpuSet {
    members.iter().copied().collect()
}

proptest! {
    #[test]
    fn texts_come_back(members in members()) {
        let set = set(&members);
        prop_assert_eq!(&set.to_string().parse::<CpuSet>().unwrap(), &set);
        prop_assert_eq!(&CpuSet::from_mask(&set.to_mask()).unwrap(), &set);
        prop_assert_eq!(&CpuSet::from_words(set.words()), &set);
        prop_assert_eq!(set.iter().collect::<BTreeSet<_>>(), members.clone());
        prop_assert_eq!((set.len(), set.first(), set.last()),
            (members.len(), members.first().copied(), members.last().copied()));
    }

    /// The same as the standard library's sets.
    #[test]
    fn algebra(a in members(), b in members()) {
        let (x, y) = (set(&a), set(&b));
        prop_assert_eq!(x.union(&y), set(&(&a | &b)));
        prop_assert_eq!(x.intersection(&y), set(&(&a & &b)));
        prop_assert_eq!(x.difference(&y), set(&(&a - &b)));
        prop_assert_eq!(x.symmetric_difference(&y), set(&(&a ^ &b)));
        prop_assert_eq!(x.is_subset(&y), a.is_subset(&b));
        prop_assert_eq!(x.is_disjoint(&y), a.is_disjoint(&b));
        prop_assert_eq!(x.is_empty(), a.is_empty());
    }

    #[test]
    fn inserting_and_removing(members in members(), other in 0u32..300) {
        let mut set = set(&members);
        set.insert(other);
        prop_assert!(set.contains(other));
        set.remove(other);
        prop_assert!(!set.contains(other));
        let mut without = members;
        without.remove(&other);
        prop_assert_eq!(set.iter().collect::<BTreeSet<_>>(), without);
    }

    #[test]
    fn no_text_panics(text in "[0-9a-fx,. -]{0,30}") {
        let _ = text.parse::<CpuSet>();
        let _ = CpuSet::from_mask(&text);
        let _ = cpu_placement::Topology::from_hwloc_xml(&format!("<topology version=\"2.0\">{text}"));
    }
}
