//! The least that a paced sender can do.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use master_wire::{BatchExistKey, ConnectOptions, Connection, Style, encode_request};
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;

/// Sends so many equal requests at so many a second; gives the p99 of how late each was, in us.
pub(crate) fn send(address: SocketAddr, rate: u64, calls: u64) -> u64 {
    let dialect = Connection::connect(address, &ConnectOptions::default()).expect("a master").dialect();
    let mut frame = Vec::new();
    let key = format!("model-7b/block-{:032x}", 1);
    let keys = [key.as_str()];
    let call = BatchExistKey { keys: (&keys).into(), ..Default::default() };
    encode_request(&mut frame, 0, dialect, &call, Style::Compact).expect("encoded");
    let mut stream = TcpStream::connect(address).expect("connected");
    stream.set_nodelay(true).expect("set");
    stream.set_nonblocking(true).expect("set");
    nix::sys::prctl::set_timerslack(1).expect("set");
    let mut buffer = vec![0; 64 << 10];
    let mut lags = Vec::new();
    let begun = Instant::now();
    for call in 0..calls {
        let due = Duration::from_micros(call * 1_000_000 / rate);
        loop {
            let left = due.saturating_sub(begun.elapsed());
            if left.is_zero() {
                break;
            }
            let mut polled = [PollFd::new(stream.as_fd(), PollFlags::POLLIN)];
            let ready = ppoll(&mut polled, Some(TimeSpec::from_duration(left)), None).expect("polled");
            if ready > 0 {
                drain(&mut stream, &mut buffer);
            }
        }
        lags.push(u64::try_from((begun.elapsed() - due).as_micros()).unwrap_or(u64::MAX));
        stream.write_all(&frame).expect("the socket has room");
    }
    lags.sort_unstable();
    lags[lags.len() * 99 / 100]
}

fn drain(stream: &mut TcpStream, buffer: &mut [u8]) {
    match stream.read(buffer) {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::WouldBlock => {}
        Err(error) => panic!("the master's replies cannot be read: {error}"),
    }
}
