//! The numbers of the specification against what follows from the schema.

use master_wire::{ClientStatus, Dialect, ErrorCode, ReplicaStatus, ReplicaType, Rpc, RpcErrorCode};

const SIGNATURES: &str = include_str!("../../../testdata/wire/signatures.tsv");
const FUNCTION_IDS: &str = include_str!("../../../testdata/wire/function-ids.tsv");
const ERROR_CODES: &str = include_str!("../../../testdata/wire/error-codes.tsv");

fn rows(table: &str) -> impl Iterator<Item = Vec<&str>> {
    table.lines().filter(|line| !line.starts_with('#')).map(|line| line.split('\t').collect())
}

fn dialects(letters: &str) -> impl Iterator<Item = Dialect> {
    Dialect::ALL.into_iter().filter(move |dialect| letters.contains(&format!("{dialect:?}")))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn literals_and_hashes() {
    let mut checked = 0;
    for row in rows(SIGNATURES) {
        let [direction, name, letters, hash, literal] = row[..] else { panic!("{row:?}") };
        let rpc = Rpc::of_name(name).unwrap();
        for dialect in dialects(letters) {
            let signature = if direction == "request" { rpc.request(dialect) } else { rpc.response(dialect) };
            assert_eq!(hex(signature.literal()), literal, "{direction} of {rpc} in {dialect}");
            if !literal.is_empty() {
                assert_eq!(format!("{:#010x}", signature.hash()), hash, "{direction} of {rpc} in {dialect}");
            }
            assert_eq!(signature.is_empty(), literal.is_empty());
            checked += 1;
        }
    }
    assert_eq!(checked, 2 * Rpc::ALL.len() * Dialect::ALL.len());
}

#[test]
fn function_ids() {
    let ids: Vec<_> = rows(FUNCTION_IDS).collect();
    assert_eq!(ids.len(), Rpc::ALL.len());
    for row in ids {
        let rpc = Rpc::of_name(row[0]).unwrap();
        assert_eq!(format!("{:#010x}", rpc.function_id()), row[1], "{rpc}");
    }
    assert_eq!(
        Rpc::of_function_id(0xdead_beef).unwrap_err().to_string(),
        "no call has the function id 0xdeadbeef"
    );
}

#[test]
fn error_codes() {
    let mut named = Vec::new();
    for row in rows(ERROR_CODES) {
        let [number, name, letters] = row[..] else { panic!("{row:?}") };
        let code = ErrorCode(number.parse().unwrap());
        assert_eq!(code.name(), Some(name), "{number}");
        assert_eq!(ErrorCode::of_name(name), Some(code));
        for dialect in Dialect::ALL {
            assert_eq!(code.exists_in(dialect), dialects(letters).any(|known| known == dialect), "{name}");
        }
        named.push(code);
    }
    assert_eq!(named.len(), ErrorCode::NAMED.len());
    assert_eq!(ErrorCode::OBJECT_HAS_LEASE.to_string(), "OBJECT_HAS_LEASE (-706)");
    assert_eq!(ErrorCode(-12345).to_string(), "-12345");
}

#[test]
fn smaller_enumerations() {
    assert_eq!(RpcErrorCode(11).name(), Some("function_not_registered"));
    assert_eq!(RpcErrorCode::NAMED.len(), 18);
    assert_eq!(ReplicaType::usual(Dialect::A), ReplicaType(0));
    assert_eq!(ReplicaType::usual(Dialect::B), ReplicaType(4));
    assert!(ReplicaType::DFS.exists_in(Dialect::D) && !ReplicaType::DFS.exists_in(Dialect::C));
    assert_eq!((ReplicaStatus::COMPLETE.0, ClientStatus::NEED_REMOUNT.0), (3, 2));
}
