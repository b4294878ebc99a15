//! Recorded messages, in both directions, byte for byte.

#[path = "../examples/vectors/check.rs"]
mod check;

use check::{Agreement, check_line, to_hex};
use master_wire::{Dialect, Request, Response, ResponseHeader, Rpc, RpcErrorCode, RpcFailure, Style};
use serde_json::{Value, json};

const RECORDED: &str = include_str!("../../../testdata/wire/vectors.jsonl");

#[test]
fn recorded_messages_agree() {
    let mut seen = [0; 3];
    for (line, number) in RECORDED.lines().zip(1..) {
        match check_line(line) {
            Ok(Agreement::Equal) => seen[0] += 1,
            Ok(Agreement::Foreign) => seen[1] += 1,
            Ok(Agreement::Refused) => seen[2] += 1,
            Err(what) => panic!("line {number}: {what}"),
        }
    }
    assert!(seen[0] > 500 && seen[1] > 0 && seen[2] > 30, "{seen:?}");
}

/// The calls no recorded client made.
const NOT_RECORDED: [(Rpc, Dialect); 3] =
    [(Rpc::GetFsdir, Dialect::A), (Rpc::UnmountSegment, Dialect::A), (Rpc::ReMountSegment, Dialect::C)];

#[test]
fn every_call_is_recorded() {
    let recorded: Vec<Value> = RECORDED.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for (rpc, dialect) in Rpc::ALL.iter().flat_map(|rpc| Dialect::ALL.map(|dialect| (*rpc, dialect))) {
        for direction in ["request", "response"] {
            let found = recorded.iter().any(|line| {
                line["rpc"] == rpc.name()
                    && line["master_version"] == dialect.master_version()
                    && line["direction"] == direction
                    && line["canonical"] == true
            });
            assert_eq!(
                found,
                !NOT_RECORDED.contains(&(rpc, dialect)),
                "{direction} of {rpc} in dialect {dialect}"
            );
        }
    }
}

fn line(direction: &str, rpc: &str, hex: &str, decoded: &Value) -> String {
    json!({
        "master_version": "0.3.13.post1", "rpc": rpc, "direction": direction, "hex": hex, "decoded": decoded,
    })
    .to_string()
}

#[test]
fn lines_that_do_not_agree_say_why() {
    let ping =
        "1500000003000000e5dac2d61c00000000000000e1836d3c04fd04048989ff0001000000000000000200000000000000";
    let check = |hex: &str, rpc: &str, decoded: Value, expected: &str| {
        let message = check_line(&line("request", rpc, hex, &decoded)).unwrap_err();
        assert!(message.contains(expected), "{message}");
    };
    let ids = json!({ "client_id": [1, 2] });
    assert_eq!(check_line(&line("request", "Ping", ping, &ids)), Ok(Agreement::Equal));
    check(ping, "Ping", json!({ "client_id": [1, 3] }), "the file says {\"client_id\":[1,3]}");
    check(ping, "Remove", ids.clone(), "the header names Ping");
    check(&ping[..40], "Ping", ids.clone(), "longer than the bytes");
    check(&ping[2..], "Ping", ids.clone(), "magic 0");
    check(&ping[1..], "Ping", ids.clone(), "odd number");
    check("zz", "Ping", ids.clone(), "no digit at 0");
    check(&format!("{ping}00"), "Ping", ids.clone(), "1 bytes behind the frame");
    check(ping, "Ping", json!({ "malformed": "empty body" }), "the file says it is malformed");
    check(
        &ping.replace("e1836d3c", "f1836d3c"),
        "Ping",
        json!({ "malformed": "literal differs" }),
        "type hash",
    );
    assert!(check_line("{").unwrap_err().contains("line 1 column 1"));
    assert!(check_line("{}").unwrap_err().contains("master_version"));
    assert!(check_line(&line("sideways", "Ping", ping, &ids)).unwrap_err().contains("sideways"));
    assert!(
        check_line(&line("request", "Ping", ping, &ids).replace("3.13", "3.99"))
            .unwrap_err()
            .contains("0.3.99")
    );
}

#[test]
fn shapes_that_no_recorded_message_has() {
    let mut out = Vec::new();
    let failure = RpcFailure { code: RpcErrorCode(255), inner_code: Some(7), message: b"caf\xe9"[..].into() };
    failure.encode(&mut out, 1, Style::Official).unwrap();
    let decoded = json!({ "rpc_error": { "code": 7, "msg": { "hex": "636166e9" } } });
    assert_eq!(check_line(&line("response", "Ping", &to_hex(&out), &decoded)), Ok(Agreement::Equal));

    // A body that says its total length, and whose meta byte has bits that mean nothing.
    let body =
        [&[0xe1u8, 0x83, 0x6d, 0x3c, 0xe1, 0x15, 0][..], &[1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]]
            .concat();
    let request =
        [&master_wire::RequestHeader::new(9, Rpc::Ping.function_id(), 23).to_bytes()[..], &body].concat();
    let decoded = json!({ "client_id": [1, 2] });
    assert_eq!(check_line(&line("request", "Ping", &to_hex(&request), &decoded)), Ok(Agreement::Equal));
}

#[test]
fn requests_and_responses_know_their_call() {
    for rpc in Rpc::ALL {
        assert_eq!(Rpc::of_name(rpc.name()), Some(*rpc));
        assert_eq!(Rpc::of_function_id(rpc.function_id()), Ok(*rpc));
    }
    let body = [0u8; 0];
    assert_eq!(Request::decode(Rpc::GetFsdir, Dialect::A, &body).unwrap().value.rpc(), Rpc::GetFsdir);
    assert!(Response::decode(Rpc::GetFsdir, Dialect::A, &body).is_err());
    assert_eq!(ResponseHeader::new(1, 0, 2).to_bytes().len(), 16);
}
