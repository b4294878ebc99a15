//! How fast calls are, and whether the client or the master is what limits them.
//!
//! `cargo bench -p master-wire --bench targets -- [--check]`
//!
//! Prints `what  target  measured  met|missed` per line; with `--check`, a miss exits 1. Client and master are two
//! processes on the loopback interface, each bound to a CPU of its own. Each figure is the best of many short rounds: what
//! else runs on the machine only makes it worse. Beside it stand plain loops that build their frames once, read nothing
//! and count bytes, one in Python and one in Rust. A stand-in serves most of it, because a real master would be the limit.

use std::hint::black_box;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use master_wire::{
    BatchExistKey, BatchGetReplicaList, Buffer, BufferReplica, Call, ConnectOptions, Connection, Dialect,
    Frame, Location, Outcome, Replica, ReplicaList, ReplicaStatus, Response, ResponseHeader, Style,
    decode_reply, encode_request,
};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::resource::{UsageWho, getrusage};
use nix::unistd::Pid;
use testkit::master::{Script, StandIn};
use testkit::masters;
use testkit::{CountingAllocator, allocations};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const DIALECT: Dialect = Dialect::D;
const IN_FLIGHT: usize = 256;
/// Many short rounds: on a machine that is not idle some of them are left alone.
const ROUNDS: usize = 40;
const CALLS: u64 = 40_000;
const ROUNDS_TO_REAL: usize = 100;
const CALLS_TO_REAL: u64 = 2_000;
const MIN_CALLS_PER_S: f64 = 400_000.0;
const MAX_CPU_US: f64 = 2.5;
const MIN_MASTER_PERCENT: f64 = 95.0;
const MAX_CLIENT_PERCENT: f64 = 25.0;
const MIN_DECODE_MB_PER_S: f64 = 300.0;
const KEYS: usize = 64;
const SERVE: &str = "serve-as-stand-in";

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some(SERVE) {
        return serve();
    }
    let check = std::env::args().any(|argument| argument == "--check");
    let mut report = Report::default();
    decoding(&mut report);
    match cpus()[..] {
        [own, .., masters] => {
            bind(Pid::this(), own);
            against_stand_in(&mut report, masters);
            against_real(&mut report, masters);
        }
        _ => report.line("calls", "two CPUs", "not measured: this machine has one", false),
    }
    if check && report.missed > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

#[derive(Default)]
struct Report {
    missed: u32,
}

impl Report {
    fn line(&mut self, what: &str, target: &str, measured: &str, met: bool) {
        self.missed += u32::from(!met);
        println!("{what:<58} {target:<18} {measured:<18} {}", if met { "met" } else { "missed" });
    }

    /// A figure without a target.
    fn note(&self, what: &str, measured: &str) {
        println!("{what:<58} {:<18} {measured}", "-");
    }
}

fn cpus() -> Vec<usize> {
    let set = sched_getaffinity(Pid::this()).expect("a process may ask where it runs");
    (0..CpuSet::count()).filter(|cpu| set.is_set(*cpu).unwrap_or(false)).collect()
}

fn bind(thread: Pid, cpu: usize) {
    let mut set = CpuSet::new();
    set.set(cpu).expect("a CPU of this machine");
    sched_setaffinity(thread, &set).expect("a process may bind itself and its children");
}

/// The stand-in as a process: says where it listens, and ends with its standard input.
fn serve() -> ExitCode {
    let master = StandIn::start(DIALECT, Script::honest());
    println!("{}", master.address());
    let mut rest = Vec::new();
    match std::io::stdin().read_to_end(&mut rest) {
        Ok(_) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

struct Served {
    child: Child,
    address: SocketAddr,
}

impl Served {
    #[expect(clippy::disallowed_methods, reason = "the other of the two processes that are measured")]
    fn start(cpu: usize) -> Served {
        let own = std::env::current_exe().expect("a path to this program");
        let mut command = Command::new(own);
        let child = command.arg(SERVE).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = child.expect("this program starts again");
        bind(pid(child.id()), cpu);
        let mut line = String::new();
        let stdout = child.stdout.take().expect("it is piped");
        BufReader::new(stdout).read_line(&mut line).expect("the stand-in says where it listens");
        Served { child, address: line.trim().parse().expect("an address") }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

fn pid(id: u32) -> Pid {
    Pid::from_raw(id.try_into().expect("a process id"))
}

fn threads(process: u32) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).expect("the process runs");
    let number = |task: std::fs::DirEntry| task.file_name().to_string_lossy().parse().expect("a thread id");
    tasks.flatten().map(number).collect()
}

/// What the threads of a process had of the processor.
struct Scheduled {
    /// How long they ran, together, in seconds.
    ran_s: f64,
    /// By thread, how long it ran or would have if its CPU had been free, in seconds.
    runnable_s: Vec<(u32, f64)>,
}

impl Scheduled {
    fn of(process: u32) -> Scheduled {
        let mut scheduled = Scheduled { ran_s: 0.0, runnable_s: Vec::new() };
        for thread in threads(process) {
            let path = format!("/proc/{process}/task/{thread}/schedstat");
            let text = std::fs::read_to_string(path).expect("a kernel that counts what it schedules");
            let seconds: Vec<f64> = text
                .split_whitespace()
                .map(|word| word.parse::<f64>().expect("a count of nanoseconds") / 1e9)
                .collect();
            scheduled.ran_s += seconds[0];
            scheduled.runnable_s.push((thread, seconds[0] + seconds[1]));
        }
        scheduled
    }

    /// How long the busiest thread was runnable since `before`.
    fn busiest_s(&self, before: &Scheduled) -> f64 {
        let earlier =
            |thread| before.runnable_s.iter().find(|entry| entry.0 == thread).map_or(0.0, |entry| entry.1);
        self.runnable_s.iter().map(|(thread, now)| now - earlier(*thread)).fold(0.0, f64::max)
    }
}

fn own_cpu() -> f64 {
    let usage = getrusage(UsageWho::RUSAGE_THREAD).expect("a thread may ask what it used");
    let seconds = |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    seconds(usage.user_time()) + seconds(usage.system_time())
}

/// What a number of calls took.
#[derive(Clone, Copy)]
struct Took {
    calls: f64,
    wall_s: f64,
    cpu_s: f64,
}

impl Took {
    fn per_s(&self) -> f64 {
        self.calls / self.wall_s
    }

    fn cpu_us(&self) -> f64 {
        self.cpu_s / self.calls * 1e6
    }
}

fn timed(calls: u64, work: impl FnOnce()) -> Took {
    let (cpu, began) = (own_cpu(), Instant::now());
    work();
    Took { calls: calls as f64, wall_s: began.elapsed().as_secs_f64(), cpu_s: own_cpu() - cpu }
}

fn connect(address: SocketAddr) -> Connection {
    let mut options = ConnectOptions::in_dialect(DIALECT);
    options.session.max_in_flight = IN_FLIGHT;
    options.call_timeout = Duration::from_secs(60);
    Connection::connect(address, &options).expect("a master that listens")
}

/// Makes calls, up to [`IN_FLIGHT`] at once, and reads every result. New calls are queued when a quarter of them are answered,
/// so that many go out together.
fn pump(connection: &mut Connection, calls: u64) {
    let keys = ["bench-key-0"];
    let call = BatchExistKey { keys: (&keys).into(), ..Default::default() };
    let mut sent = 0;
    let mut got = 0;
    while got < calls {
        if sent < calls && sent - got <= IN_FLIGHT as u64 / 4 * 3 {
            while sent < calls && sent - got < IN_FLIGHT as u64 {
                connection.submit(&call).expect("a call that can be written");
                sent += 1;
            }
            // Now, so that the master works on them while more replies are read.
            connection.flush().expect("an open connection");
        }
        let arrived = connection.receive().expect("a reply");
        let results = arrived.decode::<BatchExistKey<'_>>().expect("a result");
        assert!(results.iter().eq([Ok(false)]));
        got += 1;
    }
}

/// The same with frames that were built before, and replies of which only the length is looked at.
fn plain_loop(address: SocketAddr, calls: u64) {
    let keys = ["bench-key-0"];
    let call = BatchExistKey { keys: (&keys).into(), ..Default::default() };
    let mut frames = Vec::new();
    for seq_num in 0..u32::try_from(IN_FLIGHT).expect("a small number") {
        encode_request(&mut frames, seq_num, DIALECT, &call, Style::Compact).expect("it can be written");
    }
    let frame_len = frames.len() / IN_FLIGHT;
    let mut stream = TcpStream::connect(address).expect("a master that listens");
    stream.set_nodelay(true).expect("a socket takes TCP_NODELAY");
    let mut buffer = vec![0; 256 << 10];
    stream.write_all(&frames[..frame_len]).expect("an open connection");
    let reply_len = stream.read(&mut buffer).expect("a reply");
    let (mut sent, mut got, mut pending) = (0, 0, 0);
    while got < calls {
        let free = (IN_FLIGHT as u64 - (sent - got)).min(calls - sent);
        let len = usize::try_from(free).expect("a small number") * frame_len;
        stream.write_all(&frames[..len]).expect("an open connection");
        sent += free;
        pending += stream.read(&mut buffer).expect("replies");
        got += (pending / reply_len) as u64;
        pending %= reply_len;
    }
}

#[expect(clippy::disallowed_methods, reason = "what the client is compared with is a program of its own")]
fn python_loop(address: SocketAddr, calls: u64, rounds: usize) -> Option<f64> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/targets/plain_loop.py");
    let hash = BatchExistKey::RPC.request(DIALECT).hash().to_string();
    let (host, port) = (address.ip().to_string(), address.port().to_string());
    let [calls, depth, rounds] = [calls.to_string(), IN_FLIGHT.to_string(), rounds.to_string()];
    let arguments = [script, &host, &port, &calls, &depth, &rounds, &hash, "default"];
    let output = Command::new("python3").args(arguments).stderr(Stdio::inherit()).output().ok()?;
    String::from_utf8(output.stdout).ok()?.trim().parse().ok()
}

fn best(rounds: usize, mut round: impl FnMut() -> Took) -> Took {
    let rounds: Vec<Took> = (0..rounds).map(|_| round()).collect();
    *rounds.iter().min_by(|a, b| a.wall_s.total_cmp(&b.wall_s)).expect("there are rounds")
}

fn against_stand_in(report: &mut Report, cpu: usize) {
    let served = Served::start(cpu);
    let mut connection = connect(served.address);
    pump(&mut connection, 10_000);
    let took = best(ROUNDS, || timed(CALLS, || pump(&mut connection, CALLS)));
    let least_cpu =
        best(ROUNDS, || timed(CALLS, || pump(&mut connection, CALLS))).cpu_us().min(took.cpu_us());
    let what = "BatchExistKey of one key, one connection, 256 in flight";
    report.line(what, ">= 400k/s", &per_s(took.per_s()), took.per_s() >= MIN_CALLS_PER_S);
    let cpu_us = format!("{least_cpu:.2} us");
    report.line("  CPU time of the client per call", "<= 2.50 us", &cpu_us, least_cpu <= MAX_CPU_US);
    let (count, ()) = allocations(|| pump(&mut connection, 10_000));
    report.line("  allocations in 10,000 calls", "0", &count.to_string(), count == 0);
    let plain = best(ROUNDS, || timed(CALLS, || plain_loop(served.address, CALLS)));
    report.note("  a plain loop in Rust", &per_s(plain.per_s()));
    report.note("  a plain loop in Python", &python(served.address, CALLS, ROUNDS));
}

fn python(address: SocketAddr, calls: u64, rounds: usize) -> String {
    python_loop(address, calls, rounds).map_or("not measured: python3 does not run".to_owned(), per_s)
}

fn against_real(report: &mut Report, cpu: usize) {
    let master = masters::start(DIALECT.master_version(), &["--rpc_thread_num=1"]);
    // Those that exist already do not follow their process.
    for thread in threads(master.pid()) {
        bind(pid(thread), cpu);
    }
    let mut connection = connect(master.address());
    pump(&mut connection, 10_000);
    let mut shares = Vec::new();
    let took = best(ROUNDS_TO_REAL, || {
        let before = Scheduled::of(master.pid());
        let took = timed(CALLS_TO_REAL, || pump(&mut connection, CALLS_TO_REAL));
        let after = Scheduled::of(master.pid());
        shares.push((
            after.busiest_s(&before) / took.wall_s * 100.0,
            took.cpu_s / (after.ran_s - before.ran_s) * 100.0,
        ));
        took
    });
    report.note("the same against master 0.3.13.post1", &per_s(took.per_s()));
    // A thread that waits for its CPU is busy too: what else runs there is not the client's doing. For the same reason
    // the client's share is taken of the time the master ran, which with its core full is the time that passed.
    let busy = shares.iter().map(|share| share.0).fold(0.0, f64::max);
    let client = shares.iter().map(|share| share.1).fold(f64::INFINITY, f64::min);
    report.line(
        "  the master's thread is busy",
        ">= 95 %",
        &format!("{busy:.0} %"),
        busy >= MIN_MASTER_PERCENT,
    );
    report.line(
        "  the client in that time",
        "< 25 %",
        &format!("{client:.0} %"),
        client < MAX_CLIENT_PERCENT,
    );
    report.note("  a plain loop in Python", &python(master.address(), CALLS_TO_REAL, ROUNDS_TO_REAL));
}

fn per_s(calls: f64) -> String {
    format!("{:.0}k/s", calls / 1000.0)
}

/// The reply to a `BatchGetReplicaList` of [`KEYS`] keys, with one replica each, as a master sends it.
fn replica_lists() -> Vec<u8> {
    let buffer_descriptor = Buffer {
        size: 4096,
        buffer_address: 1 << 40,
        protocol: "tcp".into(),
        transport_endpoint: "127.0.0.1:17999".into(),
    };
    let descriptor = Location::Memory(BufferReplica { buffer_descriptor });
    let replicas = [Replica { id: 7, descriptor, status: ReplicaStatus::COMPLETE }];
    let found: Outcome<ReplicaList<'_>> =
        Ok(ReplicaList { replicas: (&replicas).into(), lease_ttl_ms: 10_000, ..Default::default() });
    let mut reply = Vec::new();
    let found = [found; KEYS];
    let response = Response::BatchGetReplicaList((&found).into());
    response.encode(&mut reply, 1, DIALECT, Style::Official).expect("it can be written");
    reply
}

fn decoding(report: &mut Report) {
    let reply = replica_lists();
    let (frame, _) =
        Frame::<ResponseHeader>::split(&reply, usize::MAX).expect("a frame").expect("a whole one");
    let rounds = 20_000;
    let round = || {
        timed(rounds, || {
            for _ in 0..rounds {
                black_box(read_all(black_box(&frame)));
            }
        })
    };
    assert_eq!(read_all(&frame), KEYS as u64 * (4096 + 7 + 10_000));
    // By processor time: what else runs on the machine does not slow a decoder down, it only delays it.
    let took = best(ROUNDS, round);
    let mb_per_s = reply.len() as f64 / took.cpu_us();
    let what = format!("decoding BatchGetReplicaList of 64 keys, {} bytes, all read", reply.len());
    report.line(&what, ">= 300 MB/s", &format!("{mb_per_s:.0} MB/s"), mb_per_s >= MIN_DECODE_MB_PER_S);
}

/// Looks at every part of every replica.
fn read_all(frame: &Frame<'_, ResponseHeader>) -> u64 {
    let lists = decode_reply::<BatchGetReplicaList<'_>>(frame, DIALECT).expect("a result");
    let mut sum = 0;
    for found in lists {
        let found = found.expect("every key was found");
        sum += found.lease_ttl_ms;
        for replica in found.replicas {
            let Location::Memory(memory) = replica.descriptor else { continue };
            let buffer = black_box(memory.buffer_descriptor);
            sum += buffer.size + replica.id;
        }
    }
    sum
}
