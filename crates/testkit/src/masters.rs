//! Real masters: installed when first asked for, started on free ports, gone when they go out of scope.
//!
//! Each comes from the package `mooncake-transfer-engine-non-cuda` of its version, in a virtual environment under the
//! target directory (`kvrp-masters`). What the machine must have for that is python3 with `venv`, and Debian's
//! `libibverbs1`; `cargo xtask setup` installs both.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// The versions there are.
pub const VERSIONS: [&str; 4] = ["0.3.10.post2", "0.3.11.post1", "0.3.12.post1", "0.3.13.post1"];

const PACKAGE: &str = "mooncake-transfer-engine-non-cuda";

/// What a version needs beside the package, and where its libraries are within the environment's packages.
const COMPANIONS: [(&str, &str, &str); 1] =
    [("0.3.12.post1", "nvidia-cuda-runtime-cu12", "nvidia/cuda_runtime/lib")];

const HINT: &str = "run `cargo xtask setup`";

/// How long a master may take to listen; a loaded machine is slow.
const READY_WITHIN: Duration = Duration::from_secs(60);

/// A real master that runs until this goes out of scope.
#[derive(Debug)]
pub struct Master {
    version: &'static str,
    child: Child,
    rpc: SocketAddr,
    metrics: SocketAddr,
    folder: TempDir,
}

/// Starts a master of one of the [`VERSIONS`] with these arguments beside those for its ports.
#[must_use]
pub fn start(version: &str, arguments: &[&str]) -> Master {
    let version = *VERSIONS
        .iter()
        .find(|known| **known == version)
        .unwrap_or_else(|| panic!("no master of version {version:?}, there are {}", VERSIONS.join(", ")));
    let packages = installed(version);
    // A port that was free a moment ago may be taken by now.
    let mut refused = String::new();
    for _ in 0..5 {
        match try_start(version, &packages, arguments) {
            Ok(master) => return master,
            Err(log) => refused = log,
        }
    }
    let hint = if refused.contains("libibverbs") { HINT } else { "it wrote the above" };
    panic!("{refused}\nmaster {version} does not start: {hint}");
}

fn try_start(version: &'static str, packages: &Path, arguments: &[&str]) -> Result<Master, String> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let log = |name: &str| File::create(folder.path().join(name)).expect("a log file");
    let (rpc, metrics) = free_ports();
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(packages.join("mooncake/mooncake_master"));
    command.arg(format!("--rpc_port={}", rpc.port())).arg(format!("--metrics_port={}", metrics.port()));
    command.arg("--rpc_address=127.0.0.1");
    if version == "0.3.13.post1" {
        command.arg("--metrics_host=127.0.0.1");
    }
    if let Some((_, _, libraries)) = COMPANIONS.iter().find(|companion| companion.0 == version) {
        command.env("LD_LIBRARY_PATH", packages.join(libraries));
    }
    command.args(arguments).current_dir(folder.path()).stdin(Stdio::null());
    command.stdout(log("stdout")).stderr(log("stderr"));
    let child = spawn(command).unwrap_or_else(|error| panic!("setpriv does not start: {error}; {HINT}"));
    let mut master = Master { version, child, rpc, metrics, folder };
    if master.becomes_ready() { Ok(master) } else { Err(master.log()) }
}

/// Two ports nobody listens on, taken together so that they differ.
fn free_ports() -> (SocketAddr, SocketAddr) {
    let listeners = [(); 2].map(|()| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port"));
    let [rpc, metrics] = listeners.map(|listener| listener.local_addr().expect("a bound address"));
    (rpc, metrics)
}

impl Master {
    fn becomes_ready(&mut self) -> bool {
        let deadline = Instant::now() + READY_WITHIN;
        while Instant::now() < deadline {
            if self.child.try_wait().expect("a child can be asked for").is_some() {
                return false;
            }
            if [self.rpc, self.metrics].iter().all(|address| TcpStream::connect(address).is_ok()) {
                return true;
            }
            thread::sleep(Duration::from_millis(20));
        }
        false
    }

    /// Where it takes calls.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.rpc
    }

    /// Where it tells its metrics.
    #[must_use]
    pub const fn metrics_address(&self) -> SocketAddr {
        self.metrics
    }

    /// Its version.
    #[must_use]
    pub const fn version(&self) -> &'static str {
        self.version
    }

    /// Its process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it has written so far.
    #[must_use]
    pub fn log(&self) -> String {
        ["stdout", "stderr"]
            .map(|name| fs::read(self.folder.path().join(name)).unwrap_or_default())
            .map(|text| String::from_utf8_lossy(&text).into_owned())
            .join("\n")
    }

    /// Its metrics by name, without those that have labels.
    #[must_use]
    pub fn metrics(&self) -> BTreeMap<String, f64> {
        let text = http_get(self.metrics, "/metrics").unwrap_or_else(|error| {
            panic!("metrics of master {} cannot be read: {error}", self.version);
        });
        let sample = |line: &str| {
            let (name, value) = line.split_once(' ')?;
            Some((name.to_owned(), value.trim().parse().ok()?))
        };
        text.lines().filter(|line| !line.starts_with('#')).filter_map(sample).collect()
    }

    /// One metric.
    #[must_use]
    pub fn metric(&self, name: &str) -> f64 {
        let metrics = self.metrics();
        *metrics.get(name).unwrap_or_else(|| panic!("master {} has no metric {name:?}", self.version))
    }

    /// Stops it from running until [`resume`](Master::resume): it keeps its connections and says nothing.
    pub fn suspend(&self) {
        self.signal("STOP");
    }

    /// Lets it run again.
    pub fn resume(&self) {
        self.signal("CONT");
    }

    fn signal(&self, name: &str) {
        let status = Command::new("kill").args(["-s", name, &self.pid().to_string()]).status();
        assert!(status.is_ok_and(|status| status.success()), "process {} takes no {name}", self.pid());
    }

    /// Ends it now.
    pub fn kill(&mut self) {
        // Both fail only for a process that is gone.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Master {
    fn drop(&mut self) {
        self.kill();
        if thread::panicking() {
            eprintln!("master {} wrote:\n{}", self.version, self.log());
        }
    }
}

fn http_get(address: SocketAddr, path: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let mut bytes = Vec::new();
    let mut chunk = [0; 1 << 14];
    while !is_whole(&bytes) {
        match stream.read(&mut chunk)? {
            0 => break,
            len => bytes.extend_from_slice(&chunk[..len]),
        }
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Whether an answer has come to the end its header announces.
fn is_whole(answer: &[u8]) -> bool {
    let text = String::from_utf8_lossy(answer);
    let Some((header, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = header.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    });
    length.is_some_and(|length| body.len() >= length)
}

type Order = (Command, Sender<io::Result<Child>>);

/// Starts a process from a thread that lives as long as the tests do: a process that dies with its parent dies with the
/// thread that started it.
fn spawn(command: Command) -> io::Result<Child> {
    static ORDERS: OnceLock<Mutex<Sender<Order>>> = OnceLock::new();
    let orders = ORDERS.get_or_init(|| {
        let (sender, receiver) = channel::<Order>();
        thread::spawn(move || {
            for (mut command, answer) in receiver {
                // The receiver waits for it.
                let _ = answer.send(command.spawn());
            }
        });
        Mutex::new(sender)
    });
    let (answer, started) = channel();
    let sent = orders.lock().unwrap_or_else(PoisonError::into_inner).send((command, answer));
    sent.expect("the thread takes orders for ever");
    started.recv().expect("the thread answers every order")
}

/// The folder of the environment's packages, in which a version is installed if it was not.
fn installed(version: &str) -> PathBuf {
    let folder = environments().join(version);
    fs::create_dir_all(environments()).expect("a folder in the target directory");
    let lock = File::create(environments().join(format!("{version}.lock"))).expect("a lock file");
    lock.lock().expect("a lock on it");
    let complete = folder.join("complete");
    if !complete.exists() {
        install(version, &folder);
        fs::write(complete, version).expect("a mark in the environment");
    }
    packages_of(&folder)
}

/// Under the target directory, so that it goes when that goes.
fn environments() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let target = target.filter(|target| target.is_absolute());
    target.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target")).join("kvrp-masters")
}

fn install(version: &str, folder: &Path) {
    if folder.exists() {
        fs::remove_dir_all(folder).expect("an incomplete environment can be removed");
    }
    step(Command::new("python3").args(["-m", "venv"]).arg(folder));
    let mut packages = vec![format!("{PACKAGE}=={version}")];
    packages.extend(
        COMPANIONS.iter().filter(|companion| companion.0 == version).map(|companion| companion.1.into()),
    );
    // The master is a program of its own: of what the package depends on it needs nothing.
    step(
        Command::new(folder.join("bin/python"))
            .args(["-m", "pip", "install", "-q", "--no-deps"])
            .args(packages),
    );
}

fn step(command: &mut Command) {
    let output = command.output();
    let failure = match &output {
        Ok(Output { status, .. }) if status.success() => return,
        Ok(Output { stdout, stderr, .. }) => {
            [stdout, stderr].map(|text| String::from_utf8_lossy(text).into_owned()).join("\n")
        }
        Err(error) => error.to_string(),
    };
    panic!("{command:?} failed: {HINT}\n{failure}");
}

fn packages_of(folder: &Path) -> PathBuf {
    let lib = fs::read_dir(folder.join("lib")).expect("an environment has a lib folder");
    let mut packages = lib.flatten().map(|entry| entry.path().join("site-packages"));
    packages.find(|path| path.is_dir()).unwrap_or_else(|| panic!("no packages in {}", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_metrics_end_where_they_say() {
        let check = |answer: &[u8], whole: bool| assert_eq!(is_whole(answer), whole, "{answer:?}");
        check(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab", false);
        check(b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabc", true);
        check(b"HTTP/1.1 200 OK\r\n\r\nabc", false);
        check(b"HTTP/1.1 200 OK\r\n", false);
    }

    #[test]
    #[should_panic(expected = "no master of version \"1.0\"")]
    fn unknown_versions_are_refused() {
        let _ = start("1.0", &[]);
    }
}
