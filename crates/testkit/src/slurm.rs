//! A real Slurm cluster on this machine: Debian's munged, slurmctld and one slurmd per node, in a temporary folder, on free
//! ports of the loopback interface, gone when it goes out of scope.
//!
//! Every node is a process namespace of its own, so that [`Cluster::shut_down`] ends all that runs there at once, as when the
//! power goes. Each has one CPU, and no two the same: Slurm's own CPU numbers say 0 on all of them. What the machine must have
//! are Debian's `slurmctld`, `slurmd`, `slurm-client` and `munge`, which `cargo xtask setup` installs, and root.

use std::fs::{self, File};
use std::io::Read;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// How long the daemons may take; a loaded machine is slow.
const READY_WITHIN: Duration = Duration::from_secs(300);

const HINT: &str = "run `cargo xtask setup`, which installs slurmctld, slurmd, slurm-client and munge";

/// A job as the controller knows it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClusterJob {
    /// `4711`, or `4711_2` for a task of an array.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Such as `RUNNING`.
    pub state: String,
    /// Where it runs or ran last; empty before.
    pub node: String,
    /// Why it waits, or was ended.
    pub reason: String,
}

/// A cluster that runs until this goes out of scope.
#[derive(Debug)]
pub struct Cluster {
    // Ended in this order.
    nodes: Vec<Option<Child>>,
    controller: Option<Child>,
    munged: Option<Child>,
    folder: TempDir,
}

impl Cluster {
    /// Starts a cluster with one node, called `n1`, `n2` and so on, for each of `nodes` CPUs of this machine.
    #[must_use]
    pub fn start(nodes: usize) -> Self {
        refuse_unfit();
        let cpus = allowed_cpus();
        assert!(cpus.len() >= nodes, "{nodes} nodes need as many CPUs, this process may use {cpus:?}");
        let folder = tempfile::Builder::new().prefix("kvrp-slurm-").tempdir().expect("a folder");
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("permissions");
        for name in ["etc", "run", "state", "spool", "log"] {
            fs::create_dir(folder.path().join(name)).expect("a folder");
        }
        let mut cluster = Cluster { nodes: Vec::new(), controller: None, munged: None, folder };
        cluster.write_configuration(nodes);
        cluster.munged = Some(cluster.start_munged());
        cluster.wait_for("munged", |cluster| cluster.path("run/munge.socket").exists());
        let conf = cluster.conf();
        let arguments = ["slurmctld", "-D", "-f", conf.to_str().expect("a plain path")];
        cluster.controller = Some(cluster.spawn("slurmctld", &arguments));
        for (index, cpu) in cpus.iter().take(nodes).enumerate() {
            let node = cluster.spawn_node(index, *cpu);
            cluster.nodes.push(Some(node));
        }
        cluster.wait_for("idle nodes", |cluster| cluster.states().iter().all(|(_, state)| state == "idle"));
        cluster
    }

    /// The configuration that Slurm's commands find the cluster by: the value of `SLURM_CONF`.
    #[must_use]
    pub fn conf(&self) -> PathBuf {
        self.path("etc/slurm.conf")
    }

    /// Runs one of Slurm's commands and returns what it printed. It must succeed.
    pub fn run(&self, words: &[&str]) -> String {
        let (stdout, stderr) = self.try_run(words).unwrap_or_else(|error| panic!("{words:?}: {error}"));
        assert!(!stderr.contains("error:"), "{words:?}: {stderr}");
        stdout
    }

    fn try_run(&self, words: &[&str]) -> Result<(String, String), String> {
        let output = Command::new(words[0]).args(&words[1..]).env("SLURM_CONF", self.conf()).output();
        let output = output.map_err(|error| format!("{error}; {HINT}"))?;
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        if !output.status.success() {
            return Err(stderr);
        }
        Ok((String::from_utf8_lossy(&output.stdout).into_owned(), stderr))
    }

    /// The nodes and what they do, as the controller sees it.
    #[must_use]
    pub fn states(&self) -> Vec<(String, String)> {
        let Ok((printed, _)) = self.try_run(&["sinfo", "--noheader", "-N", "-o", "%N %T"]) else {
            return vec![("the controller".to_owned(), "silent".to_owned())];
        };
        let words =
            |line: &str| line.split_once(' ').map(|(node, state)| (node.to_owned(), state.trim().to_owned()));
        printed.lines().filter_map(words).collect()
    }

    /// Every job the controller knows; tasks of an array one by one, unless all were cancelled before any of them ran.
    #[must_use]
    pub fn jobs(&self) -> Vec<ClusterJob> {
        let columns = "%F|%K|%j|%T|%N|%r";
        let printed = self.run(&["squeue", "--array", "--noheader", "--all", "--states=all", "-o", columns]);
        let job = |line: &str| {
            let parts: Vec<&str> = line.trim().splitn(6, '|').map(str::trim).collect();
            let [number, task, name, state, node, reason] = parts[..] else {
                panic!("squeue printed {line:?}")
            };
            let id = if task == "N/A" { number.to_owned() } else { format!("{number}_{task}") };
            let [name, state, node, reason] = [name, state, node, reason].map(str::to_owned);
            ClusterJob { id, name, state, node, reason }
        };
        let mut jobs: Vec<_> = printed.lines().filter(|line| !line.trim().is_empty()).map(job).collect();
        jobs.sort();
        jobs
    }

    /// Takes the power from a node, `n1` being 1, and tells the controller, which otherwise takes its time to notice.
    pub fn shut_down(&mut self, number: usize) {
        end(&mut self.nodes[number - 1]);
        self.run(&["scontrol", "update", &format!("NodeName=n{number}"), "State=DOWN", "Reason=no power"]);
    }

    /// Gives a node its power back and waits until it may be used.
    pub fn power_up(&mut self, number: usize) {
        assert!(self.nodes[number - 1].is_none(), "n{number} has power");
        let cpu = allowed_cpus()[number - 1];
        self.nodes[number - 1] = Some(self.spawn_node(number - 1, cpu));
        self.run(&["scontrol", "update", &format!("NodeName=n{number}"), "State=RESUME"]);
        let name = format!("n{number}");
        let is_up = move |cluster: &Cluster| {
            cluster
                .states()
                .iter()
                .any(|(node, state)| *node == name && ["idle", "allocated"].contains(&state.as_str()))
        };
        self.wait_for("a node", is_up);
    }

    /// What the daemons wrote.
    #[must_use]
    pub fn log(&self) -> String {
        let mut text = String::new();
        for entry in fs::read_dir(self.path("log")).expect("logs").filter_map(Result::ok) {
            text.push_str(&format!("--- {}\n", entry.file_name().to_string_lossy()));
            let mut bytes = Vec::new();
            if File::open(entry.path()).and_then(|mut file| file.read_to_end(&mut bytes)).is_ok() {
                text.push_str(&String::from_utf8_lossy(&bytes));
            }
        }
        text
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn wait_for(&self, what: &str, ready: impl Fn(&Cluster) -> bool) {
        let start = Instant::now();
        while !ready(self) {
            if start.elapsed() > READY_WITHIN {
                panic!("no {what} within {READY_WITHIN:?}: {:?}\n{}", self.states(), self.log());
            }
            thread::sleep(Duration::from_millis(100));
        }
    }

    fn start_munged(&self) -> Child {
        let key = self.path("etc/munge.key");
        let mut bytes = [0; 1024];
        File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes)).expect("random bytes");
        fs::write(&key, bytes).expect("a key");
        fs::set_permissions(&key, fs::Permissions::from_mode(0o400)).expect("permissions");
        let option = |name: &str, value: &str| format!("--{name}={}", self.path(value).display());
        let options = [
            option("key-file", "etc/munge.key"),
            option("socket", "run/munge.socket"),
            option("pid-file", "run/munged.pid"),
            option("log-file", "log/munged"),
            option("seed-file", "run/munge.seed"),
        ];
        let mut words = vec!["munged", "--foreground", "--force", "--num-threads=2"];
        words.extend(options.iter().map(String::as_str));
        self.spawn("munged.out", &words)
    }

    fn spawn_node(&self, index: usize, cpu: u32) -> Child {
        let (name, cpu, conf) = (format!("n{}", index + 1), cpu.to_string(), self.conf());
        let conf = conf.to_str().expect("a plain path");
        self.spawn(
            &format!("slurmd-{name}.out"),
            &["taskset", "-c", &cpu, "slurmd", "-D", "-N", &name, "-f", conf],
        )
    }

    /// Starts a daemon with all its descendants in a namespace that ends with it, and with this process.
    fn spawn(&self, log: &str, words: &[&str]) -> Child {
        let log = File::options().create(true).append(true).open(self.path("log").join(log)).expect("a log");
        let mut command = Command::new("setpriv");
        command.args([
            "--pdeathsig",
            "KILL",
            "--",
            "unshare",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
        ]);
        command.args(words).stdin(Stdio::null());
        command.stdout(log.try_clone().expect("a log")).stderr(log);
        command.env("PATH", daemon_path());
        command.spawn().unwrap_or_else(|error| panic!("{words:?} does not start: {error}; {HINT}"))
    }

    fn write_configuration(&self, nodes: usize) {
        let host = fs::read_to_string("/proc/sys/kernel/hostname").expect("a host name");
        let (host, folder) = (host.trim(), self.folder.path().display());
        let ports = free_ports(nodes + 1);
        let mut text = format!(
            "ClusterName=kvrp\nSlurmctldHost={host}(127.0.0.1)\nSlurmUser=root\nSlurmdUser=root\n\
             AuthType=auth/munge\nCryptoType=crypto/munge\n\
             # A job that was put back waits as long as a credential lives; less than 5 s means 120 s.\n\
             AuthInfo=socket={folder}/run/munge.socket,cred_expire=20\n\
             SlurmctldPort={port}\nSlurmctldPidFile={folder}/run/slurmctld.pid\n\
             SlurmdPidFile={folder}/run/slurmd-%n.pid\nSlurmdSpoolDir={folder}/spool/%n\n\
             StateSaveLocation={folder}/state\nSlurmctldLogFile={folder}/log/slurmctld\n\
             SlurmdLogFile={folder}/log/slurmd-%n\nProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\n\
             SelectType=select/cons_tres\nSelectTypeParameters=CR_CPU\nSchedulerType=sched/backfill\n\
             SchedulerParameters=bf_interval=1,sched_interval=1,batch_sched_delay=0\nJobRequeue=1\nMpiDefault=none\n\
             SwitchType=switch/none\nReturnToService=2\nKillWait=60\nMinJobAge=3600\n\
             SlurmdParameters=config_overrides\n\
             # A busy machine is slow, and that is no failure of a node.\n\
             SlurmdTimeout=600\nBatchStartTimeout=600\nMessageTimeout=60\nTCPTimeout=30\n",
            port = ports[0]
        );
        for (index, port) in ports[1..].iter().enumerate() {
            let name = format!("n{}", index + 1);
            text.push_str(&format!(
                "NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=1\n"
            ));
        }
        // Jobs of `urgent` take nodes away: those of `p` go back into the queue, those of `losing` do not.
        text.push_str("PreemptType=preempt/partition_prio\nPreemptMode=REQUEUE\n");
        let partitions =
            [("p", "YES", 1, "REQUEUE"), ("losing", "NO", 1, "CANCEL"), ("urgent", "NO", 9, "OFF")];
        for (name, default, tier, mode) in partitions {
            text.push_str(&format!(
                "PartitionName={name} Nodes=ALL Default={default} MaxTime=INFINITE State=UP \
                 PriorityTier={tier} PreemptMode={mode}\n"
            ));
        }
        fs::write(self.conf(), text).expect("a configuration");
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("{}", self.log());
        }
        self.nodes.iter_mut().for_each(end);
        end(&mut self.controller);
        end(&mut self.munged);
    }
}

/// Ends a daemon; both calls fail only for a process that is gone.
fn end(child: &mut Option<Child>) {
    if let Some(mut child) = child.take() {
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// The daemons are where only root's path leads.
fn daemon_path() -> String {
    format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_else(|_| "/usr/bin:/bin".to_owned()))
}

fn refuse_unfit() {
    let missing: Vec<&str> =
        ["munged", "slurmctld", "slurmd", "sbatch", "squeue", "setpriv", "unshare", "taskset"]
            .into_iter()
            .filter(|name| !std::env::split_paths(&daemon_path()).any(|folder| folder.join(name).is_file()))
            .collect();
    assert!(missing.is_empty(), "{} not found: {HINT}", missing.join(", "));
    let status = fs::read_to_string("/proc/self/status").expect("a status");
    let user = status.lines().find_map(|line| line.strip_prefix("Uid:")).expect("a user id");
    let is_root = user.split_whitespace().next() == Some("0");
    assert!(is_root, "a cluster is started by root: run these tests as root");
    let tried = Command::new("unshare").args(["--pid", "--fork", "--mount-proc", "true"]).output();
    let said = tried.map_or_else(
        |error| error.to_string(),
        |output| {
            if output.status.success() {
                String::new()
            } else {
                String::from_utf8_lossy(&output.stderr).into()
            }
        },
    );
    assert!(said.is_empty(), "every node is a process namespace, and this machine refuses one: {said}");
}

/// The CPUs that this process may use.
fn allowed_cpus() -> Vec<u32> {
    let status = fs::read_to_string("/proc/self/status").expect("a status");
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).expect("a CPU list");
    let number = |text: &str| text.trim().parse::<u32>().expect("a CPU");
    let range = |part: &str| match part.split_once('-') {
        Some((first, last)) => (number(first)..=number(last)).collect::<Vec<_>>(),
        None => vec![number(part)],
    };
    list.split(',').flat_map(range).collect()
}

/// Ports nobody listens on, taken together so that they differ.
fn free_ports(count: usize) -> Vec<u16> {
    let listeners: Vec<TcpListener> =
        (0..count).map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port")).collect();
    listeners.iter().map(|listener| listener.local_addr().expect("an address").port()).collect()
}
