//! The master's metrics: fetched over HTTP, read from Prometheus text.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// What is read of a scrape.
pub(super) const GAUGES: [&str; 4] =
    ["master_total_capacity_bytes", "master_allocated_bytes", "master_key_count", "master_active_clients"];
/// The counters of eviction and of writes that were not finished.
pub(super) const COUNTERS: [&str; 9] = [
    "master_successful_evictions_total",
    "master_attempted_evictions_total",
    "master_evicted_key_count",
    "master_evicted_size_bytes",
    "master_put_start_alloc_failures_total",
    "master_put_start_partial_allocations_total",
    "master_put_start_discard_cnt",
    "master_put_start_release_cnt",
    "master_put_end_failures_total",
];

/// The longest answer that is read.
const MAX_BYTES: u64 = 16 << 20;

/// The values of one scrape.
pub(super) type Values = BTreeMap<&'static str, f64>;

/// Fetches the metrics' text.
pub(super) fn fetch(address: SocketAddr, timeout: Duration) -> io::Result<String> {
    let deadline = Instant::now() + timeout;
    let mut stream = TcpStream::connect_timeout(&address, timeout)?;
    stream.set_write_timeout(Some(timeout))?;
    let request = format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    loop {
        if let Some(body) = body(&answer)? {
            return String::from_utf8(body).map_err(io::Error::other);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || answer.len() as u64 > MAX_BYTES {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        let mut chunk = [0; 16 << 10];
        match stream.read(&mut chunk)? {
            0 => return String::from_utf8(rest_of(&answer)?).map_err(io::Error::other),
            count => answer.extend_from_slice(&chunk[..count]),
        }
    }
}

fn head_end(answer: &[u8]) -> Option<usize> {
    memchr::memmem::find(answer, b"\r\n\r\n").map(|at| at + 4)
}

/// The whole body, once it is there; an answer that does not say its length ends with the connection.
fn body(answer: &[u8]) -> io::Result<Option<Vec<u8>>> {
    let Some(end) = head_end(answer) else { return Ok(None) };
    let head = std::str::from_utf8(&answer[..end]).map_err(io::Error::other)?;
    let status = head.split_whitespace().nth(1).unwrap_or_default();
    if status != "200" {
        return Err(io::Error::other(format!("the metrics answer has status {status:?}")));
    }
    let field = |name: &str| {
        let lines = head.lines().filter_map(|line| line.split_once(':'));
        lines.filter(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim()).next()
    };
    if field("transfer-encoding").is_some_and(|coding| coding.eq_ignore_ascii_case("chunked")) {
        return Ok(dechunk(&answer[end..]));
    }
    let Some(length) = field("content-length").and_then(|text| text.parse::<usize>().ok()) else {
        return Ok(None);
    };
    Ok(answer[end..].get(..length).map(<[u8]>::to_vec))
}

fn rest_of(answer: &[u8]) -> io::Result<Vec<u8>> {
    match head_end(answer) {
        Some(end) => Ok(answer[end..].to_vec()),
        None => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

fn dechunk(mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let line = memchr::memmem::find(rest, b"\r\n")?;
        let size = std::str::from_utf8(&rest[..line]).ok()?;
        let size = usize::from_str_radix(size.split(';').next()?.trim(), 16).ok()?;
        if size == 0 {
            return Some(body);
        }
        body.extend_from_slice(rest.get(line + 2..)?.get(..size)?);
        rest = rest.get(line + 2..)?.get(size..)?.strip_prefix(b"\r\n")?;
    }
}

/// The listed values: lines of exactly a name and a finite number. Labelled series have another name.
pub(super) fn values(text: &str) -> Values {
    let mut values = Values::new();
    for line in text.lines() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [name, value] = fields[..] else { continue };
        let listed = GAUGES.iter().chain(&COUNTERS).find(|listed| **listed == name);
        let value = value.parse::<f64>().ok().filter(|value| value.is_finite());
        if let (Some(name), Some(value)) = (listed, value) {
            values.insert(name, value);
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_listed_unlabelled_finite_values_count() {
        let text = "# HELP master_key_count x\nmaster_key_count 3\nmaster_key_count{a=\"b\"} 4\n\
            master_allocated_bytes NaN\nmaster_evicted_size_bytes 1e6 5\nother 1\nmaster_active_clients 2\n";
        let expected = [("master_key_count", 3.0), ("master_active_clients", 2.0)];
        assert_eq!(values(text), Values::from(expected));
    }

    #[test]
    fn bodies_end_where_they_say() {
        let whole = |answer: &str| body(answer.as_bytes()).expect("a good answer");
        assert_eq!(whole("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab"), Some(b"ab".to_vec()));
        assert_eq!(whole("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab"), None);
        let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n";
        assert_eq!(whole(chunked), Some(b"abc".to_vec()));
        assert_eq!(whole(&chunked[..chunked.len() - 7]), None);
        assert!(body(b"HTTP/1.1 404 no\r\n\r\n").is_err());
    }
}
